//! A `farcall serve` for one test, in a folder of its own. It starts, stops, kills and replaces the
//! server. Its own folder is removed with it.

use crate::{BOUND, farcall};
use farcall_client::Options;
use farcall_lab::Daemon;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A server that will be started. [`ServerProcess::of`] makes one.
#[derive(Debug)]
pub struct Serving {
    folder: Folder,
    words: Vec<String>,
    /// An option of `ulimit` and its value.
    limit: Option<String>,
    variables: Vec<(&'static str, String)>,
    keeps_log: bool,
}

/// A server, which is killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    // Before its folder, because the server must end before the folder is removed.
    daemon: Daemon,
    serving: Serving,
}

/// The folder in which it runs.
#[derive(Debug)]
enum Folder {
    /// Removed with the server.
    Own(TempDir),
    /// A folder that outlives the server.
    Given(PathBuf),
    /// A folder of its own, with a small disk for the state folder.
    WithDisk(TempDir),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Folder::Own(folder) | Folder::WithDisk(folder) => folder.path(),
            Folder::Given(path) => path,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Folder::WithDisk(folder) = self {
            // If the disk cannot be unmounted, only its folder is left behind.
            let _ = Command::new("umount").arg(state(folder.path())).status();
        }
    }
}

/// A folder that is removed in the end, and that other users can read.
pub fn folder() -> TempDir {
    let mode = fs::Permissions::from_mode(0o755);
    let mut builder = tempfile::Builder::new();
    builder.prefix("farcall-").permissions(mode);
    builder.tempdir().expect("a temporary folder")
}

fn state(folder: &Path) -> PathBuf {
    folder.join("state")
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

impl Serving {
    fn new(folder: Folder, files: &[&str]) -> Serving {
        Serving {
            folder,
            words: files.iter().map(|file| (*file).to_owned()).collect(),
            limit: None,
            variables: Vec::new(),
            keeps_log: false,
        }
    }

    /// A server of these interface files, given as texts.
    fn of(folder: Folder, interfaces: &[&str]) -> Serving {
        let mut serving = Serving::new(folder, &[]);
        for (number, text) in interfaces.iter().enumerate() {
            let name = format!("{number}.idl");
            fs::write(serving.folder.path().join(&name), text).expect("its folder is there");
            serving.words.push(name);
        }
        serving
    }

    /// Sets the configuration.
    #[must_use]
    pub fn config(self, text: &str) -> Serving {
        let file = self.folder.path().join("farcall.toml");
        fs::write(file, with_shadow(text)).expect("its folder is there");
        self.options(&["--config", "farcall.toml"])
    }

    /// Adds options of `farcall serve`. Without others, the server listens at a free port of the
    /// loopback and logs errors.
    #[must_use]
    pub fn options(mut self, options: &[&str]) -> Serving {
        let options = options.iter().map(|option| (*option).to_owned());
        self.words.extend(options);
        self
    }

    /// Adds a state folder for durable calls, and a Unix socket.
    #[must_use]
    pub fn durable(self) -> Serving {
        self.options(&["--state", "state", "--unix", "socket"])
    }

    /// Limits the number of open files.
    #[must_use]
    pub fn open_files(self, most: u32) -> Serving {
        self.limited(&format!("-n {most}"))
    }

    /// Sets a limit of the shell that starts the server: an option of `ulimit` and its value.
    #[must_use]
    pub fn limited(mut self, limit: &str) -> Serving {
        self.limit = Some(limit.to_owned());
        self
    }

    /// Sets an environment variable of the server.
    #[must_use]
    pub fn variable(mut self, name: &'static str, value: &str) -> Serving {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Writes the log, with warnings, to a file that [`ServerProcess::log`] reads.
    #[must_use]
    pub fn keep_log(mut self) -> Serving {
        self.keeps_log = true;
        self
    }

    /// Starts the server, and returns once it listens.
    pub fn start(mut self) -> ServerProcess {
        if is_sanitized() && !self.words.iter().any(|word| word == "--config") {
            self = self.config("");
        }
        let level = if self.keeps_log { "warn" } else { "error" };
        for (option, usual) in [("--listen", "127.0.0.1:0"), ("--log", level)] {
            if !self.words.iter().any(|word| word == option) {
                self.words.extend([option, usual].map(str::to_owned));
            }
        }
        let daemon = self.run(&self.words);
        ServerProcess {
            daemon,
            serving: self,
        }
    }

    fn run(&self, words: &[String]) -> Daemon {
        let folder = self.folder.path();
        let mut command = match &self.limit {
            None => farcall(),
            Some(limit) => {
                let mut command = Command::new("sh");
                let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
                command.args(["-c", &script]).arg(farcall().get_program());
                command
            }
        };
        command.arg("serve").args(words).current_dir(folder);
        // Nothing is left in the home of the user, and nothing is found there.
        command.env("XDG_STATE_HOME", folder);
        let variables = self.variables.iter();
        command.envs(variables.map(|(name, value)| (name, value)));
        if self.keeps_log {
            command.stderr(fs::File::create(folder.join("log")).expect("its folder is there"));
        }
        let has_socket = words.iter().any(|word| word == "--unix");
        let mut daemon = Daemon::start(command).expect("it listens");
        if has_socket {
            // The socket exists once the server says that it listens.
            daemon.next_line().expect("it listens at its socket too");
        }
        daemon
    }
}

impl ServerProcess {
    /// A server of these interfaces, given as texts, in a folder of its own.
    pub fn of(interfaces: &[&str]) -> Serving {
        Serving::of(Folder::Own(folder()), interfaces)
    }

    /// A server of interface files in a folder, which outlives it.
    pub fn within(folder: &Path, files: &[&str]) -> Serving {
        Serving::new(Folder::Given(folder.to_path_buf()), files)
    }

    /// A server as [`ServerProcess::of`] makes it, whose state folder is a disk of 24 MiB. `None`
    /// if such a disk cannot be made here.
    pub fn with_small_disk(interfaces: &[&str]) -> Option<Serving> {
        let folder = folder();
        let disk = state(folder.path());
        fs::create_dir(&disk).expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(disk)
            .status();
        let is_there = mounted.is_ok_and(|status| status.success());
        is_there.then(|| Serving::of(Folder::WithDisk(folder), interfaces).durable())
    }

    /// Its address, such as `farcall://127.0.0.1:3717`.
    pub fn address(&self) -> &str {
        self.daemon.address()
    }

    /// The same without the scheme.
    pub fn host_and_port(&self) -> &str {
        let address = self.address();
        address.split_once("://").map_or(address, |(_, rest)| rest)
    }

    /// Its Unix socket, if it is [`Serving::durable`].
    pub fn socket(&self) -> String {
        format!("unix://{}", socket(self.folder()).display())
    }

    /// Its memory that is not on the disk, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
        kilobytes.unwrap().parse::<u64>().unwrap() << 10
    }

    /// A connection of a client.
    pub fn connect(&self) -> farcall_client::Server {
        connect(self.address())
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.serving.folder.path()
    }

    /// The file of its first interface.
    pub fn interface(&self) -> PathBuf {
        self.folder().join(&self.serving.words[0])
    }

    /// Its state folder.
    pub fn state(&self) -> PathBuf {
        state(self.folder())
    }

    /// Lines of its log.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder().join("log")).expect("it keeps its log");
        text.lines().map(str::to_owned).collect()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.daemon.id()
    }

    /// Asks it to stop, as an operator does.
    pub fn terminate(&mut self) {
        self.daemon.signal(Signal::TERM);
    }

    /// Drains it: it takes no more calls, and stops when its calls have ended.
    pub fn drain(&mut self) {
        self.daemon.signal(Signal::USR1);
    }

    /// Makes it read its files again.
    pub fn reload(&mut self) {
        self.daemon.signal(Signal::HUP);
    }

    /// Freezes it: it is there, and does nothing.
    pub fn freeze(&mut self) {
        self.daemon.signal(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&mut self) {
        self.daemon.signal(Signal::CONT);
    }

    /// Whether it is running.
    pub fn is_running(&mut self) -> bool {
        self.daemon.ended().expect("a child").is_none()
    }

    /// Waits until it has ended. Returns whether it exited with success.
    pub fn ended(&mut self) -> bool {
        let status = self.daemon.wait(BOUND).expect("a child");
        status.expect("the server ends").success()
    }

    /// Stops it as an operator does. Returns whether it exited with success.
    pub fn stop(&mut self) -> bool {
        crate::stop(&mut self.daemon)
    }

    /// Kills it at any moment.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Starts it again, with the same folder.
    pub fn restart(&mut self) {
        self.daemon = self.serving.run(&self.serving.words);
    }

    /// Starts another server in its place, which makes it drain.
    pub fn take_over(&mut self) {
        let mut words = self.serving.words.clone();
        for word in &mut words {
            if word == "127.0.0.1:0" {
                *word = self.host_and_port().to_owned();
            }
        }
        words.push("--takeover".to_owned());
        let next = self.serving.run(&words);
        let mut before = std::mem::replace(&mut self.daemon, next);
        let status = before.wait(BOUND).expect("a child");
        assert!(status.expect("it ends").success());
    }

    /// The output of a command that another user runs at the Unix socket.
    pub fn as_user(&self, uid: u32, words: &[&str]) -> String {
        let mode = fs::Permissions::from_mode(0o666);
        fs::set_permissions(socket(self.folder()), mode).expect("the socket is there");
        // The program might be in a folder that this user cannot read.
        let program = self.folder().join("farcall");
        if !program.exists() {
            fs::copy(farcall().get_program(), &program).expect("room for a program");
        }
        let output = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={uid}")])
            .arg("--clear-groups")
            .arg(program)
            .args(words)
            .args(["--server", &self.socket()])
            .output()
            .expect("setpriv is there");
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    }
}

/// A connection of a client.
pub fn connect(address: &str) -> farcall_client::Server {
    farcall_client::Server::connect(address, Options::default()).expect("it listens")
}

/// The kind and the message of a refusal.
pub fn refusal<T: std::fmt::Debug>(
    result: Result<T, farcall_client::Error>,
) -> (farcall_client::FailureKind, String) {
    match result {
        Err(farcall_client::Error::Failed(failure)) => (failure.kind, failure.message),
        other => panic!("not refused: {other:?}"),
    }
}

/// Whether `scripts/sanitize` runs the tests.
fn is_sanitized() -> bool {
    std::env::var_os("FARCALL_SANITIZED").is_some()
}

/// A configuration without a memory limit of workers, because AddressSanitizer maps terabytes of
/// shadow memory.
fn with_shadow(text: &str) -> String {
    const UNBOUND: &str = "[workers]\nmemory = 0\n";
    match is_sanitized() {
        true if text.contains("[workers]\n") => text.replacen("[workers]\n", UNBOUND, 1),
        true => format!("{text}\n{UNBOUND}"),
        false => text.to_owned(),
    }
}

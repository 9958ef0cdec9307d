//! A server with a folder of its own, that can be killed and started again.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here takes so long.
const BOUND: Duration = Duration::from_secs(120);

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "not within {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn connect(address: &str) -> farcall_client::Server {
    farcall_client::Server::connect(address, Default::default()).expect("the server listens")
}

pub(crate) struct Server {
    folder: PathBuf,
    arguments: Vec<String>,
    process: Child,
    tcp: String,
    /// Its folder is a disk of its own.
    has_disk: bool,
}

impl Server {
    pub(crate) fn start(name: &str, idl: &str, options: &[&str]) -> Server {
        Server::configured(name, idl, "", options)
    }

    pub(crate) fn configured(name: &str, idl: &str, settings: &str, options: &[&str]) -> Server {
        Server::prepared(name, idl, settings, options, false)
    }

    /// One whose folder is a disk of 24 MiB; none where that cannot be made.
    pub(crate) fn on_small_disk(name: &str, idl: &str) -> Option<Server> {
        let folder = Server::folder_of(name).join("state");
        std::fs::create_dir_all(&folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(folder)
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        mounted.then(|| Server::prepared(name, idl, "", &[], true))
    }

    fn folder_of(name: &str) -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("durable-{name}"))
    }

    fn prepared(name: &str, idl: &str, settings: &str, options: &[&str], has_disk: bool) -> Server {
        let folder = Server::folder_of(name);
        if !has_disk {
            let _ = std::fs::remove_dir_all(&folder);
        }
        std::fs::create_dir_all(&folder).unwrap();
        // Sockets have short names.
        let socket = format!("/tmp/farcall-durable-{name}-{}", std::process::id());
        std::fs::write(folder.join("test.idl"), idl).unwrap();
        std::fs::write(folder.join("settings.toml"), settings).unwrap();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let mut arguments = vec!["serve".to_string(), path("test.idl")];
        arguments.extend(["--config".to_string(), path("settings.toml")]);
        arguments.extend(["--state".to_string(), path("state")]);
        arguments.extend(["--listen", "127.0.0.1:0", "--log", "error"].map(str::to_string));
        arguments.extend(["--unix".to_string(), socket]);
        arguments.extend(options.iter().map(|option| (*option).to_string()));
        let (process, tcp) = Server::spawn(&arguments);
        Server {
            folder,
            arguments,
            process,
            tcp,
            has_disk,
        }
    }

    fn spawn(arguments: &[String]) -> (Child, String) {
        let mut process = Command::new(env!("CARGO_BIN_EXE_farcall"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let first = lines.next().expect("it says where it listens").unwrap();
        let tcp = first.trim_start_matches("listening on ").to_string();
        assert!(tcp.starts_with("farcall://"), "{first}");
        // The socket is there when its address is.
        lines.next().expect("it listens on its socket too").unwrap();
        (process, tcp)
    }

    fn socket(&self) -> &str {
        let at = self
            .arguments
            .iter()
            .position(|argument| argument == "--unix");
        &self.arguments[at.expect("it is given") + 1]
    }

    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Kills it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts another in its place, which has it drain.
    pub(crate) fn take_over(&mut self) {
        let address = self.tcp.trim_start_matches("farcall://").to_string();
        let mut arguments = self.arguments.clone();
        for argument in &mut arguments {
            if argument == "127.0.0.1:0" {
                argument.clone_from(&address);
            }
        }
        arguments.push("--takeover".to_string());
        let (process, tcp) = Server::spawn(&arguments);
        let mut before = std::mem::replace(&mut self.process, process);
        self.tcp = tcp;
        assert!(before.wait().unwrap().success());
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(&mut self) {
        self.signal("-TERM");
        self.end();
    }

    /// Has it take no more calls, and end when those that were begun have ended.
    pub(crate) fn drain(&self) {
        self.signal("-USR1");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let told = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(told.success());
    }

    /// Waits until it has ended.
    pub(crate) fn end(&mut self) {
        assert!(self.process.wait().unwrap().success());
    }

    pub(crate) fn restart(&mut self) {
        (self.process, self.tcp) = Server::spawn(&self.arguments);
    }

    /// What a command says that another user gives.
    pub(crate) fn as_user(&self, uid: u32, command: &[&str]) -> String {
        let mode = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(self.socket(), mode).unwrap();
        // The program may lie where that user cannot read it.
        let program = format!("/tmp/farcall-durable-{}", std::process::id());
        std::fs::copy(env!("CARGO_BIN_EXE_farcall"), &program).unwrap();
        let output = Command::new("setpriv")
            .args([format!("--reuid={uid}"), format!("--regid={uid}")])
            .args(["--clear-groups", &program])
            .args(command)
            .args(["--server", &self.address()])
            .output()
            .expect("setpriv is there");
        std::fs::remove_file(program).unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// A connection over TCP, by which a process could be anybody's.
    pub(crate) fn connect_as_anybody(&self) -> farcall_client::Server {
        let options = farcall_client::Options {
            same_host: false,
            ..Default::default()
        };
        farcall_client::Server::connect(&self.tcp, options).expect("the server listens")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(self.socket());
        if self.has_disk {
            let _ = Command::new("umount").arg(self.state()).status();
        }
    }
}

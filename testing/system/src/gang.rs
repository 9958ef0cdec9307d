//! Starts daemons of gangs, and gang jobs on them. A daemon ends with its test, and one that does
//! not stop is killed.

use crate::{BOUND, daemon, farcall, farcall_path, wait_until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tempfile::TempDir;

/// The longest time that a daemon may take to end its jobs and itself.
const END: Duration = Duration::from_secs(6);

/// The secret of all daemons of the tests that state no other.
const TOKEN: &str = "the secret of these tests";

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The daemon of a node. It ends with the test.
#[derive(Debug)]
pub struct Node {
    daemon: crate::Daemon,
    control: String,
    /// Its state folder.
    state: Arc<TempDir>,
}

impl Node {
    /// Starts a daemon with these options.
    pub fn start(options: &[&str]) -> Node {
        Node::start_with(options, &[])
    }

    /// Starts a daemon with these options and environment variables.
    pub fn start_with(options: &[&str], variables: &[(&str, &str)]) -> Node {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let control = format!("@farcall-test-{}-{number}", std::process::id());
        let state = Arc::new(TempDir::new().expect("a folder"));
        Node::start_at(control, state, options, variables)
    }

    /// Starts a daemon as another user, who cannot make control groups.
    pub fn start_as(user: u32, options: &[&str], variables: &[(&str, &str)]) -> Node {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let control = format!("@farcall-test-{}-{number}", std::process::id());
        let state = Arc::new(TempDir::new().expect("a folder"));
        std::os::unix::fs::chown(state.path(), Some(user), Some(user)).expect("as root");
        let always = [
            "gang",
            "daemon",
            "--log",
            "error",
            "--listen",
            "127.0.0.1:0",
        ];
        let mut command = farcall_as(user);
        command.args(always).args(["--control", &control]);
        command.args(options).env("FARCALL_TOKEN", TOKEN);
        command.env("XDG_STATE_HOME", state.path());
        command.envs(variables.iter().copied());
        Node {
            daemon: crate::Daemon::start(command).expect("it listens"),
            control,
            state,
        }
    }

    /// Starts a daemon by another program, whose last argument is the command of the daemon.
    pub fn start_by(program: &[&str], options: &[&str]) -> Node {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let control = format!("@farcall-test-{}-{number}", std::process::id());
        let state = Arc::new(TempDir::new().expect("a folder"));
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(farcall_path());
        command.args(["gang", "daemon", "--log", "error"]);
        command.args(["--listen", "127.0.0.1:0", "--control", &control]);
        command.args(options).env("FARCALL_TOKEN", TOKEN);
        command.env("XDG_STATE_HOME", state.path());
        Node {
            daemon: crate::Daemon::start(command).expect("it listens"),
            control,
            state,
        }
    }

    /// Starts another daemon in the place of this one, which has ended or was killed.
    pub fn start_again(&self, options: &[&str], variables: &[(&str, &str)]) -> Node {
        Node::start_at(self.control.clone(), self.state.clone(), options, variables)
    }

    fn start_at(
        control: String,
        state: Arc<TempDir>,
        options: &[&str],
        variables: &[(&str, &str)],
    ) -> Node {
        let folder = state.path().to_string_lossy().into_owned();
        let own = [("FARCALL_TOKEN", TOKEN), ("XDG_STATE_HOME", &folder)];
        let variables = [&own[..], variables].concat();
        let listen = match options.contains(&"--listen") {
            true => &[][..],
            false => &["--listen", "127.0.0.1:0"],
        };
        let always = ["gang", "daemon", "--log", "error"];
        let words = [&always, listen, &["--control", &control], options].concat();
        Node {
            daemon: daemon(Path::new("."), &words, &variables),
            control,
            state,
        }
    }

    /// Its state folder.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Its address for other daemons, such as `127.0.0.1:3717`.
    pub fn address(&self) -> &str {
        let address = self.daemon.address();
        address.strip_prefix("farcall://").unwrap_or(address)
    }

    /// The name of its control socket.
    pub fn control(&self) -> &str {
        &self.control
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.daemon.id()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.daemon.signal(signal);
    }

    /// Kills it at any moment.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// A command of `farcall gang` for it.
    pub fn gang(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "1", &BOUND.as_secs().to_string()])
            .arg(farcall().get_program());
        self.complete(command, arguments)
    }

    fn complete(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(["gang", arguments[0], "--control", &self.control])
            .args(&arguments[1..])
            .stdin(Stdio::null());
        command
    }

    /// Runs a job to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["run", "--quiet"];
        all.extend(arguments);
        self.gang(&all).output().expect("timeout(1) is there")
    }

    /// Starts a job and returns. The child is the front end itself: timeout(1) in between would
    /// lose a signal that comes before it is ready for one.
    pub fn submit(&self, arguments: &[&str]) -> Child {
        let mut all = vec!["run", "--quiet"];
        all.extend(arguments);
        self.complete(farcall(), &all)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command is built")
    }

    /// The rows of `gang ps --json`.
    pub fn jobs(&self) -> Vec<serde_json::Value> {
        let output = self.gang(&["ps", "--json"]).output().expect("runs");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told["schema"], 1);
        told["jobs"].as_array().expect("jobs").clone()
    }

    /// The number of the job that was submitted last, once there are this many.
    pub fn last_job(&self, jobs: usize) -> String {
        let mut last = None;
        wait_until("the job is listed", || {
            let rows = self.jobs();
            last = rows.iter().filter_map(|row| row["id"].as_u64()).max();
            rows.len() == jobs
        });
        last.expect("a job").to_string()
    }

    /// The nodes of a job that fills four slots, once it is listed.
    pub fn nodes(&self) -> usize {
        self.nodes_of("4")
    }

    /// The nodes of a job with this many processes, once it is listed.
    pub fn nodes_of(&self, processes: &str) -> usize {
        let mut job = self.submit(&["-n", processes, "--", "sleep", "1000"]);
        let mut nodes = 0;
        wait_until("it is listed", || {
            let rows = self.jobs();
            let first = rows.first();
            nodes = first.map_or(0, |row| row["nodes"].as_array().map_or(0, Vec::len));
            nodes > 0
        });
        // The job ends with its front end.
        job.kill().expect("it runs");
        job.wait().expect("it ends");
        wait_until("it is gone", || self.jobs().is_empty());
        nodes
    }

    /// Processes that the daemon has started and not reaped.
    pub fn children(&self) -> BTreeSet<String> {
        // A thread of the daemon starts the processes.
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id()));
        let threads = threads.into_iter().flatten().flatten();
        let text = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let text: String = text.flatten().collect();
        text.split_whitespace().map(str::to_string).collect()
    }

    /// The number of files that it has open.
    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.id());
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// How it ends by itself; none if it does not end in time.
    pub fn ends(&mut self) -> Option<std::process::ExitStatus> {
        self.daemon.wait(BOUND).expect("a child")
    }

    /// Stops it as an operator does.
    pub fn stop(&mut self) {
        let status = self.daemon.stop(BOUND).expect("a child");
        assert!(status.is_some(), "the daemon ends");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A daemon that does not stop is killed.
        let _ = self.daemon.stop(END);
    }
}

/// A command that runs `farcall` as another user, who may not be able to enter the folder of the
/// build.
pub fn farcall_as(user: u32) -> Command {
    static PROGRAM: LazyLock<std::fs::File> =
        LazyLock::new(|| std::fs::File::open(farcall_path()).expect("built"));
    let program = PROGRAM.as_raw_fd();
    let mut command = Command::new("/proc/self/fd/9");
    command.current_dir("/").uid(user).gid(user);
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::dup2(program, 9) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    command
}

/// Processes whose command line contains a word.
pub fn processes(word: &str) -> usize {
    let folders = std::fs::read_dir("/proc").expect("Linux").flatten();
    let lines = folders.filter_map(|folder| std::fs::read(folder.path().join("cmdline")).ok());
    lines.filter(|line| text(line).contains(word)).count()
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of the output, sorted, so that the order of processes does not matter.
pub fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

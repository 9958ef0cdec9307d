//! Daemons of a test's own, and jobs on them.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub const BOUND: Duration = Duration::from_secs(30);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A running daemon; it is ended with the test.
pub struct Daemon {
    pub process: Child,
    pub address: String,
    pub control: String,
}

impl Daemon {
    pub fn start(options: &[&str]) -> Daemon {
        Daemon::start_with(options, &[])
    }

    pub fn start_with(options: &[&str], environment: &[(&str, &str)]) -> Daemon {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let control = format!("@farcall-test-{}-{number}", std::process::id());
        let mut process = Command::new(env!("CARGO_BIN_EXE_farcall"))
            .args([
                "gang",
                "daemon",
                "--listen",
                "127.0.0.1:0",
                "--control",
                &control,
            ])
            .args(["--log", "error"])
            .args(options)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        let out = process.stdout.take().expect("piped");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line
            .strip_prefix("listening on farcall://")
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or_else(|| panic!("no address in {line:?}"))
            .to_string();
        Daemon {
            process,
            address,
            control,
        }
    }

    pub fn gang(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "1", &BOUND.as_secs().to_string()])
            .arg(env!("CARGO_BIN_EXE_farcall"));
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

    /// Starts a job and leaves it alone. The child is the front end itself: timeout(1) in between
    /// would not pass on a signal that comes before it is ready for one.
    pub fn submit(&self, arguments: &[&str]) -> Child {
        let mut all = vec!["run", "--quiet"];
        all.extend(arguments);
        self.complete(Command::new(env!("CARGO_BIN_EXE_farcall")), &all)
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

    /// The number of the job that was submitted last, once there are so many.
    pub fn last_job(&self, jobs: usize) -> String {
        let mut last = None;
        wait_until("the job is listed", || {
            let rows = self.jobs();
            last = rows.iter().filter_map(|row| row["id"].as_u64()).max();
            rows.len() == jobs
        });
        last.expect("a job").to_string()
    }

    /// Nodes on which a job that is as large as four slots runs, once it is listed.
    pub fn nodes(&self) -> usize {
        let mut job = self.submit(&["-n", "4", "--", "sleep", "1000"]);
        let mut nodes = 0;
        wait_until("it is listed", || {
            let rows = self.jobs();
            let first = rows.first();
            nodes = first.map_or(0, |row| row["nodes"].as_array().map_or(0, Vec::len));
            nodes > 0
        });
        // Its front end is its life.
        job.kill().expect("it runs");
        job.wait().expect("it ends");
        wait_until("it is gone", || self.jobs().is_empty());
        nodes
    }

    /// Processes that the daemon has started and not reaped.
    pub fn children(&self) -> BTreeSet<String> {
        let path = format!("/proc/{0}/task/{0}/children", self.process.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().map(str::to_string).collect()
    }

    pub fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        std::fs::read_dir(folder).map_or(0, Iterator::count)
    }

    /// Ends it as an operator does.
    pub fn stop(&mut self) {
        // SAFETY: a plain system call on a child that has not been waited for.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        wait_until("the daemon ends", || {
            matches!(self.process.try_wait(), Ok(Some(_)))
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // SAFETY: as above.
            unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
            let end = Instant::now() + Duration::from_secs(6);
            while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The program of that name in examples/channels.
pub fn example(name: &str) -> String {
    static BUILT: Once = Once::new();
    let mut folder = PathBuf::from(env!("CARGO_BIN_EXE_farcall"));
    folder.pop();
    // A run of this test alone does not build another package's examples.
    BUILT.call_once(|| {
        let done = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--offline",
                "--package",
                "farcall-channel",
            ])
            .arg("--examples")
            .status();
        assert!(done.expect("cargo runs").success(), "the examples build");
    });
    folder
        .join("examples")
        .join(name)
        .to_string_lossy()
        .into_owned()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not come within {BOUND:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines of the output in an order that does not depend on who was first.
pub fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

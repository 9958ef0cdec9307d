//! A `farcall serve` of its own, for tests of what an operator sees.

use farcall_client::{Options, Server};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bound of every wait.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// The interface file in a server's folder.
pub(crate) const FILE: &str = "system.idl";

/// A server process, killed on drop.
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Whoever reads no more would end a server that writes.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
    folder: Option<TempDir>,
}

impl Process {
    /// Serves the interfaces of a text.
    pub(crate) fn start(idl: &str, options: &[&str]) -> Process {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(FILE), idl).unwrap();
        let mut process = Process::start_in(folder.path(), options);
        process.folder = Some(folder);
        process
    }

    /// Serves the interface file of a folder, in which the server runs.
    pub(crate) fn start_in(folder: &Path, options: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farcall"))
            .args(["serve", FILE, "--log", "warn"])
            .args(options)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        Process {
            address: address.expect("it listens").to_string(),
            child,
            _stdout: stdout,
            folder: None,
        }
    }

    /// The folder in which it runs, where it has one of its own.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.as_ref().expect("a folder of its own").path()
    }

    pub(crate) fn connect(&self) -> Server {
        Server::connect(&self.address, Options::default()).unwrap()
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(&mut self) {
        // SAFETY: a plain system call; the process is a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.ended();
    }

    /// Waits until it has ended; whether it was content.
    pub(crate) fn ended(&mut self) -> bool {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < end, "the server does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

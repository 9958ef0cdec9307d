//! A server or a metaserver for a benchmark.

use crate::failure::Failure;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A server or a metaserver that ends when this is dropped.
pub(super) struct Process {
    child: Child,
    /// Where it listens, by its own account.
    pub(super) address: String,
    /// The port of that.
    pub(super) port: u16,
}

impl Process {
    /// Starts it, and learns where it listens from its first line.
    pub(super) fn start(mut command: Command) -> Result<Process, Failure> {
        command.stdout(Stdio::piped());
        let mut process = Process {
            child: crate::child::spawn(command)?,
            address: String::new(),
            port: 0,
        };
        let mut line = String::new();
        if let Some(out) = process.child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let address = line.trim().strip_prefix("listening on ");
        let port = address
            .and_then(|address| address.rsplit(':').next())
            .and_then(|port| port.parse().ok());
        let (Some(address), Some(port)) = (address, port) else {
            let text = "a server or the metaserver did not start";
            return Err(Failure::failed(text));
        };
        (process.address, process.port) = (address.to_string(), port);
        Ok(process)
    }

    /// Its log, where that was piped.
    pub(super) fn take_log(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A Python process that measures the Python client, a round at a time.

use crate::failure::Failure;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running `python -m farcall._bench`.
pub(crate) struct PythonClient {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl PythonClient {
    /// Starts it; `None` where there is no Python with the package.
    pub(crate) fn start(python: Option<&Path>, address: &str) -> Option<PythonClient> {
        let beside = PathBuf::from(".venv/bin/python");
        let python = match python {
            Some(python) => python.to_path_buf(),
            None if beside.exists() => beside,
            None => PathBuf::from("python3"),
        };
        let mut process = Command::new(python)
            .args(["-m", "farcall._bench", address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let requests = process.stdin.take()?;
        let mut answers = BufReader::new(process.stdout.take()?);
        let mut line = String::new();
        answers.read_line(&mut line).ok()?;
        let client = PythonClient {
            process,
            requests,
            answers,
        };
        (line.trim() == "ready").then_some(client)
    }

    /// Median seconds of `count` calls that send `bytes` bytes and receive as many.
    pub(crate) fn round(&mut self, bytes: usize, count: usize) -> Result<f64, Failure> {
        self.ask(&format!("{bytes} {count} 1"))
    }

    /// Null calls a second with so many outstanding.
    pub(crate) fn rate(&mut self, count: usize, outstanding: usize) -> Result<f64, Failure> {
        Ok(1.0 / self.ask(&format!("0 {count} {outstanding}"))?)
    }

    fn ask(&mut self, request: &str) -> Result<f64, Failure> {
        writeln!(self.requests, "{request}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let text = line.trim();
        text.parse()
            .map_err(|_| Failure::failed(format!("the Python client says `{text}`")))
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

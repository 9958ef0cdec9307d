//! A process that measures one contender, one round at a time. The program of the contender takes
//! the times; this module asks for them. A contender ends when its input ends.

use crate::failure::Failure;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `benches/contenders.py`, `benches/reach.py` or `benches/call/client.c`.
pub(crate) struct Contender {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Contender {
    /// Starts a Python contender. The arguments are its name in `benches/contenders.py`, and the
    /// address of the server if it is one of our clients.
    pub(crate) fn python(python: &Path, arguments: &[&str]) -> Result<Contender, Failure> {
        Contender::script(python, "benches/contenders.py", arguments)
    }

    /// Starts a contender of another Python script; the first argument is its name.
    pub(crate) fn script(
        python: &Path,
        script: &str,
        arguments: &[&str],
    ) -> Result<Contender, Failure> {
        let mut command = Command::new(python);
        command.arg(script).args(arguments);
        Contender::start(command, arguments.first().copied().unwrap_or_default())
    }

    /// Seconds of a round of a contender that has one kind of work.
    pub(crate) fn work(&mut self) -> Result<f64, Failure> {
        self.ask("")
    }

    /// Starts the C contender, which `make build` puts beside this program.
    pub(crate) fn c(address: &str) -> Result<Contender, Failure> {
        let program = std::env::current_exe()?.with_file_name("bench-call");
        let mut command = Command::new(program);
        command.args([address, "tcp"]);
        Contender::start(command, "the client in C")
    }

    fn start(mut command: Command, name: &str) -> Result<Contender, Failure> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = farcall_child::spawn(command)?;
        let requests = process.stdin.take();
        let answers = process.stdout.take().map(BufReader::new);
        let mut contender = Contender {
            requests,
            answers: answers.ok_or_else(|| Failure::failed("no pipe"))?,
            process,
        };
        // Some contenders print information about themselves first.
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            if contender.answers.read_line(&mut line)? == 0 {
                return Err(Failure::failed(format!("{name} does not start")));
            }
        }
        Ok(contender)
    }

    /// Median seconds of `count` calls that send `bytes` bytes and receive as many.
    pub(crate) fn round(&mut self, bytes: usize, count: usize) -> Result<f64, Failure> {
        self.ask(&format!("{bytes} {count} 1"))
    }

    /// Null calls per second with this number of outstanding calls.
    pub(crate) fn rate(&mut self, count: usize, outstanding: usize) -> Result<f64, Failure> {
        Ok(1.0 / self.ask(&format!("0 {count} {outstanding}"))?)
    }

    fn ask(&mut self, request: &str) -> Result<f64, Failure> {
        if let Some(requests) = &mut self.requests {
            writeln!(requests, "{request}")?;
        }
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let text = line.trim();
        text.parse()
            .map_err(|_| Failure::failed(format!("unexpected output of a contender: `{text}`")))
    }
}

impl Drop for Contender {
    /// The contender ends when its input ends, together with the processes that it has started.
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(20);
        drop(self.requests.take());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Ok(Some(_)) = self.process.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! A daemon of Farcall: its first line says where it listens.

use farcall_child::spawn;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// How long one may take until it listens.
const START: Duration = Duration::from_secs(60);

/// A daemon that listens, killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Whoever reads no more would end a daemon that writes.
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Daemon {
    /// Starts one, and returns once it listens.
    ///
    /// # Errors
    /// Where it cannot be started, ends before it listens, or says something else first; with what
    /// it said on its standard error, where that is piped.
    pub fn start(command: Command) -> io::Result<Daemon> {
        Daemon::start_saying(command, "listening on ")
    }

    /// Starts one whose first line begins otherwise; the rest of the line is its address.
    ///
    /// # Errors
    /// As for [`Daemon::start`].
    pub fn start_saying(mut command: Command, words: &str) -> io::Result<Daemon> {
        command.stdout(Stdio::piped());
        let name = format!("{command:?}");
        let mut child = spawn(command)?;
        let stdout = child.stdout.take().map(BufReader::new);
        let mut stdout = stdout.ok_or_else(|| io::Error::other("its output was taken"))?;
        let (sender, first) = sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).map(|_| (line, stdout));
            // Whoever waits no more needs no line.
            let _ = sender.send(read);
        });
        let said = match first.recv_timeout(START) {
            Ok(Ok((line, stdout))) => match line.strip_prefix(words) {
                Some(address) => {
                    return Ok(Daemon {
                        child,
                        stdout,
                        address: address.trim_end().to_owned(),
                    });
                }
                None => format!("says {line:?}"),
            },
            Ok(Err(error)) => format!("cannot be read: {error}"),
            Err(_) => format!("says nothing within {START:?}"),
        };
        let _ = child.kill();
        let _ = child.wait();
        let mut log = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut log);
        }
        let text = format!("{name} did not start: it {said} {}", log.trim());
        Err(io::Error::other(text.trim_end().to_owned()))
    }

    /// Where it listens, by its own account: `farcall://127.0.0.1:3717`.
    pub fn address(&self) -> &str {
        let mut addresses = self.address.split_whitespace();
        addresses.next().unwrap_or_default()
    }

    /// The port at which it listens.
    ///
    /// # Errors
    /// Where it listens at none.
    pub fn port(&self) -> io::Result<u16> {
        let port = self.address().rsplit(':').next();
        let port = port.and_then(|port| port.parse().ok());
        port.ok_or_else(|| io::Error::other(format!("no port in {}", self.address)))
    }

    /// The next line that it prints; nothing once it has ended.
    ///
    /// # Errors
    /// Where its output cannot be read.
    pub fn next_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    /// Its standard error, where that was piped.
    pub fn take_log(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// How it ended, where it has.
    ///
    /// # Errors
    /// Where the system cannot say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends it as an operator does; how it ended, or none where it does not in time.
    ///
    /// # Errors
    /// Where the system cannot say.
    pub fn stop(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        self.signal(Signal::TERM);
        self.wait(patience)
    }

    /// Waits for its end; none where it does not come in time.
    ///
    /// # Errors
    /// Where the system cannot say.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let end = Instant::now() + patience;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= end {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Kills it in the middle of whatever it does.
    pub fn kill(&mut self) {
        // One that has ended is only collected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn its_address_is_known_and_it_can_be_ended() {
        let script = "echo listening on farcall://127.0.0.1:3717 unix:///x; echo more; cat";
        let mut command = says(script);
        command.stdin(Stdio::piped());
        let mut daemon = Daemon::start(command).unwrap();
        assert_eq!(daemon.address(), "farcall://127.0.0.1:3717");
        assert_eq!(daemon.port().unwrap(), 3717);
        assert_eq!(daemon.next_line().unwrap(), "more\n");
        assert!(daemon.ended().unwrap().is_none());
        let status = daemon.stop(Duration::from_secs(30)).unwrap().unwrap();
        assert!(!status.success());
    }

    #[test]
    fn what_does_not_listen_is_an_error() {
        for (script, expected) in [
            ("exit 3", "did not start"),
            ("echo hello", "hello"),
            ("echo because >&2", "because"),
        ] {
            let mut command = says(script);
            command.stderr(Stdio::piped());
            let error = Daemon::start(command).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

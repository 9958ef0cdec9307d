//! Starts and stops a program of Farcall that prints its address in its first line. It does not
//! know what the program does. A daemon is killed when its value is dropped, so a failed test
//! leaves none behind.

use farcall_child::spawn;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// The longest time until a daemon listens.
const START: Duration = Duration::from_secs(60);

/// A daemon that listens. It is killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Its standard output. It stays open, because a daemon that writes to a closed pipe would end.
    stdout: BufReader<ChildStdout>,
    address: String,
}

impl Daemon {
    /// Starts a daemon, and returns when it listens.
    ///
    /// # Errors
    /// The daemon cannot start, ends before it listens, or prints something else first. The error
    /// includes its standard error if that is piped.
    pub fn start(command: Command) -> io::Result<Daemon> {
        Daemon::start_saying(command, "listening on ")
    }

    /// Starts a daemon whose first line begins with `words`; the rest of the line is its address.
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
            // The send fails only if nobody waits for the line anymore.
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
                None => format!("it printed {line:?}"),
            },
            Ok(Err(error)) => format!("its output cannot be read: {error}"),
            Err(_) => format!("it printed nothing within {START:?}"),
        };
        let ended = child.try_wait()?.map(|status| format!("; {status}"));
        let said = format!("{said}{}", ended.unwrap_or_default());
        let _ = child.kill();
        let _ = child.wait();
        let mut log = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut log);
        }
        let text = format!("{name} did not start: {said} {}", log.trim());
        Err(io::Error::other(text.trim_end().to_owned()))
    }

    /// The address that it printed: `farcall://127.0.0.1:3717`.
    pub fn address(&self) -> &str {
        let mut addresses = self.address.split_whitespace();
        addresses.next().unwrap_or_default()
    }

    /// The port on which it listens.
    ///
    /// # Errors
    /// Its address has no port.
    pub fn port(&self) -> io::Result<u16> {
        let port = self.address().rsplit(':').next();
        let port = port.and_then(|port| port.parse().ok());
        port.ok_or_else(|| io::Error::other(format!("no port in {}", self.address)))
    }

    /// Returns the next line that it prints, or an empty string after it has ended.
    ///
    /// # Errors
    /// Its output cannot be read.
    pub fn next_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    /// Takes its standard error, if that was piped.
    pub fn take_log(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, unless it has ended. After SIGSTOP it waits until it has stopped.
    pub fn signal(&mut self, signal: Signal) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        let process = Pid::from_child(&self.child);
        let _ = kill_process(process, signal);
        if signal == Signal::STOP {
            use WaitIdOptions as Options;
            let stops = Options::STOPPED | Options::EXITED | Options::NOWAIT;
            let _ = waitid(WaitId::Pid(process), stops);
        }
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Ends it as an operator does. Returns how it ended, or none if it does not end in time.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn stop(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        self.signal(Signal::TERM);
        self.wait(patience)
    }

    /// Waits for its end. Returns none if it does not end in time.
    ///
    /// # Errors
    /// The system cannot tell.
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

    /// Kills it, whatever it does at that moment.
    pub fn kill(&mut self) {
        // The kill fails only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs such a process to its end, without input. Returns what it printed.
///
/// # Errors
/// The program cannot be started.
pub fn output_of(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
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
    fn a_daemon_reports_its_address_and_can_be_stopped() {
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
    fn a_program_that_does_not_listen_is_an_error() {
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

//! How a worker ended, and what that means for its call. The server decides whether the call runs
//! again. The module chooses the kind of failure and quotes the printed line that explains most.

use farcall_gang_proto::FARCALL_FAILED;
use farcall_gang_proto::told::{self, LostNode};
use farcall_rpc_proto::{Failure, FailureKind};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How a worker ended.
#[derive(Debug)]
pub struct Death {
    /// The exit status, or why the process could not be started.
    pub(crate) status: io::Result<ExitStatus>,
    pub(crate) signal: u32,
    pub(crate) out_of_memory: bool,
    pub(crate) printed: String,
    /// Why the server ended it, if it did.
    pub(crate) ended_for: Option<Failure>,
    /// Whether it went on without its connection until the server killed it.
    pub(crate) was_silent: bool,
}

impl Death {
    /// The signal that ended it.
    fn signal(&self) -> Option<i32> {
        let status = self.status.as_ref().ok()?;
        status.signal().or(nonzero(self.signal))
    }

    /// The same for a worker that the server has killed after it had closed its connection. On a
    /// busy machine this happens to one that crashes: its last words tell the signal.
    pub(crate) fn after_silence(mut self) -> Death {
        let status = self.status.as_ref().ok();
        let was_killed = status.and_then(ExitStatus::signal) == Some(libc::SIGKILL);
        match nonzero(self.signal).filter(|_| was_killed) {
            Some(signal) => self.status = Ok(ExitStatus::from_raw(signal)),
            None => self.was_silent = was_killed,
        }
        self
    }

    /// Whether something else than the function and the server has ended it, such as an operator, a
    /// system without memory or the loss of a node.
    pub fn is_foreign(&self) -> bool {
        let status = self.status.as_ref().ok();
        let signal = status.and_then(ExitStatus::signal);
        let is_kill = matches!(signal, Some(libc::SIGKILL | libc::SIGTERM)) || self.lost_a_node();
        is_kill && self.ended_for.is_none() && self.signal == 0 && !self.out_of_memory
    }

    /// Whether the system refused it a process.
    pub fn is_unborn(&self) -> bool {
        self.status.is_err() && self.ended_for.is_none()
    }

    /// Whether its gang job has lost a node. `farcall gang run` says so at its end.
    fn lost_a_node(&self) -> bool {
        let status = self.status.as_ref().ok().and_then(ExitStatus::code);
        let last = self.printed.lines().next_back();
        let lost = last.and_then(told::text_of).and_then(LostNode::of);
        status == Some(FARCALL_FAILED.into()) && lost.is_some()
    }

    /// The kind of failure of the running call.
    pub fn kind(&self) -> FailureKind {
        match &self.ended_for {
            Some(failure) => failure.kind,
            None if self.out_of_memory => FailureKind::OutOfMemory,
            None if self.signal() == Some(libc::SIGXFSZ) => FailureKind::TooLarge,
            // systemd and batch systems send this signal to all processes of a server when they
            // stop it. The worker may get it first.
            None if self.is_foreign() && self.signal() == Some(libc::SIGTERM) => {
                FailureKind::ServerStopping
            }
            None => FailureKind::LibraryCrashed,
        }
    }

    /// The cause, as a text that follows the function's name.
    pub fn cause(&self, memory_limit: u64) -> String {
        let cause = if let Some(reason) = &self.ended_for {
            reason.message.clone()
        } else if self.out_of_memory {
            format!("ran out of memory (limit of a worker: {memory_limit} bytes)")
        } else if self.was_silent {
            "was killed because it had closed its connection to the server (SIGKILL)".to_string()
        } else {
            match &self.status {
                Ok(status) => match self.signal() {
                    Some(signal) => describe_signal(signal),
                    None => format!(
                        "ended its process (exit status {}), as exit() or STOP do",
                        status.code().unwrap_or(0)
                    ),
                },
                Err(error) => no_process(error),
            }
        };
        match telling_line(&self.printed) {
            Some(line) => format!("{cause}; it printed: {line}"),
            None => cause,
        }
    }
}

/// Why a worker has no process, as a text that follows its name.
pub fn no_process(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EMFILE) => {
            ": allow the server more open files (`ulimit -n`, or LimitNOFILE= of systemd)"
        }
        Some(libc::EAGAIN) => {
            ": allow the server more processes (`ulimit -u`, or TasksMax= of systemd)"
        }
        _ => "",
    };
    format!("has no process: {error}{remedy}")
}

/// The line that tells most about a failure. Libraries and runtimes print others after it.
fn telling_line(printed: &str) -> Option<&str> {
    /// Words of a line that states an error.
    const MARKS: [&str; 4] = ["error:", "what():", "assertion", "exception:"];
    /// Beginnings of lines that only surround one.
    const AROUND: [&str; 9] = [
        "#",
        "note:",
        "aborted",
        "backtrace",
        "default gsl error handler",
        "error termination",
        told::BEGINNING,
        "program received signal",
        "stack backtrace",
    ];
    let lines = || {
        printed
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let told = || {
        lines()
            .map(|line| (line, line.to_lowercase()))
            .filter(|(_, words)| !AROUND.iter().any(|beginning| words.starts_with(beginning)))
    };
    let mut marked = told().filter(|(_, words)| MARKS.iter().any(|mark| words.contains(mark)));
    let found = marked.next_back().or_else(|| told().next_back());
    found.map(|(line, _)| line).or_else(|| lines().next_back())
}

fn nonzero(signal: u32) -> Option<i32> {
    i32::try_from(signal).ok().filter(|signal| *signal != 0)
}

fn describe_signal(signal: i32) -> String {
    let (name, what) = match signal {
        libc::SIGSEGV => ("SIGSEGV", "accessed memory that it must not access"),
        libc::SIGBUS => ("SIGBUS", "accessed memory that does not exist"),
        libc::SIGFPE => (
            "SIGFPE",
            "made an arithmetic error, such as a division by zero",
        ),
        libc::SIGILL => (
            "SIGILL",
            "used an instruction that this processor does not have",
        ),
        libc::SIGABRT => ("SIGABRT", "called abort()"),
        libc::SIGXFSZ => (
            "SIGXFSZ",
            "wrote more to a file than the server allows, limits.files in its configuration",
        ),
        libc::SIGKILL => (
            "SIGKILL",
            "was killed, by another process or because the system had no memory left",
        ),
        libc::SIGTERM => ("SIGTERM", "was ended, as when a system stops the server"),
        _ => return format!("was ended by signal {signal}"),
    };
    format!("{what} ({name})")
}

#[cfg(test)]
mod tests {
    use super::{Death, telling_line};
    use farcall_rpc_proto::FailureKind;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    /// A worker that has printed nothing.
    fn death(status: i32, signal: i32) -> Death {
        Death {
            status: Ok(ExitStatus::from_raw(status)),
            signal: signal as u32,
            out_of_memory: false,
            printed: String::new(),
            ended_for: None,
            was_silent: false,
        }
    }

    #[test]
    fn a_lost_node_is_no_fault_of_the_function() {
        let death = |printed: &str| Death {
            printed: printed.to_owned(),
            ..death(125 << 8, 0)
        };
        let lost = "x\nfarcall: gang job 6: rank 2: node b2 is gone: node b2 was silent for 30 s\n";
        assert!(death(lost).is_foreign());
        assert!(!death("farcall: gang job 6: rank 2 called exit(125)\n").is_foreign());
        assert!(!death("the file is gone\n").is_foreign());
        let forged = "farcall: gang job 6: a file is gone: no such file\n";
        assert!(!death(forged).is_foreign());
    }

    #[test]
    fn a_worker_that_is_told_to_end_from_outside_tells_of_a_server_that_stops() {
        assert_eq!(death(libc::SIGTERM, 0).kind(), FailureKind::ServerStopping);
        // The function has raised it.
        let raised = death(libc::SIGTERM, libc::SIGTERM);
        assert_eq!(raised.kind(), FailureKind::LibraryCrashed);
        assert_eq!(death(libc::SIGKILL, 0).kind(), FailureKind::LibraryCrashed);
        let cause = death(libc::SIGTERM, 0).cause(0);
        assert_eq!(
            cause,
            "was ended, as when a system stops the server (SIGTERM)"
        );
    }

    #[test]
    fn the_last_words_of_a_worker_that_the_server_killed_count() {
        let abort = death(libc::SIGKILL, libc::SIGABRT).after_silence();
        assert_eq!(abort.cause(0), "called abort() (SIGABRT)");
        assert!(!abort.is_foreign());
        // Others may have killed it.
        let silent = death(libc::SIGKILL, 0).after_silence();
        assert!(silent.is_foreign());
        assert!(
            silent.cause(0).contains("closed its connection"),
            "{silent:?}"
        );
        // It ended by itself at the last moment.
        let ended = death(3 << 8, 0).after_silence();
        assert!(ended.cause(0).contains("exit status 3"), "{ended:?}");
    }

    #[test]
    fn the_line_that_tells_most_is_quoted() {
        for (printed, line) in [
            ("", None),
            ("step 1\nstep 2\n", Some("step 2")),
            (
                "gsl: bessel.c:31: ERROR: domain error\nDefault GSL error handler invoked.\n",
                Some("gsl: bessel.c:31: ERROR: domain error"),
            ),
            (
                "terminate called after throwing an instance of 'std::range_error'\n  what():  no \
                 root\n",
                Some("what():  no root"),
            ),
            (
                "At line 5 of file x.f90\nFortran runtime error: Index '9' is above 3\n\nError \
                 termination. Backtrace:\n#0  0x7f in f\n#1  0x7f in g\n",
                Some("Fortran runtime error: Index '9' is above 3"),
            ),
            (
                "thread 'main' panicked at src/lib.rs:1:2:\nno root\nnote: run with \
                 `RUST_BACKTRACE=1`\n",
                Some("no root"),
            ),
            (
                "f: f.c:3: f: Assertion `n > 0' failed.\nAborted (core dumped)\n",
                Some("f: f.c:3: f: Assertion `n > 0' failed."),
            ),
            (
                "MPI_Init: no route\nfarcall: gang job 2: rank 3 has called MPI_Abort with 5\n",
                Some("MPI_Init: no route"),
            ),
            ("Aborted\n", Some("Aborted")),
        ] {
            assert_eq!(telling_line(printed), line);
        }
    }
}

//! The failure of a command: a message and an exit code. It tells wrong usage from failed work.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// A message for the user and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// The command was correct but failed: status 1.
    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 1,
        }
    }

    /// The command was used incorrectly: status 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 2,
        }
    }

    /// Prints it as an error. If that fails, the message is lost: a panic here would end a run that
    /// cleans up.
    pub(crate) fn print(&self) {
        let _ = writeln!(anstream::stderr(), "\x1b[1;31merror\x1b[0m: {self}");
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<farcall_client::Error> for Failure {
    fn from(error: farcall_client::Error) -> Failure {
        match error {
            farcall_client::Error::Address(_) => Failure::usage(error),
            other => Failure::failed(other),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::failed(error)
    }
}

//! How a command ends when it does not succeed.

use anstyle::{AnsiColor, Style};
use std::fmt;
use std::process::ExitCode;

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Says on standard error what went wrong.
pub(crate) fn print(what: impl fmt::Display) {
    anstream::eprintln!("{ERROR}error{ERROR:#}: {what}");
}

/// A message for the user and the exit status that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// The command was understood and could not be done: status 1.
    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 1,
        }
    }

    /// The command was used wrongly: status 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 2,
        }
    }

    /// The same, of what is named.
    pub(crate) fn of(self, what: impl fmt::Display) -> Failure {
        Failure {
            message: format!("{what}: {}", self.message),
            ..self
        }
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

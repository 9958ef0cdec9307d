//! How a command fails: its message and its exit status. Status 1 means that a valid command
//! failed, and status 2 that the command line is wrong. The messages come from the commands and the
//! libraries. A message can have parts that come from a peer, so it is cleaned where it is printed.

use crate::plain;
use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use std::fmt;
use std::io::Write;
use std::process::ExitCode;

const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Prints an error on standard error.
pub(crate) fn print(what: impl fmt::Display) {
    line(format_args!(
        "{ERROR}error{ERROR:#}: {}",
        plain::text(&what.to_string())
    ));
}

/// Does all of several things, whichever of them fail. The last failure is that of the command, and
/// those before it are printed.
pub(crate) fn of_all(things: impl Iterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let mut last = Ok(());
    for done in things {
        if let Err(failure) = done
            && let Err(earlier) = std::mem::replace(&mut last, Err(failure))
        {
            print(earlier);
        }
    }
    last
}

/// Prints a line on standard error. The command goes on if the line cannot be written, as on a full
/// disk: what it does matters more than what it says.
pub(crate) fn say(what: impl fmt::Display) {
    line(plain::text(&what.to_string()));
}

/// Writes a line as a whole, because other processes may write to the same file.
fn line(line: impl fmt::Display) {
    let mut whole = AutoStream::new(Vec::<u8>::new(), anstream::stderr().current_choice());
    let _ = writeln!(whole, "{line}");
    let _ = std::io::stderr().write_all(&whole.into_inner());
}

/// A message for the user and the exit status that goes with it.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// The command is valid and failed: status 1.
    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 1,
        }
    }

    /// The command line is wrong: status 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure {
            message: message.to_string(),
            status: 2,
        }
    }

    /// `do_what` could not be done to a thing, such as a file.
    pub(crate) fn cannot(
        do_what: &str,
        thing: impl fmt::Display,
        error: impl fmt::Display,
    ) -> Failure {
        Failure::failed(format!("cannot {do_what} {thing}: {error}"))
    }

    /// What the command says on standard output could not be written.
    pub(crate) fn unsaid(error: impl fmt::Display) -> Failure {
        Failure::cannot("write", "to standard output", error)
    }

    /// The same failure as a wrong use of the command: status 2.
    pub(crate) fn into_usage(self) -> Failure {
        Failure { status: 2, ..self }
    }

    /// The same failure, with the name of the thing that it is about in front.
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

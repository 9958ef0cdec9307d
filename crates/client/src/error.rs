//! Why a call failed, and whose fault it was.

mod argument;
mod failure;

pub use argument::ArgumentError;
pub use failure::Failure;

use crate::address::{Address, AddressError};
use farcall_rpc_proto::{self as proto, FailureKind, ProtocolError};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why a function of the caller failed.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed. [`Error::fault`] says whose fault it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No connection to the server.
    #[error("cannot connect to {address}: {source}{}", connect_hint(.source))]
    Connect {
        /// Where to.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The server does not let this client in, and said why.
    #[error("{address} refused the connection: {reason}")]
    Refused {
        /// Where to.
        address: Address,
        /// Why not.
        reason: String,
    },
    /// The connection broke. A call under way may or may not have run.
    #[error("connection to {address} lost: {source}")]
    Disconnected {
        /// Where to.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The peer does not keep to the protocol, or closed the connection and said why.
    #[error("{address}: {source}")]
    Protocol {
        /// The peer.
        address: Address,
        /// What it did.
        source: ProtocolError,
    },
    /// The interface that the server sent cannot be used.
    #[error("{address}: the interface of `{function}` cannot be read: {reason}")]
    Interface {
        /// The server.
        address: Address,
        /// The function.
        function: String,
        /// What is wrong.
        reason: String,
    },
    /// An argument does not fit; nothing was sent.
    #[error("{function}: {source}")]
    Argument {
        /// Qualified name of the function.
        function: String,
        /// What is wrong.
        source: ArgumentError,
    },
    /// The time-out passed. A call waited for by itself is given up; one under way goes on.
    #[error("no answer from {address} within {} s", .after.as_secs_f64())]
    Timeout {
        /// The server.
        address: Address,
        /// The time-out.
        after: Duration,
    },
    /// [`crate::Options::on_interrupt`] asked to give up.
    #[error("interrupted; the call was given up")]
    Interrupted,
    /// A function of the caller failed, so that the call that called it was given up.
    #[error("{function}: callback `{callback}` failed: {source}")]
    Callback {
        /// Qualified name of the function.
        function: String,
        /// Its callback.
        callback: String,
        /// What the caller's function says.
        source: CallbackError,
    },
    /// A file that an argument names cannot be read or written; the call was not made, or was given
    /// up. No file was changed.
    #[error("{function}: argument `{argument}`: {}: {source}", .path.display())]
    File {
        /// Qualified name of the function.
        function: String,
        /// Name of the argument.
        argument: String,
        /// The file, as the caller named it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A call of a transaction failed; the others that were under way have ended, and no more were
    /// made. What the transaction was to write is undefined.
    #[error("call {call} of the transaction, {function}: {source}{}", left_out(*.left))]
    Transaction {
        /// Which call, counted from 1.
        call: usize,
        /// Qualified name of the function.
        function: String,
        /// Calls that were not made.
        left: usize,
        /// Why it failed.
        source: Box<Error>,
    },
    /// A call cannot be part of a transaction.
    #[error("{function}: argument `{argument}`: {reason}")]
    Misuse {
        /// Qualified name of the function.
        function: String,
        /// Name of the argument.
        argument: String,
        /// What is wrong.
        reason: String,
    },
    /// The server of a call was lost, which may have run, and it may not be run again at another.
    #[error(
        "{function} at {server}: {source}; the call may have run there, and it is not run again \
         elsewhere: {why}"
    )]
    Lost {
        /// Qualified name of the function.
        function: String,
        /// Where it was.
        server: String,
        /// Why it is not run again.
        why: &'static str,
        /// How the server was lost.
        source: Box<Error>,
    },
    /// The server reports a failure.
    #[error("{0}")]
    Failed(Failure),
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller's: arguments, names, limits, giving up.
    Caller,
    /// The peer's or the network's.
    Peer,
    /// The called library's.
    Library,
    /// The serving machine's.
    Machine,
}

impl Error {
    /// What the client itself reports in the words of a server.
    pub(crate) fn failed(kind: FailureKind, text: impl Into<String>) -> Error {
        Error::Failed(Failure {
            kind,
            message: text.into(),
            earliest: None,
        })
    }

    /// Whether the server that was asked has let the client go without having begun with what was
    /// asked for, so that it can be asked of the server that follows it.
    pub(crate) fn was_let_go(&self) -> bool {
        match self {
            Error::Failed(failure) => failure.kind == FailureKind::Draining,
            Error::Protocol { source, .. } => matches!(source, ProtocolError::Goodbye(_)),
            _ => false,
        }
    }

    /// Whose fault it was.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Address(_)
            | Error::Argument { .. }
            | Error::Callback { .. }
            | Error::Refused { .. }
            | Error::File { .. }
            | Error::Misuse { .. }
            | Error::Interrupted => Fault::Caller,
            Error::Transaction { source, .. } => source.fault(),
            Error::Connect { .. }
            | Error::Disconnected { .. }
            | Error::Protocol { .. }
            | Error::Interface { .. }
            | Error::Lost { .. }
            | Error::Timeout { .. } => Fault::Peer,
            Error::Failed(failure) => match failure.kind.fault() {
                proto::Fault::Caller => Fault::Caller,
                proto::Fault::Library => Fault::Library,
                proto::Fault::Machine => Fault::Machine,
            },
        }
    }

    /// Where something could not be reserved because it is not free then: how long after the
    /// refusal it can be had.
    pub fn earliest(&self) -> Option<Duration> {
        match self {
            Error::Failed(failure) => failure.earliest,
            _ => None,
        }
    }

    /// Whether the interface is to be fetched again before another try.
    pub(crate) fn is_stale_interface(&self) -> bool {
        matches!(self, Error::Failed(failure) if failure.kind == FailureKind::StaleInterface)
    }
}

fn left_out(calls: usize) -> String {
    match calls {
        0 => String::new(),
        1 => "; one call after it was not made".to_string(),
        calls => format!("; {calls} calls after it were not made"),
    }
}

fn connect_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; is `farcall serve` running there?"
        }
        _ => "",
    }
}

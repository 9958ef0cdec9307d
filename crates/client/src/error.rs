//! Errors of the client: what failed, and whose fault it was.
//!
//! Each variant names the thing that failed. Causes are kept as sources, so that a program can look
//! at them.

mod argument;
mod failure;

pub use argument::ArgumentError;
pub use failure::Failure;

use crate::address::{Address, AddressError, DEFAULT_PORT, METASERVER_PORT};
use farcall_rpc_proto::{self as proto, FailureKind, ProtocolError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a callback failed.
pub type CallbackError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed. [`Error::fault`] says whose fault it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The client cannot connect to the server.
    #[error("cannot connect to {address}: {source}{}", connect_hint(.address, .source))]
    Connect {
        /// The server's address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// The server refuses this client and says why.
    #[error("{address} refused the connection: {reason}")]
    Refused {
        /// The server's address.
        address: Address,
        /// The server's reason.
        reason: String,
    },
    /// The connection broke. A call under way may or may not have run.
    #[error("connection to {address} lost: {source}")]
    Disconnected {
        /// The server's address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// The peer violates the protocol, or closed the connection and said why.
    #[error("{address}: {source}{}", stranger_hint(.source))]
    Protocol {
        /// The peer's address.
        address: Address,
        /// How the peer violated the protocol.
        source: ProtocolError,
    },
    /// The client cannot use the interface that the server sent.
    #[error("{address}: the interface of `{function}` cannot be read: {reason}")]
    Interface {
        /// The server's address.
        address: Address,
        /// Name of the function.
        function: String,
        /// What is wrong.
        reason: String,
    },
    /// An argument does not fit the interface. The client has sent nothing.
    #[error("{function}: {source}")]
    Argument {
        /// Qualified name of the function.
        function: String,
        /// What is wrong.
        source: ArgumentError,
    },
    /// The operation took longer than the timeout. A call that a caller waits for alone is given
    /// up; other calls continue.
    #[error("no answer from {address} within {} s", seconds(.after))]
    Timeout {
        /// The server's address.
        address: Address,
        /// The timeout.
        after: Duration,
    },
    /// [`crate::Options::on_interrupt`] asked the client to give the operation up.
    #[error("interrupted; the call was cancelled")]
    Interrupted,
    /// A callback failed, and the client gave up the call that called it.
    #[error("{function}: callback `{callback}` failed: {source}")]
    Callback {
        /// Qualified name of the function.
        function: String,
        /// Name of the callback.
        callback: String,
        /// The error of the caller's function.
        source: CallbackError,
    },
    /// The client cannot read or write a file that an argument names. The call was not made, or was
    /// given up. No file was changed.
    #[error("{function}: argument `{argument}`: {}: {source}", shown(.path))]
    File {
        /// Qualified name of the function.
        function: String,
        /// Name of the argument.
        argument: String,
        /// The file, as the caller named it.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A call of a transaction failed. The other running calls have ended, and the rest were not
    /// made. The arrays that the transaction writes are undefined.
    #[error("call {call} of the transaction, {function}: {source}{}", left_out(*.left))]
    Transaction {
        /// Number of the call, from 1 on.
        call: usize,
        /// Qualified name of the function.
        function: String,
        /// Number of calls that were not made.
        left: usize,
        /// Why the call failed.
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
    /// The server of a call was lost. The call may have run, and its function must not run twice.
    #[error(
        "{function} at {server}: {source}; the call might have run there and was not repeated \
         elsewhere: {why}"
    )]
    Lost {
        /// Qualified name of the function.
        function: String,
        /// Address of the server.
        server: String,
        /// Why the call does not run again.
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
    /// The caller's: wrong arguments or names, limits, a call that the caller gave up.
    Caller,
    /// The peer's or the network's.
    Peer,
    /// The called library's.
    Library,
    /// The serving machine's.
    Machine,
}

impl Error {
    /// An error that the client reports in the same form as a server.
    pub(crate) fn failed(kind: FailureKind, text: impl Into<String>) -> Error {
        Error::Failed(Failure {
            kind,
            message: text.into(),
            earliest: None,
        })
    }

    /// Whether the server has not begun with the call that failed.
    pub(crate) fn is_before_call(&self) -> bool {
        match self {
            Error::Connect { .. } | Error::Refused { .. } | Error::Interface { .. } => true,
            Error::Protocol { .. } => self.was_let_go(),
            _ => false,
        }
    }

    /// If a call has lost its server, which cannot be reached or ends: whether the server may have
    /// begun with the call.
    pub fn lost_server(&self) -> Option<bool> {
        match self {
            error if error.is_before_call() => Some(false),
            Error::Disconnected { .. } | Error::Protocol { .. } => Some(true),
            Error::Failed(failure) => match failure.kind {
                FailureKind::Draining => Some(false),
                FailureKind::ServerStopping => Some(true),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether a server that shuts down released the client before it began with the request. The
    /// server's successor can then take the request.
    pub(crate) fn was_let_go(&self) -> bool {
        match self {
            Error::Failed(failure) => failure.kind == FailureKind::Draining,
            Error::Protocol { source, .. } => matches!(source, ProtocolError::Goodbye(_)),
            _ => false,
        }
    }

    /// Whether a connection that opens ended without a word of the server, or with an invitation to
    /// connect again.
    pub(crate) fn was_cut_off(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        if let Error::Refused { reason, .. } = self {
            return reason.ends_with("; connect again");
        }
        let (Error::Connect { source, .. } | Error::Disconnected { source, .. }) = self else {
            return false;
        };
        matches!(
            source.kind(),
            BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
        )
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

    /// For a reservation that was refused: how long after the refusal the elements are free.
    pub fn earliest(&self) -> Option<Duration> {
        match self {
            Error::Failed(failure) => failure.earliest,
            _ => None,
        }
    }

    /// Whether the client must fetch the interface again before another try.
    pub(crate) fn is_stale_interface(&self) -> bool {
        matches!(self, Error::Failed(failure) if failure.kind == FailureKind::StaleInterface)
    }
}

/// The path as its caller wrote it; an empty one is visible, too.
fn shown(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => "\"\"".to_owned(),
        false => path.display().to_string(),
    }
}

fn left_out(calls: usize) -> String {
    match calls {
        0 => String::new(),
        1 => "; one later call was not made".to_string(),
        calls => format!("; {calls} later calls were not made"),
    }
}

/// A time in seconds for people: to a thousandth of a second, if it has one.
fn seconds(time: &Duration) -> f64 {
    let exact = time.as_secs_f64();
    let rounded = (exact * 1e3).round() / 1e3;
    if rounded > 0.0 { rounded } else { exact }
}

fn connect_hint(address: &Address, error: &io::Error) -> &'static str {
    let missing = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    if !missing.contains(&error.kind()) {
        return match has_no_sockets() {
            true => {
                "; this process can open no sockets: a function on a server has no network, unless \
                 its operator sets `network = true` below `[workers]` in the configuration"
            }
            false => "",
        };
    }
    match address {
        Address::Tcp { port, .. } | Address::Tls { port, .. } => match *port {
            DEFAULT_PORT => "; is `farcall serve` running there?",
            METASERVER_PORT => "; is `farcall meta` running there?",
            _ => "; is `farcall serve` running there, or `farcall meta`?",
        },
        _ => "; is `farcall serve` running there?",
    }
}

/// Whether the system refuses this process every socket, as it does in the workers of a server.
#[cfg(unix)]
fn has_no_sockets() -> bool {
    let socket = std::os::unix::net::UnixDatagram::unbound();
    socket.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(not(unix))]
fn has_no_sockets() -> bool {
    false
}

fn stranger_hint(error: &ProtocolError) -> &'static str {
    match error {
        ProtocolError::NotFarcall => {
            "; another program listens there: check the address and its port"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_knows_whether_its_lost_server_may_have_begun() {
        let failed = |kind| Error::failed(kind, "no").lost_server();
        assert_eq!(failed(FailureKind::Draining), Some(false));
        assert_eq!(failed(FailureKind::ServerStopping), Some(true));
        assert_eq!(failed(FailureKind::BadArgument), None);
        let address: Address = "farcall://host".parse().unwrap();
        let source = || io::ErrorKind::ConnectionRefused.into();
        let connect = Error::Connect {
            address: address.clone(),
            source: source(),
        };
        assert_eq!(connect.lost_server(), Some(false));
        let source = source();
        let cut = Error::Disconnected { address, source };
        assert_eq!(cut.lost_server(), Some(true));
    }

    #[test]
    fn a_time_out_has_no_nanoseconds() {
        let said = |nanos| seconds(&Duration::from_nanos(nanos)).to_string();
        assert_eq!(said(299_907_009), "0.3");
        assert_eq!(said(15_000_000_000), "15");
        assert_eq!(said(100_000), "0.0001");
    }

    #[test]
    fn a_refused_connection_names_what_could_listen_there() {
        for (address, hint) in [
            ("farcall://host", "; is `farcall serve` running there?"),
            ("meta://host", "; is `farcall meta` running there?"),
            (
                "meta://host:9000",
                "; is `farcall serve` running there, or `farcall meta`?",
            ),
            ("unix:///socket", "; is `farcall serve` running there?"),
        ] {
            let error = io::ErrorKind::ConnectionRefused.into();
            assert_eq!(connect_hint(&address.parse().unwrap(), &error), hint);
        }
    }
}

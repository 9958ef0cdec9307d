//! Failures: why a request failed, and whose fault it is. The text of a failure is written where it
//! happens. An unknown kind of a newer peer is read as [`FailureKind::Internal`].

use alloc::string::String;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of the failure.
    #[n(0)]
    pub kind: FailureKind,
    /// What happened and what to do, as a text for people.
    #[n(1)]
    pub message: String,
    /// For [`FailureKind::NotFree`]: milliseconds from now until the elements are free.
    #[n(2)]
    pub earliest: Option<u64>,
}

/// Kinds of failures, by their numbers on the wire. An unknown number of a newer peer is read as
/// [`FailureKind::Internal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
#[repr(u8)]
pub enum FailureKind {
    /// No such function.
    UnknownFunction = 1,
    /// The function was registered again after the client fetched its interface.
    StaleInterface = 2,
    /// An argument does not fit the interface.
    BadArgument = 3,
    /// The call is larger than the server allows.
    TooLarge = 4,
    /// The server has no room for the call now.
    Busy = 5,
    /// The library crashed, ended its process, or violated its interface.
    LibraryCrashed = 6,
    /// The library exceeded its time limit.
    TimeLimit = 7,
    /// The library exceeded its memory limit.
    OutOfMemory = 8,
    /// The client cancelled it.
    Cancelled = 9,
    /// The server is stopping.
    ServerStopping = 10,
    /// A fault of the server itself.
    Internal = 11,
    /// The function ran and reported that it failed.
    FunctionFailed = 12,
    /// The client did not answer a callback in time.
    NoAnswer = 13,
    /// The process of the method's object has ended, and the object's state is lost.
    ObjectLost = 14,
    /// The client stopped sending the arguments.
    Stalled = 15,
    /// There is no such durable call or stored array, or it belongs to another user.
    NotFound = 18,
    /// The user has reached a limit at the server.
    QuotaExceeded = 19,
    /// The server's disk is full, or has lost data.
    StorageFault = 20,
    /// A durable call was running when the server ended, and must not run again.
    OutcomeUnknown = 21,
    /// The user may not do this.
    NotAllowed = 22,
    /// Another server does not answer, or does not give the array.
    Unreachable = 24,
    /// No server can run the call now.
    NoServer = 30,
    /// The wanted elements or bandwidth are not free at that time.
    NotFree = 32,
    /// The server has no lease and must join the directory again.
    NotJoined = 31,
    /// The server takes no more calls. A new connection may lead to its successor.
    Draining = 26,
}

impl<C> Encode<C> for FailureKind {
    fn encode<W: encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        e.u8(*self as u8)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for FailureKind {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Ok(FailureKind::from_number(d.u32()?))
    }
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The caller's: wrong arguments, or too large wishes.
    Caller,
    /// The called library's.
    Library,
    /// The server machine's, or Farcall's.
    Machine,
}

impl FailureKind {
    /// The kind with this number; [`FailureKind::Internal`] if the number is unknown.
    pub fn from_number(number: u32) -> FailureKind {
        let known = u8::try_from(number).ok().and_then(FailureKind::from_repr);
        known.unwrap_or(FailureKind::Internal)
    }

    /// Its name in the specification.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whose fault this kind is.
    pub fn fault(self) -> Fault {
        use FailureKind::*;
        match self {
            UnknownFunction | StaleInterface | BadArgument | TooLarge | Cancelled | NoAnswer
            | Stalled | NotFound | QuotaExceeded | NotAllowed => Fault::Caller,
            LibraryCrashed | TimeLimit | OutOfMemory | FunctionFailed | ObjectLost => {
                Fault::Library
            }
            Busy | ServerStopping | Draining | Internal | StorageFault | OutcomeUnknown
            | Unreachable | NoServer | NotJoined | NotFree => Fault::Machine,
        }
    }
}

impl Failure {
    /// A failure with its text.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Failure {
        Failure {
            kind,
            message: message.into(),
            earliest: None,
        }
    }
}

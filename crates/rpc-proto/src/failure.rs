//! Why a request failed, and whose fault it is.

use alloc::string::String;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What kind of failure.
    #[n(0)]
    pub kind: FailureKind,
    /// What happened and what to do, for the user's eyes.
    #[n(1)]
    pub message: String,
    /// With [`FailureKind::NotFree`]: milliseconds from now after which it can be had.
    #[n(2)]
    pub earliest: Option<u64>,
}

/// Kinds of failure a server reports, by their numbers on the wire. A number that is not known
/// here, from a newer peer, is read as [`FailureKind::Internal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::FromRepr, strum::IntoStaticStr)]
#[repr(u8)]
pub enum FailureKind {
    /// No such function.
    UnknownFunction = 1,
    /// The function was registered anew since its interface was fetched.
    StaleInterface = 2,
    /// An argument does not fit the interface.
    BadArgument = 3,
    /// The call is larger than the server allows.
    TooLarge = 4,
    /// The server has no room for the call now.
    Busy = 5,
    /// The library crashed, ended its process, or did not keep to its interface.
    LibraryCrashed = 6,
    /// The library ran past its time limit.
    TimeLimit = 7,
    /// The library ran past its memory limit.
    OutOfMemory = 8,
    /// The client asked for it.
    Cancelled = 9,
    /// The server is going down.
    ServerStopping = 10,
    /// A fault of the server itself.
    Internal = 11,
    /// The function ran and said that it failed.
    FunctionFailed = 12,
    /// The client did not answer a callback in time.
    NoAnswer = 13,
    /// The object whose method it is has lost its process, and its state.
    ObjectLost = 14,
    /// The client did not go on to send the arguments.
    Stalled = 15,
    /// No such job or handle, or none of this user.
    NotFound = 18,
    /// The user has as much at the server as is allowed.
    QuotaExceeded = 19,
    /// The server's disk is full, or does not keep what it was given.
    StorageFault = 20,
    /// A durable call was running when the server ended, and may not be run again.
    OutcomeUnknown = 21,
    /// The user may not do this.
    NotAllowed = 22,
    /// Another server does not answer, or does not give what it was asked for.
    Unreachable = 24,
    /// No server can have the call now.
    NoServer = 30,
    /// What is to be reserved is not free at that time.
    NotFree = 32,
    /// The server has no lease: it is to join the directory anew.
    NotJoined = 31,
    /// The server takes no more calls; a new connection may lead to the one that follows it.
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
    /// The caller's arguments or wishes.
    Caller,
    /// The called library.
    Library,
    /// The serving machine or Farcall itself.
    Machine,
}

impl FailureKind {
    /// The kind of that number; [`FailureKind::Internal`] if it is not known here.
    pub fn from_number(number: u32) -> FailureKind {
        let known = u8::try_from(number).ok().and_then(FailureKind::from_repr);
        known.unwrap_or(FailureKind::Internal)
    }

    /// Its name, as the specification has it.
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

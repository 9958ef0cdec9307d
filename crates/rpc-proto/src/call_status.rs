//! The status of a call that is under way: how far it has come, why it waits, and when it will
//! start and end. A client asks for it by the number of an open request on its connection, or by
//! the id of a durable call. The reason never names other users. Nothing here changes the call.

use crate::ids::JobId;
use crate::{CallId, Nanos};
use alloc::string::String;
use minicbor::{Decode, Encode};
use strum::{FromRepr, IntoStaticStr};

/// Feature bit: the server tells the status of calls that are under way.
pub const CALL_STATUS: u64 = 1 << 21;

/// A call whose status is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName {
    /// An open request of the same connection.
    Open(CallId),
    /// A durable call.
    Durable(JobId),
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, FromRepr, IntoStaticStr)]
#[cbor(index_only)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum CallPhase {
    /// Its arguments are on their way, or wait for memory.
    #[n(1)]
    Arriving = 1,
    /// It has all its arguments and waits to compute.
    #[n(2)]
    Waiting,
    /// The library computes.
    #[n(3)]
    Running,
    /// Its results are on their way.
    #[n(4)]
    Returning,
    /// It has ended, or the server does not know it any more.
    #[n(5)]
    Over,
}

impl CallPhase {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A moment to come, in nanoseconds from now. It lies between `low` and `high` in four of five
/// cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Expected {
    /// One of ten is earlier.
    #[n(0)]
    pub low: Nanos,
    /// As many are earlier as later.
    #[n(1)]
    pub likely: Nanos,
    /// One of ten is later.
    #[n(2)]
    pub high: Nanos,
}

/// The status of a call.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CallStatus {
    /// How far it has come.
    #[n(0)]
    pub phase: CallPhase,
    /// What it does or waits for, in words.
    #[n(1)]
    pub reason: String,
    /// When it will start to compute, if it waits and this can be predicted.
    #[n(2)]
    pub starts: Option<Expected>,
    /// When it will have computed, if this can be predicted.
    #[n(3)]
    pub ends: Option<Expected>,
}

/// Asks for the status of a call: exactly one of both.
#[derive(Encode, Decode)]
pub(crate) struct AskCallMessage {
    #[n(0)]
    pub(crate) call: Option<CallId>,
    #[n(1)]
    pub(crate) job: Option<JobId>,
}

impl AskCallMessage {
    pub(crate) fn new(name: CallName) -> AskCallMessage {
        let (call, job) = match name {
            CallName::Open(call) => (Some(call), None),
            CallName::Durable(job) => (None, Some(job)),
        };
        AskCallMessage { call, job }
    }

    pub(crate) fn name(&self) -> Option<CallName> {
        match (self.call, self.job) {
            (Some(call), None) => Some(CallName::Open(call)),
            (None, Some(job)) => Some(CallName::Durable(job)),
            _ => None,
        }
    }
}

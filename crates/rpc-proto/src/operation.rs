//! Messages between a server and its operator.

use alloc::string::String;
use minicbor::{Decode, Encode};

/// Feature: the status of the server, and its end by request.
pub const OPERATION: u64 = 1 << 12;

/// How the server stands.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct StatusMessage {
    /// A JSON object; its `schema` says which names it has.
    #[n(0)]
    pub(crate) text: String,
}

/// The server takes no more calls.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DrainingMessage {
    /// Calls that are to end before it does.
    #[n(0)]
    pub(crate) calls: u64,
}

//! Messages between a server and its operator: status and drain. The server decides who is an
//! operator. The status is a JSON object that states the version of its format.

use alloc::string::String;
use minicbor::{Decode, Encode};

/// Feature bit: the server has a status, and can be drained by request.
pub const OPERATION: u64 = 1 << 12;

/// The status of the server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct StatusMessage {
    /// A JSON object. Its `schema` names the version of the format.
    #[n(0)]
    pub(crate) text: String,
}

/// The server is draining.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct DrainingMessage {
    /// Calls that must end before the server does.
    #[n(0)]
    pub(crate) calls: u64,
}

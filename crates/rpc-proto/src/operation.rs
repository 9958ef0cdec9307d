//! Messages between a server and its operator: status, snapshots and drain. The server decides who
//! is an operator. The status and a snapshot are JSON objects that state the version of their
//! format.

use alloc::string::String;
use minicbor::{Decode, Encode};

/// Feature bit: the server has a status, and can be drained by request.
pub const OPERATION: u64 = 1 << 12;

/// Feature bit: the server or metaserver makes snapshots for people who watch it.
pub const SNAPSHOTS: u64 = 1 << 24;

/// Which part of a snapshot somebody wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct AskSnapshot {
    /// Calls before the first one that is shown.
    #[n(0)]
    pub from: u64,
    /// Most calls that are shown. The server has its own limit.
    #[n(1)]
    pub most: u32,
    /// Text that the shown calls, servers and data contain; empty for all.
    #[n(2)]
    pub search: String,
}

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

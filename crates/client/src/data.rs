//! What is known of data with names.

use farcall_rpc_proto::{DataName, DataVersion};

/// The name of an array, and which version it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// With its owner.
    pub name: DataName,
    /// Counts the versions, from 1 on.
    pub version: u64,
    /// Whether all users may read it.
    pub shared: bool,
    /// Whether it is the caller's own.
    pub own: bool,
    pub(crate) identity: DataVersion,
}

/// What is known of data with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataStatus {
    /// With their owner.
    pub name: DataName,
    /// Counts the versions, from 1 on.
    pub version: u64,
    /// Whether all users may read them.
    pub shared: bool,
    /// Type of the elements, by its name in the interface language.
    pub element: String,
    /// The shape.
    pub shape: Vec<u64>,
    /// All bytes.
    pub bytes: u64,
    /// The addresses of the servers that hold them in this version.
    pub holders: Vec<String>,
}

//! Named data as a program sees them: name, version, owner and holders. `names` in the crate
//! `rpc-proto` has the rules for names. The types hold only what a server or a metaserver has told.
//! Sources, which are arrays outside of Farcall, are addresses that only servers read.

use farcall_rpc_proto::{DataName, DataVersion, SourceOptions};

/// An array at an address outside of Farcall, such as `https://data.example.org/a.npy`. The server
/// of a call reads it. Its operator decides which addresses users may read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Source {
    /// The address.
    pub address: String,
    /// How to read it.
    pub options: SourceOptions,
}

/// The name of an array, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, with the owner.
    pub name: DataName,
    /// Number of the version, from 1 on.
    pub version: u64,
    /// Whether all users may read the data.
    pub shared: bool,
    /// Whether the caller owns the data.
    pub own: bool,
    pub(crate) identity: DataVersion,
}

/// The status of named data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataStatus {
    /// The name, with the owner.
    pub name: DataName,
    /// Number of the version, from 1 on.
    pub version: u64,
    /// Whether all users may read the data.
    pub shared: bool,
    /// Element type, by its name in the interface language.
    pub element: String,
    /// The shape.
    pub shape: Vec<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Addresses of the servers that hold this version.
    pub holders: Vec<String>,
}

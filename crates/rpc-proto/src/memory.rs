//! Messages about memory that both sides share.

use minicbor::{Decode, Encode};

/// Feature bit: arrays may lie in memory that both sides share. Offered on Unix sockets only, which
/// can hand memory over.
pub const SHARED_MEMORY: u64 = 1;

/// Asks for shared memory, or says that it is there.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct MemoryMessage {
    #[n(0)]
    pub(crate) bytes: u64,
}

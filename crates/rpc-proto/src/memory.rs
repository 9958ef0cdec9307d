//! The message about memory that client and server share. The shell passes the descriptor of the
//! memory beside the protocol; the message has only its length.

use minicbor::{Decode, Encode};

/// Feature bit: arrays may lie in shared memory. Only Unix sockets offer it, because they can pass
/// memory.
pub const SHARED_MEMORY: u64 = 1;

/// Asks for shared memory, or announces it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct MemoryMessage {
    #[n(0)]
    pub(crate) bytes: u64,
}

//! The progress of a call: how many bytes of its arrays have travelled. Arrays in shared memory do
//! not travel and do not count.

/// Bytes of a call's arrays that have travelled. Arrays in shared memory do not travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes handed to the network.
    pub sent: u64,
    /// All bytes that the call sends.
    pub to_send: u64,
    /// Bytes received.
    pub received: u64,
    /// All bytes that the call receives.
    pub to_receive: u64,
}

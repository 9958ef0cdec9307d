//! How far the arrays of a call have travelled.

/// How far the arrays of a call have travelled, in bytes. Those in shared memory do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Handed to the network, and all that is to be.
    pub sent: u64,
    /// See `sent`.
    pub to_send: u64,
    /// Received, and all that is to be.
    pub received: u64,
    /// See `received`.
    pub to_receive: u64,
}

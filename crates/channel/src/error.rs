//! The errors of channels.

use std::io;

/// The segment holds contents that no correct process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job's memory segment is corrupt: an element wrote where it must not")]
pub struct Corrupt;

/// Why an operation on a channel failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The process was not started as a process of a gang job.
    #[error(
        "this process is no element of a job: start it with `farcall gang run -n N PROGRAM` \
         ({0} is not set or cannot be read)"
    )]
    NoJob(&'static str),
    /// The gang job has fewer channels.
    #[error("channel {channel} of {channels}: run the job with `--channels {}`", .channel + 1)]
    NoChannel {
        /// The requested channel.
        channel: u8,
        /// Number of channels of the gang job.
        channels: u8,
    },
    /// The channel is open already in this process.
    #[error("channel {0} is open already in this process")]
    Open(u8),
    /// No process has this rank.
    #[error("rank {rank} of a job of {size} elements")]
    Rank {
        /// The requested rank.
        rank: usize,
        /// Number of processes of the gang job.
        size: usize,
    },
    /// The rank belongs to another partition of the gang job.
    #[error("rank {0} is in another partition of the job: nothing may be sent there")]
    Partition(usize),
    /// The message is longer than its buffer. It stays in the FIFO.
    #[error("a message of {bytes} bytes for a buffer of {room}")]
    TooLong {
        /// Length of the message.
        bytes: usize,
        /// Length of the buffer.
        room: usize,
    },
    /// The function set by [`crate::Channel::set_interrupt`] returned true. If a message was moved
    /// in part, the channel is [`ChannelError::Cut`] from now on.
    #[error("the wait was interrupted")]
    Interrupted,
    /// An operation was interrupted in the middle of a message or of a collective operation.
    #[error(
        "the channel is of no use any more: an operation was interrupted when it was half done"
    )]
    Cut,
    /// A message is longer than 4 GiB.
    #[error("a message of {0} bytes; at most 4 GiB fit into one")]
    TooLarge(usize),
    /// The segment is corrupt.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The segment cannot be mapped.
    #[error("the job's memory segment cannot be mapped: {0}")]
    System(#[from] io::Error),
}

//! The errors of channels, and damage found in shared memory. An error that follows from wrong use
//! says which rank or channel is meant and what exists.

use std::io;

/// The segment holds contents that no correct process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory segment of the gang job is corrupt: a process wrote where it must not")]
pub struct Corrupt;

/// Why an operation on a channel failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The process was not started as a process of a gang job.
    #[error(
        "this process does not belong to a gang job: start it with `farcall gang run -n N PROGRAM` \
         ({0} is not set or cannot be read)"
    )]
    NoJob(&'static str),
    /// The gang job has fewer channels.
    #[error(
        "there is no channel {channel}, because the gang job has {channels}: run it with \
         `--channels {}`",
        .channel + 1
    )]
    NoChannel {
        /// The requested channel.
        channel: u8,
        /// Number of channels of the gang job.
        channels: u8,
    },
    /// The channel is open already in this process.
    #[error("channel {0} is already open in this process")]
    Open(u8),
    /// No process has this rank.
    #[error("rank {rank} does not exist: the gang job has {size} processes, with ranks from 0")]
    Rank {
        /// The requested rank.
        rank: usize,
        /// Number of processes of the gang job.
        size: usize,
    },
    /// The rank belongs to another partition of the gang job.
    #[error("cannot send to rank {0}: it is in another partition of the gang job")]
    Partition(usize),
    /// The message is longer than its buffer. It stays in the FIFO.
    #[error("a message of {bytes} bytes does not fit into the buffer of {room} bytes")]
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
    #[error("the channel cannot be used anymore: an operation was interrupted in the middle")]
    Cut,
    /// A message is longer than 4 GiB.
    #[error("a message of {0} bytes is too long: the limit is 4 GiB")]
    TooLarge(usize),
    /// The segment is corrupt.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The segment cannot be mapped.
    #[error("cannot map the memory segment of the gang job: {0}")]
    System(#[from] io::Error),
}

//! The errors of channels, and damage found in shared memory. An error that follows from wrong use
//! says which rank or channel is meant and what exists.

use farcall_channel_proto::saved::{MAX_ARRAYS, SavedError};
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
         ({0})"
    )]
    NoJob(&'static str),
    /// The segment that the process was given has another form than this library knows.
    #[error(
        "the gang daemon is of another version of Farcall than the channels of this program: \
         update one of them, so that both have the same"
    )]
    Foreign,
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
    /// This process was forked from the one that has opened the channel.
    #[error(
        "this process was forked from the one of the gang job that has opened the channel: only \
         that one can use it, because a rank has one sender and one receiver. Send and receive \
         there, and give the child its work and take its results through a pipe"
    )]
    Forked,
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
    /// An operation stopped in the middle of a message or of a collective operation.
    #[error(
        "the channel cannot be used anymore: an operation was interrupted in the middle, or the \
         processes passed different things to a collective operation. End the gang job and start \
         it again"
    )]
    Cut,
    /// This rank passes other numbers to a collective operation than this process.
    #[error(
        "rank {0} passes other numbers to this collective operation than this process: all must \
         pass equally many, and all integers or all floats"
    )]
    Unequal(usize),
    /// A message is longer than 4 GiB.
    #[error("a message of {0} bytes is too long: the limit is 4 GiB")]
    TooLarge(usize),
    /// The process has registered its state already.
    #[error("this process has registered its state already: do so once, with all arrays")]
    Registered,
    /// The process has no registered state.
    #[error("this process has not registered its state: call `register` before `run`")]
    Unregistered,
    /// A message was sent or received before the state was registered.
    #[error(
        "this process has sent or received a message already: register the state before, because \
         a process that is restarted finds the messages of the checkpoint in its channels"
    )]
    Late,
    /// The program registers too many arrays.
    #[error("{0} arrays are too many: at most {max} can be registered", max = MAX_ARRAYS)]
    TooManyArrays(usize),
    /// The checkpoint is of other arrays.
    #[error(
        "the checkpoint does not fit this program: it has arrays of {saved:?} bytes, and the \
         program registers {given:?} bytes. Start the program with the same arguments"
    )]
    OtherArrays {
        /// Bytes of each array in the checkpoint.
        saved: Vec<u64>,
        /// Bytes of each array of the program.
        given: Vec<u64>,
    },
    /// The checkpoint is damaged.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// The segment is corrupt.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The segment cannot be mapped.
    #[error("cannot map the memory segment of the gang job: {0}")]
    System(#[from] io::Error),
}

//! Messages between the processes of a gang job.
//!
//! A process that `farcall gang run` started opens its [`Channel`] and sends and receives by rank.
//! Processes on one node write to each other's rings in a memory segment of the gang job. Between
//! nodes, the [`Engine`] of the daemon carries messages over UDP. User processes access only rings.
//!
//! Every reader checks every index in the segment. A process that writes garbage into the segment
//! harms only its own gang job.
//!
//! Each ordered pair of processes on a channel has one ring with one writer and one reader. All
//! rings into one process share a credit that bounds what they hold together: the receive FIFO. The
//! memory therefore grows with the square of the number of processes; [`Layout::bytes`] returns it.

mod channel;
mod checkpoint;
mod collective;
mod context;
mod engine;
mod error;
mod futex;
mod layout;
mod membership;
mod message;
mod polling;
mod process;
mod ring;
mod segment;
mod steps;

pub use channel::Channel;
pub use checkpoint::Command;
pub use collective::{Number, Reduction};
pub use context::{ElementView, SavedContext, Waiting};
pub use engine::{Engine, EngineError, Faults, Peer, Traffic};
pub use error::{ChannelError, Corrupt};
pub use layout::{Fifo, Layout, Shape, ShapeError};
pub use membership::VARIABLE;
pub use message::{HEAD_BYTES, Message};
pub use polling::{Polling, WANTED, Wanted};
pub use segment::Segment;
pub use steps::{Array, State};

#[doc(hidden)]
pub mod raw {
    //! The bare ring, to measure the overhead of a channel.
    pub use crate::ring::{CONTROL_BYTES, Consumer, Producer, Record};
    pub use farcall_memory::{Mapping, sealed_memory};
}

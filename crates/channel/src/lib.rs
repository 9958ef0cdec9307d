//! Messages between the elements of a parallel job.
//!
//! An element of a job that `farcall gang run` started opens its [`Channel`] and sends and receives
//! by rank. Elements on one node write each other's rings in a memory segment of the job; between
//! nodes the [`Engine`] of the daemon carries messages over UDP. User processes touch only rings.
//!
//! Every index in the segment is checked by whoever reads it: an element that scribbles over the
//! segment harms its own job and nobody else.
//!
//! For each ordered pair of elements on a channel there is one ring with one writer and one reader,
//! and a credit shared by all rings into one element bounds what they hold together: the receive
//! FIFO. So memory grows with the square of the job's size; [`Layout::bytes`] says how much.

mod channel;
mod collective;
mod context;
mod engine;
mod error;
mod futex;
mod layout;
mod ring;
mod segment;

pub use channel::{Channel, Message, VARIABLE};
pub use collective::{Number, Reduction};
pub use context::{ElementView, SavedContext, Waiting};
pub use engine::{Engine, EngineError, Faults, Peer, Traffic};
pub use error::{ChannelError, Corrupt};
pub use layout::{Fifo, Layout, Shape, ShapeError};
pub use segment::Segment;

#[doc(hidden)]
pub mod raw {
    //! The bare ring, for measuring what a channel costs beside it.
    pub use crate::ring::{CONTROL_BYTES, Consumer, Producer, Record};
    pub use farcall_memory::{Mapping, sealed_memory};
}

//! The channel protocol: reliable, ordered messages between the elements of a parallel job, over a
//! network that may lose, repeat and reorder, with a context that can be saved at any step.
//!
//! One [`Sender`] and one [`Receiver`] stand for each ordered pair of elements. They hold sequence
//! numbers and never data: messages stay in the send FIFO of their caller until they are answered,
//! and go straight from the packet into the receive FIFO.
//!
//! # Modified Ack/Nack
//!
//! After PM (Tezuka, Hori, Ishikawa, Sato, HPCN 1997). An Ack says that messages *fitted into the
//! receive FIFO*, not that they were consumed; it only frees send memory. A receiver without room
//! drops the messages and answers with a Nack, after which they are sent again, in order. So a full
//! receiver never holds anything in the network, and never stands in another channel's way.
//!
//! # Freezing
//!
//! A channel is *stationary* when its last transmission has been answered, by an Ack or by a Nack:
//! nothing of it is in the network then. A frozen sender transmits nothing new, and a Nack is not
//! followed by another transmission, or a full receiver would never become stationary.
//! [`Freeze::Drain`] keeps asking until the answer comes. [`Freeze::Epoch`] does not wait: every
//! packet carries the epoch of its job, a change of epoch makes all packets under way stale, and
//! what they carried is sent again, because its sender still has it.
//!
//! # Driving it
//!
//! One mutation, then drain: after `handle_queued`, `handle_answer`, `handle_timeout` or `thaw`,
//! call [`Sender::poll_transmit`] until it returns `None`, then ask [`Sender::poll_timeout`]. Time
//! comes from the caller as nanoseconds of any monotonic clock. [`Config::window`] bounds the
//! queue.
#![no_std]

extern crate alloc;

mod context;
mod packet;
mod receiver;
mod sender;

pub use context::{PairContext, ReceiverContext, SenderContext};
pub use packet::{Address, HEADER_BYTES, Header, Kind, PacketError};
pub use receiver::{Receiver, Verdict};
pub use sender::{Sender, Transmit};

/// A monotonic time in nanoseconds, read by the caller.
pub type Nanos = u64;

/// Bounds and times of one direction of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most packets queued for, or on, the network at once.
    pub window: usize,
    /// First time after which an unanswered packet is sent again; it doubles up to `resend_max`.
    pub resend: Nanos,
    /// The longest such time.
    pub resend_max: Nanos,
    /// Pause after a Nack for want of room; it doubles up to `pause_max` while Nacks go on.
    pub pause: Nanos,
    /// The longest such pause.
    pub pause_max: Nanos,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            window: 64,
            resend: 2_000_000,
            resend_max: 200_000_000,
            pause: 50_000,
            pause_max: 5_000_000,
        }
    }
}

/// How a channel is brought to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeze {
    /// Wait until every transmission is answered.
    Drain,
    /// Let what is under way become stale.
    Epoch,
}

//! The channel protocol: reliable, ordered messages between the processes of a gang job. The
//! network may lose, repeat and reorder packets, and the context can be saved at any step.
//!
//! Each ordered pair of processes has one [`Sender`] and one [`Receiver`]. They hold sequence
//! numbers and never data. Messages stay in the caller's send FIFO until they are answered, and go
//! directly from the packet into the receive FIFO.
//!
//! # Modified Ack/Nack
//!
//! The scheme follows PM (Tezuka, Hori, Ishikawa, Sato, HPCN 1997). An Ack means that messages
//! *fitted into the receive FIFO*, not that they were consumed; it only frees send memory. If a
//! receiver has no space, it drops the messages and answers with a Nack. The sender then sends them
//! again, in order. A full receiver therefore never holds messages in the network, and never blocks
//! another channel.
//!
//! # Freezing
//!
//! A channel is *stationary* when its last transmission has been answered by an Ack or a Nack: none
//! of its packets is in the network then. A frozen sender transmits nothing new. It also does not
//! transmit again after a Nack, because a full receiver would otherwise never become stationary.
//! [`Freeze::Drain`] asks again until the answer arrives. [`Freeze::Epoch`] does not wait. Every
//! packet carries the epoch of its gang job, and a change of epoch makes all packets in the network
//! stale. Their messages are sent again, because the sender still has them.
//!
//! # Driving it
//!
//! After each call of `handle_queued`, `handle_answer`, `handle_timeout` or `thaw`, call
//! [`Sender::poll_transmit`] until it returns `None`, then ask [`Sender::poll_timeout`]. The caller
//! passes the time as nanoseconds of any monotonic clock. [`Config::window`] bounds the queue.
#![no_std]

extern crate alloc;

mod context;
mod packet;
mod receiver;
pub mod saved;
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
    /// The largest number of packets that are queued for the network or in it.
    pub window: usize,
    /// Time after which an unanswered packet is first sent again. It doubles up to `resend_max`.
    pub resend: Nanos,
    /// The longest such time.
    pub resend_max: Nanos,
    /// Pause after a Nack from a full receiver. It doubles up to `pause_max` with each further
    /// Nack.
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
    /// Let packets in the network become stale.
    Epoch,
}

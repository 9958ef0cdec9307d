//! Where a trunk touches the machine: TAP interfaces with segmentation offload, packet sockets in
//! batches, and a fault injector that wraps them.

mod checksum;
mod coalesce;
mod fault;
mod interface;
mod packet;
mod segment;
mod tap;

pub use fault::{FaultInjector, FaultPlan};
pub use interface::{Carrier, Interface, InterfaceError};
pub use packet::{Form, PacketSocket};
pub use tap::{Tap, TapError};

use bytes::Bytes;
use farcall_trunk_proto::{Mac, Nanos, Transmit};
use std::io;
use std::os::fd::OwnedFd;

/// A frame that came from a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it came from.
    pub source: Mac,
    /// What follows the Ethernet header.
    pub payload: Bytes,
    /// When it reached this machine; it may have waited since then.
    pub at: Nanos,
}

/// A link of a trunk: sends and receives frames of its EtherType in batches.
pub trait LinkDevice {
    /// What to poll for.
    fn descriptor(&self) -> &OwnedFd;

    /// Sends frames from the front of `frames` and takes them out; stops where the link takes no
    /// more, and returns false then. A frame that the interface drops counts as sent.
    ///
    /// # Errors
    /// Where the interface is gone.
    fn send(&mut self, now: Nanos, frames: &mut Vec<Transmit>) -> io::Result<bool>;

    /// Hands over frames that have come, in order; returns how many. 0 means that none waits.
    ///
    /// # Errors
    /// Where the interface is gone.
    fn receive(&mut self, now: Nanos, take: &mut dyn FnMut(Received)) -> io::Result<usize>;

    /// When it has something to do without being readable.
    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> Nanos {
    clock(rustix::time::ClockId::Monotonic)
}

/// Nanoseconds of one of the machine's clocks.
fn clock(id: rustix::time::ClockId) -> Nanos {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

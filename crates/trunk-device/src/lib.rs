//! The operating system's side of a trunk: TAP interfaces with segmentation offload, packet sockets
//! that work in batches, and a fault injector that wraps them. `trunk-proto` decides what is sent.
//! Nothing here blocks.

mod checksum;
mod coalesce;
#[doc(hidden)]
pub mod decoders;
mod fault;
mod interface;
mod packet;
mod priority;
mod segment;
mod tap;

pub use fault::{FaultInjector, FaultPlan};
pub use interface::{Carrier, Interface, InterfaceError};
pub use packet::{Form, PacketSocket};
pub use priority::{set_priority, thread_time};
pub use tap::{Tap, TapError, is_too_narrow};

use bytes::Bytes;
use farcall_trunk_proto::{Mac, Nanos, Transmit};
use std::io;
use std::os::fd::OwnedFd;

/// A frame that arrived on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The source address.
    pub source: Mac,
    /// The bytes after the Ethernet header.
    pub payload: Bytes,
    /// When it reached this machine. It may have waited in the kernel since then.
    pub at: Nanos,
}

/// A link of a trunk. It sends and receives frames of the trunk's EtherType in batches.
pub trait LinkDevice {
    /// The descriptor to poll.
    fn descriptor(&self) -> &OwnedFd;

    /// Sends frames from the front of `frames` and removes them. If the link accepts no more, it
    /// stops and returns false. A frame that the interface drops counts as sent.
    ///
    /// # Errors
    /// The interface is gone.
    fn send(&mut self, now: Nanos, frames: &mut Vec<Transmit>) -> io::Result<bool>;

    /// Passes the frames that have arrived to `take`, in order, and returns their number. 0 means
    /// that none wait.
    ///
    /// # Errors
    /// The interface is gone.
    fn receive(&mut self, now: Nanos, take: &mut dyn FnMut(Received)) -> io::Result<usize>;

    /// When the link has work to do even if it is not readable.
    fn deadline(&self) -> Option<Nanos> {
        None
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> Nanos {
    clock(rustix::time::ClockId::Monotonic)
}

/// Sleeps until this time of the monotonic clock, or until a signal comes.
pub fn sleep_until(at: Nanos) {
    let clock = rustix::time::ClockId::Monotonic;
    let _ = rustix::thread::clock_nanosleep_absolute(clock, &timespec(at));
}

/// A time of the monotonic clock as the system takes it.
pub fn timespec(at: Nanos) -> rustix::time::Timespec {
    rustix::time::Timespec {
        tv_sec: (at / 1_000_000_000) as i64,
        tv_nsec: (at % 1_000_000_000) as i64,
    }
}

/// Nanoseconds of one of the machine's clocks.
fn clock(id: rustix::time::ClockId) -> Nanos {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

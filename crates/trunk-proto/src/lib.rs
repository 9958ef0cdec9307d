//! A trunk joins the Ethernet links of a node into one virtual interface. This crate is its state
//! machine, without I/O.
//!
//! The crate implements RI2N, RI2N+ and RI2N++ (Yonemoto et al., *Asymmetric Multi-link Ethernet
//! Trunking System with Adaptive Traffic Control*) and adds the policy max-min. With max-min, the
//! receiver grants rates, so that frames are dropped, if at all, before they get a number.
//!
//! # Driving a trunk
//!
//! [`Trunk`] holds all state of one node. The caller moves the frames and passes the time, in
//! nanoseconds of any monotonic clock. After one or more calls of `handle_*`, call
//! [`Trunk::poll_transmit`], [`Trunk::poll_deliver`] and [`Trunk::poll_event`] until each returns
//! none. Then sleep at most until [`Trunk::poll_timeout`], and call [`Trunk::handle_timeout`].
//! Before `handle_timeout`, pass all frames that wait on the sockets. Otherwise a late caller looks
//! like a dead link.
//!
//! [`Limits`] bounds every queue and table. No input from a neighbour can cause a panic or exceed
//! these bounds.
#![no_std]

extern crate alloc;

mod address;
mod capacity;
mod cipher;
mod control;
mod delay;
mod distributor;
mod event;
mod granter;
pub mod grants;
mod handshake;
mod keys;
mod monitor;
mod peer;
mod queue;
mod receiver;
mod resequencer;
mod ring;
mod seal;
mod shim;
mod status;
mod trunk;
mod weights;

pub use address::Mac;
pub use control::{ControlError, Message};
pub use event::{Conflict, ConflictKind, Event, Misfit, Reason};
pub use shim::{Kind, Shim, ShimError};
pub use status::{Counters, LinkStatus, PathStatus, PeerStatus, Status};
pub use trunk::{Config, ConfigError, Deliver, Limits, LinkConfig, Policy, Transmit, Trunk};

/// A monotonic time in nanoseconds, read by the caller.
pub type Nanos = u64;

/// EtherType of the trunk's frames: IEEE 802 local experimental 1.
pub const ETHERTYPE: u16 = 0x88b5;

/// Bytes of the header between the Ethernet header and the payload.
pub const SHIM_BYTES: usize = 12;

/// The largest number of links of one node.
pub const MAX_LINKS: usize = 8;

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// Bytes on the wire of a frame whose payload after the Ethernet header has this size. The sum
/// includes the header, the check sequence, the preamble and the gap, and is at least 84.
pub(crate) fn wire_bytes(payload: usize) -> usize {
    (payload + 14 + 24).max(84)
}

/// Extends a 32-bit serial number to the 64-bit number nearest to `near`.
pub(crate) fn extend(wire: u32, near: u64) -> u64 {
    let difference = wire.wrapping_sub(near as u32) as i32;
    near.saturating_add_signed(i64::from(difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_extend_across_the_wrap() {
        let near = (1 << 32) - 2;
        assert_eq!(extend(1, near), (1 << 32) + 1);
        assert_eq!(extend(u32::MAX, (1 << 32) + 1), u64::from(u32::MAX));
        assert_eq!(extend(7, 5), 7);
    }

    #[test]
    fn short_frames_take_the_least_wire_time() {
        assert_eq!(wire_bytes(0), 84);
        assert_eq!(wire_bytes(1500), 1538);
    }
}

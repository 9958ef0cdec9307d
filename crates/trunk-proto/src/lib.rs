//! A trunk: the Ethernet links of a node as one virtual interface, as a state machine without I/O.
//!
//! It follows RI2N, RI2N+ and RI2N++ (Yonemoto et al., *Asymmetric Multi-link Ethernet Trunking
//! System with Adaptive Traffic Control*) and adds the policy max-min: the receiver grants rates,
//! so that frames are lost, if at all, before they are numbered.
//!
//! # Driving a trunk
//!
//! [`Trunk`] holds everything about one node. The caller moves frames and tells the time, in
//! nanoseconds of any monotonic clock. After one or more calls of `handle_*` drain it:
//! [`Trunk::poll_transmit`], [`Trunk::poll_deliver`] and [`Trunk::poll_event`] until each returns
//! none, then sleep until [`Trunk::poll_timeout`] at the latest and call
//! [`Trunk::handle_timeout`]. Frames that wait on the sockets are handed in before
//! `handle_timeout` is called, or a late caller would look like a dead link.
//!
//! Every queue and table has its bound in [`Limits`]; what a neighbour sends can neither panic nor
//! take memory beyond them.
#![no_std]

extern crate alloc;

mod address;
mod capacity;
mod control;
mod delay;
mod distributor;
mod event;
mod granter;
pub mod grants;
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
pub use event::{Event, Reason};
pub use shim::{Kind, Shim, ShimError};
pub use status::{Counters, LinkStatus, PathStatus, PeerStatus, Status};
pub use trunk::{Config, ConfigError, Deliver, Limits, LinkConfig, Policy, Transmit, Trunk};

/// A monotonic time in nanoseconds, read by the caller.
pub type Nanos = u64;

/// EtherType of the trunk's frames: IEEE 802 local experimental 1.
pub const ETHERTYPE: u16 = 0x88b5;

/// Bytes of the header between the Ethernet header and the payload.
pub const SHIM_BYTES: usize = 12;

/// Links of one node, at most.
pub const MAX_LINKS: usize = 8;

const MICROSECOND: Nanos = 1_000;
const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000_000_000;

/// Bytes that a frame with this payload (after the Ethernet header) takes on the wire: header,
/// check sequence, preamble and gap included, 84 at least.
pub(crate) fn wire_bytes(payload: usize) -> usize {
    (payload + 14 + 24).max(84)
}

/// A 32-bit serial number as the 64-bit one nearest to `near`.
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

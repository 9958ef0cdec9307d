//! The status of a trunk, as an operator sees it. The types hold figures only; the shell turns them
//! into JSON and metrics. Rates are in bytes a second.

use crate::{Conflict, Mac};
use alloc::string::String;
use alloc::vec::Vec;

/// A snapshot of a trunk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Address of the virtual interface.
    pub node: Mac,
    /// The policy's name.
    pub policy: &'static str,
    /// Largest payload of a frame of the virtual interface, in bytes.
    pub mtu: u16,
    /// This node's links.
    pub links: Vec<LinkStatus>,
    /// The known nodes.
    pub peers: Vec<PeerStatus>,
    /// Addresses that two nodes have used in the last minute.
    pub conflicts: Vec<Conflict>,
    /// Frames dropped, by reason.
    pub counters: Counters,
}

/// The status of one of this node's links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkStatus {
    /// Name of the interface.
    pub name: String,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Line rate in bytes a second, as configured or reported by the interface.
    pub line_rate: f64,
    /// Learned rate towards this node from all peers, in bytes a second.
    pub capacity: f64,
}

/// The status of one peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerStatus {
    /// The node.
    pub node: Mac,
    /// Bytes that wait to be sent to it.
    pub queued_bytes: usize,
    /// Frames dropped before they got a number, because too many frames waited too long.
    pub queue_drops: u64,
    /// Packets marked instead of dropped.
    pub queue_marks: u64,
    /// Frames held until earlier frames arrive.
    pub held_frames: usize,
    /// Frames given up.
    pub given_up: u64,
    /// Frames refused because heartbeats denied or did not confirm their numbers.
    pub refused: u64,
    /// How often a heartbeat set the order of its frames right.
    pub resynchronised: u64,
    /// Whether frames to it are encrypted now.
    pub encrypted: bool,
    /// Round-trip time over the links in nanoseconds, 0 if unknown.
    pub round_trip: u64,
    /// The links shared with it.
    pub links: Vec<PathStatus>,
}

/// The status of one path: a link to a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathStatus {
    /// Number of the link among this node's links.
    pub link: usize,
    /// Address of the peer's end.
    pub address: Mac,
    /// `up`, `joining` or `down`.
    pub state: &'static str,
    /// Learned rate from the peer to this node, in bytes a second.
    pub capacity: f64,
    /// Wire bytes a second received from the peer.
    pub rate: f64,
    /// Wire bytes a second sent to the peer.
    pub sent_rate: f64,
    /// Wire bytes a second that the peer grants to this node (policy `max-min`).
    pub grant: Option<f64>,
    /// Share of frames in the published policies.
    pub weight: Option<f64>,
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames from the peer that were lost on it.
    pub lost: u64,
    /// Frames sent again, on any link, because they were lost on this one.
    pub resent: u64,
    /// How often the link was taken out of use.
    pub failures: u64,
}

/// Counts of dropped frames, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames from an address that no peer has on that link.
    pub unknown_source: u64,
    /// Frames with a malformed header or control message.
    pub malformed: u64,
    /// Frames with an impossible number.
    pub bad_number: u64,
    /// Frames and control messages with a wrong tag or without one, and replayed ones.
    pub unauthentic: u64,
    /// Frames that had arrived before.
    pub duplicates: u64,
    /// Frames that are too long for a link together with the trunk's header.
    pub too_long: u64,
    /// Frames for an unknown peer.
    pub no_peer: u64,
    /// Peers refused because the table of peers is full.
    pub peers_refused: u64,
}

//! What an operator sees.

use crate::Mac;
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
    /// The own links.
    pub links: Vec<LinkStatus>,
    /// The nodes known.
    pub peers: Vec<PeerStatus>,
    /// Frames dropped, by reason.
    pub counters: Counters,
}

/// One of the own links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkStatus {
    /// Name of the interface.
    pub name: String,
    /// Whether it has a carrier.
    pub carrier: bool,
    /// Line rate in bytes a second, as configured or told by the interface.
    pub line_rate: f64,
    /// Rate that it was found to carry towards this node, from all peers, in bytes a second.
    pub capacity: f64,
}

/// One peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerStatus {
    /// The node.
    pub node: Mac,
    /// Bytes that wait to be sent to it.
    pub queued_bytes: usize,
    /// Frames dropped before they were numbered, because too many waited too long.
    pub queue_drops: u64,
    /// Packets marked instead of dropped.
    pub queue_marks: u64,
    /// Frames held until those before them come.
    pub held_frames: usize,
    /// Frames given up.
    pub given_up: u64,
    /// Round-trip time over the links in nanoseconds, 0 where not yet known.
    pub round_trip: u64,
    /// The links shared with it.
    pub links: Vec<PathStatus>,
}

/// A link to a peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathStatus {
    /// Number of the link among the own ones.
    pub link: usize,
    /// Address of the peer's end.
    pub address: Mac,
    /// `up`, `joining` or `down`.
    pub state: &'static str,
    /// Rate that it was found to carry from the peer to this node, in bytes a second.
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
    /// Frames sent again, on whichever link, because they were lost on this one.
    pub resent: u64,
    /// Times that it was taken out.
    pub failures: u64,
}

/// Frames that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// From an address that no peer has on that link.
    pub unknown_source: u64,
    /// With a broken header or control message.
    pub malformed: u64,
    /// With a number far from what can be.
    pub bad_number: u64,
    /// Control messages that the key does not open, or that were sent before.
    pub unauthentic: u64,
    /// That had come before.
    pub duplicates: u64,
    /// Too long for a link with their header.
    pub too_long: u64,
    /// For which no peer is known.
    pub no_peer: u64,
    /// Peers refused because there are too many.
    pub peers_refused: u64,
}

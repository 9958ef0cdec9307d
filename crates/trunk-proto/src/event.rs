//! What happened, for a log.

use crate::Mac;
use core::fmt;

/// A change that an operator wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node was found.
    PeerFound {
        /// The node.
        peer: Mac,
    },
    /// A node has ended, or is not heard on any link.
    PeerLost {
        /// The node.
        peer: Mac,
        /// Whether it said so.
        goodbye: bool,
    },
    /// A link to a peer carries traffic.
    LinkUp {
        /// The node.
        peer: Mac,
        /// Number of the link among the own ones.
        link: usize,
    },
    /// A link to a peer was taken out.
    LinkDown {
        /// The node.
        peer: Mac,
        /// Number of the link among the own ones.
        link: usize,
        /// Why.
        reason: Reason,
    },
}

/// Why a link was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The peer is heard on another link and not on this one.
    Silent,
    /// The peer says that it does not hear this node on it.
    Unheard,
    /// The own end has no carrier.
    Carrier,
    /// Far fewer frames come over it than over another (policy `round-robin`, as published).
    Behind,
    /// The peer is heard on no link.
    PeerLost,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Silent => "silent while another link is heard",
            Reason::Unheard => "the peer does not hear this node on it",
            Reason::Carrier => "no carrier",
            Reason::Behind => "far fewer frames than on another link",
            Reason::PeerLost => "the peer is heard on no link",
        })
    }
}

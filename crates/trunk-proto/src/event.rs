//! Events of a trunk for the log. The trunk reports changes only, not single frames; the shell
//! writes them. `status` has the figures.

use crate::Mac;

/// A change that is of interest to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node was discovered.
    PeerFound {
        /// The node.
        peer: Mac,
    },
    /// A node has stopped, or is not heard on any link.
    PeerLost {
        /// The node.
        peer: Mac,
        /// Whether the node said goodbye.
        goodbye: bool,
    },
    /// A link to a peer now carries traffic.
    LinkUp {
        /// The node.
        peer: Mac,
        /// Number of the link among this node's links.
        link: usize,
    },
    /// A link to a peer was taken out of use.
    LinkDown {
        /// The node.
        peer: Mac,
        /// Number of the link among this node's links.
        link: usize,
        /// The reason.
        reason: Reason,
    },
    /// Frames came from a peer's address with numbers that the peer has not sent, as its heartbeats
    /// show.
    NumbersDenied {
        /// The node.
        peer: Mac,
        /// Frames that were refused since the last such event.
        refused: u64,
    },
    /// Two nodes use one address.
    AddressConflict(Conflict),
    /// A node was heard that cannot be a peer.
    Misfit {
        /// The node, as it says itself.
        node: Mac,
        /// Number of the link on which it was heard, among this node's links.
        link: usize,
        /// The reason.
        misfit: Misfit,
    },
}

/// Why a node cannot be a peer, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Misfit {
    /// This node has a key, and the other has none.
    #[strum(to_string = "it has no key: start it with the `--key-file` of this trunk")]
    NoKey,
    /// The keys differ.
    #[strum(to_string = "its key differs: start all nodes with the same `--key-file`")]
    OtherKey,
    /// The other node has a key, and this one has none.
    #[strum(to_string = "it has a key and this node has none: start this node with `--key-file`")]
    Key,
    /// The other node has the key, but its version does not encrypt data frames.
    #[strum(to_string = "its version of Farcall does not encrypt frames: update it")]
    Older,
    /// The other node has a newer version.
    #[strum(to_string = "its version of Farcall is newer: update this node")]
    Newer,
}

/// An address that two nodes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Number of the link on which the second node was heard, among this node's links.
    pub link: usize,
    /// The address.
    pub address: Mac,
    /// Whose address it is.
    pub kind: ConflictKind,
}

/// Whose address is in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum ConflictKind {
    /// Another node sends from the address of this node's link.
    #[strum(to_string = "another node sends from the address of this link")]
    OwnLink,
    /// Another node has the address of this node's virtual interface.
    #[strum(to_string = "another node has the address of this trunk")]
    OwnNode,
    /// Two peers send from one address.
    #[strum(to_string = "two nodes send from this address")]
    PeerLink,
    /// Two nodes have one address of their virtual interfaces.
    #[strum(to_string = "two nodes have this address")]
    PeerNode,
}

/// Why a link was taken out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Reason {
    /// The peer is heard on another link but not on this one.
    #[strum(to_string = "silent while another link is heard")]
    Silent,
    /// The peer reports that it does not hear this node on this link.
    #[strum(to_string = "the peer does not hear this node on it")]
    Unheard,
    /// This node's interface has no carrier.
    #[strum(to_string = "no carrier")]
    Carrier,
    /// Far fewer frames arrive over this link than over another (policy `round-robin`, as
    /// published).
    #[strum(to_string = "far fewer frames than on another link")]
    Behind,
    /// The peer is heard on no link.
    #[strum(to_string = "the peer is heard on no link")]
    PeerLost,
}

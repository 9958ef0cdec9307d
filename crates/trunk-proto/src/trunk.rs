//! The state machine of one node. The submodules implement its parts: frames in each direction,
//! sessions, control messages, and time.

mod clock;
mod conflict;
mod heartbeat;
mod inbound;
mod keying;
mod learning;
mod outbound;
mod session;

use crate::address::HEADER_BYTES;
use crate::capacity::{Capacity, SURE, SURE_ALONE};
use crate::cipher::SEAL_BYTES;
use crate::distributor::Pace;
use crate::handshake::{Entropy, shared_secret};
use crate::monitor::{FAST, SLOW};
use crate::peer::{Peer, Urgency};
use crate::seal::Sealer;
use crate::status::{Counters, LinkStatus, PathStatus, PeerStatus, Status};
use crate::{Conflict, Event, MAX_LINKS, Mac, Nanos, SECOND, SHIM_BYTES};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use keying::MISFITS;

/// How frames are distributed over the links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// The receiver grants rates.
    #[default]
    MaxMin,
    /// RI2N++: weights by the traffic that arrives.
    Traffic,
    /// RI2N+: weights by the number of peers on a link.
    LinkCount,
    /// RI2N: each link in turn.
    RoundRobin,
}

impl Policy {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The configuration of one of this node's links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Name of the link in messages.
    pub name: String,
    /// Address of the interface.
    pub address: Mac,
    /// Line rate in bytes a second, preamble and gap included.
    pub rate: f64,
    /// Largest payload after the Ethernet header, in bytes.
    pub mtu: u16,
}

impl LinkConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let name = || self.name.clone();
        if !(self.rate.is_finite() && self.rate >= 1.0) {
            return Err(ConfigError::Rate(name()));
        }
        if self.mtu < 576 {
            return Err(ConfigError::Mtu {
                name: name(),
                mtu: self.mtu,
            });
        }
        Ok(())
    }
}

/// Bounds on the memory of a trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of known peers.
    pub peers: usize,
    /// The most bytes that wait for one peer.
    pub queue_bytes: usize,
    /// The most frames of one peer that are held until earlier ones arrive.
    pub held_frames: usize,
    /// The most bytes held for all peers together.
    pub held_bytes: usize,
    /// The most frames that are stored for one link to one peer, to be sent again.
    pub ring_frames: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            peers: 16_384,
            queue_bytes: 4 << 20,
            held_frames: 4096,
            held_bytes: 64 << 20,
            ring_frames: 4096,
        }
    }
}

/// The configuration of a trunk.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address of the virtual interface.
    pub node: Mac,
    /// This node's links.
    pub links: Vec<LinkConfig>,
    /// How frames are distributed over the links.
    pub policy: Policy,
    /// Whether lost frames are sent again.
    pub repair: bool,
    /// Whether frames are delivered in the order in which they were sent. Without it the receiver
    /// delivers each frame as it arrives, as Linux's bonding does.
    pub order: bool,
    /// Whether only the counts of arrived frames show that a link has failed (policy
    /// `round-robin`), as in RI2N. Otherwise missing heartbeats do.
    pub counts_only: bool,
    /// Span over which the published policies count, `HBSPAN` of the paper.
    pub span: Nanos,
    /// The key that all nodes share. It authenticates control messages, and the handshakes that
    /// make the keys of data frames. Without it nothing is authenticated or encrypted.
    pub key: Option<Vec<u8>>,
    /// A random number, different at each start; 0 counts as 1.
    pub session: u32,
    /// Secret random bytes, different at each start, from which the handshakes draw their keys.
    pub seed: [u8; 32],
    /// Bounds on memory.
    pub limits: Limits,
}

/// Why a trunk cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no link, or more than [`MAX_LINKS`].
    #[error("a trunk has 1 to {MAX_LINKS} links, not {0}")]
    Links(usize),
    /// A link's rate is not positive.
    #[error("link {0}: its rate must be positive")]
    Rate(String),
    /// A link's MTU is too small.
    #[error("link {name}: its MTU is {mtu}; at least 576 is needed")]
    Mtu {
        /// Name of the link.
        name: String,
        /// Its MTU.
        mtu: u16,
    },
}

/// A frame to send on a link: the Ethernet header, then `header`, then `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Number of the link among this node's links.
    pub link: usize,
    /// Destination address.
    pub destination: Mac,
    /// The trunk's header, which follows the Ethernet header.
    pub header: [u8; SHIM_BYTES],
    /// The bytes after that header.
    pub body: Bytes,
}

/// A frame for the virtual interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deliver {
    /// The Ethernet header.
    pub header: [u8; HEADER_BYTES],
    /// The bytes after the Ethernet header.
    pub body: Bytes,
}

#[derive(Debug)]
struct Link {
    config: LinkConfig,
    carrier: bool,
    /// The learned rate towards this node.
    capacity: Capacity,
    /// End of the measurement of empty paths over this link, during one.
    renewing: Option<Nanos>,
    span_total: u32,
}

/// The trunk of one node. The documentation of the crate explains how to drive it.
pub struct Trunk {
    config: Config,
    sealer: Sealer,
    /// The secret of the handshakes, if there is a key.
    secret: Option<[u8; 32]>,
    entropy: Entropy,
    /// When each kind of misfit may be reported again.
    misfits: [Nanos; MISFITS],
    counter: u32,
    links: Vec<Link>,
    paces: Vec<Pace>,
    /// The peers. A slot is reused after its peer is gone.
    peers: Vec<Option<Peer>>,
    by_node: BTreeMap<Mac, usize>,
    /// The peers that have an address on a link. It is one peer unless two hosts conflict.
    by_address: BTreeMap<(usize, Mac), Vec<usize>>,
    /// Recent conflicts, and when each was last seen.
    conflicts: Vec<(Conflict, Nanos)>,
    out: VecDeque<Transmit>,
    deliveries: VecDeque<Deliver>,
    events: VecDeque<Event>,
    counters: Counters,
    /// Peers with frames to send, in the order of their turns.
    backlog: VecDeque<usize>,
    /// When a peer that waits may send.
    wake: Nanos,
    /// Peers whose links must be judged, because a heartbeat has come.
    heard: Vec<usize>,
    /// Whether a peer has an urgent message to send.
    urgent: bool,
    /// Whether the grants must be computed anew.
    regrant: bool,
    next_hello: Nanos,
    hellos: u32,
    next_tick: Nanos,
    last_tick: Nanos,
    /// Time between heartbeats to peers with traffic.
    fast: Nanos,
    span: u32,
    next_span: Nanos,
    held_bytes: usize,
}

/// The largest number of events not yet polled; the oldest are dropped first.
const EVENTS: usize = 1024;

impl Trunk {
    /// Creates an idle trunk whose time starts at `now`.
    ///
    /// # Errors
    /// Returns what is wrong with the configuration.
    pub fn new(mut config: Config, now: Nanos) -> Result<Trunk, ConfigError> {
        if !(1..=MAX_LINKS).contains(&config.links.len()) {
            return Err(ConfigError::Links(config.links.len()));
        }
        config.links.iter().try_for_each(LinkConfig::check)?;
        config.session = config.session.max(1);
        config.span = config.span.max(FAST);
        let link = |config: &LinkConfig| Link {
            capacity: Capacity::new(config.rate, SURE),
            config: config.clone(),
            carrier: true,
            renewing: None,
            span_total: 0,
        };
        Ok(Trunk {
            sealer: Sealer::new(config.key.as_deref()),
            secret: config.key.as_deref().and_then(shared_secret),
            entropy: Entropy::new(&core::mem::take(&mut config.seed)),
            misfits: [0; MISFITS],
            counter: 0,
            links: config.links.iter().map(link).collect(),
            paces: config
                .links
                .iter()
                .map(|link| Pace::new(link.rate))
                .collect(),
            peers: Vec::new(),
            by_node: BTreeMap::new(),
            by_address: BTreeMap::new(),
            conflicts: Vec::new(),
            out: VecDeque::new(),
            deliveries: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            backlog: VecDeque::new(),
            wake: Nanos::MAX,
            heard: Vec::new(),
            urgent: false,
            regrant: false,
            next_hello: now,
            hellos: 0,
            next_tick: now + SLOW,
            last_tick: now,
            fast: FAST,
            span: 1,
            next_span: now + config.span,
            held_bytes: 0,
            config,
        })
    }

    /// Largest payload of a frame of the virtual interface: the smallest known MTU of a link, less
    /// the trunk's header, and no more than such an interface can have.
    pub fn mtu(&self) -> u16 {
        let smallest = self.narrowest().map_or(1500, |(mtu, ..)| mtu);
        (smallest - self.overhead() as u16).min(LONGEST)
    }

    /// The end of a link with the smallest known MTU: this MTU, the link, and the peer whose end it
    /// is; none if it is the end of this node.
    pub fn narrowest(&self) -> Option<(u16, usize, Option<Mac>)> {
        let own = self.links.iter().enumerate();
        let own = own.map(|(index, link)| (link.config.mtu, index, None));
        let paths = self.peers.iter().flatten().flat_map(|peer| {
            let usable = peer.usable();
            usable.map(|(index, path)| (path.traits.mtu, index, Some(peer.node)))
        });
        let theirs = paths.filter(|(mtu, ..)| *mtu >= 576);
        own.chain(theirs).min_by_key(|(mtu, ..)| *mtu)
    }

    /// Bytes that the trunk adds to a frame.
    fn overhead(&self) -> usize {
        SHIM_BYTES + self.secret.map_or(0, |_| SEAL_BYTES)
    }

    /// Handles a link that gained or lost its carrier.
    pub fn handle_carrier(&mut self, now: Nanos, link: usize, carrier: bool) {
        let Some(state) = self.links.get_mut(link) else {
            return;
        };
        if core::mem::replace(&mut state.carrier, carrier) == carrier {
            return;
        }
        if carrier {
            self.next_hello = now;
            return;
        }
        for index in 0..self.peers.len() {
            self.take_out(now, index, link, crate::Reason::Carrier);
        }
    }

    /// Handles a link whose interface was made anew, or has another address, rate or MTU than
    /// before.
    ///
    /// # Errors
    /// Returns why the link cannot be used so. It stays as it was.
    pub fn handle_link(&mut self, link: usize, config: LinkConfig) -> Result<(), ConfigError> {
        config.check()?;
        let Some(state) = self.links.get_mut(link) else {
            return Ok(());
        };
        let rate = config.rate;
        let before = core::mem::replace(&mut state.config, config).rate;
        if rate != before {
            state.capacity = Capacity::new(rate, SURE);
            let blocked = self.paces[link].blocked;
            self.paces[link] = Pace::new(rate);
            self.paces[link].blocked = blocked;
            let peers = self.peers.iter_mut().flatten();
            for path in peers.filter_map(|peer| peer.paths[link].as_mut()) {
                path.capacity = Capacity::new(rate, SURE_ALONE);
            }
            self.regrant = true;
        }
        Ok(())
    }

    /// Handles a socket that accepts no more frames, or accepts some again.
    pub fn handle_blocked(&mut self, link: usize, blocked: bool) {
        if let Some(pace) = self.paces.get_mut(link) {
            pace.blocked = blocked;
        }
    }

    /// Says goodbye to every peer. Call [`Trunk::poll_transmit`] afterwards until it returns none,
    /// and stop.
    pub fn close(&mut self) {
        for index in 0..self.peers.len() {
            self.send_goodbye(index);
        }
    }

    /// Returns the next frame for the virtual interface.
    pub fn poll_deliver(&mut self) -> Option<Deliver> {
        self.deliveries.pop_front()
    }

    /// Returns the next event for the log.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    fn ask(&mut self, index: usize, urgency: Urgency) {
        if let Some(peer) = &mut self.peers[index] {
            peer.ask(urgency);
            self.urgent = true;
        }
    }

    /// Returns the status for an operator.
    pub fn status(&self) -> Status {
        let link = |link: &Link| LinkStatus {
            name: link.config.name.clone(),
            carrier: link.carrier,
            line_rate: link.config.rate,
            capacity: link.capacity.rate(),
        };
        Status {
            node: self.config.node,
            policy: self.config.policy.name(),
            mtu: self.mtu(),
            links: self.links.iter().map(link).collect(),
            peers: self
                .peers
                .iter()
                .flatten()
                .map(|peer| self.peer_status(peer))
                .collect(),
            conflicts: self
                .conflicts
                .iter()
                .map(|(conflict, _)| *conflict)
                .collect(),
            counters: self.counters,
        }
    }

    fn peer_status(&self, peer: &Peer) -> PeerStatus {
        let max_min = self.config.policy == Policy::MaxMin;
        let links = peer
            .paths()
            .map(|(link, path)| PathStatus {
                link,
                address: path.address,
                state: match (path.monitor.state.name(), path.usable) {
                    ("up", false) => "joining",
                    (name, _) => name,
                },
                capacity: path.capacity.rate().min(self.links[link].capacity.rate()),
                rate: path.receiver.rate,
                sent_rate: path.sender.rate,
                grant: max_min.then_some(path.sender.grant),
                weight: (!max_min).then(|| peer.turns.weight(link)),
                sent: path.sender.frames,
                received: path.receiver.frames,
                lost: path.receiver.lost,
                resent: path.sender.resent,
                failures: path.monitor.failures,
            })
            .collect();
        PeerStatus {
            node: peer.node,
            queued_bytes: peer.queue.bytes(),
            queue_drops: peer.queue.dropped,
            queue_marks: peer.queue.marked,
            held_frames: peer.resequencer.held_frames(),
            given_up: peer.resequencer.skipped,
            refused: peer.resequencer.refused,
            resynchronised: peer.resequencer.resynchronised,
            encrypted: peer.keys.is_ready(),
            round_trip: peer.round_trip,
            links,
        }
    }
}

/// The largest MTU that the system gives a virtual interface: the longest IP packet, less an
/// Ethernet header.
const LONGEST: u16 = u16::MAX - HEADER_BYTES as u16;

/// A peer that was not heard on any link for this long is gone.
const PEER_LOST: Nanos = 5 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    /// A trunk with these links.
    pub(super) fn of_links<const LINKS: usize>(links: [LinkConfig; LINKS]) -> Trunk {
        let config = Config {
            node: Mac([2, 0, 0, 0, 1, 0xff]),
            links: links.into(),
            policy: Policy::MaxMin,
            repair: true,
            order: true,
            counts_only: false,
            span: SECOND,
            key: None,
            session: 1,
            seed: [0; 32],
            limits: Limits::default(),
        };
        Trunk::new(config, 0).unwrap()
    }

    /// A link with this number in its address.
    pub(super) fn link(number: u8, mtu: u16) -> LinkConfig {
        LinkConfig {
            name: String::from("link"),
            address: Mac([2, 0, 0, 0, 1, number]),
            rate: 1e7,
            mtu,
        }
    }

    #[test]
    fn the_mtu_is_one_that_the_virtual_interface_can_have() {
        let mtu = |mtu| of_links([link(0, mtu)]).mtu();
        assert_eq!(mtu(1500), 1488);
        assert_eq!(mtu(65_535), 65_521);
    }
}

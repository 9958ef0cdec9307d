//! The state of one peer and of the links shared with it: its queue, its paths, and the frames that
//! wait for repair. `trunk` decides when something is sent. The number of gaps that wait to be
//! reported is bounded; beyond it, the oldest gaps are left to the upper layers.

use crate::address::Packed;
use crate::capacity::{Capacity, SURE_ALONE};
use crate::control::{Heartbeat, SpanReport, Traits};
use crate::distributor::{Limited, Sender};
use crate::grants::PerLink;
use crate::keys::Keys;
use crate::monitor::{Monitor, SLOW};
use crate::queue::Queue;
use crate::receiver::{Gap, Receiver};
use crate::resequencer::Resequencer;
use crate::ring::Numbered;
use crate::weights::{Traffic, Turns};
use crate::{MAX_LINKS, MILLISECOND, Mac, Nanos, SECOND, extend};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// How long a peer's heartbeats stay fast after traffic.
const ACTIVE: Nanos = SECOND;
/// How long a frame waits for a repair, in addition to a round trip.
const HOLD: Nanos = 5 * MILLISECOND;
/// The longest round trip that counts for this wait.
const HOLD_LONGEST: Nanos = 10 * MILLISECOND;
/// After a link is taken out, how long its frames are awaited on the other links.
pub(crate) const RESCUE: Nanos = 40 * MILLISECOND;
/// The largest number of ranges that wait to be requested again.
const GAPS: usize = 256;
/// The largest number of sessions before the present one that are remembered.
const SESSIONS: usize = 8;

/// A path to a peer: from one of this node's links to one of the peer's.
#[derive(Debug)]
pub(crate) struct Path {
    /// Number of the link among the peer's.
    pub(crate) peer_link: u8,
    /// Address of the peer's end.
    pub(crate) address: Mac,
    pub(crate) traits: Traits,
    pub(crate) monitor: Monitor,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// Whether both ends hear each other.
    pub(crate) usable: bool,
    /// Counter of the newest control message on it, 0 before the first.
    counter: u64,
    /// When the peer last said hello from this address, which it may do unanswered. 0 before.
    pub(crate) greeted: Nanos,
    /// When a hello with another session than the peer's came from this address. It is of a peer
    /// that has restarted, or of another node that has the peer's address.
    pub(crate) other_session: Option<Nanos>,
    /// The learned capacity of the path from the peer.
    pub(crate) capacity: Capacity,
    /// The newest counts of a published policy.
    pub(crate) span: SpanReport,
}

impl Path {
    pub(crate) fn new(peer_link: u8, address: Mac, line: f64) -> Path {
        Path {
            peer_link,
            address,
            traits: Traits::default(),
            monitor: Monitor::new(),
            sender: Sender::default(),
            receiver: Receiver::default(),
            usable: false,
            counter: 0,
            greeted: 0,
            other_session: None,
            capacity: Capacity::new(line, SURE_ALONE),
            span: SpanReport::default(),
        }
    }

    /// The same path to a node that has restarted.
    fn restarted(&self) -> Path {
        Path {
            capacity: self.capacity,
            ..Path::new(self.peer_link, self.address, 0.0)
        }
    }

    /// How well two ends match (smaller is better). Links usually have the same numbers at all
    /// nodes.
    pub(crate) fn distance(own: usize, peers: u8) -> (usize, usize) {
        (own.abs_diff(usize::from(peers)), own + usize::from(peers))
    }
}

/// A node at the other end.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) node: Mac,
    pub(crate) session: u32,
    /// The sessions before this one, the latest first, each with the counter of its newest control
    /// message, or 0 if it had none.
    former: VecDeque<(u32, u64)>,
    /// Whether it has answered this node's session.
    pub(crate) established: bool,
    /// A link was taken out recently. Until this time, its frames may come again over other links.
    pub(crate) rescue_until: Nanos,
    /// A session that claims to be the peer's new one. This node answers it, so that the peer can
    /// prove the claim.
    pub(crate) candidate: Option<u32>,
    /// Counter of the newest control message on any link, 0 before the first. Its lower half is on
    /// the wire.
    counter: u64,
    /// The paths, indexed by this node's links.
    pub(crate) paths: [Option<Path>; MAX_LINKS],
    pub(crate) queue: Queue,
    pub(crate) resend: VecDeque<Numbered>,
    pub(crate) next: u64,
    /// The keys of data frames, if the trunk has a key.
    pub(crate) keys: Keys,
    /// The next frame number on each link. A path that comes back goes on with it, because no
    /// number may be used twice with one key.
    pub(crate) link_numbers: [u64; MAX_LINKS],
    pub(crate) resequencer: Resequencer,
    pub(crate) limited: Limited,
    /// Whether the peer reports that it waits for this node's grants.
    pub(crate) peer_limited: bool,
    /// The rates that this node grants to the peer.
    pub(crate) granted: PerLink,
    /// The peer's clock when it made the current grants.
    pub(crate) grants_made: Nanos,
    pub(crate) turns: Turns,
    /// Gaps to report, with the own link on which each was found.
    pub(crate) gaps: VecDeque<(usize, Gap)>,
    /// Whether a heartbeat is due at once, on one link or on all.
    pub(crate) urgent: Urgency,
    /// When it was last heard on any link; at first, when it became known.
    pub(crate) heard: Nanos,
    /// Until when heartbeats are fast, because of traffic in either direction.
    pub(crate) active_until: Nanos,
    /// The peer's clock when it began to send fast heartbeats.
    pub(crate) fast_since: Nanos,
    /// When the next heartbeats are due: to an active peer, and to any.
    pub(crate) next_fast: Nanos,
    pub(crate) next_slow: Nanos,
    /// Smoothed round-trip time, 0 if unknown.
    pub(crate) round_trip: Nanos,
    /// The newest heartbeat on each link: its stamp and when it arrived.
    pub(crate) echo: [(Nanos, Nanos); MAX_LINKS],
    /// Refused frames that an event has reported, and when the next such event may be made.
    pub(crate) refused_reported: u64,
    pub(crate) next_report: Nanos,
}

/// How soon a heartbeat is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    None,
    Once,
    EveryLink,
}

impl Peer {
    pub(crate) fn new(node: Mac, session: u32, queue_bytes: usize, held_frames: usize) -> Peer {
        Peer {
            node,
            session,
            former: VecDeque::new(),
            established: false,
            rescue_until: 0,
            candidate: None,
            counter: 0,
            paths: Default::default(),
            queue: Queue::new(queue_bytes),
            resend: VecDeque::new(),
            next: 0,
            keys: Keys::default(),
            link_numbers: [0; MAX_LINKS],
            resequencer: Resequencer::new(held_frames),
            limited: Limited::default(),
            peer_limited: false,
            granted: [0.0; MAX_LINKS],
            grants_made: 0,
            turns: Turns::equal(),
            gaps: VecDeque::new(),
            urgent: Urgency::EveryLink,
            heard: 0,
            active_until: 0,
            fast_since: 0,
            next_fast: 0,
            next_slow: 0,
            round_trip: 0,
            echo: [(0, 0); MAX_LINKS],
            refused_reported: 0,
            next_report: 0,
        }
    }

    /// Resets the state after the peer restarted. Frames that wait for the peer are kept.
    pub(crate) fn restart(&mut self, session: u32) {
        let links: Vec<(usize, Path)> = self
            .paths()
            .map(|(link, path)| (link, path.restarted()))
            .collect();
        let limit = self.queue.bytes();
        let queue = core::mem::replace(&mut self.queue, Queue::new(limit));
        let resequencer = core::mem::replace(&mut self.resequencer, Resequencer::new(0));
        let (next, active_until) = (self.next, self.active_until);
        let reported = (self.refused_reported, self.next_report);
        let mut former = core::mem::take(&mut self.former);
        former.retain(|(other, _)| ![self.session, session].contains(other));
        former.truncate(SESSIONS - 1);
        former.push_front((self.session, self.counter));
        *self = Peer::new(self.node, session, 0, 0);
        self.queue = queue;
        self.resequencer = resequencer;
        // The frames held belong to the old session.
        self.resequencer.restart(0);
        self.next = next;
        self.active_until = active_until;
        self.former = former;
        (self.refused_reported, self.next_report) = reported;
        for (link, path) in links {
            self.paths[link] = Some(path);
        }
    }

    /// The counter of the newest control message of a session before the present one, 0 before the
    /// first. None if the peer is not known to have had this session.
    pub(crate) fn former(&self, session: u32) -> Option<u64> {
        let known = self.former.iter().find(|(former, _)| *former == session);
        known.map(|(_, counter)| *counter)
    }

    /// Whether a control message with this counter is newer than all earlier ones on the link. All
    /// links have one counter, which may come round while a link is silent.
    pub(crate) fn is_fresh(&mut self, link: usize, counter: u32) -> bool {
        let Some(path) = &mut self.paths[link] else {
            return false;
        };
        let counter = match self.counter {
            0 => (1 << 32) + u64::from(counter),
            newest => extend(counter, newest),
        };
        self.counter = self.counter.max(counter);
        let fresh = counter > path.counter;
        path.counter = path.counter.max(counter);
        fresh
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.paths
            .iter()
            .enumerate()
            .filter_map(|(link, path)| Some((link, path.as_ref()?)))
    }

    pub(crate) fn paths_mut(&mut self) -> impl Iterator<Item = (usize, &mut Path)> {
        self.paths
            .iter_mut()
            .enumerate()
            .filter_map(|(link, path)| Some((link, path.as_mut()?)))
    }

    pub(crate) fn usable(&self) -> impl Iterator<Item = (usize, &Path)> {
        self.paths().filter(|(_, path)| path.usable)
    }

    /// Records traffic, which makes heartbeats fast.
    pub(crate) fn touch(&mut self, now: Nanos) {
        self.active_until = now + ACTIVE;
    }

    /// Whether heartbeats are fast: during traffic, and when a link is about to come up.
    pub(crate) fn is_active(&self, now: Nanos) -> bool {
        let settling = |path: &Path| {
            !path.usable && path.monitor.heard > 0 && now < path.monitor.heard + 2 * SLOW
        };
        now < self.active_until || self.paths().any(|(_, path)| settling(path))
    }

    /// Time between heartbeats to this peer. `fast` is the least to any peer with traffic. A peer
    /// with many peers sends fewer, and gets hardly more. Its interval is shortened a little, so
    /// that two nodes do not keep each other slow.
    pub(crate) fn interval(&self, now: Nanos, fast: Nanos) -> Nanos {
        if !self.is_active(now) {
            return SLOW;
        }
        let intervals = self.paths().map(|(_, path)| path.monitor.interval);
        let theirs = intervals.filter(|interval| *interval < SLOW).max();
        fast.max(theirs.unwrap_or(0) / 4 * 3)
    }

    pub(crate) fn ask(&mut self, urgency: Urgency) {
        self.urgent = self.urgent.max(urgency);
    }

    /// Records a gap to report. If too many wait, the oldest are dropped and the upper layers
    /// repair them.
    pub(crate) fn note_gap(&mut self, now: Nanos, link: usize, gap: Gap) {
        if let Some(path) = &mut self.paths[link] {
            path.receiver.open_gap(gap, now);
        }
        if self.gaps.len() == GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back((link, gap));
    }

    /// The link that is heard best, other than `except` if there is a choice.
    pub(crate) fn best_link(&self, except: Option<usize>) -> Option<usize> {
        let rank = |(link, path): &(usize, &Path)| {
            (
                path.usable,
                Some(*link) != except,
                path.monitor.heard,
                usize::MAX - link,
            )
        };
        self.paths().max_by_key(rank).map(|(link, _)| link)
    }

    /// Takes the peer's next number from a heartbeat, which answers one of the time `echo`. Returns
    /// true if the order continues at this number.
    pub(crate) fn announce(&mut self, number: u64, echo: Nanos) -> bool {
        let resynchronised = self.resequencer.announce(number, echo);
        if resynchronised {
            for (_, path) in self.paths_mut() {
                path.receiver.passed = path.receiver.passed.min(number);
            }
        }
        resynchronised
    }

    /// Tells the resequencer which numbers every link has passed, if that is known.
    pub(crate) fn pass(&mut self, now: Nanos) {
        if now < self.rescue_until {
            return;
        }
        let up = self.paths().filter(|(_, path)| path.monitor.is_up());
        if let Some(passed) = up.map(|(_, path)| path.receiver.passed).min() {
            self.resequencer.pass(passed, now);
        }
    }

    /// Whether a link in use has brought less than the others. Its lost frames may come again after
    /// it is taken out.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        if now < self.rescue_until {
            return true;
        }
        let up = || {
            self.paths()
                .map(|(_, path)| &path.monitor)
                .filter(|monitor| monitor.is_up())
        };
        let best = up().max_by_key(|monitor| monitor.heard);
        best.is_some_and(|best| up().any(|monitor| monitor.is_quiet(best)))
    }

    /// Queues the unacknowledged frames of a failed link for the other links, in order.
    pub(crate) fn rescue(&mut self, link: usize) {
        if let Some(path) = &mut self.paths[link] {
            let frames = path.sender.ring.drain();
            path.sender.resent += frames.len() as u64;
            self.resend.extend(frames);
        }
    }

    /// Measures the round trip from this node's stamp that a heartbeat returns.
    pub(crate) fn measure_round_trip(&mut self, now: Nanos, heartbeat: &Heartbeat) {
        if heartbeat.echo_stamp == 0 {
            return;
        }
        let away = now.saturating_sub(heartbeat.echo_stamp);
        let sample = away.saturating_sub(u64::from(heartbeat.echo_held));
        self.round_trip = match self.round_trip {
            0 => sample,
            old => old - old / 8 + sample / 8,
        };
    }

    /// How long to wait for a repair: a round trip and the time to read the frames.
    pub(crate) fn hold(&self) -> Nanos {
        HOLD + self.round_trip.min(HOLD_LONGEST)
    }

    /// Computes the weights of RI2N+ from the counts that the peer reported.
    pub(crate) fn weigh_by_links(&mut self) {
        let mut counts = [0; MAX_LINKS];
        for (link, path) in self.usable() {
            counts[link] = path.span.peers.max(1);
        }
        self.turns.by_link_count(&counts);
    }

    /// Computes the weights of RI2N++ from the counts that the peer reported and the frames sent
    /// since.
    pub(crate) fn weigh_by_traffic(&mut self) {
        let mut counts = [None; MAX_LINKS];
        for (link, path) in self.paths_mut().filter(|(_, path)| path.usable) {
            counts[link] = Some(Traffic {
                sent: path.sender.span_frames,
                arrive: path.span.arrive,
                path_total: path.span.path_total,
                arrive_total: path.span.arrive_total,
            });
            path.sender.span_frames = 0;
        }
        self.turns.by_traffic(&counts);
    }

    /// Returns the next frame with its number; frames to resend come first. The flag is true if the
    /// frame was sent before.
    pub(crate) fn next_frame(&mut self, now: Nanos) -> Option<(Numbered, bool)> {
        if let Some(frame) = self.resend.pop_front() {
            return Some((frame, true));
        }
        let frame: Packed = self.queue.pop(now)?;
        let number = self.next;
        self.next += 1;
        Some((Numbered { number, frame }, false))
    }

    pub(crate) fn has_frames(&self) -> bool {
        !self.resend.is_empty() || !self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(links: u8) -> Peer {
        let mut peer = Peer::new(Mac([2; 6]), 1, 1000, 10);
        for link in 0..links {
            peer.paths[usize::from(link)] = Some(Path::new(link, Mac([4, 0, 0, 0, 0, link]), 1e6));
        }
        peer
    }

    #[test]
    fn a_message_is_fresh_once_on_each_link() {
        for first in [0, 1, u32::MAX / 2 + 5, u32::MAX] {
            let mut peer = peer(2);
            for step in 0..3 {
                let counter = first.wrapping_add(step);
                assert!(peer.is_fresh(0, counter), "{first} {step}");
                assert!(!peer.is_fresh(0, counter));
                assert!(!peer.is_fresh(0, first.wrapping_sub(1)));
                assert!(peer.is_fresh(1, counter));
            }
            assert!(!peer.is_fresh(2, first));
        }
    }

    #[test]
    fn the_latest_sessions_are_remembered() {
        let mut peer = peer(1);
        for session in 2..20 {
            assert!(peer.is_fresh(0, 100 + session));
            peer.restart(session);
        }
        // The peer is in session 19.
        let known: Vec<u32> = (0..30).filter(|one| peer.former(*one).is_some()).collect();
        assert_eq!(known, [11, 12, 13, 14, 15, 16, 17, 18]);
        assert_eq!(peer.former(18).map(|counter| counter as u32), Some(119));
        // It goes back to session 18, without a message in session 19.
        peer.restart(18);
        assert_eq!((peer.former(18), peer.former(19)), (None, Some(0)));
    }

    #[test]
    fn a_link_comes_back_however_long_it_was_silent() {
        for quarters in 1..10 {
            let mut peer = peer(2);
            assert!(peer.is_fresh(0, 7) && peer.is_fresh(1, 8));
            let mut counter = 8_u32;
            for _ in 0..quarters {
                counter = counter.wrapping_add(1 << 30);
                assert!(peer.is_fresh(0, counter));
            }
            assert!(peer.is_fresh(1, counter.wrapping_add(1)), "{quarters}");
        }
    }
}

//! Finds addresses that two nodes use: of a link, or of a virtual interface. It reports them and
//! changes nothing else, because each frame still shows by its session which node sent it. The
//! number of conflicts kept is bounded.

use super::Trunk;
use crate::control::Sender;
use crate::event::{Conflict, ConflictKind, Event};
use crate::{Mac, Nanos, SECOND};

/// The most conflicts kept at once.
const CONFLICTS: usize = 16;
/// A conflict that is not seen again for this long is over.
const OVER: Nanos = 60 * SECOND;
/// Two hellos within this time can be of one other node.
const TOGETHER: Nanos = 10 * SECOND;
/// A node that has restarted can still be heard for this long with its old session, because frames
/// may overtake each other on a link.
const OVERTAKEN: Nanos = SECOND / 5;

impl Trunk {
    /// Whether a message came from a node that uses one of this node's own addresses, or from this
    /// node itself, over a loop in the network.
    pub(super) fn is_conflict(
        &mut self,
        now: Nanos,
        link: usize,
        source: Mac,
        sender: &Sender,
    ) -> bool {
        let own_node = sender.node == self.config.node;
        let own_link = source == self.links[link].config.address;
        let looped = own_node && sender.session == self.config.session;
        if own_node && !looped {
            self.note_conflict(now, link, sender.node, ConflictKind::OwnNode);
        }
        if own_link && !looped {
            self.note_conflict(now, link, source, ConflictKind::OwnLink);
        }
        own_node || own_link
    }

    /// Looks for another peer that has sent from the same address since this one last did. The
    /// other one may never get an answer, because all answers go to this one.
    pub(super) fn compare_owners(&mut self, now: Nanos, index: usize, link: usize, source: Mac) {
        let Some(owners) = self.by_address.get(&(link, source)) else {
            return;
        };
        if owners.len() < 2 {
            return;
        }
        let heard = |index: usize| {
            let path = self.peers[index].as_ref()?.paths[link].as_ref()?;
            let heard = path.monitor.stamp_heard.max(path.greeted);
            (heard > 0).then_some(heard)
        };
        let Some(last) = heard(index) else {
            return;
        };
        let mut others = owners.iter().filter(|other| **other != index);
        if others.any(|other| heard(*other).is_some_and(|at| at > last)) {
            self.note_conflict(now, link, source, ConflictKind::PeerLink);
        }
    }

    /// Handles a hello with the address of this peer and another session. If the peer goes on
    /// between two of them, another node has its address. That node may never get an answer,
    /// because all answers go to the peer.
    pub(super) fn compare_sessions(&mut self, now: Nanos, index: usize, link: usize) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let node = peer.node;
        let Some(path) = &mut peer.paths[link] else {
            return;
        };
        let before = path
            .other_session
            .filter(|at| now.saturating_sub(*at) < TOGETHER);
        let goes_on = before.is_some_and(|at| path.monitor.stamp_heard > at + OVERTAKEN);
        match goes_on {
            true => self.note_conflict(now, link, node, ConflictKind::PeerNode),
            false => path.other_session = before.or(Some(now)),
        }
    }

    /// Records a conflict, and reports it if it is new.
    pub(super) fn note_conflict(
        &mut self,
        now: Nanos,
        link: usize,
        address: Mac,
        kind: ConflictKind,
    ) {
        let found = Conflict {
            link,
            address,
            kind,
        };
        let mut known = self.conflicts.iter_mut();
        if let Some((_, last)) = known.find(|(conflict, _)| *conflict == found) {
            *last = now;
        } else if self.conflicts.len() < CONFLICTS {
            self.conflicts.push((found, now));
            self.event(Event::AddressConflict(found));
        }
    }

    /// Whether two nodes have this address now.
    pub(super) fn is_shared(&self, node: Mac) -> bool {
        let mut known = self.conflicts.iter().map(|(conflict, _)| conflict);
        known.any(|conflict| conflict.kind == ConflictKind::PeerNode && conflict.address == node)
    }

    /// Forgets the conflicts that are over.
    pub(super) fn end_conflicts(&mut self, now: Nanos) {
        self.conflicts
            .retain(|(_, last)| now.saturating_sub(*last) < OVER);
    }
}

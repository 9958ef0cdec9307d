//! Manages peers: how they are discovered, prove that they are present, and leave. `peer` has the
//! state of one. A peer carries traffic only after it has answered this node's session. While a
//! peer is known, replayed messages of its former sessions change nothing. A removed peer is
//! forgotten with its sessions: a replayed answer to this node's session brings it back, until it
//! has been silent for long enough. The number of peers is bounded.

use super::{PEER_LOST, Trunk};
use crate::control::{Sender, Traits};
use crate::event::ConflictKind;
use crate::peer::{Path, Peer, RESCUE, Urgency};
use crate::{Event, Mac, Nanos, Reason, extend};
use alloc::vec::Vec;

/// The most peers that can have the same address on a link. More than one is a conflict.
const SHARERS: usize = 4;

impl Trunk {
    /// Handles a hello of a node.
    pub(super) fn hear_hello(
        &mut self,
        now: Nanos,
        link: usize,
        source: Mac,
        sender: &Sender,
        traits: Traits,
    ) {
        let index = match self.by_node.get(&sender.node) {
            Some(&index) => index,
            None => match self.add_peer(now, sender) {
                Some(index) => index,
                None => return,
            },
        };
        let new = self.add_path(index, link, source, sender.link, traits);
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if let Some(path) = &mut peer.paths[link]
            && path.address == source
        {
            path.greeted = now;
        }
        let is_other = peer.session != sender.session;
        if is_other {
            peer.candidate = Some(sender.session);
        }
        if new || !peer.established || is_other {
            self.ask(index, Urgency::EveryLink);
            self.next_tick = self.next_tick.min(now + self.fast);
        }
        if is_other {
            self.compare_sessions(now, index, link);
        }
    }

    fn add_peer(&mut self, now: Nanos, sender: &Sender) -> Option<usize> {
        if self.by_node.len() >= self.config.limits.peers {
            self.counters.peers_refused += 1;
            return None;
        }
        let limits = &self.config.limits;
        let mut peer = Peer::new(
            sender.node,
            sender.session,
            limits.queue_bytes,
            limits.held_frames,
        );
        peer.touch(now);
        peer.heard = now;
        let free = self.peers.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.peers[index] = Some(peer);
        self.by_node.insert(sender.node, index);
        Some(index)
    }

    /// Records that an own link reaches a link of the peer, if that is the better match. Returns
    /// true if the path is new.
    pub(super) fn add_path(
        &mut self,
        index: usize,
        link: usize,
        source: Mac,
        peer_link: u8,
        traits: Traits,
    ) -> bool {
        let Some(peer) = &mut self.peers[index] else {
            return false;
        };
        let known = self.by_address.get(&(link, source));
        if known.is_some_and(|peers| peers.len() >= SHARERS && !peers.contains(&index)) {
            self.counters.peers_refused += 1;
            return false;
        }
        let distance = Path::distance(link, peer_link);
        if let Some(path) = &peer.paths[link] {
            if path.address == source && path.peer_link == peer_link {
                return false;
            }
            if path.monitor.is_up() && Path::distance(link, path.peer_link) <= distance {
                return false;
            }
        }
        let taken = peer
            .paths()
            .find(|(other, path)| *other != link && path.peer_link == peer_link)
            .map(|(other, _)| other);
        if taken.is_some_and(|other| Path::distance(other, peer_link) <= distance) {
            return false;
        }
        // A path is given up only for one that takes its place.
        let before = peer.paths[link].is_some().then_some(link);
        for given_up in before.into_iter().chain(taken) {
            self.remove_path(index, given_up);
        }
        let Some(peer) = &mut self.peers[index] else {
            return false;
        };
        let line = self.links[link].config.rate;
        let mut path = Path::new(peer_link, source, line);
        path.traits = traits;
        path.sender.next = peer.link_numbers[link];
        peer.paths[link] = Some(path);
        let peers = self.by_address.entry((link, source)).or_default();
        if !peers.contains(&index) {
            peers.push(index);
        }
        true
    }

    /// Records that a peer no longer has an address on a link.
    fn forget_address(&mut self, index: usize, link: usize, address: Mac) {
        let Some(peers) = self.by_address.get_mut(&(link, address)) else {
            return;
        };
        peers.retain(|other| *other != index);
        if peers.is_empty() {
            self.by_address.remove(&(link, address));
        }
    }

    fn remove_path(&mut self, index: usize, link: usize) {
        self.rescue(index, &[link]);
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        peer.granted[link] = 0.0;
        if let Some(path) = peer.paths[link].take() {
            peer.link_numbers[link] = path.sender.next;
            self.forget_address(index, link, path.address);
        }
        self.regrant = true;
    }

    /// Queues the unacknowledged frames of links that a peer has lost, for its other links.
    fn rescue(&mut self, index: usize, links: &[usize]) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let had_frames = peer.has_frames();
        links.iter().for_each(|link| peer.rescue(*link));
        if !had_frames && peer.has_frames() {
            self.backlog.push_back(index);
        }
    }

    /// Whether a control message belongs to the peer's current session. A message that answers this
    /// node's own session starts one.
    pub(super) fn admit(&mut self, now: Nanos, index: usize, link: usize, sender: &Sender) -> bool {
        let answers = sender.echo == self.config.session;
        let Some(peer) = &mut self.peers[index] else {
            return false;
        };
        if peer.node != sender.node {
            return false;
        }
        if !answers {
            // The peer does not know this node's session yet, or addresses another node.
            if peer.session != sender.session {
                peer.candidate = Some(sender.session);
                self.ask(index, Urgency::EveryLink);
            }
            return false;
        }
        if peer.session == sender.session {
            // The peer goes on, and takes only messages that answer its own session.
            peer.candidate = None;
            if !peer.established {
                peer.established = true;
                self.event(Event::PeerFound { peer: sender.node });
            }
            return true;
        }
        if let Some(newest) = peer.former(sender.session) {
            if newest > 0 && extend(sender.counter, newest) <= newest {
                // Somebody replays a message of that session.
                self.counters.unauthentic += 1;
                return false;
            }
            // A node never returns to an old session. So two nodes have this address.
            let kind = ConflictKind::PeerNode;
            self.note_conflict(now, link, sender.node, kind);
        }
        self.restart_peer(now, index, sender.session);
        true
    }

    fn restart_peer(&mut self, now: Nanos, index: usize, session: u32) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let node = peer.node;
        let was_established = peer.established;
        let up: Vec<usize> = peer.usable().map(|(link, _)| link).collect();
        self.held_bytes -= peer.resequencer.held_bytes().min(self.held_bytes);
        peer.restart(session);
        peer.established = true;
        peer.touch(now);
        peer.heard = now;
        self.ask(index, Urgency::EveryLink);
        self.regrant = true;
        // Two nodes with one address take turns hundreds of times a second.
        if self.is_shared(node) {
            return;
        }
        for link in up {
            self.event(Event::LinkDown {
                peer: node,
                link,
                reason: Reason::PeerLost,
            });
        }
        if was_established {
            self.event(Event::PeerLost {
                peer: node,
                goodbye: false,
            });
        }
        self.event(Event::PeerFound { peer: node });
    }

    pub(super) fn remove_peer(&mut self, index: usize, goodbye: bool) {
        let Some(peer) = self.peers[index].take() else {
            return;
        };
        self.held_bytes -= peer.resequencer.held_bytes().min(self.held_bytes);
        self.by_node.remove(&peer.node);
        for (link, path) in peer.paths() {
            self.forget_address(index, link, path.address);
            if path.usable {
                let reason = Reason::PeerLost;
                self.event(Event::LinkDown {
                    peer: peer.node,
                    link,
                    reason,
                });
            }
        }
        self.backlog.retain(|other| *other != index);
        if peer.established {
            self.event(Event::PeerLost {
                peer: peer.node,
                goodbye,
            });
        }
        self.regrant = true;
    }

    /// Takes a link to a peer out of use, and tells the peer at once.
    pub(super) fn take_out(&mut self, now: Nanos, index: usize, link: usize, reason: Reason) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let Some(path) = &mut peer.paths[link] else {
            return;
        };
        if path.monitor.fail() {
            peer.rescue_until = now + RESCUE;
            self.refresh(now, index, reason);
            self.ask(index, Urgency::EveryLink);
        }
    }

    /// Updates which links to a peer are usable.
    pub(super) fn refresh(&mut self, now: Nanos, index: usize, reason: Reason) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let node = peer.node;
        let mut changes = Vec::new();
        for (link, path) in peer.paths_mut() {
            let usable = path.monitor.is_up() && path.sender.heard;
            if core::mem::replace(&mut path.usable, usable) != usable {
                changes.push((link, usable));
            }
        }
        if changes.is_empty() {
            return;
        }
        let lost = changes.iter().filter(|(_, usable)| !usable);
        let lost: Vec<usize> = lost.map(|(link, _)| *link).collect();
        self.rescue(index, &lost);
        if let Some(peer) = &mut self.peers[index] {
            peer.pass(now);
            peer.turns = crate::weights::Turns::equal();
        }
        for (link, usable) in changes {
            self.event(match usable {
                true => Event::LinkUp { peer: node, link },
                false => Event::LinkDown {
                    peer: node,
                    link,
                    reason,
                },
            });
        }
        self.regrant = true;
        self.wake = now;
    }

    /// Takes out links that are silent although others are not, and removes peers that are silent
    /// on all links.
    pub(super) fn watch(&mut self, now: Nanos, index: usize) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        if now.saturating_sub(peer.heard) > PEER_LOST {
            self.remove_peer(index, false);
            return;
        }
        if self.config.counts_only {
            return;
        }
        let best = peer.paths().max_by_key(|(_, path)| path.monitor.stamp);
        let Some(best) = best.map(|(_, path)| path.monitor.clone()) else {
            return;
        };
        let since = peer.fast_since;
        let silent: Vec<usize> = peer
            .paths()
            .filter(|(_, path)| path.monitor.state != crate::monitor::State::Down)
            .filter(|(_, path)| path.monitor.is_silent(&best, since))
            .map(|(link, _)| link)
            .collect();
        for link in silent {
            self.take_out(now, index, link, Reason::Silent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trunk::tests::{link, of_links};

    /// If two switches are connected, a node hears each hello on both of its links.
    #[test]
    fn a_path_that_is_not_up_gives_way_only_to_another_one() {
        let mut trunk = of_links([link(0, 1500), link(1, 1500)]);
        for _ in 0..2 {
            for (link, peer_link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let sender = Sender {
                    node: Mac([2, 0, 0, 0, 2, 0xff]),
                    session: 7,
                    link: peer_link,
                    ..Sender::default()
                };
                let source = Mac([2, 0, 0, 0, 2, peer_link]);
                trunk.hear_hello(0, link, source, &sender, Traits::default());
            }
        }
        let peer = trunk.peers[0].as_ref().unwrap();
        let paths = peer.paths().map(|(link, path)| (link, path.peer_link));
        assert_eq!(paths.collect::<Vec<_>>(), [(0, 0), (1, 1)]);
        let known: Vec<_> = trunk.by_address.keys().map(|(link, _)| *link).collect();
        assert_eq!(known, [0, 1]);
    }
}

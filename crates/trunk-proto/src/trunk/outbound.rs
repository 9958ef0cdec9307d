//! Takes frames from the virtual interface, and sends them over the links. `distributor` chooses
//! the link. A frame gets its number when it is sent, so a frame that was dropped before leaves no
//! gap. A request for a missing frame goes over another link than the one that lost it, if there is
//! one.

use super::heartbeat::OUT;
use super::{Policy, Transmit, Trunk};
use crate::address::Packed;
use crate::control::{Message, NACK_RANGES, Nack};
use crate::distributor::{Pick, pick};
use crate::peer::{Peer, Urgency};
use crate::ring::Numbered;
use crate::{Kind, MICROSECOND, Mac, Nanos, Shim, wire_bytes};
use alloc::vec::Vec;
use bytes::Bytes;

/// The shortest sleep of a sender. It catches up with its saved credit.
const GRAIN: Nanos = 300 * MICROSECOND;

impl Trunk {
    /// Handles a frame of the virtual interface, with its Ethernet header.
    pub fn handle_outgoing(&mut self, now: Nanos, frame: &Bytes) {
        let Some(&destination) = frame.first_chunk() else {
            return;
        };
        let destination = Mac(destination);
        if let Some(&index) = self.by_node.get(&destination) {
            self.enqueue(now, index, frame);
        } else if destination.is_group() || !self.is_own(frame) {
            // Group frames go to every peer. So do frames for unknown stations, which may be behind
            // a bridge.
            (0..self.peers.len()).for_each(|index| self.enqueue(now, index, frame));
        } else {
            self.counters.no_peer += 1;
        }
    }

    fn is_own(&self, frame: &Bytes) -> bool {
        frame.get(6..12) == Some(&self.config.node.0)
    }

    fn enqueue(&mut self, now: Nanos, index: usize, frame: &Bytes) {
        let own = self.config.node;
        let mtu = usize::from(self.mtu_to(index)) - self.overhead();
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        let Some(packed) = Packed::pack(frame, own, peer.node) else {
            return;
        };
        if packed.body.len() > mtu {
            self.counters.too_long += 1;
            return;
        }
        if !peer.is_active(now) {
            // This is the first frame after a pause: watch the links closely from now on.
            peer.ask(Urgency::EveryLink);
            self.urgent = true;
            self.next_tick = self.next_tick.min(now + self.fast);
        }
        peer.touch(now);
        if !peer.has_frames() {
            self.backlog.push_back(index);
        }
        peer.queue.push(now, packed);
    }

    fn mtu_to(&self, index: usize) -> u16 {
        let own = self.links.iter().map(|link| link.config.mtu);
        let paths = self.peers[index].iter().flat_map(Peer::usable);
        let theirs = paths
            .map(|(_, path)| path.traits.mtu)
            .filter(|mtu| *mtu >= 576);
        own.chain(theirs).min().unwrap_or(576)
    }

    /// Returns the next frame to send on a link.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Transmit> {
        if self.regrant {
            self.make_grants(now);
        }
        if let Some(transmit) = self.next_control(now) {
            return Some(transmit);
        }
        self.wake = Nanos::MAX;
        for _ in 0..self.backlog.len() {
            let index = self.backlog.pop_front()?;
            match self.send_data(now, index) {
                Ok(transmit) => {
                    self.requeue(index);
                    return Some(transmit);
                }
                Err(wake) => {
                    self.requeue(index);
                    self.wake = self.wake.min(wake.max(now + GRAIN));
                }
            }
        }
        self.next_control(now)
    }

    /// Returns the next control message to send.
    fn next_control(&mut self, now: Nanos) -> Option<Transmit> {
        if self.urgent && self.out.is_empty() {
            self.speak_up(now);
        }
        self.out.pop_front()
    }

    fn requeue(&mut self, index: usize) {
        if self.peers[index].as_ref().is_some_and(Peer::has_frames) {
            self.backlog.push_back(index);
        }
    }

    /// Chooses the link for a peer's next frame. The error is the time to try again.
    fn pick_link(&mut self, now: Nanos, index: usize) -> Result<usize, Nanos> {
        let peer = self.peers[index].as_mut().ok_or(Nanos::MAX)?;
        match self.config.policy {
            Policy::MaxMin => {
                let usable = peer.paths.iter().enumerate().filter_map(|(link, path)| {
                    let path = path.as_ref().filter(|path| path.usable)?;
                    Some((link, &path.sender))
                });
                match pick(now, usable, &self.paces) {
                    Pick::Send(link) => Ok(link),
                    Pick::Wait(wake, limited) => {
                        if limited && peer.limited.wait(now) {
                            peer.ask(Urgency::Once);
                            self.urgent = true;
                        }
                        Err(wake)
                    }
                }
            }
            _ => {
                let usable = peer.usable().fold(0, |bits, (link, _)| bits | 1 << link);
                let link = peer.turns.pick(usable).ok_or(Nanos::MAX)?;
                if self.paces[link].blocked {
                    return Err(Nanos::MAX);
                }
                Ok(link)
            }
        }
    }

    /// Prepares the peer's next frame. The error is the time to try again.
    fn send_data(&mut self, now: Nanos, index: usize) -> Result<Transmit, Nanos> {
        let (encrypts, overhead) = (self.secret.is_some(), self.overhead());
        let peer = self.peers[index].as_ref().ok_or(Nanos::MAX)?;
        if encrypts && !peer.keys.is_ready() {
            // The handshake wakes this peer.
            return Err(Nanos::MAX);
        }
        let link = self.pick_link(now, index)?;
        let peer = self.peers[index].as_mut().ok_or(Nanos::MAX)?;
        let (numbered, resent) = peer.next_frame(now).ok_or(Nanos::MAX)?;
        let limited = peer.limited.is(now);
        peer.turns.sent();
        let remembered = if self.config.repair {
            self.config.limits.ring_frames
        } else {
            0
        };
        let Some(path) = &mut peer.paths[link] else {
            return Err(Nanos::MAX);
        };
        let Numbered { number, frame } = &numbered;
        let bytes = wire_bytes(overhead + frame.body.len());
        let link_number = path.sender.send(now, bytes);
        self.paces[link].send(now, bytes);
        path.sender.ring.push(link_number, &numbered, remembered);
        let odd = peer.keys.is_odd();
        let header = Shim {
            kind: if encrypts {
                Kind::Sealed { odd }
            } else {
                Kind::Data
            },
            address: frame.address,
            limited,
            resent,
            session: self.config.session as u8,
            protocol: frame.protocol,
            number: *number as u32,
            link_number: link_number as u32,
        };
        let header = header.encode();
        let body = match encrypts {
            false => numbered.frame.body,
            true => {
                let body = &numbered.frame.body;
                let sealed = peer.keys.seal(link, link_number, &header, body);
                sealed.ok_or(Nanos::MAX)?.into()
            }
        };
        Ok(Transmit {
            link,
            destination: path.address,
            header,
            body,
        })
    }

    /// Sends urgent heartbeats and requests.
    fn speak_up(&mut self, now: Nanos) {
        self.urgent = false;
        for index in 0..self.peers.len() {
            if self.out.len() >= OUT / 2 {
                // The others follow as soon as these messages have left.
                self.urgent = true;
                return;
            }
            let Some(peer) = &mut self.peers[index] else {
                continue;
            };
            let urgency = core::mem::replace(&mut peer.urgent, Urgency::None);
            let links: Vec<usize> = match urgency {
                Urgency::None => Vec::new(),
                Urgency::Once => peer.best_link(None).into_iter().collect(),
                Urgency::EveryLink => peer.paths().map(|(link, _)| link).collect(),
            };
            links
                .into_iter()
                .for_each(|link| self.send_heartbeat(now, index, link));
            self.send_nacks(index);
        }
    }

    /// Requests missing frames, each over another link than the one that lost it.
    fn send_nacks(&mut self, index: usize) {
        let repair = self.config.repair;
        let Some(peer) = self.peers[index]
            .as_mut()
            .filter(|peer| !peer.gaps.is_empty())
        else {
            return;
        };
        let mut gaps: Vec<_> = peer.gaps.drain(..).collect();
        if !repair {
            return;
        }
        while let Some(&(link, _)) = gaps.first() {
            let Some(peer) = &self.peers[index] else {
                return;
            };
            let over = peer.best_link(Some(link));
            let peer_link = peer.paths[link].as_ref().map(|path| path.peer_link);
            let mut ranges = Vec::new();
            gaps.retain(|&(other, (first, count))| {
                let taken = other == link && ranges.len() < NACK_RANGES;
                if taken {
                    ranges.push((first as u32, count.min(u64::from(u16::MAX)) as u16));
                }
                !taken
            });
            if let (Some(over), Some(link)) = (over, peer_link) {
                let nack = Nack { link, ranges };
                self.send_message(index, over, |sender| Message::Nack(sender, nack));
            }
        }
    }
}

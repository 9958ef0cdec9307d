//! Everything that a trunk does because time passed: measurements, heartbeats and grants. Time
//! comes from the caller. `grants` divides the links, and `monitor` judges whether a link is alive.

use super::{Link, Policy, Trunk};
use crate::granter::{Demand, differ, grant};
use crate::grants::PerLink;
use crate::monitor::{FAST, SLOW};
use crate::peer::{Peer, Urgency};
use crate::{MAX_LINKS, MICROSECOND, MILLISECOND, Nanos, Reason};
use alloc::vec::Vec;

/// Number of first hellos, which are sent at short intervals.
const FIRST_HELLOS: u32 = 5;
/// The time between two heartbeats to any peers with traffic is at least this on average, so that a
/// node with hundreds of them has time for their frames.
const HEARTBEAT: Nanos = 50 * MICROSECOND;
/// If a link lags another link of the same peer by this many received packets in a span, it counts
/// as dead (policy `round-robin`, as published).
const BEHIND: u32 = 1000;

impl Trunk {
    /// The time by which [`Trunk::handle_timeout`] must be called.
    pub fn poll_timeout(&self, now: Nanos) -> Nanos {
        let give_up = |peer: &Peer| {
            let hold = if self.config.repair { peer.hold() } else { 0 };
            peer.resequencer.give_up(hold, peer.is_quiet(now))
        };
        let held = match self.held_bytes {
            0 => Nanos::MAX,
            _ => self
                .peers
                .iter()
                .flatten()
                .filter_map(give_up)
                .min()
                .unwrap_or(Nanos::MAX),
        };
        self.wake.min(held).min(self.next_tick).min(self.next_hello)
    }

    /// Whether [`Trunk::handle_timeout`] will judge which links are silent. All frames that have
    /// arrived must be handled before: one that waits looks like the silence of its link.
    pub fn judges_links(&self, now: Nanos) -> bool {
        !self.heard.is_empty() || now >= self.next_tick
    }

    /// Does all work that is due at `now`.
    pub fn handle_timeout(&mut self, now: Nanos) {
        let mut heard = core::mem::take(&mut self.heard);
        heard.drain(..).for_each(|index| self.watch(now, index));
        self.heard = heard;
        if now >= self.next_hello {
            self.send_hellos();
            self.hellos += 1;
            let pause = if self.hellos < FIRST_HELLOS {
                50 * MILLISECOND
            } else {
                SLOW
            };
            self.next_hello = now + pause;
        }
        if now >= self.next_tick {
            self.tick(now);
        }
        if self.held_bytes > 0 {
            for index in 0..self.peers.len() {
                self.release(now, index);
            }
        }
    }

    fn tick(&mut self, now: Nanos) {
        let elapsed = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if now >= self.next_span {
            self.end_span();
            self.next_span = now + self.config.span;
        }
        let active = self
            .peers
            .iter()
            .flatten()
            .filter(|peer| peer.is_active(now));
        let heartbeats = active.map(|peer| peer.paths().count() as u64).sum::<u64>();
        self.fast = (heartbeats * HEARTBEAT).clamp(FAST, SLOW);
        for index in 0..self.peers.len() {
            self.watch(now, index);
            self.beat(now, index, elapsed);
            self.exchange_keys(now, index);
        }
        self.end_conflicts(now);
        self.learn(now);
        self.regrant = true;
        self.next_tick = now + if heartbeats > 0 { self.fast } else { SLOW };
    }

    /// Measures a peer's rates, and sends the heartbeats that are due.
    fn beat(&mut self, now: Nanos, index: usize, elapsed: Nanos) {
        let Some(peer) = &mut self.peers[index] else {
            return;
        };
        for (_, path) in peer.paths_mut() {
            path.receiver.measure(elapsed);
            path.sender.measure(elapsed);
        }
        if peer.is_active(now) && now >= peer.next_fast || now >= peer.next_slow {
            peer.next_fast = now + peer.interval(now, self.fast) - FAST / 2;
            peer.next_slow = now + SLOW - FAST;
            peer.ask(Urgency::EveryLink);
            self.urgent = true;
        }
    }

    fn end_span(&mut self) {
        self.span = self.span.wrapping_add(1);
        self.links.iter_mut().for_each(|link| link.span_total = 0);
        let mut behind = Vec::new();
        for (index, peer) in self.peers.iter_mut().enumerate() {
            let Some(peer) = peer else { continue };
            for (link, path) in peer.paths_mut() {
                let frames = core::mem::take(&mut path.receiver.span_frames);
                path.receiver.span_last = frames;
                self.links[link].span_total = self.links[link].span_total.wrapping_add(frames);
            }
            let counts = |peer: &Peer| {
                let usable = peer
                    .usable()
                    .map(|(link, path)| (path.receiver.span_last, link));
                usable.collect::<Vec<_>>()
            };
            let counts = counts(peer);
            let most = counts.iter().map(|(count, _)| *count).max().unwrap_or(0);
            let late = counts
                .into_iter()
                .filter(|(count, _)| most - count > BEHIND);
            behind.extend(late.map(|(_, link)| (index, link)));
        }
        if self.config.policy == Policy::RoundRobin {
            for (index, link) in behind {
                self.take_out(self.last_tick, index, link, Reason::Behind);
            }
        }
    }

    /// Computes the grants, and tells the peers whose grants changed.
    pub(super) fn make_grants(&mut self, now: Nanos) {
        self.regrant = false;
        let capacity: Vec<f64> = self
            .links
            .iter()
            .map(|link| {
                if link.carrier {
                    link.usable(&link.capacity)
                } else {
                    0.0
                }
            })
            .collect();
        let index: Vec<usize> = (0..self.peers.len())
            .filter(|index| self.peers[*index].is_some())
            .collect();
        let peers = self.peers.iter().flatten();
        let demands: Vec<Demand> = peers
            .map(|peer| demand(peer, &self.links, &capacity))
            .collect();
        let grants = grant(&capacity, &demands);
        for (index, granted) in index.into_iter().zip(grants) {
            let Some(peer) = &mut self.peers[index] else {
                continue;
            };
            let changed = differ(&peer.granted, &granted);
            peer.granted = granted;
            if changed && peer.is_active(now) {
                peer.ask(Urgency::Once);
                self.urgent = true;
            }
        }
    }
}

fn demand(peer: &Peer, links: &[Link], capacity: &[f64]) -> Demand {
    let mut caps: PerLink = [0.0; MAX_LINKS];
    let mut rate = 0.0;
    for (link, path) in peer.paths().filter(|(_, path)| path.monitor.is_up()) {
        let theirs = match path.traits.rate {
            0 => f64::INFINITY,
            rate => rate as f64,
        };
        let way = links[link].usable(&path.capacity);
        caps[link] = theirs.min(capacity[link]).min(way);
        rate += path.receiver.rate.max(path.receiver.tick.arrived);
    }
    Demand {
        limited: peer.peer_limited,
        rate,
        caps,
        before: peer.granted,
    }
}

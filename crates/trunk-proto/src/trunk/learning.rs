//! Learns the capacity of links, and of the paths over them, from queues and losses. `grants`
//! divides the learned capacity among the peers. If only one peer sends, a limit counts as a limit
//! of its path and not of the link.

use super::{Link, Trunk};
use crate::capacity::{LOSSY, Tick};
use crate::delay::RENEWAL;
use crate::peer::{Path, Peer};
use crate::{Nanos, capacity::Capacity};

/// Share of a learned rate that is granted during the measurement of an empty path.
const RENEWING: f64 = 0.75;

/// The measurements of one tick on all paths over a link.
#[derive(Default)]
struct Seen {
    /// Number of paths with traffic (`active`), and of those that reported a queue or none
    /// (`told`).
    active: usize,
    told: usize,
    queued: usize,
    lossy: usize,
    stale: bool,
    /// Totals of all paths, and the shortest of their queues.
    tick: Tick,
}

impl Seen {
    fn add(&mut self, now: Nanos, path: &Path) {
        let tick = path.receiver.tick;
        self.active += 1;
        self.told += usize::from(tick.queue.is_some());
        self.lossy += usize::from(path.receiver.loss > LOSSY);
        self.stale |= path.receiver.delay.is_stale(now);
        self.tick.arrived += tick.arrived;
        self.tick.lost += tick.lost;
        self.tick.frames += tick.frames;
        if tick.is_queued() {
            self.queued += 1;
            let shortest = self.tick.queue.min(tick.queue);
            self.tick.queue = shortest.or(tick.queue);
        }
    }
}

impl Trunk {
    /// Updates the capacities of links and paths. If most of several peers on a link wait or lose
    /// frames, the link itself is full. If few do, or only one peer sends, the limit is on their
    /// paths. If the link were the limit after all, it would show as soon as other peers send.
    pub(super) fn learn(&mut self, now: Nanos) {
        for index in 0..self.links.len() {
            let mut seen = Seen::default();
            let paths = self.peers.iter().flatten();
            paths
                .filter_map(|peer| peer.paths[index].as_ref())
                .filter(|path| path.receiver.tick.arrived > 0.0)
                .for_each(|path| seen.add(now, path));
            let queued = seen.told > 1 && 2 * seen.queued > seen.told;
            let lossy = seen.active > 1 && 2 * seen.lossy > seen.active;
            let link = &mut self.links[index];
            match (seen.told, seen.queued) {
                (1, 1) => link.capacity.creep(),
                _ => link.capacity.update(&of_link(&seen, queued, lossy)),
            }
            let renewal = link.renew(now, seen.stale);
            for path in paths_on(&mut self.peers, index) {
                path.capacity
                    .update(&of_way(&path.receiver.tick, queued, lossy));
                match renewal {
                    Renewal::Begins => path.receiver.delay.begin_renewal(),
                    Renewal::Ends => path.receiver.delay.end_renewal(now),
                    Renewal::None => {}
                }
            }
        }
    }
}

fn paths_on(peers: &mut [Option<Peer>], link: usize) -> impl Iterator<Item = &mut Path> {
    let peers = peers.iter_mut().flatten();
    peers.filter_map(move |peer| peer.paths[link].as_mut())
}

fn of_link(seen: &Seen, queued: bool, lossy: bool) -> Tick {
    let mut tick = seen.tick;
    if !queued {
        tick.queue = (seen.told > 0).then_some(0);
    }
    if !lossy {
        tick.lost = 0;
    }
    tick
}

/// The measurements of a path, without queues and losses that the link causes.
fn of_way(tick: &Tick, queued: bool, lossy: bool) -> Tick {
    Tick {
        queue: tick.queue.map(|queue| if queued { 0 } else { queue }),
        lost: if lossy { 0 } else { tick.lost },
        ..*tick
    }
}

enum Renewal {
    None,
    Begins,
    Ends,
}

impl Link {
    fn renew(&mut self, now: Nanos, stale: bool) -> Renewal {
        match self.renewing {
            Some(until) if now < until => Renewal::None,
            Some(_) => {
                self.renewing = None;
                Renewal::Ends
            }
            None if stale => {
                self.renewing = Some(now + RENEWAL);
                Renewal::Begins
            }
            None => Renewal::None,
        }
    }

    /// The part of a capacity that may be granted on this link.
    pub(super) fn usable(&self, capacity: &Capacity) -> f64 {
        match self.renewing.is_some() && capacity.is_learned() {
            true => capacity.usable() * RENEWING,
            false => capacity.usable(),
        }
    }
}

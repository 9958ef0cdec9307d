//! What links and the ways over them carry, learned from queues and losses.

use super::{Link, Trunk};
use crate::capacity::{LOSSY, Tick};
use crate::delay::RENEWAL;
use crate::peer::{Path, Peer};
use crate::{Nanos, capacity::Capacity};

/// Part of a learned rate that is handed out while the empty way is looked for.
const RENEWING: f64 = 0.75;

/// What one tick showed on all the ways over a link.
#[derive(Default)]
struct Seen {
    /// Ways that carried anything, and those of them that told their queue.
    active: usize,
    told: usize,
    queued: usize,
    lossy: usize,
    stale: bool,
    /// Of all ways: the sums, and the shortest of the queues.
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
    /// Where most of several peers on a link wait or lose frames, the link itself is what is full.
    /// Where few do, or only one peer sends, it is their way: were it the link, it would show as
    /// soon as others send too.
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

/// What is the link's is not the way's.
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

    /// What may be handed out of a capacity on this link.
    pub(super) fn usable(&self, capacity: &Capacity) -> f64 {
        match self.renewing.is_some() && capacity.is_learned() {
            true => capacity.usable() * RENEWING,
            false => capacity.usable(),
        }
    }
}

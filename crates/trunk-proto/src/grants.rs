//! Computes max-min fair rates of peers that share the links of a receiver, and how they split over
//! the links.
//!
//! A peer reaches some of the links, each up to a cap, and wants at most its demand. A vector of
//! rates is feasible if and only if, for every set S of links, the rates fit into S after each
//! peer's capacity outside S is subtracted (Hall's condition, by max-flow min-cut). Progressive
//! filling over these sets yields the max-min rates. Rates are in bytes a second.

use crate::MAX_LINKS;
use alloc::vec;
use alloc::vec::Vec;

/// One value for each link.
pub type PerLink = [f64; MAX_LINKS];

/// The demand of one peer and its cap on each link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The most that it wants, or infinity for as much as possible.
    pub demand: f64,
    /// The most that it can send on each link; 0 if it does not reach the link.
    pub caps: PerLink,
}

impl Claim {
    /// The most that it can send outside the links in `set`.
    fn outside(&self, set: usize) -> f64 {
        self.caps
            .iter()
            .enumerate()
            .filter(|(link, _)| set >> link & 1 == 0)
            .map(|(_, cap)| cap)
            .sum()
    }
}

/// Relative error within which sums of floating-point numbers count as equal.
const EPSILON: f64 = 1e-9;

/// Computes the max-min fair rates of all claims.
///
/// `capacity` has a value for each link, at most [`MAX_LINKS`].
pub fn water_fill(capacity: &[f64], claims: &[Claim]) -> Vec<f64> {
    let mut rates: Vec<Option<f64>> = vec![None; claims.len()];
    let sets: Vec<(f64, Vec<f64>)> = (0..1_usize << capacity.len().min(MAX_LINKS))
        .map(|set| {
            let within = capacity
                .iter()
                .enumerate()
                .filter(|(link, _)| set >> link & 1 == 1);
            let outside = claims.iter().map(|claim| claim.outside(set)).collect();
            (within.map(|(_, rate)| rate).sum(), outside)
        })
        .collect();
    while rates.contains(&None) {
        let levels: Vec<f64> = sets
            .iter()
            .map(|(capacity, outside)| level(*capacity, outside, &rates))
            .collect();
        let least = levels.iter().copied().fold(f64::INFINITY, f64::min);
        // A peer that wants no more than the level gets its demand, which leaves more to the
        // others.
        let mut satisfied = false;
        for (rate, claim) in rates.iter_mut().zip(claims) {
            if rate.is_none() && claim.demand <= least {
                *rate = Some(claim.demand);
                satisfied = true;
            }
        }
        if satisfied {
            continue;
        }
        let bound = least * (1.0 + EPSILON);
        for ((_, outside), level) in sets.iter().zip(&levels) {
            if *level <= bound {
                for (rate, outside) in rates.iter_mut().zip(outside) {
                    if rate.is_none() && *outside <= bound {
                        *rate = Some(least);
                    }
                }
            }
        }
    }
    rates.into_iter().flatten().collect()
}

/// The level at which the peers without a rate fill a set of links.
fn level(capacity: f64, outside: &[f64], rates: &[Option<f64>]) -> f64 {
    let mut left = capacity;
    let mut open = Vec::new();
    for (outside, rate) in outside.iter().zip(rates) {
        match rate {
            Some(rate) => left -= (rate - outside).max(0.0),
            None => open.push(*outside),
        }
    }
    left = left.max(0.0);
    open.sort_by(f64::total_cmp);
    let mut below = 0.0;
    for (count, outside) in open.iter().enumerate() {
        // The level if `count` peers exceed what they can send outside, before the next peer joins
        // them.
        let level = match count {
            0 => f64::INFINITY,
            _ => (left + below) / count as f64,
        };
        if level <= *outside {
            return if count == 0 { f64::INFINITY } else { level };
        }
        below += outside;
    }
    match open.len() {
        0 => f64::INFINITY,
        count if below.is_finite() => (left + below) / count as f64,
        _ => f64::INFINITY,
    }
}

/// Splits feasible rates over the links, close to `previous` and sparsely. The shares that are
/// positive and below their cap form no circle, so there are at most peers + links - 1 of them.
pub fn split(
    capacity: &[f64],
    claims: &[Claim],
    rates: &[f64],
    previous: &[PerLink],
) -> Vec<PerLink> {
    let mut flow = Flow::new(capacity, claims, rates, previous);
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let links = |peer: &usize| claims[*peer].caps.iter().filter(|cap| **cap > 0.0).count();
    order.sort_by_key(links);
    for peer in order {
        // Each round fills a link, a cap or the rate.
        for _ in 0..claims.len() * MAX_LINKS + MAX_LINKS {
            if !flow.augment(peer) {
                break;
            }
        }
    }
    flow.cancel_circles();
    flow.shares
}

struct Flow<'a> {
    claims: &'a [Claim],
    shares: Vec<PerLink>,
    /// Rate of each peer that is not yet placed.
    wanted: Vec<f64>,
    /// Unused capacity of each link.
    free: Vec<f64>,
    /// An amount below this counts as zero.
    grain: f64,
}

impl<'a> Flow<'a> {
    fn new(capacity: &[f64], claims: &'a [Claim], rates: &[f64], previous: &[PerLink]) -> Self {
        let links = capacity.len().min(MAX_LINKS);
        let most = capacity.iter().copied().fold(0.0, f64::max);
        let mut flow = Flow {
            claims,
            shares: vec![[0.0; MAX_LINKS]; claims.len()],
            wanted: rates.to_vec(),
            free: capacity[..links].to_vec(),
            grain: most * EPSILON,
        };
        for (peer, before) in previous.iter().enumerate().take(claims.len()) {
            for (link, share) in before.iter().enumerate().take(links) {
                let limit = flow.wanted[peer]
                    .min(flow.free[link])
                    .min(claims[peer].caps[link]);
                flow.place(peer, link, share.min(limit));
            }
        }
        flow
    }

    fn place(&mut self, peer: usize, link: usize, amount: f64) {
        self.shares[peer][link] += amount;
        self.wanted[peer] -= amount;
        self.free[link] -= amount;
    }

    /// How far a peer is below its cap on a link.
    fn room(&self, peer: usize, link: usize) -> f64 {
        self.claims[peer].caps[link] - self.shares[peer][link]
    }

    /// Places more of a peer's rate along a shortest chain of moves of other peers. Returns false
    /// if all is placed or no chain exists.
    fn augment(&mut self, peer: usize) -> bool {
        if self.wanted[peer] <= self.grain {
            return false;
        }
        let links = self.free.len();
        // How each link was reached: the peer that moves, and the link it leaves (none for the peer
        // itself).
        let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; links];
        let mut front: Vec<usize> = Vec::new();
        for (link, reached) in reached.iter_mut().enumerate() {
            if self.room(peer, link) > self.grain {
                *reached = Some((peer, None));
                front.push(link);
            }
        }
        let mut next = 0;
        while let Some(&link) = front.get(next) {
            next += 1;
            if self.free[link] > self.grain {
                self.push(peer, link, &reached);
                return true;
            }
            for (to, reached) in reached.iter_mut().enumerate() {
                if reached.is_some() {
                    continue;
                }
                let mover = (0..self.claims.len()).find(|&other| {
                    self.shares[other][link] > self.grain && self.room(other, to) > self.grain
                });
                if let Some(mover) = mover {
                    *reached = Some((mover, Some(link)));
                    front.push(to);
                }
            }
        }
        false
    }

    fn push(&mut self, peer: usize, last: usize, reached: &[Option<(usize, Option<usize>)>]) {
        let mut amount = self.wanted[peer].min(self.free[last]);
        let mut chain = Vec::new();
        let mut link = last;
        while let Some((mover, from)) = reached[link] {
            amount = amount.min(self.room(mover, link));
            chain.push((mover, from, link));
            let Some(from) = from else { break };
            amount = amount.min(self.shares[mover][from]);
            link = from;
        }
        for (mover, from, to) in chain {
            self.shares[mover][to] += amount;
            if let Some(from) = from {
                self.shares[mover][from] -= amount;
            }
        }
        self.wanted[peer] -= amount;
        self.free[last] -= amount;
    }

    /// Shifts rates around each circle of shares until one share is zero or at its cap.
    fn cancel_circles(&mut self) {
        // Each shift brings one share to zero or to its cap for good.
        for _ in 0..self.claims.len() * MAX_LINKS {
            let Some(circle) = self.find_circle() else {
                break;
            };
            // Shares at even positions shrink and those at odd positions grow.
            let amount = circle
                .iter()
                .enumerate()
                .map(|(place, &(peer, link))| match place % 2 {
                    0 => self.shares[peer][link],
                    _ => self.room(peer, link),
                })
                .fold(f64::INFINITY, f64::min);
            for (place, (peer, link)) in circle.into_iter().enumerate() {
                let share = &mut self.shares[peer][link];
                *share += if place % 2 == 0 { -amount } else { amount };
                if *share < self.grain {
                    *share = 0.0;
                }
            }
        }
    }

    fn is_inner(&self, peer: usize, link: usize) -> bool {
        self.shares[peer][link] > self.grain && self.room(peer, link) > self.grain
    }

    /// Finds a circle in the graph of peers and links whose edges are the inner shares. Returns its
    /// edges in order, the smallest share first.
    fn find_circle(&self) -> Option<Vec<(usize, usize)>> {
        let peers = self.claims.len();
        let nodes = peers + self.free.len();
        let mut parent: Vec<Option<usize>> = vec![None; nodes];
        let mut depth = vec![usize::MAX; nodes];
        for root in 0..nodes {
            if depth[root] != usize::MAX {
                continue;
            }
            depth[root] = 0;
            let mut front = vec![root];
            while let Some(node) = front.pop() {
                // Edges lead only from peers to links and back.
                let others = if node < peers { peers..nodes } else { 0..peers };
                for other in others {
                    let joined = match node < peers {
                        true => self.is_inner(node, other - peers),
                        false => self.is_inner(other, node - peers),
                    };
                    if !joined || parent[node] == Some(other) {
                        continue;
                    }
                    if depth[other] != usize::MAX {
                        return Some(self.circle(node, other, &parent, &depth));
                    }
                    depth[other] = depth[node] + 1;
                    parent[other] = Some(node);
                    front.push(other);
                }
            }
        }
        None
    }

    fn circle(
        &self,
        mut a: usize,
        mut b: usize,
        parent: &[Option<usize>],
        depth: &[usize],
    ) -> Vec<(usize, usize)> {
        let peers = self.claims.len();
        let (mut left, mut right) = (vec![a], vec![b]);
        while a != b {
            let (end, side) = match depth[a] >= depth[b] {
                true => (&mut a, &mut left),
                false => (&mut b, &mut right),
            };
            let Some(up) = parent[*end] else { break };
            *end = up;
            side.push(up);
        }
        // Both sides end in the same node; the edge between their starts closes the circle.
        right.pop();
        left.extend(right.into_iter().rev());
        let mut edges: Vec<(usize, usize)> = (0..left.len())
            .map(|place| {
                let (one, other) = (left[place], left[(place + 1) % left.len()]);
                (one.min(other), one.max(other) - peers)
            })
            .collect();
        let share = |edge: &(usize, usize)| self.shares[edge.0][edge.1];
        let least = (0..edges.len())
            .min_by(|x, y| share(&edges[*x]).total_cmp(&share(&edges[*y])))
            .unwrap_or(0);
        edges.rotate_left(least);
        edges
    }
}

#[cfg(test)]
mod tests;

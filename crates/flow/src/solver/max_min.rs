//! Exact max-min rates, repaired locally after every batch of departures and arrivals.
//!
//! Every flow belongs to one saturated link, its bottleneck. That link's level is the rate of all
//! flows that belong to it, and no other flow on it is faster. A batch makes some links dirty. The
//! solver takes dirty links in the order of their expected level and computes their level again.
//! The level `x` of a link with bandwidth `C` solves `sum min(d, x) = C`, where `d` is a flow's
//! rate if another link limits it and infinite otherwise. Flows above `x` join the link. If a flow
//! changes, the other links of its path become dirty if they are the bottleneck of any flow or
//! overloaded. When no link is dirty, the certificate holds. Levels depend only on lower levels, so
//! taking the lowest first visits most links once. A later visit corrects a link that was visited
//! too early.
//!
//! With a tolerance, a bottleneck whose load differs from its bandwidth by no more than that is
//! left alone, which stops most changes after a few links. The rates are then max-min fair for
//! bandwidths that differ from the given ones by at most the tolerance. Few visits need a
//! correction then, so the solver levels a link even if its level turns out to be above that of the
//! next one.

use super::Slot;
use super::links::{List, ListPool, Paths, Runs};
use crate::platform::LinkId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Relative difference below which two rates are the same.
const SAME: f64 = 1e-13;
/// Relative load above the bandwidth from which a link counts as overloaded.
const OVER: f64 = 1e-12;
const NONE: LinkId = LinkId::MAX;

/// What a change of a flow needs of every link of its path. The links of a run are changed and
/// compared at once, because that costs most.
#[derive(Debug, Clone, Copy)]
#[repr(align(16))]
struct Load {
    load: f64,
    /// Load above which a change disturbs the link: any load if the link is a bottleneck.
    limit: f64,
}

/// What else is known of a link, in one line of the processor's cache.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Link {
    bandwidth: f64,
    /// Key of the link in the heap while it is dirty, else infinite.
    key: f64,
    /// Rate of the flows that belong to this link. It has no meaning while `own` is 0.
    level: f64,
    list: List,
    /// All flows on the link. It stays correct when the lists do not.
    count: u32,
    /// Flows whose bottleneck is this link.
    own: u32,
    /// Flows on the link that have no rate yet.
    pending: u32,
}

impl Link {
    fn new(bandwidth: f64) -> Self {
        Self {
            bandwidth,
            key: f64::INFINITY,
            level: 0.0,
            list: List::NEW,
            count: 0,
            own: 0,
            pending: 0,
        }
    }

    /// Level that the sums alone predict for a link with this load. It is exact if no flow joins
    /// or leaves, else a lower bound.
    #[inline]
    fn estimate(&self, load: f64) -> f64 {
        let sharing = self.own + self.pending;
        if sharing == 0 {
            return self.bandwidth / f64::from(self.count.max(1));
        }
        let room = self.bandwidth - load + f64::from(self.own) * self.level;
        (room / f64::from(sharing)).max(0.0)
    }

    /// Whether the link, as a bottleneck, must be levelled again. It is the link of a flow that
    /// changed, so without a tolerance it must.
    #[inline]
    fn is_off(&self, load: f64, tolerance: f64) -> bool {
        tolerance == 0.0 || (load - self.bandwidth).abs() > tolerance * self.bandwidth
    }

    /// Load above which the link counts as overloaded.
    #[inline]
    fn most(&self, tolerance: f64) -> f64 {
        self.bandwidth * (1.0 + OVER.max(tolerance))
    }

    /// The [`Load`] of the link without flows.
    fn unloaded(&self, tolerance: f64) -> Load {
        Load {
            load: 0.0,
            limit: self.limit(tolerance),
        }
    }

    /// The link's [`Load::limit`].
    #[inline]
    fn limit(&self, tolerance: f64) -> f64 {
        match self.own {
            0 => self.most(tolerance),
            _ => f64::NEG_INFINITY,
        }
    }
}

/// The share of a flow: its rate, and the link that limits it.
#[derive(Debug, Clone, Copy)]
struct Share {
    rate: f64,
    bottleneck: LinkId,
}

impl Share {
    const NEW: Self = Self {
        rate: 0.0,
        bottleneck: NONE,
    };
}

/// The max-min solver. Drive it with [`MaxMin::begin`], any number of [`MaxMin::remove`] and
/// [`MaxMin::add`], then [`MaxMin::solve`].
#[derive(Debug, Clone)]
pub struct MaxMin {
    paths: Paths,
    /// The paths again, for the loops that cost most. They are up to date when the lists are.
    runs: Runs,
    shares: Vec<Share>,
    loads: Vec<Load>,
    links: Vec<Link>,
    pool: ListPool,
    active: usize,
    /// Whether the lists of the links are up to date.
    listed: bool,
    /// Whether this batch replaces so many flows that updating the lists is put off.
    bulk: bool,
    arrived: Vec<Slot>,
    heap: BinaryHeap<Reverse<(u64, LinkId)>>,
    demand: Vec<f64>,
    /// Flows whose rate [`Self::apply`] changes, and by how much.
    moved: Vec<(Slot, f64)>,
    /// Links that [`Self::shift`] may disturb, and by how much the rate of a flow on them changed.
    suspects: Vec<(LinkId, f64)>,
    changed: Vec<Slot>,
    changed_in: Vec<u32>,
    round: u32,
    tolerance: f64,
}

impl MaxMin {
    /// A solver without flows, over links of the given bandwidths (bytes/s). `max_hops` is the
    /// length of the longest path that [`MaxMin::add`] usually gets.
    pub fn new(bandwidth: impl Iterator<Item = f64>, max_hops: usize) -> Self {
        let links: Vec<Link> = bandwidth.map(Link::new).collect();
        Self {
            paths: Paths::new(max_hops),
            runs: Runs::new(),
            shares: Vec::new(),
            loads: links.iter().map(|link| link.unloaded(0.0)).collect(),
            links,
            pool: ListPool::default(),
            active: 0,
            listed: true,
            bulk: false,
            arrived: Vec::new(),
            heap: BinaryHeap::new(),
            demand: Vec::new(),
            moved: Vec::new(),
            suspects: Vec::new(),
            changed: Vec::new(),
            changed_in: Vec::new(),
            round: 0,
            tolerance: 0.0,
        }
    }

    /// The same solver for rates that are max-min fair for bandwidths that differ from the given
    /// ones by at most the fraction `tolerance`, at each solution by others.
    pub fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.tolerance = tolerance;
        self.clear_links();
        self
    }

    /// Rate of an active flow in bytes/s, as of the last [`MaxMin::solve`].
    #[inline]
    pub fn rate(&self, slot: Slot) -> f64 {
        self.shares[slot as usize].rate
    }

    /// The flows whose rate the last [`Self::solve`] set.
    pub fn changed(&self) -> &[Slot] {
        &self.changed
    }

    /// The links of an active flow.
    #[inline]
    pub fn path(&self, slot: Slot) -> &[LinkId] {
        self.paths.get(slot)
    }

    /// Active flows: slot, path and rate.
    pub fn flows(&self) -> impl Iterator<Item = (Slot, &[LinkId], f64)> + Clone + '_ {
        let active = (0..self.paths.slots() as u32).filter(|&s| self.paths.is_active(s));
        active.map(|slot| (slot, self.paths.get(slot), self.rate(slot)))
    }

    /// Starts a batch that removes `leaving` flows and then adds `arriving` flows.
    pub fn begin(&mut self, leaving: usize, arriving: usize) {
        let after = self.active - leaving + arriving;
        // If all flows leave, nothing remains to be solved, and only the lists take time.
        let flows = if after == 0 { leaving } else { after };
        self.bulk = 2 * arriving >= after
            && 8 * flows * self.paths.stride() >= self.links.len()
            && 4 * flows >= self.paths.slots();
        if self.bulk {
            self.listed = false;
        } else if !self.listed {
            self.build_lists();
        }
    }

    /// Removes a flow.
    #[inline]
    pub fn remove(&mut self, slot: Slot) {
        self.active -= 1;
        if self.bulk {
            for &l in self.paths.get(slot) {
                self.links[l as usize].count -= 1;
            }
            self.paths.clear(slot);
            return;
        }
        let Share { rate, bottleneck } = self.shares[slot as usize];
        self.set_own(bottleneck, self.links[bottleneck as usize].own - 1);
        for &l in self.paths.get(slot) {
            let link = &mut self.links[l as usize];
            let load = &mut self.loads[l as usize].load;
            link.count -= 1;
            *load -= rate;
            self.pool.remove(&mut link.list, slot);
            if link.own > 0 && link.is_off(*load, self.tolerance) {
                mark(&mut self.heap, link, *load, l);
            } else if link.count == 0 {
                *load = 0.0;
            }
        }
        self.paths.clear(slot);
    }

    /// Adds a flow over distinct links, at least one, in a free place.
    #[inline]
    pub fn add(&mut self, slot: Slot, path: &[LinkId]) {
        self.paths.grow(slot);
        if self.shares.len() < self.paths.slots() {
            self.shares.resize(self.paths.slots(), Share::NEW);
            self.changed_in.resize(self.paths.slots(), 0);
        }
        self.paths.set(slot, path);
        self.active += 1;
        self.shares[slot as usize] = Share::NEW;
        if self.bulk {
            for &l in path {
                self.links[l as usize].count += 1;
            }
            return;
        }
        self.runs.set(slot, path);
        for &l in path {
            let link = &mut self.links[l as usize];
            link.count += 1;
            link.pending += 1;
            self.pool.push(&mut link.list, slot);
        }
        self.arrived.push(slot);
    }

    /// Updates all rates. Returns each flow whose rate was set, once. A rate can be the same as
    /// before.
    pub fn solve(&mut self) -> &[Slot] {
        self.solve_within(64 * (self.links.len() as u64 + 64))
    }

    /// The same. After so many steps it starts afresh, because many small changes can cost more.
    pub(super) fn solve_within(&mut self, steps: u64) -> &[Slot] {
        self.changed.clear();
        self.round = self.round.wrapping_add(1);
        if self.bulk {
            self.bulk = false;
            if self.equal_split_is_fair() {
                return &self.changed;
            }
            self.rebuild();
        }
        if !self.repair(steps) {
            self.rebuild();
            self.repair(u64::MAX);
        }
        &self.changed
    }

    /// Tries the equal split. If the split fills the link that limits each flow, the split is
    /// max-min fair. This solves regular patterns without lists.
    fn equal_split_is_fair(&mut self) -> bool {
        for slot in 0..self.paths.slots() as u32 {
            let (mut share, mut narrowest) = (f64::INFINITY, NONE);
            for &l in self.paths.get(slot) {
                let link = &self.links[l as usize];
                self.loads[l as usize].load = 0.0;
                let s = match link.count {
                    1 => link.bandwidth,
                    count => link.bandwidth / f64::from(count),
                };
                if s < share {
                    (share, narrowest) = (s, l);
                }
            }
            if narrowest != NONE {
                let old = &mut self.shares[slot as usize];
                if old.rate != share {
                    self.changed.push(slot);
                }
                *old = Share {
                    rate: share,
                    bottleneck: narrowest,
                };
            }
        }
        for slot in 0..self.paths.slots() as u32 {
            let rate = self.shares[slot as usize].rate;
            for &l in self.paths.get(slot) {
                self.loads[l as usize].load += rate;
            }
        }
        self.paths.active().all(|slot| {
            let l = self.shares[slot as usize].bottleneck as usize;
            self.loads[l].load >= self.links[l].bandwidth * (1.0 - SAME)
        })
    }

    /// Sets the number of flows whose bottleneck a link is, and the limit that follows from it.
    #[inline]
    fn set_own(&mut self, l: LinkId, own: u32) {
        let link = &mut self.links[l as usize];
        link.own = own;
        self.loads[l as usize].limit = link.limit(self.tolerance);
    }

    /// Takes all flows off the links, and makes space for those that come back.
    fn clear_links(&mut self) {
        for (link, load) in self.links.iter_mut().zip(&mut self.loads) {
            self.pool.clear(&mut link.list);
            self.pool.reserve(&mut link.list, link.count);
            link.key = f64::INFINITY;
            (link.own, link.pending) = (0, 0);
            *load = link.unloaded(self.tolerance);
        }
    }

    /// Discards all rates and lists and makes every active flow an arrival.
    fn rebuild(&mut self) {
        self.changed.clear();
        self.round = self.round.wrapping_add(1);
        self.arrived.clear();
        self.heap.clear();
        self.clear_links();
        for slot in 0..self.paths.slots() as u32 {
            if self.paths.is_active(slot) {
                self.shares[slot as usize] = Share::NEW;
                self.arrived.push(slot);
            }
            let path = self.paths.get(slot);
            self.runs.set(slot, path);
            for &l in path {
                let link = &mut self.links[l as usize];
                link.pending += 1;
                self.pool.push(&mut link.list, slot);
            }
        }
        self.listed = true;
    }

    /// Builds lists, loads and levels from the rates of an equal split.
    fn build_lists(&mut self) {
        self.clear_links();
        for slot in 0..self.paths.slots() as u32 {
            if !self.paths.is_active(slot) {
                continue;
            }
            let Share { rate, bottleneck } = self.shares[slot as usize];
            let path = self.paths.get(slot);
            self.runs.set(slot, path);
            for &l in path {
                self.loads[l as usize].load += rate;
                self.pool.push(&mut self.links[l as usize].list, slot);
            }
            self.links[bottleneck as usize].level = rate;
            self.set_own(bottleneck, self.links[bottleneck as usize].own + 1);
        }
        self.listed = true;
    }

    /// Levels dirty links until none is left. Gives up after `limit` visits and returns `false`.
    fn repair(&mut self, limit: u64) -> bool {
        let mut arrived = std::mem::take(&mut self.arrived);
        for slot in arrived.drain(..) {
            self.aim(slot);
        }
        self.arrived = arrived;
        let mut visits = 0;
        while let Some(Reverse((bits, l))) = self.heap.pop() {
            let load = self.loads[l as usize].load;
            let link = &mut self.links[l as usize];
            let key = link.key;
            if key.to_bits() != bits {
                continue;
            }
            link.key = f64::INFINITY;
            if link.own + link.pending == 0 && load <= link.most(self.tolerance) {
                continue;
            }
            let next = self
                .heap
                .peek()
                .filter(|_| self.tolerance == 0.0)
                .map_or(u64::MAX, |Reverse((bits, _))| *bits);
            let expected = link.estimate(load);
            let level = if expected > key && expected.to_bits() > next {
                expected
            } else {
                self.level(l)
            };
            if level == f64::INFINITY {
                continue;
            }
            if level > key && level.to_bits() > next {
                self.links[l as usize].key = level;
                self.heap.push(Reverse((level.to_bits(), l)));
                continue;
            }
            self.apply(l, level);
            visits += 1;
            if visits == limit {
                return false;
            }
        }
        true
    }

    /// Marks dirty the link of a new flow's path that is likely to be its bottleneck.
    fn aim(&mut self, slot: Slot) {
        let (mut lowest, mut at) = (f64::INFINITY, NONE);
        for &l in self.paths.get(slot) {
            let estimate = self.links[l as usize].estimate(self.loads[l as usize].load);
            if estimate < lowest {
                (lowest, at) = (estimate, l);
            }
        }
        let (link, load) = (&mut self.links[at as usize], self.loads[at as usize].load);
        mark(&mut self.heap, link, load, at);
    }

    /// The level at which the link is full, infinite if it is not. Updates its load and leaves the
    /// demands of its flows in `self.demand`.
    fn level(&mut self, l: LinkId) -> f64 {
        let link = &self.links[l as usize];
        let list = self.pool.get(link.list);
        self.demand.clear();
        let (mut fixed, mut free) = (0.0, 0u32);
        for &slot in list {
            let Share { rate, bottleneck } = self.shares[slot as usize];
            self.runs.fetch(slot);
            let unbound = bottleneck == l || bottleneck == NONE;
            self.demand.push(if unbound { f64::INFINITY } else { rate });
            fixed += if unbound { 0.0 } else { rate };
            free += u32::from(unbound);
        }
        let settled = link.own;
        self.loads[l as usize].load =
            fixed + f64::from(settled) * if settled > 0 { link.level } else { 0.0 };
        let bandwidth = link.bandwidth;
        let mut x = if free > 0 {
            (bandwidth - fixed) / f64::from(free)
        } else if fixed <= link.most(self.tolerance) {
            return f64::INFINITY;
        } else {
            0.0
        };
        if x <= 0.0 {
            x = bandwidth / list.len() as f64;
        }
        // Newton's method from the left on a concave function: the values increase and end at the
        // root.
        loop {
            let (mut below, mut above) = (0.0, 0u32);
            for &d in &self.demand {
                let over = d > x;
                below += if over { 0.0 } else { d };
                above += u32::from(over);
            }
            if above == 0 {
                return x;
            }
            let next = (bandwidth - below) / f64::from(above);
            if next <= x * (1.0 + 1e-15) {
                return x;
            }
            x = next;
        }
    }

    /// Gives level `x` to the flows of link `l` that want more. [`Self::level`] left their demands.
    fn apply(&mut self, l: LinkId, x: f64) {
        let list = self.links[l as usize].list;
        self.links[l as usize].level = x;
        let above = x * (1.0 + SAME);
        let (mut own, mut load) = (0, 0.0);
        for i in 0..self.demand.len() {
            let demand = self.demand[i];
            if demand <= above {
                load += demand;
                continue;
            }
            own += 1;
            load += x;
            self.join(self.pool.get(list)[i], l, x);
        }
        self.set_own(l, own);
        self.shift(l, x);
        self.loads[l as usize].load = load;
    }

    /// Gives a flow its bottleneck, and puts it among those that move if its rate changes.
    #[inline]
    fn join(&mut self, slot: Slot, l: LinkId, x: f64) {
        let Share {
            rate: old,
            bottleneck: was,
        } = self.shares[slot as usize];
        let is_same = (x - old).abs() <= SAME * x;
        self.shares[slot as usize] = Share {
            rate: if is_same { old } else { x },
            bottleneck: l,
        };
        if was == NONE {
            for &m in self.paths.get(slot) {
                self.links[m as usize].pending -= 1;
            }
        } else if was != l {
            self.set_own(was, self.links[was as usize].own - 1);
        }
        if is_same {
            return;
        }
        self.moved.push((slot, x - old));
        let changed_in = &mut self.changed_in[slot as usize];
        if *changed_in != self.round {
            *changed_in = self.round;
            self.changed.push(slot);
        }
    }

    /// Changes the loads on the paths of the flows that moved to the rate `x` of link `l`, and
    /// marks the other links that this disturbs. The loops before the last one have few branches,
    /// so that their memory accesses overlap.
    #[inline]
    fn shift(&mut self, l: LinkId, x: f64) {
        for &(slot, delta) in &self.moved {
            for run in self.runs.get(slot) {
                self.loads[run].iter_mut().for_each(|l| l.load += delta);
            }
        }
        for (slot, delta) in self.moved.drain(..) {
            for run in self.runs.get(slot) {
                let loads = self.loads[run.clone()].iter().zip(run);
                let above = loads.filter(|(load, _)| load.load > load.limit);
                self.suspects
                    .extend(above.map(|(_, m)| (m as LinkId, delta)));
            }
        }
        for &(m, _) in &self.suspects {
            std::hint::black_box(self.links[m as usize].own);
        }
        for (m, delta) in self.suspects.drain(..) {
            let load = self.loads[m as usize].load;
            let link = &mut self.links[m as usize];
            let disturbed = match link.own {
                0 => delta > 0.0,
                _ => link.is_off(load, self.tolerance) || x > link.level * (1.0 + SAME),
            };
            if disturbed && m != l {
                self.pool.fetch(link.list);
                mark(&mut self.heap, link, load, m);
            }
        }
    }
}

/// Puts a link into the heap, or moves it forward in the heap.
#[inline]
fn mark(heap: &mut BinaryHeap<Reverse<(u64, LinkId)>>, link: &mut Link, load: f64, l: LinkId) {
    let key = link.estimate(load);
    if key < link.key {
        link.key = key;
        heap.push(Reverse((key.to_bits(), l)));
    }
}

//! The two approximations of bandwidth sharing that the paper describes. Neither is exact max-min.

use super::Slot;
use super::links::{List, ListPool, Paths};
use crate::platform::LinkId;

/// Mode F (paper section 3.3, steps 2-4): every link divides its bandwidth equally among its flows,
/// and a flow gets the least share on its path. Bandwidth that a flow cannot use is lost.
#[derive(Debug, Clone)]
pub struct EqualSplit {
    paths: Paths,
    bandwidth: Vec<f64>,
    lists: Vec<List>,
    count: Vec<u32>,
    pool: ListPool,
    rate: Vec<f64>,
    dirty: Vec<LinkId>,
    is_dirty: Vec<bool>,
    changed: Vec<Slot>,
    seen: Vec<u32>,
    round: u32,
}

impl EqualSplit {
    /// A solver without flows, over links of the given bandwidths (bytes/s).
    pub fn new(bandwidth: impl Iterator<Item = f64>, max_hops: usize) -> Self {
        let bandwidth: Vec<f64> = bandwidth.collect();
        let links = bandwidth.len();
        Self {
            paths: Paths::new(max_hops),
            bandwidth,
            lists: vec![List::NEW; links],
            count: vec![0; links],
            pool: ListPool::default(),
            rate: Vec::new(),
            dirty: Vec::new(),
            is_dirty: vec![false; links],
            changed: Vec::new(),
            seen: Vec::new(),
            round: 0,
        }
    }

    /// Rate of an active flow in bytes/s.
    #[inline]
    pub fn rate(&self, slot: Slot) -> f64 {
        self.rate[slot as usize]
    }

    /// The flows whose rate the last [`Self::solve`] set.
    pub fn changed(&self) -> &[Slot] {
        &self.changed
    }

    /// The links of an active flow.
    pub fn path(&self, slot: Slot) -> &[LinkId] {
        self.paths.get(slot)
    }

    /// Active flows: slot, path and rate.
    pub fn flows(&self) -> impl Iterator<Item = (Slot, &[LinkId], f64)> + Clone + '_ {
        let active = (0..self.paths.slots() as u32).filter(|&s| self.paths.is_active(s));
        active.map(|slot| (slot, self.paths.get(slot), self.rate(slot)))
    }

    fn touch(&mut self, l: LinkId) {
        if !self.is_dirty[l as usize] {
            self.is_dirty[l as usize] = true;
            self.dirty.push(l);
        }
    }

    /// Removes a flow.
    pub fn remove(&mut self, slot: Slot) {
        for i in 0..self.paths.get(slot).len() {
            let l = self.paths.get(slot)[i];
            self.pool.remove(&mut self.lists[l as usize], slot);
            self.count[l as usize] -= 1;
            self.touch(l);
        }
        self.paths.clear(slot);
    }

    /// Adds a flow over distinct links, at least one, in a free place.
    pub fn add(&mut self, slot: Slot, path: &[LinkId]) {
        self.paths.grow(slot);
        self.rate.resize(self.paths.slots(), 0.0);
        self.seen.resize(self.paths.slots(), 0);
        self.paths.set(slot, path);
        self.rate[slot as usize] = 0.0;
        for &l in path {
            self.pool.push(&mut self.lists[l as usize], slot);
            self.count[l as usize] += 1;
            self.touch(l);
        }
    }

    /// Updates all rates and returns each flow whose rate changed, once.
    pub fn solve(&mut self) -> &[Slot] {
        self.changed.clear();
        self.round = self.round.wrapping_add(1);
        for l in self.dirty.drain(..) {
            self.is_dirty[l as usize] = false;
            for &slot in self.pool.get(self.lists[l as usize]) {
                let s = slot as usize;
                if self.seen[s] == self.round {
                    continue;
                }
                self.seen[s] = self.round;
                let share =
                    |&l: &LinkId| self.bandwidth[l as usize] / f64::from(self.count[l as usize]);
                let rate = self
                    .paths
                    .get(slot)
                    .iter()
                    .map(share)
                    .fold(f64::INFINITY, f64::min);
                if rate != self.rate[s] {
                    self.rate[s] = rate;
                    self.changed.push(slot);
                }
            }
        }
        &self.changed
    }
}

/// Mode N (paper section 3.3, step 5): the equal split, then further rounds. In each round every
/// link divides its unused bandwidth equally among its flows that no full link limits. A flow's
/// rate rises by the least that its links offer. Rounds end when no rate grows by more than the
/// relative threshold.
///
/// Fig. 1 of the paper is lost; this rule is inferred from its text and worked example.
#[derive(Debug, Clone)]
pub struct Iterated {
    paths: Paths,
    bandwidth: Vec<f64>,
    threshold: f64,
    count: Vec<u32>,
    /// Bandwidth of each link, divided by its flows.
    share: Vec<f64>,
    load: Vec<f64>,
    open: Vec<u32>,
    offer: Vec<f64>,
    rate: Vec<f64>,
    next: Vec<f64>,
    changed: Vec<Slot>,
    /// The flows without a full link, and their links.
    unlimited: Vec<Slot>,
    partial: Vec<LinkId>,
    rounds: u64,
}

/// Relative free bandwidth below which a link counts as full.
const FULL: f64 = 1e-12;
/// A relative change of a rate up to this is none. The load of a link with many flows is rounded so
/// often that the link may never count as full.
const ROUNDED: f64 = 1e-9;

impl Iterated {
    /// A solver without flows, over links of the given bandwidths (bytes/s). `threshold` is the
    /// paper's th. If it is infinite there are no further rounds: this is mode F, computed from the
    /// beginning each time.
    pub fn new(bandwidth: impl Iterator<Item = f64>, max_hops: usize, threshold: f64) -> Self {
        let bandwidth: Vec<f64> = bandwidth.collect();
        let links = bandwidth.len();
        Self {
            paths: Paths::new(max_hops),
            bandwidth,
            threshold,
            count: vec![0; links],
            share: vec![0.0; links],
            load: vec![0.0; links],
            open: vec![0; links],
            offer: vec![0.0; links],
            rate: Vec::new(),
            next: Vec::new(),
            changed: Vec::new(),
            unlimited: Vec::new(),
            partial: Vec::new(),
            rounds: 0,
        }
    }

    /// Rounds of step 5 so far.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Rate of an active flow in bytes/s.
    #[inline]
    pub fn rate(&self, slot: Slot) -> f64 {
        self.rate[slot as usize]
    }

    /// The flows whose rate the last [`Self::solve`] set.
    pub fn changed(&self) -> &[Slot] {
        &self.changed
    }

    /// The links of an active flow.
    pub fn path(&self, slot: Slot) -> &[LinkId] {
        self.paths.get(slot)
    }

    /// Active flows: slot, path and rate.
    pub fn flows(&self) -> impl Iterator<Item = (Slot, &[LinkId], f64)> + Clone + '_ {
        let active = (0..self.paths.slots() as u32).filter(|&s| self.paths.is_active(s));
        active.map(|slot| (slot, self.paths.get(slot), self.rate(slot)))
    }

    /// Removes a flow.
    pub fn remove(&mut self, slot: Slot) {
        for &l in self.paths.get(slot) {
            self.count[l as usize] -= 1;
            self.share[l as usize] = self.bandwidth[l as usize] / f64::from(self.count[l as usize]);
        }
        self.paths.clear(slot);
    }

    /// Adds a flow over distinct links, at least one, in a free place.
    pub fn add(&mut self, slot: Slot, path: &[LinkId]) {
        self.paths.grow(slot);
        self.rate.resize(self.paths.slots(), 0.0);
        self.next.resize(self.paths.slots(), 0.0);
        self.paths.set(slot, path);
        self.rate[slot as usize] = 0.0;
        for &l in path {
            self.count[l as usize] += 1;
            self.share[l as usize] = self.bandwidth[l as usize] / f64::from(self.count[l as usize]);
        }
    }

    /// Computes all rates again, as published, and returns the flows whose rate changed.
    pub fn solve(&mut self) -> &[Slot] {
        self.load.fill(0.0);
        for slot in self.paths.active() {
            let shares = self.paths.get(slot).iter().map(|&l| self.share[l as usize]);
            let rate = shares.fold(f64::INFINITY, f64::min);
            self.next[slot as usize] = rate;
            for &l in self.paths.get(slot) {
                self.load[l as usize] += rate;
            }
        }
        if self.threshold.is_finite() {
            self.unlimited.clear();
            self.unlimited.extend(self.paths.active());
            while self.raise() > self.threshold.max(ROUNDED) {}
        }
        self.changed.clear();
        for slot in self.paths.active() {
            let s = slot as usize;
            if self.rate[s] != self.next[s] {
                self.rate[s] = self.next[s];
                self.changed.push(slot);
            }
        }
        &self.changed
    }

    /// One round of step 5; returns the largest relative change of a rate. Loads only grow, so a
    /// flow that has a full link keeps its rate in all further rounds.
    fn raise(&mut self) -> f64 {
        self.rounds += 1;
        let full = |load: f64, bandwidth: f64| load >= bandwidth * (1.0 - FULL);
        let (paths, load, bandwidth) = (&self.paths, &self.load, &self.bandwidth);
        let is_full = |&l: &LinkId| full(load[l as usize], bandwidth[l as usize]);
        self.unlimited
            .retain(|&slot| !paths.get(slot).iter().any(is_full));
        for &slot in &self.unlimited {
            for &l in self.paths.get(slot) {
                if self.open[l as usize] == 0 {
                    self.partial.push(l);
                }
                self.open[l as usize] += 1;
            }
        }
        for l in self.partial.drain(..) {
            let l = l as usize;
            self.offer[l] = (self.bandwidth[l] - self.load[l]) / f64::from(self.open[l]);
            self.open[l] = 0;
        }
        let mut largest = 0.0f64;
        for &slot in &self.unlimited {
            let offers = self.paths.get(slot).iter().map(|&l| self.offer[l as usize]);
            let raise = offers.fold(f64::INFINITY, f64::min);
            let rate = &mut self.next[slot as usize];
            largest = largest.max(raise / *rate);
            *rate += raise;
            for &l in self.paths.get(slot) {
                self.load[l as usize] += raise;
            }
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_example_of_step_5() {
        // f0 and f1 share l0; two more flows on l1 limit f0 to 1/3. Mode F leaves f1 at 1/2,
        // mode N gives it the unused sixth in its first round, and the second round ends it.
        let paths: [&[LinkId]; 4] = [&[0, 1], &[0], &[1], &[1]];
        let mut split = EqualSplit::new([1.0, 1.0].into_iter(), 2);
        let mut iterated = Iterated::new([1.0, 1.0].into_iter(), 2, 0.01);
        for (slot, path) in paths.iter().enumerate() {
            split.add(slot as Slot, path);
            iterated.add(slot as Slot, path);
        }
        assert_eq!(split.solve().len(), 4);
        assert_eq!(iterated.solve().len(), 4);
        assert_eq!((split.rate(0), split.rate(1)), (1.0 / 3.0, 0.5));
        assert_eq!(iterated.rate(0), 1.0 / 3.0);
        assert!((iterated.rate(1) - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(iterated.rounds(), 2);
    }

    /// The sum of the rates is 1.9e-12 less than the bandwidth, and what is missing is too little
    /// to change it.
    #[test]
    fn many_flows_on_a_link_end_the_rounds_without_a_threshold() {
        let mut iterated = Iterated::new([1.0].into_iter(), 1, 0.0);
        (0..100_000).for_each(|slot| iterated.add(slot, &[0]));
        assert_eq!(iterated.solve().len(), 100_000);
        assert!((iterated.rate(7) - 1e-5).abs() < 1e-13);
    }

    #[test]
    fn without_rounds_mode_n_is_mode_f() {
        let mut split = EqualSplit::new([2.0, 1.0, 4.0].into_iter(), 3);
        let mut iterated = Iterated::new([2.0, 1.0, 4.0].into_iter(), 3, f64::INFINITY);
        let paths: [&[LinkId]; 3] = [&[0, 1], &[0, 2], &[2]];
        for (slot, path) in paths.iter().enumerate() {
            split.add(slot as Slot, path);
            iterated.add(slot as Slot, path);
        }
        split.solve();
        iterated.solve();
        (0..3).for_each(|slot| assert_eq!(split.rate(slot), iterated.rate(slot)));
        assert_eq!(iterated.rounds(), 0);
    }

    #[test]
    fn incremental_equal_split_matches_the_full_one() {
        let mut split = EqualSplit::new([2.0, 1.0, 4.0].into_iter(), 3);
        split.add(0, &[0, 1]);
        split.add(1, &[0, 2]);
        split.add(2, &[2]);
        split.solve();
        assert_eq!(
            [split.rate(0), split.rate(1), split.rate(2)],
            [1.0, 1.0, 2.0]
        );
        split.remove(0);
        assert_eq!(split.solve(), [1]);
        assert_eq!(split.rate(1), 2.0);
    }
}

//! Tests of the solver against closed forms, and against a naive solver on random networks. After
//! each batch of changes, the repaired rates must equal those of a new solution.

use super::*;
use crate::platform::{LinkId, Platform};
use farcall_random::SplitMix64;

fn solve_once(bandwidth: &[f64], paths: &[&[LinkId]]) -> Vec<f64> {
    let hops = paths.iter().map(|p| p.len()).max().unwrap_or(1);
    let mut solver = MaxMin::new(bandwidth.iter().copied(), hops);
    solver.begin(0, paths.len());
    for (slot, path) in paths.iter().enumerate() {
        solver.add(slot as Slot, path);
    }
    solver.solve();
    (0..paths.len())
        .map(|slot| solver.rate(slot as Slot))
        .collect()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn closed_forms() {
    // n flows on one link: C / n each.
    assert_eq!(solve_once(&[12.0], &[&[0], &[0], &[0]]), [4.0; 3]);
    // The linear network: one long flow and a short flow on each of two links.
    // Long: min(C1, C2) / 2, short ones take the rest.
    assert_eq!(
        solve_once(&[2.0, 10.0], &[&[0, 1], &[0], &[1]]),
        [1.0, 1.0, 9.0]
    );
    // Bertsekas and Gallager, figure 6.21 by its rule: 1/3 on the crowded link, 2/3 beside it.
    let rates = solve_once(&[1.0, 1.0], &[&[0, 1], &[0], &[1], &[1]]);
    for (rate, expected) in rates
        .iter()
        .zip([1.0 / 3.0, 2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0])
    {
        assert!(close(*rate, expected));
    }
    // Three levels: 1/2 at the first link, then 1, then 2.
    assert_eq!(
        solve_once(&[1.0, 1.5, 3.0], &[&[0], &[0, 1], &[1, 2], &[2]]),
        [0.5, 0.5, 1.0, 2.0]
    );
}

/// A solver that starts afresh in the middle reports the flows that it had changed before.
#[test]
fn a_fresh_start_forgets_no_flow() {
    let paths: [&[LinkId]; 6] = [&[0, 1], &[1, 2], &[2, 3], &[3, 0], &[0, 2], &[1, 3]];
    for steps in 0..100 {
        let mut solver = MaxMin::new([1.0, 2.0, 3.5, 5.0].into_iter(), 2);
        for (slot, path) in (0..).zip(paths) {
            solver.add(slot, path);
        }
        let mut changed = solver.solve_within(steps).to_vec();
        changed.sort_unstable();
        assert_eq!(changed, [0, 1, 2, 3, 4, 5], "{steps}");
    }
}

struct Trial {
    bandwidth: Vec<f64>,
    solver: MaxMin,
    active: Vec<bool>,
    generator: SplitMix64,
    tolerance: f64,
    /// Rates so far that were not exact.
    inexact: usize,
}

impl Trial {
    fn new(bandwidth: Vec<f64>, hops: usize, slots: usize, generator: SplitMix64) -> Self {
        Self {
            solver: MaxMin::new(bandwidth.iter().copied(), hops),
            bandwidth,
            active: vec![false; slots],
            generator,
            tolerance: 0.0,
            inexact: 0,
        }
    }

    fn with_tolerance(mut self, tolerance: f64) -> Self {
        self.solver = self.solver.with_tolerance(tolerance);
        self.tolerance = tolerance;
        self
    }

    fn check(&mut self) {
        let flows: Vec<(Slot, &[LinkId], f64)> = self.solver.flows().collect();
        let paths: Vec<Vec<LinkId>> = flows.iter().map(|f| f.1.to_vec()).collect();
        let expected = naive_rates(&self.bandwidth, &paths);
        let flows_of = flows.iter().map(|f| (f.1, f.2));
        certify(&self.bandwidth, flows_of, self.tolerance + 1e-9).unwrap();
        if self.tolerance > 0.0 {
            let pairs = flows.iter().zip(&expected);
            self.inexact += pairs.filter(|(flow, rate)| !close(flow.2, **rate)).count();
            return;
        }
        for (flow, expected) in flows.iter().zip(expected) {
            assert!(
                close(flow.2, expected),
                "flow {}: {} and {expected}",
                flow.0,
                flow.2
            );
        }
    }

    fn batch(
        &mut self,
        leave: u64,
        arrive: u64,
        path: &mut dyn FnMut(&mut SplitMix64) -> Vec<LinkId>,
    ) {
        let slots = self.active.len();
        let mut leaving = Vec::new();
        for slot in 0..slots {
            if self.active[slot] && self.generator.below(100) < leave {
                self.active[slot] = false;
                leaving.push(slot as Slot);
            }
        }
        let mut arriving = Vec::new();
        for slot in 0..slots {
            if !self.active[slot] && self.generator.below(100) < arrive {
                self.active[slot] = true;
                arriving.push(slot as Slot);
            }
        }
        self.solver.begin(leaving.len(), arriving.len());
        leaving.iter().for_each(|&slot| self.solver.remove(slot));
        for &slot in &arriving {
            let path = path(&mut self.generator);
            self.solver.add(slot, &path);
        }
        self.solver.solve();
        self.check();
    }
}

#[test]
fn repair_gives_the_rates_of_the_naive_solver_on_random_networks() {
    for seed in 0..40 {
        let mut generator = SplitMix64::new(seed);
        let links = 2 + generator.below(20) as usize;
        let hops = 1 + generator.below(links.min(6) as u64) as usize;
        // Few distinct bandwidths make many ties.
        let bandwidth: Vec<f64> = (0..links)
            .map(|_| 1.0 + generator.below(3) as f64)
            .collect();
        let mut trial = Trial::new(bandwidth, hops, 30, generator);
        for step in 0..40 {
            let share = [5, 20, 60, 100][step % 4];
            trial.batch(share, share, &mut |g| {
                let mut path: Vec<LinkId> = (0..links as u32).collect();
                for i in 0..hops {
                    let j = i + g.below((links - i) as u64) as usize;
                    path.swap(i, j);
                }
                path.truncate(1 + g.below(hops as u64) as usize);
                path
            });
        }
    }
}

#[test]
fn repair_gives_the_rates_of_the_naive_solver_on_platforms() {
    for spec in [
        "torus:4x4",
        "fat-tree:ports=4,levels=3",
        "dragonfly:routers=2,global=1",
    ] {
        try_platform(spec, 0.0);
    }
}

#[test]
fn repair_with_a_tolerance_is_exact_for_bandwidths_within_it() {
    for spec in ["torus:6x6x6", "torus:12x12"] {
        for tolerance in [0.03, 0.1] {
            let inexact = try_platform(spec, tolerance);
            assert!(inexact > 0, "{spec}, {tolerance}: nothing was saved");
        }
    }
}

/// Runs flows between random nodes of a platform. Returns the number of rates that were not exact.
fn try_platform(spec: &str, tolerance: f64) -> usize {
    let platform = Platform::parse(spec).unwrap();
    let bandwidth: Vec<f64> = (0..platform.links())
        .map(|l| platform.bandwidth(l as LinkId))
        .collect();
    let n = platform.nodes() as u64;
    let (hops, generator) = (platform.max_hops(), SplitMix64::new(7));
    let mut trial = Trial::new(bandwidth, hops, n as usize, generator);
    trial = trial.with_tolerance(tolerance);
    for step in 0..60 {
        let share = [6, 6, 6, 100][step % 4];
        trial.batch(share, 100, &mut |g| {
            let src = g.below(n) as u32;
            let dst = (src + 1 + g.below(n - 1) as u32) % n as u32;
            let mut out = vec![0; platform.max_hops()];
            let len = platform.route(src, dst, &mut out);
            out.truncate(len);
            out
        });
    }
    trial.inexact
}

#[test]
fn changed_flows_are_reported_once_and_completely() {
    let mut solver = MaxMin::new([1.0, 1.0].into_iter(), 2);
    solver.begin(0, 3);
    solver.add(0, &[0]);
    solver.add(1, &[0, 1]);
    solver.add(2, &[1]);
    let mut changed = solver.solve().to_vec();
    changed.sort_unstable();
    assert_eq!(changed, [0, 1, 2]);
    solver.begin(1, 0);
    solver.remove(0);
    solver.solve();
    assert_eq!(solver.rate(1), 0.5, "flow 1 is held at 1/2 by link 1");
    solver.begin(1, 0);
    solver.remove(2);
    assert_eq!(solver.solve(), [1]);
    assert_eq!(solver.rate(1), 1.0);
}

#[test]
fn the_certificate_refuses_wrong_rates() {
    let paths: [&[LinkId]; 2] = [&[0], &[0]];
    let check = |rates: [f64; 2]| certify(&[1.0], paths.iter().copied().zip(rates), 1e-9);
    assert!(check([0.5, 0.5]).is_ok());
    assert!(matches!(check([0.6, 0.6]), Err(Violation::Overload { .. })));
    assert!(matches!(
        check([0.4, 0.6]),
        Err(Violation::NoBottleneck { flow: 0, .. })
    ));
    assert!(matches!(
        check([0.4, 0.4]),
        Err(Violation::NoBottleneck { .. })
    ));
}

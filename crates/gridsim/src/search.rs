//! Searches for the best placement, with knowledge of all calls in advance. It is a random local
//! search, so its result is an upper bound of the least cost and not the least cost itself. The
//! seed is fixed, so a scenario always gives the same result.

use crate::{Outcome, Scenario, simulate};
use farcall_random::SplitMix64;
use farcall_schedule::placement::Policy;

/// The least cost that a random local search finds.
///
/// It starts from the servers of the calls in `scenario`; calls without one go to the first. Each
/// step moves one or two random calls to other servers and keeps the change unless the cost rises.
/// The search calls `each_step` after every step.
pub fn best_assignment(
    mut scenario: Scenario,
    cost: impl Fn(&Outcome) -> f64,
    steps: usize,
    mut each_step: impl FnMut(),
) -> f64 {
    let machines = scenario.machines.len() as u64;
    let arrivals = scenario.arrivals.iter_mut();
    arrivals.for_each(|one| one.server = one.server.or(Some(0)));
    let cost = |scenario: &Scenario| cost(&simulate(scenario, Policy::default()));
    let mut best = cost(&scenario);
    let count = scenario.arrivals.len() as u64;
    if count == 0 || machines < 2 {
        return best;
    }
    let random = &mut SplitMix64::new(7);
    for _ in 0..steps {
        let before = scenario.arrivals.clone();
        for _ in 0..=random.below(2) {
            let call = random.below(count) as usize;
            let further = 1 + random.below(machines - 1);
            let server = scenario.arrivals[call].server.unwrap_or(0) as u64;
            scenario.arrivals[call].server = Some(((server + further) % machines) as usize);
        }
        let tried = cost(&scenario);
        match tried <= best {
            true => best = tried,
            false => scenario.arrivals = before,
        }
        each_step();
    }
    best
}

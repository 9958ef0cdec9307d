//! Searches for the best placement, with knowledge of all calls in advance. It is a random local
//! search, so its result is an upper bound of the least cost and not the least cost itself. The
//! seed is fixed, so a scenario always gives the same result.

use crate::{Outcome, Scenario, simulate_assigned};
use farcall_random::SplitMix64;

/// The least cost that a random local search finds.
///
/// `servers` is the assignment to start from: the server of each call. Each step moves one or two
/// random calls to other servers and keeps the change unless the cost rises. The search calls
/// `each_step` after every step.
pub fn best_assignment(
    scenario: &Scenario,
    mut servers: Vec<usize>,
    cost: impl Fn(&Outcome) -> f64,
    steps: usize,
    mut each_step: impl FnMut(),
) -> f64 {
    let (count, machines) = (servers.len() as u64, scenario.machines.len() as u64);
    let mut best = cost(&simulate_assigned(scenario, &servers));
    if count == 0 || machines < 2 {
        return best;
    }
    let random = &mut SplitMix64::new(7);
    for _ in 0..steps {
        let before = servers.clone();
        for _ in 0..=random.below(2) {
            let call = random.below(count) as usize;
            let further = 1 + random.below(machines - 1);
            servers[call] = ((servers[call] as u64 + further) % machines) as usize;
        }
        let tried = cost(&simulate_assigned(scenario, &servers));
        match tried <= best {
            true => best = tried,
            false => servers = before,
        }
        each_step();
    }
    best
}

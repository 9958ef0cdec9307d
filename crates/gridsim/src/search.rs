//! The best that can be done by who knows all calls beforehand.

use crate::{Outcome, Scenario, simulate_assigned};
use farcall_random::SplitMix64;

/// The least cost that a search finds which gives every call a server: from an assignment, one
/// that belongs to each call, it moves one call or two at a time to another server as long as that
/// helps. `each_step` is called after every one of the steps.
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

//! Finds the best assignment of the same calls, in a simulation with the measured speeds.
//! `farcall_gridsim` simulates. A call takes as long in the simulation as it took at the server
//! where it really ran.

use super::calls::{Made, Planned, Speed};
use super::round::Round;
use super::world::LINKS;
use crate::load::problem::Problem;
use farcall_gridsim::{
    Arrival, Function, Machine, Outcome, Port, Scenario, Site, best_assignment, simulate,
};
use farcall_schedule::placement::Policy;
use indicatif::ProgressBar;

/// Payload of full frames, as a part of the link's rate.
const PAYLOAD: f64 = 1448.0 / 1538.0;

/// Simulated costs of the calls: as they were placed, as the default policy places them in the
/// simulation, and as a search places them.
pub(super) struct Simulated {
    pub(super) placed: f64,
    pub(super) policy: f64,
    pub(super) best: f64,
}

/// The run under the default policy as a scenario for the simulator. Each computation takes as long
/// as it did at the server where the call was placed. At the other server its time is in proportion
/// to the speeds.
pub(super) fn scenario(plan: &[Planned], round: &Round) -> Scenario {
    let machine = |(speed, [_, down]): (&Speed, [u64; 2])| {
        let [linpack, ep] = speed.operations;
        let port = Port {
            up: speed.up,
            down: down as f64 / 8.0 * PAYLOAD,
            latency_s: 1e-4,
        };
        Machine::new(1, [linpack, ep, linpack], port)
    };
    let machines: Vec<Machine> = round.speeds.iter().zip(LINKS).map(machine).collect();
    let arrival = |(one, made): (&Planned, &Made)| {
        let size = one.problem.size() as u32;
        let function = match one.problem {
            Problem::Ep(_) => Function::Ep,
            _ => Function::Linpack,
        };
        let arrival = Arrival::new(function, size);
        let pace = &machines[made.server].functions[arrival.function];
        let usual_s = pace.seconds(arrival.work, 1).unwrap_or(f64::NAN);
        Arrival {
            at_s: one.at * round.window_s,
            most: 1,
            noise: made.times.exec / usual_s,
            ..arrival
        }
    };
    let arrivals = plan.iter().zip(&round.runs[0]).map(arrival).collect();
    Scenario {
        arrivals,
        machines,
        paths: Default::default(),
        sites: vec![Site {
            port: Port {
                up: 1.25e9,
                down: 1.25e9,
                latency_s: 1e-4,
            },
        }],
    }
}

pub(super) fn simulated(
    scenario: &Scenario,
    made: &[Made],
    cost: fn(&Outcome) -> f64,
    steps: usize,
    bar: &ProgressBar,
) -> Simulated {
    let mut as_placed = scenario.clone();
    for (arrival, one) in as_placed.arrivals.iter_mut().zip(made) {
        arrival.server = Some(one.server);
    }
    let placed = cost(&simulate(&as_placed, Policy::Completion));
    let best = best_assignment(as_placed, cost, steps, || bar.inc(1));
    let policy = cost(&simulate(scenario, Policy::Completion));
    Simulated {
        placed,
        policy,
        best,
    }
}

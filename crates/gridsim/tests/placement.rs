//! Compares the default placement with the simple policies, on random scenarios with fixed seeds.
//! The default must be better in most scenarios and never much worse. A scenario must give the same
//! outcome in every run.

use farcall_gridsim::{Arrival, Function, Machine, Outcome, Port, Scenario, Site, simulate};
use farcall_schedule::placement::Policy;

/// Number of servers, from two to fifty.
fn servers(seed: u64) -> usize {
    (2.0 * 25f64.powf(seed as f64 / 19.0)).round() as usize
}

/// Makespan and mean response.
fn figures(outcome: &Outcome) -> [f64; 2] {
    [outcome.makespan_s(), outcome.mean_response_s()]
}

#[test]
fn the_default_is_better_than_round_robin_and_least_load() {
    let (mut better, mut worst, mut off) = (0, 0.0f64, Vec::new());
    for seed in 0..20 {
        let scenario = Scenario::random(seed, servers(seed));
        let default = simulate(&scenario, Policy::Completion);
        assert_eq!(default.records.len(), scenario.arrivals.len());
        // A prediction does not know later calls that share a link.
        off.push(default.median_error(50));
        let mine = figures(&default);
        let others = [
            Policy::RoundRobin,
            Policy::LeastLoad,
            Policy::LoadAndThroughput,
        ]
        .map(|policy| figures(&simulate(&scenario, policy)));
        let ratios = others.map(|other| [mine[0] / other[0], mine[1] / other[1]]);
        let worse = ratios[..2].iter().flatten().copied().fold(0.0, f64::max);
        println!(
            "seed {seed}, {} servers: {mine:.2?} s; of round-robin {:.2?}, least load {:.2?}, \
             load and throughput {:.2?}",
            servers(seed),
            ratios[0],
            ratios[1],
            ratios[2]
        );
        better += usize::from(worse < 1.0);
        worst = worst.max(worse);
    }
    println!("better in {better} of 20, at worst {worst:.2} times as long");
    off.sort_by(f64::total_cmp);
    println!("median errors of the predicted times: {off:.2?}");
    assert!(off[10] < 0.3, "{off:?}");
    assert!(better >= 18 && worst <= 1.1, "{better} of 20, {worst}");
}

#[test]
fn a_seed_always_gives_the_same() {
    let scenario = Scenario::random(3, 5);
    for (_, policy) in Policy::NAMES {
        assert_eq!(simulate(&scenario, policy), simulate(&scenario, policy));
    }
}

/// Calls of one site at one server with a processor, whose links move this many bytes a second.
fn one_server(operations: f64, rate: f64, arrivals: Vec<Arrival>) -> Scenario {
    let port = Port {
        up: rate,
        down: rate,
        latency_s: 0.0,
    };
    Scenario {
        machines: vec![Machine::new(1, [operations; 3], port)],
        sites: vec![Site { port }],
        paths: Default::default(),
        arrivals,
    }
}

/// The server had to look through all its calls at the end of each.
#[test]
fn a_long_queue_costs_little_for_each_call() {
    const CALLS: usize = 200_000;
    let call = Arrival {
        server: Some(0),
        ..Arrival::new(Function::Ep, 20)
    };
    let arrival = |number: usize| Arrival {
        at_s: number as f64 / 10.0,
        ..call
    };
    let scenario = one_server(call.work, 1e9, (0..CALLS).map(arrival).collect());
    let outcome = simulate(&scenario, Policy::Completion);
    assert!((outcome.makespan_s() / CALLS as f64 - 1.0).abs() < 1e-6);
    assert!((outcome.mean_response_s() / (0.45 * CALLS as f64) - 1.0).abs() < 1e-4);
}

/// Each decision took the square of the number of transfers.
#[test]
fn many_transfers_to_a_server_cost_little_for_each_decision() {
    const CALLS: usize = 2000;
    const RATE: f64 = 1e6;
    let sizes = [900, 100, 500, 1200, 300];
    let arrival = |number: usize| Arrival {
        at_s: number as f64 / 1000.0,
        ..Arrival::new(Function::Linpack, sizes[number % sizes.len()])
    };
    let scenario = one_server(1e12, RATE, (0..CALLS).map(arrival).collect());
    let outcome = simulate(&scenario, Policy::Completion);
    let bytes: u64 = scenario.arrivals.iter().map(|one| one.up_bytes).sum();
    assert!((outcome.makespan_s() / (bytes as f64 / RATE) - 1.0).abs() < 0.01);
}

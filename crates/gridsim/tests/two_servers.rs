//! Two servers, one near and slow, one far and fast. The tests compare the default placement with
//! the simple policies and with the best assignment that a long search finds.

use farcall_gridsim::best_assignment;
use farcall_gridsim::{Arrival, Function, Machine, Outcome, Port, Scenario, Site, simulate};
use farcall_random::SplitMix64;
use farcall_schedule::placement::Policy;

const MBIT: f64 = 1e6 / 8.0;

type Cost = fn(&Outcome) -> f64;

/// Links of 100 and 10 Mbit/s up, 60 and 25 down; half a processor and a whole one; 200 calls of
/// Linpack and EP within a minute, which is about four fifths of the capacity of both servers. If
/// the calls exceed the capacity, a search that knows the future finds far better mean times than
/// any policy that does not.
fn scenario(seed: u64) -> Scenario {
    let machine = |speed: f64, up: f64, down: f64| {
        let port = Port {
            up: up * MBIT,
            down: down * MBIT,
            latency_s: 1e-3,
        };
        Machine::new(1, [speed; 3], port)
    };
    let site = Site {
        port: Port {
            up: 1000.0 * MBIT,
            down: 1000.0 * MBIT,
            latency_s: 1e-4,
        },
    };
    let random = &mut SplitMix64::new(seed);
    let mut arrivals: Vec<Arrival> = (0..200)
        .map(|_| Arrival {
            at_s: random.below(60_000) as f64 / 1000.0,
            most: 1,
            noise: 0.8 + random.below(400) as f64 / 1000.0,
            ..match random.below(2) {
                0 => Arrival::new(Function::Linpack, 100 + random.below(1100) as u32),
                _ => Arrival::new(Function::Ep, 24 + random.below(6) as u32),
            }
        })
        .collect();
    arrivals.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    Scenario {
        machines: vec![machine(5e8, 100.0, 60.0), machine(1e9, 10.0, 25.0)],
        sites: vec![site],
        paths: Default::default(),
        arrivals,
    }
}

#[test]
fn the_default_is_a_quarter_better_and_near_the_best_assignment() {
    let costs: [(&str, Cost); 2] = [
        ("makespan", Outcome::makespan_s),
        ("mean response", Outcome::mean_response_s),
    ];
    let scenario = scenario(1);
    let default = simulate(&scenario, Policy::Completion);
    let error = default.median_error(50);
    println!("median error of the predicted times after 50 calls: {error:.3}");
    assert!(error <= 0.15, "{error}");
    for (name, cost) in costs {
        let mine = cost(&default);
        let mut start = scenario.clone();
        for (arrival, one) in start.arrivals.iter_mut().zip(&default.records) {
            arrival.server = Some(one.server);
        }
        let best = best_assignment(start, cost, 1500, || ());
        println!("{name}: {mine:.2} s, the best found {best:.2} s");
        for policy in [
            Policy::RoundRobin,
            Policy::LeastLoad,
            Policy::LoadAndThroughput,
        ] {
            let other = cost(&simulate(&scenario, policy));
            println!("  {}: {other:.2} s", policy.name());
            let simple = policy != Policy::LoadAndThroughput;
            assert!(!simple || mine <= 0.75 * other, "{name}: {mine} {other}");
        }
        assert!(mine <= 1.15 * best, "{name}: {mine} {best}");
    }
}

//! What a simulation says of calls that were not made. Such a figure is 0 or not a number, and
//! never infinite.

use farcall_gridsim::{
    Arrival, Crowd, Function, Host, Load, Outcome, Port, Repeated, simulate_load,
};
use farcall_schedule::queue::Policy;

const PORT: Port = Port {
    up: 1e7,
    down: 1e7,
    latency_s: 0.0,
};

#[test]
fn the_mean_of_no_calls_is_0_and_not_its_negative() {
    let mean_s = Outcome::default().mean_response_s();
    assert!(mean_s == 0.0 && mean_s.is_sign_positive());
}

#[test]
fn a_site_none_of_whose_calls_was_measured_has_no_rates() {
    let crowd = Crowd {
        clients: 1,
        line: 1e7,
        port: PORT,
    };
    let load = Load {
        seed: 1,
        host: Host {
            pes: 4,
            policy: Policy::Fcfs,
            background: 0.0,
            byte_s: 0.0,
            startup_s: 0.0,
            port: PORT,
        },
        sites: vec![crowd.clone(), crowd],
        repeated: Repeated {
            call: Arrival::new(Function::Linpack, 600),
            seconds: 1.0,
            threads: 1,
            busy: 1.0,
        },
        step_s: 1.0,
        probability: 0.5,
        calls: 1,
    };
    let sites = simulate_load(&load).sites;
    let measured = sites.iter().filter(|site| site.bytes_per_s.mean > 0.0);
    assert_eq!(measured.count(), 1);
    let spreads = sites
        .iter()
        .flat_map(|site| [site.bytes_per_s, site.operations_per_s]);
    let figures = spreads.flat_map(|spread| [spread.max, spread.min, spread.mean]);
    assert_eq!(figures.filter(|figure| figure.is_nan()).count(), 6);
}

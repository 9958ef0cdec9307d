//! Any text as a pattern file: it is read, or refused with a reason. A pattern that is read runs to
//! its end or to a deadlock, and each batch of flows passes the max-min certificate.

use farcall_flow::{Config, Limits, Placement, Platform, RunError, Script, Simulation, Workload};

/// Bounds that keep one input short.
const LIMITS: Limits = Limits {
    ranks: 16,
    operations: 64,
};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    let script = match Script::parse_csv(text, LIMITS) {
        Ok(script) => script,
        Err(error) => return assert!(!error.reason.is_empty()),
    };
    let platform = Platform::parse("torus:4x4,bandwidth=1e9,latency=1us").unwrap();
    let config = Config {
        verify: true,
        link_bytes: true,
        ..Config::default()
    };
    let messages = script.messages();
    let workload = Workload::Script(script);
    let mut simulation =
        Simulation::new(&platform, workload, Placement::random(16, 1), config).unwrap();
    match simulation.run() {
        Ok(summary) => assert_eq!(summary.messages, messages),
        Err(RunError::Deadlock(deadlock)) => assert!(!deadlock.blocked.is_empty()),
        Err(other) => panic!("{other}"),
    }
}

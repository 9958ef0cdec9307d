//! Any text as a GOAL trace: it is read, or refused with a line number. A trace that is read runs
//! to its end or to a deadlock, as flows and as packets, on hosts without and with costs.

use farcall_flow::{
    ANY_RANK, ANY_TAG, Config, Goal, Limits, LogGops, Operation, PacketConfig, PacketSimulation,
    Placement, Platform, RunError, Simulation, Workload,
};

/// Bounds that keep one input short.
pub(crate) const LIMITS: Limits = Limits {
    ranks: 16,
    operations: 64,
};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    match Goal::parse(text, LIMITS) {
        Ok(goal) => simulate(&goal),
        Err(error) => assert!(!error.reason.is_empty()),
    }
}

/// Runs a trace to its end or to a deadlock.
pub(crate) fn simulate(goal: &Goal) {
    let costs = LogGops::parse("L=2500,o=1500,g=1000,G=6,O=1,S=100").unwrap();
    run_as_both(goal.clone());
    run_as_both(goal.clone().with_hosts(costs));
}

fn run_as_both(goal: Goal) {
    let platform = Platform::parse("fat-tree:ports=4,levels=3,bandwidth=1e9").unwrap();
    let small = goal.operations().iter().all(|operation| match operation {
        Operation::Send { bytes, .. } => *bytes < 1e5,
        _ => true,
    });
    // The first message that arrives decides which one such a receive takes. That may be another
    // message in the other model, and then another receive waits forever.
    let has_race = goal.operations().iter().any(|operation| match operation {
        Operation::Receive { from, tag } => *from == ANY_RANK || *tag == ANY_TAG,
        _ => false,
    });
    let workload = Workload::Goal(goal);
    let config = Config {
        verify: true,
        ..Config::default()
    };
    let flows = Simulation::new(&platform, workload.clone(), Placement::regular(), config)
        .unwrap()
        .run();
    if small {
        let config = PacketConfig::default();
        let packets = PacketSimulation::new(&platform, workload, Placement::regular(), config)
            .unwrap()
            .run();
        assert!(has_race || flows.is_ok() == packets.is_ok());
    }
    match flows {
        Ok(_) => {}
        Err(RunError::Deadlock(deadlock)) => assert!(!deadlock.to_string().is_empty()),
        Err(other) => panic!("{other}"),
    }
}

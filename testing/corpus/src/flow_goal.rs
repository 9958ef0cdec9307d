//! Any text as a GOAL trace: it is read, or refused with a line number. A trace that is read runs
//! to its end or to a deadlock, as flows and as packets.

use farcall_flow::{
    Config, Goal, Limits, PacketConfig, PacketSimulation, Placement, Platform, RunError,
    Simulation, Workload,
};

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
    let goal = match Goal::parse(text, LIMITS) {
        Ok(goal) => goal,
        Err(error) => return assert!(!error.reason.is_empty()),
    };
    let platform = Platform::parse("fat-tree:ports=4,levels=3,bandwidth=1e9").unwrap();
    let small = goal.operations().iter().all(|operation| match operation {
        farcall_flow::Operation::Send { bytes, .. } => *bytes < 1e5,
        _ => true,
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
        assert_eq!(flows.is_ok(), packets.is_ok());
    }
    match flows {
        Ok(_) => {}
        Err(RunError::Deadlock(deadlock)) => assert!(!deadlock.to_string().is_empty()),
        Err(other) => panic!("{other}"),
    }
}

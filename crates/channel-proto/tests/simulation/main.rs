//! Simulates whole gang jobs over a faulty network in virtual time. A seed reproduces every run.

mod network;

use network::{Faults, run};

/// The plan of a small gang job with an event at one step.
fn small(seed: u64) -> Faults {
    Faults {
        seed,
        nodes: 32,
        messages: 12,
        ..Faults::default()
    }
}

#[test]
fn a_quiet_network_loses_nothing() {
    let outcome = run(&small(1));
    assert_eq!(outcome.delivered, outcome.expected);
    assert_eq!(outcome.transmissions, outcome.packets, "nothing sent twice");
}

#[test]
fn a_bad_network_loses_nothing() {
    for seed in 0..12 {
        let faults = Faults {
            loss: 0.1,
            duplication: 0.1,
            reordering: 0.3,
            ..small(seed)
        };
        let outcome = run(&faults);
        assert_eq!(outcome.delivered, outcome.expected, "seed {seed}");
    }
}

#[test]
fn preemption_at_every_step() {
    let steps = run(&small(7)).steps;
    for step in (1..steps).step_by(9) {
        for drain in [true, false] {
            let faults = Faults {
                preempt_at: Some(step),
                drain,
                loss: 0.02,
                duplication: 0.02,
                reordering: 0.1,
                ..small(7)
            };
            let outcome = run(&faults);
            assert_eq!(outcome.delivered, outcome.expected, "step {step} {drain}");
            assert_eq!(outcome.switches, 1, "step {step}");
        }
    }
}

#[test]
fn preempted_again_and_again_with_copied_contexts() {
    for seed in 0..6 {
        for drain in [true, false] {
            let faults = Faults {
                messages: 40,
                preempt_every: Some(100_000),
                drain,
                copied: true,
                loss: 0.05,
                duplication: 0.05,
                reordering: 0.2,
                receive_fifo: 6,
                ..small(seed)
            };
            let outcome = run(&faults);
            assert_eq!(outcome.delivered, outcome.expected, "seed {seed} {drain}");
            assert!(outcome.switches > 3, "seed {seed}: {}", outcome.switches);
        }
    }
}

#[test]
fn a_full_receiver_becomes_stationary() {
    // Nothing is consumed until the gang switch is over, so every answer is a Nack.
    let faults = Faults {
        receive_fifo: 2,
        preempt_at: Some(1_500),
        consume_after_switch: true,
        drain: true,
        ..small(3)
    };
    let outcome = run(&faults);
    assert_eq!(outcome.switches, 1);
    assert!(outcome.nacks > 0);
    assert_eq!(outcome.delivered, outcome.expected);
}

#[test]
fn messages_of_a_killed_job_are_not_delivered() {
    for seed in 0..8 {
        let faults = Faults {
            kill_at: Some(300 + 131 * seed as usize),
            loss: 0.05,
            duplication: 0.2,
            reordering: 0.5,
            ..small(seed)
        };
        // A second gang job immediately takes the nodes, ranks and channels of the killed one.
        let outcome = run(&faults);
        assert_eq!(outcome.delivered, outcome.expected, "seed {seed}");
        assert!(
            outcome.strays > 0,
            "seed {seed}: nothing of the killed job was under way"
        );
    }
}

/// A node is lost at any step, also in the middle of a gang switch. The messages between the other
/// nodes arrive, and their gang switches finish.
#[test]
fn a_crashed_node_does_not_block_the_others() {
    for seed in 0..24u16 {
        for drain in [true, false] {
            let faults = Faults {
                crash: Some((100 + 67 * usize::from(seed), seed)),
                preempt_every: Some(100_000),
                messages: 40,
                drain,
                loss: 0.05,
                duplication: 0.05,
                reordering: 0.2,
                ..small(seed.into())
            };
            let outcome = run(&faults);
            assert_eq!(outcome.delivered, outcome.expected, "seed {seed} {drain}");
            assert!(
                outcome.strays > 0,
                "seed {seed}: nobody sent to the lost node"
            );
            assert!(outcome.switches > 1, "seed {seed}");
        }
    }
}

#[test]
fn a_thousand_nodes() {
    for (nodes, drain) in [(256, true), (1024, false)] {
        let faults = Faults {
            nodes,
            messages: 3,
            preempt_every: Some(300_000),
            drain,
            loss: 0.02,
            duplication: 0.02,
            reordering: 0.1,
            ..small(u64::from(nodes))
        };
        let outcome = run(&faults);
        assert_eq!(outcome.delivered, outcome.expected, "{nodes} nodes");
        assert!(outcome.switches > 0);
    }
}

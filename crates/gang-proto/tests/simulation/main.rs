//! Simulates a whole gang in virtual time: the root, a switch at each daemon, processes that work
//! in their slices, and front ends. Daemons join late, are lost, fall silent, or answer slowly.
//! Gang jobs start, end, are stopped, judged, moved and killed. A seed reproduces a failure.

mod world;

use world::{Faults, World};

/// Runs the seeds, and says which one failed. Gang jobs must have been moved in some of them.
fn run(seeds: std::ops::Range<u64>, faults: Faults) {
    let mut moved = 0;
    for seed in seeds {
        let result = std::panic::catch_unwind(|| World::new(seed, faults).run());
        match result {
            Ok(count) => moved += count,
            Err(cause) => {
                eprintln!("seed {seed} of {faults:?}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(moved > 5, "{moved} gang jobs were moved");
}

#[test]
fn jobs_share_one_node() {
    let faults = Faults {
        nodes: 1,
        ..Faults::default()
    };
    run(0..100, faults);
}

#[test]
fn jobs_share_a_tree_of_daemons() {
    run(0..200, Faults::default());
}

#[test]
fn a_lost_daemon_ends_only_its_own_processes() {
    let faults = Faults {
        losses: 4,
        ..Faults::default()
    };
    run(0..200, faults);
}

#[test]
fn slow_answers_do_not_block_forever() {
    let faults = Faults {
        losses: 2,
        slow: 0.05,
        ..Faults::default()
    };
    run(0..200, faults);
}

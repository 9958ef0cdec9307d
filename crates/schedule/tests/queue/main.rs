//! Tests of queues in virtual time, under random loads with fixed seeds. They check that no two
//! jobs share a processor element, that every job ends, that no job starves, and that each policy
//! does what it promises.

mod deadlines;
mod expected;
mod simulation;

use farcall_random::SplitMix64;
use farcall_schedule::Policy;
use farcall_schedule::queue::{Patience, Queue, Reason, Request, Settings, Start};
use simulation::{Load, Run, run};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 60;

fn settings(policy: Policy, pes: u32) -> Settings {
    Settings {
        policy,
        half_life_s: None,
        ..Settings::new(pes)
    }
}

/// Loads from half of the machine's capacity to one and a half times that.
fn loads(seed: u64) -> Load {
    Load {
        seed,
        pes: 1 + (seed % 16) as u32,
        jobs: 400,
        users: 1 + seed % 5,
        pressure: 0.5 + (seed % 11) as f64 / 10.0,
        widths: true,
        moldable: seed.is_multiple_of(3),
        priorities: seed.is_multiple_of(4),
    }
}

#[test]
fn no_two_jobs_share_a_processor_element_and_every_job_ends() {
    for seed in 0..SEEDS {
        for (name, policy) in Policy::NAMES.into_iter().skip(1) {
            let load = loads(seed);
            let shares = (seed % 2 == 0).then_some(10.0);
            let queue = Queue::new(Settings {
                half_life_s: shares,
                most_running: if seed % 7 == 0 { 3 } else { usize::MAX },
                ..settings(policy, load.pes)
            });
            // The run knows who has each processor element, and panics if one is given away twice.
            let done = run(&load, queue);
            assert_eq!(done.ended.len(), load.jobs, "{name}, seed {seed}");
            assert!(done.most_running <= if seed % 7 == 0 { 3 } else { usize::MAX });
        }
    }
}

#[test]
fn a_given_number_of_processor_elements_lies_in_the_range_asked_for() {
    for seed in 0..SEEDS {
        let load = Load {
            moldable: true,
            ..loads(seed)
        };
        let done = run(&load, Queue::new(settings(Policy::Fpfs, load.pes)));
        let mut shapes = BTreeSet::new();
        for job in &done.ended {
            let (fewest, most) = (job.request.fewest, job.request.most.min(load.pes));
            assert!((fewest..=most.max(fewest)).contains(&job.pes));
            shapes.insert(job.pes);
        }
        assert!(
            load.pes < 4 || shapes.len() > 1,
            "seed {seed}: all jobs alike"
        );
    }
}

#[test]
fn shortest_job_first_has_the_least_mean_response() {
    let mut gain = 0.0;
    for seed in 0..SEEDS {
        // Jobs that take the whole machine: then the theorem holds on every trace.
        let whole = Load {
            pes: 1,
            widths: false,
            moldable: false,
            priorities: false,
            ..loads(seed)
        };
        let [fcfs, sjf] = [Policy::Fcfs, Policy::Sjf]
            .map(|policy| run(&whole, Queue::new(settings(policy, 1))).mean_response());
        assert!(
            sjf <= fcfs * (1.0 + 1e-9),
            "seed {seed}: {sjf} against {fcfs}"
        );
        // Several jobs at a time, each on one element.
        let beside = Load { pes: 4, ..whole };
        let [fcfs, sjf] = [Policy::Fcfs, Policy::Sjf]
            .map(|policy| run(&beside, Queue::new(settings(policy, 4))).mean_response());
        assert!(
            sjf <= fcfs * (1.0 + 1e-9),
            "seed {seed}: {sjf} against {fcfs}"
        );
        gain += (fcfs / sjf).ln() / SEEDS as f64;
    }
    assert!(gain.exp() > 1.3, "only {} times shorter", gain.exp());
}

#[test]
fn jobs_that_fit_keep_more_of_the_machine_busy() {
    let mut sums = [0.0; 3];
    for seed in 0..SEEDS {
        let load = Load {
            pes: 8 + (seed % 9) as u32,
            pressure: 1.5,
            moldable: false,
            priorities: false,
            ..loads(seed)
        };
        let policies = [Policy::Fcfs, Policy::Fpfs, Policy::Fmpfs];
        let utilisations = policies
            .map(|policy| run(&load, Queue::new(settings(policy, load.pes))).utilisation(load.pes));
        let [fcfs, fpfs, fmpfs] = utilisations;
        assert!(fpfs >= fcfs, "seed {seed}: {fpfs} against {fcfs}");
        assert!(fmpfs >= fcfs, "seed {seed}: {fmpfs} against {fcfs}");
        for (sum, utilisation) in sums.iter_mut().zip(utilisations) {
            *sum += utilisation / SEEDS as f64;
        }
    }
    let [fcfs, fpfs, fmpfs] = sums;
    assert!(
        fpfs > fcfs + 0.03 && fmpfs > fcfs + 0.03,
        "{fcfs} {fpfs} {fmpfs}"
    );
}

/// A wide or long job among many short ones. Without a bound, it would starve.
fn longest_pass(policy: Policy, patience: Patience, seed: u64) -> (Run, f64) {
    let load = Load {
        seed,
        pes: 8,
        jobs: 1500,
        users: 1,
        pressure: 1.3,
        widths: true,
        moldable: false,
        priorities: seed.is_multiple_of(2),
    };
    let queue = Queue::new(Settings {
        patience,
        ..settings(policy, load.pes)
    });
    let done = run(&load, queue);
    let worst = done.worst_oldest_wait();
    (done, worst)
}

#[test]
fn nobody_starves_beyond_the_bound() {
    const BOUND_S: f64 = 30.0;
    let none = Patience {
        time: u64::MAX,
        passes: u64::MAX,
    };
    let by_time = Patience {
        time: (BOUND_S * 1e9) as u64,
        ..none
    };
    let by_passes = Patience { passes: 20, ..none };
    let mut would_starve = 0;
    for seed in 0..20 {
        for policy in [Policy::Sjf, Policy::Fpfs, Policy::Fmpfs] {
            let (_, without) = longest_pass(policy, none, seed);
            would_starve += usize::from(without > 2.0 * BOUND_S);
            // After the bound, the running jobs that hold the processor elements must end first.
            let (done, with) = longest_pass(policy, by_time, seed);
            let bound = BOUND_S + done.longest_run();
            assert!(
                with <= bound,
                "{policy:?}, seed {seed}: {with} s, bound {bound} s"
            );
            let (done, _) = longest_pass(policy, by_passes, seed);
            // One more start can be decided at the moment when the count is reached.
            let most = done.most_passes();
            assert!(
                most <= 21,
                "{policy:?}, seed {seed}: passed over {most} times"
            );
        }
    }
    assert!(
        would_starve > 10,
        "the load starves nobody, and shows nothing"
    );
}

#[test]
fn shares_of_users_become_equal() {
    for seed in 0..20 {
        // Four users who always have waiting jobs, from long ones to short ones.
        let mut queue = Queue::new(Settings {
            half_life_s: Some(500.0),
            ..settings(Policy::Fcfs, 4)
        });
        let used = simulation::saturate(&mut queue, &[8.0, 4.0, 1.0, 0.5], 4000.0, seed);
        let mean = used.iter().sum::<f64>() / 4.0;
        for (user, seconds) in used.iter().enumerate() {
            let off = (seconds / mean - 1.0).abs();
            assert!(
                off < 0.03,
                "seed {seed}: user {user} has {seconds} s of {mean}"
            );
        }
    }
}

#[test]
fn a_user_who_has_computed_recently_lets_others_go_first() {
    let mut queue = Queue::new(Settings::new(1));
    let request = |id, user| Request {
        id,
        user,
        fewest: 1,
        most: 1,
        gpus: 0,
        seconds: Some(1.0),
        priority: 0,
        reservation: None,
    };
    let second = 1_000_000_000;
    assert_eq!(queue.push(request(1, 7), 0), Some(Start { id: 1, pes: 1 }));
    assert_eq!(queue.push(request(2, 7), 0), None);
    assert_eq!(queue.push(request(3, 8), second), None);
    queue.remove(1, 2 * second);
    assert_eq!(queue.next(2 * second), Some(Start { id: 3, pes: 1 }));
    assert_eq!(queue.next(2 * second), None);
    // A year later, the old use no longer counts, and the weights were scaled down meanwhile.
    let year = 365 * 86400 * second;
    queue.remove(3, 3 * second);
    assert_eq!(queue.next(3 * second).map(|start| start.id), Some(2));
    queue.remove(2, year);
    for standing in queue.users(2 * year) {
        assert!(
            standing.usage < 1e-3 && standing.running == 0,
            "{standing:?}"
        );
    }
}

#[test]
fn a_paused_job_lets_others_compute() {
    let second = 1_000_000_000;
    let mut queue = Queue::new(Settings::new(2));
    let request = |id| Request {
        id,
        user: 5,
        fewest: 2,
        most: 2,
        gpus: 0,
        seconds: Some(1.0),
        priority: 0,
        reservation: None,
    };
    assert!(queue.push(request(1), 0).is_some());
    assert_eq!(queue.push(request(2), 0), None);
    queue.pause(1, second);
    queue.pause(1, second);
    assert_eq!(queue.next(second), Some(Start { id: 2, pes: 2 }));
    queue.resume(1, 2 * second);
    assert_eq!((queue.used(), queue.free()), (4, 0), "it goes on at once");
    assert_eq!(queue.push(request(3), 2 * second), None);
    let used = queue.remove(1, 3 * second);
    assert!((used - 4.0).abs() < 1e-6, "2 s on two: {used}");
    assert_eq!(queue.next(3 * second), None);
    queue.remove(2, 3 * second);
    let standing = queue.users(3 * second).next().expect("known");
    assert!(
        (standing.usage - 8.0).abs() < 0.02,
        "2 s each on two: {standing:?}"
    );
    assert_eq!(queue.next(3 * second).map(|start| start.id), Some(3));
    queue.pause(3, 3 * second);
    queue.remove(3, 4 * second);
    assert_eq!((queue.used(), queue.free()), (0, 2));
}

#[test]
fn the_policy_at_once_starts_each_job_on_all_elements() {
    let load = Load { pes: 4, ..loads(3) };
    let mut queue = Queue::new(settings(Policy::AtOnce, 4));
    for id in 0..load.jobs as u64 {
        let request = Request {
            id,
            user: 0,
            fewest: 1,
            most: 1,
            gpus: 0,
            seconds: None,
            priority: 0,
            reservation: None,
        };
        assert_eq!(queue.push(request, 0), Some(Start { id, pes: 4 }));
    }
    assert_eq!(queue.used(), 4 * load.jobs as u32);
}

#[test]
fn no_gpu_is_given_to_two_calls() {
    const GPUS: u32 = 3;
    for (name, policy) in Policy::NAMES {
        for seed in 0..20 {
            let mut queue = Queue::new(Settings {
                gpus: GPUS,
                ..settings(policy, 4)
            });
            let mut random = SplitMix64::new(seed);
            let mut wanted = BTreeMap::new();
            let mut running = BTreeSet::new();
            for id in 0..400 {
                let gpus = random.below(u64::from(GPUS) + 1) as u32;
                wanted.insert(id, gpus);
                let request = Request {
                    id,
                    user: id % 3,
                    fewest: 1 + random.below(4) as u32,
                    most: 4,
                    gpus,
                    seconds: None,
                    priority: 0,
                    reservation: None,
                };
                let now = id * 1_000_000;
                running.extend(queue.push(request, now).map(|start| start.id));
                while running.len() > random.below(4) as usize {
                    let ended = *running
                        .iter()
                        .nth(random.below(running.len() as u64) as usize)
                        .expect("one of them");
                    // A call that waits for its caller keeps its GPUs.
                    queue.pause(ended, now);
                    running.extend(queue.next(now).map(|start| start.id));
                    let used: u32 = running.iter().map(|id| wanted[id]).sum();
                    assert!(used <= GPUS, "{name}, seed {seed}: {used} of {GPUS} GPUs");
                    assert_eq!(queue.used_gpus(), used);
                    queue.remove(ended, now);
                    running.remove(&ended);
                    running.extend(queue.next(now).map(|start| start.id));
                }
            }
            let mut left = 400;
            while let Some(ended) = running.pop_first().filter(|_| left > 0) {
                queue.remove(ended, 400_000_000);
                running.extend(std::iter::from_fn(|| queue.next(400_000_000)).map(|one| one.id));
                left -= 1;
            }
            assert!(
                queue.is_empty() && queue.used_gpus() == 0,
                "{name}, seed {seed}"
            );
        }
    }
}

#[test]
fn calls_that_fit_pass_one_that_waits_for_a_gpu() {
    let request = |id, gpus| Request {
        id,
        user: 0,
        fewest: 1,
        most: 1,
        gpus,
        seconds: None,
        priority: 0,
        reservation: None,
    };
    for (policy, passes) in [(Policy::Fcfs, false), (Policy::Fpfs, true)] {
        let mut queue = Queue::new(Settings {
            gpus: 1,
            ..settings(policy, 4)
        });
        assert!(queue.push(request(1, 1), 0).is_some());
        assert_eq!(queue.push(request(2, 1), 0), None);
        assert_eq!(
            queue.reason(2, 0),
            Some(Reason::Gpus { wanted: 1, free: 0 })
        );
        assert_eq!(queue.push(request(3, 0), 0), None);
        assert_eq!(queue.next(0).map(|start| start.id), passes.then_some(3));
        queue.remove(1, 0);
        assert_eq!(queue.next(0).map(|start| start.id), Some(2));
    }
}

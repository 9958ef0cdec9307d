//! Tests in virtual time what interactive gang jobs get and what others lose to them, and that free
//! processors do not wait for the end of a slice. A gang switch takes a millisecond here.

use farcall_gang_proto::{JobId, JobSpec, Message, Nanos, Order, Root, Settings};
use std::collections::BTreeMap;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;
const SLICE: Nanos = 100 * MS;
const SWITCH: Nanos = MS;
const SLOTS: u16 = 2;
/// A program that never ends.
const BATCH: &str = "batch";

struct World {
    root: Root,
    now: Nanos,
    running: Vec<JobId>,
    /// Time that each gang job had.
    had: BTreeMap<JobId, Nanos>,
    started: Vec<JobId>,
}

impl World {
    fn new() -> World {
        let settings = Settings {
            memory: u64::MAX,
            epoch: 1,
            slice: SLICE,
            watch: 500 * MS,
            switch_alone: false,
            receive: 1 << 16,
            share: 25,
        };
        let mut root = Root::new(settings, 0);
        root.handle_join("node", (0..SLOTS).collect(), String::new(), 0);
        World {
            root,
            now: 0,
            running: Vec::new(),
            had: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    /// Starts a gang job and returns its number, which is also that of its front end.
    fn start(&mut self, processes: u16, user: u32, program: Option<&str>) -> JobId {
        let spec = JobSpec {
            processes,
            command: program.into_iter().map(str::to_string).collect(),
            owner: (user, user),
            interactive: Some(program.is_none()),
            ..JobSpec::default()
        };
        let front = self.started.len() as u64 + 1;
        self.root.handle_run(front, spec).expect("it is accepted");
        self.settle();
        *self.started.last().expect("it was started")
    }

    fn work(&mut self, job: JobId, has_work: bool) {
        let done = self.root.handle_work(job, job, has_work);
        done.expect("it is interactive");
        self.settle();
    }

    /// Lets the time pass until then.
    fn run_until(&mut self, end: Nanos) {
        loop {
            let due = self.root.next_deadline().unwrap_or(Nanos::MAX);
            if due > end {
                return self.pass(end.max(self.now));
            }
            self.pass(due.max(self.now));
            self.root.handle_timeout(self.now);
            self.settle();
        }
    }

    fn pass(&mut self, time: Nanos) {
        for job in &self.running {
            *self.had.entry(*job).or_default() += time - self.now;
        }
        self.now = time;
    }

    /// Carries out orders and gang switches.
    fn settle(&mut self) {
        while let Some(order) = self.root.poll_order() {
            match order {
                Order::Front(_, Message::Started(job, _)) => self.started.push(job),
                Order::Front(_, Message::JobEnded(ended, _)) => {
                    self.running.retain(|job| *job != ended);
                }
                _ => {}
            }
        }
        while let Some(turn) = self.root.poll_switch(self.now) {
            self.running.retain(|job| !turn.out.contains(job));
            let end = self.now + SWITCH;
            self.pass(end);
            self.running.extend(&turn.into);
            let (out, into) = (&turn.out[..], &turn.into[..]);
            self.root.handle_switched((out, into), SWITCH, self.now);
        }
    }

    fn had(&self, job: JobId) -> Nanos {
        self.had.get(&job).copied().unwrap_or_default()
    }
}

#[test]
fn a_gang_job_whose_processors_are_free_begins_at_once() {
    let mut world = World::new();
    let one = world.start(1, 1, Some(BATCH));
    world.run_until(30 * MS);
    let two = world.start(1, 1, Some(BATCH));
    assert_eq!(world.running, [one, two]);
    // The slice of the first goes on: nothing was switched out for it.
    world.run_until(90 * MS);
    assert_eq!(world.had(one), 90 * MS - 2 * SWITCH + SWITCH);
}

#[test]
fn the_processors_of_a_gang_job_that_ends_are_given_away_within_its_slice() {
    let mut world = World::new();
    let one = world.start(2, 1, Some(BATCH));
    let two = world.start(2, 1, Some(BATCH));
    world.run_until(30 * MS);
    assert_eq!(world.running, [one]);
    world.root.handle_signal(one, 19, 0).expect("it is there");
    world.settle();
    assert_eq!(world.running, [two]);
}

#[test]
fn an_interactive_gang_job_takes_the_place_of_others_only_while_it_has_work() {
    let mut world = World::new();
    let batch = world.start(2, 1, Some(BATCH));
    let calls = world.start(1, 2, None);
    world.run_until(SECOND);
    assert_eq!((world.running.clone(), world.had(calls)), (vec![batch], 0));
    world.work(calls, true);
    assert_eq!(world.running, [calls]);
    world.run_until(SECOND + 200 * MS);
    assert_eq!(world.running, [calls]);
    world.work(calls, false);
    assert_eq!(world.running, [batch]);
    world.run_until(2 * SECOND);
    let lost = 2 * SECOND - world.had(batch);
    assert_eq!(lost, 200 * MS + 3 * SWITCH - SWITCH);
}

#[test]
fn short_calls_answer_within_two_slices_and_cost_the_batch_job_their_own_time() {
    let mut world = World::new();
    let batch = world.start(2, 1, Some(BATCH));
    let calls = world.start(2, 2, None);
    let (mut longest, mut worked) = (0, 0);
    for call in 1..200u64 {
        let asked = call * 317 * MS + call % 7 * 13 * MS;
        world.run_until(asked);
        world.work(calls, true);
        let until = world.had(calls) + 50 * MS;
        while world.had(calls) < until {
            let left = until - world.had(calls);
            world.run_until(world.now + left);
        }
        worked += 50 * MS;
        longest = longest.max(world.now - asked);
        world.work(calls, false);
    }
    assert!(longest <= 2 * SLICE + 50 * MS, "{longest}");
    let lost = world.now - world.had(batch);
    let bound = worked + world.now / 50;
    assert!(lost <= bound, "{lost} of {bound}");
}

#[test]
fn the_share_of_a_user_and_of_all_users_is_bounded() {
    for users in [1, 3] {
        let mut world = World::new();
        let batches: Vec<JobId> = (0..9).map(|_| world.start(2, 1, Some(BATCH))).collect();
        let calls: Vec<JobId> = (0..users)
            .map(|user| world.start(2, 10 + user, None))
            .collect();
        for job in &calls {
            world.work(*job, true);
        }
        world.run_until(100 * SECOND);
        let share = |jobs: &[JobId]| {
            let had: Nanos = jobs.iter().map(|job| world.had(*job)).sum();
            had as f64 / world.now as f64
        };
        // A quarter for each user, half for all, and the second that was saved up.
        let most = [0.0, 0.25, 0.5, 0.5][users as usize] + 0.03;
        assert!(share(&calls) <= most, "{}", share(&calls));
        assert!(share(&calls) >= most - 0.08, "{}", share(&calls));
        let each: Vec<f64> = batches.iter().map(|job| share(&[*job])).collect();
        println!("{users} {} {each:?}", share(&calls));
        for job in &batches {
            assert!(
                share(&[*job]) > 0.9 * (1.0 - most) / 9.0,
                "{}",
                share(&[*job])
            );
        }
    }
}

/// Work that comes and goes all the time costs others no more than the share, although most of the
/// time goes to gang switches.
#[test]
fn a_front_end_that_says_again_and_again_that_it_has_work_pays_for_the_switches() {
    let mut world = World::new();
    let batch = world.start(2, 1, Some(BATCH));
    let calls = world.start(2, 2, None);
    while world.now < 30 * SECOND {
        world.work(calls, true);
        world.run_until(world.now + MS / 10);
        world.work(calls, false);
        world.run_until(world.now + MS / 10);
    }
    let lost = world.now - world.had(batch);
    assert!(lost < world.now / 3, "{lost}");
}

#[test]
fn an_interactive_gang_job_without_a_share_takes_turns() {
    let mut world = World::new();
    let batch = world.start(2, 1, Some(BATCH));
    let calls = world.start(2, 2, None);
    world.work(calls, true);
    world.run_until(100 * SECOND);
    let (batch, calls) = (world.had(batch) as f64, world.had(calls) as f64);
    assert!((calls / batch - 1.0).abs() < 0.05, "{calls} {batch}");
}

#[test]
fn only_its_own_front_end_says_that_an_interactive_gang_job_has_work() {
    let mut world = World::new();
    let batch = world.start(2, 1, Some(BATCH));
    let calls = world.start(2, 2, None);
    assert!(world.root.handle_work(calls, calls + 1, true).is_err());
    assert!(world.root.handle_work(batch, batch, true).is_err());
    assert!(world.root.handle_work(9, 9, true).is_err());
    assert_eq!(world.running, [batch]);
    // It ends with its front end, although it has no processes.
    world.work(calls, true);
    world.root.handle_front_lost(calls);
    world.settle();
    assert_eq!(world.running, [batch]);
    assert_eq!(world.root.rows(0).len(), 1);
}

#[test]
fn rank_0_of_an_interactive_gang_job_is_on_the_node_of_the_root_daemon() {
    for processes in [1, 2, 4] {
        let mut world = World::new();
        world
            .root
            .handle_join("other", vec![0, 1], String::new(), 0);
        for _ in 0..3 {
            let spec = JobSpec {
                processes,
                command: vec!["function".to_string()],
                interactive: Some(true),
                ..JobSpec::default()
            };
            world.root.handle_run(1, spec).expect("it is accepted");
            let prepared = std::iter::from_fn(|| world.root.poll_order()).find_map(|order| {
                let Order::Nodes(Message::Prepare(_, placement)) = order else {
                    return None;
                };
                Some(placement)
            });
            assert_eq!(prepared.expect("it is prepared").nodes[0], 0);
        }
    }
}

//! Tests in virtual time how the root daemon judges gang jobs of MPI, whose processes poll: who
//! waits for whom, when a deadlock is suspected, and what the front ends learn. A gang switch takes
//! a millisecond here.

use farcall_gang_proto::{
    Ended, JobId, JobSpec, Message, Nanos, Order, Polling, Report, Root, Settings, Wanted,
};

const MS: Nanos = 1_000_000;
const SLICE: Nanos = 100 * MS;
const WATCH: Nanos = 500 * MS;
/// The front end of the gang job, and one that asks for its state.
const RUNS: u64 = 1;
const ASKS: u64 = 2;
const JOB: JobId = 1;

/// What a process does in its slices.
#[derive(Clone)]
enum Does {
    /// It polls so often in a millisecond, and finds nothing.
    Polls(u64),
    /// It exchanges messages: what it says changes again and again.
    Exchanges,
    /// It computes or sleeps, after it has said what it looks for.
    Other,
}

struct World {
    root: Root,
    now: Nanos,
    is_running: bool,
    ranks: Vec<(Does, Polling)>,
    /// Added to each report.
    report: Report,
    /// What the front ends got, and when.
    got: Vec<(Nanos, u64, Message)>,
    killed: bool,
}

fn from(source: u16) -> Wanted {
    Wanted::Message(Some(source), Some(7))
}

impl World {
    fn new(all: &[(Does, Wanted)], spec: JobSpec) -> World {
        let settings = Settings {
            memory: u64::MAX,
            epoch: 1,
            slice: SLICE,
            watch: WATCH,
            switch_alone: false,
            receive: 1 << 16,
            share: 25,
        };
        let mut root = Root::new(settings, 0);
        root.handle_join("node", vec![0, 1], String::new(), 0);
        let rank = |(rank, (does, wanted)): (u16, &(Does, Wanted))| {
            let polling = Polling {
                rank,
                version: 1,
                wanted: vec![*wanted],
                ..Polling::default()
            };
            (does.clone(), polling)
        };
        let mut world = World {
            root,
            now: 0,
            is_running: false,
            ranks: (0..).zip(all).map(rank).collect(),
            report: Report::default(),
            got: Vec::new(),
            killed: false,
        };
        let spec = JobSpec {
            processes: all.len() as u16,
            command: vec!["program".to_string()],
            fabric: spec.fabric.or(Some(true)),
            ..spec
        };
        world.root.handle_run(RUNS, spec).expect("it is accepted");
        world.settle();
        world
    }

    fn of(all: &[(Does, Wanted)]) -> World {
        World::new(all, JobSpec::default())
    }

    fn ask(&mut self) {
        let done = self.root.handle_inspect(JOB, ASKS, 0);
        done.expect("it can be judged");
        self.settle();
    }

    fn run(&mut self, time: Nanos) {
        let end = self.now + time;
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

    fn pass(&mut self, until: Nanos) {
        let time = (until - self.now) / MS;
        self.now = until;
        if !self.is_running || time == 0 {
            return;
        }
        for (does, polling) in &mut self.ranks {
            match does {
                Does::Polls(often) => polling.polls += *often * time,
                Does::Exchanges => {
                    polling.polls += 100 * time;
                    polling.version += 2;
                }
                Does::Other => {}
            }
        }
    }

    fn settle(&mut self) {
        loop {
            self.obey();
            let Some(turn) = self.root.poll_switch(self.now) else {
                // A gang job that does not run is looked at without a gang switch.
                return self.obey();
            };
            self.pass(self.now + MS);
            self.is_running &= !turn.out.contains(&JOB);
            self.is_running |= turn.into.contains(&JOB);
            let (out, into) = (&turn.out[..], &turn.into[..]);
            self.root.handle_switched((out, into), MS, self.now);
        }
    }

    fn obey(&mut self) {
        while let Some(order) = self.root.poll_order() {
            match order {
                Order::Nodes(Message::Inspect(JOB)) => self.inspect(),
                Order::Nodes(Message::Deliver(JOB, _)) => self.killed = true,
                Order::Front(front, message) => self.got.push((self.now, front, message)),
                _ => {}
            }
        }
    }

    fn inspect(&mut self) {
        assert!(!self.is_running, "it is looked at while it runs");
        let said = self.ranks.iter().map(|(_, polling)| polling.clone());
        let report = Report {
            polling: Some(said.collect()),
            ..self.report.clone()
        };
        self.root.handle_inspected(JOB, 0, report);
    }

    /// The states that the front end that asks was told, and when.
    fn states(&self) -> Vec<(Nanos, &str, &str)> {
        let told = self.got.iter().filter_map(|(at, front, message)| {
            let Message::JobState(word, text) = message else {
                return None;
            };
            (*front == ASKS).then_some((*at, &word[..], &text[..]))
        });
        told.collect()
    }

    /// Asks for the state, and returns the answer.
    fn state(&mut self) -> (String, String) {
        let before = self.states().len();
        self.ask();
        self.run(3 * WATCH);
        let states = self.states();
        assert_eq!(states.len(), before + 1, "one answer");
        let (_, word, text) = states[before];
        (word.to_string(), text.to_string())
    }

    /// The lines that the front end of the gang job got.
    fn lines(&self) -> Vec<String> {
        let lines = self.got.iter().filter_map(|(_, front, message)| {
            let Message::Output(_, _, 2, bytes) = message else {
                return None;
            };
            assert_eq!(*front, RUNS);
            Some(String::from_utf8(bytes.clone()).expect("text"))
        });
        lines.collect()
    }
}

fn ring() -> [(Does, Wanted); 3] {
    [2, 0, 1].map(|source| (Does::Polls(100), from(source)))
}

fn watched() -> JobSpec {
    JobSpec {
        detect_termination: true,
        ..JobSpec::default()
    }
}

#[test]
fn a_ring_of_receives_is_suspected_after_a_second_look() {
    let mut world = World::of(&ring());
    world.run(SLICE);
    let asked = world.now;
    let (word, text) = world.state();
    assert_eq!(word, "suspected");
    assert_eq!(
        text,
        "deadlock: rank 0 waits for a message from rank 2 (tag 7), rank 2 waits for a message \
         from rank 1 (tag 7), rank 1 waits for a message from rank 0 (tag 7)"
    );
    let answered = world.states()[0].0;
    assert!((asked + WATCH..asked + 3 * WATCH).contains(&answered));
    assert!(!world.killed && world.lines().is_empty());
}

#[test]
fn what_a_process_waits_for_is_told_in_words() {
    let mut world = World::of(&[
        (Does::Polls(100), Wanted::Receive(1, Some(3))),
        (Does::Polls(100), Wanted::Message(Some(0), Some(1 << 31))),
        (Does::Polls(100), Wanted::Message(None, None)),
    ]);
    let more = [from(0), from(1), from(2)];
    world.ranks[1].1.wanted.extend(more);
    let (word, text) = world.state();
    assert_eq!(word, "suspected");
    assert_eq!(
        text,
        "deadlock: rank 0 waits for rank 1 to receive a message (tag 3), rank 1 waits for a \
         message from rank 0 (in an operation of MPI) or a message from rank 0 (tag 7) or a \
         message from rank 1 (tag 7) or something else, rank 2 waits for a message from any rank"
    );
}

#[test]
fn a_process_that_computes_lets_the_others_wait() {
    let mut all = ring();
    all[1].0 = Does::Other;
    let mut world = World::of(&all);
    let expected = "processes run; rank 0 waits for a message from rank 2 (tag 7), rank 2 waits \
                    for a message from rank 1 (tag 7)";
    assert_eq!(world.state(), ("running".to_string(), expected.to_string()));
    // One that looks for messages now and then computes too.
    world.ranks[1].0 = Does::Polls(1);
    assert_eq!(world.state(), ("running".to_string(), expected.to_string()));
}

#[test]
fn processes_that_exchange_messages_run() {
    let mut world = World::of(&ring().map(|(_, wanted)| (Does::Exchanges, wanted)));
    for _ in 0..5 {
        assert_eq!(world.state().0, "running");
    }
}

#[test]
fn a_message_on_its_way_is_waited_for() {
    let mut world = World::of(&ring());
    // It is on the channel after that of the program.
    world.report.queued = vec![(0, 1, 1, 1)];
    let (word, text) = world.state();
    assert_eq!(word, "idle");
    assert!(
        text.contains("rank 1 waits for a message from rank 0"),
        "{text}"
    );
    world.report.queued = vec![(0, 1, 0, 1)];
    assert_eq!(world.state().0, "suspected");
}

#[test]
fn a_process_that_has_ended_sends_nothing() {
    let mut world = World::of(&ring());
    world.ranks.pop();
    world.report.ended = vec![2];
    let (word, text) = world.state();
    assert_eq!(word, "suspected");
    let expected = "deadlock: rank 0 waits for a message from rank 2 (tag 7), rank 1 waits for a \
                    message from rank 0 (tag 7)";
    assert_eq!(text, expected);
}

#[test]
fn a_suspected_job_goes_on_and_its_front_end_is_told_once() {
    let mut world = World::new(&ring(), watched());
    world.run(10 * WATCH);
    let lines = world.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let begins = "farcall: gang job 1: suspected deadlock: rank 0 waits for a message from rank 2";
    assert!(
        lines[0].starts_with(begins) && lines[0].ends_with(")\n"),
        "{lines:?}"
    );
    assert!(!world.killed);
    // It was something else, and then it happens again.
    for (_, polling) in &mut world.ranks {
        polling.version += 1;
    }
    world.run(10 * WATCH);
    assert_eq!(world.lines().len(), 2);
    assert!(!world.killed);
}

#[test]
fn a_process_that_gets_little_time_does_not_make_it_another_deadlock() {
    let mut world = World::new(&ring(), watched());
    world.run(10 * WATCH);
    assert_eq!(world.lines().len(), 1);
    world.ranks[1].0 = Does::Polls(1);
    assert_eq!(world.state().0, "running");
    world.ranks[1].0 = Does::Polls(100);
    world.run(10 * WATCH);
    assert_eq!(world.state().0, "suspected");
    assert_eq!(world.lines().len(), 1);
}

#[test]
fn nobody_is_told_of_processes_that_go_on() {
    let mut all = ring();
    all[2].0 = Does::Exchanges;
    let mut world = World::new(&all, watched());
    world.run(20 * WATCH);
    assert_eq!(world.lines(), Vec::<String>::new());
}

/// Each answer can be long, so a front end that does not wait for one gets no second one.
#[test]
fn a_front_end_asks_once_at_a_time() {
    let mut world = World::of(&ring());
    world.run(SLICE);
    let ask = |world: &mut World| world.root.handle_inspect(JOB, ASKS, 0);
    assert_eq!(ask(&mut world), Ok(()));
    let refused = ask(&mut world).expect_err("it has asked");
    assert!(refused.contains("already"), "{refused}");
    // It waits for the second look.
    world.settle();
    assert!(ask(&mut world).is_err());
    let other = world.root.handle_inspect(JOB, ASKS + 1, 0);
    assert_eq!(other, Ok(()));
    world.run(3 * WATCH);
    assert_eq!(world.states().len(), 1);
    assert_eq!(world.state().0, "suspected");
}

/// A process that looks for nothing, or has never said anything, needs no second look.
#[test]
fn a_job_that_computes_is_answered_at_once() {
    let mut world = World::of(&ring());
    for (_, polling) in &mut world.ranks {
        polling.wanted.clear();
    }
    world.run(SLICE);
    let asked = world.now;
    assert_eq!(world.state().0, "running");
    assert!(world.states()[0].0 <= asked + 5 * MS);
}

#[test]
fn a_stopped_job_is_answered_at_once() {
    let mut world = World::of(&ring());
    world.run(SLICE);
    world.root.handle_signal(JOB, 19, 0).expect("it is there");
    world.settle();
    let asked = world.now;
    assert_eq!(world.state().0, "running");
    assert!(world.states()[0].0 <= asked + 5 * MS);
    // One that is stopped between the two looks, too.
    world.root.handle_signal(JOB, 18, 0).expect("it is there");
    world.run(SLICE);
    world.ask();
    world.root.handle_signal(JOB, 19, 0).expect("it is there");
    world.run(3 * WATCH);
    assert_eq!(world.states().len(), 2);
}

/// It gets no slice until it has work.
#[test]
fn a_job_that_rests_is_answered_at_once() {
    let interactive = JobSpec {
        interactive: Some(true),
        ..JobSpec::default()
    };
    let mut world = World::new(&ring(), interactive);
    world.run(SLICE);
    let work = |world: &mut World, has_work| {
        let done = world.root.handle_work(JOB, RUNS, has_work);
        done.expect("it is interactive");
        world.settle();
    };
    work(&mut world, false);
    let asked = world.now;
    assert_eq!(world.state().0, "running");
    assert!(world.states()[0].0 <= asked + 5 * MS);
    // One whose work is done between the two looks, too.
    work(&mut world, true);
    world.run(SLICE);
    world.ask();
    work(&mut world, false);
    world.run(3 * WATCH);
    assert_eq!(world.states().len(), 2);
}

#[test]
fn who_asks_about_a_job_that_ends_is_told_so() {
    let mut world = World::of(&ring());
    world.run(SLICE);
    world.ask();
    world.run(10 * MS);
    for rank in 0..3 {
        let ended = Ended::default();
        world.root.handle_process_ended(JOB, rank, ended);
    }
    world.settle();
    let refused = |(_, front, message): &(Nanos, u64, Message)| {
        *front == ASKS && matches!(message, Message::Refused(_))
    };
    assert!(world.got.iter().any(refused), "{:?}", world.got);
}

#[test]
fn who_has_gone_is_told_nothing() {
    let mut world = World::of(&ring());
    world.run(SLICE);
    world.ask();
    world.run(10 * MS);
    world.root.handle_front_lost(ASKS);
    world.run(3 * WATCH);
    assert_eq!(world.states(), []);
}

#[test]
fn mpi_over_its_own_transport_cannot_be_seen() {
    let mut world = World::of(&ring());
    for (does, polling) in &mut world.ranks {
        *does = Does::Other;
        *polling = Polling {
            rank: polling.rank,
            ..Polling::default()
        };
    }
    assert_eq!(world.state().0, "running");
    world.report.uses_mpi = Some(true);
    let (word, text) = world.state();
    assert_eq!(word, "unknown");
    assert!(text.contains("no libfabric"), "{text}");
    let own = JobSpec {
        fabric: Some(false),
        ..JobSpec::default()
    };
    let mut world = World::new(&[(Does::Other, from(0))], own);
    world.ranks.clear();
    world.report.uses_mpi = Some(true);
    let (word, text) = world.state();
    assert_eq!(word, "unknown");
    assert!(text.contains("--network farcall"), "{text}");
    // What those of MPI over channels say is known.
    let mut world = World::of(&ring());
    world.report.uses_mpi = Some(true);
    assert_eq!(world.state().0, "suspected");
}

/// A daemon must not be believed everything: ranks that do not exist count as any rank.
#[test]
fn ranks_that_do_not_exist_do_no_harm() {
    let mut all = ring().to_vec();
    all.push((Does::Other, from(0)));
    let mut world = World::of(&all);
    world.ranks[0].1.wanted = vec![from(9)];
    world.ranks[2].1.rank = 999;
    assert_eq!(world.state().0, "running");
}

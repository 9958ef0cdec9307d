//! Tests how the root daemon moves a gang job when a node is lost meanwhile. The front end that
//! moves it learns this once, and can choose other nodes. Other things happen during a move too:
//! the gang job is killed, its front end reads nothing, or a checkpoint was given up just before.

use farcall_gang_proto::rest::Phase;
use farcall_gang_proto::{
    JobId, JobSpec, Lengths, Message, Nanos, Order, Piece, Place, Report, Root, Settings,
};

const MS: Nanos = 1_000_000;
/// The front end of the gang job, and the one that moves it.
const RUNS: u64 = 1;
const MOVES: u64 = 2;
const JOB: JobId = 1;
const LENGTHS: Lengths = Lengths {
    network: 8,
    program: 100,
};

/// A root daemon of three nodes with a processor each, and a gang job of two processes.
fn begun() -> Root {
    let settings = Settings {
        memory: u64::MAX,
        epoch: 1,
        slice: 100 * MS,
        watch: 500 * MS,
        switch_alone: false,
        receive: 1 << 16,
        share: 25,
    };
    let mut root = Root::new(settings, 0);
    for name in ["a", "b", "c"] {
        root.handle_join(name, vec![0], String::new(), 0);
    }
    root.handle_run(RUNS, spec()).expect("it is accepted");
    root
}

fn spec() -> JobSpec {
    JobSpec {
        processes: 2,
        command: vec!["program".to_string()],
        environment: ["LANG=C", "TOKEN=x"].map(str::to_string).to_vec(),
        ..JobSpec::default()
    }
}

fn wants(root: &mut Root, front: u64) {
    root.handle_checkpoint(JOB, (front, 0), (60_000, true), 0)
        .expect("it is accepted");
}

/// Lets time pass until there is an order that is wanted.
fn until(root: &mut Root, is_wanted: impl Fn(&mut Root, Order) -> bool) {
    for now in (1..1_000).map(|count| count * MS) {
        root.handle_timeout(now);
        if let Some(turn) = root.poll_switch(now) {
            root.handle_switched((&turn.out, &turn.into), 0, now);
        }
        while let Some(order) = root.poll_order() {
            if is_wanted(root, order) {
                return;
            }
        }
    }
    panic!("nothing happens");
}

/// Waits until the state was taken for this front end, of processes that have saved theirs.
fn until_taken(root: &mut Root, front: u64) {
    until(root, |root, order| match order {
        Order::Nodes(Message::Inspect(job)) => {
            inspected(root, job);
            false
        }
        Order::Front(to, Message::Taken(..)) => to == front,
        _ => false,
    });
}

/// A gang job whose state was taken for a move.
fn taken() -> Root {
    let mut root = begun();
    wants(&mut root, MOVES);
    until_taken(&mut root, MOVES);
    root
}

/// Both processes have saved their states.
fn inspected(root: &mut Root, job: JobId) {
    let place = |rank| Place {
        rank,
        phase: Phase::Saved,
        steps: 5,
    };
    for node in 0..3 {
        let report = Report {
            places: vec![place(0), place(1)],
            ..Report::default()
        };
        root.handle_inspected(job, node, report);
    }
}

/// What the front end that moves the gang job is told.
fn told(root: &mut Root) -> Vec<Message> {
    let orders = std::iter::from_fn(|| root.poll_order());
    let told = orders.filter_map(|order| match order {
        Order::Front(MOVES, message) => Some(message),
        _ => None,
    });
    told.collect()
}

fn fill(root: &mut Root, rank: u16) {
    let piece = Piece {
        rank,
        offset: 0,
        lengths: LENGTHS,
        bytes: vec![0; LENGTHS.total() as usize],
    };
    root.handle_fill(JOB, MOVES, piece).expect("it waits");
}

#[test]
fn what_a_node_still_got_before_another_was_lost_does_not_count() {
    let mut root = taken();
    let to = ["b", "c"].map(str::to_string);
    root.handle_replace(JOB, MOVES, &to)
        .expect("they are there");
    let first = JOB + 1;
    fill(&mut root, 0);
    fill(&mut root, 1);
    let all = LENGTHS.total();
    root.handle_filled(first, 1, all, LENGTHS);
    assert!(matches!(told(&mut root)[..], [Message::Filled(..)]));
    root.handle_lost(2, "it was killed");
    assert!(matches!(told(&mut root)[..], [Message::Refused(_)]));
    // The answer of the other node was on its way.
    root.handle_filled(first, 0, all, LENGTHS);
    assert_eq!(told(&mut root), []);
    let again = root.handle_replace(JOB, MOVES, &[]);
    assert_eq!(again, Ok(()), "the front end still has the state");
    for rank in 0..2 {
        fill(&mut root, rank);
        root.handle_filled(first + 1, rank, all, LENGTHS);
    }
    let told = told(&mut root);
    assert!(matches!(
        told[..],
        [Message::Filled(..), Message::Filled(..)]
    ));
}

/// A user kills the gang job, or the command that has started it, when its state was taken.
#[test]
fn a_job_that_was_killed_does_not_begin_elsewhere() {
    let kill = |root: &mut Root| root.handle_signal(JOB, 9, 0).expect("it is there");
    let mut root = taken();
    kill(&mut root);
    let refused = root.handle_replace(JOB, MOVES, &[]);
    assert_eq!(refused, Err("gang job 1 is ending".to_string()));
    let mut root = taken();
    root.handle_front_lost(RUNS);
    let refused = root.handle_replace(JOB, MOVES, &[]);
    assert_eq!(refused, Err("gang job 1 is ending".to_string()));
    // Nor does it get other nodes when one of its new ones is lost.
    let mut root = taken();
    let to = ["b", "c"].map(str::to_string);
    root.handle_replace(JOB, MOVES, &to)
        .expect("they are there");
    kill(&mut root);
    root.handle_lost(2, "it was killed");
    assert_eq!(told(&mut root), []);
    assert!(root.handle_replace(JOB, MOVES, &[]).is_err());
}

/// All nodes are told what begins, also one whose daemon another user has started meanwhile.
#[test]
fn a_daemon_of_another_user_does_not_get_the_environment_of_a_job_that_moves() {
    let mut root = taken();
    root.handle_join("other", vec![0], String::new(), 7);
    root.handle_replace(JOB, MOVES, &[]).expect("there is room");
    let mut orders = std::iter::from_fn(|| root.poll_order());
    let told = orders.find_map(|order| match order {
        Order::Nodes(Message::Prepare(spec, _)) => Some(spec.environment),
        _ => None,
    });
    assert_eq!(told, Some(vec!["LANG=C".to_string()]));
}

/// The output of a gang job whose front end reads nothing stays with its processes, also after a
/// move, and that of a further gang job of this front end.
#[test]
fn what_begins_for_a_front_end_that_reads_nothing_is_held() {
    let mut root = taken();
    let held = |root: &mut Root| {
        let orders: Vec<Order> = std::iter::from_fn(|| root.poll_order()).collect();
        let prepared = orders.iter().find_map(|order| match order {
            Order::Nodes(Message::Prepare(_, placement)) => Some(placement.job),
            _ => None,
        });
        let hold = Message::Hold(prepared.expect("it begins"), true);
        orders.contains(&Order::Nodes(hold))
    };
    root.handle_hold(RUNS, true);
    root.handle_replace(JOB, MOVES, &[]).expect("there is room");
    assert!(held(&mut root), "the one that was moved");
    root.handle_run(RUNS, spec()).expect("there is room");
    assert!(held(&mut root), "the other one");
    root.handle_hold(RUNS, false);
    root.handle_run(RUNS, spec()).expect("there is room");
    assert!(!held(&mut root));
}

/// The nodes were asked where the processes stand for a checkpoint that is given up. What they say
/// is no answer for the next one: the processes have gone on meanwhile.
#[test]
fn an_answer_for_a_checkpoint_before_does_not_count() {
    let other = MOVES + 1;
    let mut root = begun();
    wants(&mut root, MOVES);
    until(&mut root, |_, order| {
        matches!(order, Order::Nodes(Message::Inspect(_)))
    });
    root.handle_front_lost(MOVES);
    wants(&mut root, other);
    inspected(&mut root, JOB);
    let mut orders = std::iter::from_fn(|| root.poll_order());
    let is_taken = |order| matches!(order, Order::Front(_, Message::Taken(..)));
    assert!(!orders.any(is_taken), "their states are gone");
    until_taken(&mut root, other);
}

/// Somebody else asks what the processes wait for, and that look finds that all have saved their
/// states. So the look that was due for the checkpoint is not needed, and never comes too late.
#[test]
fn a_state_that_was_taken_is_not_given_up() {
    let mut root = begun();
    root.handle_inspect(JOB, MOVES + 1, 0)
        .expect("it can be judged");
    root.handle_checkpoint(JOB, (MOVES, 0), (10, true), 0)
        .expect("it is accepted");
    until_taken(&mut root, MOVES);
    root.handle_timeout(1_000 * MS);
    assert_eq!(told(&mut root), []);
    root.handle_fetch(JOB, MOVES, 0, 0).expect("it was taken");
}

/// What a front end has asked for and does not read is in the memory of the root daemon.
#[test]
fn a_front_end_that_reads_nothing_gets_no_more_pieces() {
    let mut root = taken();
    let fetches = |root: &mut Root| {
        let orders = std::iter::from_fn(|| root.poll_order());
        let is_fetch = |order: &Order| matches!(order, Order::Node(_, Message::Fetch(..)));
        orders.filter(is_fetch).count()
    };
    let fetched = |root: &mut Root| {
        let piece = Piece {
            rank: 0,
            offset: 0,
            lengths: LENGTHS,
            bytes: vec![0; 8],
        };
        root.handle_fetched(JOB, piece);
    };
    for _ in 0..10 {
        root.handle_fetch(JOB, MOVES, 0, 0).expect("it was taken");
    }
    assert_eq!(fetches(&mut root), 8);
    root.handle_hold(MOVES, true);
    (0..8).for_each(|_| fetched(&mut root));
    assert_eq!(fetches(&mut root), 0);
    root.handle_hold(MOVES, false);
    assert_eq!(fetches(&mut root), 2);
}

/// Nodes come and go for years, each with a name of its own.
#[test]
fn numbers_of_nodes_never_run_out() {
    let mut root = begun();
    let first = root.handle_join("first", vec![0], String::new(), 0);
    for count in 0..5_000 {
        let name = format!("node-{count}");
        let number = root.handle_join(&name, vec![0], String::new(), 0);
        assert!(number > first && number < 4_096, "{number}");
        root.handle_lost(number, "it went away");
        while root.poll_order().is_some() {}
    }
}

//! Tests that what one job asks for never makes a message that the daemons cannot read: they would
//! lose each other, and all jobs with them. What is on its way to and from the nodes always stays
//! within its bounds.

use farcall_gang_proto::rest::Phase;
use farcall_gang_proto::{
    Ended, JobSpec, Lengths, MAX_MESSAGE, MAX_SPEC, Message, Order, Piece, Place, Report, Root,
    Settings,
};

const FRONT: u64 = 1;

/// A root daemon with 1,000 nodes of four slots each.
fn root() -> Root {
    let settings = Settings {
        memory: u64::MAX,
        epoch: 1,
        slice: 1,
        watch: 1,
        switch_alone: false,
        receive: 1 << 16,
        share: 25,
    };
    let mut root = Root::new(settings, 0);
    for node in 0..1000 {
        let engine = "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:65535";
        root.handle_join(
            &format!("node{node}"),
            vec![0, 1, 2, 3],
            engine.to_string(),
            0,
        );
    }
    root
}

fn spec(bytes: usize, processes: u16) -> JobSpec {
    JobSpec {
        processes,
        command: vec!["program".to_string()],
        environment: vec!["x".repeat(bytes)],
        ..JobSpec::default()
    }
}

/// Checks that each order fits into a message, and returns them.
fn orders(root: &mut Root) -> Vec<Message> {
    let mut all = Vec::new();
    while let Some(order) = root.poll_order() {
        let (Order::Nodes(message) | Order::Node(_, message) | Order::Front(_, message)) = order;
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
        all.push(message);
    }
    all
}

#[test]
fn a_job_with_a_long_environment_fits_or_is_refused() {
    let mut root = root();
    let longest = root.handle_run(FRONT, spec(MAX_SPEC - 100, 4096));
    assert_eq!(longest, Ok(()));
    assert!(matches!(
        orders(&mut root)[..],
        [Message::Prepare(..), Message::Started(..)]
    ));
    assert!(
        root.handle_run(FRONT, spec(MAX_MESSAGE - 300, 4096))
            .is_err()
    );
    assert_eq!(orders(&mut root), []);
}

#[test]
fn a_list_of_jobs_on_many_nodes_fits() {
    let mut root = root();
    let list = |root: &Root| {
        let rows = root.rows(0);
        let mut bytes = Vec::new();
        Message::Jobs(rows.clone()).encode(&mut bytes);
        assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
        rows
    };
    let run = |root: &mut Root, jobs: usize| {
        for _ in 0..jobs {
            let done = root.handle_run(FRONT, spec(0, 4000));
            done.expect("there is room");
            orders(root);
        }
    };
    run(&mut root, 50);
    assert!(list(&root).iter().all(|row| row.nodes.len() == 1000));
    run(&mut root, 550);
    let rows = list(&root);
    assert_eq!(rows.len(), 600);
    for row in &rows {
        let last = row.nodes.last().map(String::as_str);
        assert_eq!(last, Some("..."));
        assert!(row.nodes.len() > 100);
    }
}

#[test]
fn a_job_that_puts_too_much_before_a_barrier_ends_alone() {
    let mut root = root();
    root.handle_run(FRONT, spec(0, 16)).expect("there is room");
    orders(&mut root);
    for (node, bytes) in [(0, 2 << 20), (1, 1 << 20), (2, 100), (3, 100)] {
        let pairs = vec![("key".to_string(), "v".repeat(bytes))];
        root.handle_fence(1, node, pairs);
    }
    assert!(matches!(orders(&mut root)[..], [Message::Deliver(1, 9)]));
    for rank in 0..16 {
        root.handle_process_ended(1, rank, Ended::default());
    }
    let ended = orders(&mut root);
    let [Message::Forget(1), Message::JobEnded(1, ended)] = &ended[..] else {
        panic!("{ended:?}");
    };
    let cause = ended.cause.as_deref().unwrap_or_default();
    assert!(
        ended.status == 125 && cause.contains("before a barrier of MPI"),
        "{cause}"
    );
}

/// A front end that sends a state without waiting for answers cannot fill the link to a node.
#[test]
fn the_state_on_its_way_to_the_nodes_is_bounded() {
    let mut root = root();
    let restored = JobSpec {
        restored: Some(true),
        ..spec(0, 1)
    };
    root.handle_run(FRONT, restored).expect("there is room");
    orders(&mut root);
    let lengths = Lengths {
        network: 0,
        program: 1 << 30,
    };
    let piece = |number: u64| Piece {
        rank: 0,
        offset: number << 18,
        lengths,
        bytes: vec![0; 1 << 18],
    };
    let is_taken = |root: &mut Root, number| root.handle_fill(1, FRONT, piece(number)).is_ok();
    let taken = (0..100).take_while(|number| is_taken(&mut root, *number));
    assert_eq!(taken.count(), 8);
    assert_eq!(orders(&mut root).len(), 8);
    root.handle_filled(1, 0, 1 << 18, lengths);
    assert!(is_taken(&mut root, 8) && !is_taken(&mut root, 9));
}

/// A root daemon whose job of two processes has its state taken for the front end.
fn root_with_state() -> Root {
    let mut root = root();
    root.handle_run(FRONT, spec(0, 2)).expect("there is room");
    root.handle_checkpoint(1, (FRONT, 0), (1000, true), 0)
        .expect("it can be caught");
    for (look, phase) in [Phase::Resting, Phase::Saved].into_iter().enumerate() {
        let now = (look as u64 + 1) * 100_000_000;
        root.handle_timeout(now);
        while let Some(turn) = root.poll_switch(now) {
            root.handle_switched((&turn.out, &turn.into), 0, now);
        }
        let place = |rank| Place {
            rank,
            phase,
            steps: 1,
        };
        let report = Report {
            places: vec![place(0), place(1)],
            ..Report::default()
        };
        root.handle_inspected(1, 0, report);
    }
    let told = orders(&mut root);
    assert!(
        matches!(told.last(), Some(Message::Taken(1, _))),
        "{told:?}"
    );
    root
}

/// A front end that asks for many pieces gets a few at a time.
#[test]
fn the_state_on_its_way_from_the_nodes_is_bounded() {
    let mut root = root_with_state();
    let asks = (0..100).take_while(|_| root.handle_fetch(1, FRONT, 1, 0).is_ok());
    // Eight are on their way, and ten wait.
    assert_eq!(asks.count(), 18);
    assert_eq!(orders(&mut root).len(), 8);
    for _ in 0..18 {
        root.handle_fetched(1, Piece::default());
    }
    let told = orders(&mut root);
    let is_fetch = |message: &&Message| matches!(message, Message::Fetch(..));
    assert_eq!(told.iter().filter(is_fetch).count(), 10);
    assert_eq!(told.len(), 28);
    assert!(root.handle_fetch(1, FRONT, 2, 0).is_err());
}

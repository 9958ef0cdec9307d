//! Tests that what one job asks for never makes a message that the daemons cannot read: they would
//! lose each other, and all jobs with them.

use farcall_gang_proto::{Ended, JobSpec, MAX_MESSAGE, MAX_SPEC, Message, Order, Root, Settings};

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

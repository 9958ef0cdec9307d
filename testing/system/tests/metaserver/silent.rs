//! Tests of calls where one of two servers is stopped by a signal: its connections stay open, and
//! it answers nobody. Calls go to the other server, and end at their time-outs.

use farcall_client::{Argument, ArrayForm, DataName, Error, Function, Options, Scalar, Server};
use farcall_system::cluster::{Cluster, Running, begin, serving, status, wait_for_servers};
use farcall_system::server::connect;
use farcall_system::wait_until;
use std::time::{Duration, Instant};

/// Makes the first of two servers busy for this many seconds, and freezes the other one, to which
/// calls go then. Returns the address and the call of the first one.
fn freeze_the_idle_one(cluster: &mut Cluster, metaserver: &str, seconds: f64) -> (String, Running) {
    let busy = serving(metaserver).swap_remove(0);
    let long = begin(&connect(&busy).function("again").unwrap(), 3, seconds, 1.0);
    wait_until("the metaserver knows that it is busy", || {
        status(metaserver)["servers"][0]["calls"].as_u64() > Some(0)
    });
    let mut others = cluster.servers.iter_mut();
    let idle = others.find(|one| one.address() != busy);
    idle.expect("there are two").freeze();
    (busy, long)
}

/// Calls a function that a busy server has, and another one to which the client has no connection
/// yet, and which answers no greeting. `check` gets the function and the address of the busy one.
fn where_nobody_answers(timeout: Option<Duration>, check: impl FnOnce(&Function, &str)) {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..2).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 2);
    // The metaserver learns the paths from this client, so that the next one probes none.
    let first = connect(metaserver.address());
    let paths = || {
        status(metaserver.address())["paths"]
            .as_array()
            .map(Vec::len)
    };
    first.function("again").unwrap();
    wait_until("all paths are known", || paths() == Some(2));
    drop(first);
    let options = Options {
        connect_timeout: Duration::from_secs(6),
        timeout,
        ..Options::default()
    };
    // The client looks it up at the first of them. That one is busy, so calls go to the other.
    let server = Server::connect(metaserver.address(), options).unwrap();
    let again = server.function("again").unwrap();
    let (busy, long) = freeze_the_idle_one(&mut cluster, metaserver.address(), 8.0);
    check(&again, &busy);
    long.end().unwrap();
}

#[test]
fn a_call_does_not_wait_for_long_where_nobody_answers() {
    where_nobody_answers(None, |again, busy| {
        let start = Instant::now();
        let next = begin(again, 3, 0.0, 1.0);
        let held = start.elapsed();
        assert!((1..5).contains(&held.as_secs()), "{held:?}");
        assert_eq!(next.pending.server(), busy);
        next.end().unwrap();
    });
}

/// Its arrays may travel over several connections.
#[test]
fn a_large_call_goes_where_somebody_answers() {
    where_nobody_answers(None, |again, _| {
        let arguments = &mut [
            Argument::Scalar(Scalar::Int(5_000_000)),
            Argument::Scalar(Scalar::Float(0.0)),
            Argument::Out(&mut vec![0; 40_000_000]),
        ];
        again.call(arguments).unwrap();
    });
}

/// The other server is busy for longer than the call may take.
#[test]
fn the_time_out_of_a_call_counts_while_servers_are_tried() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    /// The client waits for longer than this where nobody answers.
    const LATE: Duration = Duration::from_millis(1500);
    where_nobody_answers(Some(TIMEOUT), |again, _| {
        let arguments = &mut [
            Argument::Scalar(Scalar::Int(1)),
            Argument::Scalar(Scalar::Float(0.0)),
            Argument::Out(&mut [0; 8]),
        ];
        let start = Instant::now();
        let called = again.call(arguments);
        let took = start.elapsed();
        assert!(matches!(called, Err(Error::Timeout { .. })));
        assert!(took >= TIMEOUT && took < TIMEOUT + LATE, "{took:?}");
    });
}

#[test]
fn data_at_a_server_that_does_not_answer_end_at_the_time_out() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    cluster.serve(&[metaserver.address()], &[]);
    wait_for_servers(metaserver.address(), 1);
    let options = Options {
        timeout: Some(Duration::from_secs(4)),
        ..Options::default()
    };
    let server = Server::connect(metaserver.address(), options).unwrap();
    let form = ArrayForm {
        element: "double".into(),
        shape: vec![1],
        column_major: false,
    };
    server.put_named(form, &[0; 8], "atoms", false).unwrap();
    wait_until("the metaserver knows of the data", || {
        !server.list_data().unwrap().is_empty()
    });
    cluster.servers[0].freeze();
    let late = server.data(&DataName::plain("atoms")).unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
}

#[test]
fn a_durable_call_goes_to_a_server_that_answers() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    for state in ["one", "other"] {
        cluster.serve(&[metaserver.address()], &["--pes", "1", "--state", state]);
    }
    wait_for_servers(metaserver.address(), 2);
    let options = Options {
        connect_timeout: Duration::from_secs(2),
        lost_after: Some(Duration::from_secs(2)),
        ..Options::default()
    };
    let server = Server::connect(metaserver.address(), options).unwrap();
    let again = server.function("again").unwrap();
    // The client may be connected to the first one, and its calls go to the other.
    let (busy, long) = freeze_the_idle_one(&mut cluster, metaserver.address(), 20.0);
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(1)),
        Argument::Scalar(Scalar::Float(0.0)),
        Argument::Out(&mut [0; 8]),
    ];
    let job = again.submit(arguments, None).unwrap();
    assert_eq!(job.address().to_string(), busy);
    drop(long);
}

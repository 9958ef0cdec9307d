//! Tests reservations at servers behind a metaserver, as processes. Calls of others avoid a
//! reserved server, and a reservation is made where it can begin first.

use farcall_client::{FailureKind, ReservationName, ReservationSpec};
use farcall_system::cluster::{Cluster, Running, begin, done, status, wait_for_servers};
use farcall_system::server::{connect, refusal};
use farcall_system::{BOUND, farcall, wait_until};

/// Processor elements from now on.
fn wanted(pes: u32) -> ReservationSpec {
    ReservationSpec {
        pes,
        length: 2 * BOUND,
        ..ReservationSpec::default()
    }
}

/// Reserved processor elements of a server, as a metaserver knows them.
fn reserved(metaserver: &str, address: &str) -> u64 {
    let status = status(metaserver);
    let servers = status["servers"].as_array().unwrap();
    let one = servers.iter().find(|one| one["address"] == address);
    one.unwrap()["pes_reserved"].as_u64().unwrap()
}

#[test]
fn calls_avoid_a_server_whose_elements_are_reserved() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..2).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 2);
    let reserved = |address: &str| reserved(metaserver.address(), address);
    let booked = connect(cluster.servers[0].address());
    let reservation = booked.reserve(&wanted(1)).unwrap();
    wait_until("the metaserver knows of it", || {
        reserved(cluster.servers[0].address()) == 1
    });
    let server = connect(metaserver.address());
    let function = server.function("again").unwrap();
    for _ in 0..3 {
        begin(&function, 3, 0.01, 1.0).end().unwrap();
    }
    // At the reserved server they would have waited.
    let [first, second] = [0, 1].map(|one| done(cluster.servers[one].address()));
    assert_eq!((first, second), (0, 3));
    booked.release(reservation.id).unwrap();
    wait_until("the metaserver knows that it is over", || {
        reserved(cluster.servers[0].address()) == 0
    });
    let calls: Vec<Running> = (0..4).map(|_| begin(&function, 3, 0.3, 1.0)).collect();
    calls.into_iter().for_each(|call| call.end().unwrap());
    assert!(done(cluster.servers[0].address()) > 0);
}

#[test]
fn a_reservation_is_made_where_it_can_be_had_first_and_its_calls_go_there() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..2).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "4"]));
    wait_for_servers(metaserver.address(), 2);
    let server = connect(metaserver.address());
    let function = server.function("again").unwrap();
    let addresses: Vec<&str> = cluster.servers.iter().map(|one| one.address()).collect();
    // The servers are used one after the other.
    let first = function.reserve(&wanted(2)).unwrap();
    // Much longer, because servers answer in seconds from the moment at which they are asked.
    let longer = ReservationSpec {
        length: 3 * BOUND,
        ..wanted(1)
    };
    let second = function.reserve(&longer).unwrap();
    let mut at = [&first, &second].map(|made| made.server.to_string());
    assert_ne!(at[0], at[1]);
    let refused = function.reserve(&wanted(2)).unwrap_err();
    let earliest = refused.earliest().unwrap();
    assert!(earliest <= 2 * BOUND && earliest > BOUND, "{refused}");
    assert!(refused.to_string().contains(&at[0]), "{refused}");
    let soonest = ReservationSpec {
        latest: Some(2 * BOUND),
        ..wanted(2)
    };
    let third = function.reserve(&soonest).unwrap();
    assert_eq!(third.server.to_string(), at[0], "it is over first");
    assert!(
        third.begins > BOUND && third.begins <= earliest,
        "{third:?}"
    );
    for (index, made) in [&first, &second].into_iter().enumerate() {
        let within = function.with_reservation(Some(made));
        (0..2).for_each(|_| begin(&within, 3, 0.01, 1.0).end().unwrap());
        assert_eq!(done(&at[index]), 2);
    }
    server
        .behind(&third.server)
        .unwrap()
        .release(third.id)
        .unwrap();
    assert_eq!(connect(&at[0]).reservations().unwrap().len(), 1);
    at.sort_unstable();
    let mut all = addresses;
    all.sort_unstable();
    assert_eq!(at, all[..]);
}

#[test]
fn what_a_metaserver_is_not_told_is_refused_with_the_remedy() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    cluster.serve(&[metaserver.address()], &["--pes", "2"]);
    wait_for_servers(metaserver.address(), 1);
    let server = connect(metaserver.address());
    let (kind, text) = refusal(server.reserve(&wanted(1)));
    assert_eq!(kind, FailureKind::NotAllowed);
    assert!(text.contains("--function"), "{text}");
    let (kind, text) = refusal(server.reservations());
    assert_eq!(kind, FailureKind::NotAllowed);
    assert!(text.contains("connect to a server"), "{text}");
    assert!(text.contains("--function"), "{text}");
    let function = server.function("again").unwrap();
    let call = |name: ReservationName| {
        let function = function.with_reservation(Some(name));
        let mut arguments = [
            farcall_client::Argument::Scalar(farcall_client::Scalar::Int(0)),
            farcall_client::Argument::Scalar(farcall_client::Scalar::Float(0.0)),
            farcall_client::Argument::Out(&mut []),
        ];
        refusal(function.call(&mut arguments))
    };
    let (kind, text) = call(ReservationName::from(1));
    assert_eq!(kind, FailureKind::BadArgument);
    assert!(text.contains("1@farcall://host:port"), "{text}");
    let (kind, text) = call("1@farcall://127.0.0.1:1".parse().unwrap());
    assert_eq!(kind, FailureKind::NoServer);
    assert!(text.contains("127.0.0.1:1"), "{text}");
    let there = format!("7@{}", cluster.servers[0].address());
    let (kind, text) = call(there.parse().unwrap());
    assert_eq!(kind, FailureKind::NotFound);
    assert!(text.contains("no reservation 7"), "{text}");
    for wrong in ["", "x", "1@", "1@@", "@farcall://host"] {
        assert!(wrong.parse::<ReservationName>().is_err(), "{wrong}");
    }
}

#[test]
fn the_command_reserves_at_a_server_behind_a_metaserver() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..2).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 2);
    let command = |words: &[&str]| {
        let output = farcall()
            .args(words)
            .args(["--server", metaserver.address()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let made = command(&["reserve", "--function", "again", "--seconds", "60"]);
    let made = made.trim();
    let (_, address) = made.split_once('@').unwrap();
    let words = ["n=1", "seconds=0", "x=3", "--reservation", made];
    let printed = command(&[&["call", "again"], &words[..]].concat());
    assert!(printed.contains('7'), "{printed}");
    assert_eq!(done(address), 1);
    let listed = command(&["reservations", "--function", "again"]);
    assert!(
        listed.starts_with(&format!("{made}  1 PEs  has begun")),
        "{listed}"
    );
    command(&["release", made]);
    assert_eq!(connect(address).reservations().unwrap(), []);
}

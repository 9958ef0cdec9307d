//! Tests metaservers, servers and clients as processes: which server computes a call, and what
//! happens when one of them is lost. A lost server costs only calls that may not run again.

mod database;
mod silent;

use database::Database;
use farcall_client::{
    Argument, CallPhase, Error, Function, Options, Pending, Scalar, Server, wait_any,
};
use farcall_system::cluster::{Cluster, Running, begin, done, serving, status, wait_for_servers};
use farcall_system::server::connect;
use farcall_system::{BOUND, daemon, farcall, stop, wait_until};
use rustix::fs::{CWD, mkfifoat};
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn calls_of_one_function_run_at_all_servers() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..3).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 3);
    let server = connect(metaserver.address());
    let names: Vec<String> = server
        .functions()
        .unwrap()
        .into_iter()
        .map(|f| f.name)
        .collect();
    assert_eq!(names, ["work/again", "work/once"]);
    let function = server.function("again").unwrap();
    assert_eq!(function.qualified_name(), "work/again");
    let calls: Vec<Running> = (0..6).map(|_| begin(&function, 3, 0.4, 1.0)).collect();
    calls.into_iter().for_each(|call| call.end().unwrap());
    let servers = cluster.servers.iter();
    let done: Vec<u64> = servers.map(|server| done(server.address())).collect();
    assert!(done.iter().all(|calls| *calls >= 1), "{done:?}");
    assert_eq!(done.iter().sum::<u64>(), 6);
    let missing = server.function("works").unwrap_err().to_string();
    assert!(missing.contains("farcall ls"), "{missing}");
    for server in &mut cluster.servers {
        assert!(server.stop());
    }
    wait_until("all have left", || {
        status(metaserver.address())["servers"] == serde_json::json!([])
    });
}

/// Waits for all calls. Returns how many succeeded, and the errors.
fn end_all(calls: Vec<Running>) -> (usize, Vec<Error>) {
    let errors = calls.into_iter().map(Running::end);
    let (done, failed): (Vec<_>, Vec<_>) = errors.partition(Result::is_ok);
    (
        done.len(),
        failed.into_iter().filter_map(Result::err).collect(),
    )
}

/// Makes 300 calls, half of each function. Some arrays are in shared memory, some are sent.
fn many(again: &Function, once: &Function) -> (Vec<Running>, Vec<Running>) {
    let sizes = [10, 1000, 20_000];
    // The last calls take long enough to be in progress on any machine.
    let seconds = |index| if index < 135 { 0.01 } else { 0.5 };
    let begin =
        |function, index: usize| begin(function, sizes[index % 3], seconds(index), index as f64);
    let calls = (0..150).map(|index| (begin(again, index), begin(once, index)));
    calls.unzip()
}

/// The server of a call that runs, if one of these does.
fn runs_at(calls: &[Running]) -> Option<String> {
    let mut left = calls.iter().map(|call| &call.pending);
    left.find(|call| !call.is_done() && call.status().unwrap().phase == CallPhase::Running)
        .map(Pending::server)
}

#[test]
fn a_server_that_is_killed_costs_only_calls_that_may_not_be_run_again() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..3).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 3);
    let server = connect(metaserver.address());
    let [again, once] = ["again", "once"].map(|name| server.function(name).unwrap());
    let (repeatable, others) = many(&again, &once);
    // In the middle: when some of the calls have ended.
    wait_until("some calls have ended", || {
        repeatable
            .iter()
            .filter(|call| call.pending.is_done())
            .count()
            > 30
    });
    let mut runs = None;
    wait_until("one of the others runs", || {
        runs = runs_at(&others);
        runs.is_some()
    });
    let killed = runs.unwrap();
    let mut servers = cluster.servers.iter_mut();
    servers.find(|one| one.address() == killed).unwrap().kill();
    let pending: Vec<_> = others.iter().map(|call| &call.pending).collect();
    assert!(wait_any(&pending, Some(Instant::now() + BOUND)).unwrap());
    let (done, errors) = end_all(repeatable);
    assert_eq!((done, errors.len()), (150, 0), "{errors:?}");
    let (done, errors) = end_all(others);
    assert_eq!(done + errors.len(), 150);
    assert!(!errors.is_empty(), "none was at the server that was killed");
    for error in errors {
        let text = error.to_string();
        assert!(matches!(error, Error::Lost { .. }), "{text}");
        assert!(
            text.contains("work/once") && text.contains(&killed),
            "{text}"
        );
        assert!(text.contains("Repeatable"), "{text}");
    }
    assert_eq!(serving(metaserver.address()).len(), 2);
}

/// A client for which a silent server is lost after this many seconds.
fn impatient(address: &str, seconds: f64) -> Server {
    let options = Options {
        lost_after: Some(Duration::from_secs_f64(seconds)),
        ..Options::default()
    };
    Server::connect(address, options).unwrap()
}

#[test]
fn the_calls_of_a_frozen_server_run_elsewhere_or_end() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    (0..2).for_each(|_| cluster.serve(&[metaserver.address()], &["--pes", "1"]));
    wait_for_servers(metaserver.address(), 2);
    let server = impatient(metaserver.address(), 3.0);
    let [again, once] = ["again", "once"].map(|name| server.function(name).unwrap());
    // If a call takes longer than the client's patience, this is not a reason to doubt the server.
    begin(&again, 3, 4.0, 1.0).end().unwrap();
    let busy = || {
        let status = status(metaserver.address());
        let servers = status["servers"].as_array().unwrap().clone();
        let mut servers = servers.iter();
        let found = servers.find(|one| one["calls"].as_u64() > Some(0));
        found.map(|one| one["address"].as_str().unwrap().to_owned())
    };
    wait_until("the metaserver knows that the call has ended", || {
        busy().is_none()
    });
    // It would take longer than the test; its server is the one that freezes.
    let doubtful = begin(&once, 3, 100.0, 1.0);
    wait_until("a server has the call", || busy().is_some());
    let frozen = busy().unwrap();
    let repeatable: Vec<Running> = (0..8).map(|_| begin(&again, 3, 0.4, 1.0)).collect();
    let mut servers = cluster.servers.iter_mut();
    let server = servers.find(|one| one.address() == frozen).unwrap();
    server.freeze();
    let (done, errors) = end_all(repeatable);
    assert_eq!((done, errors.len()), (8, 0), "{errors:?}");
    let error = doubtful.end().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Lost { .. }), "{text}");
    assert!(text.contains(&frozen), "{text}");
    assert!(text.contains("has been silent for 3 s"), "{text}");
    assert!(text.contains("might have run there"), "{text}");
    // A client that knows only this server does not wait either.
    server.thaw();
    let direct = impatient(&frozen, 3.0);
    let again = direct.function("again").unwrap();
    let call = begin(&again, 3, 100.0, 1.0);
    server.freeze();
    let text = call.end().unwrap_err().to_string();
    assert!(text.contains("has been silent for 3 s"), "{text}");
}

#[test]
fn a_frozen_metaserver_holds_one_call_for_a_moment() {
    let mut cluster = Cluster::new();
    let mut metaserver = cluster.metaserver(&[]);
    cluster.serve(&[metaserver.address()], &["--pes", "1"]);
    wait_for_servers(metaserver.address(), 1);
    let server = connect(metaserver.address());
    let again = server.function("again").unwrap();
    let call = || {
        let start = Instant::now();
        begin(&again, 3, 0.001, 1.0).end().unwrap();
        start.elapsed()
    };
    call();
    metaserver.signal(Signal::STOP);
    // The first call that asks the metaserver, which need not be the next one.
    let mut held = Duration::ZERO;
    wait_until("a call is held", || {
        held = call();
        held > Duration::from_secs(2)
    });
    assert!(held < Duration::from_secs(12), "{held:?}");
    // Longer than the time after which the client asks again.
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let next = call();
        assert!(next < Duration::from_secs(2), "{next:?}");
    }
    metaserver.signal(Signal::CONT);
    // The client learns of another server by the metaserver alone.
    cluster.serve(&[metaserver.address()], &["--pes", "1"]);
    let fresh = cluster.servers.last().unwrap().address().to_owned();
    wait_until("the client asks the metaserver again", || {
        let calls = [0.2; 2].map(|seconds| begin(&again, 3, seconds, 1.0));
        calls.into_iter().for_each(|call| call.end().unwrap());
        done(&fresh) > 0
    });
}

#[test]
fn a_metaserver_that_is_started_again_knows_its_servers_and_loses_nothing() {
    let mut cluster = Cluster::new();
    let store = ["--store", "sqlite:directory"];
    let mut metaserver = cluster.metaserver(&store);
    let address = metaserver.address().to_string();
    (0..2).for_each(|_| cluster.serve(&[&address], &[]));
    wait_for_servers(&address, 2);
    let server = connect(&address);
    let again = server.function("again").unwrap();
    let calls: Vec<Running> = (0..20).map(|_| begin(&again, 10, 0.05, 1.0)).collect();
    // Another metaserver with the same store knows what is in it.
    let mut other = cluster.metaserver(&store);
    wait_for_servers(other.address(), 2);
    assert!(stop(&mut other));
    metaserver.kill();
    // Clients continue with the data that they have.
    let more: Vec<Running> = (0..20).map(|_| begin(&again, 10, 0.05, 2.0)).collect();
    for calls in [calls, more] {
        let (done, errors) = end_all(calls);
        assert_eq!((done, errors.len()), (20, 0), "{errors:?}");
    }
    // One server ends meanwhile.
    cluster.servers[1].kill();
    let port = address.strip_prefix("farcall://").unwrap();
    let mut metaserver = cluster.metaserver(&[&["--listen", port], &store[..]].concat());
    assert_eq!(metaserver.address(), address);
    assert!(!serving(&address).is_empty(), "nothing was kept");
    wait_until("the lease of the one that was killed has ended", || {
        serving(&address) == [cluster.servers[0].address().to_string()]
    });
    begin(&again, 10, 0.0, 3.0).end().unwrap();
    assert!(stop(&mut metaserver));
}

#[test]
fn a_metaserver_that_has_forgotten_its_servers_costs_no_call() {
    let mut cluster = Cluster::new();
    let mut metaserver = cluster.metaserver(&["--store", "none"]);
    let address = metaserver.address().to_string();
    (0..2).for_each(|_| cluster.serve(&[&address], &[]));
    wait_for_servers(&address, 2);
    let server = connect(&address);
    let again = server.function("again").unwrap();
    begin(&again, 10, 0.0, 1.0).end().unwrap();
    let port = address.strip_prefix("farcall://").unwrap();
    for round in 0..3 {
        metaserver.kill();
        metaserver = cluster.metaserver(&["--store", "none", "--listen", port]);
        // The servers try to join once a second, so the metaserver knows none at first.
        let calls: Vec<Running> = (0..20).map(|_| begin(&again, 10, 0.0, 1.0)).collect();
        let (done, errors) = end_all(calls);
        assert_eq!((done, errors.len()), (20, 0), "round {round}: {errors:?}");
        wait_for_servers(&address, 2);
    }
    // What nobody has is still told.
    let missing = server.function("works").unwrap_err().to_string();
    assert!(missing.contains("no server has a function"), "{missing}");
    for server in &mut cluster.servers {
        server.kill();
    }
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(1)),
        Argument::Scalar(Scalar::Float(0.0)),
        Argument::Out(&mut [0; 8]),
    ];
    let error = again.call(arguments).unwrap_err().to_string();
    assert!(error.contains("no server can take a call"), "{error}");
    // Without a metaserver, nobody knows what the servers have.
    metaserver.kill();
    let missing = server.function("works").unwrap_err().to_string();
    assert!(missing.starts_with("no metaserver answers"), "{missing}");
}

#[test]
fn who_proves_nothing_has_no_servers_join() {
    let mut cluster = Cluster::new();
    let token = |name: &str| {
        let output = farcall()
            .args(["token", "add", "tokens", name])
            .current_dir(cluster.folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    };
    let [alice, node] = ["alice", "node"].map(token);
    let metaserver = cluster.metaserver(&["--tokens", "tokens", "--server-user", "node"]);
    let words = ["serve", "work.idl", "--allow-code", "--log", "off"];
    let words = [
        &words[..],
        &[
            "--listen",
            "127.0.0.1:0",
            "--metaserver",
            metaserver.address(),
        ],
    ];
    let words = words.concat();
    let folder = cluster.folder.path();
    // A server joins neither with the token of a client nor without a token.
    let wrong = daemon(folder, &words, &[("FARCALL_TOKEN", &alice)]);
    let nobody = daemon(folder, &words, &[("FARCALL_TOKEN", "")]);
    let right = daemon(folder, &words, &[("FARCALL_TOKEN", &node)]);
    let options = || Options {
        credentials: farcall_client::Credentials::default().with_token(&alice),
        ..Default::default()
    };
    let server = Server::connect(metaserver.address(), options()).unwrap();
    let joined = || {
        let text = server.status().unwrap();
        let status: serde_json::Value = serde_json::from_str(&text).unwrap();
        let servers = status["servers"].as_array().unwrap().clone();
        servers
            .iter()
            .map(|one| one["address"].clone())
            .collect::<Vec<_>>()
    };
    wait_until("the one with the right token has joined", || {
        !joined().is_empty()
    });
    assert_eq!(joined(), [right.address()]);
    begin(&server.function("again").unwrap(), 3, 0.0, 1.0)
        .end()
        .unwrap();
    let refused = Server::connect(metaserver.address(), Default::default());
    assert!(refused.unwrap_err().to_string().contains("FARCALL_TOKEN"));
    drop((wrong, nobody));
    cluster.servers.clear();
}

/// The certificates of the host, of a server's user and of another user, in the folder `tls`.
fn make_certificates(folder: &Path) {
    for words in [
        ["server", "tls", "127.0.0.1"],
        ["client", "tls", "node"],
        ["client", "tls", "alice"],
    ] {
        let made = farcall()
            .arg("certificate")
            .args(words)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
}

#[test]
fn who_does_not_speak_tls_to_a_metaserver_is_told() {
    let cluster = Cluster::new();
    make_certificates(cluster.folder.path());
    let metaserver = cluster.metaserver(&["--tls", "tls"]);
    let address = metaserver.address().replace("farcalls://", "farcall://");
    let error = Server::connect(&address, Options::default()).unwrap_err();
    assert!(error.to_string().contains("connect to metas://"), "{error}");
}

#[test]
fn servers_and_metaservers_know_each_other_by_certificates() {
    let cluster = Cluster::new();
    let folder = cluster.folder.path();
    make_certificates(folder);
    let believed = ["--tls", "tls", "--tls-clients", "tls/authority.pem"];
    let metaserver = cluster.metaserver(&[&believed[..], &["--server-user", "node"]].concat());
    assert!(
        metaserver.address().starts_with("farcalls://"),
        "{}",
        metaserver.address()
    );
    let words = [
        "serve",
        "work.idl",
        "--allow-code",
        "--log",
        "off",
        "--listen",
        "127.0.0.1:0",
    ];
    let words = [
        &words[..],
        &believed,
        &["--metaserver", metaserver.address()],
    ]
    .concat();
    let proof = |name: &str| {
        let file = |end: &str| format!("tls/{name}.{end}");
        [
            ("FARCALL_CA", "tls/authority.pem".to_string()),
            ("FARCALL_CERT", file("pem")),
            ("FARCALL_KEY", file("key")),
        ]
    };
    let serve = |name: &str| {
        let set = proof(name);
        let set: Vec<(&str, &str)> = set
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        daemon(folder, &words, &set)
    };
    // A client's certificate does not let its owner join servers.
    let (wrong, right) = (serve("alice"), serve("node"));
    let path = |name: &str| folder.join("tls").join(name);
    let options = Options {
        credentials: farcall_client::Credentials::default()
            .with_authorities(path("authority.pem"))
            .with_certificate(path("alice.pem"), path("alice.key")),
        ..Default::default()
    };
    let server = Server::connect(metaserver.address(), options).unwrap();
    let mut function = None;
    wait_until("the server has joined", || {
        function = server.function("again").ok();
        function.is_some()
    });
    let function = function.unwrap();
    let servers = function.servers().unwrap();
    let addresses: Vec<String> = servers
        .iter()
        .map(|one| one.address().to_string())
        .collect();
    assert_eq!(addresses, [right.address()]);
    begin(&function, 10_000, 0.0, 1.0).end().unwrap();
    let stranger = Server::connect(metaserver.address(), Default::default());
    assert!(stranger.is_err());
    drop(wrong);
}

#[test]
fn up_brings_a_cluster_and_takes_it_with_it() {
    let cluster = Cluster::new();
    let words = [
        "up",
        "--local",
        "2",
        "work.idl",
        "--allow-code",
        "--listen",
        "127.0.0.1:0",
    ];
    let mut up = daemon(cluster.folder.path(), &words, &[]);
    wait_for_servers(up.address(), 2);
    let server = connect(up.address());
    begin(&server.function("again").unwrap(), 3, 0.0, 1.0)
        .end()
        .unwrap();
    let mut addresses = serving(up.address());
    addresses.push(up.address().to_string());
    assert!(stop(&mut up));
    for address in &addresses {
        let gone = Server::connect(address, Default::default());
        assert!(gone.is_err(), "{address} is still there");
    }
    // The same if it is killed itself.
    let mut up = daemon(cluster.folder.path(), &words, &[]);
    wait_for_servers(up.address(), 2);
    let mut addresses = serving(up.address());
    addresses.push(up.address().to_string());
    up.kill();
    for address in &addresses {
        wait_until("it has ended", || {
            Server::connect(address, Default::default()).is_err()
        });
    }
}

#[test]
fn up_ends_with_a_signal_while_a_server_starts() {
    let cluster = Cluster::new();
    // Who opens it waits until somebody writes to it.
    let interface = cluster.folder.path().join("slow.idl");
    mkfifoat(CWD, &interface, 0o600.into()).unwrap();
    let words = ["up", "--local", "1", "slow.idl", "--listen", "127.0.0.1:0"];
    let mut up = daemon(cluster.folder.path(), &words, &[]);
    let start = Instant::now();
    assert!(stop(&mut up));
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(Server::connect(up.address(), Default::default()).is_err());
}

/// A database, unless this machine cannot have one.
fn database() -> Option<Database> {
    match Database::start() {
        Ok(database) => Some(database),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

#[test]
fn two_metaservers_share_a_database_and_one_may_be_killed() {
    let Some(database) = database() else { return };
    let mut cluster = Cluster::new();
    let store = ["--store", &database.store()];
    let [mut one, two] = [(); 2].map(|()| cluster.metaserver(&store));
    let both = [one.address(), two.address()];
    cluster.serve(&both, &["--pes", "1"]);
    cluster.serve(&both, &["--pes", "1"]);
    // Through the database, each metaserver knows the servers that have joined the other one.
    cluster.serve(&[two.address()], &["--pes", "1"]);
    both.iter().for_each(|address| wait_for_servers(address, 3));
    let server = connect(&both.join(","));
    let [again, once] = ["again", "once"].map(|name| server.function(name).unwrap());
    let before: Vec<Running> = (0..30).map(|_| begin(&once, 10, 0.02, 1.0)).collect();
    one.kill();
    let after: Vec<Running> = (0..30).map(|_| begin(&once, 10, 0.02, 2.0)).collect();
    let third: Vec<Running> = (0..30).map(|_| begin(&again, 10, 0.02, 3.0)).collect();
    for calls in [before, after, third] {
        let (done, errors) = end_all(calls);
        assert_eq!((done, errors.len()), (30, 0), "{errors:?}");
    }
    let placed = server.status().unwrap();
    let placed: serde_json::Value = serde_json::from_str(&placed).unwrap();
    assert_eq!(placed["kind"], "metaserver", "the second one answers");
    // A metaserver that starts later knows all servers at once.
    let third = cluster.metaserver(&store);
    assert_eq!(serving(third.address()).len(), 3);
}

#[test]
fn a_database_that_is_away_stops_nothing() {
    let Some(mut database) = database() else {
        return;
    };
    let mut cluster = Cluster::new();
    let store = ["--store", &database.store()];
    let metaserver = cluster.metaserver(&store);
    cluster.serve(&[metaserver.address()], &[]);
    wait_for_servers(metaserver.address(), 1);
    let answers = |address: &str| status(address)["store"]["answers"].as_bool().unwrap();
    assert!(answers(metaserver.address()));
    database.stop();
    wait_until("it is noticed", || !answers(metaserver.address()));
    let again = connect(metaserver.address()).function("again").unwrap();
    begin(&again, 10, 0.0, 1.0).end().unwrap();
    cluster.serve(&[metaserver.address()], &[]);
    wait_for_servers(metaserver.address(), 2);
    database.run();
    wait_until("it answers again", || answers(metaserver.address()));
    // Servers that have joined meanwhile are known as well.
    let other = cluster.metaserver(&store);
    wait_for_servers(other.address(), 2);
}

#[test]
fn a_durable_call_goes_to_a_server_with_a_state_folder() {
    let mut cluster = Cluster::new();
    let metaserver = cluster.metaserver(&[]);
    cluster.serve(&[metaserver.address()], &["--pes", "1"]);
    cluster.serve(&[metaserver.address()], &["--pes", "1", "--state", "state"]);
    wait_for_servers(metaserver.address(), 2);
    let server = connect(metaserver.address());
    let again = server.function("again").unwrap();
    let with_folder = cluster.servers[1].address();
    for _ in 0..6 {
        let arguments = &mut [
            Argument::Scalar(Scalar::Int(1)),
            Argument::Scalar(Scalar::Float(0.0)),
            Argument::Out(&mut [0; 8]),
        ];
        let job = again.submit(arguments, None).unwrap();
        assert_eq!(job.address().to_string(), with_folder);
    }
    assert_eq!(serving(metaserver.address()).len(), 2, "neither is lost");
}

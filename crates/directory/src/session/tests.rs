//! Tests of clients that lie, and of clients that are wrong. What one client says does not hurt
//! others: a lost server or an unusual time counts only after it is confirmed.

use super::*;
use crate::message::{Function, Phase, QueuedCall, Transfer};
use crate::{Record, Settings, digest};
use farcall_record::{Budget, Line};

const T0: f64 = 1.7e9;

fn session(number: u64, user: &str) -> Session {
    let peer = Peer {
        user: user.into(),
        sees_all: false,
        may_not_join: None,
        site: "site".into(),
    };
    Session::new(number, peer)
}

fn join(server: u64) -> Join {
    let function = Function {
        name: "bench/null".into(),
        title: String::new(),
        digest: digest("bench/null"),
        repeatable: true,
        library: None,
    };
    Join {
        server,
        address: format!("farcall://host{server}:3717"),
        agent: "test".into(),
        pes: 2,
        memory: 1 << 30,
        functions: vec![function],
    }
}

fn report(server: u64) -> Report {
    Report {
        server,
        accepts: true,
        memory: 1 << 29,
        calls: 0,
        queued: Vec::new(),
        learned: Vec::new(),
        booked: None,
    }
}

fn with(servers: u64) -> Directory {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=servers {
        directory.join(T0, join(server)).unwrap();
        directory.report(T0, report(server)).unwrap();
    }
    directory
}

fn wanted() -> Choose {
    Choose {
        function: "bench/null".into(),
        digest: digest("bench/null"),
        work: 1.0,
        up: 1 << 20,
        down: 1 << 20,
        memory: 1 << 21,
        fewest: None,
        most: None,
        exclude: Vec::new(),
        explain: false,
        data: None,
        trace: None,
    }
}

fn observed(server: u64, placement: u64) -> Observe {
    Observe {
        server,
        placement,
        up: None,
        down: None,
        lost: false,
    }
}

/// A transfer of a mebibyte.
fn transfer(seconds: f64) -> Option<Transfer> {
    let bytes = 1 << 20;
    Some(Transfer { bytes, seconds })
}

fn say(session: &mut Session, directory: &mut Directory, now: f64, observed: &Observe) {
    let bytes = observed.to_bytes();
    let reached = |address: &str| Ok(address.to_string());
    let answer = session.direct((directory, now), Kind::Observe, &bytes, reached);
    assert!(matches!(answer, Ok(None)));
}

fn placed(session: &mut Session, directory: &mut Directory, now: f64) -> (u64, u64) {
    let chosen = session.choose((directory, now), &wanted()).unwrap();
    (chosen.offers[0].server, chosen.placement)
}

fn forecast_s(directory: &mut Directory, now: f64) -> f64 {
    let explain = Choose {
        explain: true,
        ..wanted()
    };
    let offers = directory.choose(now, "site", &explain).unwrap().offers;
    offers[0].terms.unwrap().seconds()
}

#[test]
fn a_client_that_says_that_all_servers_are_lost_loses_only_its_own() {
    let mut directory = with(2);
    let (mut liar, mut other) = (session(1, "mallory"), session(2, "alice"));
    for server in [1, 2] {
        let lost = Observe {
            lost: true,
            ..observed(server, 0)
        };
        say(&mut liar, &mut directory, T0 + 0.1, &lost);
        assert!(directory.servers().all(|server| server.accepts));
        placed(&mut other, &mut directory, T0 + 0.2);
    }
    // It avoids both servers, and still gets one of them, because there is no other.
    placed(&mut liar, &mut directory, T0 + 0.2);
    for round in 1..10 {
        let now = T0 + 3.0 * f64::from(round);
        (1..=2).for_each(|server| directory.report(now, report(server)).unwrap());
        assert!(directory.servers().all(|server| server.accepts));
    }
}

#[test]
fn a_client_avoids_a_server_that_it_has_lost_until_the_server_reports() {
    let mut directory = with(2);
    let mut client = session(1, "alice");
    let lost = Observe {
        lost: true,
        ..observed(1, 0)
    };
    say(&mut client, &mut directory, T0 + 0.1, &lost);
    let servers = |client: &mut Session, directory: &mut Directory, now| {
        let found = (0..8).map(|_| placed(client, directory, now).0);
        found.collect::<BTreeSet<u64>>()
    };
    let found = servers(&mut client, &mut directory, T0 + 0.2);
    assert_eq!(found, BTreeSet::from([2]));
    directory.report(T0 + 1.0, report(1)).unwrap();
    let found = servers(&mut client, &mut directory, T0 + 1.1);
    assert_eq!(found, BTreeSet::from([1, 2]));
}

#[test]
fn a_server_that_a_client_has_lost_and_that_is_silent_is_lost_for_all() {
    let mut directory = with(2);
    let mut client = session(1, "alice");
    directory.report(T0 + 3.0, report(1)).unwrap();
    directory.report(T0 + 3.0, report(2)).unwrap();
    let lost = Observe {
        lost: true,
        ..observed(1, 0)
    };
    say(&mut client, &mut directory, T0 + 4.0, &lost);
    directory.report(T0 + 6.0, report(2)).unwrap();
    directory.advance(T0 + 7.9);
    assert!(directory.servers().all(|server| !server.lost));
    directory.advance(T0 + 8.1);
    let states: Vec<bool> = directory.servers().map(|server| server.lost).collect();
    assert_eq!(states, [true, false], "before the lease ends at T0 + 13");
    directory.report(T0 + 9.0, report(1)).unwrap();
    assert!(directory.servers().all(|server| !server.lost));
}

#[test]
fn impossible_transfer_times_move_no_forecast() {
    let mut directory = with(1);
    let (mut liar, mut other) = (session(1, "mallory"), session(2, "alice"));
    let honest = |other: &mut Session, directory: &mut Directory, now: f64| {
        let (server, placement) = placed(other, directory, now);
        let done = Observe {
            up: transfer(0.01),
            down: transfer(0.01),
            ..observed(server, placement)
        };
        say(other, directory, now + 0.05, &done);
    };
    (0..10).for_each(|round| honest(&mut other, &mut directory, T0 + f64::from(round) * 0.1));
    let before_s = forecast_s(&mut directory, T0 + 2.0);
    let (server, theirs) = placed(&mut other, &mut directory, T0 + 2.0);
    for seconds in [1e9, 1e-300, 100.0] {
        // A probe, a call of somebody else, and a call of its own.
        let (_, own) = placed(&mut liar, &mut directory, T0 + 2.1);
        for placement in [0, theirs, own] {
            let lie = Observe {
                up: transfer(seconds),
                down: transfer(seconds),
                ..observed(server, placement)
            };
            say(&mut liar, &mut directory, T0 + 2.2, &lie);
        }
    }
    directory.report(T0 + 9.0, report(1)).unwrap();
    let after_s = forecast_s(&mut directory, T0 + 9.0);
    assert!(
        (after_s / before_s - 1.0).abs() < 0.5,
        "{before_s} s, then {after_s} s"
    );
}

#[test]
fn an_unusual_time_counts_once_it_is_confirmed() {
    let mut directory = with(1);
    let mut users = [session(1, "alice"), session(2, "bob")];
    let mut now = T0;
    let mut call = |directory: &mut Directory, user: &mut Session, seconds: f64| {
        now += 0.1;
        directory.report(now, report(1)).unwrap();
        let (server, placement) = placed(user, directory, now);
        now += 2.0 * seconds;
        directory.report(now, report(1)).unwrap();
        let done = Observe {
            up: transfer(seconds),
            ..observed(server, placement)
        };
        say(user, directory, now, &done);
        directory
            .paths()
            .next()
            .map(|(_, _, [[_, rate], _])| rate.unwrap().value)
    };
    for _ in 0..10 {
        call(&mut directory, &mut users[0], 0.01);
    }
    let rate = call(&mut directory, &mut users[0], 0.01).unwrap();
    // The link has become slow: the first user sees it, then the second one.
    let first = call(&mut directory, &mut users[0], 1.0);
    assert_eq!(first, Some(rate));
    let mut slower = || call(&mut directory, &mut users[1], 1.0).unwrap() < rate / 10.0;
    assert!((0..21).any(|_| slower()), "the forecast follows");
}

#[test]
fn the_record_has_placements_servers_and_paths() {
    let mut directory = Directory::new(Settings::default());
    directory.keep_record(Budget::of_day(100_000_000));
    directory.join(T0, join(1)).unwrap();
    directory.report(T0, report(1)).unwrap();
    let mut client = session(7, "alice");
    client.came(T0 + 0.5);
    let (server, number) = placed(&mut client, &mut directory, T0 + 1.0);
    let up = transfer(0.25);
    let done = Observe {
        up,
        ..observed(server, number)
    };
    say(&mut client, &mut directory, T0 + 3.0, &done);
    // A second call has no known outcome, a third loses its server, and a fourth finds none.
    placed(&mut client, &mut directory, T0 + 3.0);
    let (_, third) = placed(&mut client, &mut directory, T0 + 3.0);
    let lost = Observe {
        lost: true,
        ..observed(server, third)
    };
    say(&mut client, &mut directory, T0 + 4.0, &lost);
    directory.leave(T0 + 4.0, server);
    let context = TraceContext::new([9; 16], [8; 8]).unwrap();
    let traced = Choose {
        trace: Some(context),
        ..wanted()
    };
    let refused = client.choose((&mut directory, T0 + 5.0), &traced);
    assert!(refused.is_err());
    let told = client.take_placed().unwrap();
    assert_eq!((told.context, told.server.is_err()), (context, true));
    assert_eq!(client.take_placed(), None);
    directory.advance(T0 + 1000.0);
    let lines = directory.take_lines(false);
    assert!(directory.take_lines(true).is_empty());
    let events = lines.iter().filter_map(|line| match line {
        Line::Server(server) => Some((server.event.as_str(), server.server.as_str())),
        _ => None,
    });
    let address = "farcall://host1:3717";
    assert_eq!(
        events.collect::<Vec<_>>(),
        [("joined", address), ("left", address)]
    );
    let links = lines.iter().filter_map(|line| match line {
        Line::Link(link) => Some((link.host.as_str(), link.up_bytes_per_s.is_some())),
        _ => None,
    });
    assert_eq!(links.collect::<Vec<_>>(), [("site", true)]);
    check_placements(&lines, address);
}

/// The four placements of the test above.
fn check_placements(lines: &[Line], address: &str) {
    let placements = lines.iter().filter_map(|line| match line {
        Line::Placement(placement) => Some(placement),
        _ => None,
    });
    let placements: Vec<_> = placements.collect();
    let outcomes = placements.iter().map(|one| one.outcome.as_str());
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        ["done", "lost", "no server", "unknown"]
    );
    let first = placements[0];
    assert_eq!(
        (first.user.as_str(), first.host.as_str()),
        ("alice", "site")
    );
    assert_eq!(
        (first.function.as_str(), first.server.as_str()),
        ("bench/null", address)
    );
    assert_eq!(
        (first.asked, first.placed, first.ended),
        (T0 + 0.5, Some(T0 + 1.0), Some(T0 + 3.0))
    );
    assert!(first.up_s.is_some() && first.compute_s.is_some());
    assert_eq!((first.sent_bytes, first.share), (1 << 20, 1.0));
    assert_eq!(placements[2].trace, "09".repeat(16));
    assert_eq!(
        (placements[2].placed, placements[2].server.as_str()),
        (None, "")
    );
    assert_eq!(placements[3].ended, None);
}

/// The clock of the metaserver's host was 2000 s behind, and was set.
#[test]
fn lines_of_the_record_have_dates_of_the_calendar() {
    let mut directory = with(0);
    directory.keep_record(Budget::of_day(100_000_000));
    directory.set_calendar(2000.0);
    directory.join(T0, join(1)).unwrap();
    directory.report(T0, report(1)).unwrap();
    let mut client = session(7, "alice");
    client.came(T0 + 0.5);
    let (server, number) = placed(&mut client, &mut directory, T0 + 1.0);
    say(
        &mut client,
        &mut directory,
        T0 + 3.0,
        &observed(server, number),
    );
    let lines = directory.take_lines(true);
    let times: Vec<Option<f64>> = lines.iter().map(Line::time).collect();
    assert_eq!(times, [Some(T0 + 2000.0), Some(T0 + 2000.5)]);
    let ends = lines.iter().find_map(|line| match line {
        Line::Placement(placement) => Some((placement.placed, placement.ended)),
        _ => None,
    });
    assert_eq!(ends, Some((Some(T0 + 2001.0), Some(T0 + 2003.0))));
}

/// It has joined again, at another metaserver with the same store.
#[test]
fn a_lost_server_that_another_metaserver_has_heard_is_back_in_the_record() {
    let (mut directory, mut other) = (with(0), with(0));
    directory.keep_record(Budget::of_day(100_000_000));
    directory.join(T0, join(1)).unwrap();
    directory.lose(T0 + 1.0, 1);
    other.join(T0 + 2.0, join(1)).unwrap();
    directory.apply(T0 + 2.0, other.record(crate::Key::Server(1)).unwrap());
    let lines = directory.take_lines(true);
    let events = lines.iter().filter_map(|line| match line {
        Line::Server(server) => Some(server.event.as_str()),
        _ => None,
    });
    assert_eq!(events.collect::<Vec<_>>(), ["joined", "lost", "back"]);
}

#[test]
fn many_placements_are_counted_and_none_is_forgotten() {
    let mut directory = with(1);
    let budget = Budget {
        lasting: 1.0,
        saved: 10.0,
        peak: 5.0,
        kinds: 4,
    };
    directory.keep_record(budget);
    let mut client = session(7, "alice");
    let (mut counted, mut alone) = (0, 0);
    let mut take = |directory: &mut Directory, is_end| {
        for line in directory.take_lines(is_end) {
            match line {
                Line::Placement(_) => alone += 1,
                Line::Placements(line) => counted += line.placements,
                _ => {}
            }
        }
    };
    let calls = 3000;
    for call in 0..calls {
        let now = T0 + f64::from(call) / 1000.0;
        let (server, number) = placed(&mut client, &mut directory, now);
        say(&mut client, &mut directory, now, &observed(server, number));
        take(&mut directory, false);
    }
    take(&mut directory, true);
    assert_eq!(alone + counted, u64::try_from(calls).unwrap());
    assert!((1..100).contains(&alone), "{alone}");
}

#[test]
fn a_server_that_has_joined_updates_its_record_though_no_other_may_join() {
    let (mut directory, mut server) = (with(0), session(1, "alice"));
    let reached = |address: &str| Ok(address.to_string());
    let most = MOST_JOINED as u64;
    for number in 1..=most {
        let at = (&mut directory, T0);
        server.join(at, join(number), reached).unwrap();
    }
    let at = (&mut directory, T0);
    assert!(server.join(at, join(most + 1), reached).is_err());
    let functions = Vec::new();
    let fewer = Join {
        functions,
        ..join(1)
    };
    server.join((&mut directory, T0), fewer, reached).unwrap();
    let others = directory.with_function("bench/null", None);
    assert_eq!(others.count() as u64, most - 1);
}

/// Each connection accepts messages of a certain length only.
#[test]
fn an_answer_about_a_function_of_many_busy_servers_can_be_sent() {
    let most = farcall_rpc_proto::Limits::default().control_bytes as usize;
    for (servers, calls) in [(4096, 0), (1000, 4), (200, 256)] {
        let mut directory = with(servers);
        let mut client = session(1, "alice");
        let call = QueuedCall {
            phase: Phase::Waiting,
            pes: 1,
            seconds: 1.234,
            up: 1 << 20,
            down: 1 << 20,
            reserved: None,
        };
        for server in 1..=servers {
            let queued = vec![call; calls];
            let calls = calls as u32;
            directory
                .report(
                    T0,
                    Report {
                        calls,
                        queued,
                        ..report(server)
                    },
                )
                .unwrap();
            for round in 0..21 {
                let took = 0.1 + 1e-3 * f64::from(round);
                directory.learn(("site", 0), server, None, [transfer(took), transfer(took)]);
            }
        }
        let find = Find {
            function: "bench/null".into(),
        };
        let reached = |address: &str| Ok(address.to_string());
        let at = (&mut directory, T0 + 1.0);
        let answer = client.direct(at, Kind::Find, &find.to_bytes(), reached);
        let (_, bytes) = answer.unwrap().unwrap();
        assert!(
            bytes.len() <= most,
            "{servers} servers: {} bytes",
            bytes.len()
        );
        let found = Found::from_bytes(&bytes).unwrap();
        let named = found.records.iter();
        let named = named.filter(|record| matches!(record, Record::Server(_)));
        assert_eq!(named.count() as u64, servers);
    }
}

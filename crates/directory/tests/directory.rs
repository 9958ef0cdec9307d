//! Tests of a directory in virtual time: leases, placements, reservations and learned paths. They
//! also check that all messages and tables have bounds.

use farcall_directory::message::{
    Booked, Choose, Chosen, Function, Join, MOST_JOBS, MOST_NAME, Message, Observe, Phase,
    QueuedCall, Rate, Report, Times, Transfer,
};
use farcall_directory::shared::{Exchange, Write};
use farcall_directory::{Change, Directory, Key, Record, Refusal, Settings, digest};

const T0: f64 = 1.7e9;

fn join(server: u64) -> Join {
    Join {
        server,
        address: format!("farcall://host{server}:3717"),
        agent: "test".into(),
        pes: 2,
        memory: 1 << 30,
        functions: ["bench/null", "linpack/linpack"]
            .map(|name| Function {
                name: name.into(),
                title: String::new(),
                digest: digest(name),
                repeatable: true,
                library: None,
            })
            .into(),
    }
}

fn report(server: u64, calls: Vec<QueuedCall>) -> Report {
    Report {
        server,
        accepts: true,
        memory: 1 << 29,
        calls: calls.len() as u32,
        queued: calls,
        learned: Vec::new(),
        booked: None,
    }
}

fn running(seconds: f64) -> QueuedCall {
    QueuedCall {
        phase: Phase::Running,
        pes: 2,
        seconds,
        up: 0,
        down: 0,
        reserved: None,
    }
}

fn wanted(function: &str) -> Choose {
    Choose {
        function: function.into(),
        digest: digest(function),
        work: 1e6,
        up: 1 << 20,
        down: 1 << 10,
        memory: 1 << 20,
        fewest: None,
        most: None,
        exclude: Vec::new(),
        explain: false,
        data: None,
        trace: None,
    }
}

fn with(servers: u64) -> Directory {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=servers {
        directory.join(T0, join(server)).unwrap();
        directory.report(T0, report(server, Vec::new())).unwrap();
    }
    directory
}

fn chosen(directory: &mut Directory, now: f64, wanted: &Choose) -> Result<u64, Refusal> {
    directory
        .choose(now, "site", wanted)
        .map(|chosen| chosen.offers[0].server)
}

#[test]
fn a_lease_ends_without_reports_and_holds_with_them() {
    let mut directory = with(2);
    directory.changes();
    for second in 1..20 {
        directory
            .report(T0 + f64::from(second), report(1, Vec::new()))
            .unwrap();
    }
    assert_eq!(directory.servers().count(), 1);
    let late = directory.report(T0 + 20.0, report(2, Vec::new()));
    assert_eq!(late, Err(Refusal::NotJoined));
    let gone = |change: &Change| matches!(change, Change::Gone(Key::Server(2), _));
    assert!(directory.changes().iter().any(gone));
    directory.join(T0 + 21.0, join(2)).unwrap();
    assert_eq!(directory.servers().count(), 2);
    directory.leave(T0 + 22.0, 2);
    assert_eq!(directory.resolve("null"), Ok("bench/null".into()));
    let nearly = directory.resolve("bench/nul").unwrap_err().to_string();
    assert_eq!(
        nearly,
        "no server has a function `bench/nul`; did you mean `null`?"
    );
    directory.leave(T0 + 22.0, 1);
    let nobody = Refusal::NobodyJoined("null".into());
    assert_eq!(directory.resolve("null"), Err(nobody));
}

#[test]
fn a_record_of_a_metaserver_whose_clock_is_ahead_holds_for_one_lease() {
    let (mut ahead, mut directory) = (with(0), with(0));
    ahead.join(T0 + 2000.0, join(1)).unwrap();
    let row = ahead.record(Key::Server(1)).unwrap();
    let mut exchange = Exchange::default();
    exchange.read(&mut directory, T0, &row.to_bytes()).unwrap();
    directory.advance(T0 + 9.0);
    assert_eq!(directory.address(1), Some("farcall://host1:3717"));
    directory.advance(T0 + 11.0);
    assert_eq!(directory.address(1), None);
    // The row is removed although it is still valid, and until then it has no effect.
    exchange.collect(&mut directory);
    exchange
        .read(&mut directory, T0 + 11.0, &row.to_bytes())
        .unwrap();
    assert_eq!(directory.address(1), None);
    let expected = Some(Write::Remove(Key::Server(1), row.expires_ms()));
    assert_eq!(exchange.write(&directory, Key::Server(1)), expected);
}

#[test]
fn rows_follow_a_calendar_that_is_set_and_leases_do_not() {
    // The metaserver began with a clock that was 2000 s behind.
    let behind = T0 - 2000.0;
    let (mut late, mut other) = (with(0), with(0));
    late.join(behind, join(1)).unwrap();
    let row = late.record(Key::Server(1)).unwrap();
    other.apply(T0, row);
    assert_eq!(other.servers().count(), 0, "its rows are worth nothing");
    late.set_calendar(2000.0);
    let row = late.record(Key::Server(1)).unwrap();
    assert_eq!(row.expires_ms(), ((T0 + 10.0) * 1e3) as u64);
    other.apply(T0, row);
    assert_eq!(other.servers().count(), 1);
    // It understands the rows of others, which hold until their dates.
    other.join(T0 + 1.0, join(2)).unwrap();
    late.apply(behind + 1.0, other.record(Key::Server(2)).unwrap());
    late.advance(behind + 9.0);
    assert_eq!(late.servers().count(), 2);
    late.advance(behind + 12.0);
    assert_eq!(late.servers().count(), 0);
    let gone = Change::Gone(Key::Server(1), ((T0 + 12.0) * 1e3) as u64);
    assert!(late.changes().contains(&gone));
}

#[test]
fn a_row_that_is_read_when_its_lease_ends_does_not_bring_the_server_back() {
    let (mut ahead, mut directory) = (with(0), with(0));
    ahead.join(T0 + 2000.0, join(1)).unwrap();
    let row = ahead.record(Key::Server(1)).unwrap();
    directory.apply(T0, row.clone());
    assert_eq!(directory.servers().count(), 1);
    // Stores are read as often as leases end, and the row is still there.
    for round in 1..4 {
        directory.apply(T0 + 10.1 * f64::from(round), row.clone());
        assert_eq!(directory.servers().count(), 0);
    }
    let gone = Change::Gone(Key::Server(1), row.expires_ms());
    assert_eq!(directory.changes(), [gone]);
}

#[test]
fn a_restarted_server_replaces_its_earlier_record() {
    let mut directory = with(1);
    let again = Join {
        address: join(1).address,
        ..join(7)
    };
    directory.join(T0 + 1.0, again).unwrap();
    let servers: Vec<u64> = directory.servers().map(|one| one.join.server).collect();
    assert_eq!(servers, [7]);
}

#[test]
fn calls_go_where_they_end_soonest_and_placed_calls_count_as_load() {
    let mut directory = with(3);
    directory
        .report(T0 + 0.1, report(2, vec![running(60.0)]))
        .unwrap();
    let times = |seconds: f64| Times {
        function: "linpack/linpack".into(),
        rates: vec![Rate {
            pes: 1,
            octave: 19,
            mean: (seconds / 1e6).ln(),
            variance: 0.01,
            calls: 9,
        }],
    };
    for (server, seconds) in [(1, 1.0), (2, 0.1), (3, 2.5)] {
        let calls = if server == 2 {
            vec![running(60.0)]
        } else {
            Vec::new()
        };
        let mut report = report(server, calls);
        report.learned = vec![times(seconds)];
        directory.report(T0 + 0.2, report).unwrap();
    }
    let call = wanted("linpack/linpack");
    let order: Vec<u64> = (0..7)
        .map(|_| chosen(&mut directory, T0 + 0.3, &call).unwrap())
        .collect();
    // Each server has two processor elements. The third server is used before the first one has
    // twice as many calls as elements: many calls arrived at once, so more are expected.
    assert_eq!(order, [1, 1, 1, 3, 3, 1, 1]);
    let excluded = Choose {
        exclude: vec![1, 3],
        ..call.clone()
    };
    assert_eq!(chosen(&mut directory, T0 + 0.3, &excluded), Ok(2));
    let plan = directory.choose(
        T0 + 0.3,
        "site",
        &Choose {
            explain: true,
            ..call
        },
    );
    let plan = plan.unwrap();
    assert_eq!((plan.placement, plan.offers.len()), (0, 3));
    let seconds = plan
        .offers
        .iter()
        .map(|offer| offer.terms.unwrap().seconds());
    assert!(seconds.is_sorted());
}

#[test]
fn a_placed_call_counts_once_when_the_server_reports_it() {
    let mut directory = with(1);
    let call = wanted("bench/null");
    chosen(&mut directory, T0 + 1.0, &call).unwrap();
    let calls = |directory: &mut Directory, now| {
        let plan = Choose {
            explain: true,
            ..wanted("bench/null")
        };
        directory.choose(now, "site", &plan).unwrap();
        directory.servers().next().unwrap().backlog_s
    };
    directory
        .report(T0 + 1.5, report(1, vec![running(5.0)]))
        .unwrap();
    assert!((calls(&mut directory, T0 + 1.5) - 5.0).abs() < 1e-6);
    // A report that the server makes when the call arrives includes the call.
    let begun = T0 + 2.0;
    directory.report(begun, report(1, Vec::new())).unwrap();
    let call = Choose { down: 5, ..call };
    chosen(&mut directory, begun, &call).unwrap();
    let call = QueuedCall {
        down: call.down,
        ..running(5.0)
    };
    let at_once = report(1, vec![call]);
    directory.report(begun + 0.01, at_once).unwrap();
    assert!((calls(&mut directory, begun + 0.01) - 5.0).abs() < 1e-6);
    // A report about other calls says nothing about it.
    let other = QueuedCall { down: 7, ..call };
    directory
        .report(begun + 0.02, report(1, vec![other]))
        .unwrap();
    assert!(calls(&mut directory, begun + 0.02) > 5.0);
}

#[test]
fn calls_avoid_a_server_whose_elements_are_reserved() {
    let mut directory = with(2);
    let pes = join(1).pes;
    let booked = |from_s, until_s| Report {
        booked: Some(vec![Booked {
            pes,
            from_s,
            until_s,
        }]),
        ..report(1, Vec::new())
    };
    let call = wanted("bench/null");
    directory.report(T0, booked(0.0, 5.0)).unwrap();
    for _ in 0..3 {
        assert_eq!(chosen(&mut directory, T0, &call), Ok(2));
    }
    let standing = |directory: &mut Directory| {
        let one = directory.servers().next().unwrap();
        (one.booked, one.backlog_s)
    };
    let (now_booked, backlog_s) = standing(&mut directory);
    assert_eq!(now_booked, pes);
    assert!((backlog_s - 5.0).abs() < 1e-3, "{backlog_s}");
    // The record for others is brought up to date, and reservations that have ended are left out.
    let (_, records) = directory.find(T0 + 2.0, "site", "null").unwrap();
    let told = records.iter().find_map(|record| match record {
        Record::Server(server) if server.join.server == 1 => server.report.clone(),
        _ => None,
    });
    let told = told.unwrap().booked()[0];
    assert_eq!((told.pes, told.from_s), (pes, 0.0));
    assert!((told.until_s - 3.0).abs() < 1e-3, "{told:?}");
    directory.advance(T0 + 6.0);
    assert_eq!(standing(&mut directory).0, 0);
}

#[test]
fn calls_of_reservations_do_not_delay_others() {
    let mut directory = with(1);
    let calls = |reserved: Option<bool>| {
        let call = QueuedCall {
            reserved,
            ..running(50.0)
        };
        report(1, vec![call; 4])
    };
    let mut backlog_s = |report| {
        directory.report(T0, report).unwrap();
        let chosen = directory.choose(T0, "site", &wanted("bench/null")).unwrap();
        chosen.offers[0].terms.unwrap().wait_s
    };
    assert!(backlog_s(calls(None)) > 40.0);
    assert!(backlog_s(calls(Some(true))) < 1.0);
}

/// A report describes only the first of many calls.
#[test]
fn all_calls_of_a_server_are_waited_for() {
    let mut directory = with(1);
    let waiting = QueuedCall {
        phase: Phase::Waiting,
        ..running(1.0)
    };
    let mut backlog_s = |calls| {
        let full = Report {
            calls,
            ..report(1, vec![waiting; MOST_JOBS])
        };
        directory.report(T0, full).unwrap();
        directory.servers().next().unwrap().backlog_s
    };
    let described = MOST_JOBS as u32;
    for calls in [described, 4 * described] {
        let told = backlog_s(calls);
        assert!((told - f64::from(calls)).abs() < 1e-3, "{told}");
    }
}

#[test]
fn a_lost_server_gets_no_calls_until_it_reports() {
    let mut directory = with(1);
    let call = wanted("bench/null");
    let placement = directory.choose(T0, "site", &call).unwrap().placement;
    let observed = Observe {
        server: 1,
        placement,
        up: None,
        down: None,
        lost: true,
    };
    directory.observe(T0 + 1.0, "site", &observed);
    let refusal = chosen(&mut directory, T0 + 1.0, &call)
        .unwrap_err()
        .to_string();
    assert!(
        refusal.contains("host1") && refusal.contains("no status report"),
        "{refusal}"
    );
    directory.report(T0 + 2.0, report(1, Vec::new())).unwrap();
    assert_eq!(chosen(&mut directory, T0 + 2.0, &call), Ok(1));
    let other = Choose { digest: 1, ..call };
    let refusal = chosen(&mut directory, T0 + 2.0, &other)
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("interface"), "{refusal}");
}

#[test]
fn paths_are_learned_for_each_site_and_direction() {
    let mut directory = with(2);
    let observe = |directory: &mut Directory, server, up: f64, down: f64| {
        let transfer = |rate| {
            let bytes = 1 << 20;
            Some(Transfer {
                bytes,
                seconds: bytes as f64 / rate,
            })
        };
        let observed = Observe {
            server,
            placement: 0,
            up: transfer(up),
            down: transfer(down),
            lost: false,
        };
        directory.observe(T0 + 1.0, "site", &observed);
    };
    observe(&mut directory, 1, 1e6, 1e8);
    observe(&mut directory, 2, 1e8, 1e6);
    let up = wanted("bench/null");
    let down = Choose {
        up: 1 << 10,
        down: 1 << 20,
        ..up.clone()
    };
    assert_eq!(chosen(&mut directory, T0 + 1.0, &up), Ok(2));
    assert_eq!(chosen(&mut directory, T0 + 1.0, &down), Ok(1));
    assert_eq!(directory.paths().count(), 2);
    // A client without a metaserver makes the same decision.
    let (_, records) = directory.find(T0 + 1.0, "site", "null").unwrap();
    let mut alone = Directory::new(Settings {
        forgets: false,
        ..Settings::default()
    });
    for record in records {
        let bytes = record.to_bytes();
        alone.apply(T0 + 1.0, Record::from_bytes(&bytes).unwrap());
    }
    let later = T0 + 1e5;
    assert_eq!(chosen(&mut alone, later, &up), Ok(2));
    assert_eq!(chosen(&mut alone, later, &down), Ok(1));
}

#[test]
fn clients_read_the_answer_if_a_call_seems_to_take_centuries() {
    let mut directory = with(1);
    let rate = Rate {
        pes: 1,
        octave: 0,
        mean: 0.0,
        variance: 0.0,
        calls: 1,
    };
    let learned = vec![Times {
        function: "linpack/linpack".into(),
        rates: vec![rate],
    }];
    let report = Report {
        learned,
        ..report(1, Vec::new())
    };
    directory.report(T0, report).unwrap();
    let endless = Choose {
        work: 1e19,
        ..wanted("linpack/linpack")
    };
    // The second call is that of another user, and waits for the first.
    for call in [endless, wanted("bench/null")] {
        let chosen = directory.choose(T0 + 0.1, "site", &call).unwrap();
        assert_eq!(Chosen::from_bytes(&chosen.to_bytes()), Ok(chosen));
    }
}

#[test]
fn messages_have_bounds() {
    let wrong = Report {
        booked: Some(vec![Booked {
            pes: 1,
            from_s: f64::NAN,
            until_s: 1.0,
        }]),
        ..report(1, Vec::new())
    };
    assert!(Report::from_bytes(&wrong.to_bytes()).is_err());
    let mut long = join(1);
    long.address = "x".repeat(MOST_NAME + 1);
    assert!(Join::from_bytes(&long.to_bytes()).is_err());
    assert_eq!(Join::from_bytes(&join(1).to_bytes()), Ok(join(1)));
    let endless = report(1, vec![running(f64::INFINITY)]);
    assert!(Report::from_bytes(&endless.to_bytes()).is_err());
    let many = report(1, vec![running(1.0); 1000]);
    assert!(Report::from_bytes(&many.to_bytes()).is_err());
    assert!(
        Choose::from_bytes(
            &Choose {
                work: f64::NAN,
                ..wanted("a")
            }
            .to_bytes()
        )
        .is_err()
    );
    for key in [
        Key::Server(7),
        Key::Path {
            site: 3,
            server: u64::MAX,
        },
    ] {
        assert_eq!(key.to_string().parse(), Ok(key));
    }
}

/// A connection accepts messages of at most 1 MiB.
#[test]
fn answers_about_many_servers_with_long_names_have_bounds() {
    let mut directory = Directory::new(Settings::default());
    for server in 1..=2000u64 {
        let address = format!("farcall://{server}{:0>480}:3717", "");
        let place = Join {
            address,
            ..join(server)
        };
        directory.join(T0, place).unwrap();
    }
    let question = Choose {
        explain: true,
        ..wanted("bench/null")
    };
    let told = directory.choose(T0, "site", &question).unwrap();
    let (offers, bytes) = (told.offers.len(), told.to_bytes().len());
    assert!(offers > 1000 && bytes < 1 << 20, "{offers}, {bytes} bytes");
    let found: Vec<String> = (0..1000).map(|number| format!("m{number}/f")).collect();
    let name = "f".to_string();
    let refusal = Refusal::Ambiguous { name, found }.to_string();
    assert!(refusal.contains("m15/f and 984 more; name"), "{refusal}");
}

/// Settings with low limits on calls, sites and servers.
#[test]
fn tables_have_bounds() {
    let mut directory = Directory::new(Settings {
        most_servers: 3,
        most_sites: 3,
        most_paths: 4,
        most_calls: 5,
        ..Settings::default()
    });
    for server in 1..=5 {
        assert_eq!(directory.join(T0, join(server)).is_ok(), server <= 3);
    }
    for site in 0..100 {
        let site = format!("site {site}");
        let placed = directory.choose(T0, &site, &wanted("bench/null")).unwrap();
        let observed = Observe {
            server: placed.offers[0].server,
            placement: 0,
            up: Some(Transfer {
                bytes: 1 << 20,
                seconds: 1.0,
            }),
            down: None,
            lost: false,
        };
        directory.observe(T0, &site, &observed);
    }
    assert_eq!(directory.calls(), 5);
    assert!(directory.paths().count() <= 4);
}

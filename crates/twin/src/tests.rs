//! Days that the simulator made are recorded, replayed and changed. What a change then predicts is
//! compared with what the simulator makes of the changed day.

use crate::{Change, ChangeError, Day, DayError, Twin};
use farcall_gridsim::{Arrival, Function, Machine, Outcome, Port, Scenario, Site, simulate};
use farcall_random::SplitMix64;
use farcall_record::{Call, Line, Placement, Server, Together};
use farcall_schedule::placement::Policy;

const SERVERS: [&str; 3] = [
    "farcall://slow:3717",
    "farcall://fast:3717",
    "farcall://new:3717",
];
const HOSTS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const BEGIN: f64 = 1.7e9;

fn port(rate: f64) -> Port {
    Port {
        up: rate,
        down: rate,
        latency_s: 1e-4,
    }
}

/// Two servers and two hosts; six loops of calls, and calls at random times.
fn scenario(seed: u64) -> Scenario {
    let mut random = SplitMix64::new(seed);
    let mut arrivals: Vec<Arrival> = Vec::new();
    let draw = |random: &mut SplitMix64| match random.below(2) {
        0 => Arrival::new(Function::Linpack, 300 + random.below(600) as u32),
        _ => Arrival::new(Function::Ep, 24 + random.below(4) as u32),
    };
    for client in 0..6u32 {
        for step in 0..40 {
            let at_s = 0.05 * random.unit();
            let arrival = Arrival {
                at_s: if step == 0 { f64::from(client) } else { at_s },
                after: (step > 0).then(|| arrivals.len() - 1),
                site: client as usize % 2,
                user: u64::from(client % 3),
                noise: 0.8 + 0.4 * random.unit(),
                most: 1,
                ..draw(&mut random)
            };
            arrivals.push(arrival);
        }
    }
    for _ in 0..100 {
        let arrival = Arrival {
            at_s: 60.0 * random.unit(),
            user: 3,
            site: 1,
            most: 1,
            ..draw(&mut random)
        };
        arrivals.push(arrival);
    }
    let near = Machine::new(2, [4e8; 3], port(2e7));
    let far = Machine::new(1, [1e9; 3], port(5e6));
    let shared = |machine| Machine {
        half_life_s: Some(3600.0),
        ..machine
    };
    Scenario {
        machines: vec![shared(near), shared(far)],
        sites: vec![Site { port: port(1e8) }; 2],
        paths: Default::default(),
        arrivals,
    }
}

/// What servers and a metaserver would have recorded.
fn recorded(scenario: &Scenario, outcome: &Outcome) -> Day {
    let mut day = Day::default();
    for (server, machine) in scenario.machines.iter().enumerate() {
        day.take(&Line::Server(Box::new(Server {
            time: BEGIN - 10.0,
            server: SERVERS[server].to_owned(),
            event: "started".to_owned(),
            pes: machine.pes,
            policy: machine.policy.name().to_owned(),
            ..Server::default()
        })));
    }
    for (arrival, one) in scenario.arrivals.iter().zip(&outcome.records) {
        let function = ["linpack", "ep", "product"][arrival.function].to_owned();
        let server = SERVERS[one.server].to_owned();
        day.take(&Line::Placement(Box::new(Placement {
            function: function.clone(),
            server: server.clone(),
            ..Placement::default()
        })));
        day.take(&Line::Call(Box::new(Call {
            user: format!("user{}", arrival.user),
            function,
            operations: Some(arrival.work),
            sent_bytes: arrival.up_bytes,
            returned_bytes: arrival.down_bytes,
            predicted_s: Some(arrival.work / 5e8),
            asked: BEGIN + one.at_s,
            granted: Some(BEGIN + one.at_s),
            queued: Some(BEGIN + one.arrived_s),
            started: Some(BEGIN + one.started_s),
            ended: Some(BEGIN + one.computed_s),
            sent: BEGIN + one.done_s,
            exec_s: one.computed_s - one.started_s,
            pes: 1,
            server,
            host: HOSTS[arrival.site].to_owned(),
            outcome: "done".to_owned(),
            share: 1.0,
            ..Call::default()
        })));
    }
    day
}

fn twin(seed: u64) -> (Scenario, Twin) {
    let scenario = scenario(seed);
    let outcome = simulate(&scenario, Policy::Completion);
    let twin = Twin::new(recorded(&scenario, &outcome)).expect("calls");
    (scenario, twin)
}

#[test]
fn a_replay_without_changes_is_near_the_record() {
    for seed in 0..4 {
        let (scenario, twin) = twin(seed);
        assert_eq!(twin.calls(), scenario.arrivals.len());
        let answer = twin.ask(&[], 0, || ()).unwrap();
        let errors = [answer.makespan_s, answer.mean_s].map(|one| one.error().unwrap());
        println!(
            "seed {seed}: {} of {} calls follow, errors {errors:?}",
            twin.followers(),
            twin.calls()
        );
        assert!(
            errors[0].abs() < 0.1 && errors[1].abs() < 0.15,
            "{errors:?} {:?}",
            answer.reasons
        );
    }
}

#[test]
fn predicted_changes_are_near_those_that_come() {
    let mut good = 0;
    let mut all = 0;
    for seed in 0..3 {
        let (scenario, twin) = twin(seed);
        let mut check = |change: Change, truth: &Scenario, policy: Policy| {
            let answer = twin.ask(std::slice::from_ref(&change), 0, || ()).unwrap();
            let truth = simulate(truth, policy);
            let errors = [
                answer.makespan_s.predicted / truth.makespan_s() - 1.0,
                answer.mean_s.predicted / truth.mean_response_s() - 1.0,
            ];
            println!("seed {seed}, {change:?}: {errors:.3?}");
            all += 1;
            good += usize::from(errors.iter().all(|error| error.abs() < 0.15));
        };
        let mut third = scenario.clone();
        third.machines.push(third.machines[0].clone());
        check(
            Change::add("new=copy-of:slow").unwrap(),
            &third,
            Policy::Completion,
        );
        let mut wide = scenario.clone();
        wide.machines[1].pes = 3;
        check(
            Change::elements("fast=3").unwrap(),
            &wide,
            Policy::Completion,
        );
        check(
            Change::policy("round-robin").unwrap(),
            &scenario,
            Policy::RoundRobin,
        );
        let mut narrow = scenario.clone();
        narrow.paths.insert((0, 1), port(1e6));
        let link = Change::link("10.0.0.1<->fast=1MB/s").unwrap();
        check(link, &narrow, Policy::Completion);
        let mut twice = scenario.clone();
        twice.machines.remove(1);
        check(
            Change::Remove("fast".to_owned()),
            &twice,
            Policy::Completion,
        );
    }
    assert!(good * 10 >= all * 8, "{good} of {all}");
}

#[test]
fn twice_the_clients_make_twice_the_calls() {
    let (_, twin) = twin(1);
    for (factor, calls) in [("x2", 2 * twin.calls()), ("x0.5", twin.calls() / 2)] {
        let changed = twin.with(&[Change::clients(factor).unwrap()]).unwrap();
        let made = changed.calls() as f64 / calls as f64;
        assert!((made - 1.0).abs() < 0.4, "{factor}: {made}");
        assert!(changed.replay().makespan_s().is_finite());
    }
}

/// A call at `local` of a server, from its beginning for this many seconds.
fn local(server: &str, from: f64, seconds: f64) -> Call {
    let (from, to) = (BEGIN + from, BEGIN + from + seconds);
    Call {
        function: "f".to_owned(),
        server: server.to_owned(),
        host: "local".to_owned(),
        client: server.to_owned(),
        asked: from,
        started: Some(from),
        ended: Some(to),
        sent: to,
        pes: 1,
        ..Call::default()
    }
}

#[test]
fn calls_that_start_at_once_use_no_more_elements_than_in_the_record() {
    let mut day = Day::default();
    for policy in ["fcfs", "at-once"] {
        day.take(&Line::Server(Box::new(Server {
            time: BEGIN - 10.0,
            server: SERVERS[usize::from(policy == "at-once")].to_owned(),
            event: "started".to_owned(),
            pes: 4,
            policy: policy.to_owned(),
            ..Server::default()
        })));
    }
    for step in 0..10 {
        // Two calls that overlap.
        for (server, part) in SERVERS[..2].iter().flat_map(|one| [(one, 0.0), (one, 0.5)]) {
            let call = local(server, 10.0 * f64::from(step) + part, 1.0);
            day.take(&Line::Call(Box::new(call)));
        }
    }
    let twin = Twin::new(day).unwrap();
    for changes in [vec![], vec![Change::policy("at-once").unwrap()]] {
        let answer = twin.ask(&changes, 0, || ()).unwrap();
        let mean_s = answer.servers.iter().map(|(_, _, one)| one.predicted);
        for mean_s in mean_s.chain(answer.mean_s.replayed) {
            assert!((mean_s - 1.0).abs() < 0.01, "{changes:?}: {mean_s}");
        }
    }
}

#[test]
fn a_server_that_gets_no_call_is_told() {
    let mut day = Day::default();
    for server in &SERVERS[..2] {
        day.take(&Line::Call(Box::new(local(server, 0.0, 1.0))));
    }
    let twin = Twin::new(day).unwrap();
    let without_effect = |changes: &[Change]| {
        let changed = twin.with(changes).unwrap();
        changed.without_effect(changes).is_some()
    };
    let add = Change::add(&format!("new=copy-of:{}", SERVERS[0])).unwrap();
    assert!(without_effect(std::slice::from_ref(&add)));
    assert!(without_effect(&[Change::policy("completion").unwrap()]));
    assert!(!without_effect(&[Change::policy("sjf").unwrap()]));
    // The calls of the server that is removed are placed.
    assert!(!without_effect(&[
        add,
        Change::Remove(SERVERS[1].to_owned())
    ]));
}

/// The line about a server is in a file that had to make room for others.
#[test]
fn assumed_elements_are_told_and_those_of_calls_that_overlap() {
    let mut day = Day::default();
    let mut late = local(SERVERS[0], 0.0, 11.0);
    late.started = Some(BEGIN + 10.0);
    for call in [late, local(SERVERS[0], 1.0, 9.0)] {
        day.take(&Line::Call(Box::new(call)));
    }
    let twin = Twin::new(day).unwrap();
    let [note] = twin.notes() else {
        panic!("{:?}", twin.notes());
    };
    assert!(note.contains("1 and the policy fcfs are assumed"), "{note}");
}

#[test]
fn half_of_a_single_client_is_a_client() {
    let mut day = Day::default();
    for step in 0..10 {
        let call = local(SERVERS[0], 10.0 * f64::from(step), 9.0);
        day.take(&Line::Call(Box::new(call)));
    }
    let twin = Twin::new(day).unwrap();
    assert_eq!(twin.followers(), 9);
    let half = twin.with(&[Change::clients("x0.5").unwrap()]).unwrap();
    assert_eq!(half.calls(), 10);
}

#[test]
fn the_line_of_local_clients_can_change_at_several_servers() {
    let mut day = Day::default();
    for server in &SERVERS[..2] {
        day.take(&Line::Call(Box::new(local(server, 0.0, 1.0))));
    }
    let twin = Twin::new(day).unwrap();
    for change in ["local<->fast=1MB/s", "local<->*=1MB/s"] {
        assert!(
            twin.with(&[Change::link(change).unwrap()]).is_ok(),
            "{change}"
        );
    }
}

#[test]
fn calls_that_are_counted_together_end_when_their_line_says() {
    let mut day = Day::default();
    day.take(&Line::Call(Box::new(local(SERVERS[0], 0.0, 100.0))));
    day.take(&Line::Together(Box::new(Together {
        from: BEGIN + 100.0,
        to: BEGIN + 160.0,
        function: "f".to_owned(),
        server: SERVERS[0].to_owned(),
        calls: 10,
        pe_s: 1000.0,
        exec_s: 1000.0,
        exec_quantiles_s: [100.0; 5],
        ..Together::default()
    })));
    let makespan_s = Twin::new(day).unwrap().recorded().makespan_s;
    assert!((153.0..=160.0).contains(&makespan_s), "{makespan_s}");
}

/// The record does not say how long they computed.
#[test]
fn failed_calls_are_left_out_with_and_without_lines_of_their_own() {
    let mut day = Day::default();
    let failed = Call {
        ended: None,
        ..local(SERVERS[0], 0.0, 1.0)
    };
    for call in [local(SERVERS[0], 0.0, 10.0), failed] {
        day.take(&Line::Call(Box::new(call)));
    }
    day.take(&Line::Together(Box::new(Together {
        from: BEGIN,
        to: BEGIN + 10.0,
        function: "f".to_owned(),
        server: SERVERS[0].to_owned(),
        outcome: "worker lost".to_owned(),
        calls: 5,
        ..Together::default()
    })));
    let twin = Twin::new(day).unwrap();
    assert_eq!(twin.calls(), 1);
    let is_told = |note: &String| note == "left out: 6 calls that failed or never started";
    assert!(twin.notes().iter().any(is_told), "{:?}", twin.notes());
}

/// A clock may have been set back, and some lines count calls of several functions.
#[test]
fn it_is_told_why_calls_are_left_out() {
    let mut day = Day::default();
    let early = Call {
        sent: BEGIN - 100.0,
        ..local(SERVERS[0], 0.0, 1.0)
    };
    for call in [local(SERVERS[0], 0.0, 10.0), early] {
        day.take(&Line::Call(Box::new(call)));
    }
    day.take(&Line::Together(Box::new(Together {
        server: SERVERS[0].to_owned(),
        outcome: "done".to_owned(),
        calls: 2,
        ..Together::default()
    })));
    let twin = Twin::new(day).unwrap();
    assert_eq!(twin.calls(), 1);
    for told in [
        "left out: 1 call whose times or numbers cannot be right",
        "left out: 2 calls whose functions are not in the record",
    ] {
        let is_told = twin.notes().iter().any(|note| note == told);
        assert!(is_told, "{told}: {:?}", twin.notes());
    }
}

#[test]
fn the_work_of_calls_without_operations_is_all_their_bytes() {
    let mut day = Day::default();
    day.take(&Line::Call(Box::new(Call {
        sent_bytes: 10,
        returned_bytes: 20,
        placed_bytes: 30,
        ..local(SERVERS[0], 0.0, 1.0)
    })));
    day.take(&Line::Together(Box::new(Together {
        from: BEGIN,
        to: BEGIN + 60.0,
        function: "f".to_owned(),
        server: SERVERS[0].to_owned(),
        outcome: "done".to_owned(),
        calls: 2,
        sent_bytes: 20,
        returned_bytes: 40,
        placed_bytes: 60,
        ..Together::default()
    })));
    let works: Vec<f64> = day.calls.iter().map(|past| past.work).collect();
    assert_eq!(works, [60.0; 3]);
}

#[test]
fn bytes_of_a_forged_line_do_not_overflow() {
    let mut day = Day::default();
    day.take(&Line::Together(Box::new(Together {
        from: BEGIN,
        to: BEGIN + 60.0,
        function: "f".to_owned(),
        server: SERVERS[0].to_owned(),
        outcome: "done".to_owned(),
        calls: 1,
        sent_bytes: u64::MAX,
        returned_bytes: u64::MAX,
        placed_bytes: u64::MAX,
        ..Together::default()
    })));
    assert!(day.calls[0].work > 1e19, "{}", day.calls[0].work);
}

#[test]
fn changes_that_do_not_fit_name_the_reason() {
    let (_, twin) = twin(0);
    let ask = |change| twin.ask(&[change], 0, || ()).unwrap_err().to_string();
    let unknown = ask(Change::Remove("other".to_owned()));
    assert!(
        unknown.contains("no server other") && unknown.contains(SERVERS[0]),
        "{unknown}"
    );
    let host = ask(Change::link("lab<->fast=1MB/s").unwrap());
    assert!(host.contains("lab") && host.contains(HOSTS[1]), "{host}");
    let taken = ask(Change::Add {
        name: SERVERS[0].to_owned(),
        copy_of: "fast".to_owned(),
    });
    assert!(taken.contains("already"), "{taken}");
    let both = ["slow", "fast"].map(|name| Change::Remove(name.to_owned()));
    assert!(matches!(twin.with(&both), Err(ChangeError::Needed { .. })));
    assert_eq!(Twin::new(Day::default()).unwrap_err(), DayError::NoCalls);
}

/// Numbers that a damaged or a forged record may have.
fn odd(random: &mut SplitMix64) -> f64 {
    let usual = [0.0, 0.5, 1.0, 2.0, 1e3, 1e6];
    let odd = [-1.0, 1e-300, 1e9, 1e300, f64::MAX];
    match random.below(16) {
        0 => odd[random.below(odd.len() as u64) as usize],
        _ => usual[random.below(usual.len() as u64) as usize],
    }
}

#[test]
fn impossible_records_are_replayed_or_refused() {
    let random = &mut SplitMix64::new(5);
    let mut replayed = 0;
    for _ in 0..2000 {
        let mut day = Day::default();
        for _ in 0..random.below(6) {
            let mut moments = [0.0; 6].map(|_| odd(random));
            if random.below(4) > 0 {
                moments.sort_by(f64::total_cmp);
            }
            let [asked, granted, queued, started, ended, sent] = moments;
            let server = SERVERS[random.below(3) as usize].to_owned();
            day.take(&Line::Call(Box::new(Call {
                operations: Some(odd(random)),
                sent_bytes: odd(random) as u64,
                returned_bytes: odd(random) as u64,
                predicted_s: Some(odd(random)),
                asked,
                granted: Some(granted),
                queued: Some(queued),
                started: Some(started),
                ended: Some(ended),
                sent,
                pes: odd(random) as u32,
                server: server.clone(),
                ..Call::default()
            })));
            day.take(&Line::Server(Box::new(Server {
                time: odd(random),
                server: server.clone(),
                event: ["joined", "left"][random.below(2) as usize].to_owned(),
                pes: odd(random) as u32,
                ..Server::default()
            })));
            day.take(&Line::Together(Box::new(Together {
                from: odd(random),
                to: odd(random),
                function: "f".to_owned(),
                server,
                outcome: "done".to_owned(),
                calls: random.below(3),
                operations: odd(random),
                sent_bytes: odd(random) as u64,
                pe_s: odd(random),
                exec_s: odd(random),
                exec_quantiles_s: [0.0; 5].map(|_| odd(random)),
                ..Together::default()
            })));
        }
        if let Ok(twin) = Twin::new(day) {
            let changes = [Change::clients("x2").unwrap()];
            replayed += usize::from(twin.ask(&changes, 1, || ()).is_ok());
        }
    }
    assert!(replayed > 500, "{replayed}");
}

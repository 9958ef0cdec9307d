//! Snapshots of a server with many calls. Each user must see their own, the work must be bounded,
//! and a search must find calls that nobody has scrolled to.

use super::*;
use crate::event::Now;
use crate::settings::Settings;
use farcall_idl::{Layout, parse_document};
use farcall_schedule::queue::Request;

const IDL: &str = "Module m; Library \"libc.so.6\";
    Define solve(IN int n) Calls \"C\" usleep(n);
    Define nap(IN int n) Calls \"C\" usleep(n);";

/// A server on one processor element, with calls of these users in turn.
fn waiting(calls: u64, users: &[User]) -> Engine {
    let document = parse_document(IDL).document;
    let now = Now {
        nanos: 1_000_000_000,
        unix_ms: 0,
    };
    let mut engine = Engine::new(Settings::simple(false), [&document], Vec::new(), now);
    let functions: Vec<u64> = ["solve", "nap"]
        .map(|name| engine.cx.functions.describe(name).unwrap().0)
        .into();
    let layout = Layout {
        arrays: Vec::new(),
        bytes: 0,
        cost: None,
        processor_elements: None,
        fewest_elements: None,
    };
    for number in 0..calls {
        let user = &users[number as usize % users.len()];
        let function = functions[usize::from(number % 1000 == 999)];
        let mut call = ActiveCall::new(user.clone(), None, function, Vec::new(), layout.clone());
        call.state = State::Queued;
        let key = engine.cx.calls.insert(call);
        let request = Request {
            id: key.number(),
            user: number % users.len() as u64,
            fewest: 1,
            most: 1,
            gpus: 0,
            seconds: Some(1.0),
            priority: 0,
            reservation: None,
        };
        engine.elements.queue.push(request, now.nanos);
    }
    engine
}

fn look<'l>(user: &User, is_operator: bool, search: &'l str) -> Look<'l> {
    Look {
        user: user.clone(),
        is_operator,
        search,
    }
}

#[test]
fn users_see_their_own_calls_and_operators_all() {
    let [alice, bob] = ["alice", "bob"].map(User::named);
    let mut engine = waiting(5000, &[alice.clone(), bob]);
    let asked = AskSnapshot {
        from: 10,
        most: 30,
        ..AskSnapshot::default()
    };
    renew(&mut engine);
    // The time of no call is known.
    assert_eq!(engine.board.backlog_s.to_bits(), 0.0_f64.to_bits());
    let own = calls(&mut engine, &look(&alice, false, ""), &asked);
    assert_eq!((own.total, own.from, own.rows.len()), (2500, 10, 30));
    assert!(own.rows.iter().all(|row| row.user == "alice"));
    let all = calls(&mut engine, &look(&alice, true, ""), &asked);
    assert_eq!(all.total, 5000);
    assert!(all.rows.iter().any(|row| row.user == "bob"));
    let found = calls(
        &mut engine,
        &look(&alice, true, "NAP"),
        &AskSnapshot { from: 0, ..asked },
    );
    assert_eq!(found.total, 5);
    assert!(found.rows.iter().all(|row| row.function == "m/nap"));
}

#[test]
fn a_search_finds_calls_that_have_ended() {
    let [alice, bob] = ["alice", "bob"].map(User::named);
    let mut engine = waiting(1, std::slice::from_ref(&alice));
    for (user, name) in [(&alice, "solve"), (&bob, "nap")] {
        let function = engine.cx.functions.describe(name).unwrap().0;
        engine.cx.totals.recent.push_front(Recent {
            number: 0,
            user: user.clone(),
            function,
            job: None,
            cause: None,
            pes: 1,
            predicted: None,
            nanos: [0; 4],
            bytes: [0; 2],
            at: 0,
        });
    }
    let found = |search: &str| around(&engine, &look(&alice, true, search)).ended.len();
    assert_eq!(["", "NAP", "alice", "nobody"].map(found), [2, 1, 1, 0]);
}

#[test]
fn many_calls_are_seldom_looked_at() {
    let users: Vec<User> = (0..50)
        .map(|user| User::named(&format!("user {user}")))
        .collect();
    let mut engine = waiting(100_000, &users);
    let asked = AskSnapshot {
        most: 200,
        ..AskSnapshot::default()
    };
    let look = look(&users[7], true, "");
    let clock = std::time::Instant::now();
    renew(&mut engine);
    let first = clock.elapsed();
    let at = engine.board.at;
    let ahead = |engine: &Engine| engine.elements.expected.next(&engine.elements.queue);
    let next = ahead(&engine);
    let mut later = Vec::new();
    for second in 2..12 {
        engine.cx.clock.now.nanos = second * 1_000_000_000;
        let clock = std::time::Instant::now();
        renew(&mut engine);
        let snapshot = Snapshot {
            calls: calls(&mut engine, &look, &asked),
            ..around(&engine, &look)
        };
        let text = snapshot.to_json();
        later.push(clock.elapsed());
        assert_eq!(snapshot.calls.rows.len(), 200);
        assert_eq!(snapshot.counts.waiting + snapshot.counts.running, 100_000);
        assert!(text.len() < 200_000, "{}", text.len());
    }
    // Neither all calls were looked at again, nor were starts predicted again.
    assert_eq!((engine.board.at, ahead(&engine)), (at, next));
    println!("a look at all calls: {first:?}; snapshots: {later:?}");
}

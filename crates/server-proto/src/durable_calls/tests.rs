//! When a durable call begins, and what happens if the journal refuses it afterwards. The journal
//! is the test itself. The simulator plays the same with disks, workers and clients that fail.

mod answers;

use super::*;
use crate::engine::Engine;
use crate::event::{Event, Finished, Now, Ready};
use crate::keys::{MemoryKey, WorkerKey};
use crate::memory::Memory;
use crate::record::Entry;
use crate::samples::{call_of, queued};
use crate::settings::Settings;
use farcall_idl::{Scalar, parse_document};

const IDL: &str = "Module m; Library \"libc.so.6\";
    Define look(IN int n) Repeatable \"yes\" Calls \"C\" usleep(n);
    Define once(IN int n) Calls \"C\" usleep(n);
    Define tell(IN string text) Calls \"C\" puts(text);
    Define send(IN int n, IN double a[n]) Repeatable \"yes\" Calls \"C\" bzero(a, n);
    Define fill(IN int n, OUT double a[n]) Repeatable \"yes\" Calls \"C\" bzero(a, n);";

const MIB: u64 = 1 << 20;

const NOW: Now = Now {
    nanos: 1_000_000_000,
    unix_ms: 0,
};

/// A server with an idle worker.
fn server() -> Engine {
    let document = parse_document(IDL).document;
    let mut engine = Engine::new(Settings::simple(true), [&document], Vec::new(), NOW);
    engine.handle(Event::DurableOpened(Vec::new(), 0));
    engine.elements.workers.start(&mut engine.cx, 0);
    let worker = engine.elements.workers.keys().next().unwrap();
    let ready = Ready {
        libraries: vec![None, None],
        unprotected: Vec::new(),
    };
    engine.handle(Event::Ready(worker, ready));
    taken(&mut engine);
    engine
}

/// What a server wants of its shell, as far as the tests look at it.
#[derive(Debug, PartialEq)]
enum Wanted {
    Insert(Haste),
    Change(Change, Haste),
    Run,
    EndWorker,
}

fn taken(engine: &mut Engine) -> Vec<Wanted> {
    let actions = std::iter::from_fn(|| engine.cx.out.pop());
    let wanted = actions.filter_map(|action| match action {
        Action::Record {
            entry: Entry::Insert(_),
            haste,
        } => Some(Wanted::Insert(haste)),
        Action::Record {
            entry: Entry::Change { change, .. },
            haste,
        } => Some(Wanted::Change(change, haste)),
        Action::Run { .. } => Some(Wanted::Run),
        Action::EndWorker { .. } => Some(Wanted::EndWorker),
        _ => None,
    });
    wanted.collect()
}

/// Submits a call. Its client is gone already.
fn submit(engine: &mut Engine, name: &str, id: JobId) -> CallKey {
    let (number, function) = engine.cx.functions.describe(name).unwrap();
    let (text, layout) = (
        function.text().to_owned(),
        function.interface.layout(&[Some(Scalar::Int(1))], &[]),
    );
    let user = User::named("anne");
    let record = queued(id, user.name(), name, &text);
    let mut call = ActiveCall::new(user.clone(), None, number, Vec::new(), layout.unwrap());
    call.durability = Durability::Submitting(Box::new(record), user);
    let key = engine.cx.calls.insert(call);
    engine.durable_calls.reserve(&mut engine.cx, key).unwrap();
    engine.durable_calls.store_arguments(&mut engine.cx, key);
    engine.settle();
    key
}

fn worker_of(engine: &Engine, key: CallKey) -> WorkerKey {
    match engine.cx.calls[key].state {
        call::State::Running { worker } => worker,
        state => panic!("the call is {state:?}"),
    }
}

const ID: JobId = JobId([7; 16]);

fn is_listed(engine: &mut Engine) -> bool {
    let durable = engine.durable_calls.durable().unwrap();
    !durable.page(&User::named("anne"), 0, NOW).jobs.is_empty()
}

#[test]
fn a_repeatable_call_runs_before_it_is_recorded_and_is_listed_afterwards() {
    let mut engine = server();
    let key = submit(&mut engine, "look", ID);
    let start = Wanted::Change(Change::Start, Haste::Later);
    let all = [Wanted::Insert(Haste::Now), start, Wanted::Run];
    assert_eq!(taken(&mut engine), all);
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(&engine, key);
    engine.handle(Event::Finished(worker, key, finished));
    let finish = Wanted::Change(Change::Finish, Haste::Now);
    assert_eq!(taken(&mut engine), [finish]);
    assert!(!engine.cx.calls.contains(key));
    assert!(!is_listed(&mut engine), "nothing is recorded yet");
    engine.handle(Event::Inserted(ID, Ok(1)));
    assert!(is_listed(&mut engine));
    // The function is known to be brief now, so that its outcome is worth waiting for.
    submit(&mut engine, "look", JobId([8; 16]));
    assert_eq!(taken(&mut engine)[0], Wanted::Insert(Haste::Soon));
}

#[test]
fn another_call_begins_after_its_record() {
    let mut engine = server();
    submit(&mut engine, "once", ID);
    assert_eq!(taken(&mut engine), [Wanted::Insert(Haste::Now)]);
    engine.handle(Event::Inserted(ID, Ok(1)));
    let start = Wanted::Change(Change::Start, Haste::Now);
    assert_eq!(taken(&mut engine), [start]);
}

#[test]
fn a_call_that_the_journal_refuses_ends_with_its_worker_and_leaves_nothing() {
    let mut engine = server();
    let key = submit(&mut engine, "look", ID);
    taken(&mut engine);
    let full = Failure::new(FailureKind::StorageFault, "no room");
    engine.handle(Event::Inserted(ID, Err(full)));
    assert_eq!(taken(&mut engine), [Wanted::EndWorker]);
    worker_of(&engine, key);
    assert!(!is_listed(&mut engine));
    let durable = engine.durable_calls.durable().unwrap();
    let of_user = durable.usage_of(&Group {
        users: vec!["anne".into()],
        ..Group::default()
    });
    assert_eq!(of_user, (0, 0), "its user may submit as much as before");
}

#[test]
fn a_call_that_the_journal_refuses_does_not_end_as_if_its_user_had_cancelled_it() {
    let mut engine = server();
    submit(&mut engine, "look", ID);
    taken(&mut engine);
    let full = Failure::new(FailureKind::StorageFault, "the disk is full");
    engine.handle(Event::Inserted(ID, Err(full)));
    let mut actions = std::iter::from_fn(|| engine.cx.out.pop());
    let reason = actions.find_map(|action| match action {
        Action::EndWorker { reason, .. } => Some(reason),
        _ => None,
    });
    let text = "was ended because the disk is full";
    assert_eq!(reason, Some(Failure::new(FailureKind::StorageFault, text)));
}

#[test]
fn a_call_that_the_journal_refuses_is_in_the_audit_log() {
    let mut engine = server();
    engine.cx.settings.audits = true;
    submit(&mut engine, "once", ID);
    taken(&mut engine);
    let full = Failure::new(FailureKind::StorageFault, "no room");
    engine.handle(Event::Inserted(ID, Err(full)));
    let mut actions = std::iter::from_fn(|| engine.cx.out.pop());
    let outcome = actions.find_map(|action| match action {
        Action::Audit(audit) => Some(audit.outcome),
        _ => None,
    });
    assert_eq!(outcome.as_deref(), Some(FailureKind::StorageFault.name()));
}

#[test]
fn a_call_that_the_journal_refuses_while_it_waits_counts_as_failed() {
    let document = parse_document(IDL).document;
    let mut engine = Engine::new(Settings::simple(true), [&document], Vec::new(), NOW);
    engine.handle(Event::DurableOpened(Vec::new(), 0));
    let key = submit(&mut engine, "look", ID);
    assert_eq!(engine.cx.calls[key].state, call::State::Queued);
    let full = Failure::new(FailureKind::StorageFault, "no room");
    engine.handle(Event::Inserted(ID, Err(full)));
    assert!(engine.cx.calls.is_empty());
    let (number, _) = engine.cx.functions.describe("look").unwrap();
    let counts = engine.cx.functions.counts_mut(number).unwrap();
    assert_eq!(counts.failed, 1);
}

#[test]
fn the_results_of_a_call_that_the_journal_refuses_are_removed() {
    let mut engine = server();
    let key = submit(&mut engine, "look", ID);
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(&engine, key);
    engine.handle(Event::Finished(worker, key, finished));
    taken(&mut engine);
    let full = Failure::new(FailureKind::StorageFault, "no room");
    engine.handle(Event::Inserted(ID, Err(full)));
    let actions = std::iter::from_fn(|| engine.cx.out.pop());
    let removed = actions.filter_map(|action| match action {
        Action::RemoveFile(ID, content) => Some(content),
        _ => None,
    });
    let removed: Vec<Content> = removed.collect();
    assert_eq!(removed, [Content::Arguments, Content::Result]);
}

#[test]
fn a_call_waits_for_its_function_and_not_for_another_of_the_same_name() {
    let mut engine = server();
    submit(&mut engine, "look", ID);
    let Some(known) = engine.durable_calls.durable().unwrap().get(ID) else {
        panic!("it runs");
    };
    // From a server whose function was in no module.
    let record = Record {
        number: 1,
        function: "look".into(),
        ..known.record.clone()
    };
    let mut engine = server();
    engine.handle(Event::DurableOpened(vec![record], 0));
    engine.turn();
    let durable = engine.durable_calls.durable().unwrap();
    assert_eq!(durable.get(ID).unwrap().stage, Stage::Unserved);
    assert!(!taken(&mut engine).contains(&Wanted::Change(Change::Fail, Haste::Now)));
}

/// The tickets of the files that the shell must read.
fn reads(engine: &mut Engine) -> Vec<u64> {
    engine.turn();
    engine.turn();
    let actions = std::iter::from_fn(|| engine.cx.out.pop());
    let tickets = actions.filter_map(|action| match action {
        Action::ReadFile { ticket, .. } => Some(ticket),
        _ => None,
    });
    tickets.collect()
}

/// A server may have no descriptor left for a moment.
#[test]
fn arguments_that_cannot_be_read_now_are_read_again() {
    let mut engine = server();
    engine.cx.memory = Memory::new(1 << 20);
    engine.cx.settings.limits.memory = 1 << 20;
    let (function, described) = engine.cx.functions.describe("send").unwrap();
    let name = described.interface.qualified_name().into_owned();
    let mut record = queued(ID, "anne", &name, described.text());
    let call = call_of(function, vec![Some(Scalar::Int(100)), None]);
    call.encode(&mut record.call);
    (record.number, record.arguments.bytes) = (1, 800);
    engine.handle(Event::DurableOpened(vec![record], 0));
    let error = |is_damage| DiskError {
        is_full: false,
        is_damage,
        text: "Too many open files".into(),
    };
    let [ticket] = reads(&mut engine)[..] else {
        panic!("it is not read")
    };
    engine.handle(Event::Fetched(ticket, Err(error(false))));
    assert!(reads(&mut engine).is_empty(), "not at once");
    let nanos = engine.next_deadline().unwrap();
    engine.cx.clock.set(Now { nanos, unix_ms: 0 });
    let [ticket] = reads(&mut engine)[..] else {
        panic!("it is not read again")
    };
    engine.handle(Event::Fetched(ticket, Err(error(true))));
    let failed = Wanted::Change(Change::Fail, Haste::Now);
    assert_eq!(taken(&mut engine), [failed], "its arguments are lost");
}

/// The calls of the second user must not wait until the first call of the first user has ended.
#[test]
fn a_users_large_calls_are_in_nobodys_way() {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(true);
    settings.limits.memory = 64 * MIB;
    let mut engine = Engine::new(settings, [&document], Vec::new(), NOW);
    engine.elements.workers.start(&mut engine.cx, 0);
    let worker = engine.elements.workers.keys().next().unwrap();
    engine.handle(Event::Ready(worker, Ready::default()));
    let id = |number: u64| JobId([number as u8; 16]);
    let (function, described) = engine.cx.functions.describe("fill").unwrap();
    let interface = described.text().to_string();
    let name = described.interface.qualified_name().into_owned();
    let record = |number, user: &str, bytes: u64| {
        let call = call_of(function, vec![Some(Scalar::Int(bytes as i64 / 8)), None]);
        let mut record = queued(id(number), user, &name, &interface);
        record.number = number;
        call.encode(&mut record.call);
        record
    };
    let sizes = [30 * MIB, 40 * MIB, 8000, 8000, 8000];
    let users = ["anne", "anne", "bob", "bob", "bob"];
    let records = (1..).zip(users).zip(sizes);
    let records = records.map(|((number, user), bytes)| record(number, user, bytes));
    engine.handle(Event::DurableOpened(records.collect(), 0));
    engine.turn();
    engine.turn();
    let durable = engine.durable_calls.durable().unwrap();
    let stages = (1..6).map(|number| durable.get(id(number)).unwrap().stage);
    let is_loaded = stages.map(|stage| matches!(stage, Stage::Memory(_)));
    let is_loaded: Vec<bool> = is_loaded.collect();
    assert_eq!(is_loaded, [true, false, true, true, true]);
}

/// A server with 64 MiB for calls, of which carl has 32, and with durable calls of anne and bob.
/// That of anne waits for memory, and that of bob waits behind it.
fn crowded() -> Engine {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(true);
    settings.limits.memory = 64 * MIB;
    let mut engine = Engine::new(settings, [&document], Vec::new(), NOW);
    let cx = &mut engine.cx;
    let carl = User::named("carl");
    cx.memory.take(32 * MIB, &carl, &mut cx.out).unwrap();
    let (function, described) = engine.cx.functions.describe("fill").unwrap();
    let interface = described.text().to_string();
    let name = described.interface.qualified_name().into_owned();
    let record = |number, id, user: &str, bytes: u64| {
        let call = call_of(function, vec![Some(Scalar::Int(bytes as i64 / 8)), None]);
        let mut record = queued(id, user, &name, &interface);
        record.number = number;
        call.encode(&mut record.call);
        record
    };
    let records = vec![
        record(1, ID, "anne", 40 * MIB),
        record(2, BEHIND, "bob", 8000),
    ];
    engine.handle(Event::DurableOpened(records, 0));
    engine.turn();
    engine.turn();
    assert!(engine.durable_calls.await_memory());
    assert!(!is_in_memory(&mut engine, BEHIND));
    engine
}

const BEHIND: JobId = JobId([8; 16]);

fn is_in_memory(engine: &mut Engine, id: JobId) -> bool {
    let durable = engine.durable_calls.durable().unwrap();
    matches!(durable.get(id).unwrap().stage, Stage::Memory(_))
}

#[test]
fn a_call_that_waits_for_memory_keeps_its_place_in_the_line() {
    let mut engine = crowded();
    let place = next_starved(&engine.durable_calls, &engine.cx);
    engine.cx.clock.now.nanos += 10 * NOW.nanos;
    engine.cx.has_room = true;
    engine.turn();
    assert_eq!(next_starved(&engine.durable_calls, &engine.cx), place);
    assert!(place.is_some());
}

fn cancel(engine: &mut Engine, id: JobId) {
    let cancelled = Changed {
        change: Change::Cancel,
        state: DurableState::Cancelled,
        at: 0,
        served: 0,
        applied: true,
        outcome: Outcome::default(),
    };
    engine.handle(Event::Changed(id, Some(cancelled)));
    engine.turn();
}

#[test]
fn a_call_behind_one_that_is_cancelled_goes_on() {
    let mut engine = crowded();
    cancel(&mut engine, ID);
    assert!(is_in_memory(&mut engine, BEHIND));
}

#[test]
fn a_call_that_is_cancelled_before_it_begins_is_in_the_audit_log() {
    let mut engine = crowded();
    engine.cx.settings.audits = true;
    cancel(&mut engine, ID);
    assert!(is_in_memory(&mut engine, BEHIND), "ID was on the disk");
    cancel(&mut engine, BEHIND);
    assert_eq!(audited(&mut engine), ["m/fill Cancelled"; 2]);
}

/// The functions and outcomes in the audit log.
fn audited(engine: &mut Engine) -> Vec<String> {
    let actions = std::iter::from_fn(|| engine.cx.out.pop());
    let audits = actions.filter_map(|action| match action {
        Action::Audit(audit) => Some(format!("{} {}", audit.what, audit.outcome)),
        _ => None,
    });
    audits.collect()
}

#[test]
fn a_call_that_fails_before_it_begins_is_in_the_audit_log() {
    let mut engine = server();
    engine.cx.settings.audits = true;
    let mut record = queued(ID, "anne", "m/once", "the interface of an earlier server");
    record.number = 1;
    engine.handle(Event::DurableOpened(vec![record], 0));
    engine.turn();
    assert_eq!(audited(&mut engine), ["m/once StaleInterface"]);
    let (number, _) = engine.cx.functions.describe("once").unwrap();
    let counts = engine.cx.functions.counts_mut(number).unwrap();
    assert_eq!(counts.failed, 1);
}

#[test]
fn a_call_that_is_cancelled_while_its_end_is_recorded_has_one_line_in_the_audit_log() {
    let mut engine = server();
    engine.cx.settings.audits = true;
    let key = submit(&mut engine, "look", ID);
    engine.handle(Event::Inserted(ID, Ok(1)));
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(&engine, key);
    engine.handle(Event::Finished(worker, key, finished));
    cancel(&mut engine, ID);
    assert_eq!(audited(&mut engine), ["m/look done"]);
}

/// Clients that are slow would be ended for it.
#[test]
fn a_call_that_a_draining_server_does_not_begin_waits_for_nobodys_memory() {
    let mut engine = crowded();
    engine.handle(Event::Drain);
    assert!(!engine.durable_calls.await_memory());
    engine.turn();
    assert!(!engine.durable_calls.await_memory());
}

/// As its user was told.
#[test]
fn a_call_that_is_cancelled_while_its_results_are_written_counts_as_failed() {
    let mut engine = server();
    engine.cx.memory = Memory::new(64 * MIB);
    let (number, function) = engine.cx.functions.describe("fill").unwrap();
    let mut record = queued(ID, "anne", "m/fill", function.text());
    (record.number, record.result.bytes) = (1, 8000);
    let call = call_of(number, vec![Some(Scalar::Int(1000)), None]);
    call.encode(&mut record.call);
    engine.handle(Event::DurableOpened(vec![record], 0));
    engine.turn();
    let (key, _) = engine.cx.calls.iter().next().expect("it is in memory");
    let changed = |change, state| Changed {
        change,
        state,
        at: 0,
        served: 0,
        applied: true,
        outcome: Outcome::default(),
    };
    let running = changed(Change::Start, DurableState::Running);
    engine.handle(Event::Changed(ID, Some(running)));
    let finished = Finished {
        exec_nanos: 1000,
        failure: None,
    };
    let worker = worker_of(&engine, key);
    engine.handle(Event::Finished(worker, key, finished));
    let cancelled = changed(Change::Cancel, DurableState::Cancelled);
    engine.handle(Event::Changed(ID, Some(cancelled)));
    let mut actions = std::iter::from_fn(|| engine.cx.out.pop());
    let ticket = actions.find_map(|action| match action {
        Action::WriteFile { ticket, .. } => Some(ticket),
        _ => None,
    });
    let stored = Stored {
        bytes: 8000,
        sum: 0,
    };
    engine.handle(Event::Written(ticket.expect("it is written"), Ok(stored)));
    assert!(engine.cx.calls.is_empty());
    let counts = engine.cx.functions.counts_mut(number).unwrap();
    assert_eq!((counts.done, counts.failed), (0, 1));
}

#[test]
fn a_fetch_of_results_is_no_call_in_the_audit_log() {
    let mut engine = server();
    let cx = &mut engine.cx;
    cx.settings.audits = true;
    let client = (ConnectionKey::NONE, 1);
    let fetch = ActiveCall::delivery(User::named("anne"), client, 8, MemoryKey::NONE, 1);
    let key = cx.calls.insert(fetch);
    cx.account(key);
    assert!(cx.out.pop().is_none());
}

#[test]
fn room_is_sought_once_for_all_results_that_wait() {
    let mut engine = server();
    (0..3).for_each(|_| engine.cx.seek_room());
    assert_eq!(engine.cx.steps.len(), 1);
}

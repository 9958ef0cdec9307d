//! Memory that the system refuses: whatever wanted it must end with a cause, and its worker, its
//! object and the server must go on. What is on the disk stays there.

use super::*;
use crate::Settings;
use crate::arrays::{Turn, Use, leaving};
use crate::call::ActiveCall;
use crate::connection::{Connection, Offer};
use crate::data::room;
use crate::event::{Accepted, Event, Now, Ready};
use crate::keys::WorkerKey;
use crate::ledger::{Ledger, Moment};
use crate::record::{DiskError, Record, Stored};
use crate::samples::{call_of, queued};
use crate::worker::{ObjectState, State as WorkerState};
use farcall_idl::{Scalar, parse_document};
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, DurableState, HandleId, Hello, JobId, Limits, Put, User,
};
use proptest::collection::vec;
use proptest::prelude::*;

const IDL: &str = "Module m; Library \"libc.so.6\";
    Define fill(IN int n, OUT double a[n]) Calls \"C\" bzero(a, n);";

const NOW: Now = Now {
    nanos: 1_000_000_000,
    unix_ms: 0,
};
const WHY: &str = "too many open files";
const ID: JobId = JobId([7; 16]);

/// A server with a worker that starts.
fn server() -> (Engine, WorkerKey) {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(true);
    settings.limits.memory = 1 << 30;
    let mut engine = Engine::new(settings, [&document], Vec::new(), NOW);
    engine.handle(Event::DurableOpened(Vec::new(), 0));
    let worker = engine.elements.workers.start(&mut engine.cx, 0);
    engine.turn();
    (engine, worker)
}

/// A server with an idle worker.
fn ready() -> (Engine, WorkerKey) {
    let (mut engine, worker) = server();
    let libraries = vec![None];
    let ready = Ready {
        libraries,
        ..Ready::default()
    };
    engine.handle(Event::Ready(worker, ready));
    while engine.cx.out.pop().is_some() {}
    (engine, worker)
}

fn user() -> User {
    User::named("anne")
}

/// A call that has its memory, as its server sees it, and all its arguments.
fn call(engine: &mut Engine) -> ActiveCall {
    let (number, function) = engine.cx.functions.describe("fill").unwrap();
    let layout = function
        .interface
        .layout(&[Some(Scalar::Int(1000)), None], &[]);
    let mut call = ActiveCall::new(user(), None, number, Vec::new(), layout.unwrap());
    let cx = &mut engine.cx;
    let buffer = cx.memory.take(8000, &user(), &mut cx.out);
    call.memory.buffer = Some(buffer.unwrap());
    call
}

/// Refuses the memory that is wanted. Returns whether a worker gets a call or ends.
fn refuse(engine: &mut Engine) -> bool {
    let mut touches_worker = false;
    while let Some(action) = engine.cx.out.pop() {
        match action {
            Action::MakeMemory { memory, .. } => {
                engine.handle(Event::NoMemory(memory, WHY.into()));
            }
            Action::Run { .. } | Action::EndWorker { .. } => touches_worker = true,
            _ => {}
        }
    }
    touches_worker
}

#[test]
fn a_call_without_memory_fails_and_its_worker_and_object_go_on() {
    for has_object in [false, true] {
        let (mut engine, worker) = ready();
        let mut call = call(&mut engine);
        if has_object {
            engine.elements.workers[worker].object = Some(ObjectState::default());
            call.run.object = Some(worker);
        }
        let key = engine.cx.calls.insert(call);
        engine.received(key);
        assert!(matches!(engine.cx.calls[key].state, State::Running { .. }));
        assert!(!refuse(&mut engine), "it never reached the worker");
        assert!(!engine.cx.calls.contains(key));
        assert_eq!(engine.elements.workers[worker].state, WorkerState::Idle);
        assert_eq!(engine.elements.queue.used(), 0);
        assert_eq!(engine.cx.memory.used(), 0);
        assert_eq!(engine.cx.memory.held_by(&user()), 0);
        engine.turn();
    }
}

#[test]
fn a_call_without_memory_does_not_wait_for_a_worker() {
    let (mut engine, worker) = server();
    let call = call(&mut engine);
    let key = engine.cx.calls.insert(call);
    engine.received(key);
    assert!(!refuse(&mut engine));
    assert!(!engine.cx.calls.contains(key));
    engine.handle(Event::Ready(worker, Ready::default()));
    engine.turn();
    assert!(engine.cx.calls.is_empty());
}

fn submitted(engine: &mut Engine, repeatable: bool) -> CallKey {
    let mut call = call(engine);
    let function = engine.cx.functions.get(call.function).unwrap();
    let mut message = Vec::new();
    let request = call_of(call.function, vec![Some(Scalar::Int(1000)), None]);
    request.encode(&mut message);
    let name = function.interface.qualified_name();
    let record = Record {
        repeatable,
        call: message,
        big_endian: cfg!(target_endian = "big"),
        keep: 60_000,
        result: Stored {
            bytes: 8000,
            sum: 0,
        },
        ..queued(ID, user().name(), &name, function.text())
    };
    call.durability = Durability::Submitting(Box::new(record), user());
    let key = engine.cx.calls.insert(call);
    engine.durable_calls.reserve(&mut engine.cx, key).unwrap();
    engine.received(key);
    engine.settle();
    key
}

/// Performs what the server wants, with a journal that works, until a worker gets a call or nothing
/// is left. The system refuses memory `refusals` times, and a second passes after each. Returns
/// whether a worker got the call.
fn play(engine: &mut Engine, refusals: usize) -> bool {
    let mut ledger = Ledger::new(1);
    let (mut refused, mut now) = (0, NOW);
    loop {
        let mut action = engine.cx.out.pop();
        if action.is_none() {
            engine.turn();
            action = engine.cx.out.pop();
        }
        if action.is_none() {
            now.nanos += 1_000_000_000;
            engine.cx.clock.set(now);
            engine.turn();
            engine.turn();
            action = engine.cx.out.pop();
        }
        let Some(action) = action else { return false };
        match action {
            Action::MakeMemory { memory, .. } if refused < refusals => {
                refused += 1;
                engine.handle(Event::NoMemory(memory, WHY.into()));
            }
            Action::Record { entry, .. } => {
                let told = ledger.record(&entry, Moment::default());
                ledger.commit();
                engine.handle(told);
            }
            Action::Run { .. } => return true,
            Action::EndWorker { .. } => panic!("the worker has done nothing wrong"),
            _ => {}
        }
    }
}

#[test]
fn a_durable_call_without_memory_is_read_again_and_at_last_fails() {
    for repeatable in [false, true] {
        for (refusals, runs) in [(0, true), (1, true), (3, true), (100, false)] {
            let (mut engine, worker) = ready();
            submitted(&mut engine, repeatable);
            assert_eq!(play(&mut engine, refusals), runs, "{repeatable} {refusals}");
            let mut states = DurableState::ALL.iter();
            let index = states.position(|state| *state == DurableState::Failed);
            let failed = engine.durable_calls.counts()[index.unwrap()];
            assert_eq!(failed, usize::from(!runs));
            let is_idle = engine.elements.workers[worker].state == WorkerState::Idle;
            assert_eq!(is_idle, !runs);
        }
    }
}

#[test]
fn a_durable_call_whose_results_the_disk_refuses_counts_as_failed() {
    let (mut engine, worker) = ready();
    let key = submitted(&mut engine, true);
    assert!(play(&mut engine, 0));
    let finished = Finished {
        exec_nanos: 1,
        failure: None,
    };
    engine.handle(Event::Finished(worker, key, finished));
    let mut actions = std::iter::from_fn(|| engine.cx.out.pop());
    let ticket = actions.find_map(|action| match action {
        Action::WriteFile { ticket, .. } => Some(ticket),
        _ => None,
    });
    let error = DiskError {
        is_full: true,
        is_damage: false,
        text: "no room".into(),
    };
    engine.handle(Event::Written(ticket.unwrap(), Err(error)));
    assert!(!engine.cx.calls.contains(key));
    let (number, _) = engine.cx.functions.describe("fill").unwrap();
    let counts = engine.cx.functions.counts_mut(number).unwrap();
    assert_eq!((counts.done, counts.failed), (0, 1));
}

/// Stores an array of zeros.
fn array(engine: &mut Engine) -> HandleId {
    array_of(engine, 3)
}

fn array_of(engine: &mut Engine, byte: u8) -> HandleId {
    let form = ArrayForm {
        element: "double".into(),
        shape: vec![1000],
        column_major: false,
    };
    let put = Put {
        form,
        data_bytes: 0,
        stays: true,
    };
    let cx = &mut engine.cx;
    let memory = cx.memory.hold(8000, &user(), &mut cx.out).unwrap();
    let id = HandleId([byte; 16]);
    let arrays = &mut engine.data.arrays;
    arrays.reserve(&user(), 8000);
    arrays.insert(id, &put, user(), ConnectionKey::NONE, memory);
    id
}

#[test]
fn an_array_without_memory_can_be_dropped_and_nothing_else() {
    let (mut engine, _) = ready();
    let id = array(&mut engine);
    assert!(!refuse(&mut engine));
    let arrays = &mut engine.data.arrays;
    for replaces in [false, true] {
        let of = Use {
            id,
            writes: replaces,
            replaces,
            array: 0,
        };
        let Turn::Never(failure) = arrays.turn(CallKey::NONE, &[of]) else {
            panic!("there is nothing to use");
        };
        assert!(failure.message.contains(WHY), "{failure}");
    }
    assert_eq!(arrays.drop_array(id), None);
    assert_eq!(arrays.totals(), (0, 0, 0));
    assert_eq!(engine.cx.memory.used(), 0);
}

#[test]
fn an_array_whose_memory_is_refused_on_its_way_to_the_disk_has_no_contents() {
    let (mut engine, _) = ready();
    let id = array(&mut engine);
    let (_, _, buffer) = leaving::least_used(&mut engine.data.arrays).unwrap();
    assert!(!refuse(&mut engine));
    let error = DiskError {
        is_full: false,
        is_damage: false,
        text: WHY.into(),
    };
    let data = &mut engine.data;
    data.spilled(&mut engine.cx, id, buffer, Err(error));
    let Turn::Never(failure) = data.arrays.turn(CallKey::NONE, &[read_of(id)]) else {
        panic!("there is nothing to use");
    };
    assert!(failure.message.contains(WHY), "{failure}");
    assert_eq!(data.arrays.totals(), (1, 8000, 0));
}

fn read_of(id: HandleId) -> Use {
    Use {
        id,
        writes: false,
        replaces: false,
        array: 0,
    }
}

/// Asks for an array that is on the disk, without a client.
fn get(engine: &mut Engine, id: HandleId) -> CallKey {
    let of = read_of(id);
    let now = engine.cx.now();
    let mut get = ActiveCall::get(user(), (ConnectionKey::NONE, 1), 8000, of, now);
    get.connection = None;
    let key = engine.cx.calls.insert(get);
    engine.data.arrays.line_up(key, &[of]);
    engine.data.await_turn(&mut engine.cx, key);
    engine.turn();
    key
}

/// The read that the server wants. The system refuses memory if `is_refused`.
fn read(engine: &mut Engine, is_refused: bool) -> u64 {
    loop {
        match engine.cx.out.pop().expect("the array is read") {
            Action::MakeMemory { memory, .. } if is_refused => {
                engine.handle(Event::NoMemory(memory, WHY.into()));
            }
            Action::ReadFile { ticket, .. } => return ticket,
            Action::RemoveFile(..) => panic!("the array is still on the disk"),
            _ => {}
        }
    }
}

/// A stored array that is on the disk.
fn array_on_disk(engine: &mut Engine) -> HandleId {
    let id = array(engine);
    let (_, bytes, buffer) = leaving::least_used(&mut engine.data.arrays).unwrap();
    let stored = Stored { bytes, sum: 0 };
    engine.data.spilled(&mut engine.cx, id, buffer, Ok(stored));
    while engine.cx.out.pop().is_some() {}
    id
}

/// Leaves less memory free than an array needs.
fn fill(engine: &mut Engine) -> MemoryKey {
    fill_but(engine, 4096)
}

fn fill_but(engine: &mut Engine, free: u64) -> MemoryKey {
    let cx = &mut engine.cx;
    let rest = cx.memory.limit() - cx.memory.used() - free;
    let rest = cx.memory.hold(rest / 4096 * 4096, &user(), &mut cx.out);
    while cx.out.pop().is_some() {}
    rest.unwrap()
}

/// Lets the read of an array end, which some call waits for.
fn end_read(engine: &mut Engine) {
    let ticket = read(engine, false);
    engine.handle(Event::Fetched(ticket, Ok(())));
    engine.turn();
}

#[test]
fn a_call_waits_for_memory_for_its_array_while_another_one_runs() {
    let (mut engine, worker) = ready();
    let id = array_on_disk(&mut engine);
    let running = call(&mut engine);
    let running = engine.cx.calls.insert(running);
    engine.received(running);
    fill(&mut engine);
    let waiting = [(); 2].map(|()| get(&mut engine, id));
    assert!(engine.data.turns.starves());
    let finished = Finished {
        exec_nanos: 1,
        failure: None,
    };
    engine.handle(Event::Finished(worker, running, finished));
    engine.turn();
    assert!(!engine.data.turns.starves());
    end_read(&mut engine);
    for key in waiting {
        assert!(!engine.cx.calls.contains(key), "it has the array");
    }
    assert_eq!(engine.data.arrays.undefined(id), None);
}

#[test]
fn a_call_fails_if_nobody_gives_memory_for_its_array_back() {
    let (mut engine, _) = ready();
    let id = array_on_disk(&mut engine);
    let rest = fill(&mut engine);
    let key = get(&mut engine, id);
    assert!(!engine.cx.calls.contains(key), "it has failed");
    engine.cx.free(rest);
    get(&mut engine, id);
    end_read(&mut engine);
}

#[test]
fn of_two_calls_that_wait_for_memory_one_fails_and_the_other_one_gets_it() {
    let (mut engine, _) = ready();
    let id = array_on_disk(&mut engine);
    // One is arriving, and has its buffer.
    let arriving = call(&mut engine);
    let arriving = engine.cx.calls.insert(arriving);
    fill(&mut engine);
    let waiting = get(&mut engine, id);
    assert!(engine.data.turns.starves());
    let of = read_of(id);
    engine.cx.calls[arriving].uses = vec![of];
    engine.data.arrays.line_up(arriving, &[of]);
    engine.data.await_turn(&mut engine.cx, arriving);
    engine.turn();
    assert!(!engine.cx.calls.contains(arriving), "it has failed");
    assert!(!engine.data.turns.starves());
    end_read(&mut engine);
    assert!(!engine.cx.calls.contains(waiting), "it has the array");
    assert_eq!(engine.data.arrays.undefined(id), None);
}

#[test]
fn who_wants_a_part_of_an_array_is_no_older_than_its_request() {
    let (mut engine, _) = ready();
    let id = array_on_disk(&mut engine);
    let client = client(&mut engine);
    let (offset, bytes) = (800, 1600);
    let part = ArrayPart { id, offset, bytes };
    engine.data.get_part(&mut engine.cx, client, 5, part);
    let waiting = engine.cx.clients[client].calls[&5];
    assert_eq!(engine.cx.calls[waiting].times.accepted, NOW.nanos);
}

/// A client that has connected.
fn client(engine: &mut Engine) -> ConnectionKey {
    let accepted = Accepted {
        peer: "test".into(),
        user: user(),
        host: None,
        is_local: true,
        is_unix: false,
        local: None,
        ways: None,
    };
    let client = Connection::new(accepted, Limits::default(), Hello::new("test"), 0);
    engine.cx.clients.insert(client)
}

/// The server reads nothing from a connection that waits, also not the rest of a file.
#[test]
fn no_connection_waits_for_memory_while_one_of_its_calls_works_on_files() {
    let text = "Module m; Library \"libc.so.6\"; Define scan(IN filename f) Calls \"C\" scan(f);";
    let document = parse_document(text).document;
    let mut engine = Engine::new(Settings::simple(true), [&document], Vec::new(), NOW);
    let client = client(&mut engine);
    let (number, function) = engine.cx.functions.describe("scan").unwrap();
    let scalars = [Some(Scalar::Text("data".into()))];
    let layout = function.interface.layout(&scalars, &[]).unwrap();
    let mut scan = ActiveCall::new(user(), Some((client, 3)), number, Vec::new(), layout);
    scan.enter(State::Queued);
    let scan = engine.cx.calls.insert(scan);
    let waits = |engine: &mut Engine, id| {
        let offer = Offer::Call(call_of(number, Vec::new()));
        engine.cx.await_room(client, offer.came(id, 0), 8000);
        engine.cx.clients[client].waiting.is_some()
    };
    engine.cx.clients[client].calls.insert(3, scan);
    assert!(!waits(&mut engine, 4), "it is refused");
    engine.cx.clients[client].calls.remove(&3);
    assert!(waits(&mut engine, 5));
}

/// A call that has arrived and uses these arrays.
fn call_with(engine: &mut Engine, uses: [Use; 2], seconds: u64) -> CallKey {
    let mut waiting = call(engine);
    let cx = &mut engine.cx;
    cx.free(waiting.memory.buffer.take().unwrap());
    let request = call_of(waiting.function, vec![Some(Scalar::Int(1000)), None]);
    request.encode(&mut waiting.message);
    waiting.times.accepted = seconds * 1_000_000_000;
    waiting.uses = uses.to_vec();
    let key = cx.calls.insert(waiting);
    engine.data.arrays.line_up(key, &uses);
    key
}

/// Performs what the server wants of the disk and of its worker, until it wants nothing more.
/// `order` chooses what is next. Returns how many calls have run.
fn play_all(engine: &mut Engine, order: impl IntoIterator<Item = u8>) -> usize {
    let (mut order, mut wanted, mut ran) = (order.into_iter(), Vec::new(), 0);
    loop {
        engine.turn();
        wanted.extend(std::iter::from_fn(|| engine.cx.out.pop()));
        wanted.retain(|action| {
            matches!(
                action,
                Action::WriteFile { .. } | Action::ReadFile { .. } | Action::Run { .. }
            )
        });
        if wanted.is_empty() {
            return ran;
        }
        let next = usize::from(order.next().unwrap_or(0)) % wanted.len();
        engine.handle(match wanted.swap_remove(next) {
            Action::WriteFile { ticket, .. } => {
                let (bytes, sum) = (8000, 0);
                Event::Written(ticket, Ok(Stored { bytes, sum }))
            }
            Action::ReadFile { ticket, .. } => Event::Fetched(ticket, Ok(())),
            Action::Run { worker, call } => {
                ran += 1;
                let finished = Finished {
                    exec_nanos: 1,
                    failure: None,
                };
                Event::Finished(worker, call, finished)
            }
            _ => unreachable!("nothing else is wanted"),
        });
    }
}

/// Some arrays, in memory or on the disk.
fn arrays<const N: usize>(engine: &mut Engine, first: u8, on_disk: bool) -> [HandleId; N] {
    std::array::from_fn(|number| {
        let id = array_of(engine, first + number as u8);
        if on_disk {
            let (_, bytes, buffer) = leaving::begin_to_write(&mut engine.data.arrays, id).unwrap();
            let stored = Stored { bytes, sum: 0 };
            engine.data.spilled(&mut engine.cx, id, buffer, Ok(stored));
        }
        id
    })
}

#[test]
fn calls_do_not_take_the_memory_for_an_array_that_one_of_them_waits_for() {
    let (mut engine, _) = ready();
    let uses = [read_of(array_on_disk(&mut engine))];
    let leaves = |engine: &Engine, bytes, uses: &[Use]| {
        room::leaves_turns(&engine.data, &engine.cx, bytes, uses)
    };
    let limit = engine.cx.memory.limit();
    assert!(leaves(&engine, limit, &uses), "no other call waits");
    let mut waiting = call(&mut engine);
    waiting.uses = uses.to_vec();
    let waiting = engine.cx.calls.insert(waiting);
    let most = limit - engine.cx.memory.in_use();
    assert!(!leaves(&engine, most, &uses));
    assert!(leaves(&engine, most, &[]), "it waits for no array");
    assert!(leaves(&engine, most / 2, &uses));
    let often = uses.repeat(1 << 17);
    assert!(leaves(&engine, most / 2, &often), "it is one array");
    engine.cx.calls[waiting].memory.data = vec![MemoryKey::NONE];
    assert!(leaves(&engine, most, &uses), "the other one has its array");
}

/// Each has the array in memory that the other one needs.
#[test]
fn of_two_calls_that_wait_for_each_others_arrays_the_older_one_is_first() {
    let (mut engine, _) = ready();
    let there: [HandleId; 2] = arrays(&mut engine, 1, false);
    let gone: [HandleId; 2] = arrays(&mut engine, 3, true);
    let calls = [0, 1].map(|at| {
        let uses = [there[at], gone[at]].map(read_of);
        call_with(&mut engine, uses, 2 - at as u64)
    });
    fill(&mut engine);
    for key in calls {
        engine.data.await_turn(&mut engine.cx, key);
    }
    engine.turn();
    let wanted: Vec<Action> = std::iter::from_fn(|| engine.cx.out.pop()).collect();
    let mut spilled = wanted.iter().filter_map(|action| match action {
        Action::WriteFile { transfer, .. } => Some(transfer.id.0),
        _ => None,
    });
    assert_eq!((spilled.next(), spilled.next()), (Some(there[0].0), None));
}

proptest! {
    /// In whatever order the disk works: there is memory for three arrays, and two are enough for
    /// each call.
    #[test]
    fn calls_that_wait_for_each_others_arrays_all_run(
        pairs in vec((0..8usize, 1..8usize, any::<bool>()), 1..20),
        order in vec(any::<u8>(), 200),
    ) {
        let (mut engine, _) = ready();
        let all: [HandleId; 8] = arrays(&mut engine, 1, true);
        let mut calls = Vec::new();
        for (first, step, writes) in pairs.iter().copied() {
            let mut uses = [all[first], all[(first + step) % 8]].map(read_of);
            uses[0].writes = writes;
            calls.push(call_with(&mut engine, uses, calls.len() as u64));
        }
        fill_but(&mut engine, 3 * 8192);
        for key in calls {
            engine.data.await_turn(&mut engine.cx, key);
        }
        prop_assert_eq!(play_all(&mut engine, order), pairs.len());
        prop_assert!(engine.cx.calls.is_empty());
    }
}

#[test]
fn an_array_that_cannot_be_read_now_stays_on_the_disk() {
    let (mut engine, _) = ready();
    let id = array_on_disk(&mut engine);
    for is_refused in [true, false] {
        let key = get(&mut engine, id);
        let ticket = read(&mut engine, is_refused);
        let error = DiskError {
            is_full: false,
            is_damage: false,
            text: WHY.into(),
        };
        engine.handle(Event::Fetched(ticket, Err(error)));
        assert!(!engine.cx.calls.contains(key), "it has failed");
        assert_eq!(engine.data.arrays.totals(), (1, 8000, 0));
        assert_eq!(engine.cx.memory.used(), 0);
    }
    let key = get(&mut engine, id);
    let ticket = read(&mut engine, false);
    engine.handle(Event::Fetched(ticket, Ok(())));
    engine.turn();
    assert!(
        !engine.cx.calls.contains(key),
        "it has the array, and no client"
    );
    assert_eq!(engine.data.arrays.undefined(id), None);
}

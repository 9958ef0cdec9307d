//! Which calls fail with a worker that cannot start. The simulator's workers never fail to bind a
//! library that others have bound.

use super::*;
use crate::action::Action;
use crate::context::Step;
use crate::engine::Engine;
use crate::event::{Death, Event, Finished, Now, Ready};
use crate::keys::WorkerKey;
use crate::settings::Settings;
use crate::worker::ObjectState;
use farcall_idl::{Scalar, parse_document};
use farcall_rpc_proto::{FailureKind, User};

const IDL: &str = "Module m; Library \"libc.so.6\";
    Define nap(IN int n) Calls \"C\" usleep(n);";

/// A call of a user, or of a method of the object in a worker.
fn call(engine: &mut Engine, object: Option<WorkerKey>) -> CallKey {
    let (number, function) = engine.cx.functions.describe("nap").unwrap();
    let layout = function.interface.layout(&[Some(Scalar::Int(1))], &[]);
    let user = User::named("anne");
    let mut call = ActiveCall::new(user, None, number, Vec::new(), layout.unwrap());
    call.run.object = object;
    let key = engine.cx.calls.insert(call);
    engine.cx.step(Step::Enqueue(key));
    engine.settle();
    key
}

fn worker(engine: &mut Engine) -> WorkerKey {
    let worker = engine.elements.workers.start(&mut engine.cx, 0);
    engine.handle(Event::Ready(worker, Ready::default()));
    worker
}

fn engine(pes: u32) -> Engine {
    let document = parse_document(IDL).document;
    let mut settings = Settings::simple(false);
    settings.queue = queue::Settings::new(pes);
    Engine::new(settings, [&document], Vec::new(), Now::default())
}

/// The end of a worker that the system has refused a process.
fn unborn() -> Death {
    Death {
        kind: FailureKind::Internal,
        cause: "has no process: Too many open files".into(),
        had_begun: false,
        is_foreign: false,
        is_unborn: true,
    }
}

/// The workers that the shell must start now.
fn starts(engine: &mut Engine) -> Vec<WorkerKey> {
    engine.turn();
    let actions = std::iter::from_fn(|| engine.cx.out.pop());
    let started = actions.filter_map(|action| match action {
        Action::StartWorker { worker, .. } => Some(worker),
        _ => None,
    });
    started.collect()
}

#[test]
fn calls_wait_for_a_worker_that_runs_if_the_system_refuses_another() {
    let mut engine = engine(2);
    let first = worker(&mut engine);
    assert_eq!(starts(&mut engine), [first]);
    let running = call(&mut engine, None);
    let waiting = call(&mut engine, None);
    let [starting] = starts(&mut engine)[..] else {
        panic!("no second worker")
    };
    engine.handle(Event::Died(starting, unborn()));
    assert!(engine.cx.calls.contains(running) && engine.cx.calls.contains(waiting));
    // The system is not asked at once.
    assert_eq!(starts(&mut engine), []);
    let soon = engine.next_deadline().unwrap();
    engine.cx.clock.set(Now {
        nanos: soon,
        unix_ms: 0,
    });
    assert_eq!(starts(&mut engine).len(), 1);
}

#[test]
fn calls_fail_if_the_system_refuses_the_only_worker() {
    let mut engine = engine(2);
    let waiting = call(&mut engine, None);
    let [starting] = starts(&mut engine)[..] else {
        panic!("no worker")
    };
    engine.handle(Event::Died(starting, unborn()));
    assert!(!engine.cx.calls.contains(waiting));
}

#[test]
fn a_method_does_not_fail_with_a_worker_that_cannot_start() {
    let mut engine = engine(1);
    let object = worker(&mut engine);
    engine.elements.workers[object].object = Some(ObjectState::default());
    worker(&mut engine);
    let running = call(&mut engine, None);
    let method = call(&mut engine, Some(object));
    let waiting = call(&mut engine, None);
    let starting = engine.elements.workers.start(&mut engine.cx, 0);
    let death = Death {
        kind: FailureKind::Internal,
        cause: "cannot bind its library".into(),
        had_begun: false,
        is_foreign: false,
        is_unborn: false,
    };
    engine.handle(Event::Died(starting, death));
    let lives = [running, method, waiting].map(|call| engine.cx.calls.contains(call));
    assert_eq!(lives, [true, true, false]);
}

/// Results before the answer would end the connection of the client, with all of its calls.
#[test]
fn a_call_that_returns_before_its_callback_is_answered_fails_with_its_worker() {
    let mut engine = engine(1);
    let worker = worker(&mut engine);
    let key = call(&mut engine, None);
    engine.elements.workers[worker].waits(1);
    let finished = Finished {
        exec_nanos: 1,
        failure: None,
    };
    engine.handle(Event::Finished(worker, key, finished));
    assert!(!engine.cx.calls.contains(key));
    assert_eq!(engine.elements.workers[worker].waits_since(), None);
    let (number, _) = engine.cx.functions.describe("nap").unwrap();
    let counts = engine.cx.functions.counts_mut(number).unwrap();
    assert_eq!((counts.done, counts.failed), (0, 1));
    let mut actions = std::iter::from_fn(|| engine.cx.out.pop());
    assert!(actions.any(|action| matches!(action, Action::EndWorker { .. })));
}

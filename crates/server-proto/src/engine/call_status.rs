//! Answers how a call fares: how far it has come, why it waits, and when it will start and end. The
//! reason is written for the user of the call and names no other user. The answer changes nothing.

use super::Engine;
use crate::call::{State, Task};
use crate::data::source;
use crate::durable::Stage;
use crate::durable_calls::stage_of;
use crate::elements::Elements;
use crate::keys::{CallKey, ConnectionKey, Key, WorkerKey};
use crate::worker::State as WorkerState;
use farcall_rpc_proto::{CallId, CallName, CallPhase, CallStatus, DurableState, Expected, Nanos};
use farcall_schedule::Interval;
use farcall_schedule::queue::Reason;

/// Answers a client that asks for the status of a call.
pub(super) fn answer(engine: &mut Engine, key: ConnectionKey, request: CallId, name: CallName) {
    let status = match name {
        CallName::Open(id) => Ok(of_open(engine, key, id)),
        CallName::Durable(id) => {
            let user = engine.cx.clients[key].user.clone();
            let stage = stage_of(&mut engine.durable_calls, id, &user);
            stage.map(|(state, stage)| of_durable(engine, state, stage))
        }
    };
    let proto = &mut engine.cx.clients[key].proto;
    match status {
        Ok(status) => proto.call_status(request, &status),
        Err(failure) => proto.fail(request, &failure),
    }
}

fn plain(phase: CallPhase, reason: &str) -> CallStatus {
    CallStatus {
        phase,
        reason: reason.to_string(),
        starts: None,
        ends: None,
    }
}

/// The status of a request of a connection.
fn of_open(engine: &mut Engine, key: ConnectionKey, id: CallId) -> CallStatus {
    let connection = &engine.cx.clients[key];
    if let Some(call) = connection.calls.get(&id) {
        return of_active(engine, *call, Starts::New);
    }
    let mut waiting = connection.waiting.iter().chain(&connection.held);
    match waiting.find(|offered| offered.id == id) {
        Some(offered) => {
            let bytes = offered.offer.data_bytes();
            let text = format!("waits for memory for its arguments of {bytes} bytes");
            plain(CallPhase::Arriving, &text)
        }
        None if engine.takeover.has(key, id) => plain(
            CallPhase::Arriving,
            "waits until the server that this one replaces has ended",
        ),
        None => match source::status(&engine.data, key, id) {
            Some(text) => plain(CallPhase::Arriving, &text),
            None => plain(CallPhase::Over, "has ended"),
        },
    }
}

fn of_durable(engine: &mut Engine, state: DurableState, stage: Stage) -> CallStatus {
    match (stage, state.is_over()) {
        (_, true) => plain(CallPhase::Over, state.name()),
        (Stage::Memory(call), false) => of_active(engine, call, Starts::New),
        (Stage::Unserved, false) => plain(
            CallPhase::Waiting,
            "waits for its function, which the server does not have: register its library, or \
             cancel the call",
        ),
        (Stage::Disk, false) => on_disk(state),
    }
}

/// The status of a durable call that has no memory. One that has computed waits for the disk only.
fn on_disk(state: DurableState) -> CallStatus {
    match state {
        DurableState::Running => plain(
            CallPhase::Returning,
            "has computed, and its results go to the disk",
        ),
        _ => plain(
            CallPhase::Waiting,
            "waits on the disk for its turn: earlier calls must end first",
        ),
    }
}

/// How fresh the predicted start of a call must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    /// Predicted again, if the last time is long enough ago.
    New,
    /// As predicted last. This is for people who look at many calls each second.
    Last,
}

/// The status of a call that is in memory.
pub(super) fn of_active(engine: &mut Engine, key: CallKey, starts: Starts) -> CallStatus {
    let now = engine.cx.now();
    let call = &engine.cx.calls[key];
    match call.state {
        State::Receiving => {
            let (arrived, all) = (call.streams.arrived, call.layout.sent_bytes());
            let text = format!("{arrived} of {all} bytes of its arguments have arrived");
            plain(CallPhase::Arriving, &text)
        }
        State::Waiting => plain(
            CallPhase::Waiting,
            "waits for stored arrays that other calls use or fill",
        ),
        State::OnDisk if matches!(call.task, Task::Write(_)) => {
            plain(CallPhase::Returning, "the array is written to its address")
        }
        State::OnDisk if call.times.ended > 0 => on_disk(DurableState::Running),
        State::OnDisk => plain(CallPhase::Waiting, "waits for the disk"),
        State::Sending => plain(CallPhase::Returning, "its results are on their way"),
        State::Queued => of_queued(engine, key, starts),
        State::Running { worker } if is_booked(engine, worker) => plain(
            CallPhase::Waiting,
            "has its processor elements, and waits until the disk has recorded that it starts",
        ),
        State::Running { .. } => {
            let since = now.saturating_sub(call.times.started);
            let pes = elements(call.run.pes.max(1));
            let text = format!("has computed on {pes} for {:.1} s", since as f64 * 1e-9);
            let ends = engine.cx.interval(key, call.run.pes);
            CallStatus {
                ends: ends.map(|ends| left(ends, since as f64 * 1e-9)),
                ..plain(CallPhase::Running, &text)
            }
        }
    }
}

/// Whether a worker waits until the journal has recorded that its call runs.
fn is_booked(engine: &Engine, worker: WorkerKey) -> bool {
    let worker = engine.elements.workers.get(worker);
    worker.is_some_and(|worker| matches!(worker.state, WorkerState::Booked { .. }))
}

fn of_queued(engine: &mut Engine, key: CallKey, starts: Starts) -> CallStatus {
    let now = engine.cx.now();
    let Some(reason) = engine.elements.queue.reason(key.number(), now) else {
        let text = "has its processor elements, and waits for a worker to start";
        let pes = engine.cx.calls[key].run.pes;
        let ends = engine.cx.interval(key, pes).map(|ends| left(ends, 0.0));
        return CallStatus {
            ends,
            ..plain(CallPhase::Waiting, text)
        };
    };
    let Elements {
        queue, expected, ..
    } = &mut engine.elements;
    let cx = &engine.cx;
    let expected = match starts {
        Starts::New => expected.of(queue, key.number(), now, |id, pes| cx.predict(id, pes)),
        Starts::Last => expected.last(key.number(), now),
    };
    let wanted = engine.elements.queued(&engine.cx, key).fewest;
    let wanted = wanted.min(engine.elements.queue.settings().pes);
    let mut text = match reason {
        Reason::Turn => format!("waits for {}", elements(wanted)),
        Reason::Elements { wanted, free } => format!(
            "is next, and waits for {}; {free} {} free",
            elements(wanted),
            if free == 1 { "is" } else { "are" }
        ),
        Reason::Gpus { wanted, free } => format!(
            "is next, and waits for GPUs: it needs {wanted}, and {free} of {} are free",
            engine.elements.queue.settings().gpus
        ),
        Reason::Running(most) => format!(
            "is next, and waits until one of {most} calls has ended: no more may compute at once"
        ),
        Reason::Booking { from } => format!(
            "waits for its reservation, which begins in {:.0} s",
            from.saturating_sub(now) as f64 * 1e-9
        ),
        Reason::Booked if wanted == 1 => {
            "waits for 1 processor element that is reserved now".to_string()
        }
        Reason::Booked => format!("waits for {} that are reserved now", elements(wanted)),
    };
    if let (Reason::Turn, Some((expected, _))) = (reason, &expected) {
        let has_shares = engine.elements.queue.settings().half_life_s.is_some();
        let before = match (has_shares, expected.own_before) {
            (false, _) => before_it(expected.before, "call", "calls"),
            (true, 0) => "calls of others, who have used less, go first".to_string(),
            (true, own) => before_it(own, "of your calls", "of your calls"),
        };
        text = format!("{text}; {before}");
    }
    if let Some(kept) = kept_from(engine, key) {
        let in_s = kept.saturating_sub(now) as f64 * 1e-9;
        text = format!("{text}; for its deadline it goes first in {in_s:.1} s");
    }
    let starts = expected.map(|(_, starts)| starts);
    let pes = expected.map_or(wanted, |(expected, _)| expected.pes);
    let ends = starts.and_then(|starts| Some(starts.plus(engine.cx.interval(key, pes)?)));
    CallStatus {
        starts: starts.map(|starts| left(starts, 0.0)),
        ends: ends.map(|ends| left(ends, 0.0)),
        ..plain(CallPhase::Waiting, &text)
    }
}

/// When processor elements are kept for the deadline of a call.
fn kept_from(engine: &Engine, key: CallKey) -> Option<Nanos> {
    let run = &engine.cx.calls[key].run;
    let booking = engine.elements.queue.booking(run.reservation?)?;
    run.is_promised.then_some(booking.from)
}

/// What is left of a time after `passed` seconds. What is late will probably be late by as much
/// again.
fn left(time: Interval, passed: f64) -> Expected {
    let late = (passed - time.likely).max(0.0);
    let likely = (time.likely - passed).max(late);
    let nanos = |seconds: f64| (seconds.clamp(0.0, 1e9) * 1e9) as Nanos;
    Expected {
        low: nanos(time.low - passed),
        likely: nanos(likely),
        high: nanos((time.high - passed).max(likely + late)),
    }
}

fn elements(count: u32) -> String {
    match count {
        1 => "1 processor element".to_string(),
        count => format!("{count} processor elements"),
    }
}

fn before_it(count: u32, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one} is before it"),
        count => format!("{count} {several} are before it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{ActiveCall, Durability};
    use crate::context::Step;
    use crate::event::{Event, Now, Ready};
    use crate::settings::Settings;
    use farcall_idl::{Scalar, parse_document};
    use farcall_rpc_proto::{JobId, User};

    const IDL: &str = "Module m; Library \"libc.so.6\";
        Define once(IN int n) Calls \"C\" usleep(n);";

    /// It would seem to have computed since the server has started.
    #[test]
    fn a_durable_call_waits_while_the_disk_records_that_it_starts() {
        let document = parse_document(IDL).document;
        let now = Now {
            nanos: 1_000_000_000,
            unix_ms: 0,
        };
        let mut engine = Engine::new(Settings::simple(true), [&document], Vec::new(), now);
        let worker = engine.elements.workers.start(&mut engine.cx, 0);
        engine.handle(Event::Ready(worker, Ready::default()));
        let (number, function) = engine.cx.functions.describe("once").unwrap();
        let layout = function.interface.layout(&[Some(Scalar::Int(1))], &[]);
        let user = User::named("anne");
        let mut call = ActiveCall::new(user, None, number, Vec::new(), layout.unwrap());
        call.durability = Durability::Recorded(JobId([7; 16]));
        let key = engine.cx.calls.insert(call);
        engine.cx.step(Step::Enqueue(key));
        engine.settle();
        assert_eq!(engine.cx.calls[key].state, State::Running { worker });
        let phase = |engine: &mut Engine| of_active(engine, key, Starts::Last).phase;
        assert_eq!(phase(&mut engine), CallPhase::Waiting);
        engine.cx.calls[key].state = State::OnDisk;
        assert_eq!(phase(&mut engine), CallPhase::Waiting, "it is read");
        engine.cx.calls[key].times.ended = 2_000_000_000;
        assert_eq!(phase(&mut engine), CallPhase::Returning, "it has computed");
    }

    #[test]
    fn a_call_that_has_computed_does_not_wait_for_its_turn() {
        let [waits, ends] = [DurableState::Queued, DurableState::Running].map(on_disk);
        assert_eq!(waits.phase, CallPhase::Waiting);
        assert!(waits.reason.contains("for its turn"), "{}", waits.reason);
        assert_eq!(ends.phase, CallPhase::Returning);
        assert!(ends.reason.contains("its results"), "{}", ends.reason);
    }
}

//! Makes snapshots for people who watch the server. Operators see all calls, others their own, and
//! of the rest only how many there are.
//!
//! A look at all calls is rare if they are many: the [`Board`] keeps their order meanwhile. So the
//! work is bounded in proportion to the time that passes.

use super::call_status::{self, Starts};
use super::{Engine, Overview};
use crate::account::Recent;
use crate::call::{ActiveCall, State, Task};
use crate::keys::{CallKey, ConnectionKey, Key};
use farcall_rpc_proto::{AskSnapshot, CallId, CallPhase, Expected, Nanos, User};
use farcall_schedule as schedule;
use farcall_snapshot::{
    Call, Counts, Data, Forecast, Interval, Link, List, MOST_CALLS, MOST_ROWS, Reservation, SCHEMA,
    Server, Snapshot, Viewer, finds, text,
};

/// Least time between two looks at all calls.
const PAUSE: Nanos = 500_000_000;
/// The same for each call.
const PAUSE_PER_CALL: Nanos = 200_000;

/// The calls under way, in the order in which people want to see them.
#[derive(Default)]
pub(crate) struct Board {
    /// When it was made.
    at: Option<Nanos>,
    entries: Vec<Entry>,
    backlog_s: f64,
}

/// One call. It may have ended meanwhile.
struct Entry {
    rank: (Rank, u64),
    key: CallKey,
    user: User,
    function: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Running,
    /// Waits, and its place is predicted.
    Predicted,
    /// Waits behind those.
    Waiting,
    /// Its arguments or results are on their way.
    Moving,
}

/// Who looks, and what for.
struct Look<'l> {
    user: User,
    is_operator: bool,
    search: &'l str,
}

impl Look<'_> {
    fn sees(&self, user: &User) -> bool {
        self.is_operator || *user == self.user
    }
}

/// Answers a client that asks for a snapshot.
pub(super) fn answer(
    engine: &mut Engine,
    key: ConnectionKey,
    request: CallId,
    asked: &AskSnapshot,
) {
    let search: String = asked.search.chars().take(100).collect();
    let connection = &engine.cx.clients[key];
    let look = Look {
        user: connection.user.clone(),
        is_operator: connection.peer.is_operator,
        search: &search,
    };
    renew(engine);
    let snapshot = Snapshot {
        calls: calls(engine, &look, asked),
        ..around(engine, &look)
    };
    let proto = &mut engine.cx.clients[key].proto;
    proto.status_text(request, snapshot.to_json());
}

/// Looks at all calls again, if the last time is long enough ago.
fn renew(engine: &mut Engine) {
    let now = engine.cx.now();
    let calls = engine.cx.calls.len() as u64;
    let pause = calls.saturating_mul(PAUSE_PER_CALL).max(PAUSE);
    if engine
        .board
        .at
        .is_some_and(|at| now < at.saturating_add(pause))
    {
        return;
    }
    let (cx, elements) = (&engine.cx, &mut engine.elements);
    let predict = |id, pes| cx.predict(id, pes);
    let queue = &elements.queue;
    match queue.waiting().next() {
        Some(first) if !elements.expected.has_predicted() => {
            elements.expected.of(queue, first, now, predict);
        }
        _ => elements.expected.look_ahead(queue, now, predict),
    }
    let expected = &elements.expected;
    let functions = cx
        .calls
        .iter()
        .filter(|(_, call)| matches!(call.task, Task::Call));
    let entries = functions.map(|(key, call)| Entry {
        rank: match (call.state, expected.place(key.number())) {
            (State::Running { .. }, _) => (Rank::Running, call.times.started),
            (State::Queued, Some(place)) => (Rank::Predicted, place.into()),
            (State::Queued | State::Waiting, _) => (Rank::Waiting, call.times.accepted),
            _ => (Rank::Moving, call.times.accepted),
        },
        key,
        user: call.user.clone(),
        function: call.function,
    });
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|entry| entry.rank);
    engine.board = Board {
        at: Some(now),
        entries,
        backlog_s: elements.backlog(cx),
    };
}

/// The calls that somebody wants to see.
fn calls(engine: &mut Engine, look: &Look<'_>, asked: &AskSnapshot) -> List<Call> {
    let most = usize::try_from(asked.most)
        .unwrap_or(usize::MAX)
        .min(MOST_CALLS);
    let from = usize::try_from(asked.from).unwrap_or(usize::MAX);
    let board = std::mem::take(&mut engine.board);
    let seen = board.entries.iter().filter(|entry| look.sees(&entry.user));
    let found = seen.filter(|entry| is_wanted(engine, entry, look.search));
    let (mut total, mut keys) = (0, Vec::new());
    for entry in found {
        if total >= from && keys.len() < most {
            keys.push(entry.key);
        }
        total += 1;
    }
    engine.board = board;
    let rows = keys.into_iter().filter_map(|key| row(engine, key, look));
    List {
        rows: rows.collect(),
        total: total as u64,
        from: asked.from,
    }
}

fn is_wanted(engine: &Engine, entry: &Entry, search: &str) -> bool {
    let name = || function_name(engine, entry.function);
    let job = || {
        let call = engine.cx.calls.get(entry.key);
        let job = call.and_then(ActiveCall::job_id);
        job.map_or_else(String::new, |job| job.to_string())
    };
    let trace = || {
        let call = engine.cx.calls.get(entry.key);
        let cause = call.and_then(|call| call.run.cause);
        cause.map_or_else(String::new, |of| of.trace_hex().to_string())
    };
    search.is_empty() || finds(search, &[&name(), entry.user.name(), &job(), &trace()])
}

fn function_name(engine: &Engine, function: u64) -> String {
    let function = engine.cx.functions.get(function);
    function.map_or_else(
        |_| "?".to_owned(),
        |function| text(&function.interface.qualified_name()),
    )
}

/// A call under way; `None` if it has ended.
fn row(engine: &mut Engine, key: CallKey, look: &Look<'_>) -> Option<Call> {
    engine.cx.calls.get(key)?;
    let status = call_status::of_active(engine, key, Starts::Last);
    let now = engine.cx.now();
    let call = &engine.cx.calls[key];
    let is_own = call.user == look.user;
    let predicted = engine.cx.interval(key, call.run.pes);
    let [send_s, wait_s, exec_s, recv_s] = parts(call, status.phase, now);
    let job = call.job_id().filter(|_| is_own);
    Some(Call {
        number: key.number(),
        job: job.map(|job| job.to_string()),
        user: text(call.user.name()),
        trace: call.run.cause.map(|of| of.trace_hex().to_string()),
        since_s: now.saturating_sub(call.times.accepted) as f64 * 1e-9,
        function: function_name(engine, call.function),
        phase: status.phase.name().to_owned(),
        pes: call.run.pes,
        reason: match is_own {
            true => status.reason,
            false => status
                .reason
                .replace("your calls", "the calls of this user"),
        },
        starts: status.starts.map(moment),
        ends: status.ends.map(moment),
        send_s,
        wait_s,
        exec_s,
        recv_s,
        predicted: predicted.map(interval),
        up: call.layout.sent_bytes(),
        down: call.layout.returned_bytes(),
    })
}

/// Seconds in each part of a call so far: SEND, wait, EXEC, RECV.
fn parts(call: &ActiveCall, phase: CallPhase, now: Nanos) -> [f64; 4] {
    let times = &call.times;
    let between = |from: Nanos, until: Nanos| until.saturating_sub(from) as f64 * 1e-9;
    match phase {
        CallPhase::Arriving => [between(times.accepted, now), 0.0, 0.0, 0.0],
        CallPhase::Waiting => [
            between(times.accepted, times.queued),
            between(times.queued, now),
            0.0,
            0.0,
        ],
        CallPhase::Running => [
            between(times.accepted, times.queued),
            between(times.queued, times.started),
            between(times.started, now),
            0.0,
        ],
        CallPhase::Returning | CallPhase::Over => [
            between(times.accepted, times.queued),
            between(times.queued, times.started),
            times.exec as f64 * 1e-9,
            between(times.ended, now),
        ],
    }
}

fn moment(expected: Expected) -> Interval {
    let seconds = |nanos: Nanos| nanos as f64 * 1e-9;
    Interval {
        low_s: seconds(expected.low),
        likely_s: seconds(expected.likely),
        high_s: seconds(expected.high),
    }
}

fn interval(interval: schedule::Interval) -> Interval {
    Interval {
        low_s: interval.low,
        likely_s: interval.likely,
        high_s: interval.high,
    }
}

/// Everything but the calls under way.
fn around(engine: &Engine, look: &Look<'_>) -> Snapshot {
    let (cx, queue) = (&engine.cx, &engine.elements.queue);
    let (waiting, running) = (queue.waiting().len() as u64, queue.running().len() as u64);
    let own = server(engine);
    let recent = cx.totals.recent.iter();
    let recent = recent.filter(|one| look.sees(&one.user));
    let recent = recent.map(|one| ended(engine, one, look));
    Snapshot {
        schema: SCHEMA,
        kind: "server".to_owned(),
        version: cx.settings.version.to_string(),
        uptime_s: cx.now() as f64 * 1e-9,
        viewer: Viewer {
            user: text(look.user.name()),
            operator: look.is_operator,
        },
        policy: queue.settings().policy.name().to_owned(),
        counts: Counts {
            waiting,
            running,
            moving: own.calls.saturating_sub(waiting + running),
            done: cx.totals.ended(),
        },
        servers: List::of([own].into_iter(), 1, |own| own),
        calls: List::default(),
        ended: recent.filter(|one| is_found(one, look.search)).collect(),
        users: Overview(engine).user_shares(&look.user, look.is_operator, look.search),
        reservations: reservations(engine, look),
        links: links(engine, look),
        data: data(engine, look),
    }
}

fn server(engine: &Engine) -> Server {
    let (cx, queue) = (&engine.cx, &engine.elements.queue);
    let bookings = queue.bookings().map(|(_, booking)| booking);
    let now = cx.now();
    Server {
        address: String::new(),
        state: if cx.draining { "draining" } else { "serving" }.to_owned(),
        pes: queue.settings().pes,
        pes_used: Some(queue.used()),
        pes_reserved: bookings
            .filter(|one| one.covers(now))
            .map(|one| one.pes)
            .sum(),
        calls: cx.calls.len() as u64,
        backlog_s: engine.board.backlog_s,
        memory: cx.memory.limit(),
        memory_used: cx.memory.in_use(),
        functions: cx.functions.count() as u64,
        reported_s: 0.0,
    }
}

/// A call that has ended.
fn ended(engine: &Engine, one: &Recent, look: &Look<'_>) -> Call {
    let [send_s, wait_s, exec_s, recv_s] = one.nanos.map(|nanos| nanos as f64 * 1e-9);
    let ago_s = engine.cx.now().saturating_sub(one.at) as f64 * 1e-9;
    let took_s = send_s + wait_s + exec_s + recv_s;
    let job = one.job.filter(|_| one.user == look.user);
    Call {
        number: one.number,
        job: job.map(|job| job.to_string()),
        user: text(one.user.name()),
        trace: one.cause.map(|of| of.trace_hex().to_string()),
        since_s: ago_s + took_s,
        function: function_name(engine, one.function),
        phase: CallPhase::Over.name().to_owned(),
        pes: one.pes,
        reason: format!("ended {ago_s:.0} s ago"),
        send_s,
        wait_s,
        exec_s,
        recv_s,
        predicted: one.predicted.map(|likely_s| Interval {
            low_s: likely_s,
            likely_s,
            high_s: likely_s,
        }),
        up: one.bytes[0],
        down: one.bytes[1],
        ..Call::default()
    }
}

/// Whether the search finds a call that has ended.
fn is_found(one: &Call, search: &str) -> bool {
    let job = one.job.as_deref().unwrap_or_default();
    let trace = one.trace.as_deref().unwrap_or_default();
    finds(search, &[&one.function, &one.user, job, trace])
}

fn reservations(engine: &Engine, look: &Look<'_>) -> List<Reservation> {
    let (queue, now) = (&engine.elements.queue, engine.cx.now());
    let seen = &engine.reservations;
    let seen = seen.seen_by(queue, &look.user, look.is_operator, now);
    let seen = seen.filter(|(owner, _)| finds(look.search, &[owner.name()]));
    List::of(seen, MOST_ROWS, |(owner, record)| Reservation {
        id: record.id,
        user: text(owner.name()),
        pes: record.pes,
        up: record.up,
        down: record.down,
        begins_s: record.begins as f64 * 1e-3,
        ends_s: record.ends as f64 * 1e-3,
    })
}

/// What was learned of the network. The addresses of other clients are for operators.
fn links(engine: &Engine, look: &Look<'_>) -> List<Link> {
    let rates = engine.links.rates().filter(|_| look.is_operator);
    let forecast = |throughput: schedule::Throughput| Forecast {
        rate: throughput.rate(),
        ..Forecast::default()
    };
    List::of(rates, MOST_ROWS, |(host, up, down)| Link {
        site: host.to_string(),
        server: String::new(),
        up: forecast(up),
        down: forecast(down),
    })
}

fn data(engine: &Engine, look: &Look<'_>) -> List<Data> {
    let seen = engine.data.names.seen_by(&look.user);
    let seen = seen.filter(|(name, owner, ..)| finds(look.search, &[name, owner]));
    List::of(seen, MOST_ROWS, |(name, owner, form, shared)| Data {
        name: text(name),
        owner: text(owner),
        element: text(&form.element),
        shape: form.shape.clone(),
        bytes: form.bytes().unwrap_or(0),
        shared,
        holders: Vec::new(),
    })
}

#[cfg(test)]
mod tests;

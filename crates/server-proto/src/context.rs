//! The context: state that all parts of the server share, and the steps that one part asks of
//! another. The engine performs the steps. Retention counts a time that never jumps, even if the
//! calendar does.

use crate::account::Totals;
use crate::action::{Action, Actions, Audit};
use crate::call::{ActiveCall, State, Task};
use crate::clients::{Clients, Starved};
use crate::connection::Offered;
use crate::disk::Disk;
use crate::event::Now;
use crate::functions::Functions;
use crate::ids::Ids;
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey, Table};
use crate::lifecycle::Change;
use crate::links::Links;
use crate::memory::{Memory, NoMemory};
use crate::record::{Outcome, Record};
use crate::settings::Settings;
use farcall_record::Server;
use farcall_rpc_proto::{CallId, Failure, FailureKind, JobId, Nanos, User};
use farcall_schedule::Interval;
use std::collections::VecDeque;

/// A request of one part to another. [`Engine`](crate::engine::Engine) performs steps after the
/// part has returned, in order.
#[derive(Debug)]
pub(crate) enum Step {
    /// The call has all that it needs. It now waits for processor elements.
    Enqueue(CallKey),
    /// The call has ended. Free what it holds.
    Release(CallKey),
    /// Fail the call. The text follows the name of its function.
    Fail(CallKey, FailureKind, String),
    /// Record a change of a durable call in the journal.
    Record(JobId, Change, Outcome),
    /// The worker of a durable call was killed, for this reason: the call runs again, or has failed
    /// after some tries.
    RunAgain(CallKey, Failure),
    /// The journal has recorded that the call runs. Give it to its worker.
    Begin(CallKey),
    /// End a durable call that is in memory early, for this reason, whose text follows the name of
    /// its function.
    TearDown(CallKey, Failure),
    /// Make room for calls and results on the disk that wait for memory.
    SeekRoom,
    /// Let durable calls go on whose functions have been added.
    LookForFunctions,
}

/// Pause after the system has refused memory, a process or a file.
const RETRY: Nanos = 1_000_000_000;

/// Whether the system has refused the memory of a call.
pub(crate) fn lacks_memory(cx: &Context, call: CallKey) -> bool {
    let buffer = cx.calls[call].memory.buffer;
    buffer.is_some_and(|buffer| !cx.memory.has(buffer))
}

/// Lets a durable call for which the system has no memory be read from the disk again.
pub(crate) fn read_again(call: CallKey) -> Step {
    let text = "got no memory from the system";
    Step::RunAgain(call, Failure::new(FailureKind::Busy, text))
}

/// The time, as the shell has set it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Now,
    /// Milliseconds since 1970 when the server started.
    started_ms: u64,
    /// When the calendar was read last. The shell reads it once in a turn.
    read: Nanos,
}

/// Milliseconds of a jump of the calendar that matters.
const JUMP_MS: i64 = 5000;

impl Clock {
    pub(crate) fn starting(now: Now) -> Clock {
        Clock {
            now,
            started_ms: now.unix_ms.saturating_sub(now.nanos / 1_000_000),
            read: now.nanos,
        }
    }

    /// Sets the time. If the calendar has jumped, returns by how many milliseconds.
    pub(crate) fn set(&mut self, now: Now) -> Option<i64> {
        let before = std::mem::replace(&mut self.now.unix_ms, now.unix_ms);
        self.now.nanos = self.now.nanos.max(now.nanos);
        if before == now.unix_ms {
            return None;
        }
        let read = std::mem::replace(&mut self.read, self.now.nanos);
        let passed = self.now.nanos.saturating_sub(read) / 1_000_000;
        let jump = now.unix_ms.wrapping_sub(before.saturating_add(passed)) as i64;
        (jump.saturating_abs() >= JUMP_MS).then_some(jump)
    }

    /// Milliseconds since 1970 by a clock that never jumps: retention counts the time that the
    /// server serves.
    fn steady_ms(&self) -> u64 {
        self.started_ms.saturating_add(self.now.nanos / 1_000_000)
    }

    /// The time since the start as the calendar shows it, for a deliberate fault.
    pub(crate) fn by_calendar(&self) -> Nanos {
        let passed = self.now.unix_ms.saturating_sub(self.started_ms);
        passed.saturating_mul(1_000_000)
    }
}

/// State that all parts share.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) out: Actions,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) ids: Ids,
    pub(crate) functions: Functions,
    pub(crate) clients: Clients,
    pub(crate) calls: Table<CallKey, ActiveCall>,
    pub(crate) memory: Memory,
    pub(crate) disk: Disk,
    pub(crate) totals: Totals,
    /// Whether memory became free for which calls may wait.
    pub(crate) has_room: bool,
    /// When something was first learned that is not saved yet.
    pub(crate) learned_since: Option<Nanos>,
    /// Whether the server takes no more connections and calls.
    pub(crate) draining: bool,
    /// When the server stops at the latest, if it is stopping.
    pub(crate) stopping: Option<Nanos>,
}

impl Context {
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now.nanos
    }

    /// The calendar without its jumps.
    pub(crate) fn steady_ms(&self) -> u64 {
        self.clock.steady_ms()
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    /// Asks for room for calls and results on the disk: once for all that wait.
    pub(crate) fn seek_room(&mut self) {
        let mut steps = self.steps.iter();
        if !steps.any(|step| matches!(step, Step::SeekRoom)) {
            self.step(Step::SeekRoom);
        }
    }

    /// Fails a call that no worker has.
    pub(crate) fn fail(&mut self, call: CallKey, kind: FailureKind, cause: &str) {
        self.step(Step::Fail(call, kind, cause.to_string()));
    }

    /// Marks a connection with output, to be written with other answers of this turn.
    pub(crate) fn answered(&mut self, key: ConnectionKey) {
        if self.clients.has_output(key) {
            self.out.push(Action::Flush(key));
        }
    }

    /// Refuses a client's request.
    pub(crate) fn refuse(&mut self, key: ConnectionKey, request: CallId, failure: &Failure) {
        if let Some(connection) = self.clients.get_mut(key) {
            connection.proto.fail(request, failure);
            self.answered(key);
        }
    }

    /// Refuses a request that was to wait for memory. A call then counts as refused.
    pub(crate) fn refuse_offered(
        &mut self,
        key: ConnectionKey,
        offered: &Offered,
        failure: &Failure,
    ) {
        if offered.offer.call().is_some() {
            self.totals.refused += 1;
            self.audit_refusal(key, &failure.message);
        }
        self.refuse(key, offered.id, failure);
    }

    /// Frees memory, and lets requests that wait for some continue.
    pub(crate) fn free(&mut self, memory: MemoryKey) {
        self.memory.free(memory, &mut self.out);
        self.has_room = true;
    }

    /// Takes back the memory of an array that only its user's calls have used, and lets requests
    /// that wait for some continue.
    pub(crate) fn retire(&mut self, memory: MemoryKey) {
        self.memory.retire(memory, &mut self.out);
        self.has_room = true;
    }

    /// Why the server takes nothing new, if it is about to end.
    pub(crate) fn is_ending(&self) -> Option<Failure> {
        let (kind, text) = match (self.stopping, self.draining) {
            (Some(_), _) => (FailureKind::ServerStopping, "the server is stopping"),
            (None, true) => (
                FailureKind::Draining,
                "the server is draining; connect again",
            ),
            (None, false) => return None,
        };
        Some(Failure::new(kind, text))
    }

    /// Checks that the server has so many GPUs. The text of the failure follows the name of what
    /// needs them.
    pub(crate) fn has_gpus(&self, wanted: u32) -> Result<(), Failure> {
        let all = self.settings.queue.gpus;
        if wanted <= all {
            return Ok(());
        }
        let text = format!(
            "needs {wanted} GPU{}, and this server has {all}; call a server with GPUs, or set \
             their number with `farcall serve --gpus`",
            if wanted == 1 { "" } else { "s" }
        );
        Err(Failure::new(FailureKind::TooLarge, text))
    }

    /// The failure that tells a client why there is no memory.
    pub(crate) fn no_room(&self, bytes: u64, refusal: NoMemory) -> Failure {
        let limit = self.memory.limit();
        let (kind, text) = match refusal {
            NoMemory::TooLarge => (
                FailureKind::TooLarge,
                format!(
                    "{bytes} bytes are needed, and the server allows {limit} bytes (limits.memory \
                     in its configuration)"
                ),
            ),
            NoMemory::Wait => (
                FailureKind::Busy,
                format!("{bytes} bytes are needed, and other calls use the server's memory"),
            ),
        };
        Failure::new(kind, text)
    }

    /// When the system is asked again for what it has just refused.
    pub(crate) fn retry_at(&self) -> Nanos {
        self.now().saturating_add(RETRY)
    }

    /// Lets a request wait until there is memory for it: a buffer of so many bytes, or an array.
    pub(crate) fn await_room(&mut self, key: ConnectionKey, offered: Offered, buffer: u64) {
        let bytes = offered.offer.data_bytes();
        let starved = Starved::new(key, (bytes, buffer), self.now());
        let connection = &mut self.clients[key];
        if connection.proto.waits_for_grant(bytes) {
            connection.held.push_front(offered);
            self.clients.note_holding(key);
            return self.clients.note_starved(starved);
        }
        // The rest of an arriving call follows on the same connection, and so does what a call asks
        // its client for.
        if self.clients.is_receiving(key, &self.calls) || self.may_ask(key) {
            let text = "the server's memory is in use, and an earlier call on this connection is \
                        still arriving, may call back, or works on files of its caller; try again \
                        when that call has ended";
            let failure = Failure::new(FailureKind::Busy, text);
            return self.refuse_offered(key, &offered, &failure);
        }
        self.clients[key].waiting = Some(offered);
        self.clients.note_starved(starved);
    }

    /// Whether a call of a connection may ask its client for something: a callback, or a part of a
    /// file.
    fn may_ask(&self, key: ConnectionKey) -> bool {
        let mut calls = self.clients[key].calls.values();
        let moves_files = calls.any(|key| {
            let function = self.functions.get(self.calls[*key].function);
            function.is_ok_and(|function| function.interface.moves_files())
        });
        moves_files || self.may_call_back(key)
    }

    /// Whether a call of a connection may call back.
    pub(crate) fn may_call_back(&self, key: ConnectionKey) -> bool {
        let mut calls = self.clients[key].calls.values();
        calls.any(|key| self.calls_back(&self.calls[*key]))
    }

    fn calls_back(&self, call: &ActiveCall) -> bool {
        let function = self.functions.get(call.function);
        function.is_ok_and(|function| !function.interface.callbacks.is_empty())
    }

    /// Whether some call will give its memory back, whatever becomes of the calls that wait for
    /// stored arrays. One with callbacks may wait for another call of its client.
    pub(crate) fn some_call_goes_on(&self) -> bool {
        let mut calls = self.calls.values();
        calls.any(|call| call.state != State::Waiting && !self.calls_back(call))
    }

    /// Bytes of memory of calls with callbacks. Nobody knows when they end: their clients may first
    /// want the results of calls that wait.
    pub(crate) fn held_by_callers(&self) -> u64 {
        let calls = self.calls.values();
        let calls = calls.filter(|call| call.state != State::Waiting && self.calls_back(call));
        let memory = calls.flat_map(|call| call.memory.buffer.iter().chain(&call.memory.data));
        memory.map(|key| self.memory.bytes(*key)).sum()
    }

    /// Predicted seconds of a call in the library, with their interval.
    pub(crate) fn interval(&self, call: CallKey, pes: u32) -> Option<Interval> {
        let call = self.calls.get(call)?;
        let function = self.functions.get(call.function).ok()?;
        function.interval(&call.layout, pes.max(1))
    }

    /// Predicted seconds of the active call with this number on some processor elements.
    pub(crate) fn predict(&self, number: u64, pes: u32) -> Option<f64> {
        let call = self.calls.get(CallKey::of_number(number))?;
        let function = self.functions.get(call.function).ok()?;
        Some(function.predict(&call.layout, pes)?.seconds)
    }

    /// Tells the audit log, if there is one, that a call has ended. Its first end counts.
    pub(crate) fn audit_call(&mut self, key: CallKey, outcome: &str) {
        if !self.settings.audits {
            return;
        }
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        if !matches!(call.task, Task::Call) || std::mem::replace(&mut call.run.is_audited, true) {
            return;
        }
        let connection = call.connection.and_then(|key| self.clients.get(key));
        let function = self.functions.get(call.function);
        let name = function.map(|function| function.interface.qualified_name());
        // A call that has failed returns nothing.
        let returned = match outcome {
            "done" => call.layout.returned_bytes(),
            _ => 0,
        };
        let bytes = [call.layout.sent_bytes(), returned];
        let audit = Audit {
            user: call.user.clone(),
            peer: connection.map(|connection| connection.peer.name.clone()),
            what: name.map_or_else(|_| "?".to_string(), |name| name.into_owned()),
            outcome: outcome.to_string(),
            call: Some((bytes, call.times.exec)),
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }

    /// Ends a durable call that no worker has begun with. If its user has not cancelled it, it
    /// counts as failed.
    pub(crate) fn end_unbegun(&mut self, key: CallKey, why: FailureKind) {
        let function = self.calls.get(key).map(|call| call.function);
        if let Some(function) = function.filter(|_| why != FailureKind::Cancelled) {
            self.totals.count_failure(function, &mut self.functions);
        }
        self.audit_call(key, why.name());
        self.note_call(key, why.name());
        self.step(Step::Release(key));
    }

    /// Tells the audit log, if there is one, why a durable call has ended on the disk.
    pub(crate) fn audit_on_disk(&mut self, record: &Record, user: &User, why: FailureKind) {
        if !self.settings.audits {
            return;
        }
        let audit = Audit {
            user: user.clone(),
            peer: None,
            what: record.function.to_string(),
            outcome: why.name().to_string(),
            call: Some(([record.arguments.bytes, 0], 0)),
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }

    /// Notes in the record of calls and in its trace, if there are such, that a call has ended.
    pub(crate) fn note_call(&mut self, key: CallKey, outcome: &'static str) {
        let (Some(notes), Some(call)) = (&mut self.totals.notes, self.calls.get_mut(key)) else {
            return;
        };
        let connection = call.connection.and_then(|key| self.clients.get(key));
        let client = connection.map(|connection| &connection.peer);
        let (functions, now) = (&self.functions, self.clock.now);
        let (line, traced) = notes.call(call, client, outcome, functions, now);
        if let Some(traced) = traced {
            self.out.push(Action::Trace(traced));
        }
        if let Some(line) = line {
            self.out.push(Action::Note(line));
        }
    }

    /// Adds the lines to the record of calls that are due.
    pub(crate) fn note_counts(&mut self, links: &Links) {
        if let Some(notes) = &mut self.totals.notes {
            let lines = notes.due(links, &self.functions, self.clock.now);
            lines
                .into_iter()
                .for_each(|line| self.out.push(Action::Note(line)));
        }
    }

    /// Notes in the record of calls, if there is one, that the server has started or stops.
    pub(crate) fn note_server(&mut self, event: &str, links: &Links) {
        let Some(notes) = &mut self.totals.notes else {
            return;
        };
        let queue = &self.settings.queue;
        let server = Server {
            event: event.to_owned(),
            pes: queue.pes,
            policy: queue.policy.name().to_owned(),
            memory: self.memory.limit(),
            ..Server::default()
        };
        let lines = notes.server(server, links, &self.functions, self.clock.now);
        lines
            .into_iter()
            .for_each(|line| self.out.push(Action::Note(line)));
    }

    /// Tells the audit log, if there is one, that a client was refused something.
    pub(crate) fn audit_refusal(&mut self, key: ConnectionKey, what: &str) {
        if !self.settings.audits {
            return;
        }
        let connection = &self.clients[key];
        let audit = Audit {
            user: connection.user.clone(),
            peer: Some(connection.peer.name.clone()),
            what: what.to_string(),
            outcome: "refused".to_string(),
            call: None,
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }

    /// Counts a call whose results have left or are stored.
    pub(crate) fn account(&mut self, key: CallKey) {
        let now = self.now();
        if let Some(call) = self.calls.get(key) {
            let groups = &self.settings.groups;
            self.totals
                .add((key, call), &mut self.functions, groups, now);
            self.audit_call(key, "done");
            self.note_call(key, "done");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;

    fn at(seconds: u64, unix_ms: u64) -> Now {
        Now {
            nanos: seconds * 1_000_000_000,
            unix_ms,
        }
    }

    #[test]
    fn a_calendar_that_jumps_is_noticed_and_time_passes_as_before() {
        let mut clock = Clock::starting(at(1, 100 * DAY));
        assert_eq!(clock.set(at(2, 100 * DAY + 1000)), None);
        // A long turn reads the calendar only once.
        assert_eq!(clock.set(at(60, 100 * DAY + 1000)), None);
        assert_eq!(clock.set(at(61, 100 * DAY + 60_000)), None);
        let ahead = clock.set(at(62, 108 * DAY + 61_000));
        assert_eq!(ahead, Some(8 * DAY as i64));
        assert_eq!(clock.steady_ms(), 100 * DAY + 61_000);
        let back = clock.set(at(63, 100 * DAY + 62_000));
        assert_eq!(back, Some(-(8 * DAY as i64)));
        assert_eq!(clock.set(at(64, 100 * DAY + 63_000)), None);
    }
}

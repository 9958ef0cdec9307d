//! What the parts of the server work on together, and what one of them asks of the others.

use crate::account::Totals;
use crate::action::{Action, Actions, Audit};
use crate::call::{ActiveCall, Task};
use crate::clients::Clients;
use crate::connection::Offer;
use crate::disk::Disk;
use crate::event::Now;
use crate::functions::Functions;
use crate::ids::Ids;
use crate::keys::{CallKey, ConnectionKey, MemoryKey, Table};
use crate::lifecycle::Change;
use crate::memory::{Memory, NoMemory};
use crate::record::Outcome;
use crate::settings::Settings;
use farcall_rpc_proto::{CallId, Failure, FailureKind, JobId, Nanos};
use std::collections::VecDeque;

/// What a part asks of others: [`Engine`](crate::engine::Engine) does it when the part has
/// returned, in the order in which it was asked.
#[derive(Debug)]
pub(crate) enum Step {
    /// The call has all that it needs: it waits for processor elements.
    Enqueue(CallKey),
    /// The call is over: what it holds is free.
    Release(CallKey),
    /// The call fails; the text follows the name of its function.
    Fail(CallKey, FailureKind, String),
    /// The journal is to record what happens to a durable call.
    Record(JobId, Change, Outcome),
    /// It is recorded that the call runs: its worker gets it.
    Begin(CallKey),
    /// A durable call that is in memory is over before its time.
    TearDown(CallKey),
}

/// What all parts work on.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) clock: Now,
    pub(crate) out: Actions,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) ids: Ids,
    pub(crate) functions: Functions,
    pub(crate) clients: Clients,
    pub(crate) calls: Table<CallKey, ActiveCall>,
    pub(crate) memory: Memory,
    pub(crate) disk: Disk,
    pub(crate) totals: Totals,
    /// Memory has become free that calls may wait for.
    pub(crate) has_room: bool,
    /// Since when something was learned that is not kept yet.
    pub(crate) learned_since: Option<Nanos>,
    /// Whether it takes no more connections and calls.
    pub(crate) draining: bool,
    /// It stops, at this time at the latest.
    pub(crate) stopping: Option<Nanos>,
}

impl Context {
    pub(crate) fn now(&self) -> Nanos {
        self.clock.nanos
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push_back(step);
    }

    /// Has a call fail that no worker has (any more).
    pub(crate) fn fail(&mut self, call: CallKey, kind: FailureKind, cause: &str) {
        self.step(Step::Fail(call, kind, cause.to_string()));
    }

    /// There is something to be written to a client, with other answers of this turn.
    pub(crate) fn answered(&mut self, key: ConnectionKey) {
        if self.clients.has_output(key) {
            self.out.push(Action::Flush(key));
        }
    }

    /// Tells a client that what it asked for is not done.
    pub(crate) fn refuse(&mut self, key: ConnectionKey, request: CallId, failure: &Failure) {
        if let Some(connection) = self.clients.get_mut(key) {
            connection.proto.fail(request, failure);
            self.answered(key);
        }
    }

    /// Memory that serves nobody else ends; what waits for some may go on.
    pub(crate) fn free(&mut self, memory: MemoryKey) {
        self.memory.free(memory, &mut self.out);
        self.has_room = true;
    }

    /// Why nothing new is taken, where the server is about to end.
    pub(crate) fn is_ending(&self) -> Option<Failure> {
        let (kind, text) = match (self.stopping, self.draining) {
            (Some(_), _) => (FailureKind::ServerStopping, "the server is stopping"),
            (None, true) => (
                FailureKind::Draining,
                "the server is draining; connect anew",
            ),
            (None, false) => return None,
        };
        Some(Failure::new(kind, text))
    }

    /// Why there is no memory, for the client.
    pub(crate) fn no_room(&self, bytes: u64, refusal: NoMemory) -> Failure {
        let limit = self.memory.limit();
        let (kind, text) = match refusal {
            NoMemory::TooLarge => (
                FailureKind::TooLarge,
                format!(
                    "{bytes} bytes are needed and the server allows {limit} (limits.memory in \
                     its configuration)"
                ),
            ),
            NoMemory::Wait => (
                FailureKind::Busy,
                format!("{bytes} bytes are needed and others hold the server's memory"),
            ),
        };
        Failure::new(kind, text)
    }

    /// An offer waits until there is memory for it.
    pub(crate) fn await_room(&mut self, key: ConnectionKey, id: CallId, offer: Offer) {
        let connection = &mut self.clients[key];
        if connection.proto.waits_for_grant(offer.data_bytes()) {
            connection.held.push_front((id, offer));
            self.clients.note_holding(key);
            return self.clients.note_starved(key);
        }
        // The rest of the call that arrives is behind this one on the wire.
        if self.clients.is_receiving(key, &self.calls) {
            let text = "the server's memory is taken, and an earlier call still arrives; try \
                        again when it has ended";
            let failure = Failure::new(FailureKind::Busy, text);
            return self.refuse(key, id, &failure);
        }
        self.clients[key].waiting = Some((id, offer));
        self.clients.starved.push_back(key);
    }

    /// A call has ended, one way or another: the audit is told, where there is one.
    pub(crate) fn audit_call(&mut self, key: CallKey, outcome: &str) {
        if !self.settings.audits {
            return;
        }
        let Some(call) = self.calls.get(key) else {
            return;
        };
        if !matches!(call.task, Task::Call) {
            return;
        }
        let connection = call.connection.and_then(|key| self.clients.get(key));
        let function = self.functions.get(call.function);
        let name = function.map(|function| function.interface.qualified_name());
        let bytes = [call.layout.sent_bytes(), call.layout.returned_bytes()];
        let audit = Audit {
            user: call.user.clone(),
            peer: connection.map(|connection| connection.peer.name.clone()),
            what: name.map_or_else(|_| "?".to_string(), |name| name.into_owned()),
            outcome: outcome.to_string(),
            call: Some((bytes, call.times.exec)),
        };
        self.out.push(Action::Audit(Box::new(audit)));
    }

    /// A client was refused something: the audit is told, where there is one.
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

    /// The results of a call have left, or are kept.
    pub(crate) fn account(&mut self, key: CallKey) {
        let now = self.now();
        if let Some(call) = self.calls.get(key) {
            self.totals.add(call, &mut self.functions, now);
            self.audit_call(key, "done");
        }
    }
}

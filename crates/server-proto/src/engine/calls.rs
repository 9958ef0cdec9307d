//! The life of an accepted call: received, queued, computed, sent, released. `offer` accepts calls,
//! and `elements` runs them. When a call is released, everything that it held is free.

use super::Engine;
use crate::action::Action;
use crate::arrays;
use crate::call::{ActiveCall, Durability, GivenUp, State, Task};
use crate::context::read_again;
use crate::durable_calls::record_failure;
use crate::event::Finished;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::reservations::deadlines;
use crate::segments;
use farcall_rpc_proto::{CallId, Failure, FailureKind};

impl Engine {
    /// Handles a call whose arguments have all arrived.
    pub(super) fn received(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        let call = &cx.calls[key];
        match (&call.durability, &call.task) {
            (_, Task::Put(..)) => self.data.put_arrived(cx, key),
            (_, Task::PutPart(part)) => self.data.part_arrived(cx, key, *part),
            (Durability::Submitting(..), _) => self.durable_calls.store_arguments(cx, key),
            _ if !call.uses.is_empty() => self.data.await_turn(cx, key),
            (Durability::None | Durability::Recorded(_), _) => self.elements.enqueue(cx, key),
        }
    }

    /// Handles a call that a worker has finished.
    pub(super) fn finished(&mut self, key: CallKey, outcome: Finished) {
        let cx = &mut self.cx;
        if !cx.calls.contains(key) {
            return;
        }
        if let Some(failure) = outcome.failure {
            return self.fail(key, failure.kind, &failure.message);
        }
        let (now, exec) = (cx.now(), outcome.exec_nanos);
        let call = &mut cx.calls[key];
        let (function, pes) = (call.function, call.run.pes);
        cx.functions.observe(function, &call.layout, pes, exec);
        if cx.settings.has_state {
            cx.learned_since.get_or_insert(now);
        }
        deadlines::ended(&mut self.reservations, cx, key);
        let used = self.elements.queue.remove(key.number(), now);
        let call = &mut cx.calls[key];
        cx.totals.charge(&call.user, &cx.settings.groups, used);
        if call.job_id().is_some() {
            return self.durable_calls.store_result(cx, key, exec);
        }
        self.data.end_uses(cx, key, None);
        let call = &mut cx.calls[key];
        let Some(client) = call.connection else {
            return self.release(key);
        };
        call.begin_sending(now);
        (call.times.ended, call.times.exec) = (now, exec);
        let connection = &mut cx.clients[client];
        let bytes = call.layout.returned_bytes();
        let made = call.run.made.take();
        connection.proto.complete(call.id, bytes, (exec, made), now);
        connection.sending.push(key);
        let object = call.run.object;
        cx.answered(client);
        if let Some(worker) = object {
            self.elements.passes_turn(cx, key, worker);
        }
    }

    /// Fails what should have got memory that the system refused. A durable call whose record is on
    /// its way has no memory from then on: it is read from the disk again when its turn comes.
    pub(super) fn no_memory(&mut self, memory: MemoryKey, why: &str) {
        let cx = &mut self.cx;
        cx.memory.lost(memory, &mut cx.out);
        arrays::refuse(&mut self.data.arrays, memory, why);
        let has_it = |(_, call): &(CallKey, &ActiveCall)| call.memory.buffer == Some(memory);
        let Some((key, call)) = cx.calls.iter().find(has_it) else {
            return;
        };
        let is_durable = !matches!(call.durability, Durability::None);
        match call.state {
            State::Running { worker } if cx.out.take_back(key) => {
                self.elements.not_given(cx, key, worker);
                if is_durable {
                    return cx.step(read_again(key));
                }
            }
            State::Receiving => {}
            // It is read again when its turn comes.
            _ if is_durable => return,
            _ => self.elements.leave(key),
        }
        self.fail(key, FailureKind::Busy, &format!("has no memory: {why}"));
    }

    /// Fails a call that no worker has, unless it has ended.
    pub(super) fn fail(&mut self, key: CallKey, kind: FailureKind, cause: &str) {
        let cx = &mut self.cx;
        let Some(call) = cx.calls.get(key) else {
            return;
        };
        let function = call.function;
        let name = match cx.functions.get(function) {
            Ok(function) => function.interface.qualified_name().into_owned(),
            Err(_) => "the request".to_string(),
        };
        let failure = Failure::new(kind, format!("{name} {cause}"));
        let (connection, call, kept) = (call.connection, call.id, call.job_id());
        cx.totals.count_failure(function, &mut cx.functions);
        cx.audit_call(key, kind.name());
        cx.note_call(key, kind.name());
        self.data.end_uses(cx, key, Some(&failure.message));
        self.release(key);
        tracing::warn!("call failed: {failure}");
        match (kept, connection) {
            (Some(id), _) => record_failure(&mut self.cx, id, failure),
            (None, Some(connection)) => self.cx.refuse(connection, call, &failure),
            (None, None) => {}
        }
    }

    /// Handles a client that gives up an accepted request.
    pub(super) fn cancelled(&mut self, key: ConnectionKey, id: CallId) {
        self.forget_held(key, id);
        self.takeover.forget(key, id);
        if let Some(call) = self.cx.clients[key].calls.remove(&id) {
            self.abandon(call);
        }
        self.durable_calls
            .stop_fetching(&mut self.cx, key, Some(id));
    }

    /// Gives up a call that its client no longer wants.
    pub(super) fn abandon(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        let Some(call) = cx.calls.get(key) else {
            return;
        };
        let is_open = |key| cx.clients.is_open(key);
        // A durable call does not depend on its client, even if it runs before it is recorded.
        let given_up = match call.job_id() {
            Some(_) => GivenUp::Stays,
            None => call.state.given_up(),
        };
        let goes_on = match given_up {
            GivenUp::Stays => true,
            GivenUp::Leaves => call.connection.is_some_and(is_open),
            GivenUp::Ends | GivenUp::Withdraws => false,
        };
        if !goes_on {
            cx.audit_call(key, "given up");
            cx.note_call(key, "given up");
        }
        let call = &mut cx.calls[key];
        let connection = call.connection.take();
        let is_open = connection.is_some_and(|key| cx.clients.is_open(key));
        match (given_up, call.state) {
            (GivenUp::Withdraws, State::Running { worker }) => {
                cx.out.push(Action::Withdraw { worker, call: key });
            }
            (GivenUp::Leaves, _) if is_open => {}
            (GivenUp::Stays, _) => {}
            _ => {
                self.elements.leave(key);
                self.release(key);
            }
        }
    }

    /// Ends a call and frees what it held.
    pub(crate) fn release(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        let given_up = "the call that should have written it was cancelled";
        self.data.end_uses(cx, key, Some(given_up));
        let Some(call) = cx.calls.remove(key) else {
            return;
        };
        let used = self.elements.queue.remove(key.number(), cx.now());
        cx.totals.charge(&call.user, &cx.settings.groups, used);
        if let Some(booking) = call.run.reservation {
            let queue = &mut self.elements.queue;
            deadlines::forget(&mut self.reservations, queue, booking, cx.now());
        }
        if let Some(connection) = call.connection.and_then(|key| cx.clients.get_mut(key)) {
            connection.calls.remove(&call.id);
        }
        self.durable_calls.leave_memory(cx, &call);
        for segment in call.memory.segments {
            segments::give_up(cx, segment);
        }
        match (call.task, call.memory.buffer) {
            (Task::Put(put, user), Some(buffer)) => self.data.forget_put(cx, &put, &user, buffer),
            (_, Some(_)) if has(Flaw::LeaksMemory) && call.connection.is_none() => {}
            (_, Some(buffer)) => {
                cx.memory.give_back(buffer);
                cx.has_room = true;
            }
            (_, None) => {}
        }
        // Its arrays may go to the disk now.
        let starves = cx.clients.someone_starves() || self.data.turns.starves();
        cx.has_room |= starves || self.durable_calls.await_memory();
        if let Some(worker) = call.run.object {
            let now = cx.steady_ms();
            self.objects.call_ended(&self.elements, worker, now);
            self.elements.passes_turn(cx, key, worker);
        }
    }
}

#[cfg(test)]
mod tests;

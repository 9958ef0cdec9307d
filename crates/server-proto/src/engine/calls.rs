//! The way of a call that was taken: received, queued, computed, sent.

use super::Engine;
use crate::action::Action;
use crate::event::Finished;
use crate::flaw::{Flaw, has};
use crate::job::{Durability, GivenUp, Job, State, Task};
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::segments;
use crate::submissions::record_failure;
use farcall_rpc_proto::{CallId, Failure, FailureKind};

impl Engine {
    /// All arguments of a job are there.
    pub(super) fn received(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        let job = &cx.calls[key];
        match (&job.durability, &job.task) {
            (_, Task::Put(..)) => self.data.put_arrived(cx, key),
            (_, Task::PutPart(part)) => self.data.part_arrived(cx, key, *part),
            (Durability::Submitting(..), _) => self.submissions.store_arguments(cx, key),
            _ if !job.uses.is_empty() => self.data.await_turn(cx, key),
            (Durability::None | Durability::Kept(_), _) => self.elements.enqueue(cx, key),
        }
    }

    /// A worker has finished a call.
    pub(super) fn finished(&mut self, key: CallKey, outcome: Finished) {
        let cx = &mut self.cx;
        if !cx.calls.contains(key) {
            return;
        }
        if let Some(failure) = outcome.failure {
            return self.fail(key, failure.kind, &failure.message);
        }
        let (now, exec) = (cx.now(), outcome.exec_nanos);
        let job = &mut cx.calls[key];
        let (function, pes) = (job.function, job.run.pes);
        cx.functions.observe(function, &job.layout, pes, exec);
        if cx.settings.has_state {
            cx.learned_since.get_or_insert(now);
        }
        self.elements.queue.remove(key.number(), now);
        if job.kept().is_some() {
            return self.submissions.store_result(cx, key, exec);
        }
        self.data.end_uses(cx, key, None);
        let job = &mut cx.calls[key];
        let Some(client) = job.connection else {
            return self.release(key);
        };
        job.enter(State::Sending);
        job.streams.moved = now;
        (job.times.ended, job.times.exec) = (now, exec);
        let connection = &mut cx.clients[client];
        let bytes = job.layout.returned_bytes();
        connection.proto.complete(job.call, bytes, exec, now);
        connection.sending.push(key);
        let object = job.run.object;
        cx.answered(client);
        if let Some(worker) = object {
            self.elements.passes_turn(cx, key, worker);
        }
    }

    /// The system has refused memory: what was to have it fails.
    pub(super) fn no_memory(&mut self, memory: MemoryKey, why: &str) {
        let has_it = |(_, job): &(CallKey, &Job)| job.held.buffer == Some(memory);
        let found = self.cx.calls.iter().find(has_it).map(|(key, _)| key);
        if let Some(call) = found {
            self.fail(call, FailureKind::Busy, &format!("has no memory: {why}"));
        }
        self.cx.memory.lost(memory, &mut self.cx.out);
    }

    /// Fails a job that no worker has (any more), unless it is over.
    pub(super) fn fail(&mut self, key: CallKey, kind: FailureKind, cause: &str) {
        let cx = &mut self.cx;
        let Some(job) = cx.calls.get(key) else { return };
        let function = job.function;
        let name = match cx.functions.get(function) {
            Ok(function) => function.interface.qualified_name().into_owned(),
            Err(_) => "the function".to_string(),
        };
        let failure = Failure::new(kind, format!("{name} {cause}"));
        let (connection, call, kept) = (job.connection, job.call, job.kept());
        cx.totals.count_failure(function, &mut cx.functions);
        cx.audit_job(key, kind.name());
        self.data.end_uses(cx, key, Some(&failure.message));
        self.release(key);
        tracing::warn!("call failed: {failure}");
        match (kept, connection) {
            (Some(id), _) => record_failure(&mut self.cx, id, failure),
            (None, Some(connection)) => self.cx.refuse(connection, call, &failure),
            (None, None) => {}
        }
    }

    /// A client gave a request up that was accepted.
    pub(super) fn cancelled(&mut self, key: ConnectionKey, id: CallId) {
        self.forget_held(key, id);
        if let Some(job) = self.cx.clients[key].calls.remove(&id) {
            self.abandon(job);
        }
        self.submissions.stop_fetching(&mut self.cx, key, Some(id));
    }

    /// The client no longer wants the call.
    pub(super) fn abandon(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        cx.audit_job(key, "given up");
        let Some(job) = cx.calls.get_mut(key) else {
            return;
        };
        let connection = job.connection.take();
        let is_open = connection.is_some_and(|key| cx.clients.is_open(key));
        match (job.state.given_up(), job.state) {
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

    /// Ends a job and hands on what it held.
    pub(crate) fn release(&mut self, key: CallKey) {
        let cx = &mut self.cx;
        let given_up = "the call that was to write it was given up";
        self.data.end_uses(cx, key, Some(given_up));
        let Some(job) = cx.calls.remove(key) else {
            return;
        };
        self.elements.queue.remove(key.number(), cx.now());
        if let Some(connection) = job.connection.and_then(|key| cx.clients.get_mut(key)) {
            connection.calls.remove(&job.call);
        }
        let (durability, bytes) = (&job.durability, job.layout.bytes);
        self.submissions.leave_memory(cx, durability, bytes);
        for segment in job.held.segments {
            segments::give_up(cx, segment);
        }
        match (job.task, job.held.buffer) {
            (Task::Put(put, user), Some(buffer)) => self.data.forget_put(cx, &put, &user, buffer),
            (_, Some(_)) if has(Flaw::LeaksMemory) && job.connection.is_none() => {}
            (_, Some(buffer)) => {
                cx.memory.give_back(buffer);
                cx.has_room = true;
            }
            (_, None) => {}
        }
        if let Some(worker) = job.run.object {
            self.elements.passes_turn(cx, key, worker);
        }
    }
}

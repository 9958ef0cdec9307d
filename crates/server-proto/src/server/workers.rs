//! Workers: when they start, what they have said, and what becomes of their calls when they end.

use super::Server;
use crate::action::Action;
use crate::event::{Death, Ready};
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, WorkerKey};
use crate::worker::{State, Worker};
use farcall_rpc_proto::{Failure, FailureKind};

impl Server {
    /// Starts one worker for each library, so that a library which cannot be bound is known before
    /// anybody calls it.
    pub fn start_workers(&mut self) -> Vec<WorkerKey> {
        let libraries = 0..self.libraries.len();
        libraries
            .map(|library| self.start_worker(library, 1))
            .collect()
    }

    /// Starts a worker, and returns its key.
    pub(super) fn start_worker(&mut self, library: usize, processes: u32) -> WorkerKey {
        let worker = Worker::new(library, processes, self.now());
        let worker = self.workers.insert(worker);
        self.out.push(Action::StartWorker {
            worker,
            library,
            processes,
        });
        worker
    }

    /// Ends a worker; its first reason counts.
    pub(super) fn end_worker(&mut self, worker: WorkerKey, kind: FailureKind, why: &str) {
        if let Some(known) = self.workers.get_mut(worker)
            && !std::mem::replace(&mut known.is_ended, true)
        {
            let reason = Failure::new(kind, why);
            self.out.push(Action::EndWorker { worker, reason });
        }
    }

    /// A worker has bound its library.
    pub(super) fn worker_is_ready(&mut self, key: WorkerKey, ready: Ready) {
        let now = self.now();
        let Some(worker) = self.workers.get_mut(key) else {
            return;
        };
        worker.rest(now);
        let library = worker.library;
        self.libraries.bound(library, ready.libraries);
        self.complete_registration(library);
        for text in ready.unprotected {
            if !self.libraries.unprotected.contains(&text) {
                tracing::warn!("workers are not fully protected: {text}");
                self.libraries.unprotected.push(text);
            }
        }
    }

    /// A worker is done with the call whose turn it was.
    pub(super) fn goes_on(&mut self, key: WorkerKey) {
        let now = self.now();
        if let Some(worker) = self.workers.get_mut(key) {
            worker.goes_on(now);
        }
    }

    /// A worker has ended: its call fails, and another worker takes its place.
    pub(super) fn worker_died(&mut self, key: WorkerKey, death: Death) {
        let Some(running) = self.workers.get(key).map(Worker::call) else {
            return;
        };
        if let Some(call) = running {
            self.finish_printing(call);
        }
        let goes_ahead = running.is_some_and(|call| self.goes_ahead(call).is_some());
        let Some(worker) = self.workers.remove(key) else {
            return;
        };
        let (library, state) = (worker.library, worker.state);
        let mut behind: Vec<CallKey> = worker.calls_behind().collect();
        let cause = &death.cause;
        match state == State::Idle && worker.is_ended {
            true => tracing::debug!("a worker {cause}"),
            false => tracing::warn!("a worker {cause}"),
        }
        let is_object = worker.object.is_some();
        if let Some(mut held) = worker.object {
            // What runs fails with the cause itself.
            held.turn = held.turn.filter(|turn| running != Some(*turn));
            self.object_died(held, &death);
        }
        match state {
            State::Running { .. } | State::Booked { .. } => {
                let may_begin_again = !death.had_begun && goes_ahead || has(Flaw::RunsAgain);
                if let Some(call) = running
                    && self.outlives(call, may_begin_again, &death)
                {
                    behind.insert(0, call);
                }
                behind.into_iter().for_each(|call| self.requeue(call));
            }
            State::Starting if !is_object => return self.fail_waiting(library, cause),
            State::Starting | State::Idle => {}
        }
        if is_object {
            return;
        }
        let is_spare = |w: &Worker| w.library == library && w.object.is_none();
        let has_spare = self.workers.values().any(is_spare);
        if !has_spare && self.stopping.is_none() {
            self.start_worker(library, 1);
        }
    }

    /// Whether the call of a worker that has ended is to wait for its turn again; else it is over.
    fn outlives(&mut self, call: CallKey, may_begin_again: bool, death: &Death) -> bool {
        let Some(job) = self.calls.get_mut(call) else {
            return false;
        };
        if job.connection.is_none() && job.kept().is_none() {
            self.release(call);
            return false;
        }
        if may_begin_again && !std::mem::replace(&mut job.again, true) {
            return true;
        }
        self.fail_job(call, death.kind, &death.cause);
        false
    }
}

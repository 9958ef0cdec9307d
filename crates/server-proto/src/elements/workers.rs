//! Workers: when they start, what they have said, and what becomes of their calls when they end.

use super::Elements;
use crate::action::Action;
use crate::context::{Context, Step};
use crate::event::Death;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, WorkerKey};
use crate::worker::{Held, State, Worker};
use farcall_rpc_proto::{Failure, FailureKind};

/// What has ended with a worker.
pub(crate) enum Loss {
    /// Only itself.
    Worker,
    /// The object that it held, and why calls of it fail.
    Object(Held, Failure),
    /// It could not bind its library.
    Library(usize),
}

impl Elements {
    /// Starts a worker, and returns its key.
    pub(crate) fn start_worker(
        &mut self,
        cx: &mut Context,
        library: usize,
        processes: u32,
    ) -> WorkerKey {
        let worker = Worker::new(library, processes, cx.now());
        let worker = self.workers.insert(worker);
        cx.out.push(Action::StartWorker {
            worker,
            library,
            processes,
        });
        worker
    }

    /// Ends a worker; its first reason counts.
    pub(crate) fn end_worker(
        &mut self,
        cx: &mut Context,
        worker: WorkerKey,
        kind: FailureKind,
        why: &str,
    ) {
        if let Some(known) = self.workers.get_mut(worker)
            && !std::mem::replace(&mut known.is_ended, true)
        {
            let reason = Failure::new(kind, why);
            cx.out.push(Action::EndWorker { worker, reason });
        }
    }

    /// A worker has bound its library; returns which.
    pub(crate) fn ready(&mut self, cx: &Context, key: WorkerKey) -> Option<usize> {
        let worker = self.workers.get_mut(key)?;
        worker.rest(cx.now());
        Some(worker.library)
    }

    /// A worker is done with the call whose turn it was.
    pub(crate) fn goes_on(&mut self, cx: &mut Context, key: WorkerKey) {
        let now = cx.now();
        if let Some(worker) = self.workers.get_mut(key) {
            worker.goes_on(now);
        }
    }

    /// A worker has ended: its call fails, and another worker takes its place.
    pub(crate) fn worker_died(&mut self, cx: &mut Context, key: WorkerKey, death: &Death) -> Loss {
        let Some(running) = self.workers.get(key).map(Worker::call) else {
            return Loss::Worker;
        };
        if let Some(call) = running {
            Elements::finish_printing(cx, call);
        }
        let goes_ahead = running.is_some_and(|call| Elements::goes_ahead(cx, call).is_some());
        let Some(worker) = self.workers.remove(key) else {
            return Loss::Worker;
        };
        let (library, state) = (worker.library, worker.state);
        let mut behind: Vec<CallKey> = worker.calls_behind().collect();
        let cause = &death.cause;
        match state == State::Idle && worker.is_ended {
            true => tracing::debug!("a worker {cause}"),
            false => tracing::warn!("a worker {cause}"),
        }
        let object = worker.object.map(|mut held| {
            // What runs fails with the cause itself.
            held.turn = held.turn.filter(|turn| running != Some(*turn));
            let failure = self.object_died(cx, &mut held, death);
            (held, failure)
        });
        match state {
            State::Running { .. } | State::Booked { .. } => {
                let may_begin_again = !death.had_begun && goes_ahead || has(Flaw::RunsAgain);
                if let Some(call) = running
                    && Elements::outlives(cx, call, may_begin_again, death)
                {
                    behind.insert(0, call);
                }
                behind.into_iter().for_each(|call| self.requeue(cx, call));
            }
            State::Starting if object.is_none() => {
                self.fail_waiting(cx, library, cause);
                return Loss::Library(library);
            }
            State::Starting | State::Idle => {}
        }
        if let Some((held, failure)) = object {
            return Loss::Object(held, failure);
        }
        let is_spare = |w: &Worker| w.library == library && w.object.is_none();
        let has_spare = self.workers.values().any(is_spare);
        if !has_spare && cx.stopping.is_none() {
            self.start_worker(cx, library, 1);
        }
        Loss::Worker
    }

    /// Whether the call of a worker that has ended is to wait for its turn again; else it is over.
    fn outlives(cx: &mut Context, call: CallKey, may_begin_again: bool, death: &Death) -> bool {
        let Some(job) = cx.calls.get_mut(call) else {
            return false;
        };
        if job.connection.is_none() && job.kept().is_none() {
            cx.step(Step::Release(call));
            return false;
        }
        if may_begin_again && !std::mem::replace(&mut job.run.again, true) {
            return true;
        }
        cx.fail(call, death.kind, &death.cause);
        false
    }

    /// Ends workers that have run for too long, or whose client does not answer its callback.
    pub(crate) fn end_late(&mut self, cx: &mut Context) {
        let (now, callbacks) = (cx.now(), cx.settings.limits.callback());
        let late = self.workers.iter().filter(|(_, worker)| {
            let deadline = worker.deadline(callbacks);
            deadline.is_some_and(|end| end <= now)
        });
        let late: Vec<_> = late
            .map(|(key, worker)| (key, worker.waits_since().is_some()))
            .collect();
        for (worker, waits) in late {
            let (kind, text) = match waits {
                true => (
                    FailureKind::NoAnswer,
                    format!(
                        "was ended because the client did not answer its callback within {} s \
                         (limits.callback_s in the server's configuration)",
                        cx.settings.limits.callback_s
                    ),
                ),
                false => (
                    FailureKind::TimeLimit,
                    format!("ran past its time limit of {} s", cx.settings.time_limit_s),
                ),
            };
            self.end_worker(cx, worker, kind, &text);
        }
    }
}

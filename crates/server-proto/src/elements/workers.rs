//! Workers: when they start, what they report, and what happens to their calls when they end.

use super::Elements;
use crate::context::{Context, Step};
use crate::event::Death;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, WorkerKey};
use crate::output;
use crate::worker::{ObjectState, State, Worker};
use farcall_rpc_proto::Failure;

/// What was lost with a worker.
pub(crate) enum Loss {
    /// Only the worker.
    Worker,
    /// The object in it, and the failure of its calls.
    Object(ObjectState, Failure),
    /// The library, which it could not bind.
    Library(usize),
}

impl Elements {
    /// Handles the end of a worker: fails its call and starts another worker.
    pub(crate) fn worker_died(&mut self, cx: &mut Context, key: WorkerKey, death: &Death) -> Loss {
        let Some(running) = self.workers.get(key).map(Worker::call) else {
            return Loss::Worker;
        };
        if let Some(call) = running {
            output::finish(cx, call);
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
            // The running call fails with the cause itself.
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
            self.workers.start(cx, library, 1);
        }
        Loss::Worker
    }

    /// Whether the call of an ended worker waits for its turn again. Otherwise it has ended.
    fn outlives(cx: &mut Context, key: CallKey, may_begin_again: bool, death: &Death) -> bool {
        let Some(call) = cx.calls.get_mut(key) else {
            return false;
        };
        if call.connection.is_none() && call.job_id().is_none() {
            cx.step(Step::Release(key));
            return false;
        }
        if may_begin_again && !std::mem::replace(&mut call.run.again, true) {
            return true;
        }
        cx.fail(key, death.kind, &death.cause);
        false
    }
}

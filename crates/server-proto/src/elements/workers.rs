//! Handles the end of a worker: what happens to its calls, its object and its library. `workers`
//! has the table of all workers. A call that its worker had begun runs again only if it is a
//! durable call of a repeatable function, and if something else than the function or the server
//! ended the worker.

use super::Elements;
use crate::context::{Context, Step};
use crate::event::Death;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, WorkerKey};
use crate::output;
use crate::worker::{ObjectState, State, Version, Worker};
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
        let Some(mut killed) = self.workers.remove(key) else {
            return Loss::Worker;
        };
        let (library, state) = (killed.library, killed.state);
        let mut behind: Vec<CallKey> = killed.calls_behind().collect();
        let cause = &death.cause;
        match state == State::Idle && killed.is_ended {
            true => tracing::debug!("a worker {cause}"),
            false => tracing::warn!("a worker {cause}"),
        }
        let object = killed.object.take().map(|mut held| {
            // The running call fails with the cause itself.
            held.turn = held.turn.filter(|turn| running != Some(*turn));
            let failure = self.object_died(cx, &mut held, death);
            (held, failure)
        });
        match state {
            State::Running { .. } | State::Booked { .. } => {
                if let Some(call) = running
                    && Elements::outlives(cx, call, death)
                {
                    behind.insert(0, call);
                }
                behind.into_iter().for_each(|call| self.requeue(cx, call));
            }
            // Others take its place.
            State::Starting if killed.version == Version::Old && object.is_none() => {
                return Loss::Worker;
            }
            State::Starting if matches!(killed.version, Version::Trial(_)) => {
                tracing::error!(
                    "the new version of a library cannot be used: a worker {cause}; the server \
                     goes on with the workers that have the old one. Put the file right and send \
                     SIGHUP again"
                );
                return Loss::Worker;
            }
            State::Starting if object.is_none() => {
                if death.is_foreign && self.workers.start_again(cx, &killed) {
                    return Loss::Worker;
                }
                self.fail_waiting(cx, &killed, death);
                return match killed.resources.processes {
                    1 => Loss::Library(library),
                    // One process may well bind it.
                    _ => Loss::Worker,
                };
            }
            State::Starting | State::Idle => {}
        }
        if let Some((held, failure)) = object {
            return Loss::Object(held, failure);
        }
        let is_spare = |w: &Worker| w.library == library && w.object.is_none();
        let has_spare = self.workers.values().any(is_spare);
        if !has_spare && cx.stopping.is_none() {
            self.workers.start(cx, library);
        }
        Loss::Worker
    }

    /// Whether the call of an ended worker waits for its turn again. Otherwise it has ended, or it
    /// is a durable call that is read from the disk again.
    fn outlives(cx: &mut Context, key: CallKey, death: &Death) -> bool {
        let Some(call) = cx.calls.get(key) else {
            return false;
        };
        let may_run_again = death.is_foreign
            && cx
                .functions
                .get(call.function)
                .is_ok_and(|function| function.interface.repeatable);
        let may_begin = !death.had_begun && call.run.object.is_none() || has(Flaw::RunsAgain);
        let call = &mut cx.calls[key];
        if call.job_id().is_some() {
            let failure = Failure::new(death.kind, death.cause.as_str());
            match may_begin || may_run_again {
                true => cx.step(Step::RunAgain(key, failure)),
                false => cx.fail(key, death.kind, &death.cause),
            }
            return false;
        }
        if call.connection.is_none() {
            cx.step(Step::Release(key));
            return false;
        }
        if may_begin && !std::mem::replace(&mut call.run.again, true) {
            return true;
        }
        cx.fail(key, death.kind, &death.cause);
        false
    }
}

//! Calls of an object's methods. They run one after the other, in the worker of the object.

use super::Elements;
use crate::context::Context;
use crate::event::Death;
use crate::keys::{CallKey, WorkerKey};
use crate::worker::ObjectState;
use farcall_rpc_proto::{Failure, FailureKind};

impl Elements {
    /// Whether the call may ask for processor elements. Otherwise it waits behind the object's
    /// other calls, without elements. It fails if the object has ended while its arguments came.
    pub(crate) fn takes_turn(&mut self, cx: &mut Context, key: CallKey) -> bool {
        let Some(worker) = cx.calls[key].run.object else {
            return true;
        };
        let held = self.workers.get_mut(worker);
        let Some(held) = held.and_then(|worker| worker.object.as_mut()) else {
            let text = "was called on an object that was released, or whose process has ended, \
                        before the call could start";
            cx.fail(key, FailureKind::ObjectLost, text);
            return false;
        };
        match held.turn {
            None => held.turn = Some(key),
            Some(turn) if turn == key => {}
            Some(_) => held.behind.push_back(key),
        }
        held.turn == Some(key)
    }

    /// Passes the turn to the object's next call after a call has ended or was given up.
    pub(crate) fn passes_turn(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        let held = self.workers.get_mut(worker);
        let Some(held) = held.and_then(|worker| worker.object.as_mut()) else {
            return;
        };
        if held.turn != Some(key) {
            return held.behind.retain(|call| *call != key);
        }
        held.turn = held.behind.pop_front();
        if let Some(next) = held.turn {
            self.enqueue(cx, next);
        }
    }

    /// Fails the calls that wait for an object whose process has ended. Returns why the object is
    /// lost, for later calls.
    pub(super) fn object_died(
        &mut self,
        cx: &mut Context,
        held: &mut ObjectState,
        death: &Death,
    ) -> Failure {
        let lost = format!("its process {}", death.cause);
        let text = format!("was called on an object that is lost because {lost}; make a new one");
        let kind = match (held.owner, held.persistent) {
            (None, None) => death.kind,
            _ => FailureKind::ObjectLost,
        };
        for call in held.turn.take().into_iter().chain(held.behind.drain(..)) {
            self.leave(call);
            cx.fail(call, kind, &text);
        }
        Failure::new(FailureKind::ObjectLost, lost)
    }
}

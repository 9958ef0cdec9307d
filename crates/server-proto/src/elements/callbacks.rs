//! Callbacks: a running function calls its caller, and waits for the answer. The client runs the
//! callback. While a worker waits, its processor elements are free for other calls. A worker that
//! breaks the order of callbacks is ended.

use super::Elements;
use crate::action::Action;
use crate::call;
use crate::context::Context;
use crate::event::WorkerReport;
use crate::keys::{ConnectionKey, Key, WorkerKey};
use crate::worker::State;
use farcall_rpc_proto::{CallId, CallbackAnswer, FailureKind};

/// Most workers that do not count as computing while they wait for a client. A client can then make
/// other calls while it answers a callback. The limit bounds the processes of nested calls.
const MOST_WAITING: usize = 64;

impl Elements {
    /// Handles a report of a worker that runs a call.
    pub(crate) fn worker_says(&mut self, cx: &mut Context, key: WorkerKey, said: WorkerReport) {
        let now = cx.now();
        let Some(worker) = self.workers.get_mut(key) else {
            return;
        };
        let (State::Running { .. }, Some(call)) = (worker.state, worker.call()) else {
            let text = "called back outside of a call";
            return self.workers.end(cx, key, FailureKind::Internal, text);
        };
        if worker.waits_since().is_some() {
            let text = "called back before the previous callback was answered";
            return self.workers.end(cx, key, FailureKind::LibraryCrashed, text);
        }
        let callback = match said {
            WorkerReport::Callback(callback) => callback,
            WorkerReport::Problem(problem) => {
                return self
                    .workers
                    .end(cx, key, FailureKind::LibraryCrashed, &problem);
            }
        };
        worker.waits(now);
        let number = call.number();
        let call = &cx.calls[call];
        // A call without a connection was given up, and its worker will end soon.
        if let Some(connection) = call.connection {
            let proto = &mut cx.clients[connection].proto;
            proto.call_back(call.id, &callback);
            cx.answered(connection);
        }
        // While the worker waits, another call can compute.
        let workers = self.workers.values();
        let waiting = workers.filter(|worker| worker.waits_since().is_some());
        if waiting.count() <= MOST_WAITING {
            self.queue.pause(number, now);
        }
        self.dispatch(cx);
    }

    /// Handles a client's answer to a callback.
    pub(crate) fn answer_callback(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        call: CallId,
        answer: CallbackAnswer,
    ) {
        let now = cx.now();
        let Some(call) = cx.clients[key].calls.get(&call) else {
            return;
        };
        let call::State::Running { worker } = cx.calls[*call].state else {
            return;
        };
        self.queue.resume(call.number(), now);
        if let Some(known) = self.workers.get_mut(worker) {
            known.answered(now);
            cx.out.push(Action::Answer { worker, answer });
        }
    }
}

//! Brief calls are posted to a worker behind each other: it need not wait for the server between
//! them, and their answers leave together.
//!
//! Calls that one worker has share its processor elements. To the queue the one posted last has
//! them, and those before it pause; so what their user pays for is the time of the worker, once.

use super::Elements;
use super::dispatch::need;
use crate::action::Action;
use crate::call;
use crate::context::{Context, Step};
use crate::event::Withdrawal;
use crate::keys::{CallKey, Key, WorkerKey};
use crate::worker::{AHEAD_BYTES, Worker};
use farcall_rpc_proto::{FailureKind, Nanos};

impl Elements {
    /// What a call takes that may be posted before or behind others; none where it may not.
    pub(crate) fn goes_ahead(cx: &Context, key: CallKey) -> Option<Nanos> {
        let call = &cx.calls[key];
        let function = cx.functions.get(call.function).ok()?;
        let exec = function.brief().filter(|_| function.only_computes())?;
        let is_plain =
            call.run.object.is_none() && call.printing.is_none() && call.job_id().is_none();
        (is_plain && call.message.len() <= AHEAD_BYTES).then_some(exec)
    }

    /// The worker behind whose calls a call may be posted.
    pub(crate) fn worker_ahead(&self, cx: &Context, key: CallKey) -> Option<WorkerKey> {
        let exec = Elements::goes_ahead(cx, key)?;
        let call = &cx.calls[key];
        let need = need(call, cx.functions.get(call.function).ok()?);
        let now = cx.now();
        let mut workers = self.workers.iter();
        workers
            .find(|(_, worker)| worker.takes_more(now, exec) && worker.serves(&need))
            .map(|(key, _)| key)
    }

    /// Posts a call that has processor elements behind those of a worker, whose it takes.
    pub(crate) fn post_behind(&mut self, cx: &mut Context, call: CallKey, worker: WorkerKey) {
        if let Some(last) = self.workers[worker].last_call() {
            self.queue.pause(last.number(), cx.now());
        }
        self.launch(cx, call, worker);
    }

    /// Posts calls that wait for processor elements behind those that have some and end soon, as
    /// long as these are next.
    pub(crate) fn post_waiting(&mut self, cx: &mut Context, now: Nanos) {
        let workers: Vec<WorkerKey> = self.workers.keys().collect();
        for worker in workers {
            while !self.queue.is_empty()
                && self.workers[worker].is_brief_now()
                && let Some(last) = self.workers[worker].last_call()
            {
                self.queue.pause(last.number(), now);
                let next = self.queue.choose(now).map(CallKey::of_number);
                let fits = next.is_some_and(|call| self.worker_ahead(cx, call) == Some(worker));
                let start = fits.then(|| self.queue.next(now)).flatten();
                let Some(start) = start else {
                    self.queue.resume(last.number(), now);
                    break;
                };
                let call = CallKey::of_number(start.id);
                cx.calls[call].run.pes = start.pes;
                self.launch(cx, call, worker);
            }
        }
    }

    /// The call posted last has the processor elements of its worker.
    pub(crate) fn pass_elements(&mut self, cx: &mut Context, worker: WorkerKey) {
        let worker = self.workers.get(worker);
        if let Some(last) = worker.and_then(Worker::last_call) {
            self.queue.resume(last.number(), cx.now());
        }
    }

    /// A call was to be taken back from its worker. One that nobody wants goes, or its worker ends;
    /// another one waits for its turn again.
    pub(crate) fn withdrawn(
        &mut self,
        cx: &mut Context,
        worker: WorkerKey,
        key: CallKey,
        withdrawal: Withdrawal,
    ) {
        let Some(call) = cx.calls.get(key) else {
            return;
        };
        let is_unwanted = call.connection.is_none() && call.job_id().is_none();
        match withdrawal {
            Withdrawal::Done => {
                if let Some(known) = self.workers.get_mut(worker) {
                    known.gives_back(key);
                }
                // The call that runs has its processor elements back before others may have them.
                self.queue.remove(key.number(), cx.now());
                self.pass_elements(cx, worker);
                match is_unwanted {
                    true => cx.step(Step::Release(key)),
                    false => self.requeue(cx, key),
                }
            }
            // Its outcome is on its way.
            Withdrawal::Finished => {}
            Withdrawal::Runs if is_unwanted => self.end_running(cx, key, worker),
            Withdrawal::Runs => {}
        }
    }

    /// Ends the worker of a call that it runs, and that nobody wants. The calls behind go elsewhere
    /// first: until the worker can begin with no other call it is left alone.
    fn end_running(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        let Some(known) = self.workers.get(worker) else {
            return;
        };
        if known.calls_behind().next().is_some() {
            self.take_back(cx, worker);
            return cx.out.push(Action::Withdraw { worker, call: key });
        }
        let text = "was ended because the client gave the call up";
        self.workers.end(cx, worker, FailureKind::Cancelled, text);
    }

    /// Calls that wait behind one that takes longer than it should go elsewhere.
    pub(crate) fn take_back_late(&mut self, cx: &mut Context) {
        let now = cx.now();
        let workers = self.workers.iter();
        let late = workers.filter(|(_, worker)| worker.patience().is_some_and(|end| end <= now));
        let late: Vec<WorkerKey> = late.map(|(key, _)| key).collect();
        for worker in late {
            self.take_back(cx, worker);
        }
    }

    /// Takes back what a worker has not begun with, but for the call whose turn it is.
    fn take_back(&mut self, cx: &mut Context, worker: WorkerKey) {
        for call in self.workers[worker].calls_behind() {
            cx.out.push(Action::Withdraw { worker, call });
        }
    }

    /// A call that its worker has not begun with waits for its turn again.
    pub(crate) fn requeue(&mut self, cx: &mut Context, key: CallKey) {
        let now = cx.now();
        self.queue.remove(key.number(), now);
        if cx.calls[key].connection.is_none() {
            return cx.step(Step::Release(key));
        }
        cx.calls[key].enter(call::State::Queued);
        let start = self.queue.push(self.queued(cx, key), now);
        self.admit_job(cx, start);
    }
}

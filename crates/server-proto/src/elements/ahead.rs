//! Posting ahead: a worker gets several short calls at once, one behind the other. It need not wait
//! for the server between them, and their answers leave together.
//!
//! The calls of one worker share its processor elements. For the queue, the call that was posted
//! last has them, and the earlier ones are paused. So their user pays for the worker's time once.

use super::Elements;
use super::dispatch::need;
use crate::action::Action;
use crate::call;
use crate::context::{Context, Step};
use crate::event::Withdrawal;
use crate::keys::{CallKey, Key, WorkerKey};
use crate::worker::{AHEAD_BYTES, AHEAD_MEMORY, Worker};
use farcall_rpc_proto::{FailureKind, Nanos};

impl Elements {
    /// The predicted time of a call that may be posted with others; `None` if it may not.
    pub(crate) fn goes_ahead(cx: &Context, key: CallKey) -> Option<Nanos> {
        let call = &cx.calls[key];
        let function = cx.functions.get(call.function).ok()?;
        let exec = function.brief().filter(|_| function.only_computes())?;
        // A call that is taken back would lose its deadline.
        let has_more = call.printing.is_some() || call.run.is_promised;
        let is_plain = call.run.object.is_none() && !has_more && call.job_id().is_none();
        let memory = call.memory.segments.len() + call.memory.data.len();
        let is_small = call.message.len() <= AHEAD_BYTES && memory <= AHEAD_MEMORY;
        (is_plain && is_small).then_some(exec)
    }

    /// A worker to whose calls this call may be added.
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

    /// Posts a call behind the calls of a worker, and gives it their processor elements.
    pub(crate) fn post_behind(&mut self, cx: &mut Context, call: CallKey, worker: WorkerKey) {
        if let Some(last) = self.workers[worker].last_call() {
            self.queue.pause(last.number(), cx.now());
        }
        self.launch(cx, call, worker);
    }

    /// Posts calls that wait for processor elements behind running calls that end soon, as long as
    /// they are next in the queue.
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

    /// Gives a worker's processor elements to the call that was posted last.
    pub(crate) fn pass_elements(&mut self, cx: &mut Context, worker: WorkerKey) {
        let worker = self.workers.get(worker);
        if let Some(last) = worker.and_then(Worker::last_call) {
            self.queue.resume(last.number(), cx.now());
        }
    }

    /// Handles the answer to a withdrawal. A call that nobody wants ends, with its worker if it has
    /// begun. Any other call waits for its turn again.
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
                // The running call gets its processor elements back before others may have them.
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

    /// Ends the worker of a running call that nobody wants. Its other calls go elsewhere first; the
    /// worker is left alone until it can begin with none of them.
    fn end_running(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        let Some(known) = self.workers.get(worker) else {
            return;
        };
        if known.calls_behind().next().is_some() {
            self.take_back(cx, worker);
            return cx.out.push(Action::Withdraw { worker, call: key });
        }
        let text = "was ended because the client cancelled the call";
        self.workers.end(cx, worker, FailureKind::Cancelled, text);
    }

    /// Takes back calls that wait behind one that runs longer than predicted.
    pub(crate) fn take_back_late(&mut self, cx: &mut Context) {
        let now = cx.now();
        let workers = self.workers.iter();
        let late = workers.filter(|(_, worker)| worker.patience().is_some_and(|end| end <= now));
        let late: Vec<WorkerKey> = late.map(|(key, _)| key).collect();
        for worker in late {
            self.take_back(cx, worker);
        }
    }

    /// Takes back the calls that a worker has not begun with, except the one whose turn it is.
    fn take_back(&mut self, cx: &mut Context, worker: WorkerKey) {
        for call in self.workers[worker].calls_behind() {
            cx.out.push(Action::Withdraw { worker, call });
        }
    }

    /// Takes a call away from a worker that the shell has not given it to.
    pub(crate) fn not_given(&mut self, cx: &mut Context, key: CallKey, worker: WorkerKey) {
        let now = cx.now();
        if let Some(known) = self.workers.get_mut(worker) {
            known.never_gets(key, now);
        }
        self.queue.remove(key.number(), now);
        self.pass_elements(cx, worker);
    }

    /// Lets a call that its worker has not begun with wait for its turn again.
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

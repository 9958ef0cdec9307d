//! Brief calls are posted to a worker behind each other: it need not wait for the server between
//! them, and their answers leave together.
//!
//! Calls that one worker has share its processor elements. To the queue the one posted last has
//! them, and those before it pause; so what their user pays for is the time of the worker, once.

use super::Server;
use super::connections::call_of;
use crate::action::Action;
use crate::event::Withdrawal;
use crate::job;
use crate::keys::{CallKey, Key, WorkerKey};
use crate::worker::{AHEAD_BYTES, Worker};
use farcall_rpc_proto::{FailureKind, Nanos};

impl Server {
    /// What a call takes that may be posted before or behind others; none where it may not.
    pub(super) fn goes_ahead(&self, key: CallKey) -> Option<Nanos> {
        let job = &self.calls[key];
        let function = self.functions.get(job.function).ok()?;
        let exec = function.brief().filter(|_| function.only_computes())?;
        let is_plain = job.object.is_none() && job.printing.is_none() && job.kept().is_none();
        (is_plain && job.message.len() <= AHEAD_BYTES).then_some(exec)
    }

    /// The worker behind whose calls a job may be posted.
    pub(super) fn worker_ahead(&self, key: CallKey) -> Option<WorkerKey> {
        let exec = self.goes_ahead(key)?;
        let job = &self.calls[key];
        let need = self.need(job, self.functions.get(job.function).ok()?);
        let now = self.now();
        let mut workers = self.workers.iter();
        workers
            .find(|(_, worker)| worker.takes_more(now, exec) && worker.serves(&need))
            .map(|(key, _)| key)
    }

    /// Posts a job that has processor elements behind those of a worker, whose it takes.
    pub(super) fn post_behind(&mut self, job: CallKey, worker: WorkerKey) {
        if let Some(last) = self.workers[worker].last_call() {
            self.queue.pause(last.number(), self.now());
        }
        self.launch(job, worker);
    }

    /// Posts jobs that wait for processor elements behind those that have some and end soon, as
    /// long as these are next.
    pub(super) fn post_waiting(&mut self, now: Nanos) {
        let workers: Vec<WorkerKey> = self.workers.keys().collect();
        for worker in workers {
            while !self.queue.is_empty()
                && self.workers[worker].is_brief_now()
                && let Some(last) = self.workers[worker].last_call()
            {
                self.queue.pause(last.number(), now);
                let next = self.queue.choose(now).map(call_of);
                let fits = next.is_some_and(|job| self.worker_ahead(job) == Some(worker));
                let start = fits.then(|| self.queue.next(now)).flatten();
                let Some(start) = start else {
                    self.queue.resume(last.number(), now);
                    break;
                };
                let job = call_of(start.id);
                self.calls[job].pes = start.pes;
                self.launch(job, worker);
            }
        }
    }

    /// The job posted last has the processor elements of its worker.
    pub(super) fn pass_elements(&mut self, worker: WorkerKey) {
        let worker = self.workers.get(worker);
        if let Some(last) = worker.and_then(Worker::last_call) {
            self.queue.resume(last.number(), self.now());
        }
    }

    /// A call was to be taken back from its worker. One that nobody wants goes, or its worker ends;
    /// another one waits for its turn again.
    pub(super) fn withdrawn(&mut self, worker: WorkerKey, key: CallKey, withdrawal: Withdrawal) {
        let Some(job) = self.calls.get(key) else {
            return;
        };
        let is_unwanted = job.connection.is_none() && job.kept().is_none();
        match withdrawal {
            Withdrawal::Done => {
                if let Some(known) = self.workers.get_mut(worker) {
                    known.gives_back(key);
                }
                // The call that runs has its processor elements back before others may have them.
                self.queue.remove(key.number(), self.now());
                self.pass_elements(worker);
                match is_unwanted {
                    true => self.release(key),
                    false => self.requeue(key),
                }
            }
            // Its outcome is on its way.
            Withdrawal::Finished => {}
            Withdrawal::Runs if is_unwanted => self.end_running(key, worker),
            Withdrawal::Runs => {}
        }
    }

    /// Ends the worker of a call that it runs, and that nobody wants. The calls behind go elsewhere
    /// first: until the worker can begin with no other call it is left alone.
    fn end_running(&mut self, key: CallKey, worker: WorkerKey) {
        let Some(known) = self.workers.get(worker) else {
            return;
        };
        if known.calls_behind().next().is_some() {
            self.take_back(worker);
            return self.out.push(Action::Withdraw { worker, call: key });
        }
        let text = "was ended because the client gave the call up";
        self.end_worker(worker, FailureKind::Cancelled, text);
    }

    /// Calls that wait behind one that takes longer than it should go elsewhere.
    pub(super) fn take_back_late(&mut self) {
        let now = self.now();
        let workers = self.workers.iter();
        let late = workers.filter(|(_, worker)| worker.patience().is_some_and(|end| end <= now));
        let late: Vec<WorkerKey> = late.map(|(key, _)| key).collect();
        for worker in late {
            self.take_back(worker);
        }
    }

    /// Takes back what a worker has not begun with, but for the call whose turn it is.
    fn take_back(&mut self, worker: WorkerKey) {
        for call in self.workers[worker].calls_behind() {
            self.out.push(Action::Withdraw { worker, call });
        }
    }

    /// A job that its worker has not begun with waits for its turn again.
    pub(super) fn requeue(&mut self, key: CallKey) {
        let now = self.now();
        self.queue.remove(key.number(), now);
        if self.calls[key].connection.is_none() {
            return self.release(key);
        }
        self.calls[key].enter(job::State::Queued);
        let start = self.queue.push(self.queued(key), now);
        self.admit_job(start);
    }
}

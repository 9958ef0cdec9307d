//! Brief calls are posted to a worker behind each other: it need not wait for the server between
//! them, and their answers leave together.
//!
//! Calls that one worker has share its processor elements. To the queue the one posted last has
//! them, and those before it pause; so what their user pays for is the time of the worker, once.

use super::Reactor;
use crate::job;
use crate::worker::{Withdrawal, Worker};
use farcall_rpc_proto::{FailureKind, Nanos};
use std::time::{Duration, Instant};

impl Reactor {
    /// What a call takes that may be posted before or behind others; none where it may not.
    pub(super) fn goes_ahead(&self, key: usize) -> Option<Duration> {
        let job = &self.jobs[key];
        let function = self.functions.get(job.function).ok()?;
        let exec = function.brief().filter(|_| function.only_computes())?;
        let is_plain = job.object.is_none() && job.printing.is_none() && job.kept().is_none();
        (is_plain && job.message.len() <= Worker::AHEAD_BYTES).then_some(exec)
    }

    /// The worker behind whose calls a job may be posted.
    pub(super) fn worker_ahead(&self, key: usize) -> Option<usize> {
        let exec = self.goes_ahead(key)?;
        let job = &self.jobs[key];
        let need = self.need(job, self.functions.get(job.function).ok()?);
        let now = Instant::now();
        let mut workers = self.workers.iter();
        workers
            .find(|(_, worker)| worker.takes_more(now, exec) && worker.serves(&need))
            .map(|(key, _)| key)
    }

    /// Posts a job that has processor elements behind those of a worker, whose it takes.
    pub(super) fn post_behind(&mut self, job: usize, worker: usize) {
        if let Some(last) = self.workers[worker].last_job() {
            self.queue.pause(last as u64, self.nanos());
        }
        self.launch(job, worker);
    }

    /// Posts jobs that wait for processor elements behind those that have some and end soon, as
    /// long as these are next.
    pub(super) fn post_waiting(&mut self, now: Nanos) {
        let workers: Vec<usize> = self.workers.iter().map(|(key, _)| key).collect();
        for worker in workers {
            while !self.queue.is_empty()
                && self.workers[worker].is_brief_now()
                && let Some(last) = self.workers[worker].last_job()
            {
                self.queue.pause(last as u64, now);
                let next = self.queue.choose(now).map(|id| id as usize);
                let fits = next.is_some_and(|job| self.worker_ahead(job) == Some(worker));
                let start = fits.then(|| self.queue.next(now)).flatten();
                let Some(start) = start else {
                    self.queue.resume(last as u64, now);
                    break;
                };
                let job = start.id as usize;
                self.jobs[job].pes = start.pes;
                self.launch(job, worker);
            }
        }
    }

    /// The job posted last has the processor elements of its worker.
    pub(super) fn pass_elements(&mut self, worker: usize) {
        if let Some(last) = self.workers[worker].last_job() {
            self.queue.resume(last as u64, self.nanos());
        }
    }

    /// Ends the worker of a job that it runs, and that nobody wants; the jobs behind go elsewhere.
    pub(super) fn end_running(&mut self, key: usize, worker: usize) {
        // Before it is clear that the worker can begin with no other job it is left alone.
        self.take_back(worker);
        if self.workers[worker].withdraw(key) == Withdrawal::Runs {
            let text = "was ended because the client gave the call up";
            self.workers[worker].end(FailureKind::Cancelled, text);
        }
    }

    /// Jobs that wait behind one that takes longer than it should go elsewhere.
    pub(super) fn take_back_late(&mut self, now: Instant) {
        let workers = self.workers.iter();
        let late = workers.filter(|(_, worker)| worker.patience().is_some_and(|end| end <= now));
        let late: Vec<usize> = late.map(|(key, _)| key).collect();
        for worker in late {
            if !self.workers[worker].has_outcome() {
                self.take_back(worker);
            }
        }
    }

    /// Takes back what a worker has not begun with, but for the job whose turn it is.
    fn take_back(&mut self, worker: usize) {
        let mut behind: Vec<usize> = self.workers[worker].jobs_behind().collect();
        behind.retain(|job| self.workers[worker].withdraw(*job) == Withdrawal::Done);
        behind.into_iter().for_each(|job| self.requeue(job));
        self.pass_elements(worker);
    }

    /// A job that its worker has not begun with waits for its turn again.
    pub(super) fn requeue(&mut self, key: usize) {
        let now = self.nanos();
        self.queue.remove(key as u64, now);
        if self.jobs[key].connection.is_none() {
            return self.release(key);
        }
        self.jobs[key].state = job::State::Queued;
        let start = self.queue.push(self.request(key), now);
        self.admit_job(start);
    }
}

//! What libraries print: to the log, and to clients that want it.

use super::Reactor;
use crate::job::Printing;
use crate::worker::MOST_READS;
use rustix::event::epoll;
use std::time::Instant;

impl Reactor {
    /// A worker has printed something, or closed its output.
    pub(super) fn worker_output(&mut self, key: usize) {
        match self.workers[key].read_output() {
            Some(printed) => self.take_output(key, printed),
            None if self.workers[key].is_awaited() => self.worker_died(key),
            // The worker's socket tells of its death.
            None => drop(epoll::delete(&self.epoll, self.workers[key].output())),
        }
    }

    /// Takes all that a worker has printed until now, which its pipe holds.
    pub(super) fn drain_output(&mut self, key: usize) {
        for _ in 0..MOST_READS {
            let Some(printed) = self.workers[key].read_output() else {
                return;
            };
            let is_last = printed.is_empty();
            self.take_output(key, printed);
            if is_last {
                return;
            }
        }
    }

    /// Takes some of what a worker has printed; with nothing, a line that was begun is over.
    fn take_output(&mut self, key: usize, printed: Vec<u8>) {
        let worker = &mut self.workers[key];
        let lines = worker.lines(&printed);
        let function = worker.function.map(|number| self.functions.get(number));
        let name = match function {
            Some(Ok(function)) => function.interface.qualified_name(),
            _ => "no function".into(),
        };
        for line in lines {
            tracing::info!("{name}, worker {}: {line}", self.workers[key].pid());
        }
        if let Some(job) = self.workers[key].job() {
            self.print(job, printed);
        }
    }

    /// Sends what a function has printed to its client, if it wants that.
    fn print(&mut self, job: usize, mut printed: Vec<u8>) {
        let job = &mut self.jobs[job];
        let (Some(printing), Some(connection)) = (&mut job.printing, job.connection) else {
            return;
        };
        let proto = &mut self.connections[connection].proto;
        let reads = !proto.is_congested();
        printed.truncate(printing.allow(printed.len(), reads, Instant::now()));
        if !printed.is_empty() {
            proto.print(job.call, printed);
            self.answered(connection);
        }
    }

    /// A call is about to end: what its function has printed comes before.
    pub(super) fn finish_printing(&mut self, worker: usize, job: usize) {
        if self.jobs[job].printing.is_none() {
            return;
        }
        self.drain_output(worker);
        let job = &mut self.jobs[job];
        let remark = job.printing.as_ref().and_then(Printing::remark);
        if let (Some(remark), Some(connection)) = (remark, job.connection) {
            let proto = &mut self.connections[connection].proto;
            proto.print(job.call, remark.into_bytes());
        }
    }
}

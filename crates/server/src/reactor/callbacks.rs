//! Calls of a running function back to its caller.

use super::Reactor;
use crate::job;
use crate::worker::{State, Word};
use farcall_rpc_proto::{CallId, CallbackAnswer, FailureKind};
use std::io;

/// So many workers that wait for a client do not count as computing: what a client calls while it
/// answers can run. It bounds the processes that nested calls may take.
const MOST_WAITING: usize = 64;

impl Reactor {
    /// A worker that runs a call says something.
    pub(super) fn worker_says(&mut self, key: usize, word: Word) {
        let worker = &mut self.workers[key];
        let (State::Running { .. }, Some(job)) = (worker.state, worker.job()) else {
            return worker.end(FailureKind::Internal, "called back outside of a call");
        };
        if worker.waits_since().is_some() {
            let text = "called back while an answer was to come";
            return worker.end(FailureKind::LibraryCrashed, text);
        }
        let callback = match word {
            Word::Callback(bytes) => worker.take_callback(bytes),
            Word::Problem(problem) => return worker.end(FailureKind::LibraryCrashed, problem),
        };
        let callback = match callback {
            Ok(callback) => callback,
            Err(error) => {
                let text = format!("has spoilt a callback: {error}");
                return worker.end(FailureKind::LibraryCrashed, text);
            }
        };
        let key = job;
        let job = &self.jobs[key];
        // A job without a connection was given up, and its worker is about to end.
        if let Some(connection) = job.connection {
            let proto = &mut self.connections[connection].proto;
            proto.call_back(job.call, &callback);
            self.answered(connection);
        }
        // While it waits another call can compute.
        let waiting = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.waits_since().is_some());
        if waiting.count() <= MOST_WAITING {
            self.queue.pause(key as u64, self.nanos());
        }
        self.dispatch();
    }

    /// A client has answered.
    pub(super) fn answer_callback(&mut self, key: usize, call: CallId, answer: &CallbackAnswer) {
        let Some(job) = self.connections[key].jobs.get(&call) else {
            return;
        };
        let job::State::Running { worker } = self.jobs[*job].state else {
            return;
        };
        self.queue.resume(*job as u64, self.nanos());
        let worker = &mut self.workers[worker];
        // One that is dead already is handled as such.
        if let Err(error) = worker.answer(answer)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let text = format!("could not be given the answer of its callback: {error}");
            worker.end(FailureKind::Internal, text);
        }
    }
}

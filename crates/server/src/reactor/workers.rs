//! Events of worker processes: a worker is ready, has finished, has printed something, or has
//! ended. `crew` has the processes. The results and the output of a worker are taken before its end
//! is reported.

use super::Reactor;
use farcall_rpc_proto::FailureKind;
use farcall_server_proto::{CallKey, Event, Finished, Key, Ready, WorkerKey, WorkerReport};
use farcall_worker::{Done, MOST_READS, WorkerMessage};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

impl Reactor {
    /// Starts one worker for each library and waits until all are bound, so that a library that
    /// cannot be bound is known before anybody calls it.
    pub(crate) fn warm_up(&mut self) -> Result<bool, String> {
        let workers = self.server.start_workers();
        self.act();
        for key in workers {
            let mut has_output = true;
            let greeting = loop {
                let Some(worker) = self.crew.workers.get_mut(key) else {
                    return Err(format!("cannot start a worker: {}", self.crew.unstarted));
                };
                // A library has as long as it needs for its own initialisation, and may print any
                // amount meanwhile.
                let (socket, output) = (worker.socket(), worker.output());
                let mut poll = [
                    PollFd::new(&socket, PollFlags::IN),
                    PollFd::new(&self.bells.signals, PollFlags::IN),
                    PollFd::new(&output, PollFlags::IN),
                ];
                let poll = &mut poll[..if has_output { 3 } else { 2 }];
                while rustix::event::poll(poll, None) == Err(Errno::INTR) {}
                if !poll[1].revents().is_empty() {
                    return Ok(false);
                }
                let came = !poll[0].revents().is_empty();
                let printed = poll.get(2).map_or(PollFlags::empty(), PollFd::revents);
                if printed.contains(PollFlags::IN) && !came {
                    self.drain_output(key);
                    continue;
                }
                if !came && !worker.is_awaited() {
                    // The library has closed its output, and goes on.
                    has_output = false;
                    continue;
                }
                if !worker.is_awaited() || !came {
                    break worker.read_greeting();
                }
                if self.crew.admit_first_process(key, &self.poll).is_err() {
                    break None;
                }
            };
            match greeting {
                Some(Ok(ready)) if self.crew.walls_required && !ready.unprotected.is_empty() => {
                    let missing = ready.unprotected.join("; ");
                    return Err(format!("{missing} (workers.walls_required)"));
                }
                Some(Ok(ready)) => {
                    self.crew.bound(key, &ready);
                    self.tell(Event::Ready(key, bound(&ready)));
                }
                Some(Err(error)) => return Err(error),
                None => {
                    let cause = self.crew.bury(key, &self.poll).map(|death| death.cause);
                    let cause = cause.unwrap_or_default();
                    return Err(format!("a worker could not start: it {cause}"));
                }
            }
        }
        let admitted = self.listeners.admit(self.operator.config.takeover);
        admitted.map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Takes the outcomes of finished calls. Returns whether there were any.
    pub(super) fn collect_outcomes(&mut self) -> bool {
        let mut any = false;
        for place in 0..self.crew.workers.places() {
            if let Some(key) = self.crew.workers.at(place) {
                any |= self.collect(key);
            }
        }
        any
    }

    fn collect(&mut self, key: WorkerKey) -> bool {
        let mut any = false;
        while let Some(worker) = self.crew.workers.get_mut(key)
            && worker.is_done()
        {
            any = true;
            if self.server.overview().prints(key) {
                self.drain_output(key);
            }
            let worker = self.crew.workers.get_mut(key);
            match worker.and_then(|worker| worker.take_done()) {
                Some(Done::Call(call, outcome)) => {
                    let finished = Finished {
                        exec_nanos: outcome.exec_nanos,
                        failure: outcome.failure,
                    };
                    self.tell(Event::Finished(key, CallKey::of_number(call), finished));
                }
                Some(Done::Withdrawn) => self.tell(Event::Passed(key)),
                Some(Done::Unmapped) | None => {}
            }
        }
        any
    }

    pub(super) fn worker_event(&mut self, key: WorkerKey) {
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        if worker.end_of_process().is_some() {
            return self.worker_died(key);
        }
        if worker.is_awaited() {
            match self.crew.admit_first_process(key, &self.poll) {
                Ok(()) => return,
                Err(error) => self.crew.end(key, FailureKind::Internal, error.to_string()),
            }
        }
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        if worker.is_starting() {
            match worker.read_greeting() {
                Some(Ok(ready)) => {
                    self.crew.bound(key, &ready);
                    return self.tell(Event::Ready(key, bound(&ready)));
                }
                Some(Err(error)) => {
                    worker.end(FailureKind::Internal, format!("could not start: {error}"));
                }
                None => {}
            }
        } else if let Some(word) = worker.read_word() {
            let said = match word {
                WorkerMessage::Callback(bytes) => match worker.take_callback(bytes) {
                    Ok(callback) => WorkerReport::Callback(callback),
                    Err(error) => WorkerReport::Problem(format!(
                        "has sent a malformed callback: \
                     {error}"
                    )),
                },
                WorkerMessage::Problem(problem) => WorkerReport::Problem(problem),
            };
            return self.tell(Event::WorkerReport(key, said));
        }
        self.worker_died(key);
    }

    /// A worker has closed its connection, or has ended.
    fn worker_died(&mut self, key: WorkerKey) {
        // The last call may have finished just before.
        self.collect(key);
        self.drain_output(key);
        if self.crew.lingers(key, &self.poll) {
            return self.tell(Event::Leaves(key));
        }
        if let Some(death) = self.crew.bury(key, &self.poll) {
            self.tell(Event::Died(key, death));
        }
    }

    /// A worker has printed something, or closed its output.
    pub(super) fn worker_output(&mut self, key: WorkerKey) {
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        match worker.read_output() {
            Some(printed) => self.take_output(key, printed),
            None if worker.is_awaited() => self.worker_died(key),
            // The worker's socket tells of its death.
            None => self.poll.forget(worker.output()),
        }
    }

    /// Takes all that a worker has printed until now, which its pipe holds.
    fn drain_output(&mut self, key: WorkerKey) {
        for _ in 0..MOST_READS {
            let worker = self.crew.workers.get_mut(key);
            let Some(printed) = worker.and_then(|worker| worker.read_output()) else {
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
    fn take_output(&mut self, key: WorkerKey, printed: Vec<u8>) {
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        let lines = worker.lines(&printed);
        if !lines.is_empty() {
            let name = self.server.overview().runs(key);
            let name = name.as_deref().unwrap_or("no function");
            for line in lines {
                tracing::info!("{name}, worker {}: {line}", worker.pid());
            }
        }
        if !printed.is_empty() {
            self.tell(Event::Printed(key, printed));
        }
    }
}

/// What a worker has bound.
fn bound(ready: &farcall_worker::Ready) -> Ready {
    Ready {
        libraries: ready.identities.by_function(),
        unprotected: ready.unprotected.clone(),
    }
}

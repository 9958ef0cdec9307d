//! Worker processes: started, handed calls, listened to, and buried.

use super::{Reactor, Source};
use farcall_idl::Document;
use farcall_library::{CompileError, Source as Interfaces};
use farcall_rpc_proto::{CallbackAnswer, Failure, FailureKind};
use farcall_server_proto::{CallKey, Death, Event, Finished, Key, Ready, Said, WorkerKey};
use farcall_worker::{Done, LibrarySource, MOST_READS, Run, Withdrawal, Word, is_parallel};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;

impl Reactor {
    /// Starts one worker for each library and waits until all are bound, so that a library that
    /// cannot be bound is known before anybody calls it.
    pub(crate) fn warm_up(&mut self) -> Result<(), String> {
        let workers = self.server.start_workers();
        self.act();
        for key in workers {
            let greeting = loop {
                let Some(worker) = self.crew.workers.get_mut(key) else {
                    return Err("cannot start a worker".to_string());
                };
                // A library has as long as it needs for its own initialisation.
                let (socket, output) = (worker.socket(), worker.output());
                let hung_up = PollFlags::empty();
                let mut poll = [
                    PollFd::new(&socket, PollFlags::IN),
                    PollFd::new(&output, hung_up),
                ];
                while rustix::event::poll(&mut poll, None) == Err(Errno::INTR) {}
                let came = !poll[0].revents().is_empty();
                if !worker.is_awaited() || !came {
                    break worker.read_greeting();
                }
                if self.admit_first_process(key).is_err() {
                    break None;
                }
            };
            match greeting {
                Some(Ok(ready)) => self.tell(Event::Ready(key, bound(&ready))),
                Some(Err(error)) => return Err(error),
                None => {
                    let cause = self.bury(key).map(|death| death.cause);
                    let cause = cause.unwrap_or_default();
                    return Err(format!("a worker could not start: it {cause}"));
                }
            }
        }
        Ok(())
    }

    /// The first of several processes has come, perhaps.
    fn admit_first_process(&mut self, key: WorkerKey) -> io::Result<()> {
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return Ok(());
        };
        // What it was awaited at may stay open for a while in a process that is about to start.
        let _ = epoll::delete(&self.epoll, worker.socket());
        worker.admit()?;
        let socket = worker.socket();
        Ok(epoll::add(
            &self.epoll,
            socket,
            Source::WorkerSocket(key).data(),
            EventFlags::IN,
        )?)
    }

    pub(super) fn start_worker(
        &mut self,
        key: WorkerKey,
        library: usize,
        processes: u32,
    ) -> Option<Event> {
        let started = self.try_start(key, library, processes);
        started.err().map(|error| {
            let death = Death {
                kind: FailureKind::Internal,
                cause: format!("has no process: {error}"),
                had_begun: false,
            };
            Event::Died(key, death)
        })
    }

    fn try_start(&mut self, key: WorkerKey, library: usize, processes: u32) -> io::Result<()> {
        let source = self.crew.libraries.get(library);
        let source = source.ok_or(io::ErrorKind::NotFound)?;
        let doorbell = self.bells.doorbell.as_fd();
        let worker = self.crew.launcher.start(source, processes, doorbell)?;
        self.watch(worker.socket(), Source::WorkerSocket(key), EventFlags::IN)?;
        self.watch(worker.output(), Source::WorkerOutput(key), EventFlags::IN)?;
        self.crew.workers.insert(key, worker);
        Ok(())
    }

    pub(super) fn run_call(&mut self, key: WorkerKey, call: CallKey) -> Option<Event> {
        let (worker, request) = (
            self.crew.workers.get_mut(key),
            self.server.overview().request(call),
        );
        let (Some(worker), Some(request)) = (worker, request) else {
            return Some(Event::NotRun(key, call, "it has no process".to_string()));
        };
        let run = Run {
            function: request.function,
            buffer: request.buffer.map_or(0, Key::number),
            swap: request.swap,
            pes: request.pes,
            alone: request.alone,
            message: request.message,
        };
        let segments = request.segments.iter().map(|segment| segment.memory);
        let memory = request.buffer.into_iter().chain(segments);
        let memory = memory.chain(request.arrays.iter().copied());
        let memory = memory.filter_map(|memory| self.memories.get(memory));
        let handed = worker.run(call.number(), &run, memory);
        handed
            .err()
            .map(|error| Event::NotRun(key, call, error.to_string()))
    }

    pub(super) fn withdraw(&mut self, key: WorkerKey, call: CallKey) -> Event {
        use farcall_server_proto::Withdrawal as Known;
        let worker = self.crew.workers.get_mut(key);
        let withdrawal = worker.map(|worker| worker.withdraw(call.number()));
        let withdrawal = match withdrawal {
            Some(Withdrawal::Done) => Known::Done,
            Some(Withdrawal::Runs) => Known::Runs,
            Some(Withdrawal::Finished) | None => Known::Finished,
        };
        Event::Withdrawn(key, call, withdrawal)
    }

    pub(super) fn answer(&mut self, key: WorkerKey, answer: &CallbackAnswer) {
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        // One that is dead already is handled as such.
        if let Err(error) = worker.answer(answer)
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let text = format!("could not be given the answer of its callback: {error}");
            worker.end(FailureKind::Internal, text);
        }
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
        if worker.is_awaited() {
            match self.admit_first_process(key) {
                Ok(()) => return,
                Err(error) => self.end_worker(key, FailureKind::Internal, error.to_string()),
            }
        }
        let Some(worker) = self.crew.workers.get_mut(key) else {
            return;
        };
        if worker.is_starting() {
            match worker.read_greeting() {
                Some(Ok(ready)) => return self.tell(Event::Ready(key, bound(&ready))),
                Some(Err(error)) => worker.end(FailureKind::Internal, error),
                None => {}
            }
        } else if let Some(word) = worker.read_word() {
            let said = match word {
                Word::Callback(bytes) => match worker.take_callback(bytes) {
                    Ok(callback) => Said::Callback(callback),
                    Err(error) => Said::Problem(format!("has spoilt a callback: {error}")),
                },
                Word::Problem(problem) => Said::Problem(problem),
            };
            return self.tell(Event::Said(key, said));
        }
        self.worker_died(key);
    }

    fn end_worker(&mut self, key: WorkerKey, kind: FailureKind, why: String) {
        if let Some(worker) = self.crew.workers.get_mut(key) {
            worker.end(kind, why);
        }
    }

    /// A worker has ended.
    fn worker_died(&mut self, key: WorkerKey) {
        // The last call may have finished just before.
        self.collect(key);
        self.drain_output(key);
        if let Some(death) = self.bury(key) {
            self.tell(Event::Died(key, death));
        }
    }

    /// Removes a worker that is dead or to be dead.
    fn bury(&mut self, key: WorkerKey) -> Option<Death> {
        let worker = self.crew.workers.remove(key)?;
        // A process that is about to start has them open for a while yet: their events would be
        // taken for those of the next worker.
        for closed in [worker.socket(), worker.output()] {
            let _ = epoll::delete(&self.epoll, closed);
        }
        let had_begun = worker.has_begun();
        let death = worker.bury();
        Some(Death {
            kind: death.kind(),
            cause: death.cause(self.config.workers.memory),
            had_begun,
        })
    }

    /// The server ends: its workers do.
    pub(super) fn end_workers(&mut self) {
        for (_, worker) in self.crew.workers.iter_mut() {
            worker.end(FailureKind::ServerStopping, "was ended with its server");
        }
        for place in 0..self.crew.workers.places() {
            if let Some(key) = self.crew.workers.at(place)
                && let Some(worker) = self.crew.workers.remove(key)
            {
                worker.bury();
            }
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
            None => drop(epoll::delete(&self.epoll, worker.output())),
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

    /// Looks whether an interface file can be served.
    pub(super) fn check_library(
        &mut self,
        path: String,
        text: String,
    ) -> Result<(String, Document), Failure> {
        let source = Interfaces {
            path: path.clone().into(),
            text,
        };
        let refuse = |text: String| Failure::new(FailureKind::BadArgument, text);
        if source.is_python() {
            let text = "a Python module is served by a server that is started with it";
            return Err(refuse(text.to_string()));
        }
        let document = self.crew.catalog.check(&source);
        let document = document.map_err(|error| refuse(error.to_string()))?;
        farcall_library::compile(&document, source.folder(), false).map_err(|error| {
            refuse(match error {
                CompileError::NotAllowed { function } => format!(
                    "`{function}` has a body in C, which is compiled when a server starts: \
                     start it with this file"
                ),
                other => other.to_string(),
            })
        })?;
        self.crew.libraries.push(LibrarySource {
            source,
            compiled: None,
            parallel: is_parallel(&document),
        });
        Ok((path, document))
    }
}

/// What a worker has bound.
fn bound(ready: &farcall_worker::Ready) -> Ready {
    Ready {
        libraries: ready.identities.by_function(),
        unprotected: ready.unprotected.clone(),
    }
}

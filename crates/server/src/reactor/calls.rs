//! The way of a call: offered, received, queued, computed, sent.

use super::{Reactor, Source};
use crate::buffer::{BufferPool, JobBuffer, NoBuffer, Segment};
use crate::connection::Offer;
use crate::job::{self, Durability, Job, Printing, Task};
use crate::store::Use;
use crate::worker::{Death, Outcome, State, TEXT_BYTES, Withdrawal, Worker};
use farcall_idl::{Interface, Layout, Mode, Place};
use farcall_rpc_proto::{Call, CallId, Failure, FailureKind};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::Instant;

/// The places of a call's arrays, and the memory they are in.
type Placed = (Vec<Option<Place>>, Vec<Rc<Segment>>);

/// A call that was checked: its layout, what the worker is told, the memory it names, and the
/// arrays that it uses by their handles.
type Prepared = (Layout, Vec<u8>, Vec<Rc<Segment>>, Vec<Use>);

impl Reactor {
    /// A client gave a request up that was accepted.
    pub(super) fn cancelled(&mut self, key: usize, id: CallId) {
        self.forget_held(key, id);
        if let Some(job) = self.connections[key].jobs.remove(&id) {
            self.abandon(job);
        }
        self.stop_fetching(key, Some(id));
    }

    /// A client offers a call: it gets a job buffer, waits for one, or is refused.
    pub(super) fn offer(&mut self, key: usize, id: CallId, offer: Offer) {
        let offer = match offer {
            Offer::Put(put) => return self.offer_put(key, id, put),
            Offer::Pull(pull) => return self.offer_pull(key, id, pull),
            offer => offer,
        };
        let Some(call) = offer.call() else { return };
        let object = match self.object_of(key, &offer, call) {
            Ok(object) => object,
            Err(failure) => return self.connections[key].proto.fail(id, &failure),
        };
        let prepared = self.prepare(key, call);
        let prepared = prepared.and_then(|prepared| {
            self.check_reservation(key, call)?;
            self.beyond_limits(key, &prepared.0)?;
            let durability = self.durability(key, &offer, &prepared.0)?;
            Ok((prepared, durability))
        });
        let ((layout, message, segments, uses), durability) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                self.totals.refused += 1;
                self.audit_refusal(key, &failure.message);
                return self.connections[key].proto.fail(id, &failure);
            }
        };
        let bytes = call.data_bytes;
        let buffer = match self.buffer_for(key, &layout, bytes) {
            Ok(buffer) => buffer,
            Err(None) if self.connections[key].proto.waits_for_grant(call.data_bytes) => {
                return self.hold(key, id, offer);
            }
            // The rest of the call that arrives is behind this one on the wire.
            Err(None) if self.is_receiving(key) => {
                let text = "the server's memory is taken, and an earlier call still arrives; try \
                            again when it has ended";
                let failure = Failure::new(FailureKind::Busy, text);
                return self.connections[key].proto.fail(id, &failure);
            }
            Err(None) => {
                self.connections[key].waiting = Some((id, offer));
                return self.starved.push_back(key);
            }
            Err(Some(failure)) => return self.connections[key].proto.fail(id, &failure),
        };
        let (user, function) = (self.connections[key].user.clone(), call.function);
        let reservation = call.reservation;
        let mut job = Job::new(user, key, id, function, message, layout, buffer, segments);
        if call.output && self.connections[key].proto.takes_output() {
            job.printing = Some(Printing::new(Instant::now()));
        }
        job.object = object;
        job.reservation = reservation;
        job.durability = durability;
        let now = self.nanos();
        job.times.accepted = now;
        let job = self.jobs.insert(job);
        self.connections[key].jobs.insert(id, job);
        if let Err(failure) = self.reserve(job) {
            self.jobs[job].durability = Durability::None;
            self.release(job);
            return self.connections[key].proto.fail(id, &failure);
        }
        self.store.line_up(job, &uses);
        self.jobs[job].uses = uses;
        if self.connections[key].proto.accept(id, now) {
            self.received(job);
        }
    }

    /// Whether arguments of a call are on their way on this connection.
    pub(super) fn is_receiving(&self, key: usize) -> bool {
        let mut jobs = self.connections[key].jobs.values();
        jobs.any(|job| self.jobs[*job].state == job::State::Receiving)
    }

    /// Checks a call against its interface. Nothing is allocated in proportion to it.
    pub(super) fn prepare(&self, key: usize, call: &Call) -> Result<Prepared, Failure> {
        if self.stopping.is_some() {
            let text = "the server is stopping";
            return Err(Failure::new(FailureKind::ServerStopping, text));
        }
        if self.draining {
            let text = "the server is draining; connect anew";
            return Err(Failure::new(FailureKind::Draining, text));
        }
        let function = self.functions.get(call.function)?;
        let bad = |error: String| {
            let name = function.interface.qualified_name();
            Failure::new(FailureKind::BadArgument, format!("{name}: {error}"))
        };
        let answers = self.connections[key].proto.answers_callbacks();
        if !answers && !function.interface.callbacks.is_empty() {
            let text = "calls functions of its caller, which this client cannot do; update it";
            return Err(bad(text.to_string()));
        }
        if !self.connections[key].proto.moves_files() && function.interface.moves_files() {
            let text = "works on files of its caller, which this client cannot move; update it";
            return Err(bad(text.to_string()));
        }
        let mut layout = function
            .interface
            .layout(&call.scalars, &call.elements)
            .map_err(|error| bad(error.to_string()))?;
        let segments = &self.connections[key].segments;
        let (mut places, segments) =
            places(&function.interface, &layout, call, segments).map_err(bad)?;
        let user = &self.connections[key].user;
        let uses = self.uses(&function.interface, &layout, call, user, &mut places)?;
        layout.place(places.iter().copied());
        let expected = layout.sent_bytes();
        if call.data_bytes != expected {
            let given = call.data_bytes;
            return Err(bad(format!(
                "expected {expected} bytes of arrays, {given} announced"
            )));
        }
        let mut message = Vec::new();
        match places.is_empty() {
            true => call.encode(&mut message),
            false => Call {
                places,
                handles: Vec::new(),
                ..call.clone()
            }
            .encode(&mut message),
        }
        if message.len() > TEXT_BYTES {
            let text = format!("its scalars and texts exceed {TEXT_BYTES} bytes; use an array");
            return Err(bad(text));
        }
        Ok((layout, message, segments, uses))
    }

    /// Memory for a call; `Err(None)` means that it must wait.
    fn buffer_for(
        &mut self,
        key: usize,
        layout: &Layout,
        sent: u64,
    ) -> Result<Option<JobBuffer>, Option<Failure>> {
        if layout.bytes == 0 {
            return Ok(None);
        }
        // Others come first, unless calls behind this one on the wire are to be completed, or it is
        // small.
        let is_small = layout.bytes <= BufferPool::SMALL as u64;
        let waits = self.connections[key].proto.waits_for_grant(sent);
        let is_first = is_small || (self.is_receiving(key) && !waits);
        if !is_first && self.starved.iter().any(|other| *other != key) {
            return Err(None);
        }
        let bytes = usize::try_from(layout.bytes).unwrap_or(usize::MAX);
        let result = self.pool.take(bytes, &self.connections[key].user);
        self.unmap_retired();
        match result {
            Ok(buffer) => Ok(Some(buffer)),
            Err(NoBuffer::Wait) => Err(None),
            Err(refusal) => Err(Some(self.refusal(bytes, refusal))),
        }
    }

    /// Why there is no memory, for the client.
    pub(super) fn refusal(&self, bytes: usize, refusal: NoBuffer) -> Failure {
        let limit = self.pool.limit();
        let (kind, text) = match refusal {
            NoBuffer::TooLarge => (
                FailureKind::TooLarge,
                format!(
                    "{bytes} bytes are needed and the server allows {limit} (limits.memory in \
                     its configuration)"
                ),
            ),
            NoBuffer::Wait => (
                FailureKind::Busy,
                format!("{bytes} bytes are needed and others hold the server's memory"),
            ),
            NoBuffer::System(error) => (
                FailureKind::Busy,
                format!("no memory for {bytes} bytes: {error}"),
            ),
        };
        Failure::new(kind, text)
    }

    /// All arguments of a job are there.
    pub(super) fn received(&mut self, key: usize) {
        let job = &self.jobs[key];
        match (&job.durability, &job.task) {
            (_, Task::Put(..)) => self.put_arrived(key),
            (_, Task::PutPart(part)) => self.part_arrived(key, *part),
            (Durability::Submitting(..), _) => self.store_arguments(key),
            _ if !job.uses.is_empty() => self.await_turn(key),
            (Durability::None | Durability::Kept(_), _) => self.enqueue(key),
        }
    }

    /// Takes the outcomes of finished calls. Returns whether there were any.
    pub(super) fn collect_outcomes(&mut self) -> bool {
        let mut any = false;
        for key in 0..self.workers.capacity() {
            let Some(worker) = self.workers.get_mut(key) else {
                continue;
            };
            any |= worker.has_unmapped();
            while self.workers[key].has_outcome()
                && let Some(job) = self.workers[key].job()
            {
                self.finish_printing(key, job);
                let outcome = self.workers[key].take_outcome();
                self.ended(job, outcome);
                any = true;
            }
        }
        any
    }

    fn ended(&mut self, key: usize, outcome: Outcome) {
        if let Some(failure) = outcome.failure {
            return self.fail_job(key, failure.kind, &failure.message);
        }
        let job = &self.jobs[key];
        self.functions
            .observe(job.function, &job.layout, job.pes, outcome.exec_nanos);
        if self.config.state.is_some() {
            self.learned_since.get_or_insert_with(Instant::now);
        }
        self.complete(key, outcome.exec_nanos);
    }

    fn complete(&mut self, key: usize, exec_nanos: u64) {
        let now = self.nanos();
        self.queue.remove(key as u64, now);
        if self.jobs[key].kept().is_some() {
            return self.store_result(key, exec_nanos);
        }
        self.end_uses(key, None);
        let job = &mut self.jobs[key];
        let Some(connection_key) = job.connection else {
            return self.release(key);
        };
        let object = job.object;
        job.state = job::State::Sending;
        job.moved = now;
        job.times.ended = now;
        job.times.exec = exec_nanos;
        let connection = &mut self.connections[connection_key];
        connection
            .proto
            .complete(job.call, job.layout.returned_bytes(), exec_nanos, now);
        connection.sending.push(key);
        self.answered(connection_key);
        if let Some(worker) = object {
            self.passes_turn(key, worker);
        }
    }

    /// An answer is to be written, with others of this turn.
    pub(super) fn answered(&mut self, connection: usize) {
        if !self.unflushed.contains(&connection) {
            self.unflushed.push(connection);
        }
    }

    /// Fails a job that no worker has (any more).
    pub(super) fn fail_job(&mut self, key: usize, kind: FailureKind, cause: &str) {
        let job = &self.jobs[key];
        let function = job.function;
        let name = match self.functions.get(job.function) {
            Ok(function) => function.interface.qualified_name().into_owned(),
            Err(_) => "the function".to_string(),
        };
        let failure = Failure::new(kind, format!("{name} {cause}"));
        let (connection, call, kept) = (job.connection, job.call, job.kept());
        self.count_failure(function);
        self.audit_job(key, kind.name());
        self.end_uses(key, Some(&failure.message));
        self.release(key);
        tracing::warn!("call failed: {failure}");
        if let Some(id) = kept {
            return self.record_failure(id, failure);
        }
        if let Some(connection_key) = connection {
            self.connections[connection_key].proto.fail(call, &failure);
            self.answered(connection_key);
        }
    }

    /// The client no longer wants the job.
    pub(super) fn abandon(&mut self, key: usize) {
        self.audit_job(key, "given up");
        let job = &mut self.jobs[key];
        let connection = job.connection.take();
        match job.state {
            job::State::Running { worker } => match self.workers[worker].withdraw(key) {
                Withdrawal::Done => {
                    self.release(key);
                    self.pass_elements(worker);
                }
                Withdrawal::Finished => {}
                Withdrawal::Runs => self.end_running(key, worker),
            },
            // Pieces of it may still have to be written.
            job::State::Sending if connection.is_some_and(|key| !self.closed.contains(&key)) => {}
            job::State::Queued => {
                self.admitted.retain(|admitted| *admitted != key);
                self.release(key);
            }
            job::State::Receiving | job::State::Waiting | job::State::Sending => self.release(key),
            // Goes on when the disk has answered.
            job::State::OnDisk => {}
        }
    }

    /// Ends a job and hands its memory on.
    pub(super) fn release(&mut self, key: usize) {
        self.end_uses(key, Some("the call that was to write it was given up"));
        let Some(job) = self.jobs.try_remove(key) else {
            return;
        };
        self.queue.remove(key as u64, self.nanos());
        if let Some(connection) = job.connection.and_then(|key| self.connections.get_mut(key)) {
            connection.jobs.remove(&job.call);
        }
        self.leave_memory(&job.durability, job.layout.bytes);
        for segment in job.segments {
            self.give_up(segment);
        }
        match (job.task, job.buffer) {
            (Task::Put(put, user), Some(buffer)) => self.forget_put(&put, &user, buffer),
            (_, Some(buffer)) => {
                self.pool.give_back(buffer);
                self.wake_starved();
            }
            (_, None) => {}
        }
        if let Some(worker) = job.object {
            self.passes_turn(key, worker);
        }
    }

    /// Starts a worker, and returns its key.
    pub(super) fn start_worker(&mut self, library: usize, processes: u32) -> io::Result<usize> {
        let source = &self.libraries[library];
        let worker = self
            .launcher
            .start(library, source, processes, self.doorbell.as_fd())?;
        let key = self.workers.vacant_key();
        self.watch(worker.socket(), Source::WorkerSocket(key), EventFlags::IN)?;
        self.watch(worker.output(), Source::WorkerOutput(key), EventFlags::IN)?;
        Ok(self.workers.insert(worker))
    }

    /// Removes a worker that is dead or to be dead.
    pub(super) fn forget_worker(&mut self, key: usize) -> Death {
        let worker = self.workers.remove(key);
        // A process that is about to start has them open for a while yet: their events would be
        // taken for those of the next worker.
        for closed in [worker.socket(), worker.output()] {
            let _ = epoll::delete(&self.epoll, closed);
        }
        worker.bury()
    }

    /// A worker has ended: its call fails, and another worker takes its place.
    pub(super) fn worker_died(&mut self, key: usize) {
        // The last call may have finished just before.
        self.collect_outcomes();
        if let Some(job) = self.workers[key].job() {
            self.finish_printing(key, job);
        }
        self.drain_output(key);
        let Worker { library, state, .. } = &self.workers[key];
        let (library, state) = (*library, *state);
        let made_room = state == State::Idle && self.workers[key].is_ended();
        let held = self.workers[key].object.take();
        let running = self.workers[key].job();
        let mut behind: Vec<usize> = self.workers[key].jobs_behind().collect();
        let had_begun = self.workers[key].has_begun();
        let goes_ahead = running.is_some_and(|job| self.goes_ahead(job).is_some());
        let death = self.forget_worker(key);
        let cause = death.cause(self.config.workers.memory);
        match made_room {
            true => tracing::debug!("a worker {cause}"),
            false => tracing::warn!("a worker {cause}"),
        }
        let is_object = held.is_some();
        if let Some(mut held) = held {
            // What runs fails with the cause itself.
            held.turn = held.turn.filter(|turn| running != Some(*turn));
            self.object_died(held, &death, &cause);
        }
        match state {
            State::Running { .. } | State::Booked { .. } => {
                let Some(job) = running else {
                    return behind.into_iter().for_each(|job| self.requeue(job));
                };
                let job_of = &mut self.jobs[job];
                let unwanted = job_of.connection.is_none() && job_of.kept().is_none();
                if unwanted {
                    self.release(job);
                } else if !had_begun && goes_ahead && !std::mem::replace(&mut job_of.again, true) {
                    behind.insert(0, job);
                } else {
                    self.fail_job(job, death.kind(), &cause);
                }
                behind.into_iter().for_each(|job| self.requeue(job));
            }
            State::Starting if !is_object => return self.fail_waiting(library, &cause),
            State::Starting | State::Idle | State::Unmapping => {}
        }
        if is_object {
            return;
        }
        let mut workers = self.workers.iter();
        let spare = workers.any(|(_, w)| w.library == library && w.object.is_none());
        if !spare
            && self.stopping.is_none()
            && let Err(error) = self.start_worker(library, 1)
        {
            tracing::error!("cannot start a worker: {error}");
        }
    }
}

/// The places of a call's arrays by the numbers of the segments, and these segments.
fn places(
    interface: &Interface,
    layout: &Layout,
    call: &Call,
    segments: &HashMap<CallId, Rc<Segment>>,
) -> Result<Placed, String> {
    if call.places.len() > layout.arrays.len() {
        return Err("more places than arrays".to_string());
    }
    let (mut places, mut used) = (Vec::new(), Vec::<Rc<Segment>>::new());
    for (array, place) in layout.arrays.iter().zip(&call.places) {
        let Some(place) = place else {
            places.push(None);
            continue;
        };
        let name = &interface.params[array.param].name;
        let segment = segments
            .get(&place.segment)
            .ok_or_else(|| format!("array `{name}` lies in memory that is not shared"))?;
        let end = place.offset.checked_add(array.bytes);
        let unit = u64::from(array.element.swap_unit());
        if end.is_none_or(|end| end > segment.bytes as u64) || place.offset % unit != 0 {
            return Err(format!("array `{name}` does not fit its place"));
        }
        let sizes = &interface.element_refs;
        if array.mode == Mode::Work || sizes.iter().any(|size| size.param == array.param) {
            return Err(format!("array `{name}` cannot lie in shared memory"));
        }
        if !used.iter().any(|used| used.id == segment.id) {
            used.push(segment.clone());
        }
        places.push(Some(Place {
            segment: segment.id,
            ..*place
        }));
    }
    Ok((places, used))
}

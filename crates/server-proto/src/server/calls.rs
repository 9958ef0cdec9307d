//! The way of a call: offered, received, queued, computed, sent.

use super::Server;
use crate::action::{Action, Segment};
use crate::arrays::Use;
use crate::connection::Offer;
use crate::event::Finished;
use crate::flaw::{Flaw, has};
use crate::job::{self, Durability, Job, Printing, Task};
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::map::Map;
use crate::memory::{Memory, NoMemory};
use crate::worker::TEXT_BYTES;
use farcall_idl::{Interface, Layout, Mode, Place};
use farcall_rpc_proto::{Call, CallId, Failure, FailureKind};
use std::rc::Rc;

/// The places of a call's arrays, and the memory they are in.
type Placed = (Vec<Option<Place>>, Vec<Rc<Segment>>);

/// Memory for a call.
enum Room {
    /// It is there, as far as the call needs any.
    Here(Option<MemoryKey>),
    /// Others hold it now.
    Later,
    /// The call cannot have it.
    Never(Failure),
}

/// A call that was checked: its layout, what the worker is told, the memory it names, and the
/// arrays that it uses by their handles.
type Prepared = (Layout, Vec<u8>, Vec<Rc<Segment>>, Vec<Use>);

impl Server {
    /// A client gave a request up that was accepted.
    pub(super) fn cancelled(&mut self, key: ConnectionKey, id: CallId) {
        self.forget_held(key, id);
        if let Some(job) = self.connections[key].calls.remove(&id) {
            self.abandon(job);
        }
        self.stop_fetching(key, Some(id));
    }

    /// A client offers a call: it gets a job buffer, waits for one, or is refused.
    pub(super) fn offer(&mut self, key: ConnectionKey, id: CallId, offer: Offer) {
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
        let buffer = match self.buffer_for(key, &layout, call.data_bytes) {
            Room::Here(buffer) => buffer,
            Room::Later if self.connections[key].proto.waits_for_grant(call.data_bytes) => {
                return self.hold(key, id, offer);
            }
            // The rest of the call that arrives is behind this one on the wire.
            Room::Later if self.is_receiving(key) => {
                let text = "the server's memory is taken, and an earlier call still arrives; try \
                            again when it has ended";
                let failure = Failure::new(FailureKind::Busy, text);
                return self.connections[key].proto.fail(id, &failure);
            }
            Room::Later => {
                self.connections[key].waiting = Some((id, offer));
                return self.starved.push_back(key);
            }
            Room::Never(failure) => return self.connections[key].proto.fail(id, &failure),
        };
        let (user, function) = (self.connections[key].user.clone(), call.function);
        let reservation = call.reservation;
        let mut job = Job::new(
            user,
            Some(key),
            id,
            function,
            message,
            layout,
            buffer,
            segments,
        );
        if call.output && self.connections[key].proto.takes_output() {
            job.printing = Some(Printing::new(self.clock.nanos));
        }
        job.object = object;
        job.reservation = reservation;
        job.durability = durability;
        let now = self.now();
        job.times.accepted = now;
        if let Some(memory) = job.buffer {
            for (offset, bytes) in job.gaps() {
                self.out.push(Action::ClearMemory {
                    memory,
                    offset,
                    bytes,
                });
            }
        }
        let job = self.calls.insert(job);
        self.connections[key].calls.insert(id, job);
        if let Err(failure) = self.reserve(job) {
            self.calls[job].durability = Durability::None;
            self.release(job);
            return self.connections[key].proto.fail(id, &failure);
        }
        self.arrays.line_up(job, &uses);
        self.calls[job].uses = uses;
        if self.connections[key].proto.accept(id, now) {
            self.received(job);
        }
    }

    /// Whether arguments of a call are on their way on this connection.
    pub(super) fn is_receiving(&self, key: ConnectionKey) -> bool {
        let mut jobs = self.connections[key].calls.values();
        jobs.any(|job| self.calls[*job].state == job::State::Receiving)
    }

    /// Checks a call against its interface. Nothing is allocated in proportion to it.
    pub(super) fn prepare(&self, key: ConnectionKey, call: &Call) -> Result<Prepared, Failure> {
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

    /// Memory for a call.
    fn buffer_for(&mut self, key: ConnectionKey, layout: &Layout, sent: u64) -> Room {
        let bytes = layout.bytes;
        if bytes == 0 {
            return Room::Here(None);
        }
        // Others come first, unless calls behind this one on the wire are to be completed, or it is
        // small.
        let is_small = bytes <= Memory::SMALL;
        let waits = self.connections[key].proto.waits_for_grant(sent);
        let is_first = is_small || (self.is_receiving(key) && !waits);
        if !is_first && self.starved.iter().any(|other| *other != key) {
            return Room::Later;
        }
        let user = &self.connections[key].user;
        match self.memory.take(bytes, user, &mut self.out) {
            Ok(buffer) => Room::Here(Some(buffer)),
            Err(NoMemory::Wait) => Room::Later,
            Err(refusal) => Room::Never(self.refusal(bytes, refusal)),
        }
    }

    /// Why there is no memory, for the client.
    pub(super) fn refusal(&self, bytes: u64, refusal: NoMemory) -> Failure {
        let limit = self.memory.limit();
        let (kind, text) = match refusal {
            NoMemory::TooLarge => (
                FailureKind::TooLarge,
                format!(
                    "{bytes} bytes are needed and the server allows {limit} (limits.memory in \
                     its configuration)"
                ),
            ),
            NoMemory::Wait => (
                FailureKind::Busy,
                format!("{bytes} bytes are needed and others hold the server's memory"),
            ),
        };
        Failure::new(kind, text)
    }

    /// The system has refused memory: what was to have it fails.
    pub(super) fn no_memory(&mut self, memory: MemoryKey, why: &str) {
        let has_it = |(_, job): &(CallKey, &Job)| job.buffer == Some(memory);
        let found = self.calls.iter().find(has_it).map(|(key, _)| key);
        if let Some(call) = found {
            self.fail_job(call, FailureKind::Busy, &format!("has no memory: {why}"));
        }
        self.memory.lost(memory, &mut self.out);
    }

    /// All arguments of a job are there.
    pub(super) fn received(&mut self, key: CallKey) {
        let job = &self.calls[key];
        match (&job.durability, &job.task) {
            (_, Task::Put(..)) => self.put_arrived(key),
            (_, Task::PutPart(part)) => self.part_arrived(key, *part),
            (Durability::Submitting(..), _) => self.store_arguments(key),
            _ if !job.uses.is_empty() => self.await_turn(key),
            (Durability::None | Durability::Kept(_), _) => self.enqueue(key),
        }
    }

    /// A worker has finished a call.
    pub(super) fn finished(&mut self, key: CallKey, outcome: Finished) {
        if !self.calls.contains(key) {
            return;
        }
        if let Some(failure) = outcome.failure {
            return self.fail_job(key, failure.kind, &failure.message);
        }
        let job = &self.calls[key];
        self.functions
            .observe(job.function, &job.layout, job.pes, outcome.exec_nanos);
        if self.settings.has_state {
            self.learned_since.get_or_insert(self.clock.nanos);
        }
        self.complete(key, outcome.exec_nanos);
    }

    fn complete(&mut self, key: CallKey, exec_nanos: u64) {
        let now = self.now();
        self.queue.remove(key.number(), now);
        if self.calls[key].kept().is_some() {
            return self.store_result(key, exec_nanos);
        }
        self.end_uses(key, None);
        let job = &mut self.calls[key];
        let Some(connection_key) = job.connection else {
            return self.release(key);
        };
        let object = job.object;
        job.enter(job::State::Sending);
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

    /// Fails a job that no worker has (any more).
    pub(super) fn fail_job(&mut self, key: CallKey, kind: FailureKind, cause: &str) {
        let job = &self.calls[key];
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

    /// The client no longer wants the call.
    pub(super) fn abandon(&mut self, key: CallKey) {
        self.audit_job(key, "given up");
        let Some(job) = self.calls.get_mut(key) else {
            return;
        };
        let connection = job.connection.take();
        let is_open = connection.is_some_and(|key| {
            let connection = self.connections.get(key);
            connection.is_some_and(|connection| !connection.closed)
        });
        match job.state {
            job::State::Running { worker } => {
                self.out.push(Action::Withdraw { worker, call: key });
            }
            // Pieces of it may still have to be written.
            job::State::Sending if is_open => {}
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
    pub(super) fn release(&mut self, key: CallKey) {
        self.end_uses(key, Some("the call that was to write it was given up"));
        let Some(job) = self.calls.remove(key) else {
            return;
        };
        self.queue.remove(key.number(), self.now());
        if let Some(connection) = job.connection.and_then(|key| self.connections.get_mut(key)) {
            connection.calls.remove(&job.call);
        }
        self.leave_memory(&job.durability, job.layout.bytes);
        for segment in job.segments {
            self.give_up(segment);
        }
        match (job.task, job.buffer) {
            (Task::Put(put, user), Some(buffer)) => self.forget_put(&put, &user, buffer),
            (_, Some(_)) if has(Flaw::LeaksMemory) && job.connection.is_none() => {}
            (_, Some(buffer)) => {
                self.memory.give_back(buffer);
                self.wake_starved();
            }
            (_, None) => {}
        }
        if let Some(worker) = job.object {
            self.passes_turn(key, worker);
        }
    }
}

/// The places of a call's arrays by the numbers of the segments, and these segments.
fn places(
    interface: &Interface,
    layout: &Layout,
    call: &Call,
    segments: &Map<CallId, Rc<Segment>>,
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
        if end.is_none_or(|end| end > segment.bytes) || place.offset % unit != 0 {
            return Err(format!("array `{name}` does not fit its place"));
        }
        let sizes = &interface.element_refs;
        if array.mode == Mode::Work || sizes.iter().any(|size| size.param == array.param) {
            return Err(format!("array `{name}` cannot lie in shared memory"));
        }
        if !used.iter().any(|used| used.memory == segment.memory) {
            used.push(segment.clone());
        }
        places.push(Some(Place {
            segment: segment.memory.number(),
            ..*place
        }));
    }
    Ok((places, used))
}

//! The way of a submitted call: received, written to the disk, recorded, and from then on run and
//! told of whatever happens to its client.

mod requests;

use super::Server;
use crate::action::Action;
use crate::connection::Offer;
use crate::durable::{Durable, Kept, Purpose, Stage, Transfer};
use crate::flaw::{Flaw, has};
use crate::job::{self, Durability, Job};
use crate::keys::{CallKey, ConnectionKey, WorkerKey};
use crate::lifecycle::Change;
use crate::memory::NoMemory;
use crate::record::{Changed, Content, DiskError, Outcome, Record, Stored};
use crate::worker::State;
use farcall_idl::Layout;
use farcall_rpc_proto::{
    Call, CallId, Direction, Failure, FailureKind, JobId, JobState, Pieces, Side, User,
};

/// Of the server's memory, calls that wait to run may hold one part in so many.
const SHARE_OF_MEMORY: u64 = 4;

impl Server {
    /// The folder of submitted calls is this server's.
    pub(super) fn durable_opened(&mut self, records: Vec<Record>) {
        if self.awaits_durable {
            tracing::info!("submitted calls are this server's now");
        }
        let limits = self.settings.durable.clone();
        self.durable = Some(Durable::new(limits, records));
        self.awaits_durable = false;
        self.has_room = true;
    }

    /// Whether nothing is on its way to the disk that a server which ends must wait for.
    pub fn is_settled(&self) -> bool {
        self.durable.as_ref().is_none_or(Durable::is_settled)
    }

    fn durable(&mut self) -> Result<&mut Durable, Failure> {
        let awaits = self.awaits_durable;
        self.durable.as_mut().ok_or_else(|| {
            if awaits {
                let text = "the server before this one has the submitted calls until its own have \
                            ended; try again soon";
                return Failure::new(FailureKind::Busy, text);
            }
            let text = "this server keeps no submitted calls; start it with --state DIR";
            Failure::new(FailureKind::BadArgument, text)
        })
    }

    /// Whether an offered call is to outlive its connection; with what is recorded then.
    pub(super) fn durability(
        &mut self,
        key: ConnectionKey,
        offer: &Offer,
        layout: &Layout,
    ) -> Result<Durability, Failure> {
        let Offer::Submission(submission) = offer else {
            return Ok(Durability::None);
        };
        let keep = self.durable()?.keep_for(submission.keep);
        let function = self.functions.get(submission.call.function)?;
        let name = function.interface.qualified_name().into_owned();
        let bad = |text: &str| {
            let text = format!("{name} cannot be submitted: {text}");
            Failure::new(FailureKind::BadArgument, text)
        };
        if !function.interface.callbacks.is_empty() {
            return Err(bad("it calls functions of its caller"));
        }
        if function.interface.moves_files() {
            return Err(bad("it works on files of its caller"));
        }
        if !submission.call.handles.is_empty() {
            return Err(bad(
                "arrays that stay at the server do not outlive it; pass them whole",
            ));
        }
        if !submission.call.places.is_empty() {
            return Err(bad("its arrays lie in memory of the connection"));
        }
        let mut call = Vec::new();
        submission.call.encode(&mut call);
        let id = JobId(self.ids.next());
        let user = self.connections[key].user.clone();
        let stored = |bytes| Stored { bytes, sum: 0 };
        let record = Record {
            number: 0,
            id,
            user: user.to_string(),
            interface: function.interface.public_text(),
            repeatable: function.interface.repeatable,
            function: name,
            call,
            big_endian: false,
            state: JobState::Queued,
            submitted: self.clock.unix_ms,
            started: None,
            ended: None,
            keep,
            arguments: stored(layout.sent_bytes()),
            result: stored(layout.returned_bytes()),
            exec: None,
            failure: None,
        };
        Ok(Durability::Submitting(Box::new(record), user))
    }

    /// Sets aside what the user may have on the disk.
    pub(super) fn reserve(&mut self, job: CallKey) -> Result<(), Failure> {
        match (&self.calls[job].durability, &mut self.durable) {
            (Durability::Submitting(record, user), Some(durable)) => durable.reserve(user, record),
            _ => Ok(()),
        }
    }

    /// A job goes: what was set aside for it, on the disk or in memory, is free.
    pub(super) fn leave_memory(&mut self, durability: &Durability, bytes: u64) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        self.has_room = true;
        match durability {
            Durability::None => {}
            Durability::Submitting(record, user) => durable.unreserve(user, record),
            Durability::Kept(id) => {
                durable.held = durable.held.saturating_sub(bytes);
                durable.set_stage(*id, Stage::Disk);
            }
        }
    }

    /// The arguments of a submitted call are there: they go to the disk.
    pub(super) fn store_arguments(&mut self, key: CallKey) {
        let job = &mut self.calls[key];
        job.enter(job::State::OnDisk);
        let Durability::Submitting(record, _) = &mut job.durability else {
            return;
        };
        record.big_endian = job.swap != cfg!(target_endian = "big");
        let id = record.id;
        if record.arguments.bytes == 0 {
            return self.record_call(key, Stored::default());
        }
        let pieces = Pieces::new(&job.layout, Direction::Sent, Side::Buffer);
        let (Some(memory), Some(durable)) = (job.buffer.take(), &mut self.durable) else {
            return;
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            memory,
            pieces,
        };
        durable.write(Purpose::Submit(key), transfer, &mut self.out);
    }

    /// The arguments are on the disk: the call is recorded.
    fn record_call(&mut self, key: CallKey, arguments: Stored) {
        let Durability::Submitting(record, _) = &mut self.calls[key].durability else {
            return;
        };
        // What is kept in memory is what is recorded: the call may be read back from the disk.
        record.arguments = arguments;
        let (id, record) = (record.id, (**record).clone());
        if let Some(durable) = &mut self.durable {
            durable.insert(record, key, &mut self.out);
        }
        if has(Flaw::AcknowledgesEarly) {
            self.acknowledge(key, id);
        }
    }

    /// Tells the client of a call that it is kept.
    fn acknowledge(&mut self, key: CallKey, id: JobId) {
        let job = &mut self.calls[key];
        if let Some(connection) = job.connection.take() {
            let known = &mut self.connections[connection];
            known.calls.remove(&job.call);
            known.proto.submitted(job.call, id);
            self.answered(connection);
        }
    }

    /// A call is recorded: its client knows, and it waits for its turn.
    fn call_recorded(&mut self, key: CallKey, id: JobId, number: u64) {
        let job = &mut self.calls[key];
        let Durability::Submitting(record, user) =
            std::mem::replace(&mut job.durability, Durability::None)
        else {
            return;
        };
        let bytes = job.layout.bytes;
        self.acknowledge(key, id);
        let limit = self.settings.limits.memory / SHARE_OF_MEMORY;
        let has_elements = self.has_elements(key);
        let Some(durable) = &mut self.durable else {
            return;
        };
        let fits =
            durable.backlog.is_empty() && (durable.held == 0 || durable.held + bytes <= limit);
        let runs = fits || has_elements;
        let record = Record { number, ..*record };
        tracing::debug!("{user}: submitted {id}, {}", record.function);
        match runs {
            true => {
                durable.held += bytes;
                durable.accept(record, user, Stage::Memory(key));
                self.calls[key].durability = Durability::Kept(id);
                self.enqueue(key);
            }
            false => {
                durable.accept(record, user, Stage::Disk);
                durable.backlog.push_back(id);
                self.release(key);
            }
        }
    }

    /// Goes on with submitted calls for which there is room now.
    pub(super) fn use_room(&mut self) {
        if std::mem::take(&mut self.has_room) && self.stopping.is_none() {
            self.serve_starved_fetches();
            // What was not begun is for the next server.
            if !self.draining {
                self.load_backlog();
            }
        }
    }

    /// A file was written, or could not be.
    pub(super) fn written(&mut self, ticket: u64, stored: Result<Stored, DiskError>) {
        let durable = self.durable.as_mut();
        let Some((purpose, memory)) = durable.and_then(|durable| durable.purpose(ticket)) else {
            return;
        };
        match purpose {
            Purpose::Submit(call) => {
                self.calls[call].buffer = Some(memory);
                self.arguments_written(call, stored);
            }
            Purpose::Finish(call, exec) => {
                self.calls[call].buffer = Some(memory);
                self.result_written(call, exec, stored);
            }
            Purpose::Spill(id) => self.spilled(id, memory, stored),
            Purpose::Load(_) | Purpose::Deliver(_) | Purpose::Unspill(_) => {}
        }
    }

    /// A file was read, or could not be.
    pub(super) fn fetched(&mut self, ticket: u64, read: Result<(), DiskError>) {
        let durable = self.durable.as_mut();
        let Some((purpose, memory)) = durable.and_then(|durable| durable.purpose(ticket)) else {
            return;
        };
        match purpose {
            Purpose::Load(call) => {
                self.calls[call].buffer = Some(memory);
                self.arguments_read(call, read);
            }
            Purpose::Deliver(Some(fetch)) => self.result_read(fetch, memory, read),
            Purpose::Deliver(None) => {
                self.memory.give_back(memory);
                self.wake_starved();
            }
            Purpose::Unspill(id) => self.unspilled(id, memory, read),
            Purpose::Submit(_) | Purpose::Finish(..) | Purpose::Spill(_) => {}
        }
    }

    /// A call was recorded, with its number, or could not be.
    pub(super) fn inserted(&mut self, id: JobId, number: Result<u64, Failure>) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.recorded();
        match (durable.inserted(id), number) {
            (None, _) => {}
            (Some(call), Ok(number)) => self.call_recorded(call, id, number),
            (Some(call), Err(failure)) => {
                self.out.push(Action::RemoveFile(id, Content::Arguments));
                self.fail_submission(call, &failure);
            }
        }
    }

    /// A call was forgotten, with its data.
    pub(super) fn forgotten(&mut self, id: JobId) {
        if let Some(durable) = &mut self.durable {
            durable.recorded();
        }
        for content in [Content::Arguments, Content::Result] {
            self.out.push(Action::RemoveFile(id, content));
        }
    }

    fn arguments_written(&mut self, key: CallKey, stored: Result<Stored, DiskError>) {
        let job = &self.calls[key];
        let Durability::Submitting(record, _) = &job.durability else {
            return;
        };
        match stored {
            Ok(stored) if job.connection.is_some() => self.record_call(key, stored),
            // The client does not want it any more.
            Ok(_) => {
                self.out
                    .push(Action::RemoveFile(record.id, Content::Arguments));
                self.release(key);
            }
            Err(error) => self.fail_submission(key, &storage(&error)),
        }
    }

    fn fail_submission(&mut self, key: CallKey, failure: &Failure) {
        tracing::warn!("call not taken: {failure}");
        let (client, request) = (self.calls[key].connection, self.calls[key].call);
        self.release(key);
        if let Some(connection) = client {
            self.refuse(connection, request, failure);
        }
    }

    pub(super) fn refuse(&mut self, connection: ConnectionKey, request: CallId, failure: &Failure) {
        self.connections[connection].proto.fail(request, failure);
        self.answered(connection);
    }

    /// Brings calls from the disk as far as there is room for them.
    fn load_backlog(&mut self) {
        while let Some(id) = self
            .durable
            .as_ref()
            .and_then(|d| d.backlog.front().copied())
        {
            match self.load(id) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.record_failure(id, failure),
            }
            if let Some(durable) = &mut self.durable {
                durable.backlog.retain(|waiting| *waiting != id);
            }
        }
    }

    /// Makes a job of a call on the disk; `false` where there is no room for it now.
    fn load(&mut self, id: JobId) -> Result<bool, Failure> {
        let limit = self.settings.limits.memory / SHARE_OF_MEMORY;
        let Some(durable) = &self.durable else {
            return Ok(true);
        };
        let Some(Kept { record, .. }) = durable.get(id) else {
            return Ok(true);
        };
        let changed = |text: String| Failure::new(FailureKind::StaleInterface, text);
        let (number, function) = self.functions.describe(&record.function)?;
        if function.text() != record.interface {
            let text = format!(
                "the interface of `{}` is another since the server was restarted; submit the call \
                 anew",
                record.function
            );
            return Err(changed(text));
        }
        let call = Call::decode(&record.call).map_err(|error| changed(error.to_string()))?;
        let interface = &self.functions.get(number)?.interface;
        let layout = interface
            .layout(&call.scalars, &call.elements)
            .map_err(|error| changed(error.to_string()))?;
        if layout.sent_bytes() != record.arguments.bytes {
            return Err(changed("the size of its arguments has changed".to_string()));
        }
        if durable.held > 0 && durable.held.saturating_add(layout.bytes) > limit {
            return Ok(false);
        }
        let (stored, big_endian) = (record.arguments, record.big_endian);
        // Reservations end with their server, and the next one counts them anew.
        let reservation = call.reservation.filter(|_| durable.is_own(record));
        let (message, user) = (record.call.clone(), User::named(&record.user));
        let buffer = match layout.bytes {
            0 => None,
            bytes => match self.memory.take(bytes, &user, &mut self.out) {
                Ok(buffer) => Some(buffer),
                Err(NoMemory::Wait) => return Ok(false),
                Err(refusal) => return Err(self.refusal(bytes, refusal)),
            },
        };
        let mut job = Job::new(user, None, 0, number, message, layout, buffer, Vec::new());
        job.times.accepted = self.now();
        job.enter(job::State::OnDisk);
        job.swap = big_endian != cfg!(target_endian = "big");
        job.durability = Durability::Kept(id);
        job.reservation = reservation;
        self.read_arguments(id, job, stored);
        Ok(true)
    }

    fn read_arguments(&mut self, id: JobId, mut job: Job, stored: Stored) {
        let pieces = Pieces::new(&job.layout, Direction::Sent, Side::Buffer);
        let bytes = job.layout.bytes;
        let memory = match stored.bytes {
            0 => None,
            _ => job.buffer.take(),
        };
        let key = self.calls.insert(job);
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.held += bytes;
        durable.set_stage(id, Stage::Memory(key));
        let Some(memory) = memory else {
            return self.enqueue(key);
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            memory,
            pieces,
        };
        durable.read(Purpose::Load(key), transfer, stored, &mut self.out);
    }

    fn arguments_read(&mut self, key: CallKey, read: Result<(), DiskError>) {
        let Some(id) = self.calls[key].kept() else {
            return;
        };
        match read {
            _ if self.is_over(id) => self.release(key),
            Ok(()) => self.enqueue(key),
            Err(error) => {
                self.release(key);
                tracing::error!("the arguments of {id} cannot be read: {}", error.text);
                let text = format!("its arguments cannot be read: {}", error.text);
                self.record_failure(id, Failure::new(FailureKind::StorageFault, text));
            }
        }
    }

    fn is_over(&self, id: JobId) -> bool {
        let kept = self.durable.as_ref().and_then(|durable| durable.get(id));
        kept.is_none_or(|kept| kept.record.state.is_over())
    }

    /// A worker is to run a call once it is recorded that it does: if the server ends, nobody may
    /// take it for a call that was not begun.
    pub(super) fn book(&mut self, key: CallKey, id: JobId, worker: WorkerKey) {
        self.workers[worker].state = State::Booked { call: key };
        self.calls[key].enter(job::State::Running { worker });
        self.record_change(id, Change::Start, Outcome::default());
        if has(Flaw::StartsEarly) {
            self.launch(key, worker);
        }
    }

    /// A submitted call was computed: its results go to the disk.
    pub(super) fn store_result(&mut self, key: CallKey, exec: u64) {
        let now = self.now();
        let job = &mut self.calls[key];
        let bytes = job.layout.returned_bytes();
        let (Some(id), Some(durable)) = (job.kept(), &mut self.durable) else {
            return;
        };
        job.enter(job::State::OnDisk);
        (job.times.ended, job.times.exec) = (now, exec);
        let pieces = Pieces::new(&job.layout, Direction::Returned, Side::Buffer);
        match job.buffer.take() {
            Some(memory) if bytes > 0 => {
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    memory,
                    pieces,
                };
                durable.write(Purpose::Finish(key, exec), transfer, &mut self.out);
            }
            buffer => {
                job.buffer = buffer;
                self.result_written(key, exec, Ok(Stored::default()));
            }
        }
    }

    fn result_written(&mut self, key: CallKey, exec: u64, stored: Result<Stored, DiskError>) {
        let Some(id) = self.calls[key].kept() else {
            return;
        };
        self.account(key);
        self.release(key);
        match stored {
            Ok(_) if self.is_over(id) => self.out.push(Action::RemoveFile(id, Content::Result)),
            Ok(stored) => {
                let outcome = Outcome {
                    result: Some(stored),
                    exec: Some(exec),
                    failure: None,
                };
                self.record_change(id, Change::Finish, outcome);
            }
            Err(error) => {
                tracing::error!("the results of {id} cannot be kept: {}", error.text);
                let text = format!("its results cannot be kept: {}", error.text);
                self.record_failure(id, Failure::new(FailureKind::StorageFault, text));
            }
        }
    }

    pub(super) fn record_failure(&mut self, id: JobId, failure: Failure) {
        let outcome = Outcome {
            failure: Some(failure),
            ..Outcome::default()
        };
        self.record_change(id, Change::Fail, outcome);
    }

    fn record_change(&mut self, id: JobId, change: Change, outcome: Outcome) {
        if let Some(durable) = &mut self.durable {
            durable.change(id, change, outcome, &mut self.out);
        }
    }

    /// A change is recorded; none where nothing is known of the call any more.
    pub(super) fn call_changed(&mut self, id: JobId, changed: Option<&Changed>) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.recorded();
        let Some(changed) = changed else { return };
        let (fetches, asked) = durable.changed(id, changed);
        let Some(kept) = durable.get(id) else { return };
        let (state, stage) = (kept.record.state, kept.stage);
        if changed.change == Change::Start && changed.applied {
            return self.begin(stage);
        }
        if state.is_over() && changed.applied {
            self.out.push(Action::RemoveFile(id, Content::Arguments));
            if state != JobState::Done || has(Flaw::RemovesResults) {
                self.out.push(Action::RemoveFile(id, Content::Result));
            }
            durable.backlog.retain(|waiting| *waiting != id);
        }
        if let Stage::Memory(job) = stage
            && state.is_over()
        {
            self.tear_down(job);
        }
        for fetch in fetches {
            self.serve_fetch(fetch);
        }
        for asked in asked {
            self.tell_of_change(id, asked);
        }
    }

    /// It is recorded that a call runs: now it does.
    fn begin(&mut self, stage: Stage) {
        let Stage::Memory(key) = stage else { return };
        if self.stopping.is_some() {
            return;
        }
        if let job::State::Running { worker } = self.calls[key].state
            && self.workers[worker].state == (State::Booked { call: key })
        {
            self.launch(key, worker);
        }
    }

    /// A call that is in memory is over before its time.
    fn tear_down(&mut self, key: CallKey) {
        match self.calls[key].state {
            job::State::Queued => {
                self.admitted.retain(|admitted| *admitted != key);
                self.release(key);
            }
            job::State::Running { worker } => match self.workers[worker].state {
                State::Booked { .. } => {
                    self.workers[worker].rest(self.clock.nanos);
                    self.release(key);
                }
                _ => {
                    let text = "was ended because its user gave the call up";
                    self.end_worker(worker, FailureKind::Cancelled, text);
                }
            },
            // Goes when the disk has answered.
            _ => {}
        }
    }
}

pub(super) fn not_there(id: JobId) -> Failure {
    let text = format!("there is no submitted call {id} any more");
    Failure::new(FailureKind::NotFound, text)
}

/// The disk did not take a call.
fn storage(error: &DiskError) -> Failure {
    let text = match error.is_full {
        true => format!(
            "the server's disk is full: {}; forget calls that were fetched, or wait",
            error.text
        ),
        false => format!("the server cannot keep the call: {}", error.text),
    };
    Failure::new(FailureKind::StorageFault, text)
}

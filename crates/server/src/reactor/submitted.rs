//! The way of a submitted call: received, written to the disk, recorded, and from then on run and
//! told of whatever happens to its client.

mod requests;

use super::Reactor;
use crate::StartError;
use crate::buffer::NoBuffer;
use crate::connection::Offer;
use crate::job::{self, Durability, Job};
use crate::spool::journal::{Changed, Outcome, Record};
use crate::spool::lifecycle::Change;
use crate::spool::now_ms;
use crate::spool::{Content, Kept, Purpose, Reply, Spool, Stage, Stored, Transfer};
use crate::user::User;
use crate::worker::State;
use farcall_idl::Layout;
use farcall_rpc_proto::{
    Call, CallId, Direction, Failure, FailureKind, JobId, JobState, Pieces, Side,
};
use std::io;
use std::time::{Duration, Instant};

/// Of the server's memory, calls that wait to run may hold one part in so many.
const SHARE_OF_MEMORY: u64 = 4;
/// How long a server that ends waits for what is to be recorded.
const LAST_RECORDS: Duration = Duration::from_millis(1500);

impl Reactor {
    /// Opens the folder of submitted calls, where there is one. A server whose place this one takes
    /// has it until its calls have ended.
    pub(crate) fn open_spool(&mut self) -> Result<(), StartError> {
        let Some(path) = &self.config.state else {
            return Ok(());
        };
        let doorbell = self.doorbell.try_clone()?;
        match Spool::open(path, self.config.jobs.clone(), doorbell) {
            Ok(spool) => {
                self.spool = Some(spool);
                self.awaits_spool = false;
                self.has_room = true;
                Ok(())
            }
            Err(error) if self.config.takeover && error.is_taken() => {
                self.awaits_spool = true;
                Ok(())
            }
            Err(source) => Err(StartError::Spool {
                path: path.clone(),
                source,
            }),
        }
    }

    /// Looks whether the server has gone whose place this one takes.
    pub(super) fn look_for_spool(&mut self) {
        if !self.awaits_spool {
            return;
        }
        match self.open_spool() {
            Ok(()) if self.awaits_spool => {}
            Ok(()) => tracing::info!("submitted calls are this server's now"),
            Err(error) => {
                self.awaits_spool = false;
                tracing::error!("{error}");
            }
        }
    }

    fn spool(&mut self) -> Result<&mut Spool, Failure> {
        let awaits = self.awaits_spool;
        self.spool.as_mut().ok_or_else(|| {
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
        key: usize,
        offer: &Offer,
        layout: &Layout,
    ) -> Result<Durability, Failure> {
        let Offer::Submission(submission) = offer else {
            return Ok(Durability::None);
        };
        let keep = self.spool()?.keep_for(submission.keep);
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
        let id = Spool::new_id().map_err(|error| storage(&error))?;
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
            submitted: now_ms(),
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
    pub(super) fn reserve(&mut self, job: usize) -> Result<(), Failure> {
        match (&self.jobs[job].durability, &mut self.spool) {
            (Durability::Submitting(record, user), Some(spool)) => spool.reserve(user, record),
            _ => Ok(()),
        }
    }

    /// A job goes: what was set aside for it, on the disk or in memory, is free.
    pub(super) fn leave_memory(&mut self, durability: &Durability, bytes: u64) {
        let Some(spool) = &mut self.spool else { return };
        self.has_room = true;
        match durability {
            Durability::None => {}
            Durability::Submitting(record, user) => spool.unreserve(user, record),
            Durability::Kept(id) => {
                spool.held = spool.held.saturating_sub(bytes);
                spool.set_stage(*id, Stage::Disk);
            }
        }
    }

    /// The arguments of a submitted call are there: they go to the disk.
    pub(super) fn store_arguments(&mut self, key: usize) {
        let job = &mut self.jobs[key];
        job.state = job::State::OnDisk;
        let Durability::Submitting(record, _) = &mut job.durability else {
            return;
        };
        record.big_endian = job.swap != cfg!(target_endian = "big");
        let id = record.id;
        if record.arguments.bytes == 0 {
            return self.record_call(key, Stored::default());
        }
        let pieces = Pieces::new(&job.layout, Direction::Sent, Side::Buffer);
        let (Some(buffer), Some(spool)) = (job.buffer.take(), &mut self.spool) else {
            return;
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            buffer,
            pieces,
        };
        spool.write(Purpose::Submit(key), transfer);
    }

    /// The arguments are on the disk: the call is recorded.
    fn record_call(&mut self, key: usize, arguments: Stored) {
        let Durability::Submitting(record, _) = &self.jobs[key].durability else {
            return;
        };
        let record = Record {
            arguments,
            ..(**record).clone()
        };
        if let Some(spool) = &mut self.spool {
            spool.insert(record, key);
        }
    }

    /// A call is recorded: its client knows, and it waits for its turn.
    fn call_recorded(&mut self, key: usize, id: JobId, number: u64) {
        let job = &mut self.jobs[key];
        let Durability::Submitting(record, user) =
            std::mem::replace(&mut job.durability, Durability::None)
        else {
            return;
        };
        let bytes = job.layout.bytes;
        let (client, request) = (job.connection.take(), job.call);
        if let Some(connection) = client {
            self.connections[connection].jobs.remove(&request);
            self.connections[connection].proto.submitted(request, id);
            self.answered(connection);
        }
        let limit = self.config.limits.memory / SHARE_OF_MEMORY;
        let has_elements = self.has_elements(key);
        let Some(spool) = &mut self.spool else { return };
        let fits = spool.backlog.is_empty() && (spool.held == 0 || spool.held + bytes <= limit);
        let runs = fits || has_elements;
        let record = Record { number, ..*record };
        tracing::debug!("{user}: submitted {id}, {}", record.function);
        match runs {
            true => {
                spool.held += bytes;
                spool.accept(record, user, Stage::Memory(key));
                self.jobs[key].durability = Durability::Kept(id);
                self.enqueue(key);
            }
            false => {
                spool.accept(record, user, Stage::Disk);
                spool.backlog.push_back(id);
                self.release(key);
            }
        }
    }

    /// Handles what the disk has done, and goes on with calls for which there is room now. Returns
    /// whether there was anything.
    pub(super) fn serve_spool(&mut self) -> bool {
        let mut any = false;
        while let Some(reply) = self.spool.as_ref().and_then(Spool::next_reply) {
            any = true;
            self.on_reply(reply);
        }
        if std::mem::take(&mut self.has_room) && self.stopping.is_none() {
            self.serve_starved_fetches();
            // What was not begun is for the next server.
            if !self.draining {
                self.load_backlog();
            }
        }
        any
    }

    /// The server ends: what was computed is recorded first.
    pub(super) fn settle_spool(&mut self) {
        let deadline = Instant::now() + LAST_RECORDS;
        while let Some(reply) = self.spool.as_ref().and_then(|s| s.last_reply(deadline)) {
            self.on_reply(reply);
        }
    }

    fn on_reply(&mut self, reply: Reply) {
        let Some(spool) = &mut self.spool else { return };
        match reply {
            Reply::Written {
                ticket,
                buffer,
                stored,
            } => match spool.purpose(ticket) {
                Some(Purpose::Submit(job)) => {
                    self.jobs[job].buffer = Some(buffer);
                    self.arguments_written(job, stored);
                }
                Some(Purpose::Finish(job, exec)) => {
                    self.jobs[job].buffer = Some(buffer);
                    self.result_written(job, exec, stored);
                }
                Some(Purpose::Spill(id)) => self.spilled(id, buffer, stored),
                _ => self.pool.give_back(buffer),
            },
            Reply::Read {
                ticket,
                buffer,
                read,
            } => match spool.purpose(ticket) {
                Some(Purpose::Load(job)) => {
                    self.jobs[job].buffer = Some(buffer);
                    self.arguments_read(job, read);
                }
                Some(Purpose::Deliver(fetch)) => self.result_read(fetch, buffer, read),
                Some(Purpose::Unspill(id)) => self.unspilled(id, buffer, read),
                _ => self.pool.give_back(buffer),
            },
            Reply::Inserted { id, number } => match (spool.inserted(id), number) {
                (None, _) => {}
                (Some(job), Ok(number)) => self.call_recorded(job, id, number),
                (Some(job), Err(failure)) => {
                    spool.remove_file(id, Content::Arguments);
                    self.fail_submission(job, &failure);
                }
            },
            Reply::Changed { id, changed } => {
                if let Some(changed) = changed {
                    self.call_changed(id, &changed);
                }
            }
            Reply::Forgotten { id } => {
                spool.remove_file(id, Content::Arguments);
                spool.remove_file(id, Content::Result);
            }
        }
    }

    fn arguments_written(&mut self, key: usize, stored: io::Result<Stored>) {
        let job = &self.jobs[key];
        let Durability::Submitting(record, _) = &job.durability else {
            return;
        };
        match stored {
            Ok(stored) if job.connection.is_some() => self.record_call(key, stored),
            // The client does not want it any more.
            Ok(_) => {
                let id = record.id;
                if let Some(spool) = &self.spool {
                    spool.remove_file(id, Content::Arguments);
                }
                self.release(key);
            }
            Err(error) => self.fail_submission(key, &storage(&error)),
        }
    }

    fn fail_submission(&mut self, key: usize, failure: &Failure) {
        tracing::warn!("call not taken: {failure}");
        let (client, request) = (self.jobs[key].connection, self.jobs[key].call);
        self.release(key);
        if let Some(connection) = client {
            self.refuse(connection, request, failure);
        }
    }

    pub(super) fn refuse(&mut self, connection: usize, request: CallId, failure: &Failure) {
        self.connections[connection].proto.fail(request, failure);
        self.answered(connection);
    }

    /// Brings calls from the disk as far as there is room for them.
    fn load_backlog(&mut self) {
        while let Some(id) = self.spool.as_ref().and_then(|s| s.backlog.front().copied()) {
            match self.load(id) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.record_failure(id, failure),
            }
            if let Some(spool) = &mut self.spool {
                spool.backlog.retain(|waiting| *waiting != id);
            }
        }
    }

    /// Makes a job of a call on the disk; `false` where there is no room for it now.
    fn load(&mut self, id: JobId) -> Result<bool, Failure> {
        let limit = self.config.limits.memory / SHARE_OF_MEMORY;
        let Some(spool) = &self.spool else {
            return Ok(true);
        };
        let Some(Kept { record, .. }) = spool.get(id) else {
            return Ok(true);
        };
        let changed = |text: String| Failure::new(FailureKind::StaleInterface, text);
        let (number, text, _) = self.functions.describe(&record.function)?;
        if text != record.interface {
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
        if spool.held > 0 && spool.held.saturating_add(layout.bytes) > limit {
            return Ok(false);
        }
        let (stored, big_endian) = (record.arguments, record.big_endian);
        // Reservations end with their server, and the next one counts them anew.
        let reservation = call.reservation.filter(|_| spool.is_own(record));
        let (message, user) = (record.call.clone(), User::named(&record.user));
        let bytes = usize::try_from(layout.bytes).unwrap_or(usize::MAX);
        let buffer = match bytes {
            0 => None,
            bytes => {
                let buffer = self.pool.take(bytes, &user);
                self.unmap_retired();
                match buffer {
                    Ok(buffer) => Some(buffer),
                    Err(NoBuffer::Wait) => return Ok(false),
                    Err(refusal) => return Err(self.refusal(bytes, refusal)),
                }
            }
        };
        let mut job = Job::new(user, 0, 0, number, message, layout, buffer, Vec::new());
        job.times.accepted = self.nanos();
        job.connection = None;
        job.state = job::State::OnDisk;
        job.swap = big_endian != cfg!(target_endian = "big");
        job.durability = Durability::Kept(id);
        job.reservation = reservation;
        self.read_arguments(id, job, stored);
        Ok(true)
    }

    fn read_arguments(&mut self, id: JobId, mut job: Job, stored: Stored) {
        let pieces = Pieces::new(&job.layout, Direction::Sent, Side::Buffer);
        let bytes = job.layout.bytes;
        let buffer = match stored.bytes {
            0 => None,
            _ => job.buffer.take(),
        };
        let key = self.jobs.insert(job);
        let Some(spool) = &mut self.spool else { return };
        spool.held += bytes;
        spool.set_stage(id, Stage::Memory(key));
        let Some(buffer) = buffer else {
            return self.enqueue(key);
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            buffer,
            pieces,
        };
        spool.read(Purpose::Load(key), transfer, stored);
    }

    fn arguments_read(&mut self, key: usize, read: io::Result<()>) {
        let Some(id) = self.jobs[key].kept() else {
            return;
        };
        match read {
            _ if self.is_over(id) => self.release(key),
            Ok(()) => self.enqueue(key),
            Err(error) => {
                self.release(key);
                tracing::error!("the arguments of {id} cannot be read: {error}");
                let text = format!("its arguments cannot be read: {error}");
                self.record_failure(id, Failure::new(FailureKind::StorageFault, text));
            }
        }
    }

    fn is_over(&self, id: JobId) -> bool {
        let kept = self.spool.as_ref().and_then(|spool| spool.get(id));
        kept.is_none_or(|kept| kept.record.state.is_over())
    }

    /// A worker is to run a call once it is recorded that it does: if the server ends, nobody may
    /// take it for a call that was not begun.
    pub(super) fn book(&mut self, key: usize, id: JobId, worker: usize) {
        self.workers[worker].state = State::Booked { job: key };
        self.jobs[key].state = job::State::Running { worker };
        if let Some(spool) = &self.spool {
            spool.change(id, Change::Start, Outcome::default());
        }
    }

    /// A submitted call was computed: its results go to the disk.
    pub(super) fn store_result(&mut self, key: usize, exec: u64) {
        let now = self.nanos();
        let job = &mut self.jobs[key];
        let bytes = job.layout.returned_bytes();
        let (Some(id), Some(spool)) = (job.kept(), &mut self.spool) else {
            return;
        };
        job.state = job::State::OnDisk;
        (job.times.ended, job.times.exec) = (now, exec);
        let pieces = Pieces::new(&job.layout, Direction::Returned, Side::Buffer);
        match job.buffer.take() {
            Some(buffer) if bytes > 0 => {
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    buffer,
                    pieces,
                };
                spool.write(Purpose::Finish(key, exec), transfer);
            }
            buffer => {
                job.buffer = buffer;
                self.result_written(key, exec, Ok(Stored::default()));
            }
        }
    }

    fn result_written(&mut self, key: usize, exec: u64, stored: io::Result<Stored>) {
        let Some(id) = self.jobs[key].kept() else {
            return;
        };
        self.account(key);
        self.release(key);
        let is_over = self.is_over(id);
        let Some(spool) = &self.spool else { return };
        match stored {
            Ok(_) if is_over => spool.remove_file(id, Content::Result),
            Ok(stored) => {
                let outcome = Outcome {
                    result: Some(stored),
                    exec: Some(exec),
                    failure: None,
                };
                spool.change(id, Change::Finish, outcome);
            }
            Err(error) => {
                tracing::error!("the results of {id} cannot be kept: {error}");
                let text = format!("its results cannot be kept: {error}");
                self.record_failure(id, Failure::new(FailureKind::StorageFault, text));
            }
        }
    }

    pub(super) fn record_failure(&mut self, id: JobId, failure: Failure) {
        if let Some(spool) = &self.spool {
            let outcome = Outcome {
                failure: Some(failure),
                ..Outcome::default()
            };
            spool.change(id, Change::Fail, outcome);
        }
    }

    /// A change is recorded.
    fn call_changed(&mut self, id: JobId, changed: &Changed) {
        let Some(spool) = &mut self.spool else { return };
        let (fetches, asked) = spool.changed(id, changed);
        let Some(kept) = spool.get(id) else { return };
        let (state, stage) = (kept.record.state, kept.stage);
        if changed.change == Change::Start && changed.applied {
            return self.begin(stage);
        }
        if state.is_over() && changed.applied {
            spool.remove_file(id, Content::Arguments);
            if state != JobState::Done {
                spool.remove_file(id, Content::Result);
            }
            spool.backlog.retain(|waiting| *waiting != id);
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
        if let job::State::Running { worker } = self.jobs[key].state
            && self.workers[worker].state == (State::Booked { job: key })
        {
            self.launch(key, worker);
        }
    }

    /// A call that is in memory is over before its time.
    fn tear_down(&mut self, key: usize) {
        match self.jobs[key].state {
            job::State::Queued => {
                self.admitted.retain(|admitted| *admitted != key);
                self.release(key);
            }
            job::State::Running { worker } => match self.workers[worker].state {
                State::Booked { .. } => {
                    self.workers[worker].rest();
                    self.release(key);
                }
                _ => {
                    let text = "was ended because its user gave the call up";
                    self.workers[worker].end(FailureKind::Cancelled, text);
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
fn storage(error: &io::Error) -> Failure {
    let text = match error.kind() {
        io::ErrorKind::StorageFull => {
            format!("the server's disk is full: {error}; forget calls that were fetched, or wait")
        }
        _ => format!("the server cannot keep the call: {error}"),
    };
    Failure::new(FailureKind::StorageFault, text)
}

//! The way of arrays that stay at the server: put, used in calls, got, dropped, and to the disk and
//! back where memory is short.

use super::Reactor;
use crate::buffer::{JobBuffer, NoBuffer};
use crate::connection::Offer;
use crate::job::{self, Job, Task};
use crate::spool::{Content, Purpose, Spool, Stored, Transfer, now_ms};
use crate::store::{Array, Location, Turn, Use};
use crate::user::User;
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, Order, Place};
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, HandleId, HandleRecord, JobId, Pieces, Put, Times,
    swap_bytes,
};
use std::io;
use std::rc::Rc;

/// Stands in a message for memory that is known when the call runs; as long as any number.
const LATER: u64 = u64::MAX;

impl Reactor {
    /// Checks the arrays that a call uses by their handles, and gives them places.
    pub(super) fn uses(
        &self,
        interface: &Interface,
        layout: &Layout,
        call: &Call,
        user: &User,
        places: &mut Vec<Option<Place>>,
    ) -> Result<Vec<Use>, Failure> {
        let mut uses: Vec<Use> = Vec::new();
        for (index, id) in &call.handles {
            let index = *index as usize;
            let bad = |text: String| {
                let name = interface.qualified_name();
                Failure::new(FailureKind::BadArgument, format!("{name}: {text}"))
            };
            let Some(array) = layout.arrays.get(index) else {
                return Err(bad("a handle for an array that there is not".to_string()));
            };
            let name = &interface.params[array.param].name;
            let known = self.readable(*id, user)?;
            places.resize(layout.arrays.len(), None);
            let sizes = &interface.element_refs;
            if array.mode == Mode::Work
                || places[index].is_some()
                || sizes.iter().any(|size| size.param == array.param)
            {
                return Err(bad(format!("array `{name}` cannot be one that stays")));
            }
            check_form(interface, array, known).map_err(bad)?;
            let writes = array.mode.is_returned();
            if writes && self.named.names.is_named(*id) {
                let text = format!(
                    "array `{name}` is written, and the data have a name: those do not change; \
                     put a new edition"
                );
                return Err(bad(text));
            }
            let others = uses.iter().filter(|other| other.id == *id);
            if others.clone().any(|other| other.writes || writes) {
                let text = format!("array `{name}` is written and used for another argument too");
                return Err(bad(text));
            }
            uses.push(Use {
                id: *id,
                writes,
                replaces: array.mode == Mode::Out && array.is_full(),
                array: index,
            });
            places[index] = Some(Place {
                segment: LATER,
                offset: 0,
            });
        }
        Ok(uses)
    }

    /// A client puts an array here: it gets memory, waits for some, or is refused.
    pub(super) fn offer_put(&mut self, key: usize, id: CallId, put: Put) {
        if self.draining || self.stopping.is_some() {
            let text = "the server is draining; connect anew";
            let failure = Failure::new(FailureKind::Draining, text);
            return self.connections[key].proto.fail(id, &failure);
        }
        let user = self.connections[key].user.clone();
        let checked = self.store.check(&put, &user);
        let checked = checked.and_then(|bytes| Ok((bytes, self.memory_for_array(bytes, &user)?)));
        let failure = match checked {
            Ok((bytes, Some(buffer))) => {
                self.store.reserve(&user, bytes);
                let job = self.jobs.insert(Job::put(key, id, put, user, buffer));
                let now = self.nanos();
                self.connections[key].jobs.insert(id, job);
                if self.connections[key].proto.accept(id, now) {
                    self.received(job);
                }
                return;
            }
            Ok((_, None)) if self.connections[key].proto.waits_for_grant(put.data_bytes) => {
                return self.hold(key, id, Offer::Put(put));
            }
            // What leaves memory makes room; the rest of a call that arrives is behind this.
            Ok((_, None)) if !self.is_receiving(key) => {
                self.connections[key].waiting = Some((id, Offer::Put(put)));
                return self.starved.push_back(key);
            }
            Ok((bytes, None)) => self.refusal(bytes as usize, NoBuffer::Wait),
            Err(failure) => failure,
        };
        self.connections[key].proto.fail(id, &failure);
    }

    /// Memory for an array; none where it must wait for others that leave.
    pub(super) fn memory_for_array(
        &mut self,
        bytes: u64,
        user: &User,
    ) -> Result<Option<JobBuffer>, Failure> {
        self.spill(bytes);
        if !self.store.has_room(bytes) {
            if self.store.leaving > 0 {
                return Ok(None);
            }
            let text = format!(
                "{bytes} bytes are needed and arrays that stay hold the memory for them \
                 (data.memory in the server's configuration); drop some"
            );
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffer = self.pool.hold(length, user);
        self.unmap_retired();
        match buffer {
            Ok(buffer) => Ok(Some(buffer)),
            Err(NoBuffer::Wait) => Ok(None),
            Err(refusal) => Err(self.refusal(length, refusal)),
        }
    }

    /// Sends arrays to the disk that nobody uses, until there is room for so many bytes.
    pub(super) fn spill(&mut self, bytes: u64) {
        while !self.store.will_have_room(bytes)
            && let Some(buffer) = self.store.least_used_file()
        {
            self.pool.retire(buffer);
        }
        self.unmap_retired();
        let Some(spool) = &mut self.spool else { return };
        while !self.store.will_have_room(bytes)
            && let Some((id, bytes, buffer)) = self.store.least_used()
        {
            let transfer = Transfer {
                id: JobId(id.0),
                content: Content::Array,
                buffer,
                pieces: Pieces::whole(bytes),
            };
            spool.write(Purpose::Spill(id), transfer);
        }
    }

    /// All of an array has come.
    pub(super) fn put_arrived(&mut self, key: usize) {
        let job = &mut self.jobs[key];
        let task = std::mem::replace(&mut job.task, Task::Call);
        let (Task::Put(put, user), Some(buffer)) = (task, job.buffer.take()) else {
            return;
        };
        let (connection, request) = (job.connection, job.call);
        if job.swap {
            let unit = put.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
            // SAFETY: nobody else has the buffer.
            swap_bytes(unsafe { buffer.part(0, put.data_bytes) }, unit.max(1));
        }
        self.release(key);
        let id = match Spool::new_id() {
            Ok(id) => HandleId(id.0),
            Err(error) => {
                self.forget_put(&put, &user, buffer);
                if let Some(connection) = connection {
                    let failure = Failure::new(FailureKind::Internal, error.to_string());
                    self.refuse(connection, request, &failure);
                }
                return;
            }
        };
        // A client that has given it up meanwhile does not learn of it.
        let Some(connection) = connection else {
            return self.forget_put(&put, &user, buffer);
        };
        self.store.insert(id, &put, user, connection, buffer);
        if let Some(record) = self.store.record(id) {
            self.connections[connection].proto.handle(request, &record);
            self.answered(connection);
        }
    }

    /// An array does not come.
    pub(super) fn forget_put(&mut self, put: &Put, user: &User, buffer: JobBuffer) {
        self.store.unreserve(user, put.form.bytes().unwrap_or(0));
        self.pool.retire(buffer);
        self.unmap_retired();
        self.wake_starved();
    }

    /// All of a call has come that uses arrays which stay.
    pub(super) fn await_turn(&mut self, key: usize) {
        self.jobs[key].state = job::State::Waiting;
        self.candidates.push_back(key);
    }

    /// Goes on with jobs whose turn has come. Returns whether there were any.
    pub(super) fn serve_candidates(&mut self) -> bool {
        let any = !self.candidates.is_empty();
        while let Some(key) = self.candidates.pop_front() {
            let Some(job) = self.jobs.get(key) else {
                continue;
            };
            if job.state != job::State::Waiting {
                continue;
            }
            match self.store.turn(key, &job.uses) {
                Turn::Later => {}
                Turn::Never(failure) => self.fail_job(key, failure.kind, &failure.message),
                Turn::Read(id) => self.unspill(key, id),
                Turn::Now => self.take_turn(key),
            }
        }
        any
    }

    fn take_turn(&mut self, key: usize) {
        let job = &mut self.jobs[key];
        job.data = self.store.memory(&job.uses);
        if matches!(job.task, Task::Get | Task::GetPart) {
            let (bytes, request) = (job.layout.bytes, job.call);
            let Some(connection) = job.connection else {
                return self.release(key);
            };
            job.state = job::State::Sending;
            let now = self.nanos();
            self.connections[connection].sending.push(key);
            let proto = &mut self.connections[connection].proto;
            proto.deliver(request, bytes, Times::default(), now);
            return self.answered(connection);
        }
        let Ok(mut call) = Call::decode(&job.message) else {
            let text = "cannot be read again";
            return self.fail_job(key, FailureKind::Internal, text);
        };
        for (wanted, memory) in job.uses.iter().zip(&job.data) {
            if let Some(Some(place)) = call.places.get_mut(wanted.array) {
                place.segment = memory.id;
            }
        }
        job.message.clear();
        call.encode(&mut job.message);
        self.enqueue(key);
    }

    /// An array that a job waits for comes back from the disk.
    fn unspill(&mut self, key: usize, id: HandleId) {
        if self.store.get(id).is_some_and(|array| array.file.is_some()) {
            return self.read_data_file(key, id);
        }
        let bytes = self.store.get(id).map_or(0, |array| array.bytes);
        self.spill(bytes);
        let user = self.jobs[key].user.clone();
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let buffer = self.pool.hold(length, &user);
        self.unmap_retired();
        let (Ok(buffer), Some(spool)) = (buffer, &mut self.spool) else {
            // What leaves makes room, and has the job looked at again.
            if self.store.leaving == 0 {
                let text = format!("has no memory for the array {id} now; try again");
                self.fail_job(key, FailureKind::Busy, &text);
            }
            return;
        };
        let Some(stored) = self.store.returning(id) else {
            return self.pool.retire(buffer);
        };
        let transfer = Transfer {
            id: JobId(id.0),
            content: Content::Array,
            buffer,
            pieces: Pieces::whole(bytes),
        };
        spool.read(Purpose::Unspill(id), transfer, stored);
    }

    /// An array is on the disk, or could not be brought there.
    pub(super) fn spilled(&mut self, id: HandleId, buffer: JobBuffer, stored: io::Result<Stored>) {
        let location = match stored {
            Ok(stored) => {
                self.pool.retire(buffer);
                self.unmap_retired();
                Location::Disk(stored)
            }
            Err(error) => {
                tracing::error!("an array cannot leave memory: {error}");
                Location::Memory(Rc::new(buffer))
            }
        };
        if let Some(lost) = self.store.left(id, location) {
            self.free_array(lost);
        }
        if self.store.get(id).is_none() {
            self.remove_array_file(id);
        }
        self.candidates.extend(self.store.waiting());
        self.wake_starved();
    }

    /// An array is back in memory, or cannot be read.
    pub(super) fn unspilled(&mut self, id: HandleId, buffer: JobBuffer, read: io::Result<()>) {
        self.remove_array_file(id);
        let memory = match read {
            Ok(()) => Ok(buffer),
            Err(error) => {
                tracing::error!("an array cannot be read: {error}");
                Err((
                    buffer,
                    format!("it could not be read from the disk: {error}"),
                ))
            }
        };
        if let Some(lost) = self.store.returned(id, memory) {
            self.free_array(Rc::new(lost));
        }
        self.candidates.extend(self.store.waiting());
    }

    fn remove_array_file(&self, id: HandleId) {
        if let Some(spool) = &self.spool {
            spool.remove_file(JobId(id.0), Content::Array);
        }
    }

    /// A job is done with its arrays; `failed` is why what it was to write is undefined.
    pub(super) fn end_uses(&mut self, key: usize, failed: Option<&str>) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        if job.uses.is_empty() {
            return;
        }
        let uses = std::mem::take(&mut job.uses);
        job.data.clear();
        let (waiting, freed) = self.store.finish(key, &uses, failed);
        self.candidates.extend(waiting);
        for memory in freed {
            self.free_array(memory);
        }
    }

    pub(super) fn free_array(&mut self, memory: Rc<JobBuffer>) {
        if let Some(buffer) = Rc::into_inner(memory) {
            self.pool.retire(buffer);
            self.unmap_retired();
            self.wake_starved();
        }
    }

    pub(super) fn get_array(&mut self, key: usize, request: CallId, id: HandleId) {
        let user = self.connections[key].user.clone();
        // Whoever knows the name of a loan may read the array, once.
        let lent = self.store.redeem(id, now_ms());
        let lent = lent.and_then(|array| Some((array, self.store.get(array)?.bytes)));
        let own = || self.readable(id, &user).map(|array| (id, array.bytes));
        match lent.map_or_else(own, Ok) {
            Ok((id, bytes)) => {
                let wanted = Use {
                    id,
                    writes: false,
                    replaces: false,
                    array: 0,
                };
                let job = self
                    .jobs
                    .insert(Job::get(user, key, request, bytes, wanted));
                self.connections[key].jobs.insert(request, job);
                self.store.line_up(job, &[wanted]);
                self.await_turn(job);
            }
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(super) fn tell_of_array(&mut self, key: usize, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        let record = self.readable(id, user).map(|_| self.store.record(id));
        let proto = &mut self.connections[key].proto;
        match record {
            Ok(Some(record)) => proto.handle(request, &record),
            Ok(None) => {}
            Err(failure) => proto.fail(request, &failure),
        }
    }

    /// Gives an array another name, which is good for one reading by whoever knows it.
    pub(super) fn lend_array(&mut self, key: usize, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        let record = self.readable(id, user).map(|_| self.store.record(id));
        let lent = record.and_then(|record| {
            let internal =
                |error: io::Error| Failure::new(FailureKind::Internal, error.to_string());
            let loan = HandleId(Spool::new_id().map_err(internal)?.0);
            self.store.lend(id, loan, now_ms())?;
            Ok(record.map(|record| HandleRecord { id: loan, ..record }))
        });
        let proto = &mut self.connections[key].proto;
        match lent {
            Ok(Some(record)) => proto.handle(request, &record),
            Ok(None) => {}
            Err(failure) => proto.fail(request, &failure),
        }
    }

    pub(super) fn drop_array(&mut self, key: usize, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        match self.store.of_user(id, user) {
            Ok(_) => {
                self.tell_of_array(key, request, id);
                self.end_array(id);
            }
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(super) fn end_array(&mut self, id: HandleId) {
        self.named.names.forget(id);
        if let Some(memory) = self.store.drop_array(id) {
            self.free_array(memory);
        }
        if self.store.get(id).is_none() {
            self.remove_array_file(id);
        }
    }

    pub(super) fn list_arrays(&mut self, key: usize, request: CallId, after: u64) {
        let connection = &mut self.connections[key];
        let page = self.store.page(&connection.user, after);
        connection.proto.handles(request, &page);
    }

    /// The arrays of a connection that has ended go, but for those that stay.
    pub(super) fn end_arrays_of(&mut self, key: usize) {
        for id in self.store.of_connection(key) {
            self.end_array(id);
        }
    }

    /// Drops arrays that were not used for too long.
    pub(super) fn expire_arrays(&mut self) {
        while let Some(id) = self.store.expired(now_ms()) {
            tracing::debug!("the array {id} has expired");
            self.end_array(id);
        }
    }
}

/// Whether the array that a handle names is what the interface says.
fn check_form(interface: &Interface, array: &ArrayLayout, known: &Array) -> Result<(), String> {
    let order = interface.order();
    let shape = array.shape(order);
    let column_major = order == Order::ColumnMajor;
    if known.form.fits(array.element, &shape, column_major) && known.bytes == array.bytes {
        return Ok(());
    }
    let rows = |column_major| match column_major {
        true => "columns",
        false => "rows",
    };
    Err(format!(
        "array `{}`: expected {} of shape {shape:?} in {}, the handle has {} of shape {:?} in {}",
        interface.params[array.param].name,
        array.element.name(),
        rows(column_major),
        known.form.element,
        known.form.shape,
        rows(known.form.column_major),
    ))
}

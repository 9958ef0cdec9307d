//! The way of arrays that stay at the server: put, used in calls, got, dropped, and to the disk and
//! back where memory is short.

use super::Server;
use crate::action::Action;
use crate::arrays::{Array, Location, Turn, Use};
use crate::connection::Offer;
use crate::durable::{Purpose, Transfer};
use crate::flaw::{Flaw, has};
use crate::job::{self, Job, Task};
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::memory::NoMemory;
use crate::record::{Content, DiskError, Stored};
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, Order, Place};
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, HandleId, HandleRecord, JobId, Pieces, Put, Times, User,
};

/// Stands in a message for memory that is known when the call runs; as long as any number.
const LATER: u64 = u64::MAX;

impl Server {
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
            if writes && self.names.is_named(*id) && !has(Flaw::WritesNamed) {
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
    pub(super) fn offer_put(&mut self, key: ConnectionKey, id: CallId, put: Put) {
        if self.draining || self.stopping.is_some() {
            let text = "the server is draining; connect anew";
            let failure = Failure::new(FailureKind::Draining, text);
            return self.connections[key].proto.fail(id, &failure);
        }
        let user = self.connections[key].user.clone();
        let checked = self.arrays.check(&put, &user);
        let checked = checked.and_then(|bytes| Ok((bytes, self.memory_for_array(bytes, &user)?)));
        let failure = match checked {
            Ok((bytes, Some(buffer))) => {
                self.arrays.reserve(&user, bytes);
                let job = self.calls.insert(Job::put(key, id, put, user, buffer));
                let now = self.now();
                self.connections[key].calls.insert(id, job);
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
            Ok((bytes, None)) => self.refusal(bytes, NoMemory::Wait),
            Err(failure) => failure,
        };
        self.connections[key].proto.fail(id, &failure);
    }

    /// Memory for an array; none where it must wait for others that leave.
    pub(super) fn memory_for_array(
        &mut self,
        bytes: u64,
        user: &User,
    ) -> Result<Option<MemoryKey>, Failure> {
        self.spill(bytes);
        if !self.arrays.has_room(bytes) {
            if self.arrays.leaving > 0 {
                return Ok(None);
            }
            let text = format!(
                "{bytes} bytes are needed and arrays that stay hold the memory for them \
                 (data.memory in the server's configuration); drop some"
            );
            return Err(Failure::new(FailureKind::Busy, text));
        }
        match self.memory.hold(bytes, user, &mut self.out) {
            Ok(memory) => Ok(Some(memory)),
            Err(NoMemory::Wait) => Ok(None),
            Err(refusal) => Err(self.refusal(bytes, refusal)),
        }
    }

    /// Sends arrays to the disk that nobody uses, until there is room for so many bytes.
    pub(super) fn spill(&mut self, bytes: u64) {
        while !self.arrays.will_have_room(bytes)
            && let Some(buffer) = self.arrays.least_used_file()
        {
            self.memory.free(buffer, &mut self.out);
        }
        let Some(durable) = &mut self.durable else {
            return;
        };
        while !self.arrays.will_have_room(bytes)
            && let Some((id, bytes, buffer)) = self.arrays.least_used()
        {
            let transfer = Transfer {
                id: JobId(id.0),
                content: Content::Array,
                memory: buffer,
                pieces: Pieces::whole(bytes),
            };
            durable.write(Purpose::Spill(id), transfer, &mut self.out);
        }
    }

    /// All of an array has come.
    pub(super) fn put_arrived(&mut self, key: CallKey) {
        let job = &mut self.calls[key];
        let task = std::mem::replace(&mut job.task, Task::Call);
        let (Task::Put(put, user), Some(buffer)) = (task, job.buffer.take()) else {
            return;
        };
        let (connection, request) = (job.connection, job.call);
        let is_swapped = job.swap;
        if is_swapped {
            let unit = put.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
            self.out.push(Action::SwapMemory {
                memory: buffer,
                offset: 0,
                bytes: put.data_bytes,
                unit: unit.max(1),
            });
        }
        self.release(key);
        let id = HandleId(self.ids.next());
        // A client that has given it up meanwhile does not learn of it.
        let Some(connection) = connection else {
            return self.forget_put(&put, &user, buffer);
        };
        self.arrays.insert(id, &put, user, connection, buffer);
        if let Some(record) = self.arrays.record(id) {
            self.connections[connection].proto.handle(request, &record);
            self.answered(connection);
        }
    }

    /// An array does not come.
    pub(super) fn forget_put(&mut self, put: &Put, user: &User, buffer: MemoryKey) {
        self.arrays.unreserve(user, put.form.bytes().unwrap_or(0));
        self.memory.free(buffer, &mut self.out);
        self.wake_starved();
    }

    /// All of a call has come that uses arrays which stay.
    pub(super) fn await_turn(&mut self, key: CallKey) {
        self.calls[key].enter(job::State::Waiting);
        self.candidates.push_back(key);
    }

    /// Goes on with jobs whose turn has come. Returns whether there were any.
    pub(super) fn serve_candidates(&mut self) -> bool {
        let any = !self.candidates.is_empty();
        while let Some(key) = self.candidates.pop_front() {
            let Some(job) = self.calls.get(key) else {
                continue;
            };
            if job.state != job::State::Waiting {
                continue;
            }
            match self.arrays.turn(key, &job.uses) {
                Turn::Later => {}
                Turn::Never(failure) => self.fail_job(key, failure.kind, &failure.message),
                Turn::Read(id) => self.unspill(key, id),
                Turn::Now => self.take_turn(key),
            }
        }
        any
    }

    fn take_turn(&mut self, key: CallKey) {
        let job = &mut self.calls[key];
        job.data = self.arrays.memory(&job.uses);
        if matches!(job.task, Task::Get | Task::GetPart) {
            let (bytes, request) = (job.layout.bytes, job.call);
            let Some(connection) = job.connection else {
                return self.release(key);
            };
            job.enter(job::State::Sending);
            let now = self.now();
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
                place.segment = memory.number();
            }
        }
        job.message.clear();
        call.encode(&mut job.message);
        self.enqueue(key);
    }

    /// An array that a job waits for comes back from the disk.
    fn unspill(&mut self, key: CallKey, id: HandleId) {
        if self
            .arrays
            .get(id)
            .is_some_and(|array| array.file.is_some())
        {
            return self.read_data_file(key, id);
        }
        let bytes = self.arrays.get(id).map_or(0, |array| array.bytes);
        self.spill(bytes);
        let user = self.calls[key].user.clone();
        let buffer = self.memory.hold(bytes, &user, &mut self.out);
        let (Ok(buffer), Some(durable)) = (buffer, &mut self.durable) else {
            // What leaves makes room, and has the job looked at again.
            if self.arrays.leaving == 0 {
                let text = format!("has no memory for the array {id} now; try again");
                self.fail_job(key, FailureKind::Busy, &text);
            }
            return;
        };
        let Some(stored) = self.arrays.returning(id) else {
            return self.memory.free(buffer, &mut self.out);
        };
        let transfer = Transfer {
            id: JobId(id.0),
            content: Content::Array,
            memory: buffer,
            pieces: Pieces::whole(bytes),
        };
        durable.read(Purpose::Unspill(id), transfer, stored, &mut self.out);
    }

    /// An array is on the disk, or could not be brought there.
    pub(super) fn spilled(
        &mut self,
        id: HandleId,
        buffer: MemoryKey,
        stored: Result<Stored, DiskError>,
    ) {
        let location = match stored {
            Ok(stored) => {
                self.memory.free(buffer, &mut self.out);
                Location::Disk(stored)
            }
            Err(error) => {
                tracing::error!("an array cannot leave memory: {}", error.text);
                Location::Memory(buffer)
            }
        };
        if let Some(lost) = self.arrays.left(id, location) {
            self.free_array(lost);
        }
        if self.arrays.get(id).is_none() {
            self.remove_array_file(id);
        }
        self.candidates.extend(self.arrays.waiting());
        self.wake_starved();
    }

    /// An array is back in memory, or cannot be read.
    pub(super) fn unspilled(
        &mut self,
        id: HandleId,
        buffer: MemoryKey,
        read: Result<(), DiskError>,
    ) {
        self.remove_array_file(id);
        let memory = match read {
            Ok(()) => Ok(buffer),
            Err(error) => {
                tracing::error!("an array cannot be read: {}", error.text);
                Err((
                    buffer,
                    format!("it could not be read from the disk: {}", error.text),
                ))
            }
        };
        if let Some(lost) = self.arrays.returned(id, memory) {
            self.free_array(lost);
        }
        self.candidates.extend(self.arrays.waiting());
    }

    fn remove_array_file(&mut self, id: HandleId) {
        if self.durable.is_some() {
            let file = Action::RemoveFile(JobId(id.0), Content::Array);
            self.out.push(file);
        }
    }

    /// A job is done with its arrays; `failed` is why what it was to write is undefined.
    pub(super) fn end_uses(&mut self, key: CallKey, failed: Option<&str>) {
        let Some(job) = self.calls.get_mut(key) else {
            return;
        };
        if job.uses.is_empty() {
            return;
        }
        let uses = std::mem::take(&mut job.uses);
        job.data.clear();
        let (waiting, freed) = self.arrays.finish(key, &uses, failed);
        self.candidates.extend(waiting);
        for memory in freed {
            self.free_array(memory);
        }
    }

    pub(super) fn free_array(&mut self, memory: MemoryKey) {
        self.memory.free(memory, &mut self.out);
        self.wake_starved();
    }

    pub(super) fn get_array(&mut self, key: ConnectionKey, request: CallId, id: HandleId) {
        let user = self.connections[key].user.clone();
        // Whoever knows the name of a loan may read the array, once.
        let lent = self.arrays.redeem(id, self.clock.unix_ms);
        let lent = lent.and_then(|array| Some((array, self.arrays.get(array)?.bytes)));
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
                    .calls
                    .insert(Job::get(user, key, request, bytes, wanted));
                self.connections[key].calls.insert(request, job);
                self.arrays.line_up(job, &[wanted]);
                self.await_turn(job);
            }
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(super) fn tell_of_array(&mut self, key: ConnectionKey, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        let record = self.readable(id, user).map(|_| self.arrays.record(id));
        let proto = &mut self.connections[key].proto;
        match record {
            Ok(Some(record)) => proto.handle(request, &record),
            Ok(None) => {}
            Err(failure) => proto.fail(request, &failure),
        }
    }

    /// Gives an array another name, which is good for one reading by whoever knows it.
    pub(super) fn lend_array(&mut self, key: ConnectionKey, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        let record = self.readable(id, user).map(|_| self.arrays.record(id));
        let lent = record.and_then(|record| {
            let loan = HandleId(self.ids.next());
            self.arrays.lend(id, loan, self.clock.unix_ms)?;
            Ok(record.map(|record| HandleRecord { id: loan, ..record }))
        });
        let proto = &mut self.connections[key].proto;
        match lent {
            Ok(Some(record)) => proto.handle(request, &record),
            Ok(None) => {}
            Err(failure) => proto.fail(request, &failure),
        }
    }

    pub(super) fn drop_array(&mut self, key: ConnectionKey, request: CallId, id: HandleId) {
        let user = &self.connections[key].user;
        match self.arrays.of_user(id, user) {
            Ok(_) => {
                self.tell_of_array(key, request, id);
                self.end_array(id);
            }
            Err(failure) => self.connections[key].proto.fail(request, &failure),
        }
    }

    pub(super) fn end_array(&mut self, id: HandleId) {
        self.names.forget(id);
        if let Some(memory) = self.arrays.drop_array(id) {
            self.free_array(memory);
        }
        if self.arrays.get(id).is_none() {
            self.remove_array_file(id);
        }
    }

    pub(super) fn list_arrays(&mut self, key: ConnectionKey, request: CallId, after: u64) {
        let connection = &mut self.connections[key];
        let page = self.arrays.page(&connection.user, after);
        connection.proto.handles(request, &page);
    }

    /// The arrays of a connection that has ended go, but for those that stay.
    pub(super) fn end_arrays_of(&mut self, key: ConnectionKey) {
        for id in self.arrays.of_connection(key) {
            self.end_array(id);
        }
    }

    /// Drops arrays that were not used for too long.
    pub(super) fn expire_arrays(&mut self) {
        while let Some(id) = self.arrays.expired(self.clock.unix_ms) {
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

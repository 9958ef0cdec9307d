//! The life of stored arrays: clients put, use, fetch and drop them, and the server moves them to
//! the disk and back when memory is short. `arrays` decides whose turn it is. A call gets its
//! arrays only when all of them are in memory and its turn has come.

use super::{Data, destination, room};
use crate::action::Action;
use crate::arrays::{self, Array, Location, Remains, Turn, Use, some_move};
use crate::call::{self, ActiveCall, Task};
use crate::connection::Offer;
use crate::context::{Context, Step};
use crate::disk::Purpose;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::memory::MemoryGrant;
use crate::record::{Content, DiskError, Stored};
use farcall_idl::{ArrayLayout, Interface, Layout, Mode, Order, SharedRange};
use farcall_rpc_proto::{
    Call, CallId, Failure, FailureKind, HandleId, HandleRecord, JobId, Put, Times, User,
};

/// Stands in a message for memory that is known only when the call runs. It is as long as any other
/// number.
const LATER: u64 = u64::MAX;

impl Data {
    /// Checks the stored arrays of a call, and gives them locations.
    pub(crate) fn uses(
        &self,
        interface: &Interface,
        layout: &Layout,
        call: &Call,
        user: &User,
        places: &mut Vec<Option<SharedRange>>,
    ) -> Result<Vec<Use>, Failure> {
        let mut uses: Vec<Use> = Vec::new();
        for (index, id) in &call.handles {
            let index = *index as usize;
            let bad = |text: String| {
                let name = interface.qualified_name();
                Failure::new(FailureKind::BadArgument, format!("{name}: {text}"))
            };
            let Some(array) = layout.arrays.get(index) else {
                return Err(bad("a handle for an array that does not exist".to_string()));
            };
            let name = &interface.params[array.param].name;
            let known = self.readable(*id, user)?;
            places.resize(layout.arrays.len(), None);
            let sizes = &interface.element_refs;
            if array.mode == Mode::Work
                || array.is_shrunk
                || places[index].is_some()
                || sizes.iter().any(|size| size.param == array.param)
            {
                return Err(bad(format!("array `{name}` cannot be a stored array")));
            }
            check_form(interface, array, known).map_err(bad)?;
            let writes = array.mode.is_returned();
            if writes && self.names.is_named(*id) && !has(Flaw::WritesNamed) {
                let text = format!(
                    "the call writes array `{name}`, and named data cannot change: put a new \
                     version"
                );
                return Err(bad(text));
            }
            let others = uses.iter().filter(|other| other.id == *id);
            if others.clone().any(|other| other.writes || writes) {
                let text = format!(
                    "the call writes array `{name}` and uses it for another \
                 argument too"
                );
                return Err(bad(text));
            }
            uses.push(Use {
                id: *id,
                writes,
                replaces: array.mode == Mode::Out && array.is_full(),
                array: index,
            });
            places[index] = Some(SharedRange {
                segment: LATER,
                offset: 0,
            });
        }
        Ok(uses)
    }

    /// Lets a client put an array: grants memory, waits for some, or refuses. Returns the call if
    /// the array has arrived already.
    pub(crate) fn offer_put(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        id: CallId,
        put: Put,
    ) -> Option<CallKey> {
        let user = cx.clients[key].user.clone();
        match self.room_for(cx, &put, &user) {
            MemoryGrant::Here((bytes, buffer)) => {
                self.arrays.reserve(&user, bytes);
                let now = cx.now();
                let call = cx
                    .calls
                    .insert(ActiveCall::put((key, id), put, user, buffer, now));
                let connection = &mut cx.clients[key];
                connection.calls.insert(id, call);
                return connection.proto.accept(id, now).then_some(call);
            }
            MemoryGrant::Later => cx.await_room(key, Offer::Put(put).came(id, cx.now()), 0),
            MemoryGrant::Never(failure) => cx.refuse(key, id, &failure),
        }
        None
    }

    /// Memory for an array that will arrive, with its length in bytes.
    pub(super) fn room_for(
        &mut self,
        cx: &mut Context,
        put: &Put,
        user: &User,
    ) -> MemoryGrant<(u64, MemoryKey)> {
        if cx.is_ending().is_some() {
            let text = "the server is draining; connect again";
            return MemoryGrant::Never(Failure::new(FailureKind::Draining, text));
        }
        let bytes = match self.arrays.check(put, user, &cx.settings.groups) {
            Ok(bytes) => bytes,
            Err(failure) => return MemoryGrant::Never(failure),
        };
        room::spill(self, cx, bytes);
        if !self.arrays.has_room(bytes) {
            if self.arrays.leaving > 0 {
                return MemoryGrant::Later;
            }
            let text = format!(
                "{bytes} bytes are needed, and stored arrays use that memory (data.memory in the \
                 server's configuration); drop some arrays, or try again when fewer calls use \
                 them{}",
                room::disk_refuses(self)
            );
            return MemoryGrant::Never(Failure::new(FailureKind::Busy, text));
        }
        let arrives = put.data_bytes > 0;
        let grant = room::grant(self, cx, bytes, |memory, out| match arrives {
            true => memory.hold_for_arrival(bytes, user, out),
            false => memory.hold(bytes, user, out),
        });
        grant.map(|memory| (bytes, memory))
    }

    /// Handles the arrival of a whole array.
    pub(crate) fn put_arrived(&mut self, cx: &mut Context, key: CallKey) {
        let call = &mut cx.calls[key];
        let task = std::mem::replace(&mut call.task, Task::Call);
        let (Task::Put(put, user), Some(buffer)) = (task, call.memory.buffer.take()) else {
            return;
        };
        let (connection, request) = (call.connection, call.id);
        let is_swapped = call.streams.swap;
        if is_swapped {
            let unit = put.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
            cx.out.push(Action::SwapMemory {
                memory: buffer,
                offset: 0,
                bytes: put.data_bytes,
                unit: unit.max(1),
            });
        }
        cx.step(Step::Release(key));
        let id = HandleId(cx.ids.next());
        // A client that has given the array up does not learn of it.
        let Some(connection) = connection else {
            return self.forget_put(cx, &put, &user, buffer);
        };
        self.arrays.insert(id, &put, user, connection, buffer);
        if let Some(record) = self.arrays.record(id) {
            cx.clients[connection].proto.handle(request, &record);
            cx.answered(connection);
        }
    }

    /// Forgets an array that will not arrive.
    pub(crate) fn forget_put(
        &mut self,
        cx: &mut Context,
        put: &Put,
        user: &User,
        buffer: MemoryKey,
    ) {
        self.arrays.unreserve(user, put.form.bytes().unwrap_or(0));
        cx.free(buffer);
    }

    /// Lets a call that uses stored arrays wait for its turn.
    pub(crate) fn await_turn(&mut self, cx: &mut Context, key: CallKey) {
        cx.calls[key].enter(call::State::Waiting);
        self.turns.extend(cx, [key]);
        cx.has_room |= self.turns.look_again();
    }

    /// Lets a call wait until there is memory for an array. If only calls of this kind are left,
    /// the oldest one gets the memory of arrays that others wait with. It fails if that is too
    /// little.
    pub(super) fn await_memory(&mut self, cx: &mut Context, key: CallKey, id: HandleId) {
        // A call whose array is being read runs next.
        let goes_on = some_move(&self.arrays) || cx.some_call_goes_on();
        if goes_on && !has(Flaw::AwaitsNoMemory) {
            return self.turns.starve(cx, key);
        }
        if self.turns.has_older(cx, key) {
            cx.has_room = true;
            return self.turns.starve(cx, key);
        }
        let Err(lacks) = room::take(self, cx, key, id) else {
            return self.turns.starve(cx, key);
        };
        let (remedy, refused) = (remedy(cx, key), room::disk_refuses(self));
        let held = match cx.held_by_callers() >= lacks {
            true => "; calls of functions with callbacks have the memory",
            false => "",
        };
        let text = format!("has no memory for the array {id} now; {remedy}{refused}{held}");
        cx.fail(key, FailureKind::Busy, &text);
    }

    /// Continues with calls whose turn has come, until one asks for a step. If a call fails, the
    /// next one finds its memory free.
    pub(crate) fn serve_candidates(&mut self, cx: &mut Context) {
        while cx.steps.is_empty()
            && let Some(key) = self.turns.pop()
        {
            let Some(call) = cx.calls.get(key) else {
                continue;
            };
            if call.state != call::State::Waiting {
                continue;
            }
            match self.arrays.turn(key, &call.uses) {
                Turn::Later => {}
                Turn::Never(failure) => cx.fail(key, failure.kind, &failure.message),
                Turn::Read(id) => self.unspill(cx, key, id),
                Turn::Now => self.take_turn(cx, key),
            }
        }
    }

    fn take_turn(&mut self, cx: &mut Context, key: CallKey) {
        let now = cx.now();
        let call = &mut cx.calls[key];
        call.memory.data = self.arrays.memory(&call.uses);
        if matches!(call.task, Task::Get | Task::GetPart) {
            let (bytes, request) = (call.layout.bytes, call.id);
            let Some(connection) = call.connection else {
                return cx.step(Step::Release(key));
            };
            call.begin_sending(now);
            cx.clients[connection].sending.push(key);
            let proto = &mut cx.clients[connection].proto;
            proto.deliver(request, bytes, Times::default(), now);
            return cx.answered(connection);
        }
        if let Task::Write(wanted) = &call.task {
            let wanted = wanted.clone();
            return destination::begin(self, cx, key, wanted);
        }
        let Ok(mut request) = Call::decode(&call.message) else {
            let text = "cannot be read again";
            return cx.fail(key, FailureKind::Internal, text);
        };
        for (wanted, memory) in call.uses.iter().zip(&call.memory.data) {
            if let Some(Some(place)) = request.places.get_mut(wanted.array) {
                place.segment = memory.number();
            }
        }
        call.message.clear();
        request.encode(&mut call.message);
        call.enter(call::State::Queued);
        cx.step(Step::Enqueue(key));
    }

    /// Reads an array from the disk for a call that waits for it.
    fn unspill(&mut self, cx: &mut Context, key: CallKey, id: HandleId) {
        if self
            .arrays
            .get(id)
            .is_some_and(|array| array.file.is_some())
        {
            return self.read_data_file(cx, key, id);
        }
        let bytes = self.arrays.get(id).map_or(0, |array| array.bytes);
        room::spill(self, cx, bytes);
        let user = cx.calls[key].user.clone();
        let grant = room::grant(self, cx, bytes, |memory, out| {
            memory.hold(bytes, &user, out)
        });
        let MemoryGrant::Here(buffer) = grant else {
            return self.await_memory(cx, key, id);
        };
        let Some(stored) = self.arrays.returning(id) else {
            return cx.memory.free(buffer, &mut cx.out);
        };
        let transfer = room::transfer_of(id, bytes, buffer);
        cx.disk
            .read(Purpose::Unspill(id, stored), transfer, stored, &mut cx.out);
    }

    /// Records that an array is on the disk, or why it is not.
    pub(crate) fn spilled(
        &mut self,
        cx: &mut Context,
        id: HandleId,
        buffer: MemoryKey,
        stored: Result<Stored, DiskError>,
    ) {
        let (is_on_disk, has_memory) = (stored.is_ok(), cx.memory.has(buffer));
        let (location, error) = match stored {
            Ok(stored) => {
                cx.memory.free(buffer, &mut cx.out);
                (Location::Disk(stored), None)
            }
            Err(error) => {
                tracing::error!("an array cannot be moved to disk: {}", error.text);
                (Location::Memory(buffer), Some(error))
            }
        };
        if let Some(lost) = self.arrays.left(id, location) {
            cx.free(lost);
        }
        match error {
            Some(error) if has_memory => {
                room::pause_writing(self, cx.now(), error.text);
            }
            // The system refused the memory while the array was on its way to the disk.
            Some(error) => arrays::refuse(&mut self.arrays, buffer, &error.text),
            None => {}
        }
        // It was dropped while it was written.
        if is_on_disk && self.arrays.get(id).is_none() {
            remove_file(cx, id);
        }
        self.turns.extend(cx, self.arrays.waiting());
        cx.has_room = true;
    }

    /// Records that an array is back in memory, or why it is not. If its bytes may still be read
    /// later, they stay on the disk.
    pub(crate) fn unspilled(
        &mut self,
        cx: &mut Context,
        id: HandleId,
        (buffer, stored): (MemoryKey, Stored),
        read: Result<(), DiskError>,
    ) {
        let is_known = self.arrays.get(id).is_some();
        let memory = match read {
            Err(error) if is_known && !error.is_damage => {
                return self.stays_on_disk(cx, id, (buffer, stored), &error);
            }
            Ok(()) => Ok(buffer),
            Err(error) => {
                tracing::error!("an array cannot be read: {}", error.text);
                Err((
                    buffer,
                    format!("it could not be read from the disk: {}", error.text),
                ))
            }
        };
        remove_file(cx, id);
        if let Some(lost) = self.arrays.returned(id, memory) {
            cx.free(lost);
        }
        cx.has_room |= self.turns.starves();
        self.turns.extend(cx, self.arrays.waiting());
    }

    /// Fails the calls that wait for an array which cannot be read from the disk now. The next call
    /// tries again.
    fn stays_on_disk(
        &mut self,
        cx: &mut Context,
        id: HandleId,
        (buffer, stored): (MemoryKey, Stored),
        error: &DiskError,
    ) {
        tracing::error!("an array cannot be read now: {}", error.text);
        cx.free(buffer);
        for call in self.arrays.not_read(id, Location::Disk(stored)) {
            let remedy = remedy(cx, call);
            let text = format!(
                "uses the array {id}, which cannot be read from the disk now: {}; {remedy}",
                error.text
            );
            cx.fail(call, FailureKind::Busy, &text);
        }
    }

    /// Ends the use of arrays by a call. `failed` says why the arrays that it writes are undefined.
    pub(crate) fn end_uses(&mut self, cx: &mut Context, key: CallKey, failed: Option<&str>) {
        let Some(call) = cx.calls.get_mut(key) else {
            return;
        };
        if call.uses.is_empty() {
            return;
        }
        let uses = std::mem::take(&mut call.uses);
        call.memory.data.clear();
        let (waiting, ended) = self.arrays.finish(key, &uses, failed);
        self.turns.extend(cx, waiting);
        for (id, remains) in ended {
            clear(cx, id, remains, Context::free);
        }
    }

    pub(super) fn get_array(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: HandleId,
    ) {
        let user = cx.clients[key].user.clone();
        // Anybody who knows the name of a loan may read the array once.
        let lent = self.arrays.redeem(id, cx.steady_ms());
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
                let get = ActiveCall::get(user, (key, request), bytes, wanted, cx.now());
                let call = cx.calls.insert(get);
                cx.clients[key].calls.insert(request, call);
                self.arrays.line_up(call, &[wanted]);
                self.await_turn(cx, call);
            }
            Err(failure) => cx.clients[key].proto.fail(request, &failure),
        }
    }

    /// Describes an array to a client. A lent array is described under another name, with which
    /// anybody may read it once.
    pub(super) fn tell_of_array(
        &mut self,
        cx: &mut Context,
        (key, request): (ConnectionKey, CallId),
        id: HandleId,
        lends: bool,
    ) {
        let user = &cx.clients[key].user;
        let record = self.readable(id, user).map(|_| self.arrays.record(id));
        let record = record.and_then(|record| {
            if !lends {
                return Ok(record);
            }
            let loan = HandleId(cx.ids.next());
            self.arrays.lend(id, loan, cx.steady_ms())?;
            Ok(record.map(|record| HandleRecord { id: loan, ..record }))
        });
        let proto = &mut cx.clients[key].proto;
        match record {
            Ok(Some(record)) => proto.handle(request, &record),
            Ok(None) => {}
            Err(failure) => proto.fail(request, &failure),
        }
    }

    pub(super) fn drop_array(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        request: CallId,
        id: HandleId,
    ) {
        let user = &cx.clients[key].user;
        match self.arrays.of_user(id, user) {
            Ok(_) => {
                self.tell_of_array(cx, (key, request), id, false);
                self.end_own(cx, id);
            }
            Err(failure) => {
                let failure = self.names.read_only(id).unwrap_or(failure);
                cx.clients[key].proto.fail(request, &failure);
            }
        }
    }

    pub(crate) fn end_array(&mut self, cx: &mut Context, id: HandleId) {
        self.end(cx, id, Context::free);
    }

    /// Ends an array for its user. Workers of other users may have mapped the memory of an array
    /// with a name.
    fn end_own(&mut self, cx: &mut Context, id: HandleId) {
        match self.names.is_named(id) {
            true => self.end(cx, id, Context::free),
            false => self.end(cx, id, Context::retire),
        }
    }

    fn end(&mut self, cx: &mut Context, id: HandleId, give: impl Fn(&mut Context, MemoryKey)) {
        self.names.forget(id);
        if let Some(remains) = self.arrays.drop_array(id) {
            clear(cx, id, remains, give);
        }
    }

    /// Ends the arrays of a connection that has ended, except those that stay.
    pub(crate) fn end_arrays_of(&mut self, cx: &mut Context, key: ConnectionKey) {
        for id in self.arrays.of_connection(key) {
            self.end_own(cx, id);
        }
    }

    /// Drops arrays whose retention is over.
    pub(crate) fn expire_arrays(&mut self, cx: &mut Context) {
        while let Some(id) = self.arrays.expired(cx.steady_ms()) {
            tracing::debug!("the array {id} has expired");
            self.end_array(cx, id);
        }
    }
}

/// What a client can do about a call that failed before it ran. The arrays that it would have
/// changed are undefined.
fn remedy(cx: &Context, call: CallKey) -> &'static str {
    let mut uses = cx.calls.get(call).into_iter().flat_map(|call| &call.uses);
    match uses.any(|wanted| wanted.writes && !wanted.replaces) {
        true => "put the arrays that it changes again, and repeat the call",
        false => "try again",
    }
}

/// Gives back what an array that has ended leaves behind.
fn clear(cx: &mut Context, id: HandleId, remains: Remains, give: impl Fn(&mut Context, MemoryKey)) {
    match remains {
        Remains::Memory(memory) => give(cx, memory),
        Remains::File => remove_file(cx, id),
    }
}

fn remove_file(cx: &mut Context, id: HandleId) {
    let file = Action::RemoveFile(JobId(id.0), Content::Array);
    cx.out.push(file);
}

/// Checks a stored array against the interface.
fn check_form(interface: &Interface, array: &ArrayLayout, known: &Array) -> Result<(), String> {
    let order = interface.order();
    let shape = array.shape(order);
    let column_major = order == Order::ColumnMajor;
    if known.form.fits(array.element, &shape, column_major) && known.bytes == array.bytes {
        return Ok(());
    }
    let form = |element: &str, shape: &[u64], column_major: bool| {
        let order = match (shape.len(), column_major) {
            (0 | 1, _) => "",
            (_, true) => " in columns",
            (_, false) => " in rows",
        };
        format!("{element} of shape {shape:?}{order}")
    };
    let fits_turned =
        known.bytes == array.bytes && known.form.fits(array.element, &shape, !column_major);
    let has_type = |ty| known.form.fits(ty, &shape, column_major);
    let needs_type = known.form.ty().is_ok_and(has_type) && !has_type(array.element);
    let remedy = match (fits_turned, column_major) {
        (false, _) if needs_type => format!("; put it again as {}", array.element.name()),
        (false, _) => String::new(),
        (true, true) => "; put it again in columns".to_string(),
        (true, false) => "; put it again in rows".to_string(),
    };
    let given = &known.form;
    Err(format!(
        "array `{}`: expected {}, given {}{remedy}",
        interface.params[array.param].name,
        form(array.element.name(), &shape, column_major),
        form(&given.element, &given.shape, given.column_major),
    ))
}

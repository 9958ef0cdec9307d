//! Admission: a call is checked and given memory, or waits until there is some.
//!
//! A client holds back the arguments of a large call until the server grants memory for them.
//! Meanwhile its connection is free for other calls.

use super::Engine;
use crate::action::{Action, Actions, Segment};
use crate::arrays::Use;
use crate::call::{ActiveCall, Durability, Printing};
use crate::clients::Starved;
use crate::connection::{Offer, Offered};
use crate::context::Context;
use crate::data::room;
use crate::durable_calls::next_starved;
use crate::flaw::{Flaw, has};
use crate::functions::Functions;
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey, WorkerKey};
use crate::map::Map;
use crate::memory::{Memory, MemoryGrant};
use crate::quota::{Owner, Quota};
use crate::reservations::deadlines;
use crate::settings::groups_of;
use crate::worker::TEXT_BYTES;
use farcall_idl::{Interface, Layout, Mode, SharedRange};
use farcall_rpc_proto::{Call, CallId, Failure, FailureKind, Nanos, User};
use std::rc::Rc;

/// The locations of a call's arrays in shared memory, and the segments there.
type Placed = (Vec<Option<SharedRange>>, Vec<Rc<Segment>>);

/// A call that was checked.
pub(super) struct Checked {
    pub(super) layout: Layout,
    /// The message for the worker.
    message: Vec<u8>,
    /// The segments that it names.
    segments: Vec<Rc<Segment>>,
    /// The stored arrays that it uses.
    uses: Vec<Use>,
}

/// A call that may be accepted.
struct Admissible {
    checked: Checked,
    /// The worker of its object, if it is a method.
    object: Option<WorkerKey>,
    durability: Durability,
}

impl Engine {
    /// Handles a request with data. It waits behind others of its connection that wait for a grant.
    pub(super) fn offer_in_turn(&mut self, key: ConnectionKey, offered: Offered) {
        let connection = &mut self.cx.clients[key];
        let waits = connection.proto.waits_for_grant(offered.offer.data_bytes());
        if waits && !connection.held.is_empty() {
            connection.held.push_back(offered);
        } else if waits && !self.cx.clients.takes_stream(key, &self.cx.calls) {
            self.cx.clients[key].held.push_back(offered);
        } else {
            return self.offer(key, offered);
        }
        self.cx.clients.note_holding(key);
    }

    /// Grants memory to a request, lets it wait for some, or refuses it.
    fn offer(&mut self, key: ConnectionKey, Offered { id, offer, asked }: Offered) {
        let offer = match offer {
            Offer::Put(put) => {
                let arrived = self.data.offer_put(&mut self.cx, key, id, put);
                return arrived.into_iter().for_each(|call| self.received(call));
            }
            Offer::Pull(pull) => return self.data.offer_pull(&mut self.cx, key, id, pull),
            offer => offer,
        };
        let Some(call) = offer.call() else { return };
        let admissible = match self.admissible(key, &offer, call) {
            Ok(admissible) => admissible,
            Err(failure) => return refuse(&mut self.cx, key, id, &failure),
        };
        match self.buffer_for(key, &admissible.checked, (call.data_bytes, asked)) {
            MemoryGrant::Here(buffer) => self.take((key, id), asked, call, admissible, buffer),
            MemoryGrant::Later => {
                let buffer = admissible.checked.layout.bytes;
                self.cx.await_room(key, offer.came(id, asked), buffer);
            }
            MemoryGrant::Never(failure) => {
                let failure = name_largest(
                    &self.cx.functions,
                    call,
                    &admissible.checked.layout,
                    failure,
                );
                refuse(&mut self.cx, key, id, &failure);
            }
        }
    }

    /// Whether a call may be accepted when there is memory for it.
    fn admissible(
        &mut self,
        key: ConnectionKey,
        offer: &Offer,
        call: &Call,
    ) -> Result<Admissible, Failure> {
        let object = self.objects.worker_of(&self.cx, key, offer, call)?;
        let checked = self.check(key, call)?;
        self.beyond_limits(key, call, &checked.layout)?;
        let (durable_calls, layout) = (&mut self.durable_calls, &checked.layout);
        let durability = durable_calls.durability(&mut self.cx, key, offer, layout)?;
        Ok(Admissible {
            checked,
            object,
            durability,
        })
    }

    /// Accepts a call that has its memory.
    fn take(
        &mut self,
        (key, id): (ConnectionKey, CallId),
        asked: Nanos,
        request: &Call,
        admissible: Admissible,
        buffer: Option<MemoryKey>,
    ) {
        let (cx, checked) = (&mut self.cx, admissible.checked);
        let now = cx.now();
        let user = cx.clients[key].user.clone();
        let client = Some((key, id));
        let mut call = ActiveCall::new(
            user,
            client,
            request.function,
            checked.message,
            checked.layout,
        );
        call.memory.buffer = buffer;
        call.memory.segments = checked.segments;
        if request.output && cx.clients[key].proto.takes_output() {
            call.printing = Some(Printing::new(now));
        }
        call.run.object = admissible.object;
        call.run.reservation = request.reservation;
        call.run.cause = request.trace;
        call.durability = admissible.durability;
        (call.times.asked, call.times.accepted) = (asked, now);
        call.clear_gaps(&mut cx.out);
        let call = cx.calls.insert(call);
        cx.clients[key].calls.insert(id, call);
        if let Err(failure) = self.durable_calls.reserve(cx, call) {
            cx.calls[call].durability = Durability::None;
            self.release(call);
            return refuse(&mut self.cx, key, id, &failure);
        }
        if let Err(failure) = promise(self, key, call, request.before) {
            self.release(call);
            return refuse(&mut self.cx, key, id, &failure);
        }
        let cx = &mut self.cx;
        self.data.arrays.line_up(call, &checked.uses);
        cx.calls[call].uses = checked.uses;
        if cx.clients[key].proto.accept(id, now) {
            self.received(call);
        }
    }

    /// Checks a call against its interface. Allocates nothing in proportion to its size.
    pub(super) fn check(&self, key: ConnectionKey, call: &Call) -> Result<Checked, Failure> {
        let cx = &self.cx;
        if let Some(failure) = cx.is_ending() {
            return Err(failure);
        }
        let connection = &cx.clients[key];
        let function = cx.functions.get(call.function)?;
        let bad = |error: String| {
            let name = function.interface.qualified_name();
            Failure::new(FailureKind::BadArgument, format!("{name}: {error}"))
        };
        let answers = connection.proto.answers_callbacks();
        if !answers && !function.interface.callbacks.is_empty() {
            let text = "has callbacks, which this client does not support; update the client";
            return Err(bad(text.to_string()));
        }
        if !connection.proto.moves_files() && function.interface.moves_files() {
            let text = "works on files of its caller, which this client does not support; update \
             the client";
            return Err(bad(text.to_string()));
        }
        let has_gpus = cx.has_gpus(function.interface.gpus);
        has_gpus.map_err(|failure| bad(failure.message))?;
        let layout = function.interface.layout(&call.scalars, &call.elements);
        let mut layout = layout.map_err(|error| bad(error.to_string()))?;
        let placed = places(&function.interface, &layout, call, &connection.segments);
        let (mut places, segments) = placed.map_err(bad)?;
        let (interface, user) = (&function.interface, &connection.user);
        let uses = self
            .data
            .uses(interface, &layout, call, user, &mut places)?;
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
            let text = format!("its scalars and strings exceed {TEXT_BYTES} bytes; use an array");
            return Err(bad(text));
        }
        if let Some(id) = call.reservation {
            let queue = &self.elements.queue;
            self.reservations.check(queue, user, id, cx.now())?;
        }
        Ok(Checked {
            layout,
            message,
            segments,
            uses,
        })
    }

    /// Why a user may not have another call. Limits that the operator has not set cost nothing.
    fn beyond_limits(
        &self,
        key: ConnectionKey,
        request: &Call,
        layout: &Layout,
    ) -> Result<(), Failure> {
        let cx = &self.cx;
        let user = &cx.clients[key].user;
        let within = |owner, quota: &Quota, is_own: &dyn Fn(&User) -> bool| {
            if !quota.is_limited() {
                return Ok(());
            }
            let own = cx.calls.values().filter(|call| is_own(&call.user));
            let (count, bytes) = own.fold((1, layout.bytes), |(count, bytes), call| {
                (count + 1, bytes.saturating_add(call.layout.bytes))
            });
            quota.allows_count(owner, count)?;
            let allowed = quota.allows_bytes(owner, bytes);
            allowed.map_err(|failure| name_largest(&cx.functions, request, layout, failure))
        };
        within(
            Owner::User(user),
            &cx.settings.limits.calls_of_user(),
            &|one| one == user,
        )?;
        for (owner, group) in groups_of(&cx.settings.groups, user) {
            within(owner, &group.calls(), &|one| group.has(one))?;
        }
        Ok(())
    }

    /// Memory for a call, if it needs any.
    fn buffer_for(
        &mut self,
        key: ConnectionKey,
        checked: &Checked,
        (sent, asked): (u64, Nanos),
    ) -> MemoryGrant<Option<MemoryKey>> {
        let (cx, bytes) = (&self.cx, checked.layout.bytes);
        if bytes == 0 {
            return MemoryGrant::Here(None);
        }
        // Others come first, unless the call is small, or calls behind it on the connection must be
        // completed.
        let is_small = bytes <= Memory::SMALL;
        let waits = cx.clients[key].proto.waits_for_grant(sent);
        let is_first = is_small || (cx.clients.is_receiving(key, &cx.calls) && !waits);
        if !is_first && is_behind(self, key, (sent, bytes), asked) {
            return MemoryGrant::Later;
        }
        let cx = &mut self.cx;
        let leaves_turns = room::leaves_turns(&self.data, cx, bytes, &checked.uses);
        if !leaves_turns && !cx.may_call_back(key) {
            return MemoryGrant::Later;
        }
        let user = cx.clients[key].user.clone();
        let take = |memory: &mut Memory, out: &mut Actions| memory.take(bytes, &user, out);
        room::grant(&mut self.data, cx, bytes, take).map(Some)
    }

    /// Forgets a request that may wait for a grant.
    pub(super) fn forget_held(&mut self, key: ConnectionKey, id: CallId) {
        let clients = &mut self.cx.clients;
        let connection = &mut clients[key];
        // The one behind it may want less memory.
        let was_first = connection.held.front().is_some_and(|held| held.id == id);
        connection.held.retain(|held| held.id != id);
        if was_first && connection.waiting.is_none() && clients.is_starved(key) {
            clients.forget_starved(key);
            self.cx.has_room = true;
        }
    }

    /// Continues with requests that waited behind others of their connection.
    pub(super) fn grant_held(&mut self) {
        for key in std::mem::take(&mut self.cx.clients.holding) {
            while self.cx.clients.is_open(key)
                && !self.cx.clients.is_starved(key)
                && self.cx.clients.takes_stream(key, &self.cx.calls)
                && let Some(offered) = self.cx.clients[key].held.pop_front()
            {
                self.offer(key, offered);
                self.cx.answered(key);
            }
            let clients = &mut self.cx.clients;
            if clients.is_open(key) && !clients[key].held.is_empty() {
                clients.note_holding(key);
            }
        }
    }

    /// Continues with requests that wait for memory. The first of them keeps its turn, so that
    /// smaller ones cannot overtake it for ever.
    pub(super) fn serve_starved(&mut self) {
        if has(Flaw::ForgetsStarved) {
            return;
        }
        while let Some((starved, _)) = self.cx.clients.next_starved(&self.cx.memory) {
            let key = starved.connection;
            self.cx.clients.forget_starved(key);
            if !self.cx.clients.is_open(key) {
                continue;
            }
            let connection = &mut self.cx.clients[key];
            let takeover = &self.takeover;
            let waiting = connection
                .waiting
                .take_if(|waiting| !takeover.holds(&waiting.offer));
            let blocked = waiting.is_some();
            let Some(offered) = waiting.or_else(|| connection.held.pop_front()) else {
                continue;
            };
            let others = self.cx.clients.take_starved();
            self.offer(key, offered);
            self.cx.answered(key);
            let still_starved = !self.cx.clients.take_starved().is_empty();
            self.cx.clients.return_starved(others);
            if still_starved {
                return self.cx.clients.note_starved(starved);
            }
            if blocked {
                self.cx.out.push(Action::Resume(key));
            }
        }
    }
}

/// Whether others go before a request that sends so many bytes, for a buffer of this size.
fn is_behind(engine: &Engine, key: ConnectionKey, bytes: (u64, u64), asked: Nanos) -> bool {
    let cx = &engine.cx;
    let is_behind = engine.data.turns.starves() || {
        let own = Starved::new(key, bytes, asked);
        let rank = cx.clients.rank(&own, &cx.memory);
        let durable = next_starved(&engine.durable_calls, cx);
        durable.is_some_and(|first| first < rank)
    };
    // A running call may wait for this one, which is then refused if it cannot begin.
    if is_behind && !cx.may_call_back(key) {
        return true;
    }
    let own = Starved::new(key, bytes, cx.now());
    cx.clients.is_behind_starved(&own, &cx.memory)
}

/// Refuses a call, which then counts as refused.
fn refuse(cx: &mut Context, key: ConnectionKey, id: CallId, failure: &Failure) {
    cx.totals.refused += 1;
    cx.audit_refusal(key, &failure.message);
    cx.clients[key].proto.fail(id, failure);
}

/// Promises a call that it will end in time, if it must.
fn promise(
    engine: &mut Engine,
    key: ConnectionKey,
    call: CallKey,
    before: Option<u64>,
) -> Result<(), Failure> {
    let Some(before) = before else {
        return Ok(());
    };
    let cx = &mut engine.cx;
    let (_, down) = engine.links.rates_to(cx.clients[key].peer.host);
    let queue = &mut engine.elements.queue;
    let reservations = &mut engine.reservations;
    let booking = deadlines::promise(reservations, cx, queue, call, (before, down))?;
    cx.calls[call].run.reservation = Some(booking);
    cx.calls[call].run.is_promised = true;
    Ok(())
}

/// Adds the function and its largest array to a failure for lack of memory.
fn name_largest(functions: &Functions, call: &Call, layout: &Layout, failure: Failure) -> Failure {
    let Ok(function) = functions.get(call.function) else {
        return failure;
    };
    let interface = &function.interface;
    let largest = layout.travelling().max_by_key(|array| array.bytes);
    let share = largest.map_or_else(String::new, |array| {
        let name = &interface.params[array.param].name;
        format!("; the largest array, `{name}`, has {} bytes", array.bytes)
    });
    let text = format!("{}: {}{share}", interface.qualified_name(), failure.message);
    Failure::new(failure.kind, text)
}

/// The locations of a call's arrays by segment number, and these segments.
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
        if array.is_shrunk {
            return Err(format!(
                "a part of array `{name}` under Shrink cannot lie in shared memory; update the \
                 client, or let it connect with same_host=False"
            ));
        }
        if !used.iter().any(|used| used.memory == segment.memory) {
            used.push(segment.clone());
        }
        places.push(Some(SharedRange {
            segment: segment.memory.number(),
            ..*place
        }));
    }
    Ok((places, used))
}

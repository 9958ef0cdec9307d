//! The life of a durable call: received, written to the disk, recorded, run, and its results
//! stored.
//!
//! From the moment it is recorded, the call no longer depends on its client. The client is told
//! only after the journal has confirmed the record. A call that may run twice begins while its
//! record is written, and the record of its outcome follows at once.

mod backlog;
pub(crate) mod requests;

pub(crate) use backlog::look_for_functions;
pub(crate) use requests::stage_of;

use crate::action::{Action, Haste, Transfer};
use crate::call::{self, ActiveCall, Durability};
use crate::clients::{Rank, due};
use crate::connection::Offer;
use crate::context::{Context, Step, lacks_memory};
use crate::disk::{Fetch, Purpose};
use crate::durable::{Durable, Served, Stage, note_audited};
use crate::elements::Elements;
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use crate::lifecycle::Change;
use crate::record::{Changed, Content, DiskError, MOST_SHORT, Outcome, Record, Stored};
use crate::settings::Group;
use crate::unconfirmed::{Submission, Unconfirmed};
use farcall_idl::Layout;
use farcall_rpc_proto::{
    Direction, DurableState, Failure, FailureKind, JobId, Nanos, Pieces, Side, User,
};

/// Waiting calls may hold one such part of the server's memory.
const SHARE_OF_MEMORY: u64 = 4;

/// So many calls of one user, and two for each processor element, wait and run in memory. The
/// others wait on the disk.
const WAITING: usize = 64;

/// A call fails after so many tries: its worker was killed, it had no memory, or its arguments
/// could not be read.
const MOST_TRIES: u32 = 10;

/// Bytes of the interface and of the message of a call together. Both are in the answer about the
/// call, beside its record, and a client reads at most 1 MiB.
const MOST_DESCRIBED: usize = (1 << 20) - (64 << 10);

/// Whether the disk has finished everything that an ending server must wait for.
pub(crate) fn is_settled(durable: &DurableCalls, cx: &Context) -> bool {
    !cx.disk.writes_results() && durable.unconfirmed().is_none_or(Unconfirmed::is_empty)
}

/// The rank of what is next to get memory, of all that waits for some which others have. See
/// [`Clients::next_starved`](crate::clients::Clients::next_starved).
pub(crate) fn next_starved(calls: &DurableCalls, cx: &Context) -> Option<Rank> {
    let durable = calls.durable.as_ref()?;
    let results = durable.starved.iter();
    let results = results.filter_map(|fetch| rank_of_results(durable, cx, fetch));
    results.chain(rank_of_call(durable, cx)).min()
}

/// The rank of what needs so many bytes since then. `None` if its own user must give some back
/// first: it is in nobody's way then.
fn rank(cx: &Context, user: &User, bytes: u64, since: Nanos) -> Option<Rank> {
    let awaits_own = cx.memory.awaits_own(bytes, user);
    (!awaits_own).then(|| (cx.memory.held_by(user), due(bytes, since)))
}

/// The rank of results that wait for memory.
fn rank_of_results(durable: &Durable, cx: &Context, fetch: &Fetch) -> Option<Rank> {
    let call = durable.get(fetch.id)?;
    rank(cx, &call.user, call.record.result.bytes, fetch.since)
}

/// The rank of the call of the backlog that waits for memory which other calls have.
fn rank_of_call(durable: &Durable, cx: &Context) -> Option<Rank> {
    let lack = durable.lacks.filter(|lack| lack.fits)?;
    rank(cx, &durable.get(lack.id)?.user, lack.bytes, lack.since)
}

/// Whether a connection, or results, wait for memory and go before something on the disk.
fn is_behind(durable: &Durable, cx: &Context, own: Rank) -> bool {
    let goes_before = |first: Option<Rank>| first.is_some_and(|first| first <= own);
    // Most of them come in the order of their ranks: the last one that waits is the nearest.
    let mut results = durable.starved.iter().rev();
    results.any(|fetch| goes_before(rank_of_results(durable, cx, fetch)))
        || goes_before(cx.clients.next_starved(&cx.memory).map(|(_, rank)| rank))
}

/// Whether a call of this size may wait in memory, beside those that wait there already. Calls that
/// run leave their part to others.
fn has_room(durable: &Durable, cx: &Context, bytes: u64) -> bool {
    let limit = cx.settings.limits.memory / SHARE_OF_MEMORY;
    let fits = |held: u64| held == 0 || held.saturating_add(bytes) <= limit;
    let waits = |call: &&ActiveCall| {
        let runs = matches!(call.state, call::State::Running { .. });
        call.job_id().is_some() && !runs
    };
    let waiting = || cx.calls.values().filter(waits);
    fits(durable.held) || fits(waiting().map(|call| call.layout.bytes).sum())
}

/// Durable calls, if the server has a state folder.
#[derive(Default)]
pub(crate) struct DurableCalls {
    durable: Option<Durable>,
}

impl DurableCalls {
    /// Takes over the state folder, with its records.
    /// `served` is how long servers have served with the folder before.
    pub(crate) fn opened(&mut self, cx: &mut Context, records: Vec<Record>, served: u64) {
        let limits = cx.settings.durable.clone();
        let served = Served::new(cx.now(), served);
        let most = WAITING + 2 * cx.settings.queue.pes as usize;
        self.durable = Some(Durable::new(limits, most, records, served, &mut cx.disk));
        cx.disk.takes_arrays = true;
        cx.has_room = true;
    }

    /// The calls whose record is on its way, if the server takes durable calls.
    pub(crate) fn unconfirmed(&self) -> Option<&Unconfirmed> {
        self.durable.as_ref().map(|durable| &durable.unconfirmed)
    }

    /// Whether a call that waits on the disk, or its results, need memory that others have.
    pub(crate) fn await_memory(&self) -> bool {
        self.durable.as_ref().is_some_and(Durable::awaits_memory)
    }

    fn durable(&mut self) -> Result<&mut Durable, Failure> {
        self.durable.as_mut().ok_or_else(|| {
            let text = "this server takes no durable calls; start it with --state DIR";
            Failure::new(FailureKind::BadArgument, text)
        })
    }

    /// Whether an offered call is durable, with its record.
    pub(crate) fn durability(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        offer: &Offer,
        layout: &Layout,
    ) -> Result<Durability, Failure> {
        let Offer::SubmitRequest(submission) = offer else {
            return Ok(Durability::None);
        };
        let keep = self.durable()?.keep_for(submission.keep);
        let function = cx.functions.get(submission.call.function)?;
        let name = function.interface.qualified_name().into_owned();
        let bad = |text: &str| {
            let text = format!("{name} cannot be a durable call: {text}");
            Failure::new(FailureKind::BadArgument, text)
        };
        if !function.interface.callbacks.is_empty() {
            return Err(bad("it has callbacks"));
        }
        if function.interface.moves_files() {
            return Err(bad("it works on files of its caller"));
        }
        if !submission.call.handles.is_empty() {
            return Err(bad(
                "stored arrays do not survive a restart of the server; pass the arrays themselves",
            ));
        }
        if !submission.call.places.is_empty() {
            return Err(bad(
                "its arrays are in memory that belongs to the connection",
            ));
        }
        let mut call = Vec::new();
        submission.call.encode(&mut call);
        let interface = function.interface.public_text();
        if interface.len() + call.len() > MOST_DESCRIBED {
            let text = "its interface, scalars and strings together exceed";
            return Err(bad(&format!("{text} {MOST_DESCRIBED} bytes; use an array")));
        }
        let id = JobId(cx.ids.next());
        let user = cx.clients[key].user.clone();
        let stored = |bytes| Stored { bytes, sum: 0 };
        let record = Record {
            number: 0,
            id,
            user: user.name().into(),
            interface: interface.into(),
            repeatable: function.interface.repeatable,
            function: name.into(),
            call,
            big_endian: false,
            state: DurableState::Queued,
            submitted: cx.clock.now.unix_ms,
            started: None,
            ended: None,
            kept_from: None,
            keep,
            arguments: stored(layout.sent_bytes()),
            result: stored(layout.returned_bytes()),
            made: None,
            exec: None,
            failure: None,
        };
        Ok(Durability::Submitting(Box::new(record), user))
    }

    /// Reserves room on the disk for a call.
    pub(crate) fn reserve(&mut self, cx: &mut Context, call: CallKey) -> Result<(), Failure> {
        match (&cx.calls[call].durability, &mut self.durable) {
            (Durability::Submitting(record, user), Some(durable)) => {
                durable.reserve(user, record, &cx.settings.groups, &mut cx.disk)
            }
            _ => Ok(()),
        }
    }

    /// Frees what a call that leaves memory had reserved, on the disk or in memory.
    pub(crate) fn leave_memory(&mut self, cx: &mut Context, call: &ActiveCall) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        cx.has_room = true;
        match &call.durability {
            Durability::None => {}
            Durability::Submitting(record, user) => {
                durable.unreserve(user, record, &mut cx.disk);
            }
            Durability::Recorded(id) => {
                durable.held = durable.held.saturating_sub(call.layout.bytes);
                let client = call.connection.map(|connection| (connection, call.id));
                durable.unconfirmed.leaves_memory(*id, client);
                durable.set_stage(*id, Stage::Disk);
                if call.run.is_audited {
                    note_audited(durable, *id);
                }
            }
        }
    }

    /// Writes the arguments of a durable call to the disk.
    pub(crate) fn store_arguments(&mut self, cx: &mut Context, key: CallKey) {
        let call = &mut cx.calls[key];
        call.enter(call::State::OnDisk);
        let Durability::Submitting(record, _) = &mut call.durability else {
            return;
        };
        record.big_endian = call.streams.swap != cfg!(target_endian = "big");
        let id = record.id;
        if record.arguments.bytes == 0 {
            return self.record_call(cx, key, Stored::default());
        }
        let pieces = Pieces::new(&call.layout, Direction::Sent, Side::Buffer);
        let about = (record.arguments.bytes > MOST_SHORT).then(|| record.clone());
        let Some(memory) = call.memory.buffer.take() else {
            return;
        };
        let transfer = Transfer {
            id,
            content: Content::Arguments,
            memory,
            pieces,
            about,
        };
        cx.disk.write(Purpose::Submit(key), transfer, &mut cx.out);
    }

    /// Records a call whose arguments are on the disk.
    fn record_call(&mut self, cx: &mut Context, key: CallKey, arguments: Stored) {
        let Durability::Submitting(record, user) = &mut cx.calls[key].durability else {
            return;
        };
        // Memory and journal hold the same record, because the call may be read back from the disk.
        record.arguments = arguments;
        let (id, user, record) = (record.id, user.clone(), (**record).clone());
        let runs_ahead = record.repeatable && self.has_room_for(cx, key, &user);
        let function = cx.functions.get(cx.calls[key].function).ok();
        let is_brief = function.is_some_and(|function| function.brief().is_some());
        let haste = match runs_ahead && is_brief {
            true => Haste::Soon,
            false => Haste::Now,
        };
        if let Some(durable) = &mut self.durable {
            let unconfirmed = &mut durable.unconfirmed;
            unconfirmed.insert(record, key, haste, &mut cx.out);
        }
        if runs_ahead {
            self.run(cx, key);
        }
        if has(Flaw::AcknowledgesEarly) {
            let (call, client) = (key, None);
            Submission { call, client }.acknowledge(cx, id);
        }
    }

    /// Whether a call may stay in memory, where it waits for its turn.
    fn has_room_for(&self, cx: &Context, key: CallKey, user: &User) -> bool {
        let bytes = cx.calls[key].layout.bytes;
        self.durable
            .as_ref()
            .is_some_and(|durable| has_room(durable, cx, bytes) && durable.may_load(user))
    }

    /// Lets a durable call wait in memory for its turn. Its record is in the journal, or follows.
    fn run(&mut self, cx: &mut Context, key: CallKey) {
        let call = &mut cx.calls[key];
        let durability = std::mem::replace(&mut call.durability, Durability::None);
        let (Durability::Submitting(record, user), Some(durable)) = (durability, &mut self.durable)
        else {
            return;
        };
        call.durability = Durability::Recorded(record.id);
        // What it prints goes to the log, whether its client still waits or not.
        call.printing = None;
        durable.held += call.layout.bytes;
        durable.accept(*record, user, Stage::Memory(key));
        cx.step(Step::Enqueue(key));
    }

    /// Handles a recorded call that waits for its turn from now on.
    fn call_recorded(&mut self, cx: &mut Context, elements: &Elements, key: CallKey, number: u64) {
        let Durability::Submitting(record, user) = &mut cx.calls[key].durability else {
            return;
        };
        record.number = number;
        let (id, user) = (record.id, user.clone());
        let has_begun = elements.has_begun(&cx.calls[key], cx.now());
        if has_begun || self.has_room_for(cx, key, &user) {
            return self.run(cx, key);
        }
        let durability = std::mem::replace(&mut cx.calls[key].durability, Durability::None);
        if let (Durability::Submitting(record, user), Some(durable)) =
            (durability, &mut self.durable)
        {
            durable.accept(*record, user, Stage::Disk);
            durable.await_turn(id);
            cx.step(Step::Release(key));
        }
    }

    /// Handles the journal's answer to a new call. Returns the client that has learned it.
    pub(crate) fn inserted(
        &mut self,
        cx: &mut Context,
        elements: &Elements,
        id: JobId,
        number: Result<u64, Failure>,
    ) -> Option<ConnectionKey> {
        let durable = self.durable.as_mut()?;
        let submission = durable.unconfirmed.inserted(id)?;
        match number {
            Ok(number) => {
                let runs = durable.confirm(id, number);
                let told = submission.acknowledge(cx, id);
                if !runs {
                    self.call_recorded(cx, elements, submission.call, number);
                }
                let (connection, fetch) = told?;
                if let Some(request) = fetch {
                    self.fetch(cx, connection, request, id);
                }
                Some(connection)
            }
            Err(failure) => {
                cx.out.push(Action::RemoveFile(id, Content::Arguments));
                let runs = durable.withdraw(id, &mut cx.disk);
                if runs {
                    // It may have ended before.
                    cx.out.push(Action::RemoveFile(id, Content::Result));
                }
                submission.refuse(cx, &failure, runs)
            }
        }
    }

    /// Removes the results of a call that was forgotten.
    pub(crate) fn forgotten(&mut self, cx: &mut Context, id: JobId) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        // Its arguments went when it ended.
        if durable.unconfirmed.forgotten(id) {
            cx.out.push(Action::RemoveFile(id, Content::Result));
        }
    }

    pub(crate) fn arguments_written(
        &mut self,
        cx: &mut Context,
        key: CallKey,
        stored: Result<Stored, DiskError>,
    ) {
        let call = &cx.calls[key];
        let Durability::Submitting(record, _) = &call.durability else {
            return;
        };
        match stored {
            Ok(stored) if call.connection.is_some() => self.record_call(cx, key, stored),
            // Its client has given it up meanwhile.
            Ok(_) => {
                cx.out
                    .push(Action::RemoveFile(record.id, Content::Arguments));
                cx.audit_call(key, "given up");
                cx.note_call(key, "given up");
                cx.step(Step::Release(key));
            }
            Err(error) => {
                let (call, client) = (key, None);
                Submission { call, client }.refuse(cx, &storage(&error), false);
            }
        }
    }

    /// Lets a call whose worker was killed run again, from the arguments on the disk, because those
    /// in memory may have changed. After some such runs, the call fails.
    pub(crate) fn run_again(&mut self, cx: &mut Context, key: CallKey, failure: &Failure) {
        let (Some(durable), Some(id)) = (&mut self.durable, cx.calls[key].job_id()) else {
            return;
        };
        match durable.counts_loss(id) {
            tries if tries < MOST_TRIES => {
                tracing::info!("{id} runs again: it or its worker {}", failure.message);
                if lacks_memory(cx, key) {
                    durable.rests_until = Some(cx.retry_at());
                }
                cx.step(Step::Release(key));
                cx.step(Step::Record(
                    id,
                    Change::RestartRepeatable,
                    Outcome::default(),
                ));
            }
            tries => {
                let text = format!("{} ({tries} tries)", failure.message);
                cx.fail(key, failure.kind, &text);
            }
        }
    }

    /// Writes the results of a durable call to the disk.
    pub(crate) fn store_result(&mut self, cx: &mut Context, key: CallKey, exec: u64) {
        let now = cx.now();
        let call = &mut cx.calls[key];
        let bytes = call.layout.returned_bytes();
        let Some(id) = call.job_id() else {
            return;
        };
        let made = call.run.made.clone();
        call.enter(call::State::OnDisk);
        (call.times.ended, call.times.exec) = (now, exec);
        let pieces = Pieces::new(&call.layout, Direction::Returned, Side::Buffer);
        match call.memory.buffer.take() {
            Some(memory) if bytes > 0 => {
                let durable = self.durable.as_ref().filter(|_| bytes > MOST_SHORT);
                let transfer = Transfer {
                    id,
                    content: Content::Result,
                    memory,
                    pieces,
                    about: durable
                        .and_then(|durable| durable.ended_record(id, (exec, made), cx.clock.now)),
                };
                cx.disk
                    .write(Purpose::Finish(key, exec), transfer, &mut cx.out);
            }
            buffer => {
                call.memory.buffer = buffer;
                self.result_written(cx, key, exec, Ok(Stored::default()));
            }
        }
    }

    pub(crate) fn result_written(
        &mut self,
        cx: &mut Context,
        key: CallKey,
        exec: u64,
        stored: Result<Stored, DiskError>,
    ) {
        let Some(id) = cx.calls[key].job_id() else {
            return;
        };
        let stored = match stored {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!("the results of {id} cannot be stored: {}", error.text);
                let text = format!("has results that cannot be stored: {}", error.text);
                return cx.fail(key, FailureKind::StorageFault, &text);
            }
        };
        let made = cx.calls[key].run.made.take();
        if is_over(self.durable.as_ref(), id) {
            let (function, outcome) = (cx.calls[key].function, FailureKind::Cancelled.name());
            cx.totals.count_failure(function, &mut cx.functions);
            cx.audit_call(key, outcome);
            cx.note_call(key, outcome);
            cx.step(Step::Release(key));
            return cx.out.push(Action::RemoveFile(id, Content::Result));
        }
        cx.account(key);
        cx.step(Step::Release(key));
        let outcome = Outcome {
            result: Some(stored),
            exec: Some(exec),
            failure: None,
            made,
        };
        cx.step(Step::Record(id, Change::Finish, outcome));
    }

    /// Handles a recorded change; `None` if the journal does not know the call.
    pub(crate) fn changed(&mut self, cx: &mut Context, id: JobId, changed: Option<&Changed>) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        durable.unconfirmed.confirmed();
        let Some(changed) = changed else { return };
        let (fetches, asked) = durable.changed(id, changed, &mut cx.disk);
        let Some(kept) = durable.get(id) else { return };
        let (state, stage) = (kept.record.state, kept.stage);
        let [arguments, result] = [Content::Arguments, Content::Result]
            .map(|content| kept.record.stored(content).bytes > 0);
        let is_cancelled = changed.change == Change::Cancel && changed.applied;
        if is_cancelled && !matches!(stage, Stage::Memory(_)) {
            audit_on_disk(durable, cx, id, FailureKind::Cancelled);
        }
        if changed.change == Change::Start && changed.applied {
            return match stage {
                Stage::Memory(call) => cx.step(Step::Begin(call)),
                Stage::Disk | Stage::Unserved => {}
            };
        }
        if changed.change == Change::RestartRepeatable && changed.applied {
            durable.await_turn(id);
            cx.has_room = true;
            // A draining server does not begin with it again.
            if cx.draining {
                self.refuse_stranded(cx);
            }
            return;
        }
        if state.is_over() && changed.applied {
            if arguments {
                cx.out.push(Action::RemoveFile(id, Content::Arguments));
            }
            if result && (state != DurableState::Done || has(Flaw::RemovesResults)) {
                cx.out.push(Action::RemoveFile(id, Content::Result));
            }
            durable.leave_backlog(id);
            // The calls behind it may need less memory.
            cx.has_room |= durable.lacks.is_some();
        }
        if let Stage::Memory(call) = stage
            && state.is_over()
        {
            let text = "was ended because its user cancelled the call";
            let reason = Failure::new(FailureKind::Cancelled, text);
            cx.step(Step::TearDown(call, reason));
        }
        // They have waited for the call, and need memory only from now on.
        let since = cx.now();
        for fetch in fetches {
            self.serve_fetch(cx, Fetch { since, ..fetch });
        }
        for asked in asked {
            self.tell_of_change(cx, id, asked);
        }
    }

    /// Records a change of a call. A start that nothing waits for happens at once.
    pub(crate) fn record(&mut self, cx: &mut Context, id: JobId, change: Change, outcome: Outcome) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let is_awaited = durable.change(id, change, outcome, &mut cx.out);
        if change == Change::Start
            && !is_awaited
            && let Some(Stage::Memory(call)) = durable.get(id).map(|known| known.stage)
        {
            cx.step(Step::Begin(call));
        }
    }

    /// Durable calls of the users of a group, and their bytes.
    pub(crate) fn usage_of(&self, group: &Group) -> (usize, u64) {
        let usage = self.durable.as_ref().map(|durable| durable.usage_of(group));
        usage.unwrap_or_default()
    }

    /// Number of calls in each state, by its index in [`DurableState::ALL`].
    pub(crate) fn counts(&self) -> [usize; DurableState::ALL.len()] {
        let counts = self.durable.as_ref().map(Durable::counts);
        counts.unwrap_or_default()
    }
}

/// Whether a call has ended, or is not there any more.
fn is_over(durable: Option<&Durable>, id: JobId) -> bool {
    let known = durable.and_then(|durable| durable.get(id));
    known.is_none_or(|known| known.record.state.is_over())
}

/// Tells the audit log that a call has ended which is on the disk only. Its first end counts.
fn audit_on_disk(durable: &mut Durable, cx: &mut Context, id: JobId, why: FailureKind) {
    let known = durable.get(id).filter(|known| !known.is_audited);
    if let Some(known) = known {
        cx.audit_on_disk(&known.record, &known.user, why);
        note_audited(durable, id);
    }
}

/// Records that a durable call has failed.
pub(crate) fn record_failure(cx: &mut Context, id: JobId, failure: Failure) {
    let outcome = Outcome {
        failure: Some(failure),
        ..Outcome::default()
    };
    cx.step(Step::Record(id, Change::Fail, outcome));
}

fn not_there(id: JobId) -> Failure {
    let text = format!("there is no durable call {id} any more");
    Failure::new(FailureKind::NotFound, text)
}

/// The failure for a call that the disk did not take.
fn storage(error: &DiskError) -> Failure {
    let text = match error.is_full {
        true => format!(
            "the server's disk is full: {}; forget durable calls that you have fetched, or wait",
            error.text
        ),
        false => format!("the server cannot record the call: {}", error.text),
    };
    Failure::new(FailureKind::StorageFault, text)
}

#[cfg(test)]
mod tests;

//! Durable calls: the table of all of them, as the journal has confirmed it.
//!
//! A durable call outlives its connection and the server. Its data are files, its history is in the
//! journal, and its states are the table in `lifecycle`. The shell writes and reads; this module
//! never reports a change before the journal has recorded it. A call that began before the journal
//! has confirmed its record is in the table without a number, and no client finds it.

use crate::action::{Actions, Haste};
use crate::disk::{Disk, Fetch};
use crate::event::Now;
use crate::keys::{CallKey, ConnectionKey};
use crate::lifecycle::Change;
use crate::map::{Map, Set};
use crate::quota::Owner;
use crate::record::{Changed, DiskError, Entry, Outcome, Record, Texts};
use crate::settings::{DurableLimits, Group, Groups, groups_of};
use crate::unconfirmed::Unconfirmed;
use farcall_rpc_proto::{
    CallId, DurablePage, DurableRecord, DurableState, Failure, FailureKind, JobId, Made, Nanos,
    Times, User,
};
use std::collections::btree_map;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Durable calls in one page of a list.
const PAGE: usize = 128;

/// A client's question that is answered after the journal has recorded a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    /// Whether the call is forgotten then.
    pub(crate) forget: bool,
}

/// Where a durable call is, besides the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Only on the disk: it waits for its turn, or has ended.
    Disk,
    /// Only on the disk: it waits until this server has its function.
    Unserved,
    /// In memory, as an active call.
    Memory(CallKey),
}

/// One durable call.
pub(crate) struct DurableCall {
    pub(crate) record: Record,
    pub(crate) user: User,
    pub(crate) stage: Stage,
    /// Clients that wait for its end.
    fetches: Vec<Fetch>,
    /// Who asked for its cancellation.
    asked: Vec<Asked>,
    /// Number of its workers that were killed.
    losses: u32,
    /// Whether the audit log has its end. The journal may not have recorded that yet.
    pub(crate) is_audited: bool,
}

/// What one user occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    calls: usize,
    bytes: u64,
    /// Calls that are in memory, as active calls.
    in_memory: usize,
}

/// The calls that wait on the disk for their turn.
struct Backlog {
    /// Their numbers, by user.
    numbers: BTreeMap<User, BTreeSet<u64>>,
    /// Most calls of one user that wait or run in memory.
    most_in_memory: usize,
}

/// How long servers have served with the state folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    /// When this server began.
    opened: Nanos,
    /// Milliseconds before that.
    before: u64,
}

impl Served {
    pub(crate) fn new(opened: Nanos, before: u64) -> Served {
        Served { opened, before }
    }

    /// The milliseconds until now.
    pub(crate) fn until(self, now: Nanos) -> u64 {
        self.before
            .saturating_add(now.saturating_sub(self.opened) / 1_000_000)
    }
}

/// A call on the disk that waits for memory which others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) id: JobId,
    pub(crate) bytes: u64,
    pub(crate) since: Nanos,
    /// Whether there will be memory for it when other calls have ended. Otherwise it waits for
    /// clients to return some, and nobody waits behind it.
    pub(crate) fits: bool,
}

/// All durable calls.
pub(crate) struct Durable {
    settings: DurableLimits,
    /// Retention counts the time for which servers serve.
    served: Served,
    /// In boxes, because a table has room for many more.
    calls: Map<JobId, Box<DurableCall>>,
    texts: Texts,
    /// In the order of submission.
    numbers: BTreeMap<u64, JobId>,
    /// The greatest number that a call of an earlier server had.
    inherited: u64,
    backlog: Backlog,
    expiries: BTreeSet<(u64, JobId)>,
    usage: Map<User, Usage>,
    pub(crate) unconfirmed: Unconfirmed,
    /// Bytes of memory that calls hold which wait or run.
    pub(crate) held: u64,
    /// Connections with questions that could not be answered at once.
    clients: Set<ConnectionKey>,
    /// Fetches that wait for memory.
    pub(crate) starved: VecDeque<Fetch>,
    /// The next call of the backlog, if others have the memory that it needs.
    pub(crate) lacks: Option<Lack>,
    /// Until when no call is read from the disk, because the system could not read one.
    pub(crate) rests_until: Option<Nanos>,
}

impl Durable {
    /// Continues with the records of an earlier server, each moved to the state that holds after a
    /// restart. At most `most_in_memory` calls of one user wait or run in memory.
    pub(crate) fn new(
        settings: DurableLimits,
        most_in_memory: usize,
        records: Vec<Record>,
        served: Served,
        disk: &mut Disk,
    ) -> Durable {
        let mut durable = Durable {
            settings,
            served,
            calls: Map::default(),
            texts: Texts::default(),
            numbers: BTreeMap::new(),
            inherited: records.last().map_or(0, |record| record.number),
            backlog: Backlog {
                numbers: BTreeMap::new(),
                most_in_memory,
            },
            expiries: BTreeSet::new(),
            usage: Map::default(),
            unconfirmed: Unconfirmed::default(),
            held: 0,
            clients: Set::default(),
            starved: VecDeque::new(),
            lacks: None,
            rests_until: None,
        };
        for record in records {
            let (id, is_queued) = (record.id, record.state == DurableState::Queued);
            if is_queued {
                disk.promised = disk.promised.saturating_add(record.result.bytes);
            }
            let user = User::named(&record.user);
            durable.count(&user, 1, record.bytes());
            durable.accept(record, user, Stage::Disk);
            if is_queued {
                durable.await_turn(id);
            }
        }
        durable
    }

    /// Whether a call was submitted to this server, and not to an earlier one.
    pub(crate) fn is_own(&self, record: &Record) -> bool {
        record.number > self.inherited
    }

    /// Adds a call that is recorded, or that runs before it is.
    pub(crate) fn accept(&mut self, mut record: Record, user: User, stage: Stage) {
        self.texts.share(&mut record);
        // One name of a user for all of its calls.
        let known = self.usage.get_key_value(&user);
        let user = known.map_or_else(|| user.clone(), |(known, _)| known.clone());
        if record.number > 0 {
            self.numbers.insert(record.number, record.id);
        }
        if let Some(expires) = record.expires() {
            self.expiries.insert((expires, record.id));
        }
        let durable_call = DurableCall {
            user,
            stage: Stage::Disk,
            fetches: Vec::new(),
            asked: Vec::new(),
            losses: 0,
            is_audited: false,
            record,
        };
        let id = durable_call.record.id;
        self.calls.insert(id, Box::new(durable_call));
        self.set_stage(id, stage);
    }

    /// Gives a call that ran before it was recorded its number. Returns whether there is one.
    pub(crate) fn confirm(&mut self, id: JobId, number: u64) -> bool {
        let Some(durable_call) = self.calls.get_mut(&id) else {
            return false;
        };
        durable_call.record.number = number;
        self.numbers.insert(number, id);
        true
    }

    /// Removes a call that ran before it was recorded, because the journal refuses it.
    pub(crate) fn withdraw(&mut self, id: JobId, disk: &mut Disk) -> bool {
        self.set_stage(id, Stage::Disk);
        let Some(durable_call) = self.calls.remove(&id) else {
            return false;
        };
        self.unreserve(&durable_call.user, &durable_call.record, disk);
        true
    }

    /// Lets a call wait on the disk for its turn.
    pub(crate) fn await_turn(&mut self, id: JobId) {
        if let Some(durable_call) = self.calls.get(&id) {
            let waiting = self.backlog.numbers.entry(durable_call.user.clone());
            let waiting = waiting.or_default();
            waiting.insert(durable_call.record.number);
        }
    }

    /// Lets a call that could not be read wait for its turn again, and all others for a moment.
    pub(crate) fn await_turn_after(&mut self, id: JobId, until: Nanos) {
        self.set_stage(id, Stage::Disk);
        self.await_turn(id);
        self.rests_until = Some(until);
    }

    /// A call waits no longer for its turn.
    pub(crate) fn leave_backlog(&mut self, id: JobId) {
        let Some(durable_call) = self.calls.get(&id) else {
            return;
        };
        if let btree_map::Entry::Occupied(mut waiting) =
            self.backlog.numbers.entry(durable_call.user.clone())
        {
            waiting.get_mut().remove(&durable_call.record.number);
            if waiting.get().is_empty() {
                waiting.remove();
            }
        }
    }

    /// Lets a call wait for its function, which this server does not have.
    pub(crate) fn await_function(&mut self, id: JobId) {
        self.leave_backlog(id);
        self.set_stage(id, Stage::Unserved);
    }

    /// Lets all calls that wait for their functions wait for their turn again.
    pub(crate) fn look_for_functions(&mut self) {
        let unserved = self.calls.values();
        let unserved =
            unserved.filter(|call| call.stage == Stage::Unserved && !call.record.state.is_over());
        let unserved: Vec<JobId> = unserved.map(|call| call.record.id).collect();
        for id in unserved {
            self.set_stage(id, Stage::Disk);
            self.await_turn(id);
        }
    }

    /// Whether another call of a user may be in memory now, before those that wait on the disk.
    pub(crate) fn may_load(&self, user: &User) -> bool {
        let is_first = !self.backlog.numbers.contains_key(user);
        is_first && self.in_memory(user) < self.backlog.most_in_memory
    }

    fn in_memory(&self, user: &User) -> usize {
        self.usage.get(user).map_or(0, |usage| usage.in_memory)
    }

    /// Whether a call that waits on the disk, or results, need memory that other calls have.
    pub(crate) fn awaits_memory(&self) -> bool {
        self.lacks.is_some_and(|lack| lack.fits) || !self.starved.is_empty()
    }

    /// The call on the disk whose turn is next: of the user who has fewest calls in memory.
    /// `passed` are users whose turn is over.
    pub(crate) fn next_waiting(&self, passed: &BTreeSet<User>) -> Option<JobId> {
        let waiting = self.backlog.numbers.iter();
        let waiting = waiting.filter(|(user, _)| !passed.contains(user));
        let waiting = waiting.filter_map(|(user, numbers)| {
            let in_memory = self.in_memory(user);
            let number = *numbers.first()?;
            (in_memory < self.backlog.most_in_memory).then_some((in_memory, number))
        });
        let (_, number) = waiting.min()?;
        self.numbers.get(&number).copied()
    }

    /// Durable calls of the users of a group, and their bytes.
    pub(crate) fn usage_of(&self, group: &Group) -> (usize, u64) {
        let users = group.users.iter();
        let usage = users.filter_map(|name| self.usage.get(&User::named(name)));
        usage.fold((0, 0), |(calls, bytes), one| {
            (calls + one.calls, bytes.saturating_add(one.bytes))
        })
    }

    /// Reserves room for a call of this size, if the user may have it.
    pub(crate) fn reserve(
        &mut self,
        user: &User,
        record: &Record,
        groups: &Groups,
        disk: &mut Disk,
    ) -> Result<(), Failure> {
        let bytes = record.bytes();
        let usage = self.usage.get(user).copied().unwrap_or_default();
        let after = usage.bytes.saturating_add(bytes);
        let quota = self.settings.of_user();
        quota.allows(Owner::User(user), usage.calls + 1, after)?;
        for (owner, group) in groups_of(groups, user) {
            let (calls, used) = self.usage_of(group);
            let after = used.saturating_add(bytes);
            group.durable_calls().allows(owner, calls + 1, after)?;
        }
        self.count(user, 1, bytes);
        disk.promised = disk.promised.saturating_add(record.result.bytes);
        Ok(())
    }

    fn count(&mut self, user: &User, calls: usize, bytes: u64) {
        let usage = self.usage.entry(user.clone()).or_default();
        usage.calls += calls;
        usage.bytes = usage.bytes.saturating_add(bytes);
    }

    /// Undoes `reserve`.
    pub(crate) fn unreserve(&mut self, user: &User, record: &Record, disk: &mut Disk) {
        let bytes = record.bytes();
        if !record.state.is_over() {
            disk.promised = disk.promised.saturating_sub(record.result.bytes);
        }
        if let Some(usage) = self.usage.get_mut(user) {
            usage.calls = usage.calls.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.calls == 0 {
                self.usage.remove(user);
            }
        }
    }

    /// Retention of an outcome in seconds.
    pub(crate) fn keep_for(&self, asked: Option<u64>) -> u64 {
        let hours = |hours: f64| (hours.clamp(0.0, 1e6) * 3600.0) as u64;
        let longest = hours(self.settings.longest_h);
        asked
            .unwrap_or(hours(self.settings.keep_h))
            .clamp(1, longest.max(1))
    }

    /// The call with this job id, if it belongs to this user.
    pub(crate) fn of_user(&self, id: JobId, user: &User) -> Result<&DurableCall, Failure> {
        let durable_call = self
            .calls
            .get(&id)
            .filter(|known| known.user == *user && known.record.number > 0);
        let durable_call = durable_call.map(|durable_call| &**durable_call);
        durable_call.ok_or_else(|| {
            let text = format!(
                "there is no durable call {id} at the server: it has expired, was forgotten, \
                 belongs to another user, or is at another server"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    /// The record of a call that its user is shown.
    pub(crate) fn describe(&self, call: &DurableCall, now: Now) -> DurableRecord {
        let record = &call.record;
        let left = |at: u64| at.saturating_sub(self.served.until(now.nanos));
        DurableRecord {
            id: record.id,
            number: record.number,
            function: record.function.to_string(),
            state: record.state,
            submitted: record.submitted,
            started: record.started,
            ended: record.ended,
            expires: record
                .expires()
                .map(|at| now.unix_ms.saturating_add(left(at))),
            bytes: record.bytes(),
            failure: record.failure.clone(),
        }
    }

    /// Handles the end of a read of results: their status tells of damage from then on. Returns
    /// their length, if the call is still known.
    pub(crate) fn is_read(&mut self, id: JobId, damage: Option<&DiskError>) -> Option<u64> {
        let record = &mut self.calls.get_mut(&id)?.record;
        record.failure = damage.map(|error| {
            let text = format!("its results are damaged: {}", error.text);
            Failure::new(FailureKind::StorageFault, text)
        });
        Some(record.result.bytes)
    }

    /// The record that a call will have when its results are stored.
    pub(crate) fn ended_record(
        &self,
        id: JobId,
        (exec, made): (Nanos, Option<Made>),
        now: Now,
    ) -> Option<Box<Record>> {
        let record = self.calls.get(&id)?.record.clone();
        Some(Box::new(Record {
            state: DurableState::Done,
            ended: Some(now.unix_ms),
            kept_from: Some(self.served.until(now.nanos)),
            exec: Some(exec),
            made,
            ..record
        }))
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&DurableCall> {
        self.calls.get(&id).map(|durable_call| &**durable_call)
    }

    /// Counts a worker of the call that was killed. Returns how many there were.
    pub(crate) fn counts_loss(&mut self, id: JobId) -> u32 {
        let Some(durable_call) = self.calls.get_mut(&id) else {
            return 0;
        };
        durable_call.losses = durable_call.losses.saturating_add(1);
        durable_call.losses
    }

    pub(crate) fn set_stage(&mut self, id: JobId, stage: Stage) {
        let Some(durable_call) = self.calls.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut durable_call.stage, stage);
        if let Some(usage) = self.usage.get_mut(&durable_call.user) {
            let in_memory = |stage| usize::from(matches!(stage, Stage::Memory(_)));
            let was_in_memory = in_memory(before);
            usage.in_memory += in_memory(stage);
            usage.in_memory = usage.in_memory.saturating_sub(was_in_memory);
        }
    }

    /// A user's calls with numbers above `after`.
    pub(crate) fn page(&self, user: &User, after: u64, now: Now) -> DurablePage {
        let numbers = self.numbers.range(after.saturating_add(1)..);
        let of_user = numbers.filter_map(|(_, id)| self.calls.get(id).filter(|k| k.user == *user));
        let mut calls: Vec<DurableRecord> = of_user
            .take(PAGE + 1)
            .map(|call| self.describe(call, now))
            .collect();
        let more = calls.len() > PAGE;
        calls.truncate(PAGE);
        let next = calls.last().filter(|_| more).map(|last| last.number);
        DurablePage { jobs: calls, next }
    }

    /// Number of calls in each state, by its index in [`DurableState::ALL`].
    pub(crate) fn counts(&self) -> [usize; DurableState::ALL.len()] {
        let mut counts = [0; DurableState::ALL.len()];
        for durable_call in self.calls.values() {
            let mut states = DurableState::ALL.iter();
            if let Some(index) = states.position(|state| *state == durable_call.record.state) {
                counts[index] += 1;
            }
        }
        counts
    }

    /// Clients that wait for calls that this server will no longer run. None of these calls waits
    /// for memory any more.
    pub(crate) fn stranded(&mut self) -> Vec<Fetch> {
        self.lacks = None;
        let waiting = |durable_call: &&mut Box<DurableCall>| {
            let is_on_disk = !matches!(durable_call.stage, Stage::Memory(_));
            is_on_disk && !durable_call.record.state.is_over()
        };
        let stranded = self.calls.values_mut().filter(waiting);
        stranded
            .flat_map(|durable_call| std::mem::take(&mut durable_call.fetches))
            .collect()
    }

    /// In how many milliseconds the next outcome expires.
    pub(crate) fn next_expiry(&self, now: Nanos) -> Option<u64> {
        let (at, _) = self.expiries.first()?;
        Some(at.saturating_sub(self.served.until(now)))
    }

    /// A call whose retention is over.
    pub(crate) fn expired(&mut self, now: Nanos) -> Option<JobId> {
        let (at, id) = *self.expiries.first()?;
        (at <= self.served.until(now)).then(|| {
            self.expiries.pop_first();
            id
        })
    }

    /// Records a change of a call. Returns whether something waits until it is recorded: a call
    /// that may run twice begins at once.
    pub(crate) fn change(
        &mut self,
        id: JobId,
        change: Change,
        outcome: Outcome,
        out: &mut Actions,
    ) -> bool {
        let may_repeat = self.get(id).is_some_and(|known| known.record.repeatable);
        let haste = match change == Change::Start && may_repeat {
            true => Haste::Later,
            false => Haste::Now,
        };
        let entry = Entry::Change {
            id,
            change,
            outcome,
        };
        self.unconfirmed.record(entry, haste, out);
        haste == Haste::Now
    }

    /// Registers a client to be told when the journal has recorded the end of the call.
    pub(crate) fn ask(&mut self, id: JobId, asked: Asked) {
        if let Some(durable_call) = self.calls.get_mut(&id) {
            durable_call.asked.push(asked);
            self.clients.insert(asked.connection);
        }
    }

    /// Handles a recorded change. If the call has ended, returns who waits for its end.
    pub(crate) fn changed(
        &mut self,
        id: JobId,
        changed: &Changed,
        disk: &mut Disk,
    ) -> (Vec<Fetch>, Vec<Asked>) {
        let Some(durable_call) = self.calls.get_mut(&id) else {
            return Default::default();
        };
        let before = durable_call.record.bytes();
        if changed.applied {
            let record = &mut durable_call.record;
            if changed.state.is_over() {
                disk.promised = disk.promised.saturating_sub(record.result.bytes);
            }
            record.apply(changed);
            if let Some(expires) = record.expires() {
                self.expiries.insert((expires, id));
            }
        }
        let asked = match changed.change {
            Change::Cancel => std::mem::take(&mut durable_call.asked),
            _ => Vec::new(),
        };
        let fetches = match durable_call.record.state.is_over() {
            true => std::mem::take(&mut durable_call.fetches),
            false => Vec::new(),
        };
        let freed = before.saturating_sub(durable_call.record.bytes());
        if let Some(usage) = self.usage.get_mut(&durable_call.user) {
            usage.bytes = usage.bytes.saturating_sub(freed);
        }
        (fetches, asked)
    }

    /// Forgets a call that has ended, with its data. Returns who still waits for its end, because
    /// the record of a cancellation is under way.
    pub(crate) fn forget(&mut self, id: JobId, disk: &mut Disk, out: &mut Actions) -> Vec<Asked> {
        self.set_stage(id, Stage::Disk);
        let Some(durable_call) = self.calls.remove(&id) else {
            return Vec::new();
        };
        self.numbers.remove(&durable_call.record.number);
        if let Some(expires) = durable_call.record.expires() {
            self.expiries.remove(&(expires, id));
        }
        let record = &durable_call.record;
        let has_results = record.state == DurableState::Done && record.result.bytes > 0;
        self.unreserve(&durable_call.user, record, disk);
        self.unconfirmed.forget(id, has_results, out);
        durable_call.asked
    }

    /// Lets a client wait for the end of a call.
    pub(crate) fn wait(&mut self, fetch: Fetch) {
        if let Some(durable_call) = self.calls.get_mut(&fetch.id) {
            durable_call.fetches.push(fetch);
            self.clients.insert(fetch.connection);
        }
    }

    /// Lets a client wait for memory to fetch a result into.
    pub(crate) fn starve(&mut self, fetch: Fetch) {
        self.clients.insert(fetch.connection);
        self.starved.push_back(fetch);
    }

    /// Notes that a client reads the results of a call.
    pub(crate) fn serves(&mut self, connection: ConnectionKey) {
        self.clients.insert(connection);
    }

    /// Forgets a fetch that a client has given up; without a number, all of its fetches. Returns
    /// whether it may have waited for something.
    pub(crate) fn give_up(&mut self, connection: ConnectionKey, request: Option<CallId>) -> bool {
        if !self.clients.contains(&connection) {
            return false;
        }
        if request.is_none() {
            self.clients.remove(&connection);
        }
        self.starved
            .retain(|fetch| !fetch.is_of(connection, request));
        for durable_call in self.calls.values_mut() {
            durable_call
                .fetches
                .retain(|fetch| !fetch.is_of(connection, request));
            if request.is_none() {
                durable_call
                    .asked
                    .retain(|asked| asked.connection != connection);
            }
        }
        true
    }
}

/// Notes that the audit log has the end of a call.
pub(crate) fn note_audited(durable: &mut Durable, id: JobId) {
    if let Some(durable_call) = durable.calls.get_mut(&id) {
        durable_call.is_audited = true;
    }
}

impl DurableCall {
    /// The times of the call, except for sending its results.
    pub(crate) fn times(&self) -> Times {
        let record = &self.record;
        let wait = record.started.unwrap_or(record.submitted);
        Times {
            send: 0,
            wait: wait
                .saturating_sub(record.submitted)
                .saturating_mul(1_000_000),
            exec: record.exec.unwrap_or(0),
            recv: 0,
            made: record.made.clone(),
        }
    }
}

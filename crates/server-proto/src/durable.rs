//! Durable calls: they outlive their connection and the server.
//!
//! Their data are files, what is known of them is a journal, and their states are a table
//! (`lifecycle`). The shell writes and reads; this holds what the server needs to know, as the
//! journal has confirmed it.

use crate::action::{Action, Actions};
use crate::disk::{Disk, Fetch};
use crate::keys::{CallKey, ConnectionKey};
use crate::lifecycle::Change;
use crate::map::{Map, Set};
use crate::record::{Changed, Entry, Outcome, Record};
use crate::settings::DurableLimits;
use farcall_rpc_proto::{
    CallId, DurablePage, DurableRecord, DurableState, Failure, FailureKind, JobId, Times, User,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Durable calls in one page of a list.
const PAGE: usize = 128;

/// A question that is answered when the journal has recorded a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    /// The call is to be forgotten then.
    pub(crate) forget: bool,
}

/// Where the server has a durable call besides the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nowhere: it waits for its turn, or is over.
    Disk,
    /// In a call of the reactor.
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
}

/// What one user has here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    calls: usize,
    bytes: u64,
}

/// All durable calls.
pub(crate) struct Durable {
    settings: DurableLimits,
    calls: Map<JobId, DurableCall>,
    /// In the order of submission.
    numbers: BTreeMap<u64, JobId>,
    /// No call of a server before this one has a greater number.
    inherited: u64,
    /// Those that wait for their turn, in the order of submission.
    pub(crate) backlog: VecDeque<JobId>,
    expiries: BTreeSet<(u64, JobId)>,
    usage: Map<User, Usage>,
    /// Calls that are being submitted: the record, and the call.
    inserting: Map<JobId, CallKey>,
    /// Entries that the journal has not confirmed.
    unrecorded: usize,
    /// Bytes of memory that calls have which wait to run.
    pub(crate) held: u64,
    /// Connections with questions that were not answered at once.
    clients: Set<ConnectionKey>,
    /// Fetches that wait for memory.
    pub(crate) starved: VecDeque<Fetch>,
}

impl Durable {
    /// Goes on with what is recorded, brought to what holds after a restart.
    pub(crate) fn new(settings: DurableLimits, records: Vec<Record>, disk: &mut Disk) -> Durable {
        let mut durable = Durable {
            settings,
            calls: Map::default(),
            numbers: BTreeMap::new(),
            inherited: records.last().map_or(0, |record| record.number),
            backlog: VecDeque::new(),
            expiries: BTreeSet::new(),
            usage: Map::default(),
            inserting: Map::default(),
            unrecorded: 0,
            held: 0,
            clients: Set::default(),
            starved: VecDeque::new(),
        };
        for record in records {
            if record.state == DurableState::Queued {
                durable.backlog.push_back(record.id);
                disk.promised = disk.promised.saturating_add(record.result.bytes);
            }
            let user = User::named(&record.user);
            durable.count(&user, 1, record.bytes());
            durable.keep(record, user, Stage::Disk);
        }
        durable
    }

    /// Whether a call was submitted to this server, and not to one before it.
    pub(crate) fn is_own(&self, record: &Record) -> bool {
        record.number > self.inherited
    }

    /// Whether the journal has confirmed all entries.
    pub(crate) fn is_settled(&self) -> bool {
        self.unrecorded == 0
    }

    /// The journal has done one of its entries.
    pub(crate) fn recorded(&mut self) {
        self.unrecorded = self.unrecorded.saturating_sub(1);
    }

    fn record(&mut self, entry: Entry, out: &mut Actions) {
        self.unrecorded += 1;
        out.push(Action::Record(entry));
    }

    fn keep(&mut self, record: Record, user: User, stage: Stage) {
        self.numbers.insert(record.number, record.id);
        if let Some(expires) = record.expires() {
            self.expiries.insert((expires, record.id));
        }
        let durable_call = DurableCall {
            user,
            stage,
            fetches: Vec::new(),
            asked: Vec::new(),
            record,
        };
        self.calls.insert(durable_call.record.id, durable_call);
    }

    /// Sets room aside for a call of so many bytes, if the user may have it.
    pub(crate) fn reserve(
        &mut self,
        user: &User,
        record: &Record,
        disk: &mut Disk,
    ) -> Result<(), Failure> {
        let bytes = record.bytes();
        let usage = self.usage.get(user).copied().unwrap_or_default();
        let DurableLimits {
            per_user,
            bytes_per_user,
            ..
        } = self.settings;
        let after = usage.bytes.saturating_add(bytes);
        if usage.calls >= per_user {
            let text = format!(
                "{user} has {per_user} durable calls here, as many as are allowed \
                 (jobs.per_user in the server's configuration); forget some with \
                 `farcall cancel --forget`"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        if after > bytes_per_user {
            let text = format!(
                "durable calls of {user} would take {after} bytes, and {bytes_per_user} are \
                 allowed (jobs.bytes_per_user in the server's configuration); forget some with \
                 `farcall cancel --forget`"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
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

    /// Takes back what `reserve` has set aside.
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

    /// For how many seconds an outcome is kept.
    pub(crate) fn keep_for(&self, asked: Option<u64>) -> u64 {
        let hours = |hours: f64| (hours.clamp(0.0, 1e6) * 3600.0) as u64;
        let longest = hours(self.settings.longest_h);
        asked
            .unwrap_or(hours(self.settings.keep_h))
            .clamp(1, longest.max(1))
    }

    /// The call of that id, if it is this user's.
    pub(crate) fn of_user(&self, id: JobId, user: &User) -> Result<&DurableCall, Failure> {
        let durable_call = self
            .calls
            .get(&id)
            .filter(|durable_call| durable_call.user == *user);
        durable_call.ok_or_else(|| {
            let text = format!(
                "there is no durable call {id}: it has expired or was forgotten, or another \
                 user's it is"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&DurableCall> {
        self.calls.get(&id)
    }

    pub(crate) fn set_stage(&mut self, id: JobId, stage: Stage) {
        if let Some(durable_call) = self.calls.get_mut(&id) {
            durable_call.stage = stage;
        }
    }

    /// A user's calls with numbers above `after`.
    pub(crate) fn page(&self, user: &User, after: u64) -> DurablePage {
        let numbers = self.numbers.range(after.saturating_add(1)..);
        let of_user = numbers.filter_map(|(_, id)| self.calls.get(id).filter(|k| k.user == *user));
        let mut calls: Vec<DurableRecord> =
            of_user.take(PAGE + 1).map(DurableCall::describe).collect();
        let more = calls.len() > PAGE;
        calls.truncate(PAGE);
        let next = calls.last().filter(|_| more).map(|last| last.number);
        DurablePage { jobs: calls, next }
    }

    /// How many calls there are, by the index of their state in [`DurableState::ALL`].
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

    /// Clients that wait for calls which this server will not run any more.
    pub(crate) fn stranded(&mut self) -> Vec<Fetch> {
        let waiting = |durable_call: &&mut DurableCall| {
            durable_call.stage == Stage::Disk && !durable_call.record.state.is_over()
        };
        let stranded = self.calls.values_mut().filter(waiting);
        stranded
            .flat_map(|durable_call| std::mem::take(&mut durable_call.fetches))
            .collect()
    }

    /// When the next outcome expires.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// A call whose time is over.
    pub(crate) fn expired(&mut self, now: u64) -> Option<JobId> {
        let (at, id) = *self.expiries.first()?;
        (at <= now).then(|| {
            self.expiries.pop_first();
            id
        })
    }

    /// Records a new call.
    pub(crate) fn insert(&mut self, record: Record, call: CallKey, out: &mut Actions) {
        self.inserting.insert(record.id, call);
        self.record(Entry::Insert(Box::new(record)), out);
    }

    /// The call of a call that was recorded.
    pub(crate) fn inserted(&mut self, id: JobId) -> Option<CallKey> {
        self.inserting.remove(&id)
    }

    /// A recorded call is known from now on.
    pub(crate) fn accept(&mut self, record: Record, user: User, stage: Stage) {
        self.keep(record, user, stage);
    }

    /// Records what happens to a call.
    pub(crate) fn change(
        &mut self,
        id: JobId,
        change: Change,
        outcome: Outcome,
        out: &mut Actions,
    ) {
        let entry = Entry::Change {
            id,
            change,
            outcome,
        };
        self.record(entry, out);
    }

    /// Who is to be told when the next change of the call is recorded that ends it.
    pub(crate) fn ask(&mut self, id: JobId, asked: Asked) {
        if let Some(durable_call) = self.calls.get_mut(&id) {
            durable_call.asked.push(asked);
            self.clients.insert(asked.connection);
        }
    }

    /// A change was recorded. Returns who waits for the end of the call, if it is over.
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
            record.state = changed.state;
            let outcome = changed.outcome.clone();
            record.result = outcome.result.unwrap_or(record.result);
            record.exec = outcome.exec;
            record.failure = outcome.failure;
            match changed.state.is_over() {
                true => record.ended = Some(changed.at),
                false => record.started = Some(changed.at),
            }
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

    /// Forgets a call that is over, with its data.
    pub(crate) fn forget(&mut self, id: JobId, disk: &mut Disk, out: &mut Actions) {
        let Some(durable_call) = self.calls.remove(&id) else {
            return;
        };
        self.numbers.remove(&durable_call.record.number);
        if let Some(expires) = durable_call.record.expires() {
            self.expiries.remove(&(expires, id));
        }
        self.unreserve(&durable_call.user, &durable_call.record, disk);
        self.record(Entry::Forget(id), out);
    }

    /// A client waits for the end of a call.
    pub(crate) fn wait(&mut self, fetch: Fetch) {
        if let Some(durable_call) = self.calls.get_mut(&fetch.id) {
            durable_call.fetches.push(fetch);
            self.clients.insert(fetch.connection);
        }
    }

    /// A client waits for memory to fetch a result into.
    pub(crate) fn starve(&mut self, fetch: Fetch) {
        self.clients.insert(fetch.connection);
        self.starved.push_back(fetch);
    }

    /// A client reads the results of a call.
    pub(crate) fn serves(&mut self, connection: ConnectionKey) {
        self.clients.insert(connection);
    }

    /// A client does not wait for what it wanted to fetch any more; without a number, for nothing.
    /// Returns whether it may have waited for something.
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

impl DurableCall {
    /// What its user is told.
    pub(crate) fn describe(&self) -> DurableRecord {
        let record = &self.record;
        DurableRecord {
            id: record.id,
            number: record.number,
            function: record.function.clone(),
            state: record.state,
            submitted: record.submitted,
            started: record.started,
            ended: record.ended,
            expires: record.expires(),
            bytes: record.bytes(),
            failure: record.failure.clone(),
        }
    }

    /// How long its parts took, but for the sending of the results.
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
        }
    }
}

//! Submitted calls: they outlive their connection and the server.
//!
//! Their data are files, what is known of them is a journal, and their states are a table
//! (`lifecycle`). The shell writes and reads; this holds what the server needs to know, as the
//! journal has confirmed it.

use crate::action::{Action, Actions};
use crate::keys::{CallKey, ConnectionKey, MemoryKey};
use crate::lifecycle::Change;
use crate::map::{Map, Set};
use crate::record::{Changed, Content, Entry, Outcome, Record, Stored};
use crate::settings::DurableLimits;
use farcall_rpc_proto::{
    CallId, Failure, FailureKind, HandleId, JobId, JobPage, JobRecord, JobState, Pieces, Times,
    User,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Submitted calls in one page of a list.
const PAGE: usize = 128;

/// What a transfer between memory and disk is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// The arguments of this job, which is being submitted, are written.
    Submit(CallKey),
    /// The results of this job are written: so many nanoseconds in the library.
    Finish(CallKey, u64),
    /// The arguments of this job are read.
    Load(CallKey),
    /// The results are read for a client; none where it does not want them any more.
    Deliver(Option<Fetch>),
    /// An array goes to the disk for want of memory.
    Spill(HandleId),
    /// An array comes back.
    Unspill(HandleId),
}

/// A client that wants the results of a submitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    pub(crate) id: JobId,
}

/// A question that is answered when the journal has recorded a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) connection: ConnectionKey,
    pub(crate) request: CallId,
    /// The call is to be forgotten then.
    pub(crate) forget: bool,
}

/// Where the server has a submitted call besides the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nowhere: it waits for its turn, or is over.
    Disk,
    /// In a job of the reactor.
    Memory(CallKey),
}

/// One submitted call.
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) user: User,
    pub(crate) stage: Stage,
    /// Clients that wait for its end.
    fetches: Vec<Fetch>,
    /// Who asked for its cancellation.
    asked: Vec<Asked>,
}

/// A stream between memory and the disk.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) id: JobId,
    pub(crate) content: Content,
    pub(crate) memory: MemoryKey,
    pub(crate) pieces: Pieces,
}

/// What one user has here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    calls: usize,
    bytes: u64,
}

/// All submitted calls.
pub(crate) struct Durable {
    settings: DurableLimits,
    kept: Map<JobId, Kept>,
    /// In the order of submission.
    numbers: BTreeMap<u64, JobId>,
    /// No call of a server before this one has a greater number.
    inherited: u64,
    /// Those that wait for their turn, in the order of submission.
    pub(crate) backlog: VecDeque<JobId>,
    expiries: BTreeSet<(u64, JobId)>,
    usage: Map<User, Usage>,
    /// Bytes of the results that are still to come, which the disk is to have room for.
    promised: u64,
    /// Calls that are being submitted: the record, and the job.
    inserting: Map<JobId, CallKey>,
    transfers: Map<u64, (Purpose, MemoryKey)>,
    last_ticket: u64,
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
    pub(crate) fn new(settings: DurableLimits, records: Vec<Record>) -> Durable {
        let mut durable = Durable {
            settings,
            kept: Map::default(),
            numbers: BTreeMap::new(),
            inherited: records.last().map_or(0, |record| record.number),
            backlog: VecDeque::new(),
            expiries: BTreeSet::new(),
            usage: Map::default(),
            promised: 0,
            inserting: Map::default(),
            transfers: Map::default(),
            last_ticket: 0,
            unrecorded: 0,
            held: 0,
            clients: Set::default(),
            starved: VecDeque::new(),
        };
        for record in records {
            if record.state == JobState::Queued {
                durable.backlog.push_back(record.id);
                durable.promised = durable.promised.saturating_add(record.result.bytes);
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

    /// Whether nothing is on its way to the disk that a server which ends must wait for.
    pub(crate) fn is_settled(&self) -> bool {
        let is_needed =
            |(purpose, _): &(Purpose, MemoryKey)| matches!(purpose, Purpose::Finish(..));
        self.unrecorded == 0 && !self.transfers.values().any(is_needed)
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
        let kept = Kept {
            user,
            stage,
            fetches: Vec::new(),
            asked: Vec::new(),
            record,
        };
        self.kept.insert(kept.record.id, kept);
    }

    /// Sets room aside for a call of so many bytes, if the user may have it.
    pub(crate) fn reserve(&mut self, user: &User, record: &Record) -> Result<(), Failure> {
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
                "{user} has {per_user} submitted calls here, as many as are allowed \
                 (jobs.per_user in the server's configuration); forget some with \
                 `farcall cancel --forget`"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        if after > bytes_per_user {
            let text = format!(
                "submitted calls of {user} would take {after} bytes, and {bytes_per_user} are \
                 allowed (jobs.bytes_per_user in the server's configuration); forget some with \
                 `farcall cancel --forget`"
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        self.count(user, 1, bytes);
        self.promised = self.promised.saturating_add(record.result.bytes);
        Ok(())
    }

    fn count(&mut self, user: &User, calls: usize, bytes: u64) {
        let usage = self.usage.entry(user.clone()).or_default();
        usage.calls += calls;
        usage.bytes = usage.bytes.saturating_add(bytes);
    }

    /// Takes back what `reserve` has set aside.
    pub(crate) fn unreserve(&mut self, user: &User, record: &Record) {
        let bytes = record.bytes();
        if !record.state.is_over() {
            self.promised = self.promised.saturating_sub(record.result.bytes);
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
    pub(crate) fn of_user(&self, id: JobId, user: &User) -> Result<&Kept, Failure> {
        let kept = self.kept.get(&id).filter(|kept| kept.user == *user);
        kept.ok_or_else(|| {
            let text = format!(
                "there is no submitted call {id}: it has expired or was forgotten, or another \
                 user's it is"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&Kept> {
        self.kept.get(&id)
    }

    pub(crate) fn set_stage(&mut self, id: JobId, stage: Stage) {
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.stage = stage;
        }
    }

    /// A user's calls with numbers above `after`.
    pub(crate) fn page(&self, user: &User, after: u64) -> JobPage {
        let numbers = self.numbers.range(after.saturating_add(1)..);
        let of_user = numbers.filter_map(|(_, id)| self.kept.get(id).filter(|k| k.user == *user));
        let mut jobs: Vec<JobRecord> = of_user.take(PAGE + 1).map(Kept::describe).collect();
        let more = jobs.len() > PAGE;
        jobs.truncate(PAGE);
        let next = jobs.last().filter(|_| more).map(|last| last.number);
        JobPage { jobs, next }
    }

    /// How many calls there are, by the index of their state in [`JobState::ALL`].
    pub(crate) fn counts(&self) -> [usize; JobState::ALL.len()] {
        let mut counts = [0; JobState::ALL.len()];
        for kept in self.kept.values() {
            let mut states = JobState::ALL.iter();
            if let Some(index) = states.position(|state| *state == kept.record.state) {
                counts[index] += 1;
            }
        }
        counts
    }

    /// Clients that wait for calls which this server will not run any more.
    pub(crate) fn stranded(&mut self) -> Vec<Fetch> {
        let waiting = |kept: &&mut Kept| kept.stage == Stage::Disk && !kept.record.state.is_over();
        let stranded = self.kept.values_mut().filter(waiting);
        stranded
            .flat_map(|kept| std::mem::take(&mut kept.fetches))
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

    /// Writes a stream to the disk.
    pub(crate) fn write(&mut self, purpose: Purpose, transfer: Transfer, out: &mut Actions) {
        // The results were promised room.
        let room = match purpose {
            Purpose::Finish(..) => None,
            _ => Some(self.promised),
        };
        let Transfer {
            id,
            content,
            memory,
            pieces,
        } = transfer;
        let ticket = self.ticket(purpose, memory);
        out.push(Action::WriteFile {
            ticket,
            id,
            content,
            memory,
            pieces,
            room,
        });
    }

    /// Reads a stream from the disk.
    pub(crate) fn read(
        &mut self,
        purpose: Purpose,
        transfer: Transfer,
        stored: Stored,
        out: &mut Actions,
    ) {
        let Transfer {
            id,
            content,
            memory,
            pieces,
        } = transfer;
        let ticket = self.ticket(purpose, memory);
        out.push(Action::ReadFile {
            ticket,
            id,
            content,
            memory,
            pieces,
            stored,
        });
    }

    fn ticket(&mut self, purpose: Purpose, memory: MemoryKey) -> u64 {
        self.last_ticket += 1;
        if let Purpose::Deliver(Some(fetch)) = &purpose {
            self.clients.insert(fetch.connection);
        }
        self.transfers.insert(self.last_ticket, (purpose, memory));
        self.last_ticket
    }

    /// What a transfer was for, and its memory.
    pub(crate) fn purpose(&mut self, ticket: u64) -> Option<(Purpose, MemoryKey)> {
        self.transfers.remove(&ticket)
    }

    /// Records a new call.
    pub(crate) fn insert(&mut self, record: Record, call: CallKey, out: &mut Actions) {
        self.inserting.insert(record.id, call);
        self.record(Entry::Insert(Box::new(record)), out);
    }

    /// The job of a call that was recorded.
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
        if let Some(kept) = self.kept.get_mut(&id) {
            kept.asked.push(asked);
            self.clients.insert(asked.connection);
        }
    }

    /// A change was recorded. Returns who waits for the end of the call, if it is over.
    pub(crate) fn changed(&mut self, id: JobId, changed: &Changed) -> (Vec<Fetch>, Vec<Asked>) {
        let Some(kept) = self.kept.get_mut(&id) else {
            return Default::default();
        };
        let before = kept.record.bytes();
        if changed.applied {
            let record = &mut kept.record;
            if changed.state.is_over() {
                self.promised = self.promised.saturating_sub(record.result.bytes);
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
            Change::Cancel => std::mem::take(&mut kept.asked),
            _ => Vec::new(),
        };
        let fetches = match kept.record.state.is_over() {
            true => std::mem::take(&mut kept.fetches),
            false => Vec::new(),
        };
        let freed = before.saturating_sub(kept.record.bytes());
        if let Some(usage) = self.usage.get_mut(&kept.user) {
            usage.bytes = usage.bytes.saturating_sub(freed);
        }
        (fetches, asked)
    }

    /// Forgets a call that is over, with its data.
    pub(crate) fn forget(&mut self, id: JobId, out: &mut Actions) {
        let Some(kept) = self.kept.remove(&id) else {
            return;
        };
        self.numbers.remove(&kept.record.number);
        if let Some(expires) = kept.record.expires() {
            self.expiries.remove(&(expires, id));
        }
        self.unreserve(&kept.user, &kept.record);
        self.record(Entry::Forget(id), out);
    }

    /// A client waits for the end of a call.
    pub(crate) fn wait(&mut self, fetch: Fetch) {
        if let Some(kept) = self.kept.get_mut(&fetch.id) {
            kept.fetches.push(fetch);
            self.clients.insert(fetch.connection);
        }
    }

    /// A client waits for memory to fetch a result into.
    pub(crate) fn starve(&mut self, fetch: Fetch) {
        self.clients.insert(fetch.connection);
        self.starved.push_back(fetch);
    }

    /// A client does not wait for what it wanted to fetch any more; without a number, for nothing.
    pub(crate) fn give_up(&mut self, connection: ConnectionKey, request: Option<CallId>) {
        if !self.clients.contains(&connection) {
            return;
        }
        if request.is_none() {
            self.clients.remove(&connection);
        }
        let is_its = |of: ConnectionKey, number: CallId| {
            of == connection && request.is_none_or(|request| request == number)
        };
        self.starved
            .retain(|fetch| !is_its(fetch.connection, fetch.request));
        for (purpose, _) in self.transfers.values_mut() {
            if let Purpose::Deliver(fetch) = purpose {
                *fetch = fetch.filter(|fetch| !is_its(fetch.connection, fetch.request));
            }
        }
        for kept in self.kept.values_mut() {
            kept.fetches
                .retain(|fetch| !is_its(fetch.connection, fetch.request));
            if request.is_none() {
                kept.asked.retain(|asked| asked.connection != connection);
            }
        }
    }
}

impl Kept {
    /// What its user is told.
    pub(crate) fn describe(&self) -> JobRecord {
        let record = &self.record;
        JobRecord {
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

//! Stored arrays: who may use which one, and where it is.
//!
//! Calls use an array in the order in which they arrived. Several calls may read it together; a
//! call that writes it has it alone. The shell moves the bytes; this module decides who may use
//! them and where they are.

pub(crate) mod leaving;

use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::names::DataFile;
use crate::quota::{Owner, Quota};
use crate::record::Stored;
use crate::settings::{ArrayLimits, Groups, groups_of};
use farcall_rpc_proto::{
    ArrayForm, Failure, FailureKind, HandleId, HandlePage, HandleRecord, Put, User,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter::Sum;
use std::sync::Arc;

/// Arrays in one page of a list.
const PAGE: usize = 128;
/// Bytes of the reason why an array is undefined. A library can say more, and the reasons of a page
/// go in one message of at most 1 MiB.
const REASON_BYTES: usize = 4 << 10;

/// Where the bytes of an array are.
pub(crate) enum Location {
    Memory(MemoryKey),
    /// A thread writes or reads them.
    Moving,
    Disk(Stored),
    /// In a file of the data folder. They are read when they are needed.
    File,
    /// Nowhere: the system has refused memory for them. No call can use the array.
    Nowhere,
}

/// The use of an array by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) id: HandleId,
    /// Whether the call writes the array.
    pub(crate) writes: bool,
    /// Whether the call writes the whole array and reads nothing.
    pub(crate) replaces: bool,
    /// Index of the array in the interface.
    pub(crate) array: usize,
}

/// One array.
pub(crate) struct Array {
    pub(crate) user: User,
    pub(crate) form: ArrayForm,
    pub(crate) bytes: u64,
    pub(crate) location: Location,
    number: u64,
    /// The connection with which the array ends.
    connection: Option<ConnectionKey>,
    /// When it was used last, and the number of this use.
    used: u64,
    last_use: u64,
    /// Why its contents are undefined.
    undefined: Option<String>,
    /// The calls that use the array or wait for it, in order, and whether each writes it.
    calls: VecDeque<(CallKey, bool)>,
    /// Whether it is being written to the disk.
    is_leaving: bool,
    /// Whether its user has dropped it. It ends after its last call.
    is_dropped: bool,
    /// The file of the data folder, if the array is one. It belongs to nobody, and everybody may
    /// read it.
    pub(crate) file: Option<Arc<DataFile>>,
}

impl Array {
    /// Whether a call writes it or waits to write it.
    pub(crate) fn is_written(&self) -> bool {
        self.calls.iter().any(|(_, writes)| *writes)
    }

    /// Why no call can use it, if the system has refused its memory.
    pub(crate) fn is_nowhere(&self, id: HandleId) -> Option<Failure> {
        let why = self.undefined.as_deref().unwrap_or_default();
        matches!(self.location, Location::Nowhere).then(|| undefined(id, why))
    }
}

/// What an array that has ended leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Memory that nobody needs any more.
    Memory(MemoryKey),
    /// A file on the disk.
    File,
}

/// What one user has stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    arrays: usize,
    bytes: u64,
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(usages: I) -> Usage {
        usages.fold(Usage::default(), |sum, one| Usage {
            arrays: sum.arrays + one.arrays,
            bytes: sum.bytes.saturating_add(one.bytes),
        })
    }
}

/// Whether a call may run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Yes: its arrays are in memory, and no other call conflicts.
    Now,
    /// Not yet: other calls come first, or an array is being moved.
    Later,
    /// Not yet: this array must be read from the disk first.
    Read(HandleId),
    /// Never: an array that it reads has no contents.
    Never(Failure),
}

/// A name under which an array can be read once.
#[derive(Clone, Copy, Debug)]
struct Loan {
    array: HandleId,
    expires: u64,
}

/// All stored arrays.
pub(crate) struct Store {
    settings: ArrayLimits,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    arrays: Map<HandleId, Array>,
    numbers: BTreeMap<u64, HandleId>,
    /// The last number of an array or of a use.
    last_number: u64,
    /// Arrays by the number of their last use. Several can be used within a millisecond.
    by_use: BTreeMap<u64, HandleId>,
    usage: Map<User, Usage>,
    loans: Map<HandleId, Loan>,
    /// Bytes in memory or on the way there, and their limit.
    resident: u64,
    limit: u64,
    /// Bytes of `resident` that are being written to the disk.
    pub(crate) leaving: u64,
    /// Arrays that were dropped on their way to the disk or back, and still have memory.
    dropped_on_way: BTreeSet<HandleId>,
}

/// Whether an array is on its way to the disk or back. It may have been dropped meanwhile.
pub(crate) fn some_move(store: &Store) -> bool {
    let mut arrays = store.arrays.values();
    !store.dropped_on_way.is_empty()
        || arrays.any(|array| matches!(array.location, Location::Moving))
}

impl Store {
    pub(crate) fn new(settings: ArrayLimits, memory: u64) -> Store {
        let limit = match settings.memory {
            0 => memory / 4,
            limit => limit.min(memory),
        };
        Store {
            settings,
            now: 0,
            arrays: Map::default(),
            numbers: BTreeMap::new(),
            last_number: 0,
            by_use: BTreeMap::new(),
            usage: Map::default(),
            loans: Map::default(),
            resident: 0,
            limit,
            leaving: 0,
            dropped_on_way: BTreeSet::new(),
        }
    }

    /// Checks an array that a client wants to store. Returns its length in bytes.
    pub(crate) fn check(&self, put: &Put, user: &User, groups: &Groups) -> Result<u64, Failure> {
        let bad = |text: String| Failure::new(FailureKind::BadArgument, text);
        let bytes = put.form.bytes().map_err(|error| bad(error.to_string()))?;
        if put.data_bytes != 0 && put.data_bytes != bytes {
            let text = format!("the array has {bytes} bytes, {} announced", put.data_bytes);
            return Err(bad(text));
        }
        if bytes > self.limit {
            let text = format!(
                "the array has {bytes} bytes, and the server has memory for {} bytes (data.memory \
                 in its configuration)",
                self.limit
            );
            return Err(Failure::new(FailureKind::TooLarge, text));
        }
        let allows = |owner, quota: Quota, usage: Usage| {
            quota.allows(owner, usage.arrays + 1, usage.bytes.saturating_add(bytes))
        };
        let usage = |user| self.usage.get(user).copied().unwrap_or_default();
        allows(Owner::User(user), self.settings.of_user(), usage(user))?;
        for (owner, group) in groups_of(groups, user) {
            let usages = self.usage.iter().filter(|(user, _)| group.has(user));
            allows(owner, group.arrays(), usages.map(|(_, usage)| *usage).sum())?;
        }
        Ok(bytes)
    }

    /// Counts an array that will arrive.
    pub(crate) fn reserve(&mut self, user: &User, bytes: u64) {
        let usage = self.usage.entry(user.clone()).or_default();
        usage.arrays += 1;
        usage.bytes += bytes;
        self.resident += bytes;
    }

    /// Undoes [`reserve`](Store::reserve).
    pub(crate) fn unreserve(&mut self, user: &User, bytes: u64) {
        self.resident = self.resident.saturating_sub(bytes);
        self.leave(user, bytes);
    }

    fn leave(&mut self, user: &User, bytes: u64) {
        if let Some(usage) = self.usage.get_mut(user) {
            usage.arrays = usage.arrays.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(bytes);
            if usage.arrays == 0 {
                self.usage.remove(user);
            }
        }
    }

    /// Number of arrays, their bytes, and the bytes in memory.
    pub(crate) fn totals(&self) -> (usize, u64, u64) {
        let bytes = self.arrays.values().map(|array| array.bytes).sum();
        (self.arrays.len(), bytes, self.resident)
    }

    /// Whether there is memory for this many more bytes.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.lacks(bytes) == 0
    }

    /// How many bytes must leave memory before there is room for this many more.
    pub(crate) fn lacks(&self, bytes: u64) -> u64 {
        let needed = self.resident.saturating_add(bytes);
        needed.saturating_sub(self.limit)
    }

    /// Whether there will be memory for this many more bytes when the arrays that go to the disk
    /// have left.
    pub(crate) fn will_have_room(&self, bytes: u64) -> bool {
        let resident = self.resident.saturating_sub(self.leaving);
        resident.saturating_add(bytes) <= self.limit
    }

    /// Bytes of the arrays that are in memory although nobody uses them.
    pub(crate) fn resting(&self) -> u64 {
        let rests = |array: &&Array| {
            matches!(array.location, Location::Memory(_)) && array.calls.is_empty()
        };
        self.arrays
            .values()
            .filter(rests)
            .map(|array| array.bytes)
            .sum()
    }

    /// The calls that wait for arrays.
    pub(crate) fn waiting(&self) -> Vec<CallKey> {
        let calls = self.arrays.values().flat_map(|array| array.calls.iter());
        calls.map(|(call, _)| *call).collect()
    }

    /// Records that an array has left memory, or could not. Returns memory that nobody needs any
    /// more.
    pub(crate) fn left(&mut self, id: HandleId, location: Location) -> Option<MemoryKey> {
        let Some(array) = self.arrays.get_mut(&id) else {
            self.dropped_on_way.remove(&id);
            // Its bytes were subtracted when it was dropped.
            return match location {
                Location::Memory(memory) => Some(memory),
                _ => None,
            };
        };
        self.leaving = self.leaving.saturating_sub(array.bytes);
        array.is_leaving = false;
        if matches!(location, Location::Disk(_)) {
            self.resident = self.resident.saturating_sub(array.bytes);
        }
        array.location = location;
        None
    }

    /// Marks a data file as being read. Returns the file.
    pub(crate) fn file_returning(&mut self, id: HandleId) -> Option<Arc<DataFile>> {
        let array = self.arrays.get_mut(&id)?;
        let file = array.file.clone()?;
        if !matches!(array.location, Location::File) {
            return None;
        }
        array.location = Location::Moving;
        self.resident += array.bytes;
        Some(file)
    }

    /// Marks an array as being read from the disk. Returns its place there.
    pub(crate) fn returning(&mut self, id: HandleId) -> Option<Stored> {
        let array = self.arrays.get_mut(&id)?;
        let Location::Disk(stored) = array.location else {
            return None;
        };
        array.location = Location::Moving;
        self.resident += array.bytes;
        Some(stored)
    }

    /// Records that an array is back in memory, or why it is not. Returns memory that nobody needs
    /// any more.
    pub(crate) fn returned(
        &mut self,
        id: HandleId,
        memory: Result<MemoryKey, (MemoryKey, String)>,
    ) -> Option<MemoryKey> {
        let Some(array) = self.arrays.get_mut(&id) else {
            self.dropped_on_way.remove(&id);
            return Some(memory.unwrap_or_else(|(memory, _)| memory));
        };
        let memory = match memory {
            Ok(memory) => memory,
            Err((memory, error)) => {
                array.undefined = Some(error);
                memory
            }
        };
        array.location = Location::Memory(memory);
        None
    }

    /// Records that an array could not be read and is still there. Returns the calls that wait for
    /// it.
    pub(crate) fn not_read(&mut self, id: HandleId, there: Location) -> Vec<CallKey> {
        let Some(array) = self.arrays.get_mut(&id) else {
            self.dropped_on_way.remove(&id);
            return Vec::new();
        };
        array.location = there;
        self.resident = self.resident.saturating_sub(array.bytes);
        array.calls.iter().map(|(call, _)| *call).collect()
    }

    /// Adds an array that was reserved. Unless it stays, it ends with the connection.
    pub(crate) fn insert(
        &mut self,
        id: HandleId,
        put: &Put,
        user: User,
        connection: ConnectionKey,
        memory: MemoryKey,
    ) {
        self.last_number += 1;
        let used = self.now;
        let array = Array {
            user,
            bytes: put.form.bytes().unwrap_or(0),
            form: put.form.clone(),
            location: Location::Memory(memory),
            number: self.last_number,
            connection: (!put.stays).then_some(connection),
            used,
            last_use: self.last_number,
            undefined: None,
            calls: VecDeque::new(),
            is_leaving: false,
            is_dropped: false,
            file: None,
        };
        self.numbers.insert(array.number, id);
        self.by_use.insert(self.last_number, id);
        self.arrays.insert(id, array);
    }

    /// Adds a file of the data folder, without memory yet.
    pub(crate) fn insert_file(&mut self, id: HandleId, file: Arc<DataFile>) {
        self.last_number += 1;
        let used = self.now;
        let array = Array {
            user: User::named("the data folder"),
            bytes: file.form.bytes().unwrap_or(0),
            form: file.form.clone(),
            location: Location::File,
            number: self.last_number,
            connection: None,
            used,
            last_use: self.last_number,
            undefined: None,
            calls: VecDeque::new(),
            is_leaving: false,
            is_dropped: false,
            file: Some(file),
        };
        self.by_use.insert(self.last_number, id);
        self.arrays.insert(id, array);
    }

    /// Makes an array remain after its connection has ended.
    pub(crate) fn keep(&mut self, id: HandleId) {
        if let Some(array) = self.arrays.get_mut(&id) {
            array.connection = None;
        }
    }

    /// Why the contents of an array are undefined.
    pub(crate) fn undefined(&self, id: HandleId) -> Option<&str> {
        self.arrays.get(&id)?.undefined.as_deref()
    }

    /// The array with this handle, if it belongs to this user.
    pub(crate) fn of_user(&self, id: HandleId, user: &User) -> Result<&Array, Failure> {
        let array = self.arrays.get(&id);
        let array = array.filter(|array| array.user == *user && !array.is_dropped);
        array.ok_or_else(|| {
            let text = format!(
                "there is no array {id} at the server: it was dropped, it has expired, its \
                 connection has ended, it is at another server, or it belongs to another user"
            );
            Failure::new(FailureKind::NotFound, text)
        })
    }

    /// Lends an array: makes a name under which it can be read once, within a minute.
    pub(crate) fn lend(
        &mut self,
        array: HandleId,
        loan: HandleId,
        now: u64,
    ) -> Result<(), Failure> {
        const MOST: usize = 4096;
        const LASTS_MS: u64 = 60_000;
        self.loans.retain(|_, loan| loan.expires > now);
        if self.loans.len() >= MOST {
            let text = format!(
                "{MOST} arrays wait for other servers to read them; try again in a \
             minute"
            );
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let expires = now.saturating_add(LASTS_MS);
        self.loans.insert(loan, Loan { array, expires });
        Ok(())
    }

    /// Whether an array is lent under this name.
    pub(crate) fn is_lent(&self, loan: HandleId, now: u64) -> bool {
        let loan = self.loans.get(&loan);
        loan.is_some_and(|loan| loan.expires > now)
    }

    /// The array that was lent under this name. The name is used up.
    pub(crate) fn redeem(&mut self, loan: HandleId, now: u64) -> Option<HandleId> {
        let loan = self.loans.remove(&loan)?;
        let array = self.arrays.get(&loan.array)?;
        (loan.expires > now && !array.is_dropped).then_some(loan.array)
    }

    pub(crate) fn get(&self, id: HandleId) -> Option<&Array> {
        self.arrays.get(&id)
    }

    pub(crate) fn record(&self, id: HandleId) -> Option<HandleRecord> {
        let array = self.arrays.get(&id)?;
        Some(HandleRecord {
            id,
            number: array.number,
            form: array.form.clone(),
            stays: array.connection.is_none(),
            used: array.used,
            on_disk: !matches!(array.location, Location::Memory(_) | Location::Nowhere),
            undefined: array.undefined.clone(),
        })
    }

    /// A user's arrays with numbers above `after`.
    pub(crate) fn page(&self, user: &User, after: u64) -> HandlePage {
        let numbers = self.numbers.range(after.saturating_add(1)..);
        let of_user = numbers.filter(|(_, id)| {
            let array = self.arrays.get(id);
            array.is_some_and(|array| array.user == *user && !array.is_dropped)
        });
        let records = of_user.filter_map(|(_, id)| self.record(*id));
        let mut handles: Vec<HandleRecord> = records.take(PAGE + 1).collect();
        let more = handles.len() > PAGE;
        handles.truncate(PAGE);
        let next = handles.last().filter(|_| more).map(|last| last.number);
        HandlePage { handles, next }
    }

    /// Puts an accepted call behind the other calls that use its arrays.
    pub(crate) fn line_up(&mut self, call: CallKey, uses: &[Use]) {
        for wanted in uses {
            if let Some(array) = self.arrays.get_mut(&wanted.id) {
                array.calls.push_back((call, wanted.writes));
            }
            self.touch(wanted.id);
        }
    }

    /// Counts a use: the retention of the array begins again.
    pub(crate) fn touch(&mut self, id: HandleId) {
        if let Some(array) = self.arrays.get_mut(&id) {
            self.last_number += 1;
            self.by_use.remove(&array.last_use);
            (array.used, array.last_use) = (self.now, self.last_number);
            self.by_use.insert(array.last_use, id);
        }
    }

    /// Whether the turn of a call has come.
    pub(crate) fn turn(&self, call: CallKey, uses: &[Use]) -> Turn {
        let mut turn = Turn::Now;
        for wanted in uses {
            let Some(array) = self.arrays.get(&wanted.id) else {
                return Turn::Later;
            };
            let before = array.calls.iter().take_while(|(other, _)| *other != call);
            let blocked = before.clone().any(|(_, writes)| *writes || wanted.writes);
            if blocked && !has(Flaw::MixesWriters) {
                turn = Turn::Later;
                continue;
            }
            let is_needed = !wanted.replaces || matches!(array.location, Location::Nowhere);
            if let Some(why) = array.undefined.as_ref().filter(|_| is_needed) {
                return Turn::Never(undefined(wanted.id, why));
            }
            turn = match (&array.location, turn) {
                (Location::Disk(_) | Location::File, Turn::Now) => Turn::Read(wanted.id),
                (Location::Moving, Turn::Now) => Turn::Later,
                (_, turn) => turn,
            };
        }
        turn
    }

    /// The memory of a call's arrays, when its turn has come.
    pub(crate) fn memory(&self, uses: &[Use]) -> Vec<MemoryKey> {
        let location = |wanted: &Use| match &self.arrays.get(&wanted.id)?.location {
            Location::Memory(memory) => Some(*memory),
            _ => None,
        };
        uses.iter().filter_map(location).collect()
    }

    /// Ends the use of arrays by a call. `failed` says why the arrays that it writes are undefined.
    /// Returns the calls that wait for these arrays, and what arrays that have ended leave behind.
    pub(crate) fn finish(
        &mut self,
        call: CallKey,
        uses: &[Use],
        failed: Option<&str>,
    ) -> (Vec<CallKey>, Vec<(HandleId, Remains)>) {
        let (mut waiting, mut ended) = (Vec::new(), Vec::new());
        for wanted in uses {
            let Some(array) = self.arrays.get_mut(&wanted.id) else {
                continue;
            };
            array.calls.retain(|(other, _)| *other != call);
            if wanted.writes {
                // The first reason counts: later calls fail because of it, and say so.
                let why = failed.map(|why| array.undefined.take().unwrap_or_else(|| reason(why)));
                array.undefined = why;
            }
            waiting.extend(array.calls.iter().map(|(call, _)| *call));
            if array.is_dropped && array.calls.is_empty() {
                let remains = self.remove(wanted.id);
                ended.extend(remains.map(|remains| (wanted.id, remains)));
            } else {
                self.touch(wanted.id);
            }
        }
        (waiting, ended)
    }

    /// Drops an array for its user. It ends at once, or after the last call that uses it. Returns
    /// what it leaves behind.
    pub(crate) fn drop_array(&mut self, id: HandleId) -> Option<Remains> {
        let array = self.arrays.get_mut(&id)?;
        array.is_dropped = true;
        match array.calls.is_empty() {
            true => self.remove(id),
            false => None,
        }
    }

    fn remove(&mut self, id: HandleId) -> Option<Remains> {
        let array = self.arrays.remove(&id)?;
        self.numbers.remove(&array.number);
        self.by_use.remove(&array.last_use);
        if array.file.is_none() {
            self.leave(&array.user, array.bytes);
        }
        match array.location {
            Location::Memory(memory) => {
                self.resident = self.resident.saturating_sub(array.bytes);
                Some(Remains::Memory(memory))
            }
            // The thread that moves the array returns its memory, and its file is removed then.
            Location::Moving => {
                self.dropped_on_way.insert(id);
                if array.is_leaving {
                    self.leaving = self.leaving.saturating_sub(array.bytes);
                }
                self.resident = self.resident.saturating_sub(array.bytes);
                None
            }
            Location::Disk(_) => Some(Remains::File),
            Location::File | Location::Nowhere => None,
        }
    }

    /// The arrays that end with a connection.
    pub(crate) fn of_connection(&self, connection: ConnectionKey) -> Vec<HandleId> {
        let arrays = self.arrays.iter();
        let of_it = arrays.filter(|(_, array)| array.connection == Some(connection));
        of_it.map(|(id, _)| *id).collect()
    }

    /// The connections whose arrays, which end with them, were used within so many milliseconds.
    pub(crate) fn just_used(&self, ms: u64) -> BTreeSet<ConnectionKey> {
        let since = self.now.saturating_sub(ms) + 1;
        let latest = self.by_use.values().rev().map(|id| &self.arrays[id]);
        let recent = latest.take_while(|array| array.used >= since);
        recent.filter_map(|array| array.connection).collect()
    }

    /// Retention of stored arrays, in milliseconds after the last use: at least one, so that what
    /// is in use is not looked at all the time.
    pub(crate) fn keep_ms(&self) -> u64 {
        ((self.settings.keep_h.clamp(0.0, 1e6) * 3.6e6) as u64).max(1)
    }

    /// When the next unused array expires.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        let (_, id) = self.by_use.first_key_value()?;
        Some(self.arrays[id].used.saturating_add(self.keep_ms()))
    }

    /// An array whose retention is over.
    pub(crate) fn expired(&mut self, now: u64) -> Option<HandleId> {
        let (_, &id) = self.by_use.first_key_value()?;
        if self.arrays[&id].used.saturating_add(self.keep_ms()) > now {
            return None;
        }
        // An array that a call holds is in use.
        if self
            .arrays
            .get(&id)
            .is_some_and(|array| !array.calls.is_empty())
        {
            self.touch(id);
            return None;
        }
        Some(id)
    }
}

/// The system has refused this memory: an array that should have it has no contents.
pub(crate) fn refuse(store: &mut Store, memory: MemoryKey, why: &str) {
    let mut arrays = store.arrays.values_mut();
    let has_it =
        |array: &&mut Array| matches!(array.location, Location::Memory(own) if own == memory);
    if let Some(array) = arrays.find(has_it) {
        let text = format!("the system refused memory for it ({why}); drop it and put it again");
        array.undefined = Some(text);
        array.location = Location::Nowhere;
        store.resident = store.resident.saturating_sub(array.bytes);
    }
}

/// The beginning of a failure, as the reason why an array is undefined.
fn reason(failure: &str) -> String {
    match failure.len() > REASON_BYTES {
        true => format!(
            "{}...",
            &failure[..failure.floor_char_boundary(REASON_BYTES)]
        ),
        false => failure.to_owned(),
    }
}

/// The failure of a call that uses an array without contents.
fn undefined(id: HandleId, why: &str) -> Failure {
    let text = format!("uses the array {id}, whose contents are undefined: {why}");
    Failure::new(FailureKind::BadArgument, text)
}

#[cfg(test)]
mod tests;

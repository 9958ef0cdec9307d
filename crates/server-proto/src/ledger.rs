//! The ledger of durable calls: what the logs of a state folder say, and what is appended to them.
//!
//! The ledger decides which bytes are appended to both logs, and gives the answers that the server
//! gets after they are on the disk. It does no I/O: the shell, and the simulator's disk, write and
//! read for it. A change that the recorded state does not allow (`lifecycle`) has no effect, and
//! the answer says so.

mod fold;

pub use fold::{Damage, Rebuilt, rebuild};

use crate::event::Event;
use crate::lifecycle::next;
use crate::log::{self, Head, Kind, MOST_PAYLOAD, Place};
use crate::map::Map;
use crate::record::{Changed, Content, Entry, Outcome, Record, Stored};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId, Made};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Most characters of a recorded failure.
const FAILURE_CHARS: usize = 2000;
/// Bytes that no record needs, beyond as many as the records have, before the logs are written
/// anew.
const SLACK: u64 = 16 << 20;

/// The payload of [`Kind::Call`].
#[derive(Encode, Decode)]
struct CallPayload {
    #[n(0)]
    record: Record,
    /// Its arguments, if they are short.
    #[n(1)]
    arguments: Option<ByteVec>,
    /// Its results, if they are short.
    #[n(2)]
    result: Option<ByteVec>,
}

/// The payload of [`Kind::Status`]. It says everything that has changed since the call was
/// submitted, so that only the last one is needed.
#[derive(Encode, Decode)]
struct Status {
    #[n(0)]
    state: DurableState,
    #[n(1)]
    started: Option<u64>,
    #[n(2)]
    ended: Option<u64>,
    #[n(3)]
    kept_from: Option<u64>,
    #[n(4)]
    result: Option<Stored>,
    #[n(5)]
    exec: Option<u64>,
    #[n(6)]
    failure: Option<Failure>,
    /// Its results, if they are short.
    #[n(7)]
    data: Option<ByteVec>,
    #[n(8)]
    made: Option<Made>,
}

impl Status {
    fn apply(self, record: &mut Record) {
        record.state = self.state;
        record.started = self.started;
        record.ended = self.ended;
        record.kept_from = self.kept_from;
        record.result = self.result.unwrap_or(record.result);
        record.exec = self.exec;
        record.failure = self.failure;
        record.made = self.made;
    }
}

/// The time of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Milliseconds that servers have served with this folder.
    pub served: u64,
}

/// What the ledger knows about a call. The rest is in the logs.
#[derive(Clone, Debug)]
struct Known {
    number: u64,
    state: DurableState,
    started: Option<u64>,
    call: Spot,
    status: Option<Spot>,
}

impl Known {
    fn bytes(&self) -> u64 {
        let spots = [Some(self.call), self.status];
        spots.into_iter().flatten().map(|spot| spot.bytes).sum()
    }
}

/// Where a frame is in both logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Its offset.
    pub at: u64,
    /// Its length with the head.
    pub bytes: u64,
}

/// The state of the logs of one folder.
#[derive(Debug)]
pub struct Ledger {
    folder: u64,
    calls: Map<JobId, Known>,
    /// Short arrays that wait for their record.
    held: Map<(JobId, Content), Vec<u8>>,
    last_number: u64,
    /// Sequence number of the next frame.
    next: u64,
    /// Length of each log.
    length: u64,
    /// Bytes of frames that are needed.
    needed: u64,
    batch: Batch,
}

/// Frames that are not on the disk yet, and how to undo them.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    frames: u64,
    undo: Vec<(JobId, Option<Known>)>,
    used: Vec<(JobId, Content)>,
    last_number: u64,
}

impl Ledger {
    /// The ledger of a new folder. [`Ledger::rewrite`] gives the first frames of its logs.
    pub fn new(folder: u64) -> Ledger {
        Ledger {
            folder,
            calls: Map::default(),
            held: Map::default(),
            last_number: 0,
            next: 1,
            length: 0,
            needed: 0,
            batch: Batch::default(),
        }
    }

    /// Identity of the folder.
    pub fn folder(&self) -> u64 {
        self.folder
    }

    /// Length of each log in bytes, without the current batch.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether most of the logs is no longer needed.
    pub fn is_long(&self) -> bool {
        self.length > self.needed.saturating_mul(2).saturating_add(SLACK)
    }

    /// Keeps a short array until its call is recorded.
    pub fn hold(&mut self, id: JobId, content: Content, bytes: Vec<u8>) -> Stored {
        let stored = Stored::of(&bytes);
        self.held.insert((id, content), bytes);
        stored
    }

    /// Forgets a short array that no record will need.
    pub fn release(&mut self, id: JobId, content: Content) {
        self.held.remove(&(id, content));
    }

    /// The frames that may have a short array of a call, the likelier one first.
    pub fn spots(&self, id: JobId) -> Vec<Spot> {
        let known = self.calls.get(&id);
        let spots = known.map(|known| [known.status, Some(known.call)]);
        spots.into_iter().flatten().flatten().collect()
    }

    /// Adds an entry to the batch. Returns what the server is told after the batch is on the disk.
    pub fn record(&mut self, entry: &Entry, now: Moment) -> Event {
        match entry {
            Entry::Insert(record) => Event::Inserted(record.id, self.insert(record, now)),
            Entry::Change {
                id,
                change,
                outcome,
            } => {
                let Some(known) = self.calls.get(id).cloned() else {
                    return Event::Changed(*id, None);
                };
                let changed = match next(known.state, *change) {
                    None => Changed {
                        change: *change,
                        state: known.state,
                        at: now.unix_ms,
                        served: now.served,
                        applied: false,
                        outcome: Outcome::default(),
                    },
                    Some(state) => {
                        let mut outcome = outcome.clone();
                        if let Some(failure) = &mut outcome.failure {
                            failure.message = failure.message.chars().take(FAILURE_CHARS).collect();
                        }
                        let changed = Changed {
                            change: *change,
                            state,
                            at: now.unix_ms,
                            served: now.served,
                            applied: true,
                            outcome,
                        };
                        self.change(*id, known, &changed, now);
                        changed
                    }
                };
                Event::Changed(*id, Some(changed))
            }
            Entry::Forget(id) => {
                if let Some(known) = self.calls.remove(id) {
                    self.batch.undo.push((*id, Some(known)));
                    self.append(Kind::Forget, *id, &[], now);
                }
                Event::Forgotten(*id)
            }
        }
    }

    fn insert(&mut self, record: &Record, now: Moment) -> Result<u64, Failure> {
        let number = self.last_number + 1;
        let mut record = record.clone();
        record.number = number;
        let id = record.id;
        let arguments = self.take_held(id, Content::Arguments, record.arguments);
        let payload = CallPayload {
            record,
            arguments,
            result: None,
        };
        let payload = encoded(&payload);
        if payload.len() > MOST_PAYLOAD {
            let text = format!(
                "the server cannot record the call: its scalars, strings and interface have {} \
                 bytes, and {MOST_PAYLOAD} can be recorded",
                payload.len()
            );
            return Err(Failure::new(FailureKind::QuotaExceeded, text));
        }
        let call = self.append(Kind::Call, id, &payload, now);
        self.last_number = number;
        let known = Known {
            number,
            state: DurableState::Queued,
            started: None,
            call,
            status: None,
        };
        self.set(id, known);
        Ok(number)
    }

    /// Whether there is a record of this call.
    pub fn has(&self, id: JobId) -> bool {
        self.calls.contains_key(&id)
    }

    /// Adds a call in any state, with its short arrays, to the batch: from an earlier version, or
    /// from a file that describes it. Returns its record with its number here.
    pub fn adopt(
        &mut self,
        mut record: Record,
        arguments: Option<Vec<u8>>,
        result: Option<Vec<u8>>,
        now: Moment,
    ) -> Record {
        record.number = record.number.max(self.last_number + 1);
        let payload = CallPayload {
            record: record.clone(),
            arguments: arguments.map(ByteVec::from),
            result: result.map(ByteVec::from),
        };
        let call = self.append(Kind::Call, record.id, &encoded(&payload), now);
        self.last_number = record.number;
        let known = Known {
            number: record.number,
            state: record.state,
            started: record.started,
            call,
            status: None,
        };
        self.set(record.id, known);
        record
    }

    fn change(&mut self, id: JobId, mut known: Known, changed: &Changed, now: Moment) {
        let is_over = changed.state.is_over();
        if changed.state == DurableState::Running {
            known.started = Some(now.unix_ms);
        }
        known.state = changed.state;
        let outcome = &changed.outcome;
        let result = outcome.result.unwrap_or_default();
        let status = Status {
            state: changed.state,
            started: known.started,
            ended: is_over.then_some(now.unix_ms),
            kept_from: is_over.then_some(now.served),
            result: outcome.result,
            exec: outcome.exec,
            failure: outcome.failure.clone(),
            data: self.take_held(id, Content::Result, result),
            made: outcome.made.clone(),
        };
        known.status = Some(self.append(Kind::Status, id, &encoded(&status), now));
        self.set(id, known);
    }

    fn take_held(&mut self, id: JobId, content: Content, stored: Stored) -> Option<ByteVec> {
        let bytes = self.held.get(&(id, content))?;
        if Stored::of(bytes) != stored {
            return None;
        }
        self.batch.used.push((id, content));
        Some(bytes.clone().into())
    }

    fn set(&mut self, id: JobId, known: Known) {
        let before = self.calls.insert(id, known);
        self.batch.undo.push((id, before));
    }

    /// Adds a frame that says how long the server has served.
    pub fn tell_time(&mut self, now: Moment) {
        self.append(Kind::Clock, JobId([0; 16]), &[], now);
    }

    fn append(&mut self, kind: Kind, id: JobId, payload: &[u8], now: Moment) -> Spot {
        if self.batch.frames == 0 {
            self.batch.last_number = self.last_number;
        }
        let head = Head {
            kind,
            seq: self.next + self.batch.frames,
            acked: self.next - 1,
            served: now.served,
            folder: self.folder,
            id,
            length: 0,
            sum: 0,
        };
        let at = self.length + self.batch.bytes.len() as u64;
        log::encode(&head, payload, &mut self.batch.bytes);
        self.batch.frames += 1;
        let end = self.length + self.batch.bytes.len() as u64;
        Spot {
            at,
            bytes: end - at,
        }
    }

    /// The bytes to append to both logs.
    pub fn batch(&self) -> &[u8] {
        &self.batch.bytes
    }

    /// The batch is on the disk, in both logs.
    pub fn commit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.length += batch.bytes.len() as u64;
        self.next += batch.frames;
        for used in batch.used {
            self.held.remove(&used);
        }
        // Each call counts once, with what it had before the batch and what it has now.
        let mut seen = crate::map::Set::default();
        for (id, before) in batch.undo {
            if seen.insert(id) {
                let before = before.map_or(0, |known| known.bytes());
                let now = self.calls.get(&id).map_or(0, Known::bytes);
                self.needed = self.needed.saturating_sub(before) + now;
            }
        }
    }

    /// The batch could not be written: everything is as before it.
    pub fn roll_back(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if batch.frames > 0 {
            self.last_number = batch.last_number;
        }
        for (id, before) in batch.undo.into_iter().rev() {
            match before {
                Some(known) => self.calls.insert(id, known),
                None => self.calls.remove(&id),
            };
        }
    }

    /// Writes the logs anew, with one frame for each call. The batch must be empty. `read` gives
    /// the bytes of a frame with its head. The result is the ledger of the new logs.
    ///
    /// # Errors
    /// The first error of `read` or `write`. The old logs and this ledger are still right then.
    pub fn rewrite<E: From<Unreadable>>(
        &self,
        now: Moment,
        mut read: impl FnMut(Spot) -> Result<Vec<u8>, E>,
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Ledger, E> {
        let mut new = Ledger::new(self.folder);
        (new.next, new.last_number) = (self.next, self.last_number);
        new.held.clone_from(&self.held);
        let mut ids: Vec<(u64, JobId)> = self
            .calls
            .iter()
            .map(|(id, known)| (known.number, *id))
            .collect();
        ids.sort_unstable();
        let snapshot = log::snapshot_id(ids.len() as u64, self.last_number);
        new.append(Kind::Snapshot, snapshot, &[], now);
        // No frame of a snapshot is confirmed before both logs have all of it.
        for (_, id) in ids {
            let known = &self.calls[&id];
            let status = known.status.map(&mut read).transpose()?;
            let call = whole(read(known.call)?, status).ok_or(Unreadable(id))?;
            let spot = new.append(Kind::Call, id, &encoded(&call), now);
            let known = Known {
                call: spot,
                status: None,
                ..known.clone()
            };
            new.needed += known.bytes();
            new.calls.insert(id, known);
            if new.batch.bytes.len() > WRITTEN_AT_ONCE {
                write(&new.batch.bytes)?;
                new.length += new.batch.bytes.len() as u64;
                new.batch.bytes.clear();
            }
        }
        write(&new.batch.bytes)?;
        new.commit();
        Ok(new)
    }
}

/// Bytes of one write when the logs are written anew.
const WRITTEN_AT_ONCE: usize = 1 << 20;

/// The frames of this call cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable(pub JobId);

impl From<Unreadable> for std::io::Error {
    fn from(Unreadable(id): Unreadable) -> std::io::Error {
        std::io::Error::other(format!("the records of {id} cannot be read"))
    }
}

/// A call as one frame has it, from its frames with their heads.
fn whole(call: Vec<u8>, status: Option<Vec<u8>>) -> Option<CallPayload> {
    let mut call: CallPayload = minicbor::decode(call.get(log::HEAD_BYTES..)?).ok()?;
    if let Some(status) = status {
        let mut status: Status = minicbor::decode(status.get(log::HEAD_BYTES..)?).ok()?;
        call.result = status.data.take().or(call.result);
        status.apply(&mut call.record);
    }
    if call.record.state.is_over() {
        call.arguments = None;
    }
    Some(call)
}

/// The short array that a frame has, given the frame with its head.
pub fn short_array(frame: &[u8], content: Content) -> Option<Vec<u8>> {
    let Some(Ok(head)) = log::decode(frame) else {
        return None;
    };
    let payload = frame.get(log::HEAD_BYTES..)?;
    if !log::is_payload(&head, payload) {
        return None;
    }
    let found = match (head.kind, content) {
        (Kind::Status, Content::Result) => minicbor::decode::<Status>(payload).ok()?.data,
        (Kind::Call, Content::Arguments) => {
            minicbor::decode::<CallPayload>(payload).ok()?.arguments
        }
        (Kind::Call, Content::Result) => minicbor::decode::<CallPayload>(payload).ok()?.result,
        _ => None,
    };
    found.map(Vec::from)
}

/// What the server is told about entries that the disk does not take: new calls fail. The others
/// remain in `entries`, to be tried again.
pub fn refuse(entries: &mut Vec<Entry>, why: &str) -> Vec<Event> {
    let mut refused = Vec::new();
    entries.retain(|entry| {
        let Entry::Insert(record) = entry else {
            return true;
        };
        let text = format!("the server cannot record the call: {why}");
        let failure = Failure::new(FailureKind::StorageFault, text);
        refused.push(Event::Inserted(record.id, Err(failure)));
        false
    });
    refused
}

/// The end of a file with an array of a call. It tells whose array this is, so that the call is
/// known even without the logs.
pub fn trailer(folder: u64, content: Content, record: &Record) -> Vec<u8> {
    let head = Head {
        kind: match content {
            Content::Result => Kind::Result,
            _ => Kind::Arguments,
        },
        seq: record.number,
        acked: 0,
        served: record.kept_from.unwrap_or(0),
        folder,
        id: record.id,
        length: 0,
        sum: 0,
    };
    let mut out = Vec::new();
    log::encode_trailer(&head, &encoded(record), &mut out);
    out
}

/// The call that the trailer of a file describes; `trailer` is its frame. `None` if it is damaged.
pub fn described(trailer: &[u8]) -> Option<(u64, Content, Record)> {
    let Some(Ok(head)) = log::decode(trailer) else {
        return None;
    };
    let payload = trailer.get(log::HEAD_BYTES..)?;
    let content = match head.kind {
        Kind::Arguments => Content::Arguments,
        Kind::Result => Content::Result,
        _ => return None,
    };
    let record: Record = match log::is_payload(&head, payload) {
        true => minicbor::decode(payload).ok()?,
        false => return None,
    };
    Some((head.folder, content, record))
}

fn encoded<T: Encode<()>>(value: &T) -> Vec<u8> {
    // Writing into a vector does not fail.
    minicbor::to_vec(value).unwrap_or_default()
}

/// The place of a frame whose offset is the same in both logs.
fn spot(place: &Place) -> Option<Spot> {
    match place.at {
        [Some(a), Some(b)] if a == b => Some(Spot {
            at: a,
            bytes: place.head.bytes(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

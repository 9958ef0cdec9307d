//! A model of a disk: a journal and files. A kill can lose what was not synced, and a disk that
//! lies can lose what it said was synced.

use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use farcall_server_proto::{
    Changed, Content, DiskError, Event, JournalEntry, Outcome, Record, Stored, lifecycle,
};
use std::collections::BTreeMap;

/// A file.
#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    /// The next kill loses it.
    is_forgotten: bool,
}

/// What is on the disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    records: BTreeMap<JobId, Record>,
    last_number: u64,
    files: BTreeMap<(JobId, u8), File>,
    /// Entries on their way, in their order.
    queue: Vec<JournalEntry>,
}

fn name(id: JobId, content: Content) -> (JobId, u8) {
    (id, content as u8)
}

/// A substitute for a checksum.
fn sum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(16_777_619);
    bytes.iter().fold(2_166_136_261, step)
}

impl Disk {
    /// Accepts an entry, to be committed later.
    pub(crate) fn append(&mut self, entry: JournalEntry) {
        self.queue.push(entry);
    }

    /// Commits the entries so far. Returns the journal's events.
    pub(crate) fn commit(&mut self, now: u64) -> Vec<Event> {
        let queue = std::mem::take(&mut self.queue);
        let said = queue.into_iter().map(|entry| self.apply(entry, now));
        said.collect()
    }

    /// The disk is full: new calls are refused, the other entries wait.
    pub(crate) fn refuse(&mut self) -> Vec<Event> {
        let (new, rest) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|entry| matches!(entry, JournalEntry::Insert(_)));
        self.queue = rest;
        let new: Vec<JournalEntry> = new;
        let refused = new.into_iter().filter_map(|entry| match entry {
            JournalEntry::Insert(record) => {
                let failure = Failure::new(FailureKind::StorageFault, "no room");
                Some(Event::Inserted(record.id, Err(failure)))
            }
            _ => None,
        });
        refused.collect()
    }

    /// Whether entries wait.
    pub(crate) fn has_entries(&self) -> bool {
        !self.queue.is_empty()
    }

    fn apply(&mut self, entry: JournalEntry, now: u64) -> Event {
        match entry {
            JournalEntry::Insert(mut record) => {
                self.last_number += 1;
                record.number = self.last_number;
                let id = record.id;
                self.records.insert(id, *record);
                Event::Inserted(id, Ok(self.last_number))
            }
            JournalEntry::Change {
                id,
                change,
                outcome,
            } => Event::Changed(id, self.change(id, change, outcome, now)),
            JournalEntry::Forget(id) => {
                self.records.remove(&id);
                Event::Forgotten(id)
            }
        }
    }

    fn change(
        &mut self,
        id: JobId,
        change: lifecycle::Change,
        outcome: Outcome,
        now: u64,
    ) -> Option<Changed> {
        let record = self.records.get_mut(&id)?;
        let Some(state) = lifecycle::next(record.state, change) else {
            return Some(Changed {
                change,
                state: record.state,
                at: now,
                applied: false,
                outcome: Outcome::default(),
            });
        };
        record.state = state;
        match state {
            DurableState::Running => record.started = Some(now),
            state if state.is_over() => record.ended = Some(now),
            _ => {}
        }
        record.result = outcome.result.unwrap_or(record.result);
        record.exec = outcome.exec;
        record.failure.clone_from(&outcome.failure);
        Some(Changed {
            change,
            state,
            at: now,
            applied: true,
            outcome,
        })
    }

    /// Writes a file.
    pub(crate) fn write(
        &mut self,
        id: JobId,
        content: Content,
        bytes: Vec<u8>,
        is_forgotten: bool,
    ) -> Stored {
        let stored = Stored {
            bytes: bytes.len() as u64,
            sum: sum(&bytes),
        };
        let file = File {
            bytes,
            is_forgotten,
        };
        self.files.insert(name(id, content), file);
        stored
    }

    /// Reads a file, if it is what was written.
    pub(crate) fn read(
        &self,
        id: JobId,
        content: Content,
        stored: Stored,
    ) -> Result<Vec<u8>, DiskError> {
        let file = self.files.get(&name(id, content));
        let whole = file.filter(|file| {
            file.bytes.len() as u64 == stored.bytes && sum(&file.bytes) == stored.sum
        });
        whole.map(|file| file.bytes.clone()).ok_or(DiskError {
            is_full: false,
            text: "the file is not what was written".to_string(),
        })
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, id: JobId, content: Content) {
        self.files.remove(&name(id, content));
    }

    /// The server is killed. The first `committed` entries in the queue are committed all the same.
    /// Files that a lying disk forgets are truncated.
    pub(crate) fn killed(&mut self, committed: usize, now: u64) {
        self.queue.truncate(committed);
        self.commit(now);
        for file in self.files.values_mut() {
            if std::mem::take(&mut file.is_forgotten) {
                let half = file.bytes.len() / 2;
                file.bytes.truncate(half);
            }
        }
    }

    /// The records that a server finds when it starts, changed as a restart requires. Removes files
    /// that no record needs.
    pub(crate) fn open(&mut self, now: u64) -> Vec<Record> {
        let ids: Vec<JobId> = self.records.keys().copied().collect();
        for id in ids {
            if let Some((change, outcome)) = self.records[&id].restart() {
                self.change(id, change, outcome, now);
            }
        }
        let records = &self.records;
        let contents = [Content::Arguments, Content::Result, Content::Array];
        self.files.retain(|(id, kind), _| {
            let content = contents.into_iter().find(|content| *content as u8 == *kind);
            let record = records.get(id);
            content.is_some_and(|content| record.is_some_and(|record| record.needs(content)))
        });
        let mut all: Vec<Record> = self.records.values().cloned().collect();
        all.sort_by_key(|record| record.number);
        all
    }
}

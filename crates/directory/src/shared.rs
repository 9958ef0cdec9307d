//! The exchange of records with a store that several metaservers share: what to write and when, and
//! what to take from it. The metaserver does the I/O. A row never replaces one that is valid for
//! longer, and each record is written at most once a second, except at the end.

use crate::message::{Invalid, Message};
use crate::{Change, Directory, Key, Record};
use std::collections::BTreeMap;

/// Shortest time between two writes of one record. Servers report more often than others need to
/// know.
const SETTLE_S: f64 = 1.0;
/// Time between two readings of the whole store, in case a notification was lost.
const RELOAD_S: f64 = 10.0;

/// How long a store keeps the record of a path after its last measurement, in milliseconds. A
/// server has another number after a restart, so that nobody renews the records of its earlier
/// paths.
pub const PATH_KEPT_MS: u64 = 30 * 24 * 3_600_000;

/// A change of a row in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Put these bytes, which are valid until the given time, unless the row is valid for longer.
    Put(Key, u64, Vec<u8>),
    /// Remove the row, unless it is valid for longer than this. Times are milliseconds since 1970.
    Remove(Key, u64),
}

/// What to write to the store, and when. Seconds are those of a monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// Changes to write, and when each record was last written.
    changes: BTreeMap<Key, Change>,
    written: BTreeMap<Key, f64>,
    reload_at: f64,
}

impl Exchange {
    /// Collects the changes of a directory.
    pub fn collect(&mut self, directory: &mut Directory) {
        for change in directory.changes() {
            let (Change::Put(key) | Change::Gone(key, _)) = change;
            self.changes.insert(key, change);
        }
    }

    /// Handles a newly opened store: all its rows must be read.
    pub fn opened(&mut self) {
        self.reload_at = f64::NEG_INFINITY;
    }

    /// Whether to read all rows now, and not only new ones.
    pub fn reads_all(&mut self, now_s: f64) -> bool {
        let all = now_s >= self.reload_at;
        if all {
            self.reload_at = now_s + RELOAD_S;
        }
        all
    }

    /// Takes a row; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// The row cannot be read. It is skipped.
    pub fn read(&self, directory: &mut Directory, now: f64, row: &[u8]) -> Result<(), Invalid> {
        let record = Record::from_bytes(row)?;
        let key = record.key();
        if let Some(Change::Gone(_, until_ms)) = self.changes.get(&key)
            && record.expires_ms() <= *until_ms
        {
            // The row will be removed.
            return Ok(());
        }
        // What this metaserver has observed since then is newer.
        let is_ours = self.changes.contains_key(&key) || self.written.contains_key(&key);
        if !(is_ours && matches!(key, Key::Path { .. })) {
            directory.apply(now, record);
        }
        Ok(())
    }

    /// The records to write now; with `ends`, all of them. The caller must report each [written
    /// record](Exchange::wrote).
    pub fn due(&mut self, now_s: f64, ends: bool) -> Vec<Key> {
        let written = &mut self.written;
        written.retain(|_, at| now_s - *at < SETTLE_S);
        let is_due = |key: &&Key| ends || !written.contains_key(*key);
        self.changes.keys().filter(is_due).copied().collect()
    }

    /// The change of a record's row, if there is one.
    pub fn write(&self, directory: &Directory, key: Key) -> Option<Write> {
        match (self.changes.get(&key), directory.record(key)) {
            (Some(Change::Gone(_, until_ms)), None) => Some(Write::Remove(key, *until_ms)),
            (_, Some(record)) => {
                let until_ms = kept_until(&record, directory.date(directory.now));
                Some(Write::Put(key, until_ms, record.to_bytes()))
            }
            (_, None) => None,
        }
    }

    /// Records that a record was written.
    pub fn wrote(&mut self, key: Key, now_s: f64) {
        self.changes.remove(&key);
        self.written.insert(key, now_s);
    }
}

/// Until when a row that is written now is valid, in milliseconds since 1970.
fn kept_until(record: &Record, now_ms: u64) -> u64 {
    match record {
        Record::Path(_) => now_ms.saturating_add(PATH_KEPT_MS),
        Record::Server(_) | Record::Data(_) => record.expires_ms(),
    }
}

//! What a directory gives to a store that other metaservers read, and what it takes from there.

use crate::message::{Invalid, Message};
use crate::{Change, Directory, Key, Record};
use std::collections::BTreeMap;

/// Seconds between two writes of one record: servers report more often than others need to know.
const SETTLE_S: f64 = 1.0;
/// All rows are read again after so many seconds, for a word may have been missed.
const RELOAD_S: f64 = 10.0;

/// What is to be done to a row of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Put these bytes in its place, which hold until then, unless what is there holds for longer.
    Put(Key, u64, Vec<u8>),
    /// Remove it, unless it holds for longer than this. Times are milliseconds since 1970.
    Remove(Key, u64),
}

/// What of a directory is to be written to its store, and when. Seconds are those of a clock that
/// nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// What is to be written, and when each was written last.
    changes: BTreeMap<Key, Change>,
    written: BTreeMap<Key, f64>,
    reload_at: f64,
}

impl Exchange {
    /// Takes note of what has changed.
    pub fn collect(&mut self, directory: &mut Directory) {
        for change in directory.changes() {
            let (Change::Put(key) | Change::Gone(key, _)) = change;
            self.changes.insert(key, change);
        }
    }

    /// The store was opened: all its rows are to be read.
    pub fn opened(&mut self) {
        self.reload_at = f64::NEG_INFINITY;
    }

    /// Whether all rows are to be read now, and not only what is new.
    pub fn reads_all(&mut self, now_s: f64) -> bool {
        let all = now_s >= self.reload_at;
        if all {
            self.reload_at = now_s + RELOAD_S;
        }
        all
    }

    /// Takes in a row; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// It cannot be read, and is left out.
    pub fn read(&self, directory: &mut Directory, now: f64, row: &[u8]) -> Result<(), Invalid> {
        let record = Record::from_bytes(row)?;
        let key = record.key();
        if let Some(Change::Gone(_, until_ms)) = self.changes.get(&key)
            && record.expires_ms() <= *until_ms
        {
            // It is about to be removed.
            return Ok(());
        }
        // What was observed here since it was written is newer.
        let is_ours = self.changes.contains_key(&key) || self.written.contains_key(&key);
        if !(is_ours && matches!(key, Key::Path { .. })) {
            directory.apply(now, record);
        }
        Ok(())
    }

    /// What is to be written now, all at the end; each is to be [said](Exchange::wrote) when it
    /// is.
    pub fn due(&mut self, now_s: f64, ends: bool) -> Vec<Key> {
        let written = &mut self.written;
        written.retain(|_, at| now_s - *at < SETTLE_S);
        let is_due = |key: &&Key| ends || !written.contains_key(*key);
        self.changes.keys().filter(is_due).copied().collect()
    }

    /// What is to be done to the row of a record, if anything is.
    pub fn write(&self, directory: &Directory, key: Key) -> Option<Write> {
        match (self.changes.get(&key), directory.record(key)) {
            (Some(Change::Gone(_, until_ms)), None) => Some(Write::Remove(key, *until_ms)),
            (_, Some(record)) => Some(Write::Put(key, record.expires_ms(), record.to_bytes())),
            (_, None) => None,
        }
    }

    /// A record was written.
    pub fn wrote(&mut self, key: Key, now_s: f64) {
        self.changes.remove(&key);
        self.written.insert(key, now_s);
    }
}

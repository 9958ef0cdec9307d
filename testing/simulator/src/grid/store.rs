//! The store that metaservers share: rows, each valid until a time. It outlives them. As in the
//! real stores, a write does not replace a row that is valid for longer.

use farcall_directory::Key;
use farcall_directory::shared::Write;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Row {
    until_ms: u64,
    body: Vec<u8>,
}

/// Rows that outlive metaservers.
#[derive(Debug, Default)]
pub(crate) struct Store {
    rows: BTreeMap<Key, Row>,
    /// Counts the changes.
    version: u64,
}

impl Store {
    /// Executes a write of a metaserver.
    pub(crate) fn write(&mut self, write: Write) {
        let holds_longer =
            |row: Option<&Row>, until: u64| row.is_some_and(|row| row.until_ms > until);
        match write {
            Write::Put(key, until_ms, body) if !holds_longer(self.rows.get(&key), until_ms) => {
                self.rows.insert(key, Row { until_ms, body });
            }
            Write::Remove(key, until_ms) if !holds_longer(self.rows.get(&key), until_ms) => {
                self.rows.remove(&key);
            }
            _ => return,
        }
        self.version += 1;
    }

    /// All valid rows. Removes the others.
    pub(crate) fn load(&mut self, now_ms: u64) -> Vec<Vec<u8>> {
        self.rows.retain(|_, row| row.until_ms > now_ms);
        self.rows.values().map(|row| row.body.clone()).collect()
    }

    /// Changes so far: a reader that has seen fewer has something to read.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }
}

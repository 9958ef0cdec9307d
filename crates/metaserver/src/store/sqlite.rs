//! A store in an SQLite file. It reads and writes rows without knowing what they mean. A row never
//! replaces a row that is valid for longer. A power failure can lose the latest rows, but it does
//! not damage the file.

use super::{Body, MOST_BYTES, MOST_ROWS, Times};
use rusqlite::{Connection, Result, params};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Time to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Sqlite {
    connection: Connection,
    /// Data version of SQLite. It changes when another connection has written.
    version: i64,
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Sqlite> {
        // The store has the addresses of servers and the names of data: only its owner reads it.
        // Its log gets the same mode. SQLite says what is wrong if the file cannot be made.
        let mut new = OpenOptions::new();
        let _ = new.write(true).create_new(true).mode(0o600).open(path);
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A power failure can lose the latest records, but it cannot damage the file.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS farcall_directory (
                 key TEXT PRIMARY KEY, expires_ms INTEGER NOT NULL, body BLOB NOT NULL
             ) WITHOUT ROWID",
        )?;
        let mut store = Sqlite {
            connection,
            version: 0,
        };
        store.version = store.data_version()?;
        Ok(store)
    }

    fn data_version(&self) -> Result<i64> {
        self.connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
    }

    pub(super) fn put(&self, key: &str, until: i64, body: &[u8]) -> Result<()> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO farcall_directory (key, expires_ms, body) VALUES (?1, ?2, ?3)
             ON CONFLICT (key) DO UPDATE SET expires_ms = excluded.expires_ms, body = excluded.body
             WHERE farcall_directory.expires_ms <= excluded.expires_ms",
        )?;
        put.execute(params![key, until, body]).map(drop)
    }

    pub(super) fn remove(&self, key: &str, until: i64) -> Result<()> {
        let mut remove = self
            .connection
            .prepare_cached("DELETE FROM farcall_directory WHERE key = ?1 AND expires_ms <= ?2")?;
        remove.execute(params![key, until]).map(drop)
    }

    pub(super) fn load(&self, times: &Times) -> Result<Vec<Body>> {
        let mut age = self.connection.prepare_cached(
            "UPDATE farcall_directory SET expires_ms = ?1
             WHERE key LIKE 'path/%' AND expires_ms > ?2",
        )?;
        age.execute([times.path_until, times.path_latest])?;
        let mut sweep = self
            .connection
            .prepare_cached("DELETE FROM farcall_directory WHERE expires_ms <= ?1")?;
        sweep.execute([times.now])?;
        let mut all = self.connection.prepare_cached(
            "SELECT body FROM farcall_directory WHERE length(body) <= ?1
             ORDER BY key LIKE 'path/%', expires_ms DESC LIMIT ?2",
        )?;
        let rows = all.query_map([MOST_BYTES, MOST_ROWS], |row| row.get(0))?;
        rows.collect()
    }

    pub(super) fn news(&mut self, times: &Times) -> Result<Vec<Body>> {
        let version = self.data_version()?;
        if version == self.version {
            return Ok(Vec::new());
        }
        self.version = version;
        self.load(times)
    }
}

//! A store in a PostgreSQL table. The database notifies the metaservers of each change.

use super::{Body, MOST_BYTES, MOST_ROWS, Times};
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Config, Error, NoTls};
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

/// Time within which the database must answer.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Postgres(Client);

impl Postgres {
    pub(super) fn open(url: &str) -> Result<Postgres, Error> {
        let mut config = Config::from_str(url)?;
        config
            .connect_timeout(PATIENCE)
            .application_name("farcall meta");
        config.tcp_user_timeout(PATIENCE).keepalives_idle(PATIENCE);
        let mut client = config.connect(NoTls)?;
        // This is one transaction, which holds the lock until its end. If two metaservers create
        // the table at once, the second one finds that it exists.
        client.batch_execute(&format!(
            "SET statement_timeout = {};
             SELECT pg_advisory_xact_lock(3717);
             CREATE TABLE IF NOT EXISTS farcall_directory (
                 key TEXT PRIMARY KEY, expires_ms BIGINT NOT NULL, body BYTEA NOT NULL
             );
             LISTEN farcall_directory",
            PATIENCE.as_millis()
        ))?;
        Ok(Postgres(client))
    }

    pub(super) fn put(&mut self, key: &str, until: i64, body: &[u8]) -> Result<(), Error> {
        let put = "WITH changed AS (
                 INSERT INTO farcall_directory AS known (key, expires_ms, body)
                 VALUES ($1, $2, $3)
                 ON CONFLICT (key) DO UPDATE
                 SET expires_ms = excluded.expires_ms, body = excluded.body
                 WHERE known.expires_ms <= excluded.expires_ms
                 RETURNING key
             )
             SELECT pg_notify('farcall_directory', key) FROM changed";
        self.0.execute(put, &[&key, &until, &body]).map(drop)
    }

    pub(super) fn remove(&mut self, key: &str, until: i64) -> Result<(), Error> {
        let remove = "DELETE FROM farcall_directory WHERE key = $1 AND expires_ms <= $2";
        self.0.execute(remove, &[&key, &until]).map(drop)
    }

    pub(super) fn load(&mut self, times: &Times) -> Result<Vec<Body>, Error> {
        let age = "UPDATE farcall_directory SET expires_ms = $1
             WHERE key LIKE 'path/%' AND expires_ms > $2";
        self.0
            .execute(age, &[&times.path_until, &times.path_latest])?;
        let sweep = "DELETE FROM farcall_directory WHERE expires_ms <= $1";
        self.0.execute(sweep, &[&times.now])?;
        let all = "SELECT body FROM farcall_directory WHERE length(body) <= $1::bigint
             ORDER BY key LIKE 'path/%', expires_ms DESC LIMIT $2";
        let rows = self.0.query(all, &[&MOST_BYTES, &MOST_ROWS])?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// The rows of the keys that notifications have named since the last call.
    pub(super) fn news(&mut self) -> Result<Vec<Body>, Error> {
        // The client reads pending notifications together with an answer.
        self.0.simple_query("")?;
        let told = self.0.notifications();
        let keys: BTreeSet<String> = {
            let mut told = told;
            told.iter()
                .map(|one| Ok(one.payload().to_string()))
                .collect()?
        };
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let some = "SELECT body FROM farcall_directory
             WHERE key = ANY($1) AND length(body) <= $2::bigint LIMIT $3";
        let rows = self.0.query(some, &[&keys, &MOST_BYTES, &MOST_ROWS])?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }
}

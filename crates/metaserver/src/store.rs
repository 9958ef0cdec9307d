//! The database in which a metaserver keeps its directory. Several metaservers can share it.

pub mod copies;
pub(crate) mod keeper;
mod postgres;
mod sqlite;

use self::postgres::Postgres;
use farcall_directory::Key;
use farcall_directory::shared::PATH_KEPT_MS;
use sqlite::Sqlite;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Largest number of rows read at once: servers and data first, then the latest paths. Each start
/// of a server adds a path for each site, and a path is kept longer than a server.
const MOST_ROWS: i64 = 100_000;
/// Largest number of bytes in a row. A larger row was not written by a metaserver and is ignored.
const MOST_BYTES: i64 = 8 << 20;

/// The address of a store.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// `sqlite:PATH`: a file, for one metaserver, or for several on one host.
    Sqlite(PathBuf),
    /// `postgres:URL`: PostgreSQL, for several metaservers.
    Postgres(String),
}

impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<StoreAddress, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(StoreAddress::Sqlite(path.into())),
            Some(("postgres" | "postgresql", url)) if url.starts_with("//") => {
                Ok(StoreAddress::Postgres(format!("postgresql:{url}")))
            }
            _ => Err("write sqlite:PATH, or postgres://USER@HOST/DATABASE".to_string()),
        }
    }
}

/// Shows the address without its password.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreAddress::Postgres(url) => {
                let place = url.split_once("//").map_or("", |(_, place)| place);
                // The user and the password end at the first `@`, as for the database. What follows
                // may have another password, with any letters.
                let place = place.split_once('@').map_or(place, |(_, place)| place);
                let place = place.split('?').next().unwrap_or_default();
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                write!(f, "postgres://{place}")
            }
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of SQLite.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    /// An error of PostgreSQL.
    #[error("{}", told(.0))]
    Postgres(#[from] ::postgres::Error),
}

/// The message of the database. The `Display` text of the error does not contain it.
fn told(error: &::postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// An open store.
pub(crate) enum Store {
    Sqlite(Sqlite),
    Postgres(Box<Postgres>),
}

/// The contents of a row: an encoded record.
pub(crate) type Body = Vec<u8>;

impl Store {
    pub(crate) fn open(address: &StoreAddress) -> Result<Store, StoreError> {
        Ok(match address {
            StoreAddress::Sqlite(path) => Store::Sqlite(Sqlite::open(path)?),
            StoreAddress::Postgres(url) => Store::Postgres(Box::new(Postgres::open(url)?)),
        })
    }

    /// Writes a row, unless the store has one with the same key that is valid for longer.
    pub(crate) fn put(&mut self, key: Key, until_ms: u64, body: &[u8]) -> Result<(), StoreError> {
        let (key, until) = (key.to_string(), clamp(until_ms));
        match self {
            Store::Sqlite(store) => Ok(store.put(&key, until, body)?),
            Store::Postgres(store) => Ok(store.put(&key, until, body)?),
        }
    }

    /// Removes a row, unless it is valid for longer.
    pub(crate) fn remove(&mut self, key: Key, until_ms: u64) -> Result<(), StoreError> {
        let (key, until) = (key.to_string(), clamp(until_ms));
        match self {
            Store::Sqlite(store) => Ok(store.remove(&key, until)?),
            Store::Postgres(store) => Ok(store.remove(&key, until)?),
        }
    }

    /// Returns all valid rows and removes the expired ones.
    pub(crate) fn load(&mut self, now_ms: u64) -> Result<Vec<Body>, StoreError> {
        match self {
            Store::Sqlite(store) => Ok(store.load(&Times::at(now_ms))?),
            Store::Postgres(store) => Ok(store.load(&Times::at(now_ms))?),
        }
    }

    /// Rows that others have written since the last call, if the store reports them.
    pub(crate) fn news(&mut self, now_ms: u64) -> Result<Vec<Body>, StoreError> {
        match self {
            Store::Sqlite(store) => Ok(store.news(&Times::at(now_ms))?),
            Store::Postgres(store) => Ok(store.news()?),
        }
    }
}

/// Times for a sweep of the store, in milliseconds since 1970.
struct Times {
    now: i64,
    /// Until when the row of a path is valid that was measured last now.
    path_until: i64,
    /// Rows of paths that are valid for longer are of earlier versions, which kept them for ever.
    path_latest: i64,
}

impl Times {
    fn at(now_ms: u64) -> Times {
        Times {
            now: clamp(now_ms),
            path_until: clamp(now_ms.saturating_add(PATH_KEPT_MS)),
            path_latest: clamp(now_ms.saturating_add(2 * PATH_KEPT_MS)),
        }
    }
}

fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_directory::shared::Exchange;
    use farcall_directory::{Directory, Settings};
    use std::path::Path;

    #[test]
    fn addresses_are_read_and_passwords_not_shown() {
        let shown = |text: &str| text.parse::<StoreAddress>().map(|one| one.to_string());
        assert_eq!(shown("sqlite:/a/b"), Ok("sqlite:/a/b".into()));
        let url = "postgres://me:secret@host:5433/db?sslmode=disable";
        assert_eq!(shown(url), Ok("postgres://host:5433/db".into()));
        for url in [
            "postgres://me@host/db?password=se@cret",
            "postgres://me:se?cret@host/db",
            "postgres://me:se@cret@host/db",
        ] {
            assert_eq!(shown(url), Ok("postgres://host/db".into()));
        }
        for text in ["", "sqlite:", "mysql://x", "postgres:x"] {
            assert!(shown(text).is_err(), "{text}");
        }
    }

    /// Stores of earlier versions, whose metaservers were killed.
    #[test]
    fn the_golden_stores_of_earlier_versions_are_read() {
        // Shortly after the last change, in milliseconds since 1970.
        for (name, now) in [("meta-sqlite-1", 1_795_401_672_000_i64)] {
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/golden");
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("meta.db");
            std::fs::copy(golden.join(name).join("meta.db"), &path).unwrap();
            let mut store = Store::open(&StoreAddress::Sqlite(path)).unwrap();
            let mut directory = Directory::new(Settings::default());
            for row in store.load(now as u64).unwrap() {
                let read = Exchange::default().read(&mut directory, now as f64 * 1e-3, &row);
                read.unwrap();
            }
            let functions: Vec<_> = directory.functions().map(|one| one.name.clone()).collect();
            assert_eq!(functions, ["golden/copy", "golden/nap"], "{name}");
            let servers = directory.servers().map(|one| (one.join.pes, one.learned));
            let mut servers: Vec<_> = servers.collect();
            servers.sort();
            assert_eq!(servers, [(1, 0), (3, 1)], "{name}");
            assert_eq!(
                (directory.paths().count(), directory.data_count()),
                (2, 1),
                "{name}"
            );
        }
    }

    #[test]
    fn rows_of_paths_that_earlier_versions_kept_for_ever_expire() {
        let folder = tempfile::tempdir().unwrap();
        let address = StoreAddress::Sqlite(folder.path().join("directory"));
        let mut store = Store::open(&address).unwrap();
        let now = 1_795_401_672_000;
        let path = Key::Path { site: 1, server: 2 };
        store.put(path, u64::MAX, b"path").unwrap();
        store.put(Key::Server(2), u64::MAX, b"server").unwrap();
        let rows = |store: &mut Store, now| store.load(now).unwrap().len();
        assert_eq!(rows(&mut store, now), 2);
        assert_eq!(rows(&mut store, now + PATH_KEPT_MS - 1), 2);
        assert_eq!(rows(&mut store, now + PATH_KEPT_MS), 1);
    }

    #[test]
    fn servers_are_read_however_many_paths_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        let mut store = Store::open(&StoreAddress::Sqlite(path.clone())).unwrap();
        let paths = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
             INSERT INTO farcall_directory
             SELECT printf('path/%016x/%016x', 7, i), 1000 + i, CAST(i AS BLOB) FROM n";
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute(paths, [MOST_ROWS]).unwrap();
        store.put(Key::Server(1), 50, b"server").unwrap();
        let rows = store.load(0).unwrap();
        assert_eq!(rows.len(), MOST_ROWS as usize);
        assert_eq!(rows[..2], [&b"server"[..], &b"100000"[..]]);
    }

    #[test]
    fn only_its_owner_reads_a_new_store() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        let mut store = Store::open(&StoreAddress::Sqlite(path)).unwrap();
        store.put(Key::Server(7), 100, b"one").unwrap();
        let files = std::fs::read_dir(folder.path()).unwrap();
        let modes = files.map(|file| file.unwrap().metadata().unwrap().permissions().mode());
        let modes: Vec<u32> = modes.map(|mode| mode & 0o777).collect();
        assert_eq!(modes, [0o600; 3], "the file and its log");
    }

    #[test]
    fn sqlite_keeps_the_row_that_is_valid_longest() {
        let folder = tempfile::tempdir().unwrap();
        let address = StoreAddress::Sqlite(folder.path().join("directory"));
        let mut store = Store::open(&address).unwrap();
        let mut other = Store::open(&address).unwrap();
        let key = Key::Server(7);
        store.put(key, 100, b"one").unwrap();
        other.put(key, 50, b"older").unwrap();
        assert_eq!(other.load(0).unwrap(), [b"one"]);
        other.put(key, 200, b"two").unwrap();
        assert_eq!(store.news(0).unwrap(), [b"two"]);
        assert!(store.news(0).unwrap().is_empty());
        store.remove(key, 150).unwrap();
        assert_eq!(store.load(0).unwrap(), [b"two"]);
        assert!(store.load(300).unwrap().is_empty());
        store.put(key, 400, b"three").unwrap();
        store.remove(key, u64::MAX).unwrap();
        assert!(store.load(0).unwrap().is_empty());
    }
}

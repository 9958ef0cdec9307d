//! Checks a store and copies it while metaservers use it. It handles SQLite files only, because
//! PostgreSQL has its own tools. A copy never replaces an existing file, and only its owner can
//! read it.

use super::StoreAddress;
use rusqlite::{Connection, OpenFlags};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The table that each store has.
const TABLE: &str = "farcall_directory";
/// Time to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a store cannot be checked or copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// PostgreSQL has its own tools.
    #[error(
        "PostgreSQL copies its databases itself: use `pg_dump` for a backup and `pg_restore` or \
         `psql` to restore it"
    )]
    Postgres,
    /// There is something at the place of the copy.
    #[error("{} exists: name a new file, or move this one away", .0.display())]
    Exists(PathBuf),
    /// The file is damaged.
    #[error("{} is damaged: {}", path.display(), problems.join("; "))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        problems: Vec<String>,
    },
    /// The copy cannot be made.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: io::Error,
    },
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: rusqlite::Error,
    },
}

/// What is damaged in a store.
///
/// # Errors
/// It is not a file of SQLite, or it cannot be read.
pub fn check(store: &StoreAddress) -> Result<Vec<String>, CopyError> {
    let path = file(store)?;
    problems(path).map_err(|source| failed(path, source))
}

/// Copies a store into a new file, while metaservers use it.
///
/// # Errors
/// It is not a file of SQLite, it is damaged, or the copy exists or cannot be written.
pub fn copy(store: &StoreAddress, to: &Path) -> Result<(), CopyError> {
    let path = file(store)?;
    if to.exists() {
        return Err(CopyError::Exists(to.to_path_buf()));
    }
    let problems = check(store)?;
    if !problems.is_empty() {
        let path = path.to_path_buf();
        return Err(CopyError::Damaged { path, problems });
    }
    let mut part = to.as_os_str().to_owned();
    part.push(format!(".part-{}", std::process::id()));
    let part = PathBuf::from(part);
    let copied = copy_by(&part, path, to);
    if copied.is_err() {
        // What there is of the copy must not be taken for a whole one.
        let _ = fs::remove_file(&part);
    }
    copied
}

/// Copies a store into a new file, which has another name until it is whole.
fn copy_by(part: &Path, path: &Path, to: &Path) -> Result<(), CopyError> {
    let cannot = |source| {
        let path = to.to_path_buf();
        CopyError::File { path, source }
    };
    // SQLite takes the name as text. With another name, the copy would be elsewhere.
    let name = part.to_str().ok_or_else(|| {
        let why = "the name of the copy is not UTF-8; choose another one";
        cannot(io::Error::new(io::ErrorKind::InvalidInput, why))
    })?;
    // The copy has the addresses of servers and the names of data: only its owner reads it.
    let mut new = OpenOptions::new();
    let made = new.write(true).create_new(true).mode(0o600).open(part);
    let made = made.map_err(cannot)?;
    let known = open(path).map_err(|source| failed(path, source))?;
    let copied = known.execute("VACUUM INTO ?1", [name]);
    copied.map_err(|source| failed(to, source))?;
    // After a loss of power, the name must not stand for a copy that is not whole.
    made.sync_all().map_err(cannot)?;
    fs::rename(part, to).map_err(cannot)
}

fn file(store: &StoreAddress) -> Result<&Path, CopyError> {
    match store {
        StoreAddress::Sqlite(path) => Ok(path),
        StoreAddress::Postgres(_) => Err(CopyError::Postgres),
    }
}

fn failed(path: &Path, source: rusqlite::Error) -> CopyError {
    let path = path.to_path_buf();
    CopyError::Sqlite { path, source }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let known = Connection::open_with_flags(path, flags)?;
    known.busy_timeout(PATIENCE)?;
    Ok(known)
}

fn problems(path: &Path) -> rusqlite::Result<Vec<String>> {
    let known = open(path)?;
    let mut check = known.prepare("PRAGMA integrity_check")?;
    let rows = check.query_map([], |row| row.get::<_, String>(0))?;
    let rows: Vec<String> = rows.collect::<rusqlite::Result<_>>()?;
    let mut problems: Vec<String> = rows.into_iter().filter(|row| row != "ok").collect();
    if problems.is_empty() && !known.table_exists(None, TABLE)? {
        problems.push(format!(
            "it has no table `{TABLE}`, so it is no store of a metaserver"
        ));
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use farcall_directory::Key;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_store_in_use_is_copied_and_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let address = StoreAddress::Sqlite(folder.path().join("store.db"));
        let mut store = Store::open(&address).unwrap();
        store.put(Key::Server(1), u64::MAX / 4, &[7; 5000]).unwrap();
        let to = folder.path().join("copy.db");
        copy(&address, &to).unwrap();
        assert!(matches!(copy(&address, &to), Err(CopyError::Exists(_))));
        let other = StoreAddress::Sqlite(to.clone());
        let mut copied = Store::open(&other).unwrap();
        assert_eq!(copied.load(0).unwrap(), [vec![7; 5000]]);
        drop(copied);
        let mut bytes = fs::read(&to).unwrap();
        bytes[100..1000].fill(0xff);
        fs::write(&to, bytes).unwrap();
        let damaged = check(&other);
        assert!(damaged.is_err() || damaged.is_ok_and(|problems| !problems.is_empty()));
        let postgres = StoreAddress::Postgres("postgresql://host/db".to_string());
        let error = copy(&postgres, &to).unwrap_err().to_string();
        assert!(error.contains("pg_dump"), "{error}");
    }

    #[test]
    fn a_failed_copy_leaves_no_file_and_an_empty_file_is_no_store() {
        let folder = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let empty = folder.path().join("empty.db");
        fs::write(&empty, "").unwrap();
        let address = StoreAddress::Sqlite(empty);
        let problems = check(&address).unwrap().join("; ");
        assert!(problems.contains("no table"), "{problems}");
        let to = folder.path().join("copy.db");
        let refused = copy(&address, &to);
        assert!(matches!(refused, Err(CopyError::Damaged { .. })));
        assert_eq!(files(), 1);
        // There is no folder for this copy.
        let whole = StoreAddress::Sqlite(folder.path().join("store.db"));
        drop(Store::open(&whole).unwrap());
        let before = files();
        assert!(copy(&whole, &to.join("copy.db")).is_err());
        assert_eq!(files(), before);
        fs::write(&to, "mine").unwrap();
        assert!(matches!(copy(&whole, &to), Err(CopyError::Exists(_))));
        assert_eq!(fs::read(&to).unwrap(), b"mine");
    }

    /// It would be in a file of another name, and an empty file would be taken for it.
    #[test]
    fn a_copy_needs_a_name_that_is_text() {
        let folder = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let address = StoreAddress::Sqlite(folder.path().join("store.db"));
        drop(Store::open(&address).unwrap());
        let before = files();
        let to = folder.path().join(OsStr::from_bytes(b"copy-\xff.db"));
        let refused = copy(&address, &to).unwrap_err().to_string();
        assert!(refused.contains("not UTF-8"), "{refused}");
        assert_eq!(files(), before);
    }
}

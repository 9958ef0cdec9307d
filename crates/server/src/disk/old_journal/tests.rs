//! Tests that read the journal of an earlier version. Its calls get into the logs once, and the old
//! file remains.

use super::super::{Disk, StateSettings};
use super::*;
use farcall_rpc_proto::FailureKind;
use std::time::Duration;

const TABLES: &str = "
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    user TEXT NOT NULL,
    function TEXT NOT NULL,
    interface TEXT NOT NULL,
    call BLOB NOT NULL,
    repeatable INTEGER NOT NULL,
    big_endian INTEGER NOT NULL,
    state INTEGER NOT NULL,
    submitted INTEGER NOT NULL,
    started INTEGER,
    ended INTEGER,
    keep_s INTEGER NOT NULL,
    argument_bytes INTEGER NOT NULL,
    argument_sum INTEGER NOT NULL,
    result_bytes INTEGER NOT NULL,
    result_sum INTEGER NOT NULL,
    exec_ns INTEGER,
    failure_kind INTEGER,
    failure TEXT
) STRICT;
PRAGMA user_version = 1;
";
const COLUMNS: &str = "INSERT INTO jobs VALUES";

fn database(folder: &Path, rows: &str) -> Connection {
    let database = Connection::open(folder.join(DATABASE)).unwrap();
    database.execute_batch(TABLES).unwrap();
    database
        .execute_batch(&format!("{COLUMNS} {rows};"))
        .unwrap();
    database
}

fn row(byte: u8, state: u8) -> String {
    format!(
        "({byte}, x'{}', 'uid:1', 'test/f', 'i', x'01', 0, 0, {state}, 10, NULL, NULL, 60, 3, {}, \
         0, 0, NULL, NULL, NULL)",
        format!("{byte:02x}").repeat(16),
        crc32fast::hash(b"abc")
    )
}

fn open(folder: &Path) -> Result<Vec<Record>, DiskError> {
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    let settings = StateSettings {
        reserve: 0,
        keep_s: 3600,
        spin: Duration::from_micros(100),
    };
    Disk::open(folder, settings, doorbell).map(|(_, records, _)| records)
}

#[test]
fn calls_of_an_earlier_version_are_taken_over_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    drop(database(path, &format!("{}, {}", row(3, 1), row(7, 2))));
    fs::create_dir(path.join(ARRAYS)).unwrap();
    let array = Folder::named(&path.join(ARRAYS), JobId([3; 16]), Content::Arguments);
    fs::write(array, b"abc").unwrap();
    for _ in 0..2 {
        let records = open(path).unwrap();
        assert_eq!(records.len(), 2);
        assert_eq!(
            (records[0].number, records[0].state),
            (3, DurableState::Queued)
        );
        // It ran when its server ended.
        let failure = records[1].failure.as_ref().unwrap();
        assert_eq!(failure.kind, FailureKind::OutcomeUnknown);
    }
    assert!(!is_there(path));
    assert!(path.join("migrated.jobs.sqlite").exists());
    assert!(path.join("migrated.jobs").exists());
}

#[test]
fn a_database_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let used = database(folder.path(), &row(1, 1));
    used.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(error.is_taken(), "{error}");
    assert!(is_there(folder.path()));
    drop(used);
    assert_eq!(open(folder.path()).unwrap().len(), 1);
}

#[test]
fn values_that_make_no_sense_are_told() {
    for change in [
        "state = 17",
        "state = -1",
        "id = x'00'",
        "argument_sum = 5000000000",
        "result_bytes = -5",
        "keep_s = -1",
        "started = -1",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let database = database(folder.path(), &row(1, 1));
        let statement = format!("UPDATE jobs SET {change}");
        database.execute(&statement, []).unwrap();
        drop(database);
        let error = open(folder.path()).unwrap_err();
        assert!(matches!(error, DiskError::Damaged(_)), "{change}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let newer = database(folder.path(), &row(1, 1));
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    assert!(matches!(open(folder.path()), Err(DiskError::Newer(99))));
}

//! The journal: what it keeps, what it makes of a restart, and of damage.

use super::*;
use farcall_random::SplitMix64;
use std::path::PathBuf;

fn record(byte: u8) -> Record {
    Record {
        number: 0,
        id: JobId([byte; 16]),
        user: "uid:1".to_string(),
        function: "test/f".to_string(),
        interface: "Define f(IN int n) Calls \"C\" f(n);".to_string(),
        call: vec![1, 2, byte],
        repeatable: byte.is_multiple_of(2),
        big_endian: false,
        state: DurableState::Queued,
        submitted: 1000,
        started: None,
        ended: None,
        keep: 60,
        arguments: Stored { bytes: 5, sum: 6 },
        result: Stored { bytes: 7, sum: 0 },
        exec: None,
        failure: None,
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.sqlite");
    (folder, path)
}

fn within<T>(
    database: &mut Connection,
    change: impl FnOnce(&Transaction<'_>) -> Result<T, JournalError>,
) -> T {
    let transaction = database.transaction().unwrap();
    let value = change(&transaction).unwrap();
    transaction.commit().unwrap();
    value
}

#[test]
fn what_is_recorded_is_read_again() {
    let (_folder, path) = folder();
    let (mut database, records) = open(&path).unwrap();
    assert_eq!(records, []);
    let numbers = [1, 2].map(|byte| within(&mut database, |t| Ok(insert(t, &record(byte))?)));
    drop(database);
    let (mut database, records) = open(&path).unwrap();
    let expected = [1, 2].map(|byte| Record {
        number: u64::from(byte),
        ..record(byte)
    });
    assert_eq!((numbers, records.as_slice()), ([1, 2], expected.as_slice()));
    let outcome = Outcome {
        result: Some(Stored { bytes: 7, sum: 8 }),
        exec: Some(9),
        failure: None,
    };
    let id = JobId([1; 16]);
    within(&mut database, |t| {
        apply(t, id, Change::Start, Outcome::default())
    });
    let changed = within(&mut database, |t| {
        apply(t, id, Change::Finish, outcome.clone())
    });
    assert!(changed.is_some_and(|changed| changed.applied && changed.state == DurableState::Done));
    let late = within(&mut database, |t| {
        apply(t, id, Change::Cancel, Outcome::default())
    });
    assert!(late.is_some_and(|changed| !changed.applied && changed.state == DurableState::Done));
    within(&mut database, |t| Ok(forget(t, JobId([2; 16]))?));
    drop(database);
    let (mut database, records) = open(&path).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].state, DurableState::Done);
    assert_eq!(
        (records[0].result, records[0].exec),
        (Stored { bytes: 7, sum: 8 }, Some(9))
    );
    assert!(records[0].ended >= records[0].started && records[0].started.is_some());
    let number = within(&mut database, |t| Ok(insert(t, &record(3))?));
    assert_eq!(number, 3, "no number is used twice");
    let unknown = within(&mut database, |t| {
        apply(t, JobId([9; 16]), Change::Start, Outcome::default())
    });
    assert_eq!(unknown, None);
}

#[test]
fn after_a_restart_a_call_runs_again_if_it_may() {
    let (_folder, path) = folder();
    let (mut database, _) = open(&path).unwrap();
    for byte in [1, 2, 3] {
        within(&mut database, |t| Ok(insert(t, &record(byte))?));
    }
    for byte in [1, 2] {
        let id = JobId([byte; 16]);
        within(&mut database, |t| {
            apply(t, id, Change::Start, Outcome::default())
        });
    }
    drop(database);
    let (_, records) = open(&path).unwrap();
    let states: Vec<DurableState> = records.iter().map(|record| record.state).collect();
    assert_eq!(
        states,
        [
            DurableState::Failed,
            DurableState::Queued,
            DurableState::Queued
        ]
    );
    let failure = records[0].failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::OutcomeUnknown);
    assert!(records[0].expires().is_some());
}

#[test]
fn two_servers_do_not_share_a_journal() {
    let (_folder, path) = folder();
    let (_first, _) = open(&path).unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("another server uses the folder"), "{error}");
}

#[test]
fn the_journal_of_a_newer_server_is_left_alone() {
    let (_folder, path) = folder();
    let (database, _) = open(&path).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    assert!(matches!(open(&path), Err(JournalError::Newer(99))));
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
        let (_folder, path) = folder();
        let (mut database, _) = open(&path).unwrap();
        within(&mut database, |t| Ok(insert(t, &record(1))?));
        let statement = format!("UPDATE jobs SET {change}");
        database.execute(&statement, []).unwrap();
        drop(database);
        let damaged = matches!(open(&path), Err(JournalError::Damaged(_)));
        assert!(damaged, "{change}");
    }
}

/// Whatever bytes the file has, opening it ends, with an error or with records.
#[test]
fn a_damaged_file_is_an_error_or_read() {
    let (_folder, path) = folder();
    let (mut database, _) = open(&path).unwrap();
    for byte in 0..40 {
        within(&mut database, |t| Ok(insert(t, &record(byte))?));
    }
    drop(database);
    let whole = std::fs::read(&path).unwrap();
    let (mut random, mut errors) = (SplitMix64::new(1), 0);
    for round in 0..200 {
        let mut damaged = whole.clone();
        for _ in 0..=round % 16 {
            let at = random.below(whole.len() as u64) as usize;
            damaged[at] = random.next_u64() as u8;
        }
        if round % 5 == 0 {
            damaged.truncate(random.below(whole.len() as u64) as usize);
        }
        let (_folder, path) = folder();
        std::fs::write(&path, damaged).unwrap();
        errors += usize::from(open(&path).is_err());
    }
    assert!(errors > 0, "some damage is noticed");
    std::fs::write(
        &path,
        b"not a database at all, but long enough to be taken for one",
    )
    .unwrap();
    let error = open(&path).unwrap_err().to_string();
    assert!(error.contains("move the folder away"), "{error}");
}

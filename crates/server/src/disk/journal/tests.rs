//! Tests of a state folder: what it keeps over a restart, and what the server makes of damage. One
//! damaged file loses no call.

use super::super::batch::ROOM;
use super::super::logs::Logs;
use super::super::{Disk, DiskError, StateSettings};
use super::*;
use farcall_random::SplitMix64;
use farcall_rpc_proto::{DurableState, FailureKind, JobId};
use farcall_server_proto::lifecycle::Change;
use farcall_server_proto::{Event, Outcome, Record, Stored};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

const LOGS: [&str; 2] = ["calls.a.log", "calls.b.log"];

pub(in super::super) fn record(byte: u8) -> Record {
    Record {
        number: 0,
        id: JobId([byte; 16]),
        user: "uid:1".into(),
        function: "test/f".into(),
        interface: "Define f(IN int n) Calls \"C\" f(n);".into(),
        call: vec![1, 2, byte],
        repeatable: byte.is_multiple_of(2),
        big_endian: false,
        state: DurableState::Queued,
        submitted: 1000,
        started: None,
        ended: None,
        kept_from: None,
        keep: 60,
        arguments: Stored { bytes: 0, sum: 0 },
        result: Stored { bytes: 7, sum: 0 },
        exec: None,
        made: None,
        failure: None,
    }
}

struct Opened {
    disk: Disk,
    records: Vec<Record>,
    served: u64,
}

fn open(folder: &Path) -> Result<Opened, DiskError> {
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let settings = StateSettings {
        reserve: 0,
        keep_s: 3600,
        spin: Duration::from_micros(100),
    };
    let (disk, records, served) = Disk::open(folder, settings, doorbell)?;
    Ok(Opened {
        disk,
        records,
        served,
    })
}

impl Opened {
    fn write(&self, entry: Entry) -> Event {
        self.disk
            .journal
            .as_ref()
            .unwrap()
            .record(vec![entry], Haste::Now);
        match self.disk.replies.recv().unwrap() {
            Reply::Recorded(event) => event,
            _ => panic!("no answer of the journal"),
        }
    }

    fn insert(&self, byte: u8) -> u64 {
        match self.write(Entry::Insert(Box::new(record(byte)))) {
            Event::Inserted(_, number) => number.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn start(&self, byte: u8) {
        let entry = Entry::Change {
            id: JobId([byte; 16]),
            change: Change::Start,
            outcome: Outcome::default(),
        };
        assert!(matches!(self.write(entry), Event::Changed(_, Some(changed)) if changed.applied));
    }
}

#[test]
fn what_is_recorded_is_read_again_and_runs_again_if_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path()).unwrap();
    assert_eq!(opened.records, []);
    for byte in 1..=3 {
        assert_eq!(opened.insert(byte), u64::from(byte));
    }
    opened.start(1);
    opened.start(2);
    drop(opened);
    let opened = open(folder.path()).unwrap();
    let states: Vec<DurableState> = opened.records.iter().map(|record| record.state).collect();
    use DurableState::*;
    assert_eq!(states, [Failed, Queued, Queued]);
    let failure = opened.records[0].failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::OutcomeUnknown);
    assert!(opened.records[0].expires().is_some());
    assert_eq!(opened.insert(4), 4, "no number is used twice");
}

#[test]
fn an_entry_that_nobody_waits_for_is_written_soon_or_with_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path()).unwrap();
    let log = folder.path().join(LOGS[0]);
    let length = || {
        let log = fs::read(&log).unwrap();
        log.iter().rposition(|byte| *byte != 0)
    };
    let journal = opened.disk.journal.as_ref().unwrap();
    let answer = || opened.disk.replies.recv_timeout(Duration::from_secs(30));
    let before = length();
    journal.record(vec![Entry::Insert(Box::new(record(1)))], Haste::Later);
    assert!(matches!(answer(), Ok(Reply::Recorded(Event::Inserted(..)))));
    assert!(length() > before);
    journal.record(vec![Entry::Insert(Box::new(record(2)))], Haste::Later);
    journal.record(vec![Entry::Insert(Box::new(record(3)))], Haste::Now);
    for byte in [2, 3] {
        let Ok(Reply::Recorded(Event::Inserted(id, Ok(_)))) = answer() else {
            panic!("{byte} was not recorded");
        };
        assert_eq!(id, JobId([byte; 16]), "entries stay in order");
    }
    // One that waits for another one is written although none comes.
    journal.record(vec![Entry::Insert(Box::new(record(4)))], Haste::Soon);
    assert!(matches!(answer(), Ok(Reply::Recorded(Event::Inserted(..)))));
    // The last ones are written when the server ends.
    journal.record(vec![Entry::Insert(Box::new(record(5)))], Haste::Later);
    drop(opened);
    assert_eq!(open(folder.path()).unwrap().records.len(), 5);
}

/// A log of a server has zeros behind its records. After a clean end they are gone; after a kill
/// they are no damage.
#[test]
fn room_for_the_next_records_is_no_damage() {
    let folders = [1, 2].map(|_| tempfile::tempdir().unwrap());
    let [running, killed] = folders.each_ref().map(|folder| folder.path());
    let opened = open(running).unwrap();
    opened.insert(1);
    opened.insert(2);
    open(killed).unwrap().insert(7);
    fs::copy(running.join("identity"), killed.join("identity")).unwrap();
    for name in LOGS {
        let log = fs::read(running.join(name)).unwrap();
        assert!(log.len() > ROOM && log.ends_with(&[0; ROOM / 2]));
        fs::write(killed.join(name), log).unwrap();
    }
    let logs = Logs::read(killed).unwrap().unwrap();
    assert!(logs.problems.is_empty() && logs.rebuilt.is_sound);
    let next = open(killed).unwrap();
    assert_eq!((next.records.len(), next.insert(3)), (2, 3));
    drop((opened, next));
    for (folder, count) in [(running, 2), (killed, 3)] {
        for name in LOGS {
            assert_ne!(fs::read(folder.join(name)).unwrap().last(), Some(&0));
        }
        assert_eq!(open(folder).unwrap().records.len(), count);
    }
}

/// The disk is nearly full: what was begun must not take its last room.
#[test]
fn logs_that_cannot_be_written_anew_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let new = LOGS.map(|name| folder.path().join(format!("{name}.new")));
    let opened = open(folder.path()).unwrap();
    fs::create_dir(&new[1]).unwrap();
    let long = |byte| Record {
        call: vec![byte; 3 << 20],
        ..record(byte)
    };
    for byte in 1..=6 {
        opened.write(Entry::Insert(Box::new(long(byte))));
        opened.write(Entry::Forget(JobId([byte; 16])));
    }
    assert_eq!(opened.insert(7), 7);
    assert_eq!(opened.insert(8), 8);
    assert!(!new[0].exists());
    drop(opened);
    fs::write(&new[0], "begun by a server that was killed").unwrap();
    assert_eq!(open(folder.path()).unwrap().records.len(), 2);
    assert!(!new[0].exists());
}

/// The first new log has its name and the second does not get it. A call that is recorded now must
/// be where a start looks for it.
#[test]
fn a_new_log_that_does_not_get_its_name_loses_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let [second, aside] = [LOGS[1], "aside"].map(|name| folder.path().join(name));
    let opened = open(folder.path()).unwrap();
    for byte in 1..=3 {
        opened.insert(byte);
    }
    fs::rename(&second, &aside).unwrap();
    fs::create_dir(&second).unwrap();
    let long = |byte| Record {
        call: vec![byte; 3 << 20],
        ..record(byte)
    };
    for byte in 11..=16 {
        opened.write(Entry::Insert(Box::new(long(byte))));
        opened.write(Entry::Forget(JobId([byte; 16])));
    }
    let told = opened.write(Entry::Insert(Box::new(record(4))));
    let is_recorded = matches!(told, Event::Inserted(_, Ok(_)));
    fs::remove_dir(&second).unwrap();
    opened.insert(5);
    drop(opened);
    if !second.exists() {
        fs::rename(&aside, &second).unwrap();
    }
    let records = open(folder.path()).unwrap().records;
    let ids: Vec<u8> = records.iter().map(|record| record.id.0[0]).collect();
    assert_eq!(ids.contains(&4), is_recorded, "{ids:?}");
    assert_eq!(
        ids,
        [1, 2, 3, 5],
        "a call that cannot be recorded is refused"
    );
}

#[test]
fn a_folder_that_was_removed_is_noticed_and_can_be_put_back() {
    let parent = tempfile::tempdir().unwrap();
    let [folder, aside] = ["state", "aside"].map(|name| parent.path().join(name));
    fs::create_dir(&folder).unwrap();
    let opened = open(&folder).unwrap();
    opened.insert(1);
    fs::rename(&folder, &aside).unwrap();
    fs::create_dir(&folder).unwrap();
    let until = Instant::now() + 20 * KNOWN;
    let insert = |byte| match opened.write(Entry::Insert(Box::new(record(byte)))) {
        Event::Inserted(_, told) => told.err(),
        other => panic!("{other:?}"),
    };
    let mut refused = 2;
    let failure = loop {
        if let Some(failure) = insert(refused) {
            break failure;
        }
        assert!(Instant::now() < until, "nothing is noticed");
        std::thread::sleep(KNOWN / 20);
        refused += 1;
    };
    assert!(
        failure.message.contains("was removed or replaced"),
        "{failure}"
    );
    assert!(insert(refused).is_some(), "it is refused from now on");
    assert!(opened.disk.trouble.known().is_some());
    fs::remove_dir(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    let until = Instant::now() + 20 * KNOWN;
    while opened.disk.trouble.known().is_some() {
        assert!(Instant::now() < until, "it is not noticed without a call");
        std::thread::sleep(KNOWN / 20);
    }
    opened.insert(255);
    drop(opened);
    let records = open(&folder).unwrap().records;
    let ids: Vec<u8> = records.iter().map(|record| record.id.0[0]).collect();
    let expected: Vec<u8> = (1..refused).chain([255]).collect();
    assert_eq!(ids, expected);
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _first = open(folder.path()).unwrap();
    let error = open(folder.path()).err().unwrap();
    assert!(error.is_taken());
    let text = error.to_string();
    assert!(text.contains("another server uses the folder"), "{text}");
}

#[test]
fn the_logs_of_a_newer_server_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()).unwrap());
    for name in LOGS {
        let mut log = fs::read(folder.path().join(name)).unwrap();
        log[41] = 2;
        let sum = crc32fast::hash(&log[..64]);
        log[64..68].copy_from_slice(&sum.to_le_bytes());
        fs::write(folder.path().join(name), log).unwrap();
    }
    let error = open(folder.path()).err().unwrap();
    assert!(matches!(error, DiskError::Newer(2)), "{error}");
}

/// One object is damaged while no server runs: every call is still there.
#[test]
fn a_damaged_log_is_rebuilt_and_kept_in_quarantine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let opened = open(path).unwrap();
    for byte in 1..=20 {
        opened.insert(byte);
    }
    drop(opened);
    let mut random = SplitMix64::new(5);
    let old = fs::read(path.join(LOGS[0])).unwrap();
    for round in 0..60u64 {
        let name = path.join(LOGS[random.below(2) as usize]);
        let log = fs::read(&name).unwrap();
        let at = random.below(log.len() as u64);
        let file = fs::File::options().write(true).open(&name).unwrap();
        match round % 6 {
            0 => file.write_all_at(&[log[at as usize] ^ 4], at).unwrap(),
            1 => file.set_len(at).unwrap(),
            2 => file.write_all_at(&vec![0; log.len()], 0).unwrap(),
            3 => fs::remove_file(&name).unwrap(),
            4 => fs::write(&name, &old[..old.len() / 2]).unwrap(),
            _ => file.write_all_at(b"somebody else's", at).unwrap(),
        }
        drop(file);
        let opened = open(path).unwrap();
        assert_eq!(opened.records.len(), 20, "round {round}");
        drop(opened);
        let [a, b] = LOGS.map(|name| fs::read(path.join(name)).unwrap());
        assert!(a == b, "round {round}");
    }
    let kept = fs::read_dir(path.join("quarantine")).unwrap().count();
    assert!(kept > 30, "{kept} damaged logs were kept");
    fs::remove_file(path.join("identity")).unwrap();
    assert_eq!(open(path).unwrap().records.len(), 20);
    fs::write(path.join("identity"), "0123456789abcdef\n").unwrap();
    assert_eq!(open(path).unwrap().records.len(), 20);
    // Both at once is more than one object.
    for name in LOGS {
        fs::remove_file(path.join(name)).unwrap();
    }
    let error = open(path).err().unwrap().to_string();
    assert!(error.contains("farcall state restore"), "{error}");
}

#[test]
fn a_log_of_another_folder_is_not_taken_for_its_own() {
    let folders = [1, 2].map(|_| tempfile::tempdir().unwrap());
    for (folder, byte) in folders.iter().zip([1, 2]) {
        open(folder.path()).unwrap().insert(byte);
    }
    let [one, two] = folders.each_ref().map(|folder| folder.path().join(LOGS[1]));
    let log = fs::read(&one).unwrap();
    fs::copy(&two, &one).unwrap();
    fs::write(&two, log).unwrap();
    for (folder, byte) in folders.iter().zip([1, 2]) {
        let records = open(folder.path()).unwrap().records;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].id, JobId([byte; 16]));
    }
}

#[test]
fn time_without_a_server_does_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    first.insert(1);
    let cancel = Entry::Change {
        id: JobId([1; 16]),
        change: Change::Cancel,
        outcome: Outcome::default(),
    };
    assert!(first.served < 60_000);
    first.write(cancel);
    drop(first);
    let second = open(folder.path()).unwrap();
    let ended = second.records[0].kept_from.unwrap();
    assert!(second.served >= ended && second.served < ended + 60_000);
    assert_eq!(second.records[0].expires(), Some(ended + 60_000));
}

#[test]
fn other_users_are_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    open(path).unwrap().insert(1);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for name in LOGS {
        assert_eq!(mode(&path.join(name)), 0o600);
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(path.join(LOGS[0]), fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path.join("jobs.sqlite.old"), "").unwrap();
    super::super::guard::prepare(path).unwrap();
    assert_eq!(mode(path), 0o700);
    assert_eq!(mode(&path.join(LOGS[0])), 0o600);
    assert_eq!(mode(&path.join("jobs.sqlite.old")), 0o600);
    assert_eq!(mode(&path.join("arrays")), 0o700);
}

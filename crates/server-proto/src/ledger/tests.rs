//! Tests of the ledger. What it records is rebuilt from the logs, and a batch that fails leaves no
//! trace.

use super::*;
use crate::lifecycle::Change;
use crate::log::{merge, scan};

const FOLDER: u64 = 7;

fn record(byte: u8) -> Record {
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
        arguments: Stored::of(&[byte; 5]),
        result: Stored { bytes: 7, sum: 0 },
        exec: None,
        made: None,
        failure: None,
    }
}

fn now(served: u64) -> Moment {
    Moment {
        unix_ms: 5000 + served,
        served,
    }
}

/// A ledger with its log.
struct Disk {
    ledger: Ledger,
    log: Vec<u8>,
}

impl Disk {
    fn new() -> Disk {
        let mut disk = Disk {
            ledger: Ledger::new(FOLDER),
            log: Vec::new(),
        };
        disk.rewrite();
        disk
    }

    fn write(&mut self, entry: Entry, served: u64) -> Event {
        let told = self.ledger.record(&entry, now(served));
        self.log.extend_from_slice(self.ledger.batch());
        self.ledger.commit();
        assert_eq!(self.ledger.length(), self.log.len() as u64);
        told
    }

    fn insert(&mut self, byte: u8) -> Event {
        let record = record(byte);
        self.ledger
            .hold(record.id, Content::Arguments, vec![byte; 5]);
        self.write(Entry::Insert(Box::new(record)), 0)
    }

    fn change(&mut self, byte: u8, change: Change, outcome: Outcome) -> Changed {
        let id = JobId([byte; 16]);
        let entry = Entry::Change {
            id,
            change,
            outcome,
        };
        match self.write(entry, 9) {
            Event::Changed(_, Some(changed)) => changed,
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self, byte: u8) {
        self.change(byte, Change::Start, Outcome::default());
        let id = JobId([byte; 16]);
        let result = self.ledger.hold(id, Content::Result, vec![byte; 7]);
        let outcome = Outcome {
            result: Some(result),
            exec: Some(9),
            failure: None,
            made: Some(Made {
                threads: 2,
                library: Some("libtest.so.2".to_owned()),
            }),
        };
        self.change(byte, Change::Finish, outcome);
    }

    fn frame(&self, spot: Spot) -> Vec<u8> {
        self.log[spot.at as usize..(spot.at + spot.bytes) as usize].to_vec()
    }

    fn short(&self, byte: u8, content: Content) -> Option<Vec<u8>> {
        let mut spots = self.ledger.spots(JobId([byte; 16])).into_iter();
        spots.find_map(|spot| short_array(&self.frame(spot), content))
    }

    fn rewrite(&mut self) {
        let mut log = Vec::new();
        let write = |bytes: &[u8]| {
            log.extend_from_slice(bytes);
            Ok::<(), Unreadable>(())
        };
        let read = |spot| Ok(self.frame(spot));
        self.ledger = self.ledger.rewrite(now(0), read, write).unwrap();
        self.log = log;
    }

    fn rebuilt(&self, damaged: &[u8]) -> Rebuilt {
        let found = [scan(damaged), scan(damaged)];
        let merged = merge(FOLDER, [&found[0], &found[1]]);
        let read = |place: &Place| {
            let at = place.at[0].unwrap() as usize;
            Ok::<_, Unreadable>(damaged[at..at + place.head.bytes() as usize].to_vec())
        };
        rebuild(FOLDER, &merged, read).unwrap()
    }
}

#[test]
fn what_is_recorded_is_rebuilt_also_after_the_log_is_written_anew() {
    let mut disk = Disk::new();
    for byte in 1..=4 {
        assert!(
            matches!(disk.insert(byte), Event::Inserted(_, Ok(number)) if number == u64::from(byte))
        );
    }
    disk.finish(2);
    disk.change(3, Change::Start, Outcome::default());
    disk.write(Entry::Forget(JobId([4; 16])), 0);
    for _ in 0..2 {
        let rebuilt = disk.rebuilt(&disk.log);
        assert!(rebuilt.is_sound && rebuilt.damages.is_empty());
        let states: Vec<_> = rebuilt.records.iter().map(|record| record.state).collect();
        use DurableState::*;
        assert_eq!(states, [Queued, Done, Running]);
        let done = &rebuilt.records[1];
        assert_eq!(done.result, Stored::of(&[2; 7]));
        assert_eq!(
            (done.kept_from, done.ended, done.exec),
            (Some(9), Some(5009), Some(9))
        );
        let made = done.made.as_ref().map(|made| made.threads);
        assert_eq!(made, Some(2), "what has computed it");
        assert!(done.started.is_some());
        assert_eq!(rebuilt.changes.len(), 1, "the one that ran fails");
        assert_eq!(disk.short(1, Content::Arguments), Some(vec![1; 5]));
        assert_eq!(disk.short(2, Content::Result), Some(vec![2; 7]));
        disk.ledger = rebuilt.ledger;
        disk.rewrite();
    }
    assert!(
        matches!(disk.insert(9), Event::Inserted(_, Ok(5))),
        "no number is used twice"
    );
    let unknown = disk.write(Entry::Forget(JobId([7; 16])), 0);
    assert!(matches!(unknown, Event::Forgotten(_)));
}

#[test]
fn an_outcome_is_final() {
    let mut disk = Disk::new();
    disk.insert(1);
    disk.finish(1);
    let late = disk.change(1, Change::Cancel, Outcome::default());
    assert!(!late.applied && late.state == DurableState::Done);
}

#[test]
fn a_batch_that_fails_leaves_no_trace() {
    let mut disk = Disk::new();
    disk.insert(1);
    let id = JobId([2; 16]);
    disk.ledger.hold(id, Content::Arguments, vec![2; 5]);
    for _ in 0..3 {
        disk.ledger
            .record(&Entry::Insert(Box::new(record(2))), now(0));
        let start = Entry::Change {
            id: JobId([1; 16]),
            change: Change::Start,
            outcome: Outcome::default(),
        };
        disk.ledger.record(&start, now(0));
        disk.ledger.roll_back();
        assert!(disk.ledger.batch().is_empty());
    }
    let mut entries = vec![Entry::Insert(Box::new(record(2))), Entry::Forget(id)];
    assert_eq!(refuse(&mut entries, "no room").len(), 1);
    assert_eq!(entries, [Entry::Forget(id)]);
    assert!(matches!(disk.insert(2), Event::Inserted(_, Ok(2))));
    assert_eq!(disk.short(2, Content::Arguments), Some(vec![2; 5]));
    assert_eq!(disk.rebuilt(&disk.log).records.len(), 2);
}

#[test]
fn a_record_that_is_damaged_in_both_logs_is_told() {
    let mut disk = Disk::new();
    disk.insert(1);
    disk.insert(2);
    disk.change(2, Change::Start, Outcome::default());
    let mut damaged = disk.log.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    // It is the last one, so it might as well be torn. Another record makes it damage.
    disk.log.clone_from(&damaged);
    disk.insert(3);
    let rebuilt = disk.rebuilt(&disk.log);
    let id = JobId([2; 16]);
    assert_eq!(rebuilt.damages, [Damage::State(id)]);
    let Entry::Change {
        change, outcome, ..
    } = &rebuilt.changes[0]
    else {
        panic!("{:?}", rebuilt.changes);
    };
    assert_eq!(*change, Change::Fail);
    let failure = outcome.failure.as_ref().unwrap();
    assert_eq!(failure.kind, FailureKind::StorageFault);
    assert!(
        failure.message.contains("damaged in both logs"),
        "{failure}"
    );
}

#[test]
fn a_file_tells_whose_array_it_has() {
    let trailer = trailer(FOLDER, Content::Result, &record(3));
    let frame = &trailer[..trailer.len() - log::TRAILER_BYTES];
    let (folder, content, known) = described(frame).unwrap();
    assert_eq!(
        (folder, content, known),
        (FOLDER, Content::Result, record(3))
    );
    assert_eq!(described(&frame[..frame.len() - 1]), None);
}

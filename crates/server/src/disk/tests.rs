//! Random damage to one object of a state folder at a time. For each damage, either
//! each call is recovered, or the server refuses to start and says what to do, or it reports the
//! call as damaged. No call is lost silently.

use super::*;
use crate::state;
use farcall_random::SplitMix64;
use farcall_rpc_proto::Pieces;
use farcall_server_proto::lifecycle::Change;
use farcall_server_proto::{Key, Outcome};
use std::fs;
use std::path::Path;
use std::time::Duration;

const LONG: usize = 70_000;
const CALLS: u8 = 12;

fn settings() -> StateSettings {
    StateSettings {
        reserve: 0,
        keep_s: 3600,
        spin: Duration::from_micros(100),
    }
}

fn open(folder: &Path) -> Result<(Disk, Vec<Record>), DiskError> {
    let doorbell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let (disk, records, _) = Disk::open(folder, settings(), doorbell)?;
    Ok((disk, records))
}

fn array(byte: u8, content: Content) -> Vec<u8> {
    let length = match byte % 3 {
        0 => LONG,
        1 => 500,
        _ => 0,
    };
    vec![byte ^ content as u8; length]
}

impl Disk {
    fn reply(&self) -> Reply {
        self.replies.recv().expect("the threads live")
    }

    fn transfer(id: JobId, content: Content, bytes: &[u8], about: Option<&Record>) -> Stream {
        let key = MemoryKey::new(0, 1);
        let object = MemoryObject::mapped(key.number(), bytes.len().max(1)).expect("memory");
        // SAFETY: nobody else has the memory.
        unsafe { object.part(0, bytes.len() as u64) }.copy_from_slice(bytes);
        let transfer = Transfer {
            id,
            content,
            memory: key,
            pieces: Pieces::whole(bytes.len() as u64),
            about: about.cloned().map(Box::new),
        };
        Stream { transfer, object }
    }

    fn store(&self, record: &Record, content: Content, bytes: &[u8]) -> Stored {
        let about = Some(record).filter(|_| bytes.len() as u64 > proto::MOST_SHORT);
        let stream = Disk::transfer(record.id, content, bytes, about);
        let write = Task::Write {
            ticket: 1,
            stream,
            room: None,
        };
        self.files.submit(write);
        match self.reply() {
            Reply::Written { stored, .. } => stored.expect("the disk takes it"),
            _ => panic!("the answer to a write"),
        }
    }

    fn fetch(&self, record: &Record, content: Content) -> io::Result<Vec<u8>> {
        let stored = record.stored(content);
        let stream = Disk::transfer(record.id, content, &vec![0; stored.bytes as usize], None);
        let read = Task::Read {
            ticket: 1,
            stream,
            stored,
        };
        self.files.submit(read);
        match self.reply() {
            Reply::Read {
                memory: (_, object),
                read,
                ..
            } => {
                // SAFETY: the thread has given it back.
                read.map(|()| unsafe { object.part(0, stored.bytes) }.to_vec())
            }
            _ => panic!("the answer to a read"),
        }
    }

    fn tell(&self, entry: Entry) {
        self.journal
            .as_ref()
            .expect("a state folder")
            .record(vec![entry], Haste::Now);
        assert!(matches!(self.reply(), Reply::Recorded(_)));
    }

    fn change(&self, id: JobId, change: Change, outcome: Outcome) {
        self.tell(Entry::Change {
            id,
            change,
            outcome,
        });
    }

    /// Submits a call. Every second one ends.
    fn submit(&self, byte: u8) {
        let mut record = Record {
            number: 0,
            id: JobId([byte; 16]),
            user: "uid:1".into(),
            function: "test/f".into(),
            interface: "Define f(IN int n) Calls \"C\" f(n);".into(),
            call: vec![1, 2, byte],
            repeatable: true,
            big_endian: false,
            state: DurableState::Queued,
            submitted: 1000,
            started: None,
            ended: None,
            kept_from: None,
            keep: 3600,
            arguments: Stored::default(),
            result: Stored::default(),
            exec: None,
            made: None,
            failure: None,
        };
        let arguments = array(byte, Content::Arguments);
        record.arguments = self.store(&record, Content::Arguments, &arguments);
        self.tell(Entry::Insert(Box::new(record.clone())));
        if byte.is_multiple_of(2) {
            return;
        }
        self.change(record.id, Change::Start, Outcome::default());
        record.state = DurableState::Done;
        let result = self.store(&record, Content::Result, &array(byte, Content::Result));
        let outcome = Outcome {
            result: Some(result),
            ..Outcome::default()
        };
        self.change(record.id, Change::Finish, outcome);
        let id = record.id;
        let content = Content::Arguments;
        self.files.submit(Task::Remove { id, content });
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        match path.is_dir() {
            true => copy(&path, &to.join(name)),
            false => drop(fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The objects of a folder.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let arrays = fs::read_dir(folder.join(ARRAYS)).unwrap();
    let mut objects: Vec<PathBuf> = arrays.map(|entry| entry.unwrap().path()).collect();
    // The logs are hit as often as all arrays together.
    for _ in 0..3 {
        objects.extend(["calls.a.log", "calls.b.log", "identity"].map(|name| folder.join(name)));
    }
    objects.sort();
    objects
}

/// Damages one object. Returns what was done.
fn damage(folder: &Path, older: &Path, other: &Path, random: &mut SplitMix64) -> String {
    let objects = objects(folder);
    let object = &objects[random.below(objects.len() as u64) as usize];
    let place = object.strip_prefix(folder).unwrap();
    let mut bytes = fs::read(object).unwrap();
    let length = bytes.len() as u64;
    let at = random.below(length) as usize;
    let how = match random.below(7) {
        0 => {
            bytes[at] ^= 1 << random.below(8);
            "a bit flipped"
        }
        1 => {
            for _ in 0..=random.below(100) {
                let at = random.below(length) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            "bits flipped"
        }
        2 => {
            bytes.truncate(at);
            "truncated"
        }
        3 => {
            bytes[at..].fill(0);
            "zeroed"
        }
        4 => {
            fs::remove_file(object).unwrap();
            return format!("{} deleted", place.display());
        }
        5 => {
            let swapped = match fs::read(other.join(place)) {
                Ok(foreign) => foreign,
                // An array of another call.
                Err(_) => fs::read(objects.last().unwrap()).unwrap(),
            };
            bytes = swapped;
            "swapped"
        }
        _ => match fs::read(older.join(place)) {
            Ok(old) => {
                bytes = old;
                "replaced by an old copy"
            }
            Err(_) => {
                bytes.rotate_left(at);
                "rotated"
            }
        },
    };
    fs::write(object, bytes).unwrap();
    format!("{} {how}", place.display())
}

/// How damage has ended.
#[derive(Default, Debug)]
struct Figures {
    recovered: usize,
    refused: usize,
    reported: usize,
}

/// Looks at a folder after damage: each call that was there before is there, or it is told why not.
fn look(folder: &Path, before: &[Record], what: &str, figures: &mut Figures) {
    let checked = state::check(folder);
    let (disk, records) = match open(folder) {
        Ok(opened) => opened,
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("farcall state"), "{what}: no way out: {text}");
            figures.refused += 1;
            return;
        }
    };
    let known: BTreeMap<JobId, &Record> = records.iter().map(|one| (one.id, one)).collect();
    let mut is_reported = false;
    for expected in before {
        let id = expected.id;
        let record = known
            .get(&id)
            .unwrap_or_else(|| panic!("{what}: {id} is lost silently"));
        assert_eq!(record.state, expected.state, "{what}: {id}");
        let content = match record.state {
            DurableState::Done => Content::Result,
            _ => Content::Arguments,
        };
        if record.stored(content).bytes == 0 {
            continue;
        }
        match disk.fetch(record, content) {
            Ok(bytes) => assert!(
                bytes == array(id.0[0], content),
                "{what}: wrong bytes of {id}"
            ),
            Err(_) => {
                is_reported = true;
                let checked = checked.as_ref().unwrap();
                let name = id.to_string();
                let is_told = checked.problems.iter().any(|one| one.what.contains(&name));
                assert!(is_told, "{what}: `farcall state check` says {checked:?}");
            }
        }
    }
    match is_reported {
        true => figures.reported += 1,
        false => figures.recovered += 1,
    }
    drop(disk);
    let after = state::check(folder).unwrap();
    let others = after
        .problems
        .iter()
        .filter(|one| one.effect != state::Effect::Reported);
    let others: Vec<_> = others.filter(|one| !one.what.contains(ARRAYS)).collect();
    assert!(others.is_empty(), "{what}: not repaired: {others:?}");
}

/// `FARCALL_SOAK_DAMAGES` sets how many.
#[test]
fn no_damage_of_one_object_loses_a_call_silently() {
    let damages = std::env::var("FARCALL_SOAK_DAMAGES").map_or(150, |text| text.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let [whole, older, other, damaged] =
        ["whole", "older", "other", "damaged"].map(|name| temporary.path().join(name));
    for folder in [&whole, &other] {
        fs::create_dir(folder).unwrap();
        let (disk, _) = open(folder).unwrap();
        for byte in 0..CALLS {
            disk.submit(byte);
            if byte == CALLS / 2 && folder == &whole {
                copy(folder, &older);
            }
        }
    }
    copy(&whole, &damaged);
    let (_, before) = open(&damaged).unwrap();
    assert_eq!(before.len(), usize::from(CALLS));
    let (mut random, mut figures) = (SplitMix64::new(882), Figures::default());
    for number in 0..damages {
        fs::remove_dir_all(&damaged).unwrap();
        copy(&whole, &damaged);
        let what = format!(
            "{number}: {}",
            damage(&damaged, &older, &other, &mut random)
        );
        look(&damaged, &before, &what, &mut figures);
    }
    println!("{damages} damages: {figures:?}, none silent");
    assert!(
        figures.recovered > damages / 2 && figures.reported > damages / 20,
        "{figures:?}"
    );
}

#[test]
fn a_backup_is_whole_while_a_server_writes_and_can_be_restored() {
    let temporary = tempfile::tempdir().unwrap();
    let [folder, copied, again] =
        ["state", "copy", "again"].map(|name| temporary.path().join(name));
    fs::create_dir(&folder).unwrap();
    let (disk, _) = open(&folder).unwrap();
    (0..6).for_each(|byte| disk.submit(byte));
    let report = std::thread::scope(|scope| {
        let backup = scope.spawn(|| state::backup(&folder, &copied));
        (6..40).for_each(|byte| disk.submit(byte));
        backup.join().unwrap().unwrap()
    });
    assert_eq!(report.problems, []);
    assert!((6..=40).contains(&report.calls));
    let report = state::restore(&copied, &again).unwrap();
    assert_eq!(report.problems, []);
    assert!(matches!(
        state::restore(&copied, &again),
        Err(state::StateError::NotEmpty(_))
    ));
    assert!(matches!(
        state::restore_calls(&folder),
        Err(state::StateError::Used(_))
    ));
    let (disk, records) = open(&again).unwrap();
    assert_eq!(records.len(), report.calls);
    let first = &records[0];
    assert_eq!(
        disk.fetch(first, Content::Arguments).unwrap(),
        array(0, Content::Arguments)
    );
}

#[test]
fn a_backup_that_could_not_be_restored_is_none() {
    let temporary = tempfile::tempdir().unwrap();
    let [folder, copied] = ["state", "copy"].map(|name| temporary.path().join(name));
    fs::create_dir(&folder).unwrap();
    let (disk, _) = open(&folder).unwrap();
    (0..CALLS).for_each(|byte| disk.submit(byte));
    drop(disk);
    let arrays = fs::read_dir(folder.join(ARRAYS)).unwrap();
    fs::remove_file(arrays.last().unwrap().unwrap().path()).unwrap();
    // The call tells of this damage.
    let report = state::backup(&folder, &copied).unwrap();
    assert_eq!(report.worst(), Some(state::Effect::Reported));
    fs::remove_dir_all(&copied).unwrap();
    for name in ["calls.a.log", "calls.b.log"] {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle - 200..middle + 200].fill(7);
        fs::write(folder.join(name), bytes).unwrap();
    }
    assert!(matches!(
        state::backup(&folder, &copied),
        Err(state::StateError::Lost(path)) if path == folder
    ));
    assert_eq!(fs::read_dir(&copied).unwrap().count(), 0);
    // No file describes the calls of the damaged records either.
    for array in fs::read_dir(folder.join(ARRAYS)).unwrap() {
        fs::remove_file(array.unwrap().path()).unwrap();
    }
    let report = state::restore_calls(&folder).unwrap();
    assert_eq!(report.restored, []);
    assert!(!report.lost.is_empty(), "{report:?}");
    assert!(open(&folder).is_ok());
    let report = state::restore_calls(&folder).unwrap();
    assert_eq!(report.lost, [], "the logs lack them now");
}

#[test]
fn calls_come_back_from_files_that_describe_them() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let (disk, _) = open(folder).unwrap();
    (0..CALLS).for_each(|byte| disk.submit(byte));
    drop(disk);
    for name in ["calls.a.log", "calls.b.log"] {
        fs::write(folder.join(name), vec![0; 5000]).unwrap();
    }
    let error = open(folder).err().unwrap().to_string();
    assert!(error.contains("--restore"), "{error}");
    let report = state::restore_calls(folder).unwrap();
    let long = (0..CALLS).filter(|byte| byte.is_multiple_of(3)).count();
    assert_eq!(report.restored.len(), long);
    let (disk, records) = open(folder).unwrap();
    assert_eq!(records.len(), long);
    for record in &records {
        let content = match record.state {
            DurableState::Done => Content::Result,
            _ => Content::Arguments,
        };
        assert_eq!(
            disk.fetch(record, content).unwrap(),
            array(record.id.0[0], content)
        );
    }
    let kept = Quarantine::of(folder).files().len();
    assert_eq!(kept, 2, "both logs are in quarantine");
}

/// State folders of earlier versions, whose servers were killed: a server of commit 882b0e3, with a
/// journal in SQLite, and the first one with logs.
#[test]
fn the_golden_folders_of_earlier_versions_are_read() {
    for name in ["state-882b0e3", "state-logs-1"] {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/golden");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        copy(&golden.join(name), path);
        for _ in 0..2 {
            let (disk, records) = open(path).unwrap();
            let states: Vec<DurableState> = records.iter().map(|record| record.state).collect();
            use DurableState::*;
            assert_eq!(
                states,
                [Done, Done, Failed, Queued, Queued, Cancelled],
                "{name}"
            );
            let failure = records[2].failure.as_ref().unwrap();
            assert_eq!(failure.kind, FailureKind::OutcomeUnknown);
            for (number, content) in [(0, Content::Result), (1, Content::Result)]
                .into_iter()
                .chain([(3, Content::Arguments), (4, Content::Arguments)])
            {
                let bytes = disk.fetch(&records[number], content).unwrap();
                let length = if matches!(number, 0 | 3) { 100 } else { 70_000 };
                let expected: Vec<u8> = (0..length).map(|byte| (byte % 100) as u8).collect();
                assert!(bytes == expected, "{name}: the array of call {number}");
            }
            assert!(records[0].expires().is_some(), "its retention has begun");
            drop(disk);
            let report = state::check(path).unwrap();
            assert_eq!((report.calls, report.problems.as_slice()), (6, &[][..]));
        }
        let arrays = fs::read_dir(path.join(ARRAYS)).unwrap().count();
        assert_eq!(
            arrays, 2,
            "long arrays have files, short ones are in the logs"
        );
    }
}

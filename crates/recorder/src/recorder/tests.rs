//! Recorders in folders of their own. What they write is read again, whole, cut and damaged.

use super::*;
use crate::{Lines, ReadError, files};
use farcall_random::SplitMix64;
use farcall_record::Call;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

fn settings(folder: &Path, bytes: u64) -> Settings {
    Settings {
        folder: folder.join("record"),
        bytes,
        server: "farcall://127.0.0.1:3717".to_owned(),
        id: "00000000000000ff".to_owned(),
        program: "test".to_owned(),
    }
}

fn call(number: u64) -> Line {
    Line::Call(Box::new(Call {
        user: "alice".to_owned(),
        function: "test/f".to_owned(),
        asked: 1.7e9 + number as f64,
        ..Call::default()
    }))
}

/// The numbers of the calls of a file.
fn calls(path: &Path) -> Vec<u64> {
    let told = Lines::open(path).unwrap().map(|told| told.unwrap().line);
    let calls = told.filter_map(|line| match line {
        Line::Call(call) => Some((call.asked - 1.7e9) as u64),
        _ => None,
    });
    calls.collect()
}

/// Waits until a condition holds.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_was_recorded_is_read_and_only_its_owner_may() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    let mut recorder = Recorder::start(settings.clone()).unwrap();
    (0..100).for_each(|number| recorder.record(call(number)));
    drop(recorder);
    let found = files(&settings.folder).unwrap();
    let [file] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(file.to_str().unwrap().ends_with(".jsonl.zst"));
    assert_eq!(calls(file), (0..100).collect::<Vec<_>>());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(&settings.folder)), (0o600, 0o700));
    let first = Lines::open(file).unwrap().next().unwrap().unwrap();
    let Line::Record(header) = first.line else {
        panic!("{first:?}")
    };
    assert_eq!(header.server, settings.server);
}

#[test]
fn a_file_in_use_is_readable_after_a_second_and_mended_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    let mut recorder = Recorder::start(settings.clone()).unwrap();
    (0..10).for_each(|number| recorder.record(call(number)));
    let part = || files(&settings.folder).ok()?.pop();
    wait_until(|| part().is_some_and(|part| calls(&part).len() == 10));
    (10..20).for_each(|number| recorder.record(call(number)));
    wait_until(|| part().is_some_and(|part| calls(&part).len() == 20));
    let part = part().unwrap();
    assert!(part.to_str().unwrap().ends_with(".part"));
    // A second recorder leaves it alone, because it is locked.
    drop(Recorder::start(settings.clone()).unwrap());
    assert!(part.exists());
    // The crash: what is on the disk is all that there is.
    let bytes = fs::read(&part).unwrap();
    drop(recorder);
    fs::remove_file(part.with_extension("")).unwrap();
    // The end of the last second is missing.
    fs::write(&part, &bytes[..bytes.len() - 1]).unwrap();
    drop(Recorder::start(settings.clone()).unwrap());
    let whole = part.with_extension("");
    assert_eq!(
        files(&settings.folder).unwrap(),
        std::slice::from_ref(&whole)
    );
    assert_eq!(calls(&whole), (0..10).collect::<Vec<_>>());
    let mut lines = Lines::open(&whole).unwrap();
    assert!(lines.by_ref().all(|told| told.is_ok()));
    assert!(!lines.is_cut());
}

/// It has no bytes when it is opened.
#[test]
fn a_file_that_was_just_begun_has_no_lines_yet() {
    struct Begun(bool);
    impl io::Read for Begun {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let count = if std::mem::replace(&mut self.0, true) {
                4
            } else {
                0
            };
            bytes[..count].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd][..count]);
            Ok(count)
        }
    }
    let bytes = io::BufReader::new(Begun(false));
    let mut lines = Lines::new(Path::new("calls"), bytes).unwrap();
    assert!(lines.next().is_none());
    assert!(!lines.is_cut());
}

#[test]
fn a_file_of_a_later_version_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    folder::make(&settings.folder).unwrap();
    let part = settings.folder.join("calls-1700000000000.jsonl.zst.part");
    let first = |schema| {
        format!(r#"{{"kind":"record","schema":{schema},"time":1,"program":"","server":""}}"#)
    };
    let later = first(9);
    let unknown = first(1) + "\n" + r#"{"kind":"call","user":7}"#;
    for text in [later, unknown] {
        fs::write(&part, format!("{text}\n")).unwrap();
        folder::mend(&settings.folder).unwrap();
        assert_eq!(fs::read_to_string(&part).unwrap(), format!("{text}\n"));
        let rest = fs::read_dir(&settings.folder).unwrap().count();
        assert_eq!(rest, 1, "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_now_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    // The system opens a folder, and does not read it.
    let part = settings.folder.join("calls-1700000000000.jsonl.zst.part");
    fs::create_dir_all(&part).unwrap();
    folder::mend(&settings.folder).unwrap();
    assert!(part.exists());
    assert_eq!(fs::read_dir(&settings.folder).unwrap().count(), 1);
}

#[test]
fn all_files_together_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let most = 80_000;
    let settings = settings(folder.path(), most);
    let mut random = SplitMix64::new(1);
    let mut last = 0;
    for _ in 0..4 {
        let mut recorder = Recorder::start(settings.clone()).unwrap();
        for _ in 0..5000 {
            let line = call(random.below(1_000_000_000));
            last = line.time().unwrap() as u64;
            recorder.record(line);
        }
    }
    let found = files(&settings.folder).unwrap();
    let bytes: u64 = found
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    // The compressor holds back at most one block of lines.
    assert!(bytes <= most + 40_000, "{bytes}");
    assert!(found.len() >= 2);
    let newest = calls(found.last().unwrap());
    assert_eq!(*newest.last().unwrap() + 1_700_000_000, last);
}

/// The clock was years ahead when the first file was written.
#[test]
fn the_file_that_was_written_first_is_removed_first() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 20);
    folder::make(&settings.folder).unwrap();
    let ahead = settings.folder.join("calls-4102444800000.jsonl.zst");
    fs::write(&ahead, vec![0; 1 << 19]).unwrap();
    let mut recorder = Recorder::start(settings.clone()).unwrap();
    (0..10).for_each(|number| recorder.record(call(number)));
    drop(recorder);
    let found = files(&settings.folder).unwrap();
    assert_eq!(found[0], ahead);
    assert_eq!(calls(&found[1]), (0..10).collect::<Vec<_>>());
    folder::bound(&settings.folder, 1 << 18).unwrap();
    assert_eq!(files(&settings.folder).unwrap(), found[1..]);
}

#[test]
fn a_folder_that_cannot_be_made_stops_nobody() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("record"), "a file").unwrap();
    let mut recorder = Recorder::start(settings(folder.path(), 1 << 20)).unwrap();
    (0..10).for_each(|number| recorder.record(call(number)));
    drop(recorder);
    assert_eq!(fs::read(folder.path().join("record")).unwrap(), b"a file");
}

#[test]
fn a_new_try_after_a_failure_ends_the_files_that_earlier_ones_have_left() {
    let folder = tempfile::tempdir().unwrap();
    let mut thread = Thread::new(settings(folder.path(), 1 << 20));
    for number in 0..3 {
        thread.write(call(number)).unwrap();
        thread.flush().unwrap();
        thread.tell(Err(io::ErrorKind::StorageFull.into()));
        thread.again = None;
    }
    thread.write(call(3)).unwrap();
    let found = files(&thread.settings.folder).unwrap();
    let is_part = |file: &&PathBuf| file.extension().is_some_and(|end| end == "part");
    let parts = found.iter().filter(is_part);
    assert_eq!((found.len(), parts.count()), (4, 1), "{found:?}");
    let read: Vec<u64> = found[..3].iter().flat_map(|file| calls(file)).collect();
    assert_eq!(read, [0, 1, 2]);
}

/// The bytes of a file with lines.
fn file(count: u64) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), 1 << 24);
    let mut recorder = Recorder::start(settings.clone()).unwrap();
    (0..count).for_each(|number| recorder.record(call(number)));
    drop(recorder);
    fs::read(&files(&settings.folder).unwrap()[0]).unwrap()
}

#[test]
fn a_file_that_is_cut_is_read_up_to_there() {
    let whole = file(2000);
    let path = Path::new("calls-1.jsonl.zst");
    let mut before = 0;
    for end in (5..whole.len()).step_by(97) {
        let mut lines = Lines::new(path, &whole[..end]).unwrap();
        let read = lines.by_ref().map(Result::unwrap).count();
        assert!(lines.is_cut() && read >= before, "{end}");
        before = read;
    }
    assert_eq!(Lines::new(path, &whole[..]).unwrap().count(), 2001);
}

#[test]
fn foreign_and_damaged_files_are_named_with_the_line() {
    let path = Path::new("a.jsonl.zst");
    let message = |bytes: &[u8]| {
        let mut lines = Lines::new(path, bytes).unwrap();
        let error = lines.find_map(Result::err).expect("an error");
        assert!(lines.next().is_none());
        error.to_string()
    };
    let foreign = message(b"name,value\n");
    assert!(foreign.starts_with("a.jsonl.zst: line 1: "), "{foreign}");
    let other = message(
        br#"{"kind":"graph"}
"#,
    );
    assert!(other.starts_with("a.jsonl.zst: line 1: this is not a record of calls"));
    let mut text = Vec::new();
    Line::Record(Header {
        schema: SCHEMA,
        ..Header::default()
    })
    .write(&mut text);
    text.extend(b"{}\n");
    assert!(message(&text).starts_with("a.jsonl.zst: line 2: "));
    let long = message(&[b'x'; 1 << 20]);
    assert!(long.contains("more than 65536 bytes"), "{long}");
    let mut damaged = file(2000);
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8].fill(0xff);
    let lines = Lines::new(path, &damaged[..]).unwrap();
    let error = lines.last().unwrap().unwrap_err();
    let is_known = matches!(error, ReadError::Damaged { .. } | ReadError::Line { .. });
    assert!(is_known, "{error}");
}

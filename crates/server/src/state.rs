//! State folders without a server: checking them, repairing them, and copying them.
//!
//! A copy is consistent even if a server writes at the same time: the logs are only appended to,
//! and every array that the copied logs need is copied with them.

use crate::disk::DiskError;
use crate::disk::files::{extension, has_array, named, read_trailer};
use crate::disk::guard::{self, inner_folder, make_folder, private_file, sync_folder};
use crate::disk::logs::{Book, Logs, NAMES, new_identity};
use crate::disk::quarantine::{Quarantine, move_file};
use crate::disk::{ARRAYS, old_journal};
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use farcall_server_proto::ledger::{Damage, Moment};
use farcall_server_proto::{Content, MOST_SHORT, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often a check or a copy begins again because a server changes the folder meanwhile.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// What a check says about a folder without logs that can be read.
const NO_LOGS: &str = "both logs are missing, damaged, or belong to other folders";

/// Why a state folder cannot be checked, copied or repaired.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// There is nothing.
    #[error(
        "{} is not a state folder: it has no logs of durable calls; check the path",
        .0.display()
    )]
    NoState(PathBuf),
    /// An earlier version wrote it.
    #[error(
        "{} was written by an earlier version of farcall: start a server of this version with it \
         once, which takes its calls over",
        .0.display()
    )]
    Earlier(PathBuf),
    /// A server uses it.
    #[error("a server uses {}: stop it first", .0.display())]
    Used(PathBuf),
    /// The place for a copy is not empty.
    #[error("{} is not empty: name a new folder, or move this one away", .0.display())]
    NotEmpty(PathBuf),
    /// The backup is damaged.
    #[error(
        "{} is damaged, so it is not used: `farcall state check {}` says how; use another backup",
        .0.display(), .0.display()
    )]
    Damaged(PathBuf),
    /// The folder to copy is damaged.
    #[error(
        "{} is damaged, so that no copy of it could be restored, and nothing was copied: `farcall \
         state check {}` says how, and with `--restore` it brings back what is left",
        .0.display(), .0.display()
    )]
    Lost(PathBuf),
    /// The server changes the folder too quickly.
    #[error("{} changes too quickly to be copied; try again", .0.display())]
    Busy(PathBuf),
    /// The folder cannot be read or written.
    #[error("{}: {source}", path.display())]
    Disk {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        source: DiskError,
    },
}

/// What is wrong with one object of a state folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file or the call, and what is wrong with it.
    pub what: String,
    /// What this means.
    pub effect: Effect,
}

/// What damage means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing is lost: the next start of a server repairs it.
    Repairable,
    /// The call is known, and its status tells of the damage.
    Reported,
    /// A server does not start with it.
    Refused,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of durable calls.
    pub calls: usize,
    /// What is damaged.
    pub problems: Vec<Problem>,
    /// Files in quarantine.
    pub quarantined: usize,
    /// What was damaged before a repair.
    pub repaired: Vec<Problem>,
    /// Records that a repair could not bring back. The logs that it has written lack them.
    pub lost: Vec<Problem>,
    /// Calls that a repair has brought back from files that describe them.
    pub restored: Vec<JobId>,
}

impl Report {
    /// What the worst damage means.
    pub fn worst(&self) -> Option<Effect> {
        self.problems.iter().map(|problem| problem.effect).max()
    }

    fn is_refused(&self) -> bool {
        self.worst() == Some(Effect::Refused)
    }
}

/// Checks a state folder. A server may be using it.
///
/// # Errors
/// If it is not a state folder, or cannot be read.
pub fn check(folder: &Path) -> Result<Report, StateError> {
    let mut report = check_once(folder)?;
    for _ in 1..TRIES {
        // What a server writes during the check looks like damage.
        if report.problems.is_empty() || lock(folder)?.is_some() {
            break;
        }
        thread::sleep(PAUSE);
        report = check_once(folder)?;
    }
    Ok(report)
}

/// Repairs a state folder that no server uses, and brings back calls that only files describe: in
/// the folder, or in its quarantine.
///
/// # Errors
/// A server uses it, or it cannot be read or written.
pub fn restore_calls(folder: &Path) -> Result<Report, StateError> {
    let _lock = lock(folder)?.ok_or_else(|| StateError::Used(folder.to_path_buf()))?;
    let before = check_once(folder)?;
    let restored = repair(folder).map_err(|source| failed(folder, source))?;
    let after = check_once(folder)?;
    let is_gone = |problem: &Problem| !after.problems.contains(problem);
    let is_lost = |problem: &Problem| {
        let mut ids = restored.iter().map(ToString::to_string);
        let is_record = problem.effect == Effect::Refused && problem.what != NO_LOGS;
        is_record && !ids.any(|id| problem.what.contains(&id))
    };
    let gone = before.problems.into_iter().filter(is_gone);
    let (lost, repaired) = gone.partition(is_lost);
    Ok(Report {
        repaired,
        lost,
        restored,
        ..after
    })
}

/// Copies a state folder into a new one. A server may be using it. Returns what a check of the
/// copy says.
///
/// # Errors
/// The folder cannot be read, or is so damaged that a server would not start with the copy, or the
/// copy cannot be written.
pub fn backup(folder: &Path, to: &Path) -> Result<Report, StateError> {
    if old_journal::is_there(folder) {
        return Err(StateError::Earlier(folder.to_path_buf()));
    }
    logs_of(folder)?.map_err(|source| failed(folder, source))?;
    prepare_copy(to)?;
    whole_or_nothing(to, || copy_while_used(folder, to))
}

fn copy_while_used(folder: &Path, to: &Path) -> Result<Report, StateError> {
    let mut last = Err(StateError::Busy(folder.to_path_buf()));
    for _ in 0..TRIES {
        match copy(folder, to) {
            Ok(()) => {}
            // A call ended meanwhile, and its file is gone.
            Err(DiskError::Folder(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed(folder, source)),
        }
        last = check_once(to);
        let is_whole = last.as_ref().is_ok_and(|report| report.problems.is_empty());
        if is_whole || (last.is_ok() && lock(folder)?.is_some()) {
            break;
        }
        thread::sleep(PAUSE);
    }
    match last {
        // What a server writes during all tries looks like damage.
        Ok(report) if report.is_refused() && lock(folder)?.is_none() => {
            Err(StateError::Busy(folder.to_path_buf()))
        }
        Ok(report) if report.is_refused() => Err(StateError::Lost(folder.to_path_buf())),
        last => last,
    }
}

/// Copies a backup into a new state folder, if the backup is whole.
///
/// # Errors
/// The backup is damaged, the folder is not empty, or it cannot be written.
pub fn restore(backup: &Path, folder: &Path) -> Result<Report, StateError> {
    if check_once(backup)?.is_refused() {
        return Err(StateError::Damaged(backup.to_path_buf()));
    }
    prepare_copy(folder)?;
    whole_or_nothing(folder, || {
        copy(backup, folder).map_err(|source| failed(backup, source))?;
        check_once(folder)
    })
}

/// Removes what a copy that fails has written to a folder, which was empty. A server that found a
/// part of a state there would know only some of the calls.
fn whole_or_nothing(
    to: &Path,
    copy: impl FnOnce() -> Result<Report, StateError>,
) -> Result<Report, StateError> {
    let copied = copy();
    if copied.is_err() {
        for entry in fs::read_dir(to).into_iter().flatten().flatten() {
            let path = entry.path();
            // What cannot be removed stays, and the error is that of the copy.
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
    copied
}

fn failed(path: &Path, source: DiskError) -> StateError {
    let path = path.to_path_buf();
    StateError::Disk { path, source }
}

/// Locks the folder; `None` if a server uses it.
fn lock(folder: &Path) -> Result<Option<guard::Lock>, StateError> {
    guard::lock(folder).map_err(|error| failed(folder, error.into()))
}

fn prepare_copy(to: &Path) -> Result<(), StateError> {
    let made = make_folder(to).and_then(|()| Ok(fs::read_dir(to)?.next().is_none()));
    match made {
        Ok(true) => Ok(()),
        Ok(false) => Err(StateError::NotEmpty(to.to_path_buf())),
        Err(error) => Err(failed(to, error.into())),
    }
}

/// The logs of a folder, or why they hide everything.
fn logs_of(folder: &Path) -> Result<Result<Logs, DiskError>, StateError> {
    match Logs::read(folder) {
        Ok(Some(logs)) => Ok(Ok(logs)),
        Err(DiskError::Lost(path)) => Ok(Err(DiskError::Lost(path))),
        Err(source) => Err(failed(folder, source)),
        Ok(None) if old_journal::is_there(folder) => Err(StateError::Earlier(folder.into())),
        Ok(None) if files(&folder.join(ARRAYS)).next().is_some() => {
            Ok(Err(DiskError::Lost(folder.to_path_buf())))
        }
        Ok(None) => Err(StateError::NoState(folder.to_path_buf())),
    }
}

fn check_once(folder: &Path) -> Result<Report, StateError> {
    let mut report = Report {
        quarantined: Quarantine::of(folder).files().len(),
        ..Report::default()
    };
    let mut found = |what: String, effect| report.problems.push(Problem { what, effect });
    let logs = match logs_of(folder)? {
        Ok(logs) => logs,
        Err(_) => {
            found(NO_LOGS.to_string(), Effect::Refused);
            return Ok(report);
        }
    };
    for problem in &logs.problems {
        found(problem.clone(), Effect::Repairable);
    }
    for damage in &logs.rebuilt.damages {
        let (what, effect) = match damage {
            Damage::State(id) => (
                format!("the newest record of call {id} is damaged in both logs"),
                Effect::Reported,
            ),
            Damage::Call(id) => (
                format!("the record of call {id} is damaged in both logs"),
                Effect::Refused,
            ),
            Damage::Unknown(number) => (
                format!("record {number} is damaged in both logs"),
                Effect::Refused,
            ),
        };
        found(what, effect);
    }
    let records = &logs.rebuilt.records;
    for (record, content) in records.iter().flat_map(long_arrays) {
        let name = name(record.id, content);
        let path = folder.join(ARRAYS).join(&name);
        match array_problem(&path, record, content) {
            Ok(None) => {}
            Ok(Some((what, effect))) => found(format!("{ARRAYS}/{name}: {what}"), effect),
            Err(error) => found(format!("{ARRAYS}/{name}: {error}"), Effect::Reported),
        }
    }
    let known: BTreeMap<JobId, &Record> = records.iter().map(|one| (one.id, one)).collect();
    for path in files(&folder.join(ARRAYS)) {
        let Some((id, content)) = named(&path) else {
            continue;
        };
        if content != Content::Array && !known.contains_key(&id) {
            let what = format!("{ARRAYS}/{}: no record needs it", name(id, content));
            found(what, Effect::Repairable);
        }
    }
    report.calls = records.len();
    Ok(report)
}

/// The arrays of a call that have files.
fn long_arrays(record: &Record) -> impl Iterator<Item = (&Record, Content)> {
    let contents = [Content::Arguments, Content::Result].into_iter();
    contents
        .filter(|content| record.needs(*content) && record.stored(*content).bytes > MOST_SHORT)
        .map(move |content| (record, content))
}

fn name(id: JobId, content: Content) -> String {
    format!("{id}.{}", extension(content))
}

fn files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// What is wrong with the file of an array.
fn array_problem(
    path: &Path,
    record: &Record,
    content: Content,
) -> io::Result<Option<(&'static str, Effect)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(("it is missing", Effect::Reported)));
        }
        Err(error) => return Err(error),
    };
    if !has_array(&file, record.stored(content))? {
        return Ok(Some((
            "its checksum differs from the recorded one",
            Effect::Reported,
        )));
    }
    let is_described = read_trailer(&file)?.is_some_and(|(_, _, known)| known.id == record.id);
    let text = "the description at its end is damaged; the array itself is whole";
    Ok((!is_described).then_some((text, Effect::Repairable)))
}

/// Copies the files of a folder: arrays first, then the logs, then the arrays that came meanwhile.
fn copy(folder: &Path, to: &Path) -> Result<(), DiskError> {
    let arrays = to.join(ARRAYS);
    inner_folder(&arrays)?;
    for path in files(&folder.join(ARRAYS)) {
        if named(&path).is_some_and(|(_, content)| content != Content::Array) {
            match copy_file(&path, &arrays) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
    }
    for name in NAMES.into_iter().chain(["identity", "learned.json"]) {
        let from = folder.join(name);
        if from.exists() {
            let _ = fs::remove_file(to.join(name));
            copy_file(&from, to)?;
        }
    }
    let mut needed = BTreeSet::new();
    if let Some(logs) = Logs::read(to)? {
        for (record, content) in logs.rebuilt.records.iter().flat_map(long_arrays) {
            let name = name(record.id, content);
            if !arrays.join(&name).exists() {
                match copy_file(&folder.join(ARRAYS).join(&name), &arrays) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            needed.insert(name);
        }
    }
    for path in files(&arrays) {
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| needed.contains(name)) {
            fs::remove_file(path)?;
        }
    }
    sync_folder(&arrays)?;
    sync_folder(to)?;
    Ok(())
}

fn copy_file(from: &Path, folder: &Path) -> io::Result<()> {
    let to = folder.join(from.file_name().unwrap_or_default());
    if to.exists() {
        return Ok(());
    }
    let mut from = File::open(from)?;
    // A log that grows is copied up to its present end.
    let length = from.metadata()?.len();
    let mut write = || {
        let mut file = private_file(&to)?;
        io::copy(&mut io::Read::take(&mut from, length), &mut file)?;
        file.sync_all()
    };
    write().map_err(|error: io::Error| {
        let text = format!("{} cannot be written: {error}", to.display());
        io::Error::new(error.kind(), text)
    })
}

/// Repairs the logs, and adds calls that files describe and the logs do not know.
fn repair(folder: &Path) -> Result<Vec<JobId>, DiskError> {
    let quarantine = Quarantine::of(folder);
    let arrays = folder.join(ARRAYS);
    inner_folder(&arrays)?;
    let candidates = described_files(&arrays, &quarantine);
    let moment = |served| Moment {
        unix_ms: crate::clock::unix_ms(),
        served,
    };
    let read = match Logs::read(folder) {
        Err(DiskError::Lost(_)) => None,
        other => other?,
    };
    let (mut book, records, served) = match read {
        Some(logs) => {
            let served = logs.served();
            let (mut book, records, changes) = logs.repair(&quarantine, moment(served))?;
            book.append(&changes, moment(served))?;
            (book, records, served)
        }
        None => begin_anew(folder, &quarantine, &candidates, moment)?,
    };
    let now = moment(served);
    let known = records.into_iter().map(|record| (record.id, record));
    let restored = bring_back(&mut book, &arrays, &known.collect(), candidates, now)?;
    book.write_batch()?;
    sync_folder(&arrays)?;
    Ok(restored.into_iter().collect())
}

/// New logs for a folder that has lost both. What is left of the old ones is kept in quarantine.
fn begin_anew(
    folder: &Path,
    quarantine: &Quarantine,
    candidates: &[Described],
    moment: impl Fn(u64) -> Moment,
) -> Result<(Book, Vec<Record>, u64), DiskError> {
    for name in NAMES {
        if folder.join(name).exists() {
            quarantine.copy(&folder.join(name), 0)?;
        }
    }
    let served = candidates.iter().filter_map(|one| one.record.kept_from);
    let served = served.max().unwrap_or(0);
    let identity = match candidates.first() {
        Some(one) => one.folder,
        None => new_identity()?,
    };
    let book = Book::create(folder, identity, moment(served))?;
    Ok((book, Vec::new(), served))
}

/// Adds calls that only files describe to the logs, and puts arrays of known calls back into their
/// place. Returns these calls.
fn bring_back(
    book: &mut Book,
    arrays: &Path,
    known: &BTreeMap<JobId, Record>,
    candidates: Vec<Described>,
    now: Moment,
) -> io::Result<BTreeSet<JobId>> {
    let mut restored = BTreeSet::new();
    for found in candidates {
        let id = found.record.id;
        let place = arrays.join(name(id, found.content));
        match known.get(&id) {
            // The array of a known call, which is missing in its place.
            Some(record) => {
                let is_its = record.needs(found.content)
                    && record.stored(found.content) == found.record.stored(found.content);
                if is_its && !place.exists() {
                    move_file(&found.path, &place)?;
                    restored.insert(id);
                }
                continue;
            }
            None if found.folder != book.ledger.folder() || restored.contains(&id) => continue,
            None => {}
        }
        if found.path != place {
            move_file(&found.path, &place)?;
        }
        let record = brought_back(found, now);
        book.ledger.adopt(record, None, None, now);
        restored.insert(id);
    }
    Ok(restored)
}

/// A file that says which call it belongs to, and whose array is whole.
struct Described {
    path: PathBuf,
    folder: u64,
    content: Content,
    record: Record,
}

/// Files with descriptions; results come first.
fn described_files(arrays: &Path, quarantine: &Quarantine) -> Vec<Described> {
    let kept = quarantine.files().into_iter().map(|(.., path)| path);
    let mut all: Vec<Described> = files(arrays)
        .chain(kept)
        .filter_map(|path| {
            let file = File::open(&path).ok()?;
            let (folder, content, record) = read_trailer(&file).ok()??;
            let is_whole = has_array(&file, record.stored(content)).unwrap_or(false);
            is_whole.then_some(Described {
                path,
                folder,
                content,
                record,
            })
        })
        .collect();
    all.sort_by_key(|one| (one.content == Content::Arguments, one.record.number));
    all
}

/// The record of a call that only a file describes.
fn brought_back(found: Described, now: Moment) -> Record {
    let mut record = found.record;
    match found.content {
        Content::Result => record.kept_from = Some(now.served),
        _ if record.repeatable => record.state = DurableState::Queued,
        _ => {
            let text = "outcome unknown: its record was rebuilt from its arguments after damage, \
                        and the function is not declared Repeatable; submit the call again if \
                        running it twice does no harm";
            record.state = DurableState::Failed;
            record.failure = Some(Failure::new(FailureKind::OutcomeUnknown, text));
            (record.ended, record.kept_from) = (Some(now.unix_ms), Some(now.served));
        }
    }
    record
}

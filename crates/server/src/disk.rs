//! The disk: the journal of durable calls, and files for their data and for stored arrays.
//!
//! Threads write and read; the reactor never waits for them. The server decides what is written.
//! Every record is in two logs, and a long array is in a file that says which call it belongs to.
//! So a damaged log is rebuilt from the other one, and a damaged file is told of.

mod batch;
pub(crate) mod files;
pub(crate) mod guard;
mod journal;
pub(crate) mod logs;
pub(crate) mod old_journal;
pub(crate) mod quarantine;
mod trouble;

use crate::clock::unix_ms;
use crate::memories::Memories;
use farcall_rpc_proto::{DurableState, Failure, FailureKind, JobId};
use farcall_server_proto::{
    self as proto, Action, Content, Event, Haste, JournalEntry as Entry, MemoryKey, Record, Stored,
    Transfer,
};
use farcall_spin::Spin;
use farcall_worker::{MemoryObject, temporary_folder};
use files::{Files, Folder, Stream, Task};
use journal::{Journal, Recorder, Served};
use logs::{Book, Logs, Shelf, new_identity};
use quarantine::Quarantine;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use trouble::Trouble;

/// The folder with long arguments and results, and with stored arrays that left memory.
pub(crate) const ARRAYS: &str = "arrays";

/// Most entries that wait for another one on their way to the journal.
const MOST_ENTRIES: usize = 64;
/// How long entries wait for others while events follow each other.
const GATHERS: Duration = Duration::from_micros(500);
/// Time between two tries to take over the folder that another server uses.
const NEXT_TRY: Duration = Duration::from_millis(10);
/// The same if the other server has left it, and it cannot be used.
const PATIENCE: Duration = Duration::from_secs(5);
/// A result of the threads.
pub(crate) enum Reply {
    Written {
        ticket: u64,
        memory: (MemoryKey, MemoryObject),
        stored: io::Result<Stored>,
    },
    Read {
        ticket: u64,
        memory: (MemoryKey, MemoryObject),
        read: io::Result<()>,
    },
    /// The journal has recorded something, or could not.
    Recorded(Event),
}

/// Why durable calls cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Another server uses the folder.
    #[error(
        "another server uses the folder: wait until it has ended, or give each server its own \
         (--state DIR)"
    )]
    Taken,
    /// The journal of an earlier version cannot be read.
    #[error("jobs.sqlite: {source}; restore it from a backup, or move it away to start without it")]
    Database {
        /// The database's error.
        #[from]
        source: rusqlite::Error,
    },
    /// A newer server wrote it.
    #[error("a newer farcall wrote it (version {0} of the records); use that version")]
    Newer(i64),
    /// The journal of an earlier version is damaged.
    #[error(
        "jobs.sqlite is damaged: {0}; restore it from a backup, or move it away to start without \
         it"
    )]
    Damaged(String),
    /// Both logs are gone, or belong to other folders.
    #[error(
        "both logs of durable calls are missing, damaged, or belong to other folders; put them \
         back from a backup (`farcall state restore`), or let `farcall state check {} --restore` \
         rebuild the calls that its files describe",
        .0.display()
    )]
    Lost(PathBuf),
    /// Records are damaged in both logs.
    #[error(
        "records of durable calls that are damaged in both logs: {count}; `farcall state check {}` \
         names them; put the folder back from a backup (`farcall state restore`), or go on without \
         them: `farcall state check {} --restore`",
        folder.display(), folder.display()
    )]
    Unreadable {
        /// How many.
        count: usize,
        /// The folder.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("{0}")]
    Folder(#[from] io::Error),
}

impl DiskError {
    /// Whether another server uses the folder.
    pub(crate) fn is_taken(&self) -> bool {
        use rusqlite::ErrorCode;
        match self {
            DiskError::Taken => true,
            DiskError::Database { source } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            _ => false,
        }
    }
}

/// An error with the file that it concerns.
fn problem(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The threads that write and read, and their results.
pub(crate) struct Disk {
    replies: Receiver<Reply>,
    files: Files,
    /// The journal, if there is a state folder.
    journal: Option<Journal>,
    trouble: Trouble,
    /// The folder, if it ends with the server.
    _temporary: Option<TempDir>,
    /// The lock of the state folder.
    _lock: Option<guard::Lock>,
}

/// How a state folder is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateSettings {
    /// Bytes of the disk that arrays leave free for the logs.
    pub(crate) reserve: u64,
    /// Seconds for which files remain in quarantine.
    pub(crate) keep_s: u64,
    /// How long a thread may spin.
    pub(crate) spin: Duration,
}

impl Disk {
    /// Opens the state folder: repairs it, and moves each recorded call to the state that holds
    /// after a restart. Threads ring `doorbell` when they have a result. Returns the calls, and how
    /// long servers have served with the folder, in milliseconds.
    pub(crate) fn open(
        path: &Path,
        settings: StateSettings,
        doorbell: OwnedFd,
    ) -> Result<(Disk, Vec<Record>, u64), DiskError> {
        let lock = guard::lock(path)?.ok_or(DiskError::Taken)?;
        let quarantine = Quarantine::of(path);
        let data = Folder::open(path.join(ARRAYS), settings.reserve)?;
        let (mut book, mut records, mut changes, before) = open_logs(path, &quarantine)?;
        let served = Served {
            before,
            since: Instant::now(),
        };
        if old_journal::is_there(path) {
            let added = old_journal::migrate(path, &mut book, &data, served.now())?;
            changes.extend(added.iter().filter_map(Entry::restart));
            records.extend(added);
        }
        apply(&book.append(&changes, served.now())?, &mut records);
        sweep(&data, &quarantine, &mut records, served)?;
        quarantine.expire(served.now().served, settings.keep_s);
        let (sender, replies) = channel();
        let (doorbell, trouble) = (Arc::new(doorbell), Trouble::new(path));
        let folder = book.ledger.folder();
        let shelf = Shelf::new(book);
        let data = data.with_logs(shelf.clone(), folder);
        let recorder = Recorder {
            shelf,
            served,
            quarantine,
            keep_s: settings.keep_s,
            spin: Spin::new(settings.spin),
            latency: Arc::default(),
            trouble: trouble.clone(),
            seen: None,
            replies: sender.clone(),
            doorbell: doorbell.clone(),
        };
        let disk = Disk {
            replies,
            files: Files::start(&data, &trouble, &sender, &doorbell)?,
            journal: Some(Journal::start(recorder)?),
            trouble,
            _temporary: None,
            _lock: Some(lock),
        };
        Ok((disk, records, served.now().served))
    }

    /// A temporary folder for stored arrays, which ends with the server.
    fn temporary(parent: &Path, settings: StateSettings, doorbell: OwnedFd) -> io::Result<Disk> {
        let temporary = temporary_folder(parent)?;
        let (sender, replies) = channel();
        let folder = Folder::open(temporary.path().to_path_buf(), settings.reserve)?;
        let trouble = Trouble::new(temporary.path());
        let files = Files::start(&folder, &trouble, &sender, &Arc::new(doorbell))?;
        Ok(Disk {
            replies,
            files,
            journal: None,
            trouble,
            _temporary: Some(temporary),
            _lock: None,
        })
    }
}

/// Opens the logs of a folder, or makes them. Returns them with their calls, the changes that must
/// be recorded, and how long servers have served.
fn open_logs(
    path: &Path,
    quarantine: &Quarantine,
) -> Result<(Book, Vec<Record>, Vec<Entry>, u64), DiskError> {
    let moment = |served| proto::ledger::Moment {
        unix_ms: unix_ms(),
        served,
    };
    let Some(logs) = Logs::read(path)? else {
        if std::fs::read_dir(path.join(ARRAYS))?.next().is_some() {
            return Err(DiskError::Lost(path.to_path_buf()));
        }
        let book = Book::create(path, new_identity()?, moment(0))?;
        return Ok((book, Vec::new(), Vec::new(), 0));
    };
    let folder = path.display();
    for problem in &logs.problems {
        tracing::warn!(
            "{folder}: {problem}; it is rebuilt, and what was left of a log is in quarantine"
        );
    }
    let count = logs.losses().count();
    if count > 0 {
        return Err(DiskError::Unreadable {
            count,
            folder: path.to_path_buf(),
        });
    }
    let served = logs.served();
    let (book, records, changes) = logs.repair(quarantine, moment(served))?;
    Ok((book, records, changes, served))
}

/// Applies changes that were recorded.
fn apply(told: &[Event], records: &mut [Record]) {
    let mut by_id: BTreeMap<JobId, &mut Record> = records
        .iter_mut()
        .map(|record| (record.id, record))
        .collect();
    for event in told {
        if let Event::Changed(id, Some(changed)) = event
            && let Some(record) = by_id.get_mut(id)
        {
            record.apply(changed);
        }
    }
}

/// Moves files that no call needs into quarantine, and finds calls whose results are damaged.
fn sweep(
    data: &Folder,
    quarantine: &Quarantine,
    records: &mut [Record],
    served: Served,
) -> Result<(), DiskError> {
    let known: BTreeMap<JobId, &Record> =
        records.iter().map(|record| (record.id, record)).collect();
    let is_needed = |id, content| {
        let record = known.get(&id);
        record.is_some_and(|record| record.needs(content))
    };
    let moved = data.sweep(quarantine, served.now().served, is_needed)?;
    if moved > 0 {
        let moved = farcall_quantity::counted(moved, "file");
        tracing::info!("moved {moved} that no durable call needs into quarantine");
    }
    for record in records {
        if record.state != DurableState::Done || record.result.bytes <= proto::MOST_SHORT {
            continue;
        }
        if let Some(how) = data.problem(record.id, Content::Result, record.result) {
            let text = format!("the results of {} are damaged: {how}", record.id);
            tracing::error!("{text}");
            record.failure = Some(Failure::new(FailureKind::StorageFault, text));
        }
    }
    Ok(())
}

/// The state folder, once this server has it; without one, a temporary folder for stored arrays.
pub(crate) struct State {
    disk: Option<Disk>,
    /// Whether another server still uses the folder and this one waits for it.
    is_awaited: bool,
    /// Why this server could not take the folder over, and when it tried last.
    refused: Option<(String, Instant)>,
    /// Where the temporary folder is made when the first array leaves memory.
    temporary: PathBuf,
    settings: StateSettings,
    /// Entries that the journal does not have yet.
    entries: Vec<Entry>,
    /// When the most urgent of them goes to the disk.
    haste: Haste,
    /// Since when somebody waits for them.
    since: Option<Instant>,
    /// Files to remove after the turn.
    removals: Vec<Task>,
    doorbell: OwnedFd,
}

impl State {
    pub(crate) fn new(temporary: PathBuf, settings: StateSettings, doorbell: OwnedFd) -> State {
        State {
            disk: None,
            is_awaited: false,
            refused: None,
            temporary,
            settings,
            entries: Vec::new(),
            haste: Haste::Later,
            since: None,
            removals: Vec::new(),
            doorbell,
        }
    }

    /// Why durable calls cannot be recorded at present.
    pub(crate) fn unready(&self) -> Option<String> {
        if let Some((why, _)) = &self.refused {
            return Some(why.clone());
        }
        if self.is_awaited {
            return Some("the previous server still uses the state folder".to_owned());
        }
        self.disk.as_ref()?.trouble.known().clone()
    }

    /// Opens the state folder. During a takeover, the old server uses it until its calls have
    /// ended.
    pub(crate) fn open(&mut self, folder: &Path, takes_over: bool) -> Result<Event, DiskError> {
        match Disk::open(folder, self.settings, self.doorbell.try_clone()?) {
            Ok((disk, records, served)) => {
                self.disk = Some(disk);
                (self.is_awaited, self.refused) = (false, None);
                Ok(Event::DurableOpened(records, served))
            }
            Err(error) if takes_over && error.is_taken() => {
                (self.is_awaited, self.refused) = (true, None);
                Ok(Event::DurableAwaited)
            }
            Err(error) => Err(error),
        }
    }

    /// Time until the next try to take the folder over; `None` if this server has it.
    pub(crate) fn next_try(&self) -> Option<Duration> {
        let refused = self.refused.as_ref();
        let left = refused.map_or(NEXT_TRY, |(_, at)| PATIENCE.saturating_sub(at.elapsed()));
        self.is_awaited.then_some(left)
    }

    /// Whether it is time to try to take the folder over.
    pub(crate) fn tries_again(&self) -> bool {
        let refused = self.refused.as_ref();
        self.is_awaited && refused.is_none_or(|(_, at)| at.elapsed() >= PATIENCE)
    }

    /// The folder that the server before has left cannot be used.
    pub(crate) fn cannot_take(&mut self, why: String) {
        if self.refused.as_ref().is_none_or(|(known, _)| *known != why) {
            tracing::error!("{why}; this server tries again every 5 s");
        }
        self.refused = Some((why, Instant::now()));
    }

    /// Performs an action on the disk. Returns the resulting event if it is known at once.
    pub(crate) fn execute(&mut self, action: Action, memories: &mut Memories) -> Option<Event> {
        match action {
            Action::WriteFile {
                ticket,
                transfer,
                room,
            } => {
                let write = |stream| Task::Write {
                    ticket,
                    stream,
                    room,
                };
                let failed = self.hand_over(transfer, memories, write);
                return failed.map(|error| Event::Written(ticket, Err(error)));
            }
            Action::ReadFile {
                ticket,
                transfer,
                stored,
            } => {
                let read = |stream| Task::Read {
                    ticket,
                    stream,
                    stored,
                };
                let failed = self.hand_over(transfer, memories, read);
                return failed.map(|error| Event::Fetched(ticket, Err(error)));
            }
            Action::RemoveFile(id, content) => {
                self.removals.push(Task::Remove { id, content });
            }
            Action::Record { entry, haste } => {
                self.entries.push(entry);
                self.haste = self.haste.min(haste);
            }
            _ => {}
        }
        None
    }

    /// Passes entries to the journal, at the end of a turn, so that its thread wakes up once for
    /// all of them. After a turn with events they wait for those of the next turn, but not for
    /// long. Those for which nobody waits stay here for the next ones. Returns how long to spin for
    /// the answer, if one will come.
    pub(crate) fn pass_on(&mut self, had_events: bool) -> Option<Duration> {
        if let Some(disk) = &self.disk {
            self.removals
                .drain(..)
                .for_each(|task| disk.files.submit(task));
        }
        let is_awaited = self.haste != Haste::Later;
        if is_awaited && had_events && self.entries.len() < MOST_ENTRIES {
            let since = self.since.get_or_insert_with(Instant::now);
            if since.elapsed() < GATHERS {
                return None;
            }
        }
        if is_awaited || self.entries.len() >= MOST_ENTRIES {
            self.record();
        }
        let journal = self.disk.as_ref()?.journal.as_ref()?;
        is_awaited.then(|| journal.patience())
    }

    /// Passes all entries to the journal.
    pub(crate) fn record(&mut self) {
        let haste = std::mem::replace(&mut self.haste, Haste::Later);
        self.since = None;
        let entries = std::mem::take(&mut self.entries);
        let journal = self.disk.as_ref().and_then(|disk| disk.journal.as_ref());
        if let Some(journal) = journal.filter(|_| !entries.is_empty()) {
            journal.record(entries, haste);
        }
    }

    /// Passes a transfer to a thread. Fails if that is impossible.
    fn hand_over(
        &mut self,
        transfer: Transfer,
        memories: &mut Memories,
        task: impl FnOnce(Stream) -> Task,
    ) -> Option<proto::DiskError> {
        if self.disk.is_none() {
            let made = self.doorbell.try_clone().and_then(|doorbell| {
                let disk = Disk::temporary(&self.temporary, self.settings, doorbell)?;
                Ok(self.disk.insert(disk))
            });
            if let Err(error) = made {
                return Some(failed(&error));
            }
        }
        match (memories.take(transfer.memory), &self.disk) {
            (Some(object), Some(disk)) => {
                disk.files.submit(task(Stream { transfer, object }));
                None
            }
            _ => Some(failed(&io::Error::other("there is no memory for it"))),
        }
    }

    /// The next result of the threads, with its memory returned.
    pub(crate) fn next(&self, memories: &mut Memories) -> Option<Event> {
        let reply = self.disk.as_ref()?.replies.try_recv().ok()?;
        Some(reply.into_event(memories))
    }

    /// The next result for a server that ends. Waits until the deadline.
    pub(crate) fn last(&mut self, deadline: Instant, memories: &mut Memories) -> Option<Event> {
        self.record();
        let left = deadline.saturating_duration_since(Instant::now());
        let reply = self.disk.as_ref()?.replies.recv_timeout(left).ok()?;
        Some(reply.into_event(memories))
    }
}

impl Reply {
    fn into_event(self, memories: &mut Memories) -> Event {
        match self {
            Reply::Written {
                ticket,
                memory: (key, object),
                stored,
            } => {
                memories.put(key, object);
                Event::Written(ticket, stored.map_err(|error| failed(&error)))
            }
            Reply::Read {
                ticket,
                memory: (key, object),
                read,
            } => {
                memories.put(key, object);
                Event::Fetched(ticket, read.map_err(|error| failed(&error)))
            }
            Reply::Recorded(event) => event,
        }
    }
}

/// The error for the server.
fn failed(error: &io::Error) -> proto::DiskError {
    proto::DiskError {
        is_full: error.kind() == io::ErrorKind::StorageFull,
        is_damage: matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof
        ),
        text: error.to_string(),
    }
}

#[cfg(test)]
mod tests;

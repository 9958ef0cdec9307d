//! The disk: the journal of durable calls, and files for their data and for stored arrays.
//!
//! Threads write and read; the reactor never waits for them. The server decides what is written.

pub(crate) mod files;
pub(crate) mod journal;

use crate::clock::unix_ms;
use crate::memories::Memories;
use farcall_rpc_proto::{Failure, JobId};
use farcall_server_proto::{
    self as proto, Action, Changed, Event, MemoryKey, Record, Stored, Transfer,
};
use farcall_worker::{MemoryObject, temporary_folder};
use files::{Files, Folder, Stream, Task};
use journal::{Journal, JournalError};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use tempfile::TempDir;

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
    Inserted {
        id: JobId,
        number: Result<u64, Failure>,
    },
    /// `None` if the journal does not know the call.
    Changed {
        id: JobId,
        changed: Option<Changed>,
    },
    Forgotten {
        id: JobId,
    },
}

/// Why durable calls cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The folder cannot be used.
    #[error("{0}")]
    Folder(#[from] io::Error),
}

impl DiskError {
    /// Whether another server uses the folder.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, DiskError::Journal(error) if error.is_taken())
    }
}

/// The threads that write and read, and their results.
pub(crate) struct Disk {
    replies: Receiver<Reply>,
    files: Files,
    /// The journal, if there is a state folder.
    journal: Option<Journal>,
    /// The folder, if it ends with the server.
    _temporary: Option<TempDir>,
}

impl Disk {
    /// Opens the state folder. Moves each recorded call to the state that holds after a restart,
    /// and removes files that no call needs. Threads ring `doorbell` when they have a result.
    pub(crate) fn open(folder: &Path, doorbell: OwnedFd) -> Result<(Disk, Vec<Record>), DiskError> {
        use std::os::unix::fs::DirBuilderExt;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
        let (database, records) = journal::open(&folder.join("jobs.sqlite"))?;
        let data = Folder::open(folder.join("jobs"))?;
        let known: BTreeMap<JobId, &Record> =
            records.iter().map(|record| (record.id, record)).collect();
        let removed = data.sweep(|id, content| {
            let record = known.get(&id);
            record.is_some_and(|record| record.needs(content))
        })?;
        if removed > 0 {
            tracing::info!("removed {removed} files that no durable call needs");
        }
        let (sender, replies) = channel();
        let doorbell = Arc::new(doorbell);
        let disk = Disk {
            replies,
            files: Files::start(&data, &sender, &doorbell)?,
            journal: Some(Journal::start(database, &sender, &doorbell)?),
            _temporary: None,
        };
        Ok((disk, records))
    }

    /// A temporary folder for stored arrays, which ends with the server.
    fn temporary(parent: &Path, doorbell: OwnedFd) -> io::Result<Disk> {
        let temporary = temporary_folder(parent)?;
        let (sender, replies) = channel();
        let folder = Folder::open(temporary.path().to_path_buf())?;
        let files = Files::start(&folder, &sender, &Arc::new(doorbell))?;
        Ok(Disk {
            replies,
            files,
            journal: None,
            _temporary: Some(temporary),
        })
    }
}

/// The state folder, once this server has it; without one, a temporary folder for stored arrays.
pub(crate) struct State {
    disk: Option<Disk>,
    /// Whether another server still uses the folder and this one waits for it.
    pub(crate) is_awaited: bool,
    /// Where the temporary folder is made when the first array leaves memory.
    temporary: PathBuf,
    doorbell: OwnedFd,
}

impl State {
    pub(crate) fn new(temporary: PathBuf, doorbell: OwnedFd) -> State {
        State {
            disk: None,
            is_awaited: false,
            temporary,
            doorbell,
        }
    }

    /// Opens the state folder. During a takeover, the old server uses it until its calls have
    /// ended.
    pub(crate) fn open(&mut self, folder: &Path, takes_over: bool) -> Result<Event, DiskError> {
        match Disk::open(folder, self.doorbell.try_clone()?) {
            Ok((disk, records)) => {
                self.disk = Some(disk);
                self.is_awaited = false;
                Ok(Event::DurableOpened(records))
            }
            Err(error) if takes_over && error.is_taken() => {
                self.is_awaited = true;
                Ok(Event::DurableAwaited)
            }
            Err(error) => Err(error),
        }
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
                if let Some(disk) = &self.disk {
                    disk.files.submit(Task::Remove { id, content });
                }
            }
            Action::Record(entry) => {
                if let Some(journal) = self.disk.as_ref().and_then(|disk| disk.journal.as_ref()) {
                    journal.record(entry);
                }
            }
            _ => {}
        }
        None
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
                let disk = Disk::temporary(&self.temporary, doorbell)?;
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
    pub(crate) fn last(&self, deadline: Instant, memories: &mut Memories) -> Option<Event> {
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
            Reply::Inserted { id, number } => Event::Inserted(id, number),
            Reply::Changed { id, changed } => Event::Changed(id, changed),
            Reply::Forgotten { id } => Event::Forgotten(id),
        }
    }
}

/// The error for the server.
fn failed(error: &io::Error) -> proto::DiskError {
    proto::DiskError {
        is_full: error.kind() == io::ErrorKind::StorageFull,
        text: error.to_string(),
    }
}

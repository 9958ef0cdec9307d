//! What outlives the server: submitted calls in a journal, their data and arrays in files.

pub(crate) mod files;
pub(crate) mod journal;

use crate::clock::unix_ms;
use farcall_rpc_proto::{Failure, JobId};
use farcall_server_proto::{Changed, JournalEntry, MemoryKey, Record, Stored};
use farcall_worker::MemoryObject;
use files::{Files, Folder, Task};
use journal::{Journal, JournalError};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// What the threads have done.
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
    /// None where nothing is recorded of the call any more.
    Changed {
        id: JobId,
        changed: Option<Changed>,
    },
    Forgotten {
        id: JobId,
    },
}

/// Why submitted calls cannot be kept.
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
    /// Whether another server has the folder.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, DiskError::Journal(error) if error.is_taken())
    }
}

/// The threads that write and read, and what they have done.
pub(crate) struct Disk {
    replies: Receiver<Reply>,
    files: Files,
    journal: Journal,
}

impl Disk {
    /// Opens the folder, brings what is recorded to what holds after a restart, and removes what no
    /// call needs. Threads ring `doorbell` when they have something to say.
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
            tracing::info!("removed {removed} files that no submitted call needs");
        }
        let (sender, replies) = channel();
        let doorbell = Arc::new(doorbell);
        let disk = Disk {
            replies,
            files: Files::start(&data, &sender, &doorbell)?,
            journal: Journal::start(database, &sender, &doorbell)?,
        };
        Ok((disk, records))
    }

    /// Has a file written, read or removed.
    pub(crate) fn submit(&self, task: Task) {
        self.files.submit(task);
    }

    /// Has the journal written.
    pub(crate) fn record(&self, entry: JournalEntry) {
        self.journal.record(entry);
    }

    /// What the threads have done, one after the other.
    pub(crate) fn next_reply(&self) -> Option<Reply> {
        self.replies.try_recv().ok()
    }

    /// The same for a server that ends: waits until the deadline.
    pub(crate) fn last_reply(&self, deadline: Instant) -> Option<Reply> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.replies.recv_timeout(left).ok()
    }
}

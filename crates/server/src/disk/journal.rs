//! The journal: the thread that records durable calls in the logs.
//!
//! The thread applies all entries in order, many in one write, and confirms each after both logs
//! have it on the disk. An entry that nobody waits for is written with the next one.

use super::logs::Shelf;
use super::quarantine::Quarantine;
use super::{Reply, Trouble, unix_ms};
use farcall_server_proto::JournalEntry as Entry;
use farcall_server_proto::ledger::{Moment, refuse};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most messages of one write.
const BATCH: usize = 1024;
/// How long an entry that nobody waits for may wait for another one.
const LINGERS: Duration = Duration::from_millis(20);
/// Pause before a failed write is tried again.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two tries to write the logs anew: each writes all that they need.
const SHORTENS_AGAIN: Duration = Duration::from_secs(60);
/// Time between two records of how long the server has served, if nothing else is recorded.
const TELLS_TIME: Duration = Duration::from_secs(600);

/// How long servers have served with the folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// Milliseconds before this server.
    pub(super) before: u64,
    /// When this server began.
    pub(super) since: Instant,
}

impl Served {
    /// The present time.
    pub(super) fn now(self) -> Moment {
        let here = self.since.elapsed().as_millis() as u64;
        Moment {
            unix_ms: unix_ms(),
            served: self.before.saturating_add(here),
        }
    }
}

/// The journal's thread.
pub(super) struct Journal {
    entries: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
struct Message {
    entries: Vec<Entry>,
    /// Whether something waits until they are on the disk.
    is_awaited: bool,
}

/// What the thread works with.
pub(super) struct Recorder {
    pub(super) shelf: Shelf,
    pub(super) served: Served,
    pub(super) quarantine: Quarantine,
    /// Seconds for which files remain in quarantine.
    pub(super) keep_s: u64,
    pub(super) trouble: Trouble,
    pub(super) replies: Sender<Reply>,
    pub(super) doorbell: Arc<OwnedFd>,
}

impl Journal {
    pub(super) fn start(mut recorder: Recorder) -> io::Result<Journal> {
        let (entries, queue) = channel();
        let thread = std::thread::Builder::new()
            .name("farcall-journal".into())
            .spawn(move || recorder.run(&queue))?;
        Ok(Journal {
            entries: Some(entries),
            thread: Some(thread),
        })
    }

    /// Records entries, at once if something waits for them.
    pub(super) fn record(&self, entries: Vec<Entry>, is_awaited: bool) {
        if let Some(queue) = &self.entries {
            // The thread lives as long as this does.
            let _ = queue.send(Message {
                entries,
                is_awaited,
            });
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.entries = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Recorder {
    fn run(&mut self, queue: &Receiver<Message>) {
        let (mut batch, mut has_failed) = (Vec::new(), false);
        // Until when long logs stay as they are, because they could not be written anew.
        let mut waits: Option<Instant> = None;
        // When entries that nobody waits for are written.
        let mut until: Option<Instant> = None;
        // Entries that the disk refused wait for a while; new ones do not.
        loop {
            let lingers = until.map(|at| at.saturating_duration_since(Instant::now()));
            let patience = match has_failed {
                true => PATIENCE,
                false => lingers.unwrap_or(TELLS_TIME),
            };
            let mut is_due = false;
            match queue.recv_timeout(patience) {
                Ok(message) => {
                    let more = queue.try_iter().take(BATCH);
                    for message in std::iter::once(message).chain(more) {
                        is_due |= message.is_awaited;
                        batch.extend(message.entries);
                    }
                }
                Err(RecvTimeoutError::Timeout) => is_due = true,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if is_due {
                until = None;
                has_failed = !self.write(&mut batch);
                if !has_failed && waits.is_none_or(|end| Instant::now() >= end) {
                    waits = self.shorten();
                }
            } else {
                until.get_or_insert_with(|| Instant::now() + LINGERS);
            }
        }
        self.write(&mut batch);
        let _ = self.tell_time();
        let _ = self.shelf.lock().trim();
    }

    /// Writes entries. Returns whether the disk took them.
    fn write(&mut self, batch: &mut Vec<Entry>) -> bool {
        let start = Instant::now();
        let written = match batch.is_empty() {
            true => self.tell_time().map(|()| Vec::new()),
            false => self.shelf.record(batch, self.served.now()),
        };
        self.trouble.took(start, 0);
        let told = match written {
            Ok(told) => {
                self.trouble.ends();
                batch.clear();
                told
            }
            Err(error) => refuse(batch, &self.trouble.begins(&error)),
        };
        let is_done = batch.is_empty();
        for event in told {
            // When the server ends, nobody listens any more.
            let _ = self.replies.send(Reply::Recorded(event));
        }
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        is_done
    }

    /// Writes long logs anew. After an error, when it is tried again.
    fn shorten(&self) -> Option<Instant> {
        let now = self.served.now();
        let error = self.shelf.lock().shorten(now).err()?;
        tracing::warn!("the logs of durable calls cannot be shortened: {error}");
        Some(Instant::now() + SHORTENS_AGAIN)
    }

    /// Records how long the server has served, and removes what was in quarantine long enough.
    fn tell_time(&self) -> io::Result<()> {
        let now = self.served.now();
        self.quarantine.expire(now.served, self.keep_s);
        let mut book = self.shelf.lock();
        book.ledger.tell_time(now);
        book.write_batch()
    }
}

#[cfg(test)]
mod tests;

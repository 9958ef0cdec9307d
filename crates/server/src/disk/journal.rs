//! The journal: the thread that records durable calls in the logs.
//!
//! The thread applies all entries in order, many in one write, and confirms each after both logs
//! have it on the disk. An entry that nobody waits for is written with the next one.

use super::logs::Shelf;
use super::quarantine::Quarantine;
use super::{Reply, Trouble, unix_ms};
use farcall_server_proto::ledger::{Moment, refuse};
use farcall_server_proto::{Haste, JournalEntry as Entry};
use farcall_spin::{Latency, Spin};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most messages of one write.
const BATCH: usize = 1024;
/// How long the record of a call that runs waits for that of its outcome. Brief calls take less,
/// with the time until their worker wakes up.
const SOON: Duration = Duration::from_micros(100);
/// How long an entry that nobody waits for may wait for another one.
const LINGERS: Duration = Duration::from_millis(20);
/// How long it is known that the logs are in the folder.
const KNOWN: Duration = Duration::from_secs(1);
/// Pause before a disk that has refused a write is tried again.
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
    latency: Arc<Latency>,
}

/// What the thread is told.
struct Message {
    entries: Vec<Entry>,
    /// When the most urgent of them goes to the disk.
    haste: Haste,
}

/// What the thread works with.
pub(super) struct Recorder {
    pub(super) shelf: Shelf,
    pub(super) served: Served,
    pub(super) quarantine: Quarantine,
    /// Seconds for which files remain in quarantine.
    pub(super) keep_s: u64,
    /// How the thread waits for the record of an outcome.
    pub(super) spin: Spin,
    /// How long writes take.
    pub(super) latency: Arc<Latency>,
    pub(super) trouble: Trouble,
    /// When the logs were last seen in the folder.
    pub(super) seen: Option<Instant>,
    pub(super) replies: Sender<Reply>,
    pub(super) doorbell: Arc<OwnedFd>,
}

impl Journal {
    pub(super) fn start(mut recorder: Recorder) -> io::Result<Journal> {
        let (entries, queue) = channel();
        let latency = recorder.latency.clone();
        let thread = std::thread::Builder::new()
            .name("farcall-journal".into())
            .spawn(move || recorder.run(&queue))?;
        Ok(Journal {
            entries: Some(entries),
            thread: Some(thread),
            latency,
        })
    }

    /// Records entries.
    pub(super) fn record(&self, entries: Vec<Entry>, haste: Haste) {
        if let Some(queue) = &self.entries {
            // The thread lives as long as this does.
            let _ = queue.send(Message { entries, haste });
        }
    }

    /// How long to spin until entries are on the disk.
    pub(super) fn patience(&self) -> Duration {
        self.latency.patience()
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
            let rest = match has_failed {
                true => PATIENCE,
                false => TELLS_TIME,
            };
            let patience = lingers.unwrap_or(rest);
            let is_due = match queue.recv_timeout(patience) {
                Ok(message) => self.gather(message, queue, &mut batch) != Haste::Later,
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if is_due {
                until = None;
                let is_done = self.write(&mut batch);
                // New calls that the disk refused are not tried again, but the disk is.
                has_failed = self.trouble.known().is_some();
                if is_done && waits.is_none_or(|end| Instant::now() >= end) {
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

    /// Takes what has come, and waits a moment for more if that is probable.
    fn gather(&self, first: Message, queue: &Receiver<Message>, batch: &mut Vec<Entry>) -> Haste {
        let soon = Instant::now() + SOON;
        let (mut wait, mut haste) = (self.spin.begin(), Haste::Later);
        let mut next = Some(first);
        loop {
            let more = queue.try_iter().take(BATCH);
            for message in next.into_iter().chain(more) {
                haste = haste.min(message.haste);
                batch.extend(message.entries);
            }
            if haste != Haste::Soon || Instant::now() >= soon {
                return haste;
            }
            next = match wait.look_again() {
                true => None,
                false => {
                    let left = soon.saturating_duration_since(Instant::now());
                    queue.recv_timeout(left).ok()
                }
            };
        }
    }

    /// Writes entries. Returns whether the disk took them.
    fn write(&mut self, batch: &mut Vec<Entry>) -> bool {
        let start = Instant::now();
        let written = self.look().and_then(|()| match batch.is_empty() {
            true => self.tell_time().map(|()| Vec::new()),
            false => self.shelf.record(batch, self.served.now()),
        });
        self.trouble.took(start, 0);
        self.latency.took(start.elapsed());
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

    /// Sees that the logs are still in the folder, where the next start looks for them.
    fn look(&mut self) -> io::Result<()> {
        if self.seen.is_some_and(|seen| seen.elapsed() < KNOWN) {
            return Ok(());
        }
        self.seen = None;
        self.shelf.lock().look()?;
        self.seen = Some(Instant::now());
        Ok(())
    }

    /// Writes long logs anew. After an error, when it is tried again.
    fn shorten(&self) -> Option<Instant> {
        let now = self.served.now();
        let error = self.shelf.lock().shorten(now).err()?;
        tracing::warn!("the logs of durable calls cannot be shortened: {error}");
        Some(Instant::now() + SHORTENS_AGAIN)
    }

    /// Records how long the server has served, and removes what was in quarantine long enough. A
    /// disk that has refused records must have room for others, too.
    fn tell_time(&self) -> io::Result<()> {
        let now = self.served.now();
        self.quarantine.expire(now.served, self.keep_s);
        let is_in_trouble = self.trouble.known().is_some();
        let mut book = self.shelf.lock();
        if is_in_trouble {
            book.try_room()?;
        }
        book.ledger.tell_time(now);
        book.write_batch()
    }
}

#[cfg(test)]
mod tests;

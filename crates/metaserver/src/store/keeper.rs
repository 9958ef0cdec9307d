//! The thread that synchronises the directory with its store. The directory decides what to write
//! and when; this thread does it, so that no request waits for the store. A store that does not
//! answer is tried again every second, and the metaserver works on without it. A store that stands
//! still, such as a database that was stopped, holds the thread. Others wait for it within a bound.

use super::{Store, StoreAddress, StoreError};
use crate::Shared;
use farcall_directory::shared::{Exchange, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time within which a store must have answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks of the directory and the store.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between attempts to reach a store that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Time after which the same failure is logged again.
const REMINDER: Duration = Duration::from_secs(60);

/// The thread, as the metaserver sees it.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    address: StoreAddress,
    thread: JoinHandle<()>,
    patience: Duration,
}

/// What the thread works with.
struct Worker {
    shared: Arc<Shared>,
    address: StoreAddress,
    store: Option<Store>,
    exchange: Exchange,
    retry_at: Instant,
    complaint: Complaint,
}

/// The failure that was logged last, and when.
#[derive(Default)]
struct Complaint(Option<(String, Instant)>);

impl Complaint {
    /// Whether a failure is worth a line: it is another one, or the last line is a minute old.
    fn is_due(&mut self, failure: &str, now: Instant) -> bool {
        let is_known = |(last, at): &(String, Instant)| last == failure && now < *at + REMINDER;
        let is_due = !self.0.as_ref().is_some_and(is_known);
        if is_due {
            self.0 = Some((failure.to_string(), now));
        }
        is_due
    }
}

/// Starts the thread, if there is a store. If the store answers in time, its rows are in the
/// directory when this returns.
pub(crate) fn start(shared: &Arc<Shared>, patience: Duration) -> io::Result<Option<Keeper>> {
    let Some(address) = shared.store.clone() else {
        return Ok(None);
    };
    let mut worker = Worker {
        shared: shared.clone(),
        address: address.clone(),
        store: None,
        exchange: Exchange::default(),
        retry_at: Instant::now(),
        complaint: Complaint::default(),
    };
    let (read, is_read) = sync_channel(1);
    let run = move || {
        loop {
            let ends = worker.shared.ends.load(Ordering::Relaxed);
            worker.turn(ends);
            let _ = read.try_send(());
            if ends {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    let thread = thread::Builder::new().name("store".into()).spawn(run)?;
    let keeper = Keeper {
        shared: shared.clone(),
        address,
        thread,
        patience,
    };
    if is_read.recv_timeout(patience).is_err() {
        keeper.complain();
    }
    Ok(Some(keeper))
}

impl Keeper {
    /// Notices a store that stands still.
    pub(crate) fn watch(&self) {
        let asked = self.shared.asked_store.load(Ordering::Relaxed);
        let waited = millis(&self.shared).saturating_sub(asked);
        if asked > 0 && u128::from(waited) >= self.patience.as_millis() {
            self.complain();
        }
    }

    fn complain(&self) {
        if self.shared.stored.swap(false, Ordering::Relaxed) {
            tracing::error!(
                "{}: it has not answered for {:.0} s; the metaserver continues with its present \
                 directory",
                self.address,
                self.patience.as_secs_f64()
            );
        }
    }

    /// Waits until the last changes are written. `ends` must be set.
    pub(crate) fn end(self) {
        let end = Instant::now() + self.patience;
        while !self.thread.is_finished() {
            if Instant::now() >= end {
                tracing::error!(
                    "{}: it does not answer; the last changes of the directory are not in it",
                    self.address
                );
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.thread.join();
    }
}

/// Milliseconds since the start, at least 1.
fn millis(shared: &Shared) -> u64 {
    u64::try_from(shared.start.elapsed().as_millis()).map_or(u64::MAX, |now| now.max(1))
}

impl Worker {
    /// Writes the changes that are due, or all of them if the metaserver ends, and reads new rows.
    fn turn(&mut self, ends: bool) {
        self.exchange.collect(&mut self.shared.directory());
        let asked = millis(&self.shared);
        self.shared.asked_store.store(asked, Ordering::Relaxed);
        let done = self.exchange(ends);
        self.shared.asked_store.store(0, Ordering::Relaxed);
        if let Err(error) = done {
            let now = Instant::now();
            if self.complaint.is_due(&error.to_string(), now) {
                tracing::error!(
                    "{}: {error}; the metaserver continues with its present directory, and tries \
                     again every second",
                    self.address
                );
            }
            self.store = None;
            self.retry_at = now + RETRY;
            self.shared.stored.store(false, Ordering::Relaxed);
        }
    }

    fn exchange(&mut self, ends: bool) -> Result<(), StoreError> {
        let instant = Instant::now();
        if self.store.is_none() {
            if instant < self.retry_at {
                return Ok(());
            }
            self.store = Some(Store::open(&self.address)?);
            self.exchange.opened();
        }
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let now_ms = (self.shared.date(self.shared.now()) * 1e3) as u64;
        let now_s = self.shared.start.elapsed().as_secs_f64();
        let rows = match self.exchange.reads_all(now_s) {
            true => store.load(now_ms)?,
            false => store.news(now_ms)?,
        };
        for row in rows {
            let read = self
                .exchange
                .read(&mut self.shared.directory(), self.shared.now(), &row);
            if let Err(error) = read {
                tracing::warn!(
                    "{}: ignoring a row that cannot be read: {error}",
                    self.address
                );
            }
        }
        for key in self.exchange.due(now_s, ends) {
            let write = self.exchange.write(&self.shared.directory(), key);
            match write {
                Some(Write::Put(key, until_ms, row)) => store.put(key, until_ms, &row)?,
                Some(Write::Remove(key, until_ms)) => store.remove(key, until_ms)?,
                None => {}
            }
            self.exchange.wrote(key, now_s);
        }
        self.shared.has_read.store(true, Ordering::Relaxed);
        if !self.shared.stored.swap(true, Ordering::Relaxed) {
            tracing::info!("{} answers again", self.address);
            self.complaint = Complaint::default();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Metaserver};
    use std::net::TcpListener;

    #[test]
    fn a_store_that_stands_still_stops_nobody() {
        // The system accepts the connection, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let store = format!("postgres://farcall@{address}/farcall").parse();
        let metaserver = Metaserver::bind(Config {
            store: Some(store.unwrap()),
            ..Config::default()
        });
        let shared = metaserver.unwrap().shared;
        let start = Instant::now();
        let keeper = start_keeper(&shared, Duration::from_millis(200));
        assert!(!shared.stored.load(Ordering::Relaxed));
        assert!(!shared.has_read.load(Ordering::Relaxed));
        shared.ends.store(true, Ordering::Relaxed);
        keeper.end();
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_store_that_answers_is_read_before_anybody_is_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("directory");
        let metaserver = Metaserver::bind(Config {
            store: Some(StoreAddress::Sqlite(path)),
            ..Config::default()
        });
        let shared = metaserver.unwrap().shared;
        let keeper = start_keeper(&shared, Duration::from_secs(20));
        keeper.watch();
        assert!(shared.stored.load(Ordering::Relaxed));
        assert!(shared.has_read.load(Ordering::Relaxed));
        shared.ends.store(true, Ordering::Relaxed);
        keeper.end();
    }

    fn start_keeper(shared: &Arc<Shared>, patience: Duration) -> Keeper {
        start(shared, patience).unwrap().unwrap()
    }

    #[test]
    fn the_same_failure_is_logged_once_a_minute() {
        let start = Instant::now();
        let mut complaint = Complaint::default();
        let lines = (0..180).filter(|second| {
            let failure = if *second < 90 { "no file" } else { "no room" };
            complaint.is_due(failure, start + Duration::from_secs(*second))
        });
        assert_eq!(lines.collect::<Vec<_>>(), [0, 60, 90, 150]);
    }
}

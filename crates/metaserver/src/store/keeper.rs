//! The thread that synchronises the directory with its store. The directory decides what to write
//! and when; this thread does it, so that no request waits for the store. A store that does not
//! answer is tried again every second, and the metaserver works on without it.

use super::{Store, StoreAddress, StoreError};
use crate::Shared;
use farcall_directory::shared::{Exchange, Write};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Interval between checks of the directory and the store.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between attempts to reach a store that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// Time after which the same failure is logged again.
const REMINDER: Duration = Duration::from_secs(60);

struct Keeper {
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

/// Starts the thread, if there is a store. If the store answers, its rows are in the directory when
/// this returns.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<JoinHandle<()>>> {
    let Some(address) = shared.store.clone() else {
        return Ok(None);
    };
    let now = Instant::now();
    let mut keeper = Keeper {
        shared: shared.clone(),
        address,
        store: None,
        exchange: Exchange::default(),
        retry_at: now,
        complaint: Complaint::default(),
    };
    keeper.turn(false);
    let run = move || {
        loop {
            let ends = keeper.shared.ends.load(Ordering::Relaxed);
            keeper.turn(ends);
            if ends {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    thread::Builder::new()
        .name("store".into())
        .spawn(run)
        .map(Some)
}

impl Keeper {
    /// Writes the changes that are due, or all of them if the metaserver ends, and reads new rows.
    fn turn(&mut self, ends: bool) {
        self.exchange.collect(&mut self.shared.directory());
        if let Err(error) = self.exchange(ends) {
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
            if !self.shared.stored.swap(true, Ordering::Relaxed) {
                tracing::info!("{} answers again", self.address);
                self.complaint = Complaint::default();
            }
        }
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let now_ms = (self.shared.now() * 1e3) as u64;
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

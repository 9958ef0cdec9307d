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

struct Keeper {
    shared: Arc<Shared>,
    address: StoreAddress,
    store: Option<Store>,
    exchange: Exchange,
    retry_at: Instant,
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
            tracing::error!(
                "{}: {error}; the metaserver continues with its present directory",
                self.address
            );
            self.store = None;
            self.retry_at = Instant::now() + RETRY;
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

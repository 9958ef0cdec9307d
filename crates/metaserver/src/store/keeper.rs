//! The thread between the directory and its store.

use super::{Store, StoreAddress, StoreError};
use crate::{Shared, now};
use farcall_directory::message::Message;
use farcall_directory::{Change, Key, Record};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the directory and the store are looked at.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two writes of one record: servers report more often than others need to know.
const SETTLE: Duration = Duration::from_secs(1);
/// All rows are read again after this time, for a word may have been missed.
const RELOAD: Duration = Duration::from_secs(10);
/// Time before a store that does not answer is tried again.
const RETRY: Duration = Duration::from_secs(1);

struct Keeper {
    shared: Arc<Shared>,
    address: StoreAddress,
    store: Option<Store>,
    /// What is to be written, and when each was written last.
    changes: HashMap<Key, Change>,
    written: HashMap<Key, Instant>,
    retry_at: Instant,
    reload_at: Instant,
}

/// Starts the thread, where there is a store. What the store knows is known when this returns, if
/// it answers.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Option<JoinHandle<()>>> {
    let Some(address) = shared.store.clone() else {
        return Ok(None);
    };
    let now = Instant::now();
    let mut keeper = Keeper {
        shared: shared.clone(),
        address,
        store: None,
        changes: HashMap::new(),
        written: HashMap::new(),
        retry_at: now,
        reload_at: now,
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
    /// Writes what is due, all at the end, and reads what is new.
    fn turn(&mut self, ends: bool) {
        for change in self.shared.directory().changes() {
            let (Change::Put(key) | Change::Gone(key, _)) = change;
            self.changes.insert(key, change);
        }
        if let Err(error) = self.exchange(ends) {
            tracing::error!(
                "{}: {error}; the metaserver goes on with what it knows",
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
            self.reload_at = instant;
            if !self.shared.stored.swap(true, Ordering::Relaxed) {
                tracing::info!("{} answers again", self.address);
            }
        }
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let now_ms = (now() * 1e3) as u64;
        let rows = match instant >= self.reload_at {
            true => {
                self.reload_at = instant + RELOAD;
                store.load(now_ms)?
            }
            false => store.news(now_ms)?,
        };
        for row in rows {
            match Record::from_bytes(&row) {
                Ok(record) => {
                    let key = record.key();
                    // What was observed here since it was written is newer.
                    let is_ours =
                        self.changes.contains_key(&key) || self.written.contains_key(&key);
                    if !(is_ours && matches!(key, Key::Path { .. })) {
                        self.shared.directory().apply(now(), record);
                    }
                }
                Err(error) => tracing::warn!("{}: a row is left out: {error}", self.address),
            }
        }
        let written = &mut self.written;
        written.retain(|_, at| at.elapsed() < SETTLE);
        let due = self
            .changes
            .keys()
            .filter(|key| ends || !written.contains_key(*key));
        let due: Vec<Key> = due.copied().collect();
        for key in due {
            let record = self.shared.directory().record(key);
            match (self.changes.get(&key), record) {
                (Some(Change::Gone(_, until_ms)), None) => store.remove(key, *until_ms)?,
                (_, Some(record)) => store.put(key, record.expires_ms(), &record.to_bytes())?,
                (_, None) => {}
            }
            self.changes.remove(&key);
            written.insert(key, instant);
        }
        Ok(())
    }
}

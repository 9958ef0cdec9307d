//! The queue and the thread that sends. The queue is bounded, and nobody waits for it.

use crate::Span;
use crate::endpoint::Endpoint;
use crate::message;
use crate::post::post;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Things that can wait for the thread.
const WAITING: usize = 2048;
/// Spans of one request at most, about.
const TOGETHER: usize = 512;
/// How long spans gather.
const GATHER: Duration = Duration::from_millis(500);
/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an exporter sends, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector.
    pub endpoint: Endpoint,
    /// What every span is from, such as `service.name`.
    pub resource: Vec<(&'static str, String)>,
}

/// How many spans were sent and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub sent: u64,
    /// Spans that were lost, because the collector was slow or away.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Counters {
    sent: AtomicU64,
    lost: AtomicU64,
}

enum Item<T> {
    /// Something that has spans.
    Spans(T),
    /// Tells when everything before it was sent or lost.
    Flush(SyncSender<()>),
}

/// Sends spans of things of type `T` to a collector, on a thread of its own.
pub struct Exporter<T> {
    items: SyncSender<Item<T>>,
    counters: Arc<Counters>,
    /// The number of spans that a lost thing had, about.
    spans: u64,
}

impl<T: Send + 'static> Exporter<T> {
    /// Starts the thread. `make` makes the spans of a thing there, `spans` of them.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        settings: Settings,
        spans: u64,
        make: impl Fn(T, &mut Vec<Span>) + Send + 'static,
    ) -> io::Result<Exporter<T>> {
        let (items, from) = sync_channel(WAITING);
        let counters = Arc::new(Counters::default());
        let counted = Arc::clone(&counters);
        let sender = Sender {
            settings,
            counters: counted,
            fails: false,
        };
        let thread = thread::Builder::new().name("spans".to_owned());
        thread.spawn(move || sender.run(&from, &make))?;
        Ok(Exporter {
            items,
            counters,
            spans,
        })
    }

    /// Sends the spans of something, or loses them if too many wait. Never waits.
    pub fn send(&self, thing: T) {
        if self.items.try_send(Item::Spans(thing)).is_err() {
            self.counters.lost.fetch_add(self.spans, Ordering::Relaxed);
        }
    }

    /// How many spans were sent and lost so far.
    pub fn counts(&self) -> Counts {
        Counts {
            sent: self.counters.sent.load(Ordering::Relaxed),
            lost: self.counters.lost.load(Ordering::Relaxed),
        }
    }

    /// Waits until everything was sent or lost, at most for this time. For the end of a program.
    pub fn flush(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let (done, is_done) = sync_channel(1);
        let mut item = Item::Flush(done);
        while let Err(TrySendError::Full(back)) = self.items.try_send(item) {
            if Instant::now() >= end {
                return;
            }
            thread::sleep(Duration::from_millis(5));
            item = back;
        }
        // If the time is over, the rest is lost with the program.
        let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// The state of the thread.
struct Sender {
    settings: Settings,
    counters: Arc<Counters>,
    /// Whether the last request failed, so that the log says so once.
    fails: bool,
}

impl Sender {
    fn run<T>(mut self, items: &Receiver<Item<T>>, make: &impl Fn(T, &mut Vec<Span>)) {
        let mut spans = Vec::new();
        while let Ok(first) = items.recv() {
            let end = Instant::now() + GATHER;
            let mut next = Ok(first);
            let flush = loop {
                match next {
                    Ok(Item::Spans(thing)) => make(thing, &mut spans),
                    Ok(Item::Flush(done)) => break Some(done),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break None,
                }
                if spans.len() >= TOGETHER {
                    break None;
                }
                next = items.recv_timeout(end.saturating_duration_since(Instant::now()));
            };
            self.send(std::mem::take(&mut spans));
            if let Some(done) = flush {
                // Nobody may wait any more.
                let _ = done.try_send(());
            }
        }
    }

    fn send(&mut self, spans: Vec<Span>) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len() as u64;
        let body = message::request(&self.settings.resource, spans);
        let endpoint = &self.settings.endpoint;
        match post(endpoint, &body, PATIENCE) {
            Ok(()) => {
                self.counters.sent.fetch_add(count, Ordering::Relaxed);
                self.fails = false;
            }
            Err(error) => {
                self.counters.lost.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.fails, true) {
                    let url = &endpoint.url;
                    tracing::warn!("{url} does not take spans: {error}; they are lost");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Tells programs with an event loop when calls have ended. One thread of the process waits for all
//! watched calls, however many there are, and runs their callbacks meanwhile.
//!
//! Everybody who asks about a call is told exactly once: when it has ended, was given up, or the
//! deadline of the question has passed. The thread does not take outcomes. A panic of somebody who
//! is told, or of a callback, does not end it.

use crate::pending::Pending;
use crate::remote::{Attempt, Connection, Key, Watch};
use farcall_spin::Waiter;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// The thread that watches calls. It begins with the first call, and ends when this is dropped.
#[derive(Default)]
pub struct Completions {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    inbox: Mutex<Inbox>,
}

/// What the thread has to look at.
#[derive(Default)]
struct Inbox {
    added: Vec<Call>,
    stops: bool,
    /// The thread, while it rests.
    resting: Option<Waiter<Connection>>,
}

/// A question about a call.
struct Call {
    pending: Arc<Pending>,
    deadline: Option<Instant>,
    told: Told,
}

type Told = Box<dyn FnOnce() + Send>;

/// A watched attempt, and all questions about its call.
struct Watched {
    attempt: Arc<Attempt>,
    calls: Vec<Call>,
}

impl Completions {
    /// Calls `told` on another thread, once, as soon as a call has ended or its
    /// time-out has passed. Callbacks of the call run on that thread too.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn tell(
        &self,
        pending: &Arc<Pending>,
        told: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let named = std::thread::Builder::new().name("farcall-calls".to_owned());
            let begun = named.spawn(move || Attendant::default().run(&shared));
            let failed = |error| io::Error::other(format!("the system gives no thread: {error}"));
            *thread = Some(begun.map_err(failed)?);
        }
        let call = Call {
            pending: pending.clone(),
            deadline: pending.deadline(),
            told: Box::new(told),
        };
        self.shared.change(|inbox| inbox.added.push(call));
        Ok(())
    }

    /// Whether this is that thread. It cannot wait for what it tells.
    pub fn is_here(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let own = thread.as_ref().map(|thread| thread.thread().id());
        own == Some(std::thread::current().id())
    }

    /// Ends the thread. It tells of no more calls, which stay under way.
    pub fn stop(&self) {
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(thread) = thread else { return };
        self.shared.change(|inbox| inbox.stops = true);
        // A panic has been printed; nobody can do more about it.
        let _ = thread.join();
        *self.shared.lock() = Inbox::default();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the inbox, and makes the thread look at it.
    fn change(&self, change: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.lock();
        change(&mut inbox);
        if let Some(resting) = inbox.resting.take() {
            resting.wake();
        }
    }

    /// Notes that the thread is about to rest. Returns `false` if there is something to look at.
    fn stand_by(&self, waiter: &Waiter<Connection>) -> bool {
        let mut inbox = self.lock();
        let is_empty = inbox.added.is_empty() && !inbox.stops;
        if is_empty {
            inbox.resting = Some(waiter.clone());
        }
        is_empty
    }
}

/// What the thread knows.
#[derive(Default)]
struct Attendant {
    watch: Watch,
    watched: HashMap<Key, Watched>,
    deadlines: BTreeSet<(Instant, Key)>,
}

impl Attendant {
    fn run(mut self, shared: &Shared) {
        loop {
            let mut inbox = shared.lock();
            let (added, stops) = (std::mem::take(&mut inbox.added), inbox.stops);
            inbox.resting = None;
            drop(inbox);
            if stops {
                break;
            }
            added.into_iter().for_each(|call| self.take_on(call));
            let look = self.watch.look();
            let is_quiet = look.news.is_empty() && !look.more;
            look.news.into_iter().for_each(|key| self.on_news(key));
            if look.more {
                self.watch.let_others_in();
            }
            // Bytes may come without a pause.
            if self.expire() || !is_quiet {
                continue;
            }
            let waiter = self.watch.waiter();
            if shared.stand_by(&waiter) && self.watch.stand_by(&waiter) {
                let next = self.deadlines.first();
                let left = next.map(|(end, _)| end.saturating_duration_since(Instant::now()));
                self.watch.rest(left);
            }
        }
        self.watch.release();
    }

    /// Watches a call, or tells of it if it has ended.
    fn take_on(&mut self, call: Call) {
        loop {
            let attempt = call.pending.current();
            let key = attempt.request.key();
            let is_watched = self.watched.contains_key(&key);
            if !is_watched && !self.watch.add(&attempt.request) {
                // This may write the last output. If that panics, the call is over.
                let ended = catch_unwind(AssertUnwindSafe(|| call.pending.has_ended()));
                if ended.unwrap_or(true) {
                    return tell(call.told);
                }
                // It continues with another attempt.
                continue;
            }
            self.deadlines.extend(call.deadline.map(|end| (end, key)));
            let calls = Vec::new();
            let watched = self.watched.entry(key);
            let watched = watched.or_insert(Watched { attempt, calls });
            return watched.calls.push(call);
        }
    }

    /// Does what a call asks for, or looks how it goes on.
    fn on_news(&mut self, key: Key) {
        let Some(Watched { attempt, .. }) = self.watched.get(&key) else {
            return;
        };
        if attempt.request.has_ended() {
            let ended = self.forget(key);
            return ended.into_iter().for_each(|call| self.take_on(call));
        }
        // A callback may take long. Other threads may use the sockets meanwhile.
        let attempt = attempt.clone();
        self.watch.release();
        attempt.request.do_work();
    }

    /// Tells of calls whose deadlines have passed. Returns whether there were any.
    fn expire(&mut self) -> bool {
        let now = Instant::now();
        let has_passed = |end: &Instant| *end <= now;
        let mut any = false;
        while let Some((_, key)) = self.deadlines.first().filter(|(end, _)| has_passed(end)) {
            any = true;
            for call in self.forget(*key) {
                match call.deadline.as_ref().is_some_and(has_passed) {
                    true => tell(call.told),
                    false => self.take_on(call),
                }
            }
        }
        any
    }

    /// Stops watching a call, and returns all questions about it.
    fn forget(&mut self, key: Key) -> Vec<Call> {
        let Some(Watched { calls, .. }) = self.watched.remove(&key) else {
            return Vec::new();
        };
        for end in calls.iter().filter_map(|call| call.deadline) {
            self.deadlines.remove(&(end, key));
        }
        self.watch.remove(key);
        calls
    }
}

/// Tells somebody that a call is over. A panic, which has been printed, ends here: the others wait
/// to be told.
fn tell(told: Told) {
    let _ = catch_unwind(AssertUnwindSafe(told));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_somebody_who_is_told_ends_there() {
        let panics: fn() = || panic!("who is told panics");
        tell(Box::new(panics));
    }
}

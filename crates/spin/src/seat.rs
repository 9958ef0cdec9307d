//! The seat at a connection's socket: one thread waits there for all threads, and the others sleep.
//!
//! A [`Seat`] is part of a state behind one lock. It records which thread has the seat and which
//! threads to wake for which key. It moves no bytes and does not wait. Its callers do both, and
//! follow these rules:
//!
//! - A waiting thread takes the seat if it is free. Otherwise it leaves a [`Waiter`] before it
//!   releases the lock and sleeps. After each sleep it checks again.
//! - A thread that has the seat gives it back while it holds the lock. A thread that stops waiting
//!   while the seat is free hands it over.
//! - One thread may watch any number of keys. It takes the keys with news, and stands by before it
//!   releases the lock and waits. It takes the seat only from threads that stop waiting.
//!
//! Invariant: if the seat is free and threads wait, then a thread that has been woken will check
//! again.

#[cfg(test)]
mod tests;

#[cfg(loom)]
use loom::thread::{self, Thread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
#[cfg(not(loom))]
use std::thread::{self, Thread};

/// Wakes the thread that waits at a socket.
pub trait Bell {
    /// Makes the present wait, or else the next one, return.
    fn ring(&self);
}

/// A thread, and how to wake it.
#[derive(Debug)]
pub struct Waiter<B> {
    thread: Thread,
    /// Wakes the thread if it waits at a socket. `None` if it sleeps.
    bell: Option<Arc<B>>,
}

impl<B: Bell> Waiter<B> {
    /// The current thread, which is about to sleep.
    pub fn asleep() -> Waiter<B> {
        let thread = thread::current();
        Waiter { thread, bell: None }
    }

    /// The current thread, which is about to wait at a socket.
    pub fn at(bell: &Arc<B>) -> Waiter<B> {
        Waiter {
            thread: thread::current(),
            bell: Some(bell.clone()),
        }
    }

    fn is_same(&self, other: &Waiter<B>) -> bool {
        self.thread.id() == other.thread.id()
    }

    /// Makes the present wait of the thread return, or else the next one.
    pub fn wake(&self) {
        match &self.bell {
            Some(bell) => bell.ring(),
            None => self.thread.unpark(),
        }
    }
}

impl<B> Clone for Waiter<B> {
    fn clone(&self) -> Waiter<B> {
        Waiter {
            thread: self.thread.clone(),
            bell: self.bell.clone(),
        }
    }
}

/// Records whether a thread is at the socket, and which threads wait for which keys.
#[derive(Debug)]
pub struct Seat<K, B> {
    taken: bool,
    waiters: BTreeMap<K, Vec<Waiter<B>>>,
    /// The keys that one thread watches, and those of them that have news.
    watched: BTreeSet<K>,
    news: Vec<K>,
    /// The thread that watches them, while it waits elsewhere.
    watcher: Option<Waiter<B>>,
}

impl<K, B> Default for Seat<K, B> {
    fn default() -> Seat<K, B> {
        Seat {
            taken: false,
            waiters: BTreeMap::new(),
            watched: BTreeSet::new(),
            news: Vec::new(),
            watcher: None,
        }
    }
}

impl<K: Copy + Ord, B: Bell> Seat<K, B> {
    /// Whether a thread waits at the socket.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// Takes the seat: the current thread waits at the socket from now on.
    pub fn take(&mut self) {
        self.taken = true;
    }

    /// Frees the seat: the thread leaves the socket to check the state.
    pub fn leave(&mut self) {
        self.taken = false;
    }

    /// Ends the wait of the current thread. If no thread is at the socket, it wakes another waiting
    /// thread, which takes the seat.
    pub fn hand_over(&mut self) {
        if self.taken {
            return;
        }
        let Some(mut first) = self.waiters.first_entry() else {
            return self.wake_watcher();
        };
        let waiter = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// Registers a thread to be woken when there is news of `key` or the seat is free.
    pub fn add(&mut self, key: K, waiter: Waiter<B>) {
        let waiters = self.waiters.entry(key).or_default();
        waiters.retain(|known| !known.is_same(&waiter));
        waiters.push(waiter);
    }

    /// Removes a thread that no longer waits for `key`.
    pub fn remove(&mut self, key: K, waiter: &Waiter<B>) {
        if let Some(waiters) = self.waiters.get_mut(&key) {
            waiters.retain(|known| !known.is_same(waiter));
            if waiters.is_empty() {
                self.waiters.remove(&key);
            }
        }
    }

    /// Wakes the threads that wait for `key`, because there is news. They remain registered.
    pub fn tell(&mut self, key: K) {
        for waiter in self.waiters.get(&key).into_iter().flatten() {
            waiter.wake();
        }
        if self.watched.contains(&key) {
            self.news.push(key);
            self.wake_watcher();
        }
    }

    /// Wakes and removes the threads that wait for `key`, because no more news will come.
    pub fn end(&mut self, key: K) {
        for waiter in self.waiters.remove(&key).unwrap_or_default() {
            waiter.wake();
        }
        if self.watched.remove(&key) {
            self.news.push(key);
            self.wake_watcher();
        }
    }

    /// The same as [`Seat::end`], for every key.
    pub fn end_all(&mut self) {
        for waiter in std::mem::take(&mut self.waiters).into_values().flatten() {
            waiter.wake();
        }
        self.news.extend(std::mem::take(&mut self.watched));
        self.wake_watcher();
    }

    /// Watches `key` until its end. Only one thread may watch keys.
    pub fn watch(&mut self, key: K) {
        self.watched.insert(key);
    }

    /// Stops watching `key`.
    pub fn unwatch(&mut self, key: K) {
        self.watched.remove(&key);
    }

    /// Takes the watched keys that have news since the last time.
    pub fn take_news(&mut self) -> Vec<K> {
        std::mem::take(&mut self.news)
    }

    /// Registers the watching thread, which is about to wait elsewhere. It is woken once: at news
    /// of a key that it watches, or when the seat is free and no other thread waits.
    ///
    /// Returns `false` if there is a reason to look at the state first.
    pub fn stand_by(&mut self, watcher: Waiter<B>) -> bool {
        if !self.taken || !self.news.is_empty() {
            return false;
        }
        self.watcher = Some(watcher);
        true
    }

    fn wake_watcher(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
    }
}

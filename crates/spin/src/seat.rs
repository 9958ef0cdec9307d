//! The seat at a connection's socket: one thread waits there for all, the others sleep.
//!
//! A [`Seat`] is part of a state behind one lock, and says who has the seat and who is to be woken
//! for which key. It moves no bytes and does not wait: its callers do, and follow these rules.
//!
//! - A thread that waits takes the seat if it is free, and otherwise leaves a [`Waiter`] before it
//!   gives the lock back and sleeps. After each sleep it looks again.
//! - A thread that has the seat gives it back with the lock held. A thread that stops waiting while
//!   the seat is free hands it over.
//!
//! Invariant: if the seat is free and somebody waits, a thread that has been woken will look again.

#[cfg(test)]
mod tests;

#[cfg(loom)]
use loom::thread::{self, Thread};
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(not(loom))]
use std::thread::{self, Thread};

/// Wakes the thread that waits at a socket.
pub trait Bell {
    /// Lets the wait return, now or when it begins.
    fn ring(&self);
}

/// A thread, and where to wake it.
#[derive(Debug)]
pub struct Waiter<B> {
    thread: Thread,
    /// Wakes it at a socket; without one it sleeps.
    bell: Option<Arc<B>>,
}

impl<B: Bell> Waiter<B> {
    /// This thread, which is about to sleep.
    pub fn asleep() -> Waiter<B> {
        let thread = thread::current();
        Waiter { thread, bell: None }
    }

    /// This thread, which is about to wait at a socket.
    pub fn at(bell: &Arc<B>) -> Waiter<B> {
        Waiter {
            thread: thread::current(),
            bell: Some(bell.clone()),
        }
    }

    fn is_same(&self, other: &Waiter<B>) -> bool {
        self.thread.id() == other.thread.id()
    }

    fn wake(&self) {
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

/// Who is at the socket, and which threads wait for which keys.
#[derive(Debug)]
pub struct Seat<K, B> {
    taken: bool,
    waiters: BTreeMap<K, Vec<Waiter<B>>>,
}

impl<K, B> Default for Seat<K, B> {
    fn default() -> Seat<K, B> {
        Seat {
            taken: false,
            waiters: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord, B: Bell> Seat<K, B> {
    /// Whether a thread waits at the socket.
    pub fn is_taken(&self) -> bool {
        self.taken
    }

    /// This thread waits at the socket from now on.
    pub fn take(&mut self) {
        self.taken = true;
    }

    /// The thread at the socket leaves it, to look.
    pub fn leave(&mut self) {
        self.taken = false;
    }

    /// This thread waits no more: if nobody is at the socket, another one that waits is woken and
    /// takes its place.
    pub fn hand_over(&mut self) {
        if self.taken {
            return;
        }
        let Some(mut first) = self.waiters.first_entry() else {
            return;
        };
        let waiter = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    /// The thread is to be woken when there is news of `key`, or when the seat is free.
    pub fn add(&mut self, key: K, waiter: Waiter<B>) {
        let waiters = self.waiters.entry(key).or_default();
        waiters.retain(|known| !known.is_same(&waiter));
        waiters.push(waiter);
    }

    /// The thread does not wait for `key` any more.
    pub fn remove(&mut self, key: K, waiter: &Waiter<B>) {
        if let Some(waiters) = self.waiters.get_mut(&key) {
            waiters.retain(|known| !known.is_same(waiter));
            if waiters.is_empty() {
                self.waiters.remove(&key);
            }
        }
    }

    /// There is news of `key`: wakes the threads that wait for it, which wait on.
    pub fn tell(&self, key: K) {
        for waiter in self.waiters.get(&key).into_iter().flatten() {
            waiter.wake();
        }
    }

    /// Nothing more will come of `key`: wakes the threads that wait for it.
    pub fn end(&mut self, key: K) {
        for waiter in self.waiters.remove(&key).unwrap_or_default() {
            waiter.wake();
        }
    }

    /// Nothing more will come of any key.
    pub fn end_all(&mut self) {
        for waiter in std::mem::take(&mut self.waiters).into_values().flatten() {
            waiter.wake();
        }
    }
}

//! Waiters: threads that wait for a request while another thread moves the bytes of its connection.

use super::Connection;
use std::sync::Arc;
use std::thread::{self, Thread};

/// A thread, and how to wake it.
#[derive(Clone)]
pub(crate) struct Waiter {
    thread: Thread,
    /// The connection at whose socket the thread waits. `None` if it sleeps.
    at: Option<Arc<Connection>>,
}

impl Waiter {
    /// The current thread, which is about to sleep.
    pub(crate) fn asleep() -> Waiter {
        let thread = thread::current();
        Waiter { thread, at: None }
    }

    /// The current thread, which is about to wait at the socket of another connection.
    pub(crate) fn at(connection: &Arc<Connection>) -> Waiter {
        Waiter {
            thread: thread::current(),
            at: Some(connection.clone()),
        }
    }

    /// Whether it is the same thread.
    pub(crate) fn is_same(&self, other: &Waiter) -> bool {
        self.thread.id() == other.thread.id()
    }

    pub(crate) fn wake(&self) {
        match &self.at {
            Some(connection) => connection.waker.wake(),
            None => self.thread.unpark(),
        }
    }
}

//! Watches requests on many connections for one thread, which learns of each end without looking at
//! the others. The thread moves the bytes of each connection that no other thread serves. `Watch`
//! neither takes answers nor runs callbacks; [`crate::completion`] decides what news means.

use super::several::rest_at;
use super::{Connection, Request};
use farcall_rpc_proto::CallId;
use farcall_spin::Waiter;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A request: the number of its connection, and its number there.
pub(crate) type Key = (u64, CallId);

/// The connections with watched requests.
#[derive(Default)]
pub(crate) struct Watch {
    lines: BTreeMap<u64, Line>,
}

/// A connection with watched requests.
struct Line {
    connection: Arc<Connection>,
    /// Number of watched requests.
    watched: usize,
    /// Whether this thread moves the bytes of the connection.
    driving: bool,
}

/// What a look at all connections has found.
#[derive(Default)]
pub(crate) struct Look {
    /// Requests that have ended, or whose functions ask for work.
    pub(crate) news: Vec<Key>,
    /// More bytes can be moved at once.
    pub(crate) more: bool,
}

impl Request {
    /// What it is watched by.
    pub(crate) fn key(&self) -> Key {
        (self.connection.number, self.id)
    }
}

impl Watch {
    /// Watches a request until its end. Returns `false` if it has ended already.
    pub(crate) fn add(&mut self, request: &Request) -> bool {
        let (number, id) = request.key();
        let mut state = request.connection.lock();
        if state.has_ended(id) {
            return false;
        }
        state.seat.watch(id);
        if state.has_work(id) {
            // It has been told already.
            state.seat.tell(id);
        }
        drop(state);
        let line = self.lines.entry(number).or_insert_with(|| Line {
            connection: request.connection.clone(),
            watched: 0,
            driving: false,
        });
        line.watched += 1;
        true
    }

    /// Stops watching a request.
    pub(crate) fn remove(&mut self, (number, id): Key) {
        let Some(line) = self.lines.get_mut(&number) else {
            return;
        };
        line.connection.lock().seat.unwatch(id);
        line.watched -= 1;
        if line.watched == 0 {
            line.release();
            self.lines.remove(&number);
        }
    }

    /// Moves bytes that can be moved at once, and takes the place at every socket without a thread.
    pub(crate) fn look(&mut self) -> Look {
        let mut look = Look::default();
        for (number, line) in &mut self.lines {
            let mut state = line.connection.lock();
            let is_free = line.driving || !state.seat.is_taken();
            let unfinished = is_free && state.progress(&line.connection.socket, None);
            if is_free && !unfinished {
                state.lose_if_silent(&line.connection.socket);
            }
            if is_free {
                state.seat.take();
            }
            line.driving = is_free;
            look.more |= unfinished;
            look.news
                .extend(state.seat.take_news().into_iter().map(|id| (*number, id)));
        }
        look
    }

    /// Lets threads that want a connection take it before this thread takes it again.
    pub(crate) fn let_others_in(&self) {
        let lines = self.lines.values();
        lines.for_each(|line| line.connection.let_others_in());
    }

    /// Leaves all sockets to other threads.
    pub(crate) fn release(&mut self) {
        self.lines.values_mut().for_each(Line::release);
    }

    /// This thread, which is about to [rest](Watch::rest).
    pub(crate) fn waiter(&self) -> Waiter<Connection> {
        match self.lines.values().find(|line| line.driving) {
            Some(line) => Waiter::at(&line.connection),
            None => Waiter::asleep(),
        }
    }

    /// Registers this thread to be woken by the threads at the other sockets. Returns `false` if
    /// something has happened already.
    pub(crate) fn stand_by(&self, waiter: &Waiter<Connection>) -> bool {
        let mut others = self.lines.values().filter(|line| !line.driving);
        others.all(|line| line.connection.lock().seat.stand_by(waiter.clone()))
    }

    /// Waits at the sockets, or sleeps if other threads are at all of them.
    pub(crate) fn rest(&self, left: Option<Duration>) {
        let driven = self.lines.values().filter(|line| line.driving);
        let driven: Vec<&Connection> = driven.map(|line| &*line.connection).collect();
        // It fails only if a signal interrupts it, or if the system has no memory at the moment.
        let _ = rest_at(&driven, left);
    }
}

impl Line {
    fn release(&mut self) {
        let mut state = self.connection.lock();
        if std::mem::take(&mut self.driving) {
            state.seat.leave();
        }
        state.seat.hand_over();
    }
}

//! Waits for the first of several requests, on one connection or on many. The waiting thread moves
//! the bytes of each connection that no other thread serves. If other threads serve all of them, it
//! sleeps until one of them wakes it. It does not take the answer of the request that has ended.

use super::{Connection, NAP, Request, interrupted_at_times, is_overdue};
use crate::error::Error;
use crate::remote::socket;
use farcall_rpc_proto::CallId;
use farcall_spin::{Wait, Waiter};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The requests of one connection.
struct Group {
    connection: Arc<Connection>,
    ids: Vec<CallId>,
    /// Whether this thread moves the bytes of the connection.
    driving: bool,
}

/// The result of a look at every connection.
enum Look {
    Ended,
    /// More bytes can be moved at once.
    More,
    Waiting,
}

/// Waits until one of the requests has ended, and leaves its answer to be taken. Returns `false` if
/// the deadline passes first.
pub(crate) fn wait_for_any(
    requests: &[&Request],
    deadline: Option<Instant>,
) -> Result<bool, Error> {
    let mut groups = Groups(group(requests));
    wait(requests, &mut groups.0, deadline)
}

/// The requests of all connections. The end of the wait leaves the sockets to other threads, also
/// if [`crate::Options::on_interrupt`] panics.
struct Groups(Vec<Group>);

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.0 {
            let mut state = group.connection.lock();
            for id in &group.ids {
                state.seat.remove(*id, &Waiter::asleep());
            }
            if group.driving {
                state.seat.leave();
            }
            state.seat.hand_over();
        }
    }
}

fn group(requests: &[&Request]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for request in requests {
        let number = request.connection.number;
        match groups
            .iter_mut()
            .find(|group| group.connection.number == number)
        {
            Some(group) => group.ids.push(request.id),
            None => groups.push(Group {
                connection: request.connection.clone(),
                ids: vec![request.id],
                driving: false,
            }),
        }
    }
    groups
}

fn wait(
    requests: &[&Request],
    groups: &mut [Group],
    deadline: Option<Instant>,
) -> Result<bool, Error> {
    let Some(first) = groups.first() else {
        return Ok(false);
    };
    let first = first.connection.clone();
    let mut spinning = first.spin.begin();
    let mut asked = None;
    loop {
        let seen = look(groups);
        if matches!(seen, Look::Ended) {
            return Ok(true);
        }
        if is_overdue(deadline) {
            return Ok(false);
        }
        if work(requests, groups) || matches!(seen, Look::More) {
            groups
                .iter()
                .for_each(|group| group.connection.let_others_in());
            interrupted_at_times(&first, &mut asked)?;
            continue;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(false);
        }
        if stand_by(groups) {
            rest(groups, left, &mut spinning)?;
            interrupted_at_times(&first, &mut asked)?;
        }
    }
}

/// Moves bytes that can be moved at once, and takes the place at every socket without a thread.
fn look(groups: &mut [Group]) -> Look {
    let mut more = false;
    for group in groups {
        let mut state = group.connection.lock();
        let free = group.driving || !state.seat.is_taken();
        let goal = (group.ids.len() == 1).then_some(group.ids[0]);
        let unfinished = free && state.progress(&group.connection.socket, goal);
        if free && !unfinished {
            state.lose_if_silent(&group.connection.socket);
        }
        if group.ids.iter().any(|id| state.has_ended(*id)) {
            return Look::Ended;
        }
        if free {
            state.seat.take();
        }
        group.driving = free;
        more |= unfinished;
    }
    if more { Look::More } else { Look::Waiting }
}

/// Runs a callback of one of the calls, or writes its output. Returns `false` if there is nothing
/// to do. Other threads may use the sockets meanwhile.
fn work(requests: &[&Request], groups: &mut [Group]) -> bool {
    for request in requests {
        if request.reply.is_none() || !request.has_work(&request.connection.lock()) {
            continue;
        }
        for group in groups.iter_mut().filter(|group| group.driving) {
            let mut state = group.connection.lock();
            group.driving = false;
            state.seat.leave();
            state.seat.hand_over();
        }
        request.work();
        return true;
    }
    false
}

/// Registers this thread to be woken by the threads at the other sockets. Returns `false` if
/// something has happened already.
fn stand_by(groups: &[Group]) -> bool {
    let here = groups.iter().find(|group| group.driving);
    let waiter = match here {
        Some(group) => Waiter::at(&group.connection),
        None => Waiter::asleep(),
    };
    for group in groups.iter().filter(|group| !group.driving) {
        let mut state = group.connection.lock();
        let told = |id: &CallId| state.has_ended(*id) || state.has_work(*id);
        if !state.seat.is_taken() || group.ids.iter().any(told) {
            return false;
        }
        for id in &group.ids {
            state.seat.add(*id, waiter.clone());
        }
    }
    true
}

/// Waits at the sockets, or sleeps if other threads are at all of them.
fn rest(groups: &[Group], left: Option<Duration>, spinning: &mut Wait<'_>) -> Result<(), Error> {
    let connection = &groups[0].connection;
    let driven = groups.iter().filter(|group| group.driving);
    let driven: Vec<&Connection> = driven.map(|group| &*group.connection).collect();
    let is_writing = |connection: &&Connection| connection.lock().outlook().writing;
    if !driven.is_empty() && !driven.iter().any(is_writing) && spinning.look_again() {
        return Ok(());
    }
    let left = match driven.is_empty() {
        true => Some(left.map_or(NAP, |left| left.min(NAP))),
        false => connection.nap(left),
    };
    match rest_at(&driven, left) {
        Ok(true) => Ok(()),
        Ok(false) => connection.interrupted(),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => connection.interrupted(),
        Err(error) => Err(connection.error(error.into())),
    }
}

/// Waits at the sockets of these connections, or sleeps if there are none. Returns `false` if
/// nothing has happened at them.
pub(super) fn rest_at(driven: &[&Connection], left: Option<Duration>) -> io::Result<bool> {
    if driven.is_empty() {
        match left {
            Some(left) => std::thread::park_timeout(left),
            None => std::thread::park(),
        }
        return Ok(false);
    }
    let mut left = left;
    let mut entries = Vec::with_capacity(driven.len());
    for connection in driven {
        let outlook = connection.lock().outlook();
        left = left.into_iter().chain(outlook.left()).min();
        entries.push((&connection.socket, &connection.waker, outlook.writing));
    }
    socket::wait_each(&entries, left)
}

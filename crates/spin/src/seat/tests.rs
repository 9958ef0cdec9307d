//! Threads that wait for requests on lines, in the same manner as the client's connections. Loom
//! runs them in every interleaving. A thread that nobody wakes is a deadlock, which loom finds.

use super::*;
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(loom)]
fn model(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[cfg(not(loom))]
fn model(test: impl Fn()) {
    (0..200).for_each(|_| test());
}

/// The contents of a line's socket, and whether its bell has rung.
#[derive(Default)]
struct Socket {
    unread: VecDeque<u32>,
    rung: bool,
}

/// The sockets and bells that `poll` waits for.
struct Host {
    sockets: Mutex<[Socket; 2]>,
    news: Condvar,
}

struct State {
    seat: Seat<u32, Line>,
    ended: Vec<u32>,
}

/// A connection.
struct Line {
    host: Arc<Host>,
    index: usize,
    state: Mutex<State>,
}

impl Bell for Line {
    fn ring(&self) {
        self.host.sockets.lock().expect("no panic")[self.index].rung = true;
        self.host.news.notify_all();
    }
}

impl Host {
    fn lines() -> [Arc<Line>; 2] {
        let host = Arc::new(Host {
            sockets: Mutex::new(<[Socket; 2]>::default()),
            news: Condvar::new(),
        });
        [0, 1].map(|index| {
            Arc::new(Line {
                host: host.clone(),
                index,
                state: Mutex::new(State {
                    seat: Seat::default(),
                    ended: Vec::new(),
                }),
            })
        })
    }

    /// Waits at the sockets of several lines.
    fn poll(&self, lines: &[usize]) {
        let mut sockets = self.sockets.lock().expect("no panic");
        let has_news = |socket: &Socket| socket.rung || !socket.unread.is_empty();
        while !lines.iter().any(|line| has_news(&sockets[*line])) {
            sockets = self.news.wait(sockets).expect("no panic");
        }
        for line in lines {
            sockets[*line].rung = false;
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }

    /// The server's answer, which ends a request.
    fn answer(&self, id: u32) {
        let mut sockets = self.host.sockets.lock().expect("no panic");
        sockets[self.index].unread.push_back(id);
        drop(sockets);
        self.host.news.notify_all();
    }

    /// Reads until the request `until` has ended or nothing is left.
    fn progress(&self, state: &mut State, until: u32) {
        while !state.ended.contains(&until) {
            let mut sockets = self.host.sockets.lock().expect("no panic");
            let Some(id) = sockets[self.index].unread.pop_front() else {
                return;
            };
            drop(sockets);
            state.ended.push(id);
            state.seat.end(id);
        }
    }

    /// `Request::wait`.
    fn wait(&self, id: u32) {
        let mut state = self.lock();
        loop {
            if !state.seat.is_taken() {
                self.progress(&mut state, id);
            }
            if state.ended.contains(&id) {
                state.seat.hand_over();
                return;
            }
            if state.seat.is_taken() {
                let waiter = Waiter::asleep();
                state.seat.add(id, waiter.clone());
                drop(state);
                thread::park();
                state = self.lock();
                state.seat.remove(id, &waiter);
                continue;
            }
            state.seat.take();
            drop(state);
            self.host.poll(&[self.index]);
            state = self.lock();
            state.seat.leave();
        }
    }

    /// `Request::cancel`.
    fn cancel(&self, id: u32) {
        let mut state = self.lock();
        state.ended.push(id);
        state.seat.end(id);
        if state.seat.is_taken() {
            self.ring();
        }
    }
}

/// `wait_for_any`, for one request of each line.
fn wait_for_any(lines: &[Arc<Line>; 2], id: u32) {
    let mut at = [false, false];
    'waiting: loop {
        for (line, at) in lines.iter().zip(&mut at) {
            let mut state = line.lock();
            let free = *at || !state.seat.is_taken();
            if free {
                line.progress(&mut state, id);
            }
            if state.ended.contains(&id) {
                break 'waiting;
            }
            if free {
                state.seat.take();
            }
            *at = free;
        }
        let waiter = match at.iter().position(|at| *at) {
            Some(here) => Waiter::at(&lines[here]),
            None => Waiter::asleep(),
        };
        for (line, _) in lines.iter().zip(&at).filter(|(_, at)| !**at) {
            let mut state = line.lock();
            if !state.seat.is_taken() || state.ended.contains(&id) {
                continue 'waiting;
            }
            state.seat.add(id, waiter.clone());
        }
        let here: Vec<usize> = (0..2).filter(|line| at[*line]).collect();
        match here.is_empty() {
            true => thread::park(),
            false => lines[0].host.poll(&here),
        }
    }
    for (line, at) in lines.iter().zip(at) {
        let mut state = line.lock();
        state.seat.remove(id, &Waiter::asleep());
        if at {
            state.seat.leave();
        }
        state.seat.hand_over();
    }
}

/// The thread that watches requests of both lines, `Completions::run`. Watches `ids` of the first
/// line until all have ended.
fn watch(lines: &[Arc<Line>; 2], ids: &[u32]) {
    let line = &lines[0];
    let mut state = line.lock();
    let mut left = ids.to_vec();
    left.retain(|id| !state.ended.contains(id));
    left.iter().for_each(|id| state.seat.watch(*id));
    drop(state);
    let mut is_here = false;
    while !left.is_empty() {
        let mut state = line.lock();
        let is_free = is_here || !state.seat.is_taken();
        if is_free {
            line.progress(&mut state, u32::MAX);
        }
        let news = state.seat.take_news();
        left.retain(|id| !news.contains(id));
        if is_free {
            state.seat.take();
        }
        is_here = is_free;
        if left.is_empty() {
            break;
        }
        let stands_by = is_here || state.seat.stand_by(Waiter::asleep());
        drop(state);
        match (is_here, stands_by) {
            (true, _) => line.host.poll(&[0]),
            (false, true) => thread::park(),
            (false, false) => {}
        }
    }
    let mut state = line.lock();
    if is_here {
        state.seat.leave();
    }
    state.seat.hand_over();
}

#[test]
fn the_watching_thread_sees_each_end_and_leaves_nobody_asleep() {
    model(|| {
        let lines = Host::lines();
        let alone = lines[0].clone();
        let all = lines.clone();
        let threads = [
            thread::spawn(move || alone.wait(2)),
            thread::spawn(move || watch(&all, &[1, 3])),
        ];
        lines[0].answer(1);
        lines[0].answer(2);
        lines[0].answer(3);
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn every_thread_sees_the_end_of_its_request() {
    model(|| {
        let [line, _] = Host::lines();
        let threads = [1, 2].map(|id| {
            let line = line.clone();
            thread::spawn(move || line.wait(id))
        });
        line.answer(2);
        line.answer(1);
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_cancelled_thread_hands_over_the_seat() {
    model(|| {
        let [line, _] = Host::lines();
        let [given_up, other] = [1, 2].map(|id| {
            let line = line.clone();
            thread::spawn(move || line.wait(id))
        });
        line.cancel(1);
        given_up.join().expect("no panic");
        line.answer(2);
        other.join().expect("no panic");
    });
}

#[test]
fn threads_at_one_line_and_at_two_lines_both_wake() {
    model(|| {
        let lines = Host::lines();
        let alone = lines[0].clone();
        let all = lines.clone();
        let threads = [
            thread::spawn(move || alone.wait(2)),
            thread::spawn(move || wait_for_any(&all, 1)),
        ];
        lines[0].answer(2);
        lines[0].answer(1);
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no panic"));
    });
}

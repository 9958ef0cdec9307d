//! The driver for patterns and pattern files. It runs each rank through its queue of sends and
//! waits.

use super::Completion;
use super::driver::{Action, Sending};
use super::report::{Blocked, Deadlock};
use crate::pattern::Pattern;
use crate::script::{Script, Step};
use std::collections::HashMap;
use std::collections::HashSet;

enum Source {
    Pattern(Pattern),
    Script(Script),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for one of its own sends.
    Window,
    /// Waits for a message from a rank.
    Receive(u32),
    /// Waits for the delay before a send.
    Delay,
    /// The delay is over: the send may start.
    Delayed,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Round of a pattern, or index into a script's queue.
    at: u64,
    /// Position within the round of a pattern.
    within: u32,
    /// Sends under way.
    active: u32,
    state: State,
}

pub(crate) struct Queues {
    source: Source,
    window: u32,
    completion: Completion,
    /// Seconds of the host before each send.
    overhead: f64,
    cursors: Vec<Cursor>,
    /// Messages that arrived before the queue waited for them, by (receiver, sender).
    early: HashMap<(u32, u32), u32>,
    /// Pairs (receiver, sender) for which some queue waits. Other arrivals are not counted.
    awaited: Option<HashSet<(u32, u32)>>,
    receives: bool,
}

impl Queues {
    pub(super) fn of_pattern(pattern: Pattern, sending: Sending) -> Self {
        let receives = pattern.has_receives();
        let source = Source::Pattern(pattern);
        Self::new(sending, receives, None, source)
    }

    pub(super) fn of_script(script: Script, sending: Sending) -> Self {
        let mut awaited = HashSet::new();
        for rank in 0..script.ranks() {
            for step in script.queue(rank) {
                if let Step::Receive { from } = step {
                    awaited.insert((rank, *from));
                }
            }
        }
        let receives = !awaited.is_empty();
        let source = Source::Script(script);
        Self::new(sending, receives, Some(awaited), source)
    }

    fn new(
        sending: Sending,
        receives: bool,
        awaited: Option<HashSet<(u32, u32)>>,
        source: Source,
    ) -> Self {
        let cursor = Cursor {
            at: 0,
            within: 0,
            active: 0,
            state: State::Window,
        };
        let ranks = match &source {
            Source::Pattern(pattern) => pattern.ranks(),
            Source::Script(script) => script.ranks(),
        };
        let cursors = vec![cursor; ranks as usize];
        Self {
            source,
            window: sending.window,
            completion: sending.completion.unwrap_or(Completion::Destination),
            overhead: sending.overhead,
            cursors,
            early: HashMap::new(),
            awaited,
            receives,
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Action>) {
        for rank in 0..self.cursors.len() as u32 {
            self.advance(rank, out);
        }
    }

    #[inline]
    pub(super) fn left(&mut self, rank: u32, out: &mut Vec<Action>) {
        if self.completion == Completion::Source {
            self.sent(rank, out);
        }
    }

    #[inline]
    fn sent(&mut self, rank: u32, out: &mut Vec<Action>) {
        let cursor = &mut self.cursors[rank as usize];
        cursor.active -= 1;
        if cursor.state == State::Window {
            self.advance(rank, out);
        }
    }

    #[inline]
    pub(super) fn arrived(&mut self, from: u32, at: u32, out: &mut Vec<Action>) {
        if self.completion == Completion::Destination {
            self.sent(from, out);
        }
        if !self.receives {
            return;
        }
        if self.cursors[at as usize].state == State::Receive(from) {
            self.next(at);
            self.advance(at, out);
        } else if self
            .awaited
            .as_ref()
            .is_none_or(|a| a.contains(&(at, from)))
        {
            *self.early.entry((at, from)).or_default() += 1;
        }
    }

    pub(super) fn wake(&mut self, rank: u32, out: &mut Vec<Action>) {
        self.cursors[rank as usize].state = State::Delayed;
        self.advance(rank, out);
    }

    /// Moves past the current step.
    #[inline]
    fn next(&mut self, rank: u32) {
        let cursor = &mut self.cursors[rank as usize];
        match self.source {
            Source::Pattern(_) => cursor.within += 1,
            Source::Script(_) => cursor.at += 1,
        }
    }

    /// The current step, skipping rounds in which the rank is idle.
    #[inline]
    fn current(&mut self, rank: u32) -> Option<Step> {
        let cursor = &mut self.cursors[rank as usize];
        match &self.source {
            Source::Script(script) => script.queue(rank).get(cursor.at as usize).copied(),
            Source::Pattern(pattern) => {
                while cursor.at < pattern.rounds() {
                    let round = pattern.round(rank, cursor.at);
                    let count = pattern.count();
                    let sends = if round.send.is_some() { count } else { 0 };
                    let receives = if round.receive.is_some() { count } else { 0 };
                    if cursor.within < sends + receives {
                        let sending = match round.receive_first {
                            false => cursor.within < sends,
                            true => cursor.within >= receives,
                        };
                        return match (round.send, round.receive) {
                            (Some((to, bytes)), _) if sending => Some(Step::Send {
                                to,
                                bytes,
                                wait: 0.0,
                            }),
                            (_, Some(from)) => Some(Step::Receive { from }),
                            _ => None,
                        };
                    }
                    cursor.at += 1;
                    cursor.within = 0;
                }
                None
            }
        }
    }

    /// Advances a rank's queue until it has to wait.
    fn advance(&mut self, rank: u32, out: &mut Vec<Action>) {
        loop {
            let step = self.current(rank);
            let cursor = &mut self.cursors[rank as usize];
            match step {
                None => {
                    cursor.state = State::Done;
                    return;
                }
                Some(Step::Send { to, bytes, wait }) => {
                    let wait = wait + self.overhead;
                    if wait > 0.0 && cursor.state != State::Delayed {
                        // A delay starts when the send could start, which is after the window has
                        // space.
                        if cursor.active == self.window {
                            cursor.state = State::Window;
                        } else {
                            cursor.state = State::Delay;
                            out.push(Action::Compute {
                                rank,
                                cpu: 0,
                                seconds: wait,
                            });
                            out.push(Action::Wake {
                                delay: wait,
                                between: None,
                                token: u64::from(rank),
                            });
                        }
                        return;
                    }
                    if cursor.active == self.window {
                        cursor.state = State::Window;
                        return;
                    }
                    cursor.active += 1;
                    cursor.state = State::Window;
                    out.push(Action::Send {
                        rank,
                        to,
                        bytes,
                        token: rank,
                    });
                }
                Some(Step::Receive { from }) => {
                    let Some(early) = self.early.get_mut(&(rank, from)) else {
                        cursor.state = State::Receive(from);
                        return;
                    };
                    *early -= 1;
                    if *early == 0 {
                        self.early.remove(&(rank, from));
                    }
                }
            }
            self.next(rank);
        }
    }

    /// The pattern and the size of its messages, if all its rounds are equal on all ranks and each
    /// rank sends one message to another one in each.
    pub(super) fn equal_rounds(&self) -> Option<(Pattern, f64)> {
        let Source::Pattern(pattern) = &self.source else {
            return None;
        };
        let repeated = pattern.repeated_rounds();
        let all = repeated == (0..pattern.rounds()) && pattern.count() == 1;
        let (to, bytes) = pattern
            .round(0, 0)
            .send
            .filter(|_| all && !repeated.is_empty())?;
        (to != 0 && bytes > 0.0).then(|| (pattern.clone(), bytes))
    }

    /// Number of further rounds that repeat the current one on all ranks, if all ranks are in step.
    pub(super) fn rounds_to_skip(&self) -> u64 {
        let (Source::Pattern(pattern), Some(first)) = (&self.source, self.cursors.first()) else {
            return 0;
        };
        let repeated = pattern.repeated_rounds();
        let in_step = |c: &Cursor| (c.at, c.within, c.active) == (first.at, first.within, 1);
        let all = pattern.count() == 1
            && self.early.is_empty()
            && repeated.contains(&first.at)
            && self.cursors.iter().all(in_step);
        if all { repeated.end - 1 - first.at } else { 0 }
    }

    /// Moves all ranks ahead by `rounds`, at most [`Self::rounds_to_skip`].
    pub(super) fn skip(&mut self, rounds: u64) {
        self.cursors
            .iter_mut()
            .for_each(|cursor| cursor.at += rounds);
    }

    /// Number of ranks.
    pub(super) fn ranks(&self) -> usize {
        self.cursors.len()
    }

    pub(super) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        let mut blocked = Vec::new();
        for (rank, cursor) in self.cursors.iter().enumerate() {
            if let State::Receive(source) = cursor.state {
                let line = match &self.source {
                    Source::Pattern(_) => None,
                    Source::Script(s) => Some(s.line(rank as u32, cursor.at as usize)),
                };
                blocked.push(Blocked {
                    rank: rank as u32,
                    source: Some(source),
                    tag: None,
                    line,
                });
            }
        }
        (!blocked.is_empty()).then_some(Deadlock {
            time,
            blocked,
            unreceived: Vec::new(),
        })
    }
}

//! The driver for GOAL traces. It runs each rank through the dependency graph of its operations.

use super::driver::Action;
use super::report::{Blocked, Deadlock};
use crate::goal::{Goal, Operation};
use std::collections::{HashMap, VecDeque};

/// State of the dependency graph.
///
/// Sends are eager: a message travels whether its receive is posted or not. A rank has at most
/// `window` sends under way. Further sends wait in the order in which they became ready.
pub(crate) struct Dag {
    goal: Goal,
    window: u32,
    /// Number of operations that each operation still waits for.
    waits: Vec<u32>,
    rank_of: Vec<u32>,
    active: Vec<u32>,
    sends: Vec<VecDeque<u32>>,
    /// Computations that wait for their cpu. The key is present while the cpu is busy.
    cpus: HashMap<(u32, u32), VecDeque<u32>>,
    /// Posted receives and early messages by (receiver, sender, tag).
    posted: HashMap<(u32, u32, u32), VecDeque<u32>>,
    early: HashMap<(u32, u32, u32), u64>,
    ready: Vec<u32>,
}

impl Dag {
    pub(super) fn new(goal: Goal, window: u32) -> Self {
        let ranks = goal.ranks();
        let mut rank_of = Vec::with_capacity(goal.operations.len());
        for rank in 0..ranks as usize {
            let count = goal.first[rank + 1] - goal.first[rank];
            rank_of.extend(std::iter::repeat_n(rank as u32, count as usize));
        }
        Self {
            window,
            waits: goal.waits.clone(),
            rank_of,
            active: vec![0; ranks as usize],
            sends: vec![VecDeque::new(); ranks as usize],
            cpus: HashMap::new(),
            posted: HashMap::new(),
            early: HashMap::new(),
            ready: Vec::new(),
            goal,
        }
    }

    pub(super) fn begin(&mut self, out: &mut Vec<Action>) {
        self.ready = (0..self.waits.len() as u32)
            .rev()
            .filter(|&operation| self.waits[operation as usize] == 0)
            .collect();
        self.drain(out);
    }

    pub(super) fn sent(&mut self, operation: u32, out: &mut Vec<Action>) {
        let rank = self.rank_of[operation as usize];
        self.active[rank as usize] -= 1;
        self.release(operation, true);
        if let Some(next) = self.sends[rank as usize].pop_front() {
            self.start_send(next, out);
        }
        self.drain(out);
    }

    pub(super) fn arrived(&mut self, operation: u32, out: &mut Vec<Action>) {
        let Operation::Send { to, tag, .. } = self.goal.operations[operation as usize] else {
            return;
        };
        let key = (to, self.rank_of[operation as usize], tag);
        match self.posted.get_mut(&key) {
            Some(queue) => {
                let receive = queue.pop_front();
                if queue.is_empty() {
                    self.posted.remove(&key);
                }
                if let Some(receive) = receive {
                    self.release(receive, true);
                    self.drain(out);
                }
            }
            None => *self.early.entry(key).or_default() += 1,
        }
    }

    /// Handles the end of a computation.
    pub(super) fn wake(&mut self, operation: u32, out: &mut Vec<Action>) {
        if let Operation::Calc { cpu, .. } = self.goal.operations[operation as usize] {
            let key = (self.rank_of[operation as usize], cpu);
            match self.cpus.get_mut(&key).and_then(VecDeque::pop_front) {
                Some(next) => self.start_calc(next, out),
                None => {
                    self.cpus.remove(&key);
                }
            }
        }
        self.release(operation, true);
        self.drain(out);
    }

    /// Releases the operations that waited for this one to start, or to finish if `done`.
    fn release(&mut self, operation: u32, done: bool) {
        for &(later, needs_done) in self.goal.successors_of(operation).iter().rev() {
            if needs_done == done {
                self.waits[later as usize] -= 1;
                if self.waits[later as usize] == 0 {
                    self.ready.push(later);
                }
            }
        }
    }

    fn drain(&mut self, out: &mut Vec<Action>) {
        while let Some(operation) = self.ready.pop() {
            let rank = self.rank_of[operation as usize];
            match self.goal.operations[operation as usize] {
                Operation::Send { .. } if self.active[rank as usize] < self.window => {
                    self.start_send(operation, out);
                }
                Operation::Send { .. } => self.sends[rank as usize].push_back(operation),
                Operation::Calc { cpu, .. } => match self.cpus.get_mut(&(rank, cpu)) {
                    Some(queue) => queue.push_back(operation),
                    None => {
                        self.cpus.insert((rank, cpu), VecDeque::new());
                        self.start_calc(operation, out);
                    }
                },
                Operation::Receive { from, tag } => {
                    self.release(operation, false);
                    let key = (rank, from, tag);
                    match self.early.get_mut(&key) {
                        Some(count) => {
                            *count -= 1;
                            if *count == 0 {
                                self.early.remove(&key);
                            }
                            self.release(operation, true);
                        }
                        None => self.posted.entry(key).or_default().push_back(operation),
                    }
                }
            }
        }
    }

    fn start_send(&mut self, operation: u32, out: &mut Vec<Action>) {
        let rank = self.rank_of[operation as usize];
        if let Operation::Send { to, bytes, .. } = self.goal.operations[operation as usize] {
            self.active[rank as usize] += 1;
            out.push(Action::Send {
                rank,
                to,
                bytes,
                token: operation,
            });
            self.release(operation, false);
        }
    }

    fn start_calc(&mut self, operation: u32, out: &mut Vec<Action>) {
        if let Operation::Calc { seconds, .. } = self.goal.operations[operation as usize] {
            out.push(Action::Wake {
                delay: seconds,
                token: operation,
            });
            self.release(operation, false);
        }
    }

    pub(super) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        if self.posted.is_empty() {
            return None;
        }
        let mut blocked: Vec<Blocked> = Vec::new();
        for (&(rank, source, tag), queue) in &self.posted {
            blocked.extend(queue.iter().map(|&operation| Blocked {
                rank,
                source,
                tag: Some(tag),
                line: Some(self.goal.lines[operation as usize]),
            }));
        }
        blocked.sort_by_key(|b| (b.rank, b.line));
        let mut unreceived: Vec<(u32, u32, u32, u64)> = self
            .early
            .iter()
            .map(|(&(to, from, tag), &n)| (from, to, tag, n))
            .collect();
        unreceived.sort_unstable();
        Some(Deadlock {
            time,
            blocked,
            unreceived,
        })
    }
}

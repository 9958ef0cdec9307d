//! The driver for GOAL traces. It runs each rank through the dependency graph of its operations,
//! on cpus and network interfaces.
//!
//! Without costs of hosts ([`crate::LogGops`]), messages need no cpu, and an interface has at most
//! `window` sends under way. With them, the model is that of LogGOPSim, except that the network
//! carries the bytes.
//!
//! Operations that want the same cpu or interface at the same time get it in the order of their
//! turns. As in LogGOPSim, an operation gets its turn when the last operation that it waits for
//! starts, and a message when its send starts. Operations that get their turns together are taken
//! in the order send, receive, calc.

mod host;
mod matching;
#[cfg(test)]
mod tests;

use super::Completion;
use super::SIMULTANEOUS;
use super::driver::{Action, Sending};
use super::report::{Blocked, Deadlock};
use crate::goal::{ANY_RANK, ANY_TAG, Goal, Operation};
use crate::loggops::LogGops;
use host::{Host, Needs};
use matching::{Envelope, Waiting};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// What happens to an operation, or to the message of a send, at a later time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// A computation is over.
    Computed,
    /// The sender's overhead is over: the first byte leaves.
    Departs,
    /// The sender's cpu is free.
    Sent,
    /// The first byte has arrived.
    Arrives,
    /// The receiver's cpu has done its work for the message.
    Handled,
    /// An interface of the rank is free. This step has a rank instead of an operation.
    Free,
}

const STEPS: [Step; 6] = [
    Step::Computed,
    Step::Departs,
    Step::Sent,
    Step::Arrives,
    Step::Handled,
    Step::Free,
];

fn token(operation: u32, step: Step) -> u64 {
    u64::from(operation) * STEPS.len() as u64 + step as u64
}

/// A message that has left and that no receive has completed.
#[derive(Debug, Clone, Copy, Default)]
struct Message {
    turn: u32,
    /// When its last byte arrived.
    arrived: Option<f64>,
    receive: Option<u32>,
    /// Whether the receiver's cpu waits for the last byte.
    awaited: bool,
    handled: bool,
}

/// The state of all ranks.
pub(crate) struct Dag {
    goal: Goal,
    hosts: Option<LogGops>,
    window: u32,
    completion: Completion,
    /// Latency of the platform.
    latency: f64,
    /// Number of operations that each operation still waits for.
    waits: Vec<u32>,
    /// The same, not counting those that have started and will end.
    unstarted: Vec<u32>,
    turns: Vec<u32>,
    last_turn: u32,
    rank_of: Vec<u32>,
    ranks: Vec<Host>,
    /// Queues whose first operation may be able to start: its turn, rank and queue.
    agenda: BinaryHeap<Reverse<(u32, u32, u32)>>,
    messages: HashMap<u32, Message>,
    posted: Waiting,
    early: Waiting,
    now: f64,
    out: Vec<Action>,
}

impl Dag {
    pub(super) fn new(goal: Goal, sending: Sending) -> Self {
        let ranks = goal.ranks();
        let mut rank_of = Vec::with_capacity(goal.operations.len());
        for rank in 0..ranks as usize {
            let count = goal.first[rank + 1] - goal.first[rank];
            rank_of.extend(std::iter::repeat_n(rank as u32, count as usize));
        }
        let mut hosts = Vec::new();
        hosts.resize_with(ranks as usize, Host::default);
        Self {
            hosts: goal.hosts(),
            window: sending.window,
            completion: sending.completion.unwrap_or(Completion::Source),
            latency: sending.latency,
            waits: goal.waits.clone(),
            unstarted: goal.waits.clone(),
            turns: vec![0; goal.operations.len()],
            last_turn: 0,
            rank_of,
            ranks: hosts,
            agenda: BinaryHeap::new(),
            messages: HashMap::new(),
            posted: Waiting::new(&goal),
            early: Waiting::new(&goal),
            now: 0.0,
            out: Vec::new(),
            goal,
        }
    }

    /// Seconds that a message travels besides the latency of the platform.
    #[inline]
    pub(super) fn message_latency(&self) -> f64 {
        self.hosts.map_or(0.0, |hosts| hosts.latency)
    }

    pub(super) fn begin(&mut self) {
        for rank in 0..self.goal.ranks() as usize {
            let own = self.goal.first[rank]..self.goal.first[rank + 1];
            let mut ready: Vec<u32> = own.filter(|&o| self.waits[o as usize] == 0).collect();
            self.give_turns(&mut ready);
            ready
                .into_iter()
                .for_each(|operation| self.ready(operation));
        }
    }

    /// The last byte of a message has left its sender.
    pub(super) fn left(&mut self, now: f64, operation: u32) {
        self.now = now;
        if self.hosts.is_some() || self.completion == Completion::Source {
            self.interface_free(operation);
        }
    }

    /// The last byte of a message has arrived.
    pub(super) fn arrived(&mut self, now: f64, operation: u32) {
        self.now = now;
        if self.hosts.is_none() && self.completion == Completion::Destination {
            self.interface_free(operation);
        }
        let Some(message) = self.messages.get_mut(&operation) else {
            return;
        };
        message.arrived = Some(now);
        match self.hosts {
            None => self.take_in(operation, 0.0),
            Some(hosts) if message.awaited => {
                self.set_receiving_cpu(operation, now + hosts.overhead);
                self.after(hosts.overhead, Step::Handled, operation);
            }
            Some(hosts) if hosts.per_byte() == 0.0 => self.message_ready(operation),
            Some(_) => {}
        }
    }

    /// A step that the driver asked for.
    pub(super) fn wake(&mut self, now: f64, token: u64) {
        self.now = now;
        let step = STEPS[(token % STEPS.len() as u64) as usize];
        self.step(step, (token / STEPS.len() as u64) as u32);
    }

    /// Starts all operations that can start, lowest turn first. Returns the actions since the last
    /// call in `out`.
    pub(super) fn settle(&mut self, now: f64, out: &mut Vec<Action>) {
        self.now = now;
        while let Some(Reverse((turn, rank, at))) = self.agenda.pop() {
            let queue = &self.ranks[rank as usize].queues[at as usize];
            let needs = queue.needs;
            if let Some(&Reverse((first, operation))) = queue.ready.peek()
                && first == turn
                && self.can_start(rank, needs)
            {
                self.ranks[rank as usize].queues[at as usize].ready.pop();
                self.start(rank, operation, needs);
                self.consider(rank, at as usize);
            }
        }
        out.append(&mut self.out);
    }

    /// Calls [`Self::step`] after a delay, at once if that is 0.
    fn after(&mut self, delay: f64, step: Step, operation: u32) {
        if delay > 0.0 {
            self.out.push(Action::Wake {
                delay,
                between: None,
                token: token(operation, step),
            });
        } else {
            self.step(step, operation);
        }
    }

    fn step(&mut self, step: Step, operation: u32) {
        match step {
            Step::Computed => {
                self.release(operation, true);
                self.retry(self.rank_of[operation as usize]);
            }
            Step::Departs => self.depart(operation),
            Step::Sent => {
                let (_, bytes, ..) = self.send_of(operation);
                if self.hosts.is_some_and(|hosts| bytes <= hosts.eager) {
                    self.release(operation, true);
                }
                self.retry(self.rank_of[operation as usize]);
            }
            Step::Arrives => self.message_ready(operation),
            Step::Handled => self.handled(operation),
            Step::Free => self.retry(operation),
        }
    }

    /// An operation whose dependencies are satisfied.
    fn ready(&mut self, operation: u32) {
        let rank = self.rank_of[operation as usize];
        let needs = match self.goal.operations[operation as usize] {
            Operation::Send { cpu, nic, .. } => Needs::Send { cpu, nic },
            Operation::Receive { .. } => Needs::Receive,
            Operation::Calc { cpu, .. } => Needs::Calc { cpu },
        };
        self.enqueue(rank, needs, self.turns[operation as usize], operation);
    }

    /// A message with which the receiver can begin.
    fn message_ready(&mut self, operation: u32) {
        let (to, _, cpu, nic) = self.send_of(operation);
        let turn = self.messages.get(&operation).map_or(0, |m| m.turn);
        self.enqueue(to, Needs::Message { cpu, nic }, turn, operation);
    }

    fn enqueue(&mut self, rank: u32, needs: Needs, turn: u32, operation: u32) {
        let host = &mut self.ranks[rank as usize];
        let at = host.queue(needs);
        host.queues[at].ready.push(Reverse((turn, operation)));
        self.consider(rank, at);
    }

    /// Puts the first operation of a queue on the agenda.
    fn consider(&mut self, rank: u32, at: usize) {
        if let Some(&Reverse((turn, _))) = self.ranks[rank as usize].queues[at].ready.peek() {
            self.agenda.push(Reverse((turn, rank, at as u32)));
        }
    }

    /// Considers all queues of a rank, because one of its resources is free.
    fn retry(&mut self, rank: u32) {
        (0..self.ranks[rank as usize].queues.len()).for_each(|at| self.consider(rank, at));
    }

    fn can_start(&mut self, rank: u32, needs: Needs) -> bool {
        let until = self.now * (1.0 + SIMULTANEOUS);
        let (now, window, costs) = (self.now, self.window, self.hosts.is_some());
        let host = &mut self.ranks[rank as usize];
        let (nic, free_at, direction) = match needs {
            Needs::Receive => return true,
            Needs::Calc { cpu } => return *host.cpu(cpu) <= until,
            Needs::Send { nic, .. } if !costs => return host.nic(nic).active < window,
            Needs::Message { .. } if !costs => return true,
            Needs::Send { cpu, nic } => {
                if *host.cpu(cpu) > until || !host.nic(nic).waiting.is_empty() {
                    return false;
                }
                (nic, host.nic(nic).send_at, 0)
            }
            Needs::Message { cpu, nic } => {
                if *host.cpu(cpu) > until {
                    return false;
                }
                (nic, host.nic(nic).receive_at, 1)
            }
        };
        if free_at <= until {
            return true;
        }
        let alarm = &mut host.nic(nic).alarms[direction];
        if std::mem::replace(alarm, free_at) != free_at {
            self.after(free_at - now, Step::Free, rank);
        }
        false
    }

    fn start(&mut self, rank: u32, operation: u32, needs: Needs) {
        match needs {
            Needs::Send { cpu, nic } => self.start_send(rank, operation, cpu, nic),
            Needs::Receive => self.post(rank, operation),
            Needs::Calc { cpu } => {
                let Operation::Calc { seconds, .. } = self.goal.operations[operation as usize]
                else {
                    return;
                };
                *self.ranks[rank as usize].cpu(cpu) = self.now + seconds;
                if seconds > 0.0 {
                    self.out.push(Action::Compute { rank, cpu, seconds });
                }
                self.give_turns_after(operation, &[false, true]);
                self.release(operation, false);
                self.after(seconds, Step::Computed, operation);
            }
            Needs::Message { cpu, nic } => {
                let (_, bytes, ..) = self.send_of(operation);
                let Some(hosts) = self.hosts else { return };
                let work = hosts.to_receive(bytes);
                let host = &mut self.ranks[rank as usize];
                *host.cpu(cpu) = self.now + work;
                host.nic(nic).receive_at = self.now + hosts.to_transfer(bytes);
                self.take_in(operation, work);
            }
        }
    }

    fn start_send(&mut self, rank: u32, operation: u32, cpu: u8, nic: u8) {
        let (_, bytes, ..) = self.send_of(operation);
        self.last_turn += 1;
        let turn = self.last_turn;
        let message = Message {
            turn,
            ..Message::default()
        };
        self.messages.insert(operation, message);
        let host = &mut self.ranks[rank as usize];
        let Some(hosts) = self.hosts else {
            self.give_turns_after(operation, &[false, true]);
            self.release(operation, false);
            return self.depart(operation);
        };
        *host.cpu(cpu) = self.now + hosts.to_send(bytes);
        host.nic(nic).send_at = self.now + hosts.to_transfer(bytes);
        match bytes <= hosts.eager {
            true => self.give_turns_after(operation, &[false, true]),
            false => self.give_turns_after(operation, &[false]),
        }
        self.release(operation, false);
        self.after(hosts.overhead, Step::Departs, operation);
        self.after(hosts.to_send(bytes), Step::Sent, operation);
    }

    /// Starts the flow of a send, or lets it wait for those under way.
    fn depart(&mut self, operation: u32) {
        let rank = self.rank_of[operation as usize];
        let (to, bytes, _, nic) = self.send_of(operation);
        let nic = self.ranks[rank as usize].nic(nic);
        if nic.active >= self.window {
            return nic.waiting.push_back(operation);
        }
        nic.active += 1;
        self.out.push(Action::Send {
            rank,
            to,
            bytes,
            token: operation,
        });
        if let Some(hosts) = self.hosts.filter(|hosts| hosts.per_byte() > 0.0) {
            let delay = hosts.latency;
            if rank == to || self.latency == 0.0 {
                return self.after(delay, Step::Arrives, operation);
            }
            self.out.push(Action::Wake {
                delay,
                between: Some((rank, to)),
                token: token(operation, Step::Arrives),
            });
        }
    }

    /// A flow no longer counts as under way.
    fn interface_free(&mut self, operation: u32) {
        let rank = self.rank_of[operation as usize];
        let (_, _, _, nic) = self.send_of(operation);
        let nic = self.ranks[rank as usize].nic(nic);
        nic.active -= 1;
        let next = nic.waiting.pop_front();
        if self.hosts.is_none() {
            self.release(operation, true);
        }
        if let Some(next) = next {
            self.depart(next);
        }
        self.retry(rank);
    }

    /// The receiver begins with a message: it matches it, and is done with it after `work` seconds.
    fn take_in(&mut self, operation: u32, work: f64) {
        let (to, bytes, ..) = self.send_of(operation);
        let envelope = self.envelope(operation);
        match self.posted.take(to, envelope) {
            None => self.early.put(to, envelope, operation),
            Some(receive) => self.matched(operation, receive, bytes),
        }
        self.after(work, Step::Handled, operation);
    }

    /// Posts a receive.
    fn post(&mut self, rank: u32, operation: u32) {
        self.give_turns_after(operation, &[false]);
        self.release(operation, false);
        let Operation::Receive { from, tag } = self.goal.operations[operation as usize] else {
            return;
        };
        let envelope = Envelope { source: from, tag };
        match self.early.take(rank, envelope) {
            None => self.posted.put(rank, envelope, operation),
            Some(send) => {
                let (_, bytes, ..) = self.send_of(send);
                self.matched(send, operation, bytes);
                if self.messages.get(&send).is_some_and(|m| m.handled) {
                    self.messages.remove(&send);
                    self.release(operation, true);
                }
            }
        }
    }

    fn matched(&mut self, send: u32, receive: u32, bytes: f64) {
        self.give_turns_after(receive, &[true]);
        if let Some(message) = self.messages.get_mut(&send) {
            message.receive = Some(receive);
        }
        if self.hosts.is_some_and(|hosts| bytes > hosts.eager) {
            self.give_turns_after(send, &[true]);
            self.release(send, true);
        }
    }

    /// The receiver's cpu has done its work. It remains occupied until the last byte is there.
    fn handled(&mut self, operation: u32) {
        let overhead = self.hosts.map_or(0.0, |hosts| hosts.overhead);
        let now = self.now;
        let Some(message) = self.messages.get_mut(&operation) else {
            return;
        };
        let Some(arrived) = message.arrived else {
            message.awaited = true;
            return self.set_receiving_cpu(operation, f64::INFINITY);
        };
        if arrived + overhead > now * (1.0 + SIMULTANEOUS) {
            self.set_receiving_cpu(operation, arrived + overhead);
            return self.after(arrived + overhead - now, Step::Handled, operation);
        }
        message.handled = true;
        if let Some(receive) = message.receive {
            self.messages.remove(&operation);
            self.release(receive, true);
        }
        if self.hosts.is_some() {
            self.set_receiving_cpu(operation, now);
            let (to, ..) = self.send_of(operation);
            self.retry(to);
        }
    }

    fn set_receiving_cpu(&mut self, operation: u32, free_at: f64) {
        let (to, _, cpu, _) = self.send_of(operation);
        *self.ranks[to as usize].cpu(cpu) = free_at;
    }

    /// Destination, bytes, cpu and interface of a send.
    fn send_of(&self, operation: u32) -> (u32, f64, u8, u8) {
        match self.goal.operations[operation as usize] {
            Operation::Send {
                to,
                bytes,
                cpu,
                nic,
                ..
            } => (to, bytes, cpu, nic),
            _ => (0, 0.0, 0, 0),
        }
    }

    fn envelope(&self, send: u32) -> Envelope {
        let tag = match self.goal.operations[send as usize] {
            Operation::Send { tag, .. } | Operation::Receive { tag, .. } => tag,
            Operation::Calc { .. } => ANY_TAG,
        };
        Envelope {
            source: self.rank_of[send as usize],
            tag,
        }
    }

    /// Releases the operations that waited for this one to start, or to finish if `done`.
    fn release(&mut self, operation: u32, done: bool) {
        for at in 0..self.goal.successors_of(operation).len() {
            let (later, needs_done) = self.goal.successors_of(operation)[at];
            if needs_done == done {
                self.waits[later as usize] -= 1;
                if self.waits[later as usize] == 0 {
                    self.ready(later);
                }
            }
        }
    }

    /// Gives turns to the operations for which this was the last one to start. `kinds` says which
    /// dependencies: those on the start (`false`) and on the end (`true`).
    fn give_turns_after(&mut self, operation: u32, kinds: &[bool]) {
        let mut given = Vec::new();
        for &(later, done) in self.goal.successors_of(operation) {
            if kinds.contains(&done) {
                self.unstarted[later as usize] -= 1;
                if self.unstarted[later as usize] == 0 {
                    given.push(later);
                }
            }
        }
        self.give_turns(&mut given);
    }

    fn give_turns(&mut self, operations: &mut [u32]) {
        operations.sort_by_key(
            |&operation| match self.goal.operations[operation as usize] {
                Operation::Send { .. } => 0,
                Operation::Receive { .. } => 1,
                Operation::Calc { .. } => 2,
            },
        );
        for &mut operation in operations {
            self.last_turn += 1;
            self.turns[operation as usize] = self.last_turn;
        }
    }

    pub(super) fn deadlock(&self, time: f64) -> Option<Deadlock> {
        let mut blocked: Vec<Blocked> = Vec::new();
        for (rank, Envelope { source, tag }, operation) in self.posted.all() {
            blocked.push(Blocked {
                rank,
                source: (source != ANY_RANK).then_some(source),
                tag: (tag != ANY_TAG).then_some(tag),
                line: self.goal.line(operation),
            });
        }
        blocked.sort_by_key(|b| (b.rank, b.line, b.source, b.tag));
        let mut unreceived: HashMap<(u32, u32, u64), u64> = HashMap::new();
        let mut holds = false;
        for (to, Envelope { source, tag }, send) in self.early.all() {
            let (_, bytes, ..) = self.send_of(send);
            holds |= self.hosts.is_some_and(|hosts| bytes > hosts.eager);
            *unreceived.entry((source, to, tag)).or_default() += 1;
        }
        let unreceived = unreceived
            .into_iter()
            .map(|((from, to, tag), n)| (from, to, tag, n));
        let mut unreceived: Vec<(u32, u32, u64, u64)> = unreceived.collect();
        unreceived.sort_unstable();
        (holds || !blocked.is_empty()).then_some(Deadlock {
            time,
            blocked,
            unreceived,
        })
    }
}

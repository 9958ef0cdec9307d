//! The channels of a gang job, a network, and their faults, in virtual time. It drives the state
//! machines of all pairs and checks that each message arrives exactly once, in order, and with the
//! right contents.

use farcall_channel_proto::{Address, Config, Freeze, Header, Kind, PairContext, Receiver, Sender};
use farcall_random::SplitMix64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The parameters and faults of a run.
#[derive(Clone, Debug)]
pub struct Faults {
    pub seed: u64,
    pub nodes: u16,
    /// Messages of each pair; each node sends to three others.
    pub messages: u64,
    pub loss: f64,
    pub duplication: f64,
    pub reordering: f64,
    /// Messages that fit into the receive FIFO of a node.
    pub receive_fifo: usize,
    /// Preempt at this step, or periodically after this many nanoseconds.
    pub preempt_at: Option<usize>,
    pub preempt_every: Option<u64>,
    pub drain: bool,
    /// Rebuild every channel from its saved context, in other packets than before.
    pub copied: bool,
    pub consume_after_switch: bool,
    /// Kill the gang job at this step, and start another on the same nodes.
    pub kill_at: Option<usize>,
    /// A node that is lost at this step, with everything on it.
    pub crash: Option<(usize, u16)>,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            seed: 0,
            nodes: 32,
            messages: 8,
            loss: 0.0,
            duplication: 0.0,
            reordering: 0.0,
            receive_fifo: 4096,
            preempt_at: None,
            preempt_every: None,
            drain: true,
            copied: false,
            consume_after_switch: false,
            kill_at: None,
            crash: None,
        }
    }
}

/// The result of a run. Contents and order are asserted during the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub steps: usize,
    pub delivered: u64,
    pub expected: u64,
    pub packets: u64,
    pub transmissions: u64,
    pub nacks: u64,
    pub switches: u32,
    /// Packets that arrived for a gang job that is gone.
    pub strays: u64,
}

/// One direction between two processes: the state machines, and the FIFOs that their caller holds.
struct Pair {
    address: Address,
    sender: Sender,
    /// The messages from the first unacknowledged one.
    send_fifo: VecDeque<u64>,
    /// Messages of `send_fifo` that the sender knows of.
    queued: usize,
    produced: u64,
    receiver: Receiver,
    receive_fifo: VecDeque<u64>,
    consumed: u64,
    /// The only valid timer event.
    timer: Option<u64>,
    /// Whether one of its nodes is gone.
    is_gone: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(Vec<u8>),
    Timer(usize),
    Work(u16),
    Freeze(u16),
    Thaw(u16),
    Preempt,
}

struct World {
    faults: Faults,
    random: SplitMix64,
    now: u64,
    tie: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    job: u64,
    epoch: u32,
    pairs: Vec<Pair>,
    place: BTreeMap<(u16, u16), usize>,
    frozen: Vec<bool>,
    thawed: usize,
    is_switching: bool,
    outcome: Outcome,
}

const MESSAGE_BYTES: u32 = 8;
const WORK_TIME: u64 = 20_000;

pub fn run(faults: &Faults) -> Outcome {
    let mut world = World {
        faults: faults.clone(),
        random: SplitMix64::new(faults.seed),
        now: 0,
        tie: 0,
        events: BinaryHeap::new(),
        job: 1,
        epoch: 0,
        pairs: Vec::new(),
        place: BTreeMap::new(),
        frozen: vec![false; faults.nodes.into()],
        thawed: 0,
        is_switching: false,
        outcome: Outcome::default(),
    };
    world.start();
    if let Some(time) = faults.preempt_every {
        world.after(time, Event::Preempt);
    }
    while let Some(Reverse((time, _, event))) = world.events.pop() {
        world.now = time;
        world.outcome.steps += 1;
        assert!(world.outcome.steps < 2_000_000, "{faults:?} does not end");
        world.step(event);
        if world.outcome.delivered == world.outcome.expected && !world.is_switching {
            break;
        }
    }
    world.outcome
}

/// The content of a message: a function of gang job, pair and number, so that a stray message is
/// detected.
fn content(address: Address, number: u64) -> u64 {
    let pair = u64::from(address.source) << 16 | u64::from(address.destination);
    (address.job << 48 ^ pair << 16 ^ number).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

impl World {
    /// Starts a job on all nodes.
    fn start(&mut self) {
        let nodes = self.faults.nodes;
        for source in 0..nodes {
            let mut targets = [1, nodes / 2, 1 + self.draw(u64::from(nodes) - 1) as u16];
            targets.sort_unstable();
            for (index, distance) in targets.into_iter().enumerate() {
                if index == 0 || targets[index - 1] != distance {
                    self.join(source, (source + distance) % nodes);
                }
            }
        }
        self.outcome.expected = self.pairs.len() as u64 * self.faults.messages;
        for node in 0..nodes {
            let time = self.draw(WORK_TIME);
            self.after(time, Event::Work(node));
        }
    }

    fn join(&mut self, source: u16, destination: u16) {
        let address = Address {
            job: self.job,
            channel: 0,
            source,
            destination,
        };
        self.place.insert((source, destination), self.pairs.len());
        self.pairs.push(Pair {
            address,
            sender: Sender::new(config(), self.epoch),
            send_fifo: VecDeque::new(),
            queued: 0,
            produced: 0,
            receiver: Receiver::new(self.epoch),
            receive_fifo: VecDeque::new(),
            consumed: 0,
            timer: None,
            is_gone: false,
        });
    }

    fn step(&mut self, event: Event) {
        if self.faults.preempt_at == Some(self.outcome.steps) {
            self.preempt();
        }
        if self.faults.kill_at == Some(self.outcome.steps) {
            self.kill();
        }
        if let Some((step, node)) = self.faults.crash
            && step == self.outcome.steps
        {
            self.crash(node);
        }
        match event {
            Event::Arrival(packet) => self.arrive(&packet),
            Event::Timer(index) => {
                let now = self.now;
                match self.pairs[index].timer == Some(now) {
                    true if !self.pairs[index].is_gone => self.pairs[index].timer = None,
                    _ => return,
                }
                if let Some(transmit) = self.pairs[index].sender.handle_timeout(now) {
                    self.put(index, &transmit);
                }
                self.drain(index);
            }
            Event::Work(node) => self.work(node),
            Event::Freeze(node) => self.freeze(node),
            Event::Thaw(node) => self.thaw(node),
            Event::Preempt => self.preempt(),
        }
        self.finish_freeze();
    }

    /// Lets a process consume what has arrived, and send more.
    fn work(&mut self, node: u16) {
        self.after(WORK_TIME, Event::Work(node));
        if self.frozen[usize::from(node)] {
            return;
        }
        let consumes = !self.faults.consume_after_switch || self.outcome.switches > 0;
        for index in self.alive() {
            let pair = &mut self.pairs[index];
            if pair.address.destination == node && consumes {
                while let Some(message) = pair.receive_fifo.pop_front() {
                    assert_eq!(message, content(pair.address, pair.consumed));
                    pair.consumed += 1;
                    self.outcome.delivered += 1;
                }
            }
            let pair = &mut self.pairs[index];
            if pair.address.source == node && pair.produced < self.faults.messages {
                for _ in 0..3.min(self.faults.messages - pair.produced) {
                    pair.send_fifo
                        .push_back(content(pair.address, pair.produced));
                    pair.produced += 1;
                }
                self.queue(index);
                self.drain(index);
            }
        }
    }

    /// Divides the contents of the send FIFO into packets of one to three messages.
    fn queue(&mut self, index: usize) {
        while self.pairs[index].queued < self.pairs[index].send_fifo.len() {
            let most = self.pairs[index].send_fifo.len() - self.pairs[index].queued;
            let most = most.min(3).min(self.faults.receive_fifo);
            let count = 1 + self.draw(most as u64) as u16;
            let pair = &mut self.pairs[index];
            if !pair.sender.has_room() {
                return;
            }
            pair.sender
                .handle_queued(count, u32::from(count) * MESSAGE_BYTES);
            pair.queued += usize::from(count);
            self.outcome.packets += 1;
        }
    }

    /// Sends the packets that are due and sets the timer.
    fn drain(&mut self, index: usize) {
        while let Some(transmit) = self.pairs[index].sender.poll_transmit(self.now) {
            self.put(index, &transmit);
        }
        let pair = &mut self.pairs[index];
        let Some(time) = pair.sender.poll_timeout() else {
            return;
        };
        let time = time.max(self.now + 1);
        if pair.timer.is_none_or(|set| time < set || set <= self.now) {
            pair.timer = Some(time);
            self.after(time - self.now, Event::Timer(index));
        }
    }

    fn put(&mut self, index: usize, transmit: &farcall_channel_proto::Transmit) {
        let pair = &self.pairs[index];
        let base = pair.produced - pair.send_fifo.len() as u64;
        assert_eq!(
            transmit.offset,
            transmit.sequence * u64::from(MESSAGE_BYTES)
        );
        let start = (transmit.sequence - base) as usize;
        let messages = pair
            .send_fifo
            .range(start..start + usize::from(transmit.count));
        let body: Vec<u8> = messages.flat_map(|message| message.to_le_bytes()).collect();
        let header = Header {
            kind: Kind::Data,
            address: pair.address,
            epoch: transmit.epoch,
            count: transmit.count,
            sequence: transmit.sequence,
            transmission: transmit.transmission,
            bytes: transmit.bytes,
        };
        self.outcome.transmissions += 1;
        let mut packet = header.encode().to_vec();
        packet.extend_from_slice(&body);
        self.send(packet);
    }

    /// Sends a packet through the network, which loses, repeats or delays it.
    fn send(&mut self, packet: Vec<u8>) {
        let copies = 1 + usize::from(self.chance(self.faults.duplication));
        for _ in 0..copies {
            if self.chance(self.faults.loss) {
                continue;
            }
            let mut delay = 10_000;
            if self.chance(self.faults.reordering) {
                delay += self.draw(400_000);
            }
            self.after(delay, Event::Arrival(packet.clone()));
        }
    }

    fn arrive(&mut self, packet: &[u8]) {
        let (header, body) = Header::decode(packet).expect("what we sent");
        if header.address.job != self.job {
            self.outcome.strays += 1;
            return;
        }
        let place = (header.address.source, header.address.destination);
        let index = self.place[&place];
        if self.pairs[index].is_gone {
            self.outcome.strays += 1;
            return;
        }
        if header.kind != Kind::Data {
            self.outcome.nacks += u64::from(header.kind != Kind::Ack);
            let pair = &mut self.pairs[index];
            let freed = pair.sender.handle_answer(&header, self.now) / u64::from(MESSAGE_BYTES);
            pair.send_fifo.drain(..freed as usize);
            pair.queued -= freed as usize;
            self.queue(index);
            return self.drain(index);
        }
        let node = header.address.destination;
        let at_node = |pair: &&Pair| pair.address.destination == node;
        let used = self.pairs.iter().filter(at_node);
        let used: usize = used.map(|pair| pair.receive_fifo.len()).sum();
        let room = self.faults.receive_fifo - used;
        let pair = &mut self.pairs[index];
        let verdict = pair
            .receiver
            .handle_data(&header, |_| room.min(usize::from(u16::MAX)) as u16);
        let messages = body.chunks_exact(8).skip(verdict.skip.into());
        for message in messages.take(verdict.deliver.into()) {
            let message = u64::from_le_bytes(message.try_into().expect("eight bytes"));
            pair.receive_fifo.push_back(message);
        }
        if let Some(answer) = verdict.answer {
            self.send(answer.encode().to_vec());
        }
    }

    fn preempt(&mut self) {
        if self.is_switching {
            return;
        }
        self.is_switching = true;
        for node in 0..self.faults.nodes {
            let time = 1 + self.draw(50_000);
            self.after(time, Event::Freeze(node));
        }
    }

    fn how(&self) -> Freeze {
        match self.faults.drain {
            true => Freeze::Drain,
            false => Freeze::Epoch,
        }
    }

    fn freeze(&mut self, node: u16) {
        self.frozen[usize::from(node)] = true;
        let how = self.how();
        for pair in &mut self.pairs {
            if pair.address.source == node {
                pair.sender.freeze(how);
            }
            if pair.address.destination == node && how == Freeze::Epoch {
                pair.receiver.close();
            }
        }
    }

    /// Performs the second round, after every channel of every node is at rest.
    fn finish_freeze(&mut self) {
        let at_rest = self.is_switching
            && self.thawed == 0
            && self.all_alive(|frozen| frozen)
            && self
                .alive()
                .all(|index| self.pairs[index].sender.is_at_rest());
        if !at_rest {
            return;
        }
        self.epoch += 1;
        self.thawed = 1;
        for index in self.alive() {
            self.pairs[index].receiver.close();
            self.inspect(index);
            if self.faults.copied {
                self.copy(index);
            }
        }
        for node in 0..self.faults.nodes {
            let time = 1 + self.draw(50_000);
            self.after(time, Event::Thaw(node));
        }
    }

    /// Checks that the saved context contains every message exactly once.
    fn inspect(&self, index: usize) {
        let pair = &self.pairs[index];
        let context = PairContext {
            sent: pair.send_fifo.len() as u64,
            sequence: pair.sender.save().sequence,
            expected: pair.receiver.expected(),
        };
        let received = pair.consumed + pair.receive_fifo.len() as u64;
        assert_eq!(received + context.undelivered(), pair.produced);
        assert_eq!(received, pair.receiver.expected());
    }

    /// Saves the context, normalises it, and restores it into new state machines.
    fn copy(&mut self, index: usize) {
        let pair = &mut self.pairs[index];
        let freed = pair.sender.normalise(pair.receiver.expected()) / u64::from(MESSAGE_BYTES);
        pair.send_fifo.drain(..freed as usize);
        let (sent, received) = (pair.sender.save(), pair.receiver.save());
        pair.sender = Sender::restore(config(), self.epoch - 1, sent);
        pair.sender.freeze(Freeze::Epoch);
        pair.receiver = Receiver::restore(self.epoch - 1, received);
        pair.receiver.close();
        pair.queued = 0;
        self.queue(index);
    }

    fn thaw(&mut self, node: u16) {
        self.frozen[usize::from(node)] = false;
        for index in self.alive() {
            let pair = &mut self.pairs[index];
            if pair.address.destination == node {
                pair.receiver.thaw(self.epoch);
            }
            if pair.address.source == node {
                pair.sender.thaw(self.epoch);
                self.drain(index);
            }
        }
        self.finish_thaw();
    }

    fn finish_thaw(&mut self) {
        if self.thawed > 0 && self.all_alive(|frozen| !frozen) {
            self.thawed = 0;
            self.is_switching = false;
            self.outcome.switches += 1;
            if let Some(time) = self.faults.preempt_every {
                self.after(time, Event::Preempt);
            }
        }
    }

    /// Replaces the gang job by another on the same nodes, ranks and channels.
    fn kill(&mut self) {
        self.job += 1;
        self.pairs.clear();
        self.place.clear();
        self.outcome.delivered = 0;
        self.events
            .retain(|Reverse((_, _, event))| matches!(event, Event::Arrival(_)));
        self.start();
    }

    /// Removes a node with everything that it sent and had to receive; the others continue.
    fn crash(&mut self, node: u16) {
        for pair in &mut self.pairs {
            pair.is_gone |= pair.address.source == node || pair.address.destination == node;
        }
        let alive = self.alive().count() as u64;
        self.outcome.expected = alive * self.faults.messages;
        self.outcome.delivered = self.alive().map(|index| self.pairs[index].consumed).sum();
        self.finish_thaw();
    }

    /// The pairs between nodes that are not lost.
    fn alive(&self) -> impl Iterator<Item = usize> + use<> {
        let alive = self.pairs.iter().enumerate();
        let alive = alive.filter(|(_, pair)| !pair.is_gone);
        let places: Vec<usize> = alive.map(|(index, _)| index).collect();
        places.into_iter()
    }

    /// Whether `holds` is true for the frozen state of all nodes except a crashed one.
    fn all_alive(&self, holds: impl Fn(bool) -> bool) -> bool {
        let crash = self.faults.crash;
        let crashed = crash.filter(|(step, _)| *step <= self.outcome.steps);
        (0..).zip(&self.frozen).all(|(node, frozen)| {
            let is_gone = crashed.is_some_and(|(_, crashed)| crashed == node);
            is_gone || holds(*frozen)
        })
    }

    fn after(&mut self, time: u64, event: Event) {
        self.tie += 1;
        self.events
            .push(Reverse((self.now + time, self.tie, event)));
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.chance(probability)
    }
}

fn config() -> Config {
    Config {
        window: 4,
        ..Config::default()
    }
}

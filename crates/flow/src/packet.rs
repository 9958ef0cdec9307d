//! A packet-level reference model. A user compares it with the flow model to see what the flow
//! model leaves out.
//!
//! The model cuts messages into packets, which switches store and forward. Every link ends in a
//! buffer for a fixed number of packets. A link accepts a packet (credits) only if that buffer has
//! space, and a packet frees its place after it has left on its next link. A buffer is a queue: its
//! first packet blocks those behind it. With virtual output queues it blocks only those for the
//! same link. A link serves packets first come first served, and a node consumes packets as they
//! arrive.
//!
//! The buffer at the end of a link of a dragonfly has a part for each number of global links that a
//! packet has crossed. A packet waits only for a buffer of a higher number or on a shorter way to
//! its node, so detours cannot block each other in a circle. The routes of an edge list can: a run
//! whose packets wait for each other ends with an error.
//!
//! On wrapped grids a packet enters a ring from its node or from another dimension. It must then
//! leave one place free (bubble flow control: Carrion, Beivide et al., 1997), so that rings cannot
//! fill up and block.

use crate::engine::{
    Action, Completion, Driver, MessageRecord, Record, RunError, Sending, Sink, Summary, Workload,
    latency,
};
use crate::placement::Placement;
use crate::platform::{LinkId, Platform};
use crate::routing::{Router, Routing};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Parameters of the packet model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketConfig {
    /// Largest packet in bytes.
    pub packet_bytes: f64,
    /// Packets that fit in the buffer at the end of a link; at least 2.
    pub buffer_packets: u32,
    /// Whether packets for other links can pass a blocked packet in a buffer.
    pub virtual_output_queues: bool,
    /// Sends of one rank that may be under way at a time.
    pub window: u32,
    /// The event that completes a send, as in [`crate::Config::completion`].
    pub completion: Option<Completion>,
    /// How messages, or with [`Routing::Spray`] packets, get their routes.
    pub routing: Routing,
    /// Seconds that a host needs for a message at each end, as in [`crate::Config::overhead`].
    pub overhead: f64,
}

impl Default for PacketConfig {
    /// The paper's 1500-byte packets (section 5.1), queues of 16, blocking sends.
    fn default() -> Self {
        Self {
            packet_bytes: 1500.0,
            buffer_packets: 16,
            virtual_output_queues: false,
            window: 1,
            completion: None,
            routing: Routing::Static,
            overhead: 0.0,
        }
    }
}

/// Parts of the buffer at the end of a link.
const CLASSES: usize = 3;

#[derive(Debug, Clone, Default)]
struct Link {
    busy: Option<Packet>,
    /// Packets that wait to go over this link, each with its number. Those of a queue need the same
    /// of the buffer at the end: a part of it, or on a ring the places of a packet that enters it.
    waiting: [VecDeque<(u64, Packet)>; CLASSES],
    /// Number of packets that were to go over this link so far.
    offered: u64,
    /// The buffer at its end. Only dragonflies use more than the first part.
    buffers: [Buffer; CLASSES],
}

#[derive(Debug, Clone, Default)]
struct Buffer {
    /// Places that are taken or promised.
    taken: u32,
    /// The packets, unless there are virtual output queues.
    stored: VecDeque<Packet>,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    message: u32,
    bytes: f64,
    /// The path of its message that it takes.
    path: u32,
    /// Index, in that path, of the link that the packet waits for or is on.
    hop: u32,
}

#[derive(Debug, Clone, Default)]
struct Message {
    /// Packets take them in turn.
    paths: Vec<Vec<LinkId>>,
    next_path: u32,
    latency: f64,
    to_inject: f64,
    /// Packets that are under way or wait for their first link.
    under_way: u64,
    bytes: f64,
    start: f64,
    rank: u32,
    to: u32,
    token: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Transmitted(LinkId),
    Wake(u64),
    Arrive(u32),
}

/// A packet-level simulation in progress. Drive it like [`crate::Simulation`].
pub struct PacketSimulation<'a> {
    platform: &'a Platform,
    placement: Placement,
    config: PacketConfig,
    driver: Driver,
    router: Router<'a>,
    /// Seconds of a receiver, besides the latency of the workload's messages and the platform.
    latency: f64,
    links: Vec<Link>,
    /// Messages under way on each link, if routes depend on it.
    on_link: Vec<u32>,
    messages: Vec<Message>,
    free: Vec<u32>,
    /// Events by time. Times are stored as bits: they are not negative, so the bits sort like the
    /// numbers.
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    queued: u64,
    actions: Vec<Action>,
    sink: Option<Sink<'a>>,
    now: f64,
    arrived: u64,
    events: u64,
    begun: bool,
}

impl<'a> PacketSimulation<'a> {
    /// A simulation at time 0.
    ///
    /// # Errors
    /// [`RunError::TooManyRanks`] if the platform, or the placement, has fewer nodes.
    pub fn new(
        platform: &'a Platform,
        workload: Workload,
        placement: Placement,
        config: PacketConfig,
    ) -> Result<Self, RunError> {
        workload.check_places(platform, &placement)?;
        let latency = config.overhead;
        let sending = Sending {
            window: config.window,
            completion: config.completion,
            overhead: config.overhead,
            latency: platform.latency(),
        };
        Ok(Self {
            platform,
            placement,
            driver: Driver::new(workload, sending),
            router: Router::new(platform, config.routing),
            latency,
            config: PacketConfig {
                buffer_packets: config.buffer_packets.max(2),
                ..config
            },
            links: vec![Link::default(); platform.links()],
            on_link: vec![0; platform.links()],
            messages: Vec::new(),
            free: Vec::new(),
            queue: BinaryHeap::new(),
            queued: 0,
            actions: Vec::new(),
            sink: None,
            now: 0.0,
            arrived: 0,
            events: 0,
            begun: false,
        })
    }

    /// Passes every message to `sink` as it arrives, and every computation as it starts.
    pub fn with_sink(mut self, sink: Sink<'a>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// The same as [`PacketSimulation::step`].
    pub fn run(&mut self) -> Result<Summary, RunError> {
        while self.step()? {}
        Ok(self.summary())
    }

    /// Time, messages and events (packets forwarded, mostly) so far.
    pub fn summary(&self) -> Summary {
        Summary {
            makespan: self.now,
            messages: self.arrived,
            events: self.events,
        }
    }

    /// When the last message of each job of [`Workload::Jobs`] arrived, or its last computation
    /// ended, in seconds.
    pub fn job_ends(&self) -> Vec<f64> {
        self.driver.job_ends()
    }

    /// Advances to the next event. Returns whether there was one.
    ///
    /// # Errors
    /// [`RunError::Deadlock`] if ranks wait for messages that nobody will send;
    /// [`RunError::FullBuffers`] if packets wait for each other.
    pub fn step(&mut self) -> Result<bool, RunError> {
        if !self.begun {
            self.begun = true;
            self.driver.begin(&mut self.actions);
            self.perform();
        }
        let Some(Reverse((bits, _, event))) = self.queue.pop() else {
            return self.finished();
        };
        self.now = f64::from_bits(bits);
        self.events += 1;
        match event {
            Event::Transmitted(link) => self.transmitted(link),
            Event::Wake(token) => self.driver.wake(self.now, token, &mut self.actions),
            Event::Arrive(message) => self.deliver(message),
        }
        self.perform();
        Ok(true)
    }

    fn finished(&self) -> Result<bool, RunError> {
        let (time, messages) = (self.now, self.messages.len() - self.free.len());
        if messages > 0 {
            return Err(RunError::FullBuffers { time, messages });
        }
        match self.driver.deadlock(time) {
            None => Ok(false),
            Some(deadlock) => Err(RunError::Deadlock(deadlock)),
        }
    }

    fn set(&mut self, at: f64, event: Event) {
        self.queued += 1;
        let at = at.min(f64::MAX);
        self.queue.push(Reverse((at.to_bits(), self.queued, event)));
    }

    fn perform(&mut self) {
        let mut at = 0;
        while let Some(action) = self.driver.next_action(self.now, at, &mut self.actions) {
            match action {
                Action::Wake {
                    delay,
                    between,
                    token,
                } => {
                    let delay = delay + latency(self.platform, &self.placement, between);
                    self.set(self.now + delay, Event::Wake(token));
                }
                Action::Compute { rank, cpu, seconds } => {
                    if let Some(sink) = &mut self.sink {
                        sink(&Record::computation(rank, cpu, self.now, seconds));
                    }
                }
                Action::Send {
                    rank,
                    to,
                    bytes,
                    token,
                } => self.send(rank, to, bytes, token),
            }
            at += 1;
        }
        self.actions.clear();
    }

    fn send(&mut self, rank: u32, to: u32, bytes: f64, token: u32) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.messages.push(Message::default());
            self.messages.len() as u32 - 1
        });
        let (src, dst) = (self.placement.node(rank), self.placement.node(to));
        let on_link = &self.on_link;
        let load = |link: LinkId| f64::from(on_link[link as usize]);
        let paths = self.router.routes(src, dst, load);
        if self.router.needs_load() {
            let links = paths.iter().flatten();
            links.for_each(|&link| self.on_link[link as usize] += 1);
        }
        let hops = paths.iter().map(Vec::len).max();
        let between = hops.map_or(0.0, |hops| self.platform.latency_of(src, dst, hops));
        let latency = self.latency + self.driver.latency(rank) + between;
        let start = self.now;
        self.messages[id as usize] = Message {
            paths,
            next_path: 0,
            latency,
            to_inject: bytes,
            under_way: 0,
            bytes,
            start,
            rank,
            to,
            token,
        };
        if hops.is_none() || bytes <= 0.0 {
            self.set(self.now + latency, Event::Arrive(id));
            self.driver.left(self.now, rank, token, &mut self.actions);
        } else {
            self.inject(id);
        }
    }

    fn path(&self, packet: &Packet) -> &[LinkId] {
        &self.messages[packet.message as usize].paths[packet.path as usize]
    }

    /// The part of the buffer at the end of a packet's link `hop` that the packet needs.
    fn class(&self, packet: &Packet, hop: usize) -> usize {
        let path = &self.path(packet)[..hop];
        let crossed = path.iter().filter(|&&link| self.platform.is_global(link));
        crossed.count().min(CLASSES - 1)
    }

    /// Offers the next packet of a message to its first link. Does nothing after the last one.
    fn inject(&mut self, id: u32) {
        let message = &mut self.messages[id as usize];
        if message.to_inject > 0.0 {
            let bytes = message.to_inject.min(self.config.packet_bytes);
            message.to_inject -= bytes;
            message.under_way += 1;
            let path = message.next_path;
            message.next_path = (path + 1) % message.paths.len() as u32;
            self.offer(Packet {
                message: id,
                bytes,
                path,
                hop: 0,
            });
        }
    }

    /// Queues a packet for its next link.
    fn offer(&mut self, packet: Packet) {
        let (path, hop) = (self.path(&packet), packet.hop as usize);
        let l = path[hop];
        let ring = self.platform.ring(l);
        let enters = ring.is_some() && (hop == 0 || self.platform.ring(path[hop - 1]) != ring);
        // Only grids have rings, and only dragonflies have several parts of buffers.
        let queue = self.class(&packet, hop).max(usize::from(enters));
        let link = &mut self.links[l as usize];
        link.offered += 1;
        link.waiting[queue].push_back((link.offered, packet));
        self.grant(l);
    }

    /// Starts the first waiting packet for which the link's buffer has space.
    fn grant(&mut self, l: LinkId) {
        let link = &self.links[l as usize];
        if link.busy.is_some() {
            return;
        }
        let has_ring = self.platform.ring(l).is_some();
        let class = |queue: usize| if has_ring { 0 } else { queue };
        let may_go = |queue: usize| {
            let room = self.config.buffer_packets - link.buffers[class(queue)].taken;
            let enters = has_ring && queue > 0;
            room > u32::from(enters)
        };
        let waiting =
            (0..CLASSES).filter_map(|queue| Some((link.waiting[queue].front()?.0, queue)));
        let Some((_, queue)) = waiting.filter(|&(_, queue)| may_go(queue)).min() else {
            return;
        };
        let class = class(queue);
        let link = &mut self.links[l as usize];
        if let Some((_, packet)) = link.waiting[queue].pop_front() {
            link.busy = Some(packet);
            link.buffers[class].taken += 1;
            let end = self.now + packet.bytes / self.platform.bandwidth(l);
            self.set(end, Event::Transmitted(l));
        }
    }

    fn transmitted(&mut self, l: LinkId) {
        let Some(packet) = self.links[l as usize].busy.take() else {
            return;
        };
        let hop = packet.hop as usize;
        let path = self.path(&packet);
        let goes_on = hop + 1 < path.len();
        match hop.checked_sub(1).map(|before| (path[before], before)) {
            Some((before, at)) => {
                let class = self.class(&packet, at);
                let buffer = &mut self.links[before as usize].buffers[class];
                buffer.taken -= 1;
                buffer.stored.pop_front();
                if let Some(&head) = buffer.stored.front() {
                    self.offer(head);
                }
                self.grant(before);
            }
            None => {
                let message = &self.messages[packet.message as usize];
                let (rank, token, more) = (message.rank, message.token, message.to_inject > 0.0);
                match more {
                    true => self.inject(packet.message),
                    false => self.driver.left(self.now, rank, token, &mut self.actions),
                }
            }
        }
        let class = self.class(&packet, hop);
        let buffer = &mut self.links[l as usize].buffers[class];
        match goes_on {
            true => {
                let packet = Packet {
                    hop: packet.hop + 1,
                    ..packet
                };
                if !self.config.virtual_output_queues {
                    buffer.stored.push_back(packet);
                }
                if buffer.stored.len() <= 1 {
                    self.offer(packet);
                }
            }
            false => {
                buffer.taken -= 1;
                let message = &mut self.messages[packet.message as usize];
                message.under_way -= 1;
                if message.under_way == 0 && message.to_inject <= 0.0 {
                    let at = self.now + message.latency;
                    self.set(at, Event::Arrive(packet.message));
                }
            }
        }
        self.grant(l);
    }

    fn deliver(&mut self, id: u32) {
        let message = &self.messages[id as usize];
        let (rank, to, token) = (message.rank, message.to, message.token);
        if self.router.needs_load() {
            let links = message.paths.iter().flatten();
            links.for_each(|&link| self.on_link[link as usize] -= 1);
        }
        self.arrived += 1;
        if let Some(sink) = &mut self.sink {
            let (bytes, start, end) = (message.bytes, message.start, self.now);
            sink(&Record::Message(MessageRecord {
                source: rank,
                destination: to,
                bytes,
                start,
                end,
            }));
        }
        self.free.push(id);
        let (now, out) = (self.now, &mut self.actions);
        self.driver.arrived(now, rank, to, token, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;
    use crate::script::{Limits, Script};

    fn run(platform: &Platform, workload: Workload, config: PacketConfig) -> Summary {
        let placement = Placement::regular();
        PacketSimulation::new(platform, workload, placement, config)
            .unwrap()
            .run()
            .unwrap()
    }

    #[test]
    fn one_message_is_pipelined_over_its_hops() {
        let platform = Platform::parse("mesh:5").unwrap();
        let script = Script::parse_csv("0,4,1,100", Limits::default()).unwrap();
        let config = PacketConfig {
            packet_bytes: 10.0,
            ..PacketConfig::default()
        };
        // 10 packets over 4 links: 10 + 3 packet times.
        let summary = run(&platform, Workload::Script(script.clone()), config);
        assert_eq!((summary.makespan, summary.messages), (130.0, 1));
        // Two places in each buffer still keep the pipeline full.
        let narrow = PacketConfig {
            buffer_packets: 2,
            ..config
        };
        assert_eq!(
            run(&platform, Workload::Script(script), narrow).makespan,
            130.0
        );
    }

    #[test]
    fn two_messages_share_a_link_packet_by_packet() {
        let platform = Platform::parse("hypercrossbar:3").unwrap();
        let script = Script::parse_csv("0,2,1,100\n1,2,1,100", Limits::default()).unwrap();
        let config = PacketConfig {
            packet_bytes: 10.0,
            ..PacketConfig::default()
        };
        assert_eq!(
            run(&platform, Workload::Script(script), config).makespan,
            210.0
        );
    }

    /// Thousands of packets wait for the last link. A search through them at each step would take
    /// minutes.
    #[test]
    fn packets_that_wait_cost_nothing() {
        let platform = Platform::parse("fat-tree:ports=4,levels=4").unwrap();
        let rows: String = (1..32).map(|n| format!("{n},0,1,40000\n")).collect();
        let script = Script::parse_csv(&rows, Limits::default()).unwrap();
        let config = PacketConfig {
            packet_bytes: 10.0,
            buffer_packets: 2000,
            virtual_output_queues: true,
            ..PacketConfig::default()
        };
        let summary = run(&platform, Workload::Script(script), config);
        assert_eq!(summary.messages, 31);
        let last = 31.0 * 40_000.0;
        assert!((last..last + 100.0).contains(&summary.makespan));
    }

    #[test]
    fn full_rings_do_not_block() {
        let platform = Platform::parse("torus:6x6").unwrap();
        let names = ["all-to-all:simple-spread", "all-to-all:simple-spread-2d"];
        for (name, virtual_output_queues) in names
            .into_iter()
            .flat_map(|name| [(name, false), (name, true)])
        {
            let pattern = Pattern::parse(name, 36, 40.0).unwrap();
            let config = PacketConfig {
                packet_bytes: 10.0,
                buffer_packets: 2,
                virtual_output_queues,
                window: 3,
                ..PacketConfig::default()
            };
            let summary = run(&platform, Workload::Pattern(pattern), config);
            assert_eq!(summary.messages, 36 * 35, "{name} stopped");
        }
    }

    #[test]
    fn full_buffers_in_a_circle_are_an_error() {
        let edges: String = (0..6).map(|n| format!("{n},{},1\n", (n + 1) % 6)).collect();
        let platform = crate::platform::EdgeList::parse(&edges).unwrap();
        let rows: String = (0..6)
            .map(|n| format!("{n},{},1,100\n", (n + 3) % 6))
            .collect();
        let script = Script::parse_csv(&rows, Limits::default()).unwrap();
        let run = |buffer_packets| {
            let config = PacketConfig {
                packet_bytes: 10.0,
                buffer_packets,
                ..PacketConfig::default()
            };
            let workload = Workload::Script(script.clone());
            let placement = Placement::regular();
            PacketSimulation::new(&platform, workload, placement, config)
                .unwrap()
                .run()
        };
        let error = run(2).unwrap_err();
        assert!(
            matches!(error, RunError::FullBuffers { messages: 6, .. }),
            "{error}"
        );
        assert_eq!(run(100).unwrap().messages, 6);
    }

    #[test]
    fn small_packets_without_contention_approach_the_flow_model() {
        let platform = Platform::parse("fat-tree:ports=4,levels=2").unwrap();
        let pattern = Pattern::parse("all-to-all:simple-spread", 8, 1e4).unwrap();
        let config = PacketConfig {
            packet_bytes: 10.0,
            ..PacketConfig::default()
        };
        let summary = run(&platform, Workload::Pattern(pattern), config);
        assert!(
            (7e4..7.1e4).contains(&summary.makespan),
            "{}",
            summary.makespan
        );
    }
}

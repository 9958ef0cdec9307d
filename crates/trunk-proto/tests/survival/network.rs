//! A network in virtual time: hosts whose links end in switches with finite queues, and faults
//! drawn from a seed. It drives one trunk for each host. It checks that frames arrive in order and
//! at most once.

use bytes::Bytes;
use farcall_random::SplitMix64;
use farcall_trunk_proto::{
    Config, Event, Kind, Limits, LinkConfig, Mac, Nanos, Policy, SHIM_BYTES, Shim, Transmit, Trunk,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const MILLISECOND: Nanos = 1_000_000;
pub const SECOND: Nanos = 1_000_000_000;
/// Bytes a second of 100 Mbit/s.
pub const FAST_ETHERNET: f64 = 12.5e6;
const SWITCH_QUEUE: usize = 128 * 1024;
const HOST_QUEUE: usize = 400 * 1024;
/// The queue of a link's socket, as time.
const SOCKET: Nanos = 8 * MILLISECOND;
const PAYLOAD: usize = 1400;
/// Bytes that encryption adds to a frame.
const SEAL_BYTES: usize = 16;
/// EtherType of the numbered frames of the hosts.
const NUMBERED: u16 = 0x88b6;
/// EtherType of frames that no host has sent to its peer.
pub const FORGED: u16 = 0x88b7;

fn chance(random: &mut SplitMix64, parts_per_million: u64) -> bool {
    random.below(1_000_000) < parts_per_million
}

/// Faults of one link in both directions, in frames per million.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    /// Additional delay, uniform from 0 to this; longer for reordered frames.
    pub delay: Nanos,
    /// All frames from this host are lost.
    pub deaf_out: bool,
    /// All frames to this host are lost.
    pub deaf_in: bool,
}

/// A queue with a rate, as a number of bytes that drains.
#[derive(Clone, Copy, Default)]
struct Wire {
    free_at: Nanos,
}

impl Wire {
    /// When a frame will have left, or none if it does not fit into the queue.
    fn pass(&mut self, now: Nanos, bytes: usize, rate: f64, queue: usize) -> Option<Nanos> {
        let waiting = self.free_at.saturating_sub(now) as f64 * rate / 1e9;
        if waiting + bytes as f64 > queue as f64 {
            return None;
        }
        let wire = (bytes + 24).max(84);
        self.free_at = self.free_at.max(now) + (wire as f64 * 1e9 / rate) as Nanos;
        Some(self.free_at)
    }
}

pub struct Port {
    switch: usize,
    pub address: Mac,
    /// The last data frame, control message and broadcast from the host, as a bystander sees them.
    pub sniffed: Bytes,
    pub sniffed_control: Bytes,
    pub sniffed_hello: Bytes,
    pub faults: Faults,
    pub rate: f64,
    out: Wire,
    /// Whether the host's socket is full.
    blocked: bool,
    /// When the last frame from the host reached its switch.
    reached: Nanos,
    /// The switch's queue towards the host.
    down: Wire,
    /// Frames that came while the host was asleep, and when.
    waiting: Vec<(Nanos, Mac, Bytes)>,
    /// Frames that the switch dropped towards the host.
    pub overflows: u64,
}

pub struct Host {
    /// Until when it gets no processor time.
    asleep: Nanos,
    pub node: Mac,
    pub trunk: Trunk,
    pub ports: Vec<Port>,
    pub events: Vec<(Nanos, Event)>,
    /// Frames of the EtherType [`FORGED`] that were delivered.
    pub forged: u64,
    /// Frames delivered from each host, and wire bytes.
    pub received: Vec<u64>,
    pub bytes: Vec<u64>,
    /// The number of the last frame from each host.
    last: Vec<u64>,
    /// When a frame was last delivered, and the longest pause.
    pub last_delivery: Nanos,
    pub longest_pause: Nanos,
    /// Frames handed to the trunk for each host.
    pub sent: Vec<u64>,
}

/// A frame in transit to a switch or to a host.
struct Transit {
    to: End,
    source: Mac,
    payload: Bytes,
}

#[derive(Clone, Copy)]
enum End {
    Switch {
        switch: usize,
        /// The host and its port.
        from: (usize, usize),
        destination: Mac,
        sent: Faults,
    },
    Host(usize, usize),
}

/// A stream of frames at a constant rate.
struct Stream {
    from: usize,
    to: usize,
    interval: Nanos,
    next: Nanos,
    payload: usize,
}

pub struct Network {
    pub now: Nanos,
    pub hosts: Vec<Host>,
    options: Options,
    random: SplitMix64,
    /// The port at which each switch has last heard each address.
    learned: BTreeMap<(usize, Mac), (usize, usize)>,
    arrivals: BinaryHeap<Reverse<(Nanos, u64)>>,
    in_flight: BTreeMap<u64, Transit>,
    serial: u64,
    streams: Vec<Stream>,
}

/// What the hosts of a network have in common.
#[derive(Clone, Copy)]
pub struct Options {
    pub policy: Policy,
    /// The rate that the interfaces report.
    pub rate: f64,
    pub counts_only: bool,
    pub key: Option<&'static [u8]>,
}

impl Options {
    pub const MAX_MIN: Options = Options {
        policy: Policy::MaxMin,
        rate: FAST_ETHERNET,
        counts_only: false,
        key: Some(b"shared"),
    };
}

fn mac(host: usize, port: usize) -> Mac {
    Mac([2, 0, 0, port as u8, (host >> 8) as u8, host as u8])
}

impl Network {
    /// Creates hosts that have links to these switches, all of the same rate.
    pub fn new(seed: u64, policy: Policy, topology: &[&[usize]]) -> Network {
        Network::claiming(seed, policy, topology, FAST_ETHERNET)
    }

    /// RI2N, in which only counts show failures.
    pub fn counting(seed: u64, topology: &[&[usize]]) -> Network {
        let options = Options {
            policy: Policy::RoundRobin,
            counts_only: true,
            ..Options::MAX_MIN
        };
        Network::with(seed, topology, options)
    }

    /// Like [`Network::new`], but the interfaces report this rate.
    pub fn claiming(seed: u64, policy: Policy, topology: &[&[usize]], rate: f64) -> Network {
        let options = Options {
            policy,
            rate,
            ..Options::MAX_MIN
        };
        Network::with(seed, topology, options)
    }

    /// Max-min without a key.
    pub fn keyless(seed: u64, topology: &[&[usize]]) -> Network {
        let options = Options {
            key: None,
            ..Options::MAX_MIN
        };
        Network::with(seed, topology, options)
    }

    pub fn with(seed: u64, topology: &[&[usize]], options: Options) -> Network {
        let mut network = Network {
            now: SECOND,
            hosts: Vec::new(),
            options,
            random: SplitMix64::new(seed),
            learned: BTreeMap::new(),
            arrivals: BinaryHeap::new(),
            in_flight: Default::default(),
            serial: 0,
            streams: Vec::new(),
        };
        for (host, switches) in topology.iter().enumerate() {
            let ports: Vec<(usize, Mac)> = switches
                .iter()
                .map(|switch| (*switch, mac(host, *switch)))
                .collect();
            network.add_host(mac(host, 0xff), &ports, topology.len());
        }
        network
    }

    /// Adds a host with one link, whose address is that of a link of another host. It also has the
    /// address of that host's virtual interface if `clone` is true.
    pub fn add_impostor(&mut self, of: usize, port: usize, clone: bool) -> usize {
        let index = self.hosts.len();
        let victim = &self.hosts[of].ports[port];
        let ports = [(victim.switch, victim.address)];
        let node = match clone {
            true => self.hosts[of].node,
            false => mac(index, 0xff),
        };
        self.add_host(node, &ports, index + 1);
        index
    }

    /// Cuts all links of a host.
    pub fn unplug(&mut self, host: usize) {
        for port in &mut self.hosts[host].ports {
            (port.faults.deaf_in, port.faults.deaf_out) = (true, true);
        }
    }

    /// Plugs a link of a host into another switch.
    pub fn replug(&mut self, host: usize, port: usize, switch: usize) {
        self.hosts[host].ports[port].switch = switch;
    }

    /// Gives a host no processor time for a while. It finds all frames afterwards.
    pub fn starve(&mut self, host: usize, duration: Nanos) {
        self.hosts[host].asleep = self.now + duration;
    }

    /// Hands a host a frame that somebody has put on the wire of a link.
    pub fn inject(&mut self, host: usize, link: usize, source: Mac, payload: &Bytes) {
        let trunk = &mut self.hosts[host].trunk;
        trunk.handle_frame(self.now, link, source, payload, self.now);
        self.drain(host);
    }

    /// Adds a host with a link for each pair of a switch and an address.
    fn add_host(&mut self, node: Mac, ports: &[(usize, Mac)], hosts: usize) {
        let options = self.options;
        let host = self.hosts.len();
        let links = ports.iter().map(|(switch, address)| LinkConfig {
            name: format!("h{host}s{switch}"),
            address: *address,
            rate: options.rate,
            mtu: 1500,
        });
        let config = Config {
            node,
            links: links.collect(),
            policy: options.policy,
            repair: options.policy == Policy::MaxMin,
            order: true,
            counts_only: options.counts_only,
            span: if options.counts_only {
                2 * SECOND
            } else {
                200 * MILLISECOND
            },
            key: options.key.map(<[u8]>::to_vec),
            session: 1 + self.random.below(u64::from(u32::MAX) - 1) as u32,
            seed: std::array::from_fn(|_| self.random.below(256) as u8),
            limits: Limits::default(),
        };
        let port = |(switch, address): &(usize, Mac)| Port {
            switch: *switch,
            address: *address,
            sniffed: Bytes::new(),
            sniffed_control: Bytes::new(),
            sniffed_hello: Bytes::new(),
            faults: Faults::default(),
            rate: FAST_ETHERNET,
            out: Wire::default(),
            blocked: false,
            reached: 0,
            down: Wire::default(),
            waiting: Vec::new(),
            overflows: 0,
        };
        self.hosts.push(Host {
            asleep: 0,
            node,
            trunk: Trunk::new(config, self.now).unwrap(),
            ports: ports.iter().map(port).collect(),
            events: Vec::new(),
            forged: 0,
            received: vec![0; hosts],
            bytes: vec![0; hosts],
            last: vec![0; hosts],
            last_delivery: 0,
            longest_pause: 0,
            sent: vec![0; hosts],
        });
    }

    /// A stream of full frames at a payload rate in bytes a second.
    pub fn stream(&mut self, from: usize, to: usize, rate: f64) {
        let interval = (PAYLOAD as f64 * 1e9 / rate) as Nanos;
        self.streams.push(Stream {
            from,
            to,
            interval,
            next: self.now,
            payload: PAYLOAD,
        });
    }

    pub fn sparse_stream(&mut self, from: usize, to: usize, interval: Nanos) {
        self.streams.push(Stream {
            from,
            to,
            interval,
            next: self.now,
            payload: 98,
        });
    }

    pub fn stop_streams(&mut self) {
        self.streams.clear();
    }

    /// Advances the time.
    pub fn run(&mut self, duration: Nanos) {
        let end = self.now + duration;
        while self.now < end {
            let arrival = self
                .arrivals
                .peek()
                .map_or(Nanos::MAX, |Reverse((at, _))| *at);
            let stream = self.streams.iter().map(|stream| stream.next).min();
            let timeout = self
                .hosts
                .iter()
                .map(|host| host.trunk.poll_timeout(self.now).max(host.asleep))
                .min();
            let ports = self.hosts.iter().flat_map(|host| &host.ports);
            let blocked = ports.filter(|port| port.blocked);
            let writable = blocked.map(|port| port.out.free_at - SOCKET / 2).min();
            let next = arrival
                .min(stream.unwrap_or(end))
                .min(timeout.unwrap_or(end));
            let next = next.min(writable.unwrap_or(end)).min(end);
            self.now = next.max(self.now);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        let mut touched: VecDeque<usize> = VecDeque::new();
        for host in self.hosts.iter_mut().filter(|host| now >= host.asleep) {
            for (link, port) in host.ports.iter_mut().enumerate() {
                for (came, source, payload) in port.waiting.drain(..) {
                    let trunk = &mut host.trunk;
                    trunk.handle_frame(now, link, source, &payload, came);
                }
            }
        }
        while let Some(&Reverse((at, serial))) = self.arrivals.peek().filter(|a| a.0.0 <= now) {
            self.arrivals.pop();
            debug_assert!(at <= now);
            let frame = self.in_flight.remove(&serial).unwrap();
            match frame.to {
                End::Switch { .. } => self.switch(&frame),
                End::Host(host, port) if now < self.hosts[host].asleep => {
                    let waiting = &mut self.hosts[host].ports[port].waiting;
                    waiting.push((at, frame.source, frame.payload));
                }
                End::Host(host, port) => {
                    let trunk = &mut self.hosts[host].trunk;
                    trunk.handle_frame(now, port, frame.source, &frame.payload, now);
                    touched.push_back(host);
                }
            }
        }
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            if stream.next > now {
                continue;
            }
            stream.next += stream.interval;
            let (from, to, payload) = (stream.from, stream.to, stream.payload);
            let destination = self.hosts[to].node;
            self.offer(from, to, destination, payload);
            touched.push_back(from);
        }
        for host in 0..self.hosts.len() {
            if now < self.hosts[host].asleep {
                continue;
            }
            for link in 0..self.hosts[host].ports.len() {
                let port = &mut self.hosts[host].ports[link];
                if port.blocked && port.out.free_at <= now + SOCKET / 2 {
                    port.blocked = false;
                    self.hosts[host].trunk.handle_blocked(link, false);
                    touched.push_back(host);
                }
            }
            if self.hosts[host].trunk.poll_timeout(now) <= now {
                self.hosts[host].trunk.handle_timeout(now);
                touched.push_back(host);
            }
        }
        touched.retain(|host| now >= self.hosts[*host].asleep);
        while let Some(host) = touched.pop_front() {
            self.drain(host);
        }
    }

    /// Hands a numbered frame to a host's trunk; `to` is where its number is counted.
    pub fn offer(&mut self, from: usize, to: usize, destination: Mac, payload: usize) {
        let host = &mut self.hosts[from];
        host.sent[to] += 1;
        let mut frame = Vec::with_capacity(payload + 14);
        frame.extend(destination.0);
        frame.extend(host.node.0);
        frame.extend(NUMBERED.to_be_bytes());
        frame.extend(host.sent[to].to_be_bytes());
        frame.resize(payload + 14, 0);
        host.trunk.handle_outgoing(self.now, &frame.into());
    }

    fn drain(&mut self, index: usize) {
        let overhead = SHIM_BYTES + self.options.key.map_or(0, |_| SEAL_BYTES);
        while let Some(transmit) = self.hosts[index].trunk.poll_transmit(self.now) {
            self.transmit(index, &transmit);
        }
        let host = &mut self.hosts[index];
        while let Some(event) = host.trunk.poll_event() {
            host.events.push((self.now, event));
        }
        while let Some(deliver) = host.trunk.poll_deliver() {
            if deliver.header[12..] != NUMBERED.to_be_bytes() {
                host.forged += 1;
                continue;
            }
            let from = usize::from(deliver.header[11]);
            let number = u64::from_be_bytes(deliver.body[..8].try_into().unwrap());
            assert!(
                number > host.last[from],
                "{number} from {from} after {}",
                host.last[from]
            );
            host.last[from] = number;
            host.received[from] += 1;
            host.bytes[from] += (deliver.body.len() + 14 + 24 + overhead) as u64;
            if host.last_delivery > 0 {
                host.longest_pause = host.longest_pause.max(self.now - host.last_delivery);
            }
            host.last_delivery = self.now;
        }
    }

    fn transmit(&mut self, index: usize, transmit: &Transmit) {
        let payload: Bytes = [&transmit.header[..], &transmit.body].concat().into();
        let bytes = payload.len() + 14;
        let host = &mut self.hosts[index];
        let port = &mut host.ports[transmit.link];
        assert!(payload.len() <= 1500, "{} bytes", payload.len());
        if transmit.destination == Mac::BROADCAST {
            port.sniffed_hello = payload.clone();
        }
        match Shim::decode(&payload).map(|shim| shim.kind) {
            Ok(Kind::Control) => port.sniffed_control = payload.clone(),
            _ => port.sniffed = payload.clone(),
        }
        let (switch, source, faults) = (port.switch, port.address, port.faults);
        let Some(left) = port.out.pass(self.now, bytes, port.rate, HOST_QUEUE) else {
            return;
        };
        if left > self.now + SOCKET {
            port.blocked = true;
            host.trunk.handle_blocked(transmit.link, true);
        }
        if faults.deaf_out {
            return;
        }
        // A small random delay: senders in step would always lose to the same one.
        let left = (left + self.random.below(200_000)).max(port.reached);
        port.reached = left;
        let to = End::Switch {
            switch,
            from: (index, transmit.link),
            destination: transmit.destination,
            sent: faults,
        };
        self.launch(
            left,
            Transit {
                to,
                source,
                payload,
            },
        );
    }

    fn launch(&mut self, at: Nanos, transit: Transit) {
        self.serial += 1;
        self.arrivals.push(Reverse((at, self.serial)));
        self.in_flight.insert(self.serial, transit);
    }

    fn switch(&mut self, frame: &Transit) {
        let End::Switch {
            switch,
            from,
            destination,
            sent,
        } = frame.to
        else {
            return;
        };
        self.learned.insert((switch, frame.source), from);
        let learned = self.learned.get(&(switch, destination)).copied();
        for host in 0..self.hosts.len() {
            let ports = self.hosts[host].ports.iter();
            let reached = ports.enumerate().find(|(index, port)| {
                port.switch == switch
                    && (host, *index) != from
                    && (destination == Mac::BROADCAST || destination == port.address)
                    && learned.is_none_or(|at| at == (host, *index))
            });
            if let Some((port, _)) = reached {
                self.forward(sent, (host, port), frame);
            }
        }
    }

    fn forward(&mut self, sent: Faults, (host, port): (usize, usize), frame: &Transit) {
        let to = &mut self.hosts[host].ports[port];
        let bytes = frame.payload.len() + 14;
        let Some(mut at) = to.down.pass(self.now, bytes, to.rate, SWITCH_QUEUE) else {
            to.overflows += 1;
            return;
        };
        let received = to.faults;
        if received.deaf_in {
            return;
        }
        let random = &mut self.random;
        if chance(random, sent.loss) || chance(random, received.loss) {
            return;
        }
        let reordered = chance(random, sent.reordering + received.reordering);
        let delay = sent.delay + received.delay;
        if delay > 0 {
            // A constant delay keeps the order; reordered frames get more.
            at += delay
                + if reordered {
                    random.below(2 * delay)
                } else {
                    0
                };
        } else if reordered {
            at += random.below(MILLISECOND);
        }
        let copies = 1 + u64::from(chance(random, sent.duplication + received.duplication));
        for copy in 0..copies {
            let to = End::Host(host, port);
            let (source, payload) = (frame.source, frame.payload.clone());
            self.launch(
                at + copy * 100_000,
                Transit {
                    to,
                    source,
                    payload,
                },
            );
        }
    }

    /// Resets the counters.
    pub fn reset_counts(&mut self) {
        for host in &mut self.hosts {
            host.received.fill(0);
            host.bytes.fill(0);
            host.longest_pause = 0;
        }
    }

    /// Rates of the clients at host 0 since [`Network::reset_counts`], as shares of a link.
    pub fn shares(&self, duration: Nanos) -> Vec<f64> {
        let seconds = duration as f64 / 1e9;
        self.hosts[0].bytes[1..]
            .iter()
            .map(|b| *b as f64 / seconds / FAST_ETHERNET)
            .collect()
    }
}

/// Jain's index of the rates relative to their ideal shares.
pub fn jain(shares: &[f64], ideal: &[f64]) -> f64 {
    let ratios: Vec<f64> = shares
        .iter()
        .zip(ideal)
        .map(|(share, ideal)| share / ideal)
        .collect();
    let sum: f64 = ratios.iter().sum();
    let squares: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    sum * sum / (ratios.len() as f64 * squares)
}

//! Clients that call one server again and again: the experiments of the first Ninf paper (section
//! 4).
//!
//! At each step a client calls with some probability, and it waits for its result before the next
//! step. Transfers use the lines of the client, of its site and of the server. They also use the
//! server's processors, which they share with computations: on the paper's LAN a transfer at full
//! rate takes more than one processor. One max-min solver divides lines and processors. It counts
//! processor time as the bytes that could be transferred with it.

use crate::network::Network;
use crate::scenario::{Arrival, Port};
use farcall_flow::platform::LinkId;
use farcall_random::SplitMix64;
use farcall_schedule::Queue;
use farcall_schedule::queue::{Nanos, Policy, Request, Settings};

/// Bytes for a second of processor time, at a server whose transfers take no processor time.
const BYTES_OF_SECOND: f64 = 1e9;

/// The server of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Number of processor elements.
    pub pes: u32,
    /// The order in which calls start.
    pub policy: Policy,
    /// Processors that other programs keep busy.
    pub background: f64,
    /// Seconds of processor time for each byte of a transfer.
    pub byte_s: f64,
    /// Seconds from a call until the server takes its arguments.
    pub startup_s: f64,
    /// The line before the server, which all sites share.
    pub port: Port,
}

/// A site of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Crowd {
    /// Number of clients.
    pub clients: u32,
    /// Bytes per second of each client's own line, in both directions.
    pub line: f64,
    /// The line that the clients share.
    pub port: Port,
}

/// What the clients call.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// Its work and its bytes. The time and the site do not count.
    pub call: Arrival,
    /// Seconds for which it computes if nothing else runs.
    pub seconds: f64,
    /// Threads with which it computes.
    pub threads: u32,
    /// Part of its computing time for which a thread needs a processor, up to 1.
    pub busy: f64,
}

/// Clients that call one server again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Of the clients' choices.
    pub seed: u64,
    /// The server.
    pub host: Host,
    /// The sites.
    pub sites: Vec<Crowd>,
    /// The call.
    pub repeated: Repeated,
    /// Seconds of a step.
    pub step_s: f64,
    /// Probability of a call at a step, above 0.
    pub probability: f64,
    /// Number of calls that are measured.
    pub calls: usize,
}

/// The largest, the smallest and the mean of some figures; all are NaN if there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The largest.
    pub max: f64,
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
}

impl Spread {
    fn of(figures: impl Iterator<Item = f64> + Clone) -> Spread {
        let count = figures.clone().count() as f64;
        Spread {
            max: figures.clone().fold(f64::NAN, f64::max),
            min: figures.clone().fold(f64::NAN, f64::min),
            mean: figures.sum::<f64>() / count,
        }
    }
}

/// The rates of calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Operations of a call, divided by its seconds at the client.
    pub operations_per_s: Spread,
    /// Bytes of a call, divided by the seconds for which they travel.
    pub bytes_per_s: Spread,
}

impl Rates {
    fn of<'a>(call: &Arrival, ended: impl Iterator<Item = &'a Ended> + Clone) -> Rates {
        let bytes = (call.up_bytes + call.down_bytes) as f64;
        Rates {
            operations_per_s: Spread::of(ended.clone().map(|one| call.work / one.seconds)),
            bytes_per_s: Spread::of(ended.map(|one| bytes / one.travelled_s)),
        }
    }
}

/// The figures of a load, as the tables of the paper have them.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The rates of all calls.
    pub rates: Rates,
    /// The rates of each site's calls; NaN for a site none of whose calls was measured.
    pub sites: Vec<Rates>,
    /// Part of the processors that is busy, from 0 to 1.
    pub utilisation: f64,
    /// Mean number of processes that compute, transfer, or wait for a processor.
    pub load: f64,
    /// Mean seconds of a call at the client.
    pub response_s: f64,
    /// Mean seconds for which a call waits for processor elements.
    pub wait_s: f64,
    /// Seconds until the last call was done.
    pub makespan_s: f64,
}

/// The stage of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Starting,
    Sending,
    /// The last byte of its arguments is on its way.
    Arriving,
    Waiting,
    /// The number of threads that still compute.
    Computing(u32),
    Receiving,
    /// The last byte of its results is on its way.
    Returning,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    site: usize,
    stage: Stage,
    /// When the stage ends, if neither a transfer nor the queue ends it.
    until_s: f64,
    called_s: f64,
    /// When the present transfer began, or the wait for processor elements.
    since_s: f64,
    travelled_s: f64,
    waited_s: f64,
}

struct Simulation<'a> {
    load: &'a Load,
    random: SplitMix64,
    network: Network,
    queue: Queue,
    clients: Vec<Client>,
    now_s: f64,
    /// Integrals over time: of busy processors, and of runnable processes.
    busy_s: f64,
    runnable_s: f64,
    ended: Vec<Ended>,
}

/// A call that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    site: usize,
    /// At the client.
    seconds: f64,
    travelled_s: f64,
    waited_s: f64,
}

/// Runs a load until the calls that are measured have ended.
pub fn simulate_load(load: &Load) -> Figures {
    let mut simulation = Simulation::new(load);
    while simulation.ended.len() < load.calls && simulation.step() {}
    simulation.figures()
}

impl<'a> Simulation<'a> {
    fn new(load: &'a Load) -> Simulation<'a> {
        let host = &load.host;
        let sites = load.sites.iter().enumerate();
        let sites = sites.flat_map(|(site, crowd)| (0..crowd.clients).map(move |_| site));
        let mut random = SplitMix64::new(load.seed);
        let clients: Vec<Client> = sites
            .map(|site| Client {
                site,
                stage: Stage::Idle,
                until_s: random.unit() * load.step_s + pause_s(load, &mut random),
                called_s: 0.0,
                since_s: 0.0,
                travelled_s: 0.0,
                waited_s: 0.0,
            })
            .collect();
        let ports = load.sites.iter().map(|crowd| crowd.port).chain([host.port]);
        let mut rates: Vec<f64> = ports.flat_map(|port| [port.up, port.down]).collect();
        let free = (f64::from(host.pes) - host.background).max(1e-3);
        rates.push(free * bytes_of_second(host));
        for client in &clients {
            rates.push(load.sites[client.site].line);
            let thread = load.repeated.busy * bytes_of_second(host);
            rates.extend((0..load.repeated.threads).map(|_| thread));
        }
        let settings = Settings {
            policy: host.policy,
            half_life_s: None,
            ..Settings::new(host.pes)
        };
        Simulation {
            load,
            random,
            network: Network::new(&rates, 4),
            queue: Queue::new(settings),
            clients,
            now_s: 0.0,
            busy_s: 0.0,
            runnable_s: 0.0,
            ended: Vec::new(),
        }
    }

    /// The link of the server's processors.
    fn processors(&self) -> LinkId {
        2 * (self.load.sites.len() as LinkId + 1)
    }

    /// The first of a client's own links: its line. Those of its threads follow.
    fn line(&self, client: usize) -> LinkId {
        let each = 1 + self.load.repeated.threads;
        self.processors() + 1 + each * client as LinkId
    }

    /// Goes on to the next event. Returns `false` if there is none.
    fn step(&mut self) -> bool {
        let timed = self.clients.iter().map(|client| client.until_s);
        let next_s = timed.fold(self.network.next_s(), f64::min);
        if next_s == f64::INFINITY {
            return false;
        }
        let next_s = next_s.max(self.now_s);
        let (processes, bytes_per_s) = self.network.use_of(self.processors());
        let (host, seconds) = (&self.load.host, next_s - self.now_s);
        let busy = bytes_per_s / bytes_of_second(host) + host.background;
        self.busy_s += busy * seconds;
        self.runnable_s += (processes as f64 + host.background) * seconds;
        self.now_s = next_s;
        self.network.advance(next_s);
        while let Some(ended) = self.network.take_ended() {
            self.flowed(ended.call);
        }
        for client in 0..self.clients.len() {
            if self.clients[client].until_s <= self.now_s {
                self.clients[client].until_s = f64::INFINITY;
                self.passed(client);
            }
        }
        true
    }

    /// Handles the end of a transfer or of a thread.
    fn flowed(&mut self, client: usize) {
        let since_s = self.clients[client].since_s;
        let site = self.clients[client].site;
        let latency_s = self.load.sites[site].port.latency_s + self.load.host.port.latency_s;
        match self.clients[client].stage {
            Stage::Computing(1) => {
                let now = self.nanos();
                self.queue.remove(client as u64, now);
                self.start_waiting();
                self.transfer(client, 1, self.load.repeated.call.down_bytes);
                self.clients[client].stage = Stage::Receiving;
            }
            Stage::Computing(threads) => {
                self.clients[client].stage = Stage::Computing(threads - 1);
            }
            stage => {
                let travelled_s = self.now_s - since_s + latency_s;
                self.clients[client].travelled_s += travelled_s;
                let next = match stage {
                    Stage::Sending => Stage::Arriving,
                    _ => Stage::Returning,
                };
                self.enter(client, next, latency_s);
            }
        }
    }

    /// Handles the end of a stage of known length.
    fn passed(&mut self, client: usize) {
        match self.clients[client].stage {
            Stage::Idle => {
                let at = &mut self.clients[client];
                (at.called_s, at.travelled_s, at.waited_s) = (self.now_s, 0.0, 0.0);
                self.enter(client, Stage::Starting, self.load.host.startup_s);
            }
            Stage::Starting => {
                self.transfer(client, 0, self.load.repeated.call.up_bytes);
                self.clients[client].stage = Stage::Sending;
            }
            Stage::Arriving => self.enqueue(client),
            _ => {
                let at = self.clients[client];
                self.ended.push(Ended {
                    site: at.site,
                    seconds: self.now_s - at.called_s,
                    travelled_s: at.travelled_s,
                    waited_s: at.waited_s,
                });
                let pause_s = pause_s(self.load, &mut self.random);
                self.enter(client, Stage::Idle, pause_s);
            }
        }
    }

    fn enter(&mut self, client: usize, stage: Stage, seconds: f64) {
        self.clients[client].stage = stage;
        self.clients[client].until_s = self.now_s + seconds;
    }

    /// Starts a transfer: up (0) or down (1).
    fn transfer(&mut self, client: usize, down: LinkId, bytes: u64) {
        let site = self.clients[client].site as LinkId;
        let host = self.load.sites.len() as LinkId;
        let line = self.line(client);
        let path = [line, 2 * site + down, 2 * host + down, self.processors()];
        let takes_processor = self.load.host.byte_s > 0.0;
        let path = &path[..if takes_processor { 4 } else { 3 }];
        self.network.begin(client, path, bytes as f64);
        self.clients[client].since_s = self.now_s;
    }

    fn enqueue(&mut self, client: usize) {
        let request = Request {
            id: client as u64,
            user: 0,
            fewest: 1,
            most: self.load.repeated.threads,
            gpus: 0,
            seconds: Some(self.load.repeated.seconds),
            priority: 0,
            reservation: None,
        };
        self.clients[client].stage = Stage::Waiting;
        self.clients[client].since_s = self.now_s;
        let start = self.queue.push(request, self.nanos());
        if let Some(start) = start {
            self.start(client, start.pes);
        }
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        let now = self.nanos();
        while let Some(start) = self.queue.next(now) {
            self.start(start.id as usize, start.pes);
        }
    }

    /// Starts the threads of a call.
    fn start(&mut self, client: usize, pes: u32) {
        let repeated = &self.load.repeated;
        let threads = pes.clamp(1, repeated.threads);
        let slower = f64::from(repeated.threads) / f64::from(threads);
        let seconds = repeated.seconds * slower * repeated.busy;
        let bytes = seconds * bytes_of_second(&self.load.host);
        let (line, processors) = (self.line(client), self.processors());
        for thread in 1..=threads {
            let path = [line + thread, processors];
            self.network.begin(client, &path, bytes);
        }
        let at = &mut self.clients[client];
        at.waited_s = self.now_s - at.since_s;
        at.stage = Stage::Computing(threads);
    }

    fn figures(&self) -> Figures {
        let call = &self.load.repeated.call;
        let mean = |figure: fn(&Ended) -> f64| {
            let sum: f64 = self.ended.iter().map(figure).sum();
            sum / self.ended.len().max(1) as f64
        };
        let site = |site| {
            let here = self.ended.iter().filter(move |one| one.site == site);
            Rates::of(call, here)
        };
        let processor_s = f64::from(self.load.host.pes) * self.now_s;
        Figures {
            rates: Rates::of(call, self.ended.iter()),
            sites: (0..self.load.sites.len()).map(site).collect(),
            utilisation: self.busy_s / processor_s,
            load: self.runnable_s / self.now_s,
            response_s: mean(|one| one.seconds),
            wait_s: mean(|one| one.waited_s),
            makespan_s: self.now_s,
        }
    }

    fn nanos(&self) -> Nanos {
        (self.now_s * 1e9) as Nanos
    }
}

/// The time until a client calls: a step for each time that it does not.
fn pause_s(load: &Load, random: &mut SplitMix64) -> f64 {
    let mut pause_s = 0.0;
    while random.unit() >= load.probability {
        pause_s += load.step_s;
    }
    pause_s
}

/// Bytes that a processor could transfer in a second.
fn bytes_of_second(host: &Host) -> f64 {
    match host.byte_s > 0.0 {
        true => 1.0 / host.byte_s,
        false => BYTES_OF_SECOND,
    }
}

//! Simulates every call from its placement to its results, in virtual time. The placement is the
//! product's own, from `farcall_schedule`. The transfers are in `network`. The same scenario and
//! policy always give the same outcome.

use crate::network::{Network, Transfer};
use crate::scenario::{Arrival, Machine, Scenario};
use crate::view::View;
use farcall_flow::platform::LinkId;
use farcall_schedule::Queue;
use farcall_schedule::placement::{Link, Policy, Server};
use farcall_schedule::queue::{Nanos, Request, Settings};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The result of a call. Moments that it has not reached are infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The server where the call was placed.
    pub server: usize,
    /// Time of the call, in seconds.
    pub at_s: f64,
    /// Predicted duration at the time of placement, in seconds.
    pub predicted_s: f64,
    /// Time at which its arguments were at the server, in seconds.
    pub arrived_s: f64,
    /// Time at which it began to compute, in seconds.
    pub started_s: f64,
    /// Time at which it had computed, in seconds.
    pub computed_s: f64,
    /// Actual duration, in seconds; infinite if no server has the function.
    pub seconds: f64,
    /// Time at which the call was done, in seconds.
    pub done_s: f64,
}

impl Default for Record {
    /// Of a call at time 0 that never ends.
    fn default() -> Record {
        Record {
            server: 0,
            at_s: 0.0,
            predicted_s: f64::NAN,
            arrived_s: f64::INFINITY,
            started_s: f64::INFINITY,
            computed_s: f64::INFINITY,
            seconds: f64::INFINITY,
            done_s: f64::INFINITY,
        }
    }
}

/// The results of all calls, in the order of the scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// One record for each call.
    pub records: Vec<Record>,
}

impl Outcome {
    /// Time at which the last call was done.
    pub fn makespan_s(&self) -> f64 {
        self.records
            .iter()
            .map(|one| one.done_s)
            .fold(0.0, f64::max)
    }

    /// Mean seconds from a call to its results; 0 without calls.
    pub fn mean_response_s(&self) -> f64 {
        let seconds = self.records.iter().map(|one| one.seconds);
        // The sum of nothing would be -0.
        let sum = seconds.fold(0.0, |sum, one| sum + one);
        sum / self.records.len().max(1) as f64
    }

    /// Seconds from a call to its results that this part of the calls does not exceed.
    pub fn response_s(&self, part: f64) -> f64 {
        let mut seconds: Vec<f64> = self.records.iter().map(|one| one.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len().saturating_sub(1) as f64;
        seconds
            .get((part * last).round() as usize)
            .copied()
            .unwrap_or(0.0)
    }

    /// Median relative error of the predicted times. It leaves out the first `first` calls and is 0
    /// if no others exist.
    pub fn median_error(&self, first: usize) -> f64 {
        let records = self.records.iter().skip(first);
        let mut errors: Vec<f64> = records
            .map(|one| (one.predicted_s / one.seconds - 1.0).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        farcall_schedule::median(&errors).unwrap_or(0.0)
    }
}

/// The stage of a call.
#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// Is not made yet.
    #[default]
    Ahead,
    /// Sends its arguments; the number is its slot in the network.
    Up(usize),
    /// The last byte of its arguments has been sent and is still travelling.
    Arriving,
    Waiting,
    Running {
        pes: u32,
        since_s: f64,
        seconds: f64,
        predicted_s: f64,
    },
    /// Sends its results; the number is its slot in the network.
    Down(usize),
    /// The last byte of its results has been sent; it is still travelling or has arrived.
    Done,
}

/// An event of a call. The ends of transfers are not among these events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Made,
    ArgumentsThere,
    Computed,
    ResultsThere,
}

#[derive(Clone, Copy, Debug, Default)]
struct Call {
    stage: Stage,
    /// Its number in the order of placements.
    placement: u64,
    record: Record,
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    network: Network,
    queues: Vec<Queue>,
    view: View,
    calls: Vec<Call>,
    /// The calls that come after each call.
    followers: Vec<Vec<usize>>,
    /// The first link of each path with links of its own.
    paths: BTreeMap<(usize, usize), LinkId>,
    /// The calls of each server by the number of their placement.
    placed: Vec<BTreeMap<u64, usize>>,
    placements: u64,
    /// Pending events. Times are stored as bits, which sort like the numbers.
    events: BinaryHeap<Reverse<(u64, usize, Event)>>,
    now_s: f64,
}

/// Runs a scenario with a placement policy until all results are back at the clients.
pub fn simulate(scenario: &Scenario, policy: Policy) -> Outcome {
    let mut simulation = Simulation::new(scenario, policy);
    simulation.run();
    Outcome {
        records: simulation.calls.iter().map(|call| call.record).collect(),
    }
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, policy: Policy) -> Simulation<'a> {
        let sites = scenario.sites.iter().map(|site| site.port);
        let ports = sites.chain(scenario.machines.iter().map(|machine| machine.port));
        let ports = ports.chain(scenario.paths.values().copied());
        let rates: Vec<f64> = ports.flat_map(|port| [port.up, port.down]).collect();
        let queue = |machine: &Machine| {
            Queue::new(Settings {
                policy: machine.policy,
                half_life_s: machine.half_life_s,
                ..Settings::new(machine.pes)
            })
        };
        let hosts = scenario.sites.len() + scenario.machines.len();
        let paths = scenario.paths.keys().copied().enumerate();
        let paths = paths.map(|(number, path)| (path, 2 * (hosts + number) as LinkId));
        let arrivals = scenario.arrivals.iter().enumerate();
        let mut followers = vec![Vec::new(); scenario.arrivals.len()];
        for (call, one) in arrivals.clone() {
            if let Some(followers) = one.after.and_then(|after| followers.get_mut(after)) {
                followers.push(call);
            }
        }
        Simulation {
            scenario,
            network: Network::new(&rates, 3),
            queues: scenario.machines.iter().map(queue).collect(),
            view: View::new(scenario, policy),
            calls: scenario.arrivals.iter().map(|_| Call::default()).collect(),
            followers,
            paths: paths.collect(),
            placed: vec![BTreeMap::new(); scenario.machines.len()],
            placements: 0,
            events: arrivals
                .filter(|(_, one)| one.after.is_none())
                .map(|(call, one)| Reverse((one.at_s.to_bits(), call, Event::Made)))
                .collect(),
            now_s: 0.0,
        }
    }

    fn run(&mut self) {
        loop {
            let event = self.events.peek();
            let event_s =
                event.map_or(f64::INFINITY, |Reverse((bits, _, _))| f64::from_bits(*bits));
            let next_s = event_s.min(self.network.next_s());
            if next_s == f64::INFINITY {
                return;
            }
            self.now_s = next_s.max(self.now_s);
            self.network.advance(self.now_s);
            while let Some(ended) = self.network.take_ended() {
                self.transferred(&ended);
            }
            if event_s <= self.now_s
                && let Some(Reverse((_, call, event))) = self.events.pop()
            {
                self.happen(call, event);
            }
        }
    }

    fn happen(&mut self, call: usize, event: Event) {
        match event {
            Event::Made => self.place(call),
            Event::ArgumentsThere => self.enqueue(call),
            Event::Computed => self.computed(call),
            Event::ResultsThere => {
                let record = &mut self.calls[call].record;
                record.done_s = self.now_s;
                record.seconds = self.now_s - record.at_s;
                let server = record.server;
                self.placed[server].remove(&self.calls[call].placement);
                self.follow(call);
            }
        }
    }

    /// Lets the client of a call that is over make the next ones.
    fn follow(&mut self, call: usize) {
        for follower in std::mem::take(&mut self.followers[call]) {
            let gap_s = self.scenario.arrivals[follower].at_s;
            self.after(gap_s, follower, Event::Made);
        }
    }

    fn after(&mut self, seconds: f64, call: usize, event: Event) {
        let at = (self.now_s + seconds).to_bits();
        self.events.push(Reverse((at, call, event)));
    }

    /// Places a call.
    fn place(&mut self, call: usize) {
        self.calls[call].record.at_s = self.now_s;
        let Some((server, predicted_s)) = self.choose(call) else {
            return self.follow(call);
        };
        let slot = self.begin(call, server, 0, self.scenario.arrivals[call].up_bytes);
        self.placements += 1;
        self.placed[server].insert(self.placements, call);
        let state = &mut self.calls[call];
        state.placement = self.placements;
        state.stage = Stage::Up(slot);
        (state.record.server, state.record.predicted_s) = (server, predicted_s);
    }

    /// The server for a call, and its predicted duration there in seconds.
    fn choose(&mut self, call: usize) -> Option<(usize, f64)> {
        let arrival = &self.scenario.arrivals[call];
        let machines = self.scenario.machines.iter().enumerate();
        let has = |(_, machine): &(usize, &Machine)| machine.has(arrival.function);
        let having: Vec<(usize, &Machine)> = machines.filter(has).collect();
        if let Some(server) = arrival.server {
            let has = having.iter().any(|(one, _)| *one == server);
            return has.then_some((server, f64::NAN));
        }
        let is_there = |(_, machine): &&(usize, &Machine)| machine.present.contains(&self.now_s);
        // A client waits for a server if none is there.
        let anyway = !having.iter().any(|one| is_there(&one));
        let servers = having.iter().filter(|one| anyway || is_there(one));
        let servers: Vec<(usize, Server)> =
            servers.map(|(one, _)| (*one, self.server(*one))).collect();
        let links = self.site(arrival.site);
        let choice = self.view.choose(arrival, self.now_s, &servers, &links)?;
        Some((choice.id as usize, choice.terms.seconds()))
    }

    /// Starts a transfer, up or down, over the links of the call's site and server.
    fn begin(&mut self, call: usize, server: usize, down: LinkId, bytes: u64) -> usize {
        let Arrival { site, stretch, .. } = self.scenario.arrivals[call];
        let link = |host: usize| 2 * host as LinkId + down;
        let own = self.paths.get(&(site, server)).map(|own| own + down);
        let ends = [link(site), link(self.scenario.sites.len() + server)];
        let path: SmallVec<[LinkId; 3]> =
            [ends[0]].into_iter().chain(own).chain([ends[1]]).collect();
        let bytes = bytes as f64 * stretch[down as usize];
        self.network.begin(call, &path, bytes)
    }

    /// Seconds of a transfer, up (0) or down (1), beyond those in which the links carry it.
    fn latency(&self, call: usize, down: usize) -> f64 {
        let Arrival { site, pause_s, .. } = self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        let ends = [
            self.scenario.sites[site].port,
            self.scenario.machines[server].port,
        ];
        let own = self.scenario.path(site, server);
        ends.iter().map(|port| port.latency_s).sum::<f64>() + own.latency_s + pause_s[down]
    }

    fn transferred(&mut self, transfer: &Transfer) {
        let call = transfer.call;
        let arrival = &self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        let is_down = matches!(self.calls[call].stage, Stage::Down(_));
        let latency_s = self.latency(call, usize::from(is_down));
        let seconds = transfer.age(self.now_s) + latency_s;
        let sharing = transfer.sharing(self.now_s);
        let (site, up, down) = (arrival.site, arrival.up_bytes, arrival.down_bytes);
        if is_down {
            self.view.observe_down(site, server, down, seconds, sharing);
            self.after(latency_s, call, Event::ResultsThere);
            self.calls[call].stage = Stage::Done;
        } else {
            self.view.observe_up(site, server, up, seconds, sharing);
            self.after(latency_s, call, Event::ArgumentsThere);
            self.calls[call].stage = Stage::Arriving;
        }
    }

    fn enqueue(&mut self, call: usize) {
        let arrival = &self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        let request = Request {
            id: call as u64,
            user: arrival.user,
            fewest: arrival.fewest,
            most: arrival.most,
            gpus: 0,
            seconds: self.view.predicted(server, arrival),
            priority: 0,
            reservation: None,
        };
        self.calls[call].stage = Stage::Waiting;
        self.calls[call].record.arrived_s = self.now_s;
        let now = self.nanos();
        let start = self.queues[server].push(request, now);
        if let Some(start) = start {
            self.start(call, start.pes);
        }
        self.start_others(server);
    }

    fn start_others(&mut self, server: usize) {
        let now = self.nanos();
        while let Some(start) = self.queues[server].next(now) {
            self.start(start.id as usize, start.pes);
        }
    }

    /// Starts to compute.
    fn start(&mut self, call: usize, pes: u32) {
        let arrival = &self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        // A server that starts all calls at once gives each of them more than it can use.
        let pes = pes.min(arrival.most.max(arrival.fewest));
        let pace = &self.scenario.machines[server].functions[arrival.function];
        let seconds = pace.seconds(arrival.work, pes).unwrap_or(0.0) * arrival.noise;
        self.calls[call].record.started_s = self.now_s;
        self.calls[call].stage = Stage::Running {
            pes,
            since_s: self.now_s,
            seconds,
            predicted_s: self.view.seconds(server, arrival, pes),
        };
        self.after(seconds, call, Event::Computed);
    }

    fn computed(&mut self, call: usize) {
        let arrival = &self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        if let Stage::Running { pes, seconds, .. } = self.calls[call].stage {
            self.view.observe_call(server, arrival, pes, seconds);
        }
        self.calls[call].record.computed_s = self.now_s;
        let now = self.nanos();
        self.queues[server].remove(call as u64, now);
        self.start_others(server);
        let slot = self.begin(call, server, 1, arrival.down_bytes);
        self.calls[call].stage = Stage::Down(slot);
    }

    /// The present state of a server for the placement: its transfers with their remaining bytes,
    /// and its predicted backlog.
    fn server(&self, server: usize) -> Server {
        let [up, down] = self.view.server_links(server);
        let placed = &self.placed[server];
        let (ups, downs) = self.left(placed.values().copied(), true);
        let pes = self.scenario.machines[server].pes;
        let mut state = Server::idle(pes, u64::MAX, up.with(ups), down.with(downs));
        state.at_s = self.now_s;
        state.arrivals = self.view.arrivals(server);
        state.calls = placed.len() as u32;
        for &call in placed.values() {
            if let Stage::Running {
                pes,
                since_s,
                predicted_s,
                ..
            } = self.calls[call].stage
            {
                // A call that runs for longer than predicted probably needs some more time.
                let left_s = predicted_s - (self.now_s - since_s);
                state.backlog.take(0.0, pes, left_s.max(0.1 * predicted_s));
            }
        }
        // In this order, no call changes when those before it start.
        let mut coming: Vec<(f64, usize)> = Vec::new();
        for &call in placed.values() {
            match self.calls[call].stage {
                Stage::Waiting | Stage::Arriving => self.book(&mut state, call, 0.0),
                Stage::Up(slot) => {
                    coming.push((state.up.seconds(self.network.left(slot), 0.0), call));
                }
                _ => {}
            }
        }
        coming.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (ready_s, call) in coming {
            self.book(&mut state, call, ready_s);
        }
        state
    }

    /// Adds a call to the backlog of its server. Its arguments are there in `ready_s` seconds.
    fn book(&self, state: &mut Server, call: usize, ready_s: f64) {
        let arrival = &self.scenario.arrivals[call];
        let server = self.calls[call].record.server;
        let seconds = |pes| self.view.seconds(server, arrival, pes);
        let range = (arrival.fewest, arrival.most);
        let slot = state.backlog.slot(ready_s, range, seconds);
        let seconds = seconds(slot.pes);
        state.backlog.take(ready_s, slot.pes, seconds);
    }

    /// The links of a site with their present transfers.
    fn site(&self, site: usize) -> [Link; 2] {
        let [up, down] = self.view.site_links(site);
        let all = self.placed.iter().flat_map(BTreeMap::values).copied();
        let here = all.filter(|&call| self.scenario.arrivals[call].site == site);
        let (ups, downs) = self.left(here, false);
        [up.with(ups), down.with(downs)]
    }

    /// Remaining bytes of the transfers of these calls, up and down. With `to_come` they include
    /// the results that are not sent yet.
    fn left(&self, calls: impl Iterator<Item = usize>, to_come: bool) -> (Vec<f64>, Vec<f64>) {
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        for call in calls {
            let results = self.scenario.arrivals[call].down_bytes as f64;
            match self.calls[call].stage {
                Stage::Up(slot) => {
                    ups.push(self.network.left(slot));
                    downs.extend(to_come.then_some(results));
                }
                Stage::Arriving | Stage::Waiting | Stage::Running { .. } => {
                    downs.extend(to_come.then_some(results));
                }
                Stage::Down(slot) => downs.push(self.network.left(slot)),
                Stage::Ahead | Stage::Done => {}
            }
        }
        (ups, downs)
    }

    fn nanos(&self) -> Nanos {
        (self.now_s * 1e9) as Nanos
    }
}

//! The event engine. It advances simulated time from one batch of completions to the next.
//!
//! The engine decides when messages start and end. A driver decides what each rank does next, and
//! the solver computes the rates of the active flows.

mod calendar;
mod dag;
mod driver;
mod jobs;
mod queues;
mod record;
mod repeated;
mod report;
#[cfg(test)]
mod tests;
mod transfer;
mod watch;
mod workload;

use crate::placement::Placement;
use crate::platform::{LinkId, Platform};
use crate::routing::{Failure, Router, Routing};
use crate::solver::{EqualSplit, Iterated, MaxMin, Slot};
use calendar::Calendar;
pub(crate) use driver::{Action, Driver, Sending, latency};
pub use record::{Computation, LinkLoad, MessageRecord, Record, Sink};
pub use report::{Blocked, Deadlock, RunError};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use transfer::{Spread, WHOLE};
use watch::Watch;
pub use watch::{LinkUser, hottest_links};
pub use workload::{Job, Workload};

/// How the active flows share the links.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Exact max-min fairness.
    Exact,
    /// The paper's mode N with its threshold th; see [`Iterated`].
    Iterated {
        /// Largest relative change at which the rounds of step 5 end; the paper uses 0.01.
        threshold: f64,
    },
    /// The paper's mode F; see [`EqualSplit`].
    EqualSplit,
}

/// The event that completes a send and lets the sender start its next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The last byte has arrived.
    Destination,
    /// The last byte has left the sender, which is one latency earlier.
    Source,
}

/// Settings of a simulation. [`Config::default`] is the model of the paper with exact sharing.
#[derive(Debug, Clone)]
pub struct Config {
    /// The sharing rule.
    pub mode: Mode,
    /// Sends of one rank that may be active at a time; the paper's blocking send is 1.
    pub window: u32,
    /// The event that completes a send. `None` is [`Workload::default_completion`]. In a trace on
    /// hosts with costs, the size of a message decides, and this has no effect.
    pub completion: Option<Completion>,
    /// Fraction of its bandwidth by which the load of a link can be off, to save time; 0 for
    /// exact rates. The rates are then max-min fair for bandwidths that differ from those of the
    /// platform by at most this fraction, at each event by others. The simulation checks this by
    /// itself whenever as many batches have passed as there are flows ([`Mode::Exact`] only).
    pub tolerance: f64,
    /// Least time from one batch to the next in seconds (the paper's Resolu); 0 for none.
    pub resolution: f64,
    /// Whether to check the max-min certificate after every batch ([`Mode::Exact`] only).
    pub verify: bool,
    /// Whether to count the bytes that pass over every link.
    pub link_bytes: bool,
    /// Links for which the simulation counts who uses them, and tells a sink their load.
    pub watch: Vec<LinkId>,
    /// How messages get their routes.
    pub routing: Routing,
    /// Links and switches that fail. Flows on them go on over other routes.
    pub failures: Vec<Failure>,
    /// Seconds that a host needs for a message at each end, in patterns and pattern files: a sender
    /// before its first byte leaves, a receiver after the last byte has arrived. Traces have
    /// [`crate::LogGops`] instead.
    pub overhead: f64,
    /// Bytes of the packets that switches store before they forward them; 0 for none. It delays the
    /// end of a message by the time that its first packet needs on all links of its route but the
    /// slowest one. This is the largest part of what buffers cost.
    ///
    /// A message of one packet arrives when its flow has ended, but not before its packet can have
    /// passed all links one after another. The two times do not add up: packets that meet on a link
    /// pass it one after another, so they are out of step from then on, and do not meet again
    /// unless the link is full.
    pub stored_packet: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Exact,
            window: 1,
            completion: None,
            tolerance: 0.0,
            resolution: 0.0,
            verify: false,
            link_bytes: false,
            watch: Vec::new(),
            routing: Routing::Static,
            failures: Vec::new(),
            overhead: 0.0,
            stored_packet: 0.0,
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Time of the last completion, in seconds.
    pub makespan: f64,
    /// Messages that arrived.
    pub messages: u64,
    /// Batches of completions.
    pub events: u64,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    remaining: f64,
    since: f64,
    rate: f64,
    start: f64,
    /// Bytes of the message.
    bytes: f64,
    /// Bytes that this flow carries over its present route.
    part: f64,
    /// Seconds from the end of the flow to the arrival.
    latency: f64,
    /// Seconds from the start to the arrival, without the latency, at least.
    least: f64,
    rank: u32,
    to: u32,
    token: u32,
    /// The message, if it has several flows.
    spread: u32,
}

#[derive(Debug, Clone, Copy)]
enum Timer {
    Wake(u64),
    Arrive {
        rank: u32,
        to: u32,
        token: u32,
        start: f64,
        bytes: f64,
    },
}

/// A timer in the heap. The earliest comes first; equal times keep the order in which they were
/// set.
struct Due(f64, u64, Timer);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

enum Rates {
    Exact(MaxMin),
    EqualSplit(EqualSplit),
    Iterated(Iterated),
}

macro_rules! each_mode {
    ($rates:expr, $r:ident => $e:expr) => {
        match $rates {
            Rates::Exact($r) => $e,
            Rates::EqualSplit($r) => $e,
            Rates::Iterated($r) => $e,
        }
    };
}

use each_mode as each;

impl Rates {
    fn new(config: &Config, bandwidth: impl Iterator<Item = f64>, hops: usize) -> Self {
        match config.mode {
            Mode::Exact => {
                Self::Exact(MaxMin::new(bandwidth, hops).with_tolerance(config.tolerance))
            }
            Mode::EqualSplit => Self::EqualSplit(EqualSplit::new(bandwidth, hops)),
            Mode::Iterated { threshold } => {
                Self::Iterated(Iterated::new(bandwidth, hops, threshold))
            }
        }
    }

    /// The links of an active flow.
    fn path(&self, slot: Slot) -> &[LinkId] {
        each!(self, r => r.path(slot))
    }

    fn active(&self) -> Vec<Slot> {
        each!(self, r => r.flows().map(|(slot, ..)| slot).collect())
    }
}

/// Completions within this relative distance of the time make one batch.
const SIMULTANEOUS: f64 = 1e-12;
/// Actions that are carried out before their memory is used again.
const CARRIED_OUT: usize = 1024;

/// A simulation in progress.
///
/// Drive it with [`Simulation::step`] until that returns `false`, or with [`Simulation::run`].
/// Memory is linear in the number of ranks and links, because the simulation keeps no data per
/// message.
pub struct Simulation<'a> {
    platform: &'a Platform,
    placement: Placement,
    config: Config,
    driver: Driver,
    /// Seconds of a receiver, besides the latency of the workload's messages and the platform.
    latency: f64,
    rates: Rates,
    flows: Vec<Flow>,
    free: Vec<Slot>,
    calendar: Calendar,
    timers: BinaryHeap<Reverse<Due>>,
    timers_set: u64,
    actions: Vec<Action>,
    /// Whether messages need time besides that of their flows.
    has_latency: bool,
    router: Router<'a>,
    /// Failures to come, the first one first.
    failures: VecDeque<Failure>,
    /// Flows on each link, if routes depend on it.
    on_link: Vec<u32>,
    spreads: Vec<Spread>,
    free_spreads: Vec<u32>,
    starts: Vec<Flow>,
    /// Flows that need another route, and the seconds of their latency that the old one costs.
    moved: Vec<(Flow, f64)>,
    leaving: Vec<Slot>,
    path: Vec<LinkId>,
    link_bytes: Vec<f64>,
    watch: Watch,
    sink: Option<Sink<'a>>,
    now: f64,
    messages: u64,
    events: u64,
    begun: bool,
    /// Batches since the last certificate, with a tolerance.
    unchecked: usize,
    /// Duration of the last batch, if that batch ended the flows of all ranks.
    whole_batch: Option<f64>,
}

impl<'a> Simulation<'a> {
    /// A simulation at time 0.
    ///
    /// # Errors
    /// [`RunError::TooManyRanks`] if the platform, or the placement, has fewer nodes.
    pub fn new(
        platform: &'a Platform,
        workload: Workload,
        placement: Placement,
        config: Config,
    ) -> Result<Self, RunError> {
        workload.check_places(platform, &placement)?;
        let bandwidth = (0..platform.links() as LinkId).map(|l| platform.bandwidth(l));
        let router = Router::new(platform, config.routing);
        let hops = router.max_hops();
        let rates = Rates::new(&config, bandwidth, hops);
        let latency = config.overhead;
        let driver = Driver::new(
            workload,
            Sending {
                window: config.window,
                completion: config.completion,
                overhead: config.overhead,
                latency: platform.latency(),
            },
        );
        let mut failures = config.failures.clone();
        failures.sort_by(|a, b| a.time.total_cmp(&b.time));
        let on_link = match router.needs_load() {
            true => vec![0; platform.links()],
            false => Vec::new(),
        };
        let link_bytes = if config.link_bytes {
            vec![0.0; platform.links()]
        } else {
            Vec::new()
        };
        let stored = config.stored_packet;
        let watch = Watch::new(&config.watch, platform.links());
        Ok(Self {
            platform,
            placement,
            config,
            driver,
            latency,
            rates,
            flows: Vec::new(),
            free: Vec::new(),
            calendar: Calendar::default(),
            timers: BinaryHeap::new(),
            timers_set: 0,
            actions: Vec::new(),
            has_latency: platform.latency() + platform.hop_latency() + stored > 0.0,
            router,
            failures: failures.into(),
            on_link,
            spreads: Vec::new(),
            free_spreads: Vec::new(),
            starts: Vec::new(),
            moved: Vec::new(),
            leaving: Vec::new(),
            path: vec![0; hops],
            link_bytes,
            watch,
            sink: None,
            now: 0.0,
            messages: 0,
            events: 0,
            begun: false,
            unchecked: 0,
            whole_batch: None,
        })
    }

    /// Passes every message to `sink` as it arrives, every computation as it starts, and the load
    /// of the links in [`Config::watch`] as it changes.
    pub fn with_sink(mut self, sink: Sink<'a>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// The same as [`Simulation::step`].
    pub fn run(&mut self) -> Result<Summary, RunError> {
        while self.step()? {}
        Ok(self.summary())
    }

    /// Time, messages and batches so far.
    pub fn summary(&self) -> Summary {
        Summary {
            makespan: self.now,
            messages: self.messages,
            events: self.events,
        }
    }

    /// Rounds of step 5 of the paper so far, in [`Mode::Iterated`].
    pub fn rounds(&self) -> u64 {
        match &self.rates {
            Rates::Iterated(solver) => solver.rounds(),
            Rates::Exact(_) | Rates::EqualSplit(_) => 0,
        }
    }

    /// Bytes that passed over each link. Empty unless [`Config::link_bytes`] is set.
    pub fn link_bytes(&self) -> &[f64] {
        &self.link_bytes
    }

    /// When the last message of each job of [`Workload::Jobs`] arrived, or its last computation
    /// ended, in seconds.
    pub fn job_ends(&self) -> Vec<f64> {
        self.driver.job_ends()
    }

    /// For each link of [`Config::watch`], the pairs of ranks whose messages passed over it, those
    /// with most bytes first.
    pub fn users(&self) -> Vec<Vec<LinkUser>> {
        self.watch.users()
    }

    /// Advances to the next batch of completions. Returns whether there was one.
    ///
    /// # Errors
    /// [`RunError::Deadlock`] if ranks wait for messages that nobody will send;
    /// [`RunError::Violation`] if [`Config::verify`] is set and the rates are not max-min fair.
    pub fn step(&mut self) -> Result<bool, RunError> {
        if !self.begun {
            self.begun = true;
            if self.run_repeated() {
                return Ok(true);
            }
            self.fail_links();
            self.driver.begin(&mut self.actions);
            self.perform()?;
            self.settle()?;
        }
        let flow = self.calendar.earliest();
        let timer = self
            .timers
            .peek()
            .map_or(f64::INFINITY, |Reverse(due)| due.0);
        let next = flow.min(timer);
        if next == f64::INFINITY {
            return self.finished();
        }
        let before = self.now;
        let failure = self.failures.front().map_or(f64::INFINITY, |f| f.time);
        let resolved = (self.now + self.config.resolution).min(f64::MAX);
        self.now = next.max(resolved).min(failure);
        // Places without a flow end at infinity.
        let until = (self.now * (1.0 + SIMULTANEOUS)).min(f64::MAX);
        self.leaving.clear();
        self.calendar.due(until, &mut self.leaving);
        for i in 0..self.leaving.len() {
            if let Some(message) = self.end(self.leaving[i]) {
                self.left(message);
            }
        }
        while let Some(Reverse(due)) = self.timers.peek()
            && due.0 <= until
        {
            let Some(Reverse(Due(_, _, timer))) = self.timers.pop() else {
                break;
            };
            self.fire(timer);
        }
        if failure <= self.now {
            self.fail_links();
        }
        self.perform()?;
        self.events += 1;
        let ended = self.leaving.len();
        self.settle()?;
        self.skip_repeated(ended, self.now - before);
        Ok(true)
    }

    /// Latency of a message that moves nothing.
    fn latency_without_bytes(&mut self, flow: &Flow) -> Result<f64, RunError> {
        let (src, dst) = (self.placement.node(flow.rank), self.placement.node(flow.to));
        let hops = match self.router.is_static() && self.platform.hop_latency() == 0.0 {
            true => 0,
            false => self.routes(flow)?[0].len(),
        };
        Ok(self.platform.latency_of(src, dst, hops))
    }

    fn finished(&self) -> Result<bool, RunError> {
        match self.driver.deadlock(self.now) {
            None => Ok(false),
            Some(deadlock) => Err(RunError::Deadlock(deadlock)),
        }
    }

    /// Handles a message whose last byte has left its last link.
    #[inline]
    fn left(&mut self, flow: Flow) {
        let Flow {
            rank,
            to,
            token,
            start,
            bytes,
            latency,
            least,
            ..
        } = flow;
        self.driver.left(self.now, rank, token, &mut self.actions);
        let early = start + least - self.now;
        let latency = latency
            + if early > SIMULTANEOUS * self.now {
                early
            } else {
                0.0
            };
        if latency > 0.0 {
            let timer = Timer::Arrive {
                rank,
                to,
                token,
                start,
                bytes,
            };
            self.set_timer(self.now + latency, timer);
        } else {
            self.arrived(rank, to, token, start, bytes);
        }
    }

    #[inline]
    fn arrived(&mut self, rank: u32, to: u32, token: u32, start: f64, bytes: f64) {
        self.messages += 1;
        if let Some(sink) = &mut self.sink {
            let end = self.now;
            sink(&Record::Message(MessageRecord {
                source: rank,
                destination: to,
                bytes,
                start,
                end,
            }));
        }
        let (now, out) = (self.now, &mut self.actions);
        self.driver.arrived(now, rank, to, token, out);
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Wake(token) => self.driver.wake(self.now, token, &mut self.actions),
            Timer::Arrive {
                rank,
                to,
                token,
                start,
                bytes,
            } => self.arrived(rank, to, token, start, bytes),
        }
    }

    fn set_timer(&mut self, at: f64, timer: Timer) {
        self.timers_set += 1;
        let at = at.min(f64::MAX);
        self.timers.push(Reverse(Due(at, self.timers_set, timer)));
    }

    /// Carries out the actions of the driver. Messages without a path or without bytes end at once.
    fn perform(&mut self) -> Result<(), RunError> {
        let mut at = 0;
        while let Some(action) = self.driver.next_action(self.now, at, &mut self.actions) {
            match action {
                Action::Wake {
                    delay,
                    between,
                    token,
                } => {
                    let delay = delay + latency(self.platform, &self.placement, between);
                    self.set_timer(self.now + delay, Timer::Wake(token));
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
                } => {
                    let mut flow = Flow {
                        part: bytes,
                        latency: self.latency + self.driver.latency(rank),
                        least: 0.0,
                        spread: WHOLE,
                        remaining: bytes,
                        since: self.now,
                        rate: 0.0,
                        start: self.now,
                        bytes,
                        rank,
                        to,
                        token,
                    };
                    if bytes > 0.0 && rank != to {
                        self.starts.push(flow);
                    } else {
                        if rank != to {
                            flow.latency += self.latency_without_bytes(&flow)?;
                        }
                        self.left(flow);
                    }
                }
            }
            at += 1;
            // Each message that ends at once lets its sender start the next one.
            if at >= CARRIED_OUT.max(self.actions.len() / 2) {
                self.actions.drain(..at);
                at = 0;
            }
        }
        self.actions.clear();
        Ok(())
    }
}

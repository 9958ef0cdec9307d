//! The daemon of a node. One thread waits for signals, streams and time. The root daemon also makes
//! all decisions, through [`Root`].

mod events;
mod join;
mod peers;

use crate::journal::Journal;
use crate::link::{Control, Link};
use crate::mpi::ForMpi;
use crate::node::Node;
use crate::proof::Gate;
use crate::start::Starter;
use crate::trace::{Times, Trace};
use crate::{Config, Freeze, process, token};
use farcall_channel::Engine;
use farcall_child::take_address;
use farcall_gang_proto::{Action, Heartbeat, Message, Order, Root, Step, Switch, check_name};
use farcall_metrics::{Answer, Text};
use farcall_scram::Exchange;
use join::Joiner;
use nix::sys::signalfd::SignalFd;
use peers::plain;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval at which gang jobs with `detect_termination` are judged.
const WATCH: Duration = Duration::from_millis(500);

/// The longest wait for a network to come to rest. After it, messages in the network become stale.
const DRAIN_BOUND: Duration = Duration::from_secs(1);

/// The least bytes of a secret beyond the loopback, where strangers can try to guess it.
const TOKEN: usize = 16;

/// The processors for the slots of this node.
fn processors(slots: Option<u16>) -> Vec<u16> {
    let all = process::processors();
    let slots = slots.map_or(all.len(), |slots| slots.max(1).into());
    all.into_iter().cycle().take(slots).collect()
}

/// This program and its arguments as a PMIx server. The user of a gang job may not be able to enter
/// the program's folder, so it is named by a descriptor that stays open.
fn server_program(config: &Config) -> io::Result<Option<Vec<String>>> {
    let Some(arguments) = &config.pmix else {
        return Ok(None);
    };
    let program = std::fs::File::open("/proc/self/exe")?.into_raw_fd();
    let program = format!("/proc/self/fd/{program}");
    Ok(Some([&[program][..], arguments].concat()))
}

fn make_node(config: &Config, engine: Engine, starter: Starter) -> io::Result<Node> {
    let mpi = ForMpi {
        pmix: server_program(config)?,
        interface: config.mpi_interface.clone(),
        fabric: config.fabric.clone(),
    };
    let node = Node::new(config.node.clone(), engine, starter, mpi);
    if !node.has_groups() {
        tracing::warn!(
            "no control groups (version 2): `gang run --tree` then stops each process group of the \
             job, but not the processes that have left it"
        );
    }
    Ok(node)
}

fn create_trace(path: &Path) -> Result<Trace, StartError> {
    Trace::create(path).map_err(|source| StartError::Trace(path.to_owned(), source))
}

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The control socket cannot be opened.
    #[error("cannot listen on the control socket {control}: {source}{}", taken(.source))]
    Control {
        /// Its name.
        control: String,
        /// The system's error.
        source: io::Error,
    },
    /// The daemon cannot listen on any of the addresses.
    #[error("cannot listen on {}: {source}{}", listed(.addresses), used(.source))]
    Listen {
        /// The addresses.
        addresses: Vec<SocketAddr>,
        /// The system's error.
        source: io::Error,
    },
    /// The parent daemon cannot be reached.
    #[error("cannot reach the parent daemon at {address}: {source}; is it running?")]
    Parent {
        /// Its address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The address is not a loopback address, and there is no secret that nobody can guess: anyone
    /// on the network could join.
    #[error(
        "--listen {0} is not a loopback address: set FARCALL_TOKEN to the same secret for all \
         daemons, of {TOKEN} bytes at least, so that no other can join; `openssl rand -hex 32` \
         makes one"
    )]
    NoToken(SocketAddr),
    /// Only root can start processes as another user.
    #[error(
        "--tcp-user: this daemon runs as user {0} and can start jobs of that user alone: run it as \
         root, or leave the option out"
    )]
    TcpUser(u32),
    /// The node cannot have this name.
    #[error("--node {0}; choose another name")]
    Name(String),
    /// The secret of this user's daemons cannot be kept.
    #[error(
        "cannot keep the secret of the daemons in the file gang-token of the state folder: \
         {0}. Set FARCALL_TOKEN, or XDG_STATE_HOME to a folder that only this user can write"
    )]
    Secret(#[source] io::Error),
    /// The parent daemon does not accept this one, or is not what it should be.
    #[error("the parent daemon at {address}: {text}")]
    Refused {
        /// Its address.
        address: SocketAddr,
        /// The reason.
        text: String,
    },
    /// A signal came before the parent daemon had answered.
    #[error("the daemon was stopped while it joined the parent daemon at {0}")]
    Stopped(SocketAddr),
    /// The engine cannot start.
    #[error(transparent)]
    Engine(#[from] farcall_channel::EngineError),
    /// The trace file cannot be created.
    #[error("--trace {0}: {1}")]
    Trace(PathBuf, #[source] io::Error),
    /// Another system call failed.
    #[error("cannot start the daemon: {0}")]
    System(#[from] io::Error),
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    addresses.join(" or ")
}

fn used(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another daemon uses it: choose another address, or port 0",
        _ => "",
    }
}

fn taken(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; another daemon uses it: name another one with --control",
        _ => "",
    }
}

/// The peer at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    /// A front end, with its user and group.
    Front(u32, u32),
    /// A peer over TCP that has not yet proved that it knows the secret.
    Stranger,
    /// A peer that has proved it, and has not yet said what it is.
    Proved,
    Child,
    Parent,
}

struct Peer {
    link: Link,
    party: Party,
    /// What it was asked for.
    proving: Option<Box<Exchange>>,
    /// Its name in messages, if it is a daemon and has said its name.
    name: Option<String>,
    /// Whether this is a front end that reads nothing, so that the output of its gang jobs waits.
    is_held: bool,
    /// Whether this is a front end over TCP whose gang jobs run as another user than the daemon.
    is_foreign: bool,
}

/// A daemon that listens.
pub struct Daemon {
    config: Config,
    address: SocketAddr,
    tcp: TcpListener,
    control: Control,
    signals: SignalFd,
    links: BTreeMap<u64, Peer>,
    last_link: u64,
    parent: Option<u64>,
    joiner: Joiner,
    journal: Option<Journal>,
    /// The link of each node below, by its name, until it has a number.
    joining: BTreeMap<String, u64>,
    node: Node,
    root: Option<Root>,
    switch: Switch,
    trace: Option<Trace>,
    page: Option<Page>,
    times: Times,
    /// Total seconds of all gang switches by their steps, and their number.
    spent: ([f64; 5], u64),
    /// Deadline for the network of the outgoing gang jobs to be at rest.
    drained: Option<Instant>,
    /// Deadline for the answers of the daemons below to the current step.
    answered: Option<Instant>,
    /// Until when no connection is accepted, because there are no descriptors left.
    deaf: Instant,
    /// The signs of life of other daemons, and of peers that have yet to prove themselves.
    heartbeat: Heartbeat,
    is_ending: bool,
    /// Why it ends, if nobody has stopped it.
    failure: Option<String>,
    processors: Vec<u16>,
    gate: Gate,
}

impl Daemon {
    /// Listens, joins the parent daemon, and enters the real-time class if permitted. A daemon
    /// needs a process of its own, because it waits for all children and for signals.
    pub fn bind(mut config: Config) -> Result<Daemon, StartError> {
        check_name(&config.node).map_err(StartError::Name)?;
        let mut others = config.listen.iter().filter(|at| !at.ip().is_loopback());
        if let Some(address) = others.next().filter(|_| config.token.trim().len() < TOKEN) {
            return Err(StartError::NoToken(*address));
        }
        let own = rustix::process::getuid();
        let can_be = |(user, _): (u32, u32)| own.is_root() || user == own.as_raw();
        if !config.tcp_user.is_none_or(can_be) {
            return Err(StartError::TcpUser(own.as_raw()));
        }
        if config.token.is_empty() {
            config.token = token::of_user().map_err(StartError::Secret)?.1;
        }
        let signals = process::catch_signals()?;
        let listen = |source| StartError::Listen {
            addresses: config.listen.clone(),
            source,
        };
        let tcp = take_address(|| TcpListener::bind(&config.listen[..])).map_err(listen)?;
        tcp.set_nonblocking(true)?;
        let control = take_address(|| Control::listen(&config.control));
        let control = control.map_err(|source| StartError::Control {
            control: config.control.clone(),
            source,
        })?;
        let engine = Engine::start(tcp.local_addr()?.ip())?;
        // Start the threads before this thread blocks signals and enters the real-time class.
        let page = config.metrics.map(serve_metrics).transpose()?;
        let starter = Starter::new()?;
        process::take_ticks()?;
        process::take_descriptors();
        take_realtime(&engine);
        let node = make_node(&config, engine, starter)?;
        let trace = config.trace.as_deref().map(create_trace).transpose()?;
        let mut daemon = Daemon {
            address: tcp.local_addr()?,
            tcp,
            control,
            signals,
            links: BTreeMap::new(),
            last_link: 0,
            parent: None,
            joiner: Joiner::new()?,
            journal: None,
            joining: BTreeMap::new(),
            node,
            root: None,
            switch: Switch::new(
                config.form,
                config.freeze == Freeze::Drain,
                config.parent.is_none(),
            ),
            trace,
            page,
            times: Times::default(),
            spent: ([0.0; 5], 0),
            drained: None,
            answered: None,
            deaf: Instant::now(),
            heartbeat: Heartbeat::new(nanos(config.silence), monotonic()),
            is_ending: false,
            failure: None,
            processors: processors(config.slots),
            gate: Gate::new(&config.token)?,
            config,
        };
        daemon.join()?;
        Ok(daemon)
    }

    /// The addresses at which daemons below and front ends connect.
    pub fn addresses(&self) -> (String, String) {
        let control = match self.config.control.starts_with('@') {
            true => format!("unix:{}", self.config.control),
            false => format!("unix://{}", self.config.control),
        };
        (format!("farcall://{}", self.address), control)
    }

    fn add(&mut self, link: Link, party: Party) -> u64 {
        self.last_link += 1;
        let peer = Peer {
            link,
            party,
            proving: None,
            name: None,
            is_held: false,
            is_foreign: false,
        };
        self.links.insert(self.last_link, peer);
        if !matches!(party, Party::Front(..)) {
            self.heartbeat.watch(self.last_link);
        }
        self.last_link
    }

    fn children(&self) -> Vec<u64> {
        let children = self.links.iter();
        let children = children.filter(|(_, peer)| peer.party == Party::Child);
        children.map(|(id, _)| *id).collect()
    }

    fn send(&mut self, id: u64, message: &Message) {
        if let Some(peer) = self.links.get_mut(&id) {
            peer.link.send(message);
        }
    }

    /// Sends a message down the tree, and handles it on this node.
    fn broadcast(&mut self, message: Message) {
        for child in self.children() {
            self.send(child, &message);
        }
        self.do_here(message);
    }

    /// Sends a message to one node.
    fn pass(&mut self, node: u16, message: Message) {
        if node == self.node.number {
            return self.do_here(message);
        }
        if let Some(child) = self.switch.child(node) {
            self.send(child, &message);
        }
    }

    fn do_here(&mut self, message: Message) {
        match message {
            Message::Prepare(spec, placement) => self.node.prepare(spec, placement),
            Message::Deliver(job, signal) => self.node.deliver(job, signal),
            Message::Forget(job) => self.node.forget(job),
            Message::Inspect(job) => self.node.inspect(job),
            Message::Hold(job, is_held) => self.node.hold(job, is_held),
            Message::Fenced(job, pairs) => self.node.pass_fence(job, pairs),
            Message::Rest(job, rest) => self.node.rest(job, &rest),
            Message::Fetch(_, job, rank, offset) => self.node.fetch(job, rank, offset),
            Message::Fill(_, job, piece) => self.node.fill(job, &piece),
            _ => {}
        }
    }

    /// Sends a message up the tree. The root daemon handles it.
    fn report(&mut self, message: Message) {
        let Some(root) = &mut self.root else {
            if let Some(parent) = self.parent {
                self.send(parent, &message);
            }
            return;
        };
        match message {
            Message::Output(job, ..) => root.handle_output(job, message),
            Message::ProcessEnded(job, rank, ended) => root.handle_process_ended(job, rank, ended),
            Message::Inspected(job, node, report) => root.handle_inspected(job, node, report),
            Message::Lost(node, why) => {
                root.handle_lost(node, &plain(&why.unwrap_or_default()));
            }
            Message::Back(nodes) => root.handle_back(&nodes),
            Message::Fence(job, node, pairs) => root.handle_fence(job, node, pairs),
            Message::Aborted(job, rank, code) => root.handle_aborted(job, rank, code),
            Message::Fetched(job, piece) => root.handle_fetched(job, piece),
            Message::Filled(job, rank, offset, lengths) => {
                root.handle_filled(job, rank, offset, lengths);
            }
            _ => {}
        }
    }

    /// Sends and handles the messages of the node and the root until there are none left.
    fn settle(&mut self) {
        loop {
            for message in std::mem::take(&mut self.node.messages) {
                self.report(message);
            }
            let mut was_told = false;
            while let Some(order) = self.root.as_mut().and_then(Root::poll_order) {
                was_told = true;
                match order {
                    Order::Nodes(message) => {
                        self.record(&message);
                        self.broadcast(message);
                    }
                    Order::Node(node, message) => self.pass(node, message),
                    Order::Front(front, message) => {
                        self.record(&message);
                        self.send(front, &message);
                    }
                }
            }
            if !was_told && self.node.messages.is_empty() {
                return;
            }
        }
    }

    /// Records in the journal that a gang job begins or ends.
    fn record(&mut self, message: &Message) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        match message {
            Message::Prepare(spec, placement) => {
                let root = self.root.as_ref();
                let names = root.map(|root| root.nodes_of(&[placement.job]));
                let id = root.and_then(|root| root.known_one(placement.job));
                let id = id.unwrap_or(placement.job);
                if id != placement.job {
                    // It was moved.
                    journal.ended(id);
                }
                journal.begun(id, spec, names.unwrap_or_default());
            }
            Message::JobEnded(job, _) => journal.ended(*job),
            _ => {}
        }
    }

    fn now(&self) -> u64 {
        monotonic()
    }

    /// Starts a gang switch if one is due and none is in progress.
    fn switch_if_due(&mut self) {
        let now = self.now();
        let switch = self.root.as_mut().and_then(|root| root.poll_switch(now));
        let Some(turn) = switch else {
            return;
        };
        self.times = Times {
            start: now,
            ..Times::default()
        };
        let actions = self.switch.start(turn);
        self.act(actions);
    }

    /// Goes on without the daemons that have not answered in time.
    fn give_up_late(&mut self) {
        let is_over = |answered: Instant| Instant::now() >= answered;
        if self.switch.step().is_some() && self.answered.is_some_and(is_over) {
            self.answered = None;
            let actions = self.switch.handle_timeout();
            self.act(actions);
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Down(step, children) => {
                    self.mark(step);
                    let message = Message::Down(self.switch.order(), step);
                    for child in children {
                        self.send(child, &message);
                    }
                }
                Action::Here(step) => self.act_here(step),
                Action::Up(number, step, behind) => {
                    if let Some(parent) = self.parent {
                        self.send(parent, &Message::Up(number, step, behind));
                    }
                }
                Action::Behind(behind) => {
                    if let Some(root) = &mut self.root {
                        root.handle_behind(&behind);
                    }
                }
                Action::Back(nodes) => self.report(Message::Back(nodes)),
                Action::Finished => self.finish_switch(),
            }
        }
    }

    fn act_here(&mut self, step: Step) {
        let patience = Duration::from_millis(self.switch.patience().into());
        self.answered = Some(Instant::now() + patience);
        let round = self.switch.round().clone();
        let is_done = self.node.step(step, &round);
        if step == Step::Freeze {
            self.times.stopped = self.now();
            self.drained = (!is_done).then(|| Instant::now() + DRAIN_BOUND);
        }
        if is_done && step != Step::Run {
            let actions = self.switch.handle_done(step, self.node.stuck());
            self.act(actions);
        }
    }

    /// Records that a step begins and the previous step is over.
    fn mark(&mut self, step: Step) {
        let now = self.now();
        match step {
            Step::Freeze => {}
            Step::Save => self.times.frozen = now,
            Step::Restore => self.times.saved = now,
            Step::Run => {
                let times = &mut self.times;
                for time in [&mut times.frozen, &mut times.saved, &mut times.restored] {
                    if *time == 0 {
                        *time = now;
                    }
                }
            }
        }
    }

    fn finish_switch(&mut self) {
        self.times.run = self.now();
        let round = self.switch.round().clone();
        if let Some(root) = &mut self.root {
            let (gone, into) = (root.known(&round.out), root.known(&round.into));
            let mut out = root.take_ended();
            out.retain(|id| !gone.contains(id));
            out.extend(gone);
            let nodes = root.nodes_of(&round.into);
            if let Some(trace) = &mut self.trace {
                trace.write(round.number, &self.times, (&out, &into), &nodes);
            }
        }
        for (sum, step) in self.spent.0.iter_mut().zip(self.times.steps()) {
            *sum += step as f64 / 1e9;
        }
        self.spent.1 += 1;
        if let Some(root) = &mut self.root {
            let nanos = self.times.run - self.times.start;
            root.handle_switched((&round.out, &round.into), nanos, self.times.run);
        }
    }
}

const STEPS: [&str; 5] = ["stop", "rest", "save", "restore", "run"];

impl Daemon {
    /// Updates the metrics for Prometheus.
    fn show_metrics(&self) {
        let Some(page) = &self.page else {
            return;
        };
        let mut text = Text::new("farcall_gang");
        match self.config.parent {
            _ if self.is_ending => text.not_ready("the daemon is stopping"),
            Some(parent) if self.node.number == u16::MAX => {
                text.not_ready(format!(
                    "the daemon at {parent} has not let this node join yet"
                ));
            }
            _ => {}
        }
        if let Some(root) = &self.root {
            describe(root, &mut text);
            let steps = STEPS.map(|step| vec![("step", step.to_string())]);
            let spent = steps.into_iter().zip(self.spent.0);
            let help = "Time of all gang switches, by step.";
            text.counters("switch_seconds", help, spent);
            text.counter("switches", "Gang switches.", self.spent.1);
        }
        let help = "Processes on this node that have not ended.";
        text.gauge("elements", help, self.node.processes());
        let traffic = self.node.engine.traffic();
        let packets = [
            ("sent", traffic.sent),
            ("received", traffic.received),
            ("stray", traffic.strays),
            ("refused", traffic.refused),
        ];
        let packets = packets.map(|(way, count)| (vec![("way", way.to_string())], count));
        let help = "Packets between this node and others.";
        text.counters("packets", help, packets);
        *page.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

fn describe(root: &Root, text: &mut Text) {
    let counts = root.counts();
    let jobs = [
        ("running", counts.running),
        ("waiting", counts.waiting),
        ("stopped", counts.stopped),
    ];
    let jobs = jobs.map(|(state, count)| (vec![("state", state.to_string())], count));
    text.gauges("jobs", "Gang jobs, by state.", jobs);
    let past = [("success", counts.succeeded), ("failure", counts.failed)];
    let past = past.map(|(outcome, count)| (vec![("outcome", outcome.to_string())], count));
    text.counters("jobs_ended", "Gang jobs that have ended.", past);
    let help = "Slices of the current gang jobs so far.";
    text.gauge("slices", help, counts.slices);
    text.gauge("nodes", "Nodes that have joined.", counts.nodes);
    text.gauge(
        "slots",
        "Processes that can run at the same time.",
        counts.slots,
    );
}

/// Nanoseconds of the monotonic clock, which all processes of this machine share.
fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The most recent metrics for Prometheus.
type Page = Arc<Mutex<Text>>;

fn serve_metrics(address: SocketAddr) -> Result<Page, StartError> {
    let mut first = Text::new("farcall_gang");
    first.not_ready("the daemon is starting");
    let page = Arc::new(Mutex::new(first));
    let served = Arc::clone(&page);
    let answer = move |answer: Answer| {
        let page = served.lock().unwrap_or_else(PoisonError::into_inner);
        answer(page.clone());
    };
    take_address(|| TcpListener::bind(address))
        .and_then(|listener| {
            let address = listener.local_addr()?;
            farcall_web::serve(listener, answer)?;
            tracing::info!("metrics at http://{address}/metrics");
            Ok(())
        })
        .map_err(|source| StartError::Listen {
            addresses: vec![address],
            source,
        })?;
    Ok(page)
}

/// Enters the real-time class, because the daemon must preempt processes as soon as it has work.
fn take_realtime(engine: &Engine) {
    let main = process::set_realtime(0, 0);
    let thread = engine.thread_id() as i32;
    if let Err(error) = main.and_then(|()| process::set_realtime(thread, 1)) {
        tracing::warn!(
            "not in the real-time class ({error}): switches wait for the processes' time slices; \
             run the daemon as root, or give it CAP_SYS_NICE"
        );
    }
}

/// 90 % of the machine's memory, in bytes.
fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(1 << 20) * 1024 / 10 * 9
}

//! The server's one thread: waits for sockets, workers and signals, and moves every call on.
//!
//! One thread is enough because it never computes and never blocks: array bytes go from the socket
//! to the job buffer by the kernel's hand, and the library runs in the workers.

mod account;
mod ahead;
mod audited;
mod callbacks;
mod calls;
mod credit;
mod dispatch;
mod drain;
mod estimate;
mod events;
mod kept;
mod lanes;
mod limits;
mod membership;
mod named;
mod objects;
mod output;
mod parts;
mod pull;
mod register;
mod report;
mod requests;
mod reservations;
mod segments;
mod stored;
mod submitted;

use crate::WorkerCommand;
use crate::access::Access;
use crate::audit::Audit;
use crate::buffer::BufferPool;
use crate::config::Config;
use crate::connection::Connection;
use crate::function::FunctionTable;
use crate::job::Job;
use crate::learned;
use crate::listen::Listener;
use crate::spool::Spool;
use crate::store::Store;
use crate::worker::{Launcher, LibrarySource, Nursery, Ready, State, Worker, files};
pub(crate) use estimate::Links;
use farcall_rpc_proto::{FailureKind, Nanos};
use farcall_schedule::queue::Settings;
use farcall_schedule::{Policy, Queue};
use farcall_spin::Spin;
pub(crate) use lanes::Way;
pub use membership::Standing;
pub use report::Readings;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// Events taken in one turn.
const EVENTS: usize = 256;
/// How long a stopping server waits for its last words to be taken.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// What is learned is kept after this time at the latest.
const KEEP: Duration = Duration::from_secs(60);
/// How often connections are looked through for some that never greeted.
const SWEEP: Duration = Duration::from_secs(1);

/// What an event is about.
#[derive(Clone, Copy, Debug)]
enum Source {
    Listener(usize),
    Connection(usize),
    WorkerSocket(usize),
    WorkerOutput(usize),
    Doorbell,
    Signal,
    Drain,
}

impl Source {
    fn data(self) -> EventData {
        let (kind, index) = match self {
            Source::Listener(index) => (0, index),
            Source::Connection(index) => (1, index),
            Source::WorkerSocket(index) => (2, index),
            Source::WorkerOutput(index) => (3, index),
            Source::Doorbell => (4, 0),
            Source::Signal => (5, 0),
            Source::Drain => (6, 0),
        };
        EventData::new_u64(kind << 32 | index as u64)
    }

    fn from_data(data: EventData) -> Source {
        let index = (data.u64() & 0xffff_ffff) as usize;
        match data.u64() >> 32 {
            0 => Source::Listener(index),
            1 => Source::Connection(index),
            2 => Source::WorkerSocket(index),
            3 => Source::WorkerOutput(index),
            4 => Source::Doorbell,
            5 => Source::Signal,
            _ => Source::Drain,
        }
    }
}

/// The state of a running server.
pub(crate) struct Reactor {
    config: Config,
    access: Access,
    /// Where it is recorded who called what.
    pub(crate) audit: Option<Audit>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    functions: FunctionTable,
    libraries: Vec<LibrarySource>,
    launcher: Launcher,
    /// Rung by workers that finish while this thread sleeps.
    doorbell: OwnedFd,
    signals: UnixStream,
    /// Has something to read when SIGUSR1 has come.
    drains: UnixStream,
    connections: Slab<Connection>,
    /// Connections with input or memory to go on with.
    ready: VecDeque<usize>,
    /// Connections with answers to be written before the turn ends.
    unflushed: Vec<usize>,
    /// Connections to be removed at the end of the turn.
    closed: Vec<usize>,
    /// Connections that wait for memory, first come first served.
    starved: VecDeque<usize>,
    /// Connections with calls that wait for a grant.
    holding: Vec<usize>,
    /// Whether the listeners are watched: not while connections cannot be accepted.
    accepts: bool,
    workers: Slab<Worker>,
    /// Protections that workers cannot have, as the log says already.
    unprotected: Vec<String>,
    /// The interface file that is being registered.
    registration: Option<register::Registration>,
    jobs: Slab<Job>,
    /// Who computes, and who waits for processor elements.
    queue: Queue,
    reservations: reservations::Reservations,
    lanes: lanes::Lanes,
    /// Jobs that have processor elements and wait for a worker.
    admitted: VecDeque<usize>,
    /// When a brief job that waits for a certain worker is to have another one.
    held_until: Option<Instant>,
    pool: BufferPool,
    links: Links,
    /// Since when something was learned that is not kept yet.
    learned_since: Option<Instant>,
    /// Submitted calls; none without a folder to keep them in.
    spool: Option<Spool>,
    /// Another server has them, whose place this one takes.
    awaits_spool: bool,
    /// Arrays that stay.
    store: Store,
    /// Objects that stay.
    kept: kept::KeptObjects,
    /// Arrays that come from other servers.
    pulls: pull::Pulls,
    named: named::NamedData,
    /// Jobs whose turn it may be to use arrays.
    candidates: VecDeque<usize>,
    /// Memory has become free that submitted calls may wait for.
    has_room: bool,
    start: Instant,
    next_sweep: Instant,
    /// Whether it takes no more connections and calls.
    draining: bool,
    stopping: Option<Instant>,
    /// Names of users, by the number of their share.
    names: HashMap<u64, String>,
    totals: account::Totals,
    readers: Option<report::Readers>,
    /// Those who pass on how the server stands, where there are any.
    reports: Option<membership::Reports>,
}

/// Lets the process have as many open files as it may, for each connection is one.
fn allow_files(connections: usize) {
    /// Listeners, workers and what else is open.
    const OTHERS: u64 = 200;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let open = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    };
    if open.is_some_and(|open| open < connections as u64 + OTHERS) {
        let open = open.unwrap_or_default();
        tracing::warn!(
            "the system allows {open} open files: too few for limits.connections = {connections}"
        );
    }
}

/// What the queue is made with.
fn settings(config: &Config) -> Settings {
    Settings {
        bandwidth: config.limits.reservable(),
        ..config.queue.settings(&config.workers)
    }
}

/// What starts workers.
fn launcher(config: &Config, settings: &Settings, command: WorkerCommand) -> io::Result<Launcher> {
    Ok(Launcher {
        nursery: Nursery::open()?,
        parallel: config.parallel.launcher.clone(),
        command,
        threads: match settings.policy {
            Policy::AtOnce => settings.pes,
            _ => config.workers.elements().min(settings.pes),
        },
        settings: config.workers.clone(),
        files: config.limits.files,
        sandbox: config.sandbox()?,
    })
}

/// Has something to read when one of these signals has come.
fn pipe_of(signals: &[libc::c_int]) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

impl Reactor {
    pub(crate) fn new(
        config: Config,
        access: Access,
        listeners: Vec<Listener>,
        functions: FunctionTable,
        libraries: Vec<LibrarySource>,
        worker_command: WorkerCommand,
    ) -> io::Result<Reactor> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let named = named::NamedData::open(&config.data, &doorbell)?;
        files::remove_left_over(&config.workers.folder());
        allow_files(config.limits.connections);
        let now = Instant::now();
        let (mut functions, mut links) = (functions, Links::default());
        if let Some(folder) = &config.state {
            learned::load(folder, &mut functions, &mut links);
        }
        let settings = settings(&config);
        let reactor = Reactor {
            pool: BufferPool::new(usize::try_from(config.limits.memory).unwrap_or(usize::MAX)),
            launcher: launcher(&config, &settings, worker_command)?,
            kept: kept::KeptObjects::default(),
            pulls: pull::Pulls::default(),
            named,
            store: Store::new(config.data.clone(), config.limits.memory),
            config,
            access,
            audit: None,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners,
            functions,
            libraries,
            doorbell,
            signals: pipe_of(&[libc::SIGTERM, libc::SIGINT])?,
            drains: pipe_of(&[libc::SIGUSR1])?,
            connections: Slab::new(),
            ready: VecDeque::new(),
            unflushed: Vec::new(),
            closed: Vec::new(),
            starved: VecDeque::new(),
            holding: Vec::new(),
            accepts: true,
            workers: Slab::new(),
            unprotected: Vec::new(),
            registration: None,
            jobs: Slab::new(),
            admitted: VecDeque::new(),
            queue: Queue::new(settings),
            reservations: reservations::Reservations::default(),
            lanes: lanes::Lanes::default(),
            held_until: None,
            links,
            learned_since: None,
            spool: None,
            awaits_spool: false,
            candidates: VecDeque::new(),
            has_room: true,
            start: now,
            next_sweep: now + SWEEP,
            draining: false,
            stopping: None,
            names: HashMap::new(),
            totals: account::Totals::default(),
            readers: None,
            reports: None,
        };
        reactor.watch_all()?;
        Ok(reactor)
    }

    fn watch_all(&self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            self.watch(listener.fd(), Source::Listener(index), EventFlags::IN)?;
        }
        self.watch(self.doorbell.as_fd(), Source::Doorbell, EventFlags::IN)?;
        self.watch(self.signals.as_fd(), Source::Signal, EventFlags::IN)?;
        self.watch(self.drains.as_fd(), Source::Drain, EventFlags::IN)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), flags)?)
    }

    /// Starts one worker for each library and waits until all are bound, so that a library that
    /// cannot be bound is known before anybody calls it.
    pub(crate) fn warm_up(&mut self) -> Result<(), String> {
        for library in 0..self.libraries.len() {
            self.start_worker(library, 1)
                .map_err(|error| format!("cannot start a worker: {error}"))?;
        }
        let keys: Vec<usize> = self.workers.iter().map(|(key, _)| key).collect();
        for key in keys {
            let greeting = loop {
                let worker = &mut self.workers[key];
                // A library has as long as it needs for its own initialisation.
                let (socket, output) = (worker.socket(), worker.output());
                let hung_up = PollFlags::empty();
                let mut poll = [
                    PollFd::new(&socket, PollFlags::IN),
                    PollFd::new(&output, hung_up),
                ];
                while rustix::event::poll(&mut poll, None) == Err(Errno::INTR) {}
                let came = !poll[0].revents().is_empty();
                if !worker.is_awaited() || !came {
                    break worker.read_greeting();
                }
                if self.admit_first_process(key).is_err() {
                    break None;
                }
            };
            match greeting {
                Some(Ok(ready)) => self.worker_is_ready(key, ready),
                Some(Err(error)) => return Err(error),
                None => {
                    let death = self.forget_worker(key);
                    return Err(format!("a worker could not start: it {}", death.cause(0)));
                }
            }
        }
        Ok(())
    }

    /// The first of several processes has come, perhaps.
    fn admit_first_process(&mut self, key: usize) -> io::Result<()> {
        // What it was awaited at may stay open for a while in a process that is about to start.
        let _ = epoll::delete(&self.epoll, self.workers[key].socket());
        self.workers[key].admit()?;
        let socket = self.workers[key].socket();
        self.watch(socket, Source::WorkerSocket(key), EventFlags::IN)
    }

    /// Gives word whenever the server stands otherwise than before.
    pub(crate) fn subscribe(&mut self) -> Receiver<Standing> {
        let reports = self.reports.get_or_insert_with(membership::Reports::new);
        reports.subscribe()
    }

    /// A worker has bound its library.
    fn worker_is_ready(&mut self, key: usize, ready: Ready) {
        let worker = &mut self.workers[key];
        worker.state = State::Idle;
        let library = worker.library;
        self.libraries[library].identities = ready.identities;
        self.complete_registration(library);
        for text in ready.unprotected {
            if !self.unprotected.contains(&text) {
                tracing::warn!("workers are not fully protected: {text}");
                self.unprotected.push(text);
            }
        }
    }

    /// Serves until it is told to stop by SIGTERM or SIGINT.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let spin = Spin::new(self.config.workers.spin());
        let mut wait = spin.begin();
        let mut looks = wait.spins();
        while !self.is_stopped() {
            let waits = self.ready.is_empty() && self.candidates.is_empty() && !self.has_room;
            let sleeps = !looks && waits && self.ask_for_doorbells();
            if sleeps && let Some(audit) = &mut self.audit {
                audit.flush();
            }
            let timeout = if sleeps {
                self.next_deadline(Instant::now())
            } else {
                Some(Duration::ZERO)
            };
            self.wait(&mut events, timeout)?;
            if self.turn(&mut events) {
                wait = spin.begin();
                looks = wait.spins();
            } else {
                looks = wait.look_again();
            }
        }
        self.shut_down();
        Ok(())
    }

    /// Handles what has happened. Returns whether there was anything.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        let mut active = !events.is_empty();
        for event in events.drain(..) {
            // Copied: the fields of a packed struct cannot be borrowed.
            let Event { flags, data } = event;
            self.handle(Source::from_data(data), flags);
        }
        active |= self.collect_outcomes();
        active |= self.serve_spool();
        active |= self.serve_pulls();
        active |= self.serve_folder();
        active |= self.serve_data_reads();
        active |= self.serve_candidates();
        self.dispatch();
        self.flush_answers();
        active |= self.serve_ready();
        self.grant_held();
        self.dispatch();
        self.handle_deadlines();
        self.report_standing();
        self.flush_answers();
        self.let_go();
        self.remove_closed();
        active
    }

    fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Nanoseconds since the start, for the protocol.
    fn nanos(&self) -> Nanos {
        self.clock()()
    }

    /// The clock that `nanos` reads.
    fn clock(&self) -> impl Fn() -> Nanos + use<> {
        let start = self.start;
        move || start.elapsed().as_nanos() as Nanos
    }

    /// Tells every running worker to ring; `false` if one has finished meanwhile.
    fn ask_for_doorbells(&self) -> bool {
        self.workers
            .iter()
            .all(|(_, worker)| worker.ask_for_doorbell())
    }

    fn next_deadline(&self, now: Instant) -> Option<Duration> {
        let callbacks = self.config.limits.callback();
        let workers = self.workers.iter();
        let running = workers.filter_map(|(_, worker)| worker.deadline(callbacks));
        let greeting = self
            .connections
            .iter()
            .any(|(_, connection)| !connection.connected);
        let sweeps = greeting || !self.accepts || self.awaits_spool || !self.jobs.is_empty();
        let sweep = sweeps.then_some(self.next_sweep);
        let stop = self.stopping;
        let held = self.held_until;
        let keep = self.learned_since.map(|since| since + KEEP);
        let patience = self.workers.iter();
        let patience = patience.filter_map(|(_, worker)| worker.patience());
        let expiry = self.next_expiry(now);
        let nanos = self.nanos();
        let change = self.queue.next_change(nanos).into_iter();
        let change = change.chain(self.lanes.next_change(nanos)).min();
        let change = change.map(|nanos| self.start + Duration::from_nanos(nanos));
        let next = running
            .chain(sweep)
            .chain(keep)
            .chain(stop)
            .chain(held)
            .chain(patience)
            .chain(expiry)
            .chain(change)
            .chain(self.next_report())
            .min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Keeps what was learned, if there is anything new and a place for it.
    fn keep_learned(&mut self) {
        let (Some(folder), Some(_)) = (&self.config.state, self.learned_since.take()) else {
            return;
        };
        if let Err(error) = learned::save(folder, &self.functions, &self.links) {
            tracing::warn!(
                "{}: what was learned is not kept: {error}",
                folder.display()
            );
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopping.is_some_and(|deadline| {
            let flushed = self
                .connections
                .iter()
                .all(|(_, connection)| connection.is_flushed());
            flushed || Instant::now() >= deadline
        })
    }

    fn shut_down(&mut self) {
        self.keep_learned();
        self.settle_spool();
        if let Some(audit) = &mut self.audit {
            audit.flush();
        }
        for (_, worker) in &mut self.workers {
            worker.end(FailureKind::ServerStopping, "was ended with its server");
        }
        for worker in self.workers.drain() {
            worker.bury();
        }
        self.listeners.clear();
    }
}

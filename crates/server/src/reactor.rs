//! The server's one thread: it waits for sockets, workers, disks and signals, tells the server what
//! has happened, and does what it decides.
//!
//! One thread is enough because it never computes and never blocks: array bytes go from the socket
//! to the memory of a call by the kernel's hand, and the library runs in the workers.

mod actions;
mod arrivals;
mod metrics;
mod sockets;
mod workers;

pub use metrics::Readings;

use crate::WorkerCommand;
use crate::audit::Audit;
use crate::clock::Clock;
use crate::config::Config;
use crate::disk::{Disk, Reply};
use crate::folder::Folder;
use crate::learned;
use crate::listen::Listener;
use crate::memories::Memories;
use crate::socket::Socket;
use crate::{Standing, StartError};
use farcall_access::Access;
use farcall_library::Catalog;
use farcall_server_proto::{
    Beside, ConnectionKey, DiskError, Event as Happened, Key, MemoryKey, Server, WorkerKey,
};
use farcall_spin::Spin;
use farcall_worker::{Launcher, LibrarySource, MemoryObject, Nursery, Worker, remove_left_over};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Events taken in one turn.
const EVENTS: usize = 256;
/// How often it is tried to listen again, and to take over what another server has.
const SWEEP: Duration = Duration::from_secs(1);
/// How long a server that ends waits for what is to be recorded.
const LAST_RECORDS: Duration = Duration::from_millis(1500);

/// What an event is about.
#[derive(Clone, Copy, Debug)]
enum Source {
    Listener(usize),
    Connection(ConnectionKey),
    WorkerSocket(WorkerKey),
    WorkerOutput(WorkerKey),
    Doorbell,
    Signal,
    Drain,
}

impl Source {
    /// Of 64 bits, 3 say what it is, 24 which place, and 37 which generation of it.
    fn data(self) -> EventData {
        fn key(kind: u64, key: impl Key) -> u64 {
            kind << 61 | u64::from(key.generation()) << 24 | u64::from(key.index())
        }
        EventData::new_u64(match self {
            Source::Listener(index) => index as u64,
            Source::Connection(of) => key(1, of),
            Source::WorkerSocket(of) => key(2, of),
            Source::WorkerOutput(of) => key(3, of),
            Source::Doorbell => 4 << 61,
            Source::Signal => 5 << 61,
            Source::Drain => 6 << 61,
        })
    }

    fn from_data(data: EventData) -> Source {
        fn key<K: Key>(data: u64) -> K {
            K::new(data as u32 & 0xff_ffff, (data >> 24) as u32)
        }
        let data = data.u64();
        match data >> 61 {
            0 => Source::Listener(data as usize),
            1 => Source::Connection(key(data)),
            2 => Source::WorkerSocket(key(data)),
            3 => Source::WorkerOutput(key(data)),
            4 => Source::Doorbell,
            5 => Source::Signal,
            _ => Source::Drain,
        }
    }
}

/// What wakes the thread besides sockets.
struct Bells {
    /// Rung by workers that finish while this thread sleeps, and by threads.
    doorbell: OwnedFd,
    /// Has something to read when SIGTERM or SIGINT has come.
    signals: UnixStream,
    /// Has something to read when SIGUSR1 has come.
    drains: UnixStream,
}

/// The sockets of clients.
#[derive(Default)]
struct Sockets {
    open: Beside<ConnectionKey, Socket>,
    /// Those with input to go on with.
    ready: VecDeque<ConnectionKey>,
    /// Those with answers to be written before the turn ends.
    unflushed: Vec<ConnectionKey>,
}

/// What outlives the server, or is to be this server's soon.
#[derive(Default)]
struct State {
    disk: Option<Disk>,
    /// Another server has it, whose place this one takes.
    is_awaited: bool,
}

/// What starts workers, and what they bind.
struct Crew {
    launcher: Launcher,
    catalog: Catalog,
    libraries: Vec<LibrarySource>,
    workers: Beside<WorkerKey, Worker>,
}

/// The shell of a running server.
pub(crate) struct Reactor {
    config: Config,
    access: Access,
    /// Where it is recorded who called what.
    audit: Option<Audit>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// Until when the listeners are not watched, because connections cannot be accepted.
    deaf_until: Option<Instant>,
    bells: Bells,
    sockets: Sockets,
    crew: Crew,
    memories: Memories,
    state: State,
    arrivals: arrivals::Arrivals,
    server: Server,
    clock: Clock,
    readers: Readers,
}

/// Those who want to know how the server stands.
#[derive(Default)]
struct Readers {
    metrics: Option<metrics::Readers>,
    standings: Vec<SyncSender<Standing>>,
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

/// Has something to read when one of these signals has come.
fn pipe_of(signals: &[libc::c_int]) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok(ours)
}

/// What starts workers.
fn launcher(config: &Config, command: WorkerCommand) -> io::Result<Launcher> {
    let settings = config.queue.settings(&config.workers);
    let elements = config.workers.elements();
    Ok(Launcher {
        nursery: Nursery::open()?,
        parallel: config.parallel.launcher.clone(),
        command,
        threads: match settings.policy {
            farcall_schedule::Policy::AtOnce => settings.pes,
            _ => elements.min(settings.pes),
        },
        folder: config.workers.folder(),
        spin: config.workers.spin(),
        memory: config.workers.memory,
        files: config.limits.files,
        sandbox: config.sandbox()?,
    })
}

impl Reactor {
    pub(crate) fn new(
        config: Config,
        access: Access,
        audit: Option<Audit>,
        listeners: Vec<Listener>,
        (catalog, libraries): (Catalog, Vec<LibrarySource>),
        worker_command: WorkerCommand,
    ) -> io::Result<Reactor> {
        let bells = Bells {
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            signals: pipe_of(&[libc::SIGTERM, libc::SIGINT])?,
            drains: pipe_of(&[libc::SIGUSR1])?,
        };
        remove_left_over(&config.workers.folder());
        allow_files(config.limits.connections);
        let clock = Clock::start();
        let (mut folder, mut data) = (None, Vec::new());
        if let Some(path) = &config.data.folder {
            let opened = Folder::open(path, bells.doorbell.try_clone()?)?;
            (folder, data) = (Some(opened.0), opened.1);
            let count = data.len();
            tracing::info!("{count} files in the data folder {}", path.display());
        }
        let documents = catalog.files().map(|(_, document)| document);
        let settings = config.settings(audit.is_some())?;
        let mut server = Server::new(settings, documents, data, clock.now());
        if let Some(folder) = &config.state {
            let (functions, links) = server.learned();
            learned::load(folder, functions, links);
        }
        let reactor = Reactor {
            crew: Crew {
                launcher: launcher(&config, worker_command)?,
                catalog,
                libraries,
                workers: Beside::default(),
            },
            config,
            access,
            audit,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listeners,
            deaf_until: None,
            bells,
            sockets: Sockets::default(),
            memories: Memories::default(),
            state: State::default(),
            arrivals: arrivals::Arrivals::new(folder),
            server,
            clock,
            readers: Readers::default(),
        };
        reactor.watch_all()?;
        Ok(reactor)
    }

    fn watch_all(&self) -> io::Result<()> {
        for (index, listener) in self.listeners.iter().enumerate() {
            self.watch(listener.fd(), Source::Listener(index), EventFlags::IN)?;
        }
        let Bells {
            doorbell,
            signals,
            drains,
        } = &self.bells;
        self.watch(doorbell.as_fd(), Source::Doorbell, EventFlags::IN)?;
        self.watch(signals.as_fd(), Source::Signal, EventFlags::IN)?;
        self.watch(drains.as_fd(), Source::Drain, EventFlags::IN)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source, flags: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), flags)?)
    }

    /// Opens the folder of submitted calls, where there is one. A server whose place this one takes
    /// has it until its calls have ended.
    pub(crate) fn open_disk(&mut self) -> Result<(), StartError> {
        let Some(path) = &self.config.state else {
            return Ok(());
        };
        let doorbell = self.bells.doorbell.try_clone()?;
        match Disk::open(path, doorbell) {
            Ok((disk, records)) => {
                self.state.disk = Some(disk);
                self.state.is_awaited = false;
                self.tell(Happened::DurableOpened(records));
                Ok(())
            }
            Err(error) if self.config.takeover && error.is_taken() => {
                self.state.is_awaited = true;
                self.tell(Happened::DurableAwaited);
                Ok(())
            }
            Err(source) => Err(StartError::Spool {
                path: path.clone(),
                source,
            }),
        }
    }

    /// Gives word whenever the server stands otherwise than before.
    pub(crate) fn subscribe(&mut self) -> Receiver<Standing> {
        self.server.subscribe();
        // One that waits is enough: whoever takes it late gets the next at once.
        let (to, from) = sync_channel(1);
        self.readers.standings.push(to);
        from
    }

    /// Tells those who want to know how the server stands, if that is due.
    fn report(&mut self) {
        let Some(standing) = self.server.poll_report() else {
            return;
        };
        let mut all = true;
        let at = Instant::now();
        self.readers.standings.retain(|to| {
            let told = Standing {
                at,
                standing: standing.clone(),
            };
            match to.try_send(told) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    all = false;
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        });
        self.server.reported(&standing, all);
    }

    /// How many functions are served.
    pub(crate) fn functions(&self) -> usize {
        self.server.overview().functions().count()
    }

    /// Serves until it is told to stop by SIGTERM or SIGINT.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let spin = Spin::new(self.config.workers.spin());
        let mut wait = spin.begin();
        let mut looks = wait.spins();
        while !self.is_stopped() {
            let waits = self.sockets.ready.is_empty() && !self.server.has_work();
            let sleeps = !looks && waits && self.ask_for_doorbells();
            if sleeps && let Some(audit) = &mut self.audit {
                audit.flush();
            }
            let timeout = if sleeps {
                self.next_deadline()
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
        let mut active = !events.is_empty() || self.server.has_work();
        self.clock.read_calendar();
        for event in events.drain(..) {
            // Copied: the fields of a packed struct cannot be borrowed.
            let Event { flags, data } = event;
            self.handle(Source::from_data(data), flags);
        }
        active |= self.collect_outcomes();
        active |= self.serve_disk();
        active |= self.serve_arrivals();
        self.go_on();
        self.flush_answers();
        if self.serve_ready() {
            active = true;
            self.go_on();
            self.flush_answers();
        }
        self.look_again();
        self.report();
        active
    }

    /// The server goes on with what has become possible.
    fn go_on(&mut self) {
        self.server.set_time(self.clock.now());
        self.server.turn();
        self.act();
    }

    /// Tells the server what has happened, and does what it wants done.
    fn tell(&mut self, happened: Happened) {
        self.server.set_time(self.clock.now());
        self.server.handle(happened);
        self.act();
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

    /// Tells every running worker to ring; `false` if one has finished meanwhile.
    fn ask_for_doorbells(&self) -> bool {
        let mut workers = self.crew.workers.iter();
        workers.all(|(_, worker)| worker.ask_for_doorbell())
    }

    fn next_deadline(&self) -> Option<Duration> {
        let server = self.server.next_deadline();
        let server = server.map(|nanos| self.clock.until(nanos));
        let now = Instant::now();
        let deaf = self
            .deaf_until
            .map(|end| end.saturating_duration_since(now));
        let awaited = self.state.is_awaited.then_some(SWEEP);
        server.into_iter().chain(deaf).chain(awaited).min()
    }

    /// Tries again what could not be done before: to accept connections, and to take over what
    /// another server has.
    fn look_again(&mut self) {
        if self.deaf_until.is_some_and(|end| Instant::now() >= end) {
            self.listen_again();
        }
        if self.state.is_awaited
            && let Err(error) = self.open_disk()
        {
            self.state.is_awaited = false;
            tracing::error!("{error}");
        }
    }

    /// Handles what the disk has done. Returns whether there was anything.
    fn serve_disk(&mut self) -> bool {
        let mut any = false;
        while let Some(reply) = self.state.disk.as_ref().and_then(Disk::next_reply) {
            any = true;
            self.on_reply(reply);
        }
        any
    }

    fn on_reply(&mut self, reply: Reply) {
        let text = |error: io::Error| DiskError {
            is_full: error.kind() == io::ErrorKind::StorageFull,
            text: error.to_string(),
        };
        let happened = match reply {
            Reply::Written {
                ticket,
                memory,
                stored,
            } => {
                self.put_back(memory);
                Happened::Written(ticket, stored.map_err(text))
            }
            Reply::Read {
                ticket,
                memory,
                read,
            } => {
                self.put_back(memory);
                Happened::Fetched(ticket, read.map_err(text))
            }
            Reply::Inserted { id, number } => Happened::Inserted(id, number),
            Reply::Changed { id, changed } => Happened::Changed(id, changed),
            Reply::Forgotten { id } => Happened::Forgotten(id),
        };
        self.tell(happened);
    }

    fn put_back(&mut self, (key, object): (MemoryKey, MemoryObject)) {
        self.memories.put(key, object);
    }

    /// Keeps what was learned.
    fn keep_learned(&self) {
        let Some(folder) = &self.config.state else {
            return;
        };
        let (functions, links) = (
            self.server.overview().functions(),
            self.server.overview().links(),
        );
        if let Err(error) = learned::save(folder, functions, links) {
            let folder = folder.display();
            tracing::warn!("{folder}: what was learned is not kept: {error}");
        }
    }

    fn is_stopped(&self) -> bool {
        self.server.stops().is_some_and(|deadline| {
            let mut sockets = self.sockets.open.iter();
            let flushed = sockets.all(|(_, socket)| socket.is_flushed());
            flushed || self.clock.nanos() >= deadline
        })
    }

    fn shut_down(&mut self) {
        self.keep_learned();
        let deadline = Instant::now() + LAST_RECORDS;
        while !self.server.is_settled()
            && let Some(disk) = &self.state.disk
            && let Some(reply) = disk.last_reply(deadline)
        {
            self.on_reply(reply);
        }
        if let Some(audit) = &mut self.audit {
            audit.flush();
        }
        self.end_workers();
        self.listeners.clear();
    }
}

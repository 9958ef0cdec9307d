//! The reactor: the server's one thread. It waits for sockets, workers, disks and signals, reports
//! events to the server, and performs its actions.
//!
//! One thread is enough because it never computes and never blocks: the kernel moves array bytes
//! from the socket into the memory of a call, and the library runs in the workers.

mod actions;
mod operator;
mod sockets;
mod workers;

use self::operator::Operator;
pub(crate) use self::operator::{Logs, Reread};
use crate::arrivals::Arrivals;
use crate::clock::Clock;
use crate::config::Config;
use crate::crew::Crew;
use crate::disk::State;
use crate::folder::Folder;
use crate::learned;
use crate::listen::Listener;
use crate::memories::Memories;
use crate::metrics::{self, Readings};
use crate::poll::{Poll, Source};
use crate::socket::Socket;
use crate::{ServerStatus, StartError, WorkerCommand};
use farcall_access::{Accepting, Access, allow_connections};
use farcall_library::Catalog;
use farcall_server_proto::{Beside, ConnectionKey, Event as Happened, Server};
use farcall_spin::Spin;
use farcall_worker::LibrarySource;
use rustix::event::epoll::{Event, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Most events of one turn.
const EVENTS: usize = 256;
/// Time between two tries to listen again.
const SWEEP: Duration = Duration::from_secs(1);
/// How long an ending server waits for its last records.
const LAST_RECORDS: Duration = Duration::from_millis(1500);

/// Wake-ups other than sockets.
struct Bells {
    /// Rung by threads. Each worker has a doorbell of its own, which it rings when it finishes
    /// while this thread sleeps.
    doorbell: OwnedFd,
    /// Readable after SIGTERM or SIGINT.
    signals: UnixStream,
    /// Readable after SIGUSR1.
    drains: UnixStream,
    /// Readable after SIGHUP, unless the server ends with its terminal.
    reloads: UnixStream,
    /// The other ends of the three. A pipe whose other end is closed would be readable, too.
    _senders: [UnixStream; 3],
}

impl Bells {
    fn new() -> io::Result<Bells> {
        // A server that was started at a terminal ends when the terminal closes.
        let (ends, reloads): (&[_], &[_]) = match io::stderr().is_terminal() {
            true => (&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP], &[]),
            false => (&[libc::SIGTERM, libc::SIGINT], &[libc::SIGHUP]),
        };
        let (signals, of_signals) = pipe_of(ends)?;
        let (drains, of_drains) = pipe_of(&[libc::SIGUSR1])?;
        let (reloads, of_reloads) = pipe_of(reloads)?;
        Ok(Bells {
            doorbell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            signals,
            drains,
            reloads,
            _senders: [of_signals, of_drains, of_reloads],
        })
    }
}

/// The sockets of clients.
#[derive(Default)]
struct Sockets {
    open: Beside<ConnectionKey, Socket>,
    /// Connections with more input.
    ready: VecDeque<ConnectionKey>,
    /// Connections with answers to write before the turn ends.
    unflushed: Vec<ConnectionKey>,
}

impl Sockets {
    /// Marks a connection with more input, once, so that none gets a second turn before all others
    /// had theirs.
    fn make_ready(&mut self, key: ConnectionKey) {
        if let Some(socket) = self.open.get_mut(key)
            && !std::mem::replace(&mut socket.is_ready, true)
        {
            self.ready.push_back(key);
        }
    }
}

/// The listening sockets.
struct Listeners {
    open: Vec<Listener>,
    /// Until when they are not watched, because no connection can be accepted.
    deaf_until: Option<Instant>,
    accepting: Accepting,
}

impl Listeners {
    /// Lets clients connect. With `beside`, another server of this user may listen there too.
    fn admit(&self, beside: bool) -> Result<(), StartError> {
        self.open.iter().try_for_each(|listener| {
            let address = listener.address().unwrap_or_default();
            let opened = listener.open(beside);
            opened.map_err(|source| StartError::Listen { address, source })
        })
    }

    fn watch(&self, poll: &Poll, flags: EventFlags) {
        for (index, listener) in self.open.iter().enumerate() {
            if let Err(error) = poll.change(listener.fd(), Source::Listener(index), flags) {
                tracing::error!("a listening socket cannot be watched: {error}");
            }
        }
    }

    fn listen_again(&mut self, poll: &Poll) {
        if self.deaf_until.take().is_some() {
            self.watch(poll, EventFlags::IN);
        }
    }
}

/// The shell of a running server.
pub(crate) struct Reactor {
    operator: Operator,
    poll: Poll,
    listeners: Listeners,
    bells: Bells,
    sockets: Sockets,
    crew: Crew,
    memories: Memories,
    state: State,
    arrivals: Arrivals,
    server: Server,
    clock: Clock,
    readers: Readers,
    keeper: learned::Keeper,
}

/// Readers of the status and the metrics.
#[derive(Default)]
struct Readers {
    metrics: metrics::Readers,
    subscribers: Vec<SyncSender<ServerStatus>>,
}

fn watch_all(poll: &Poll, listeners: &[Listener], bells: &Bells) -> io::Result<()> {
    for (index, listener) in listeners.iter().enumerate() {
        poll.watch(listener.fd(), Source::Listener(index), EventFlags::IN)?;
    }
    let Bells {
        doorbell,
        signals,
        drains,
        reloads,
        _senders: _,
    } = bells;
    poll.watch(doorbell.as_fd(), Source::Doorbell, EventFlags::IN)?;
    poll.watch(signals.as_fd(), Source::Signal, EventFlags::IN)?;
    poll.watch(drains.as_fd(), Source::Drain, EventFlags::IN)?;
    poll.watch(reloads.as_fd(), Source::Reload, EventFlags::IN)
}

/// A pipe that is readable after one of these signals, and its other end.
fn pipe_of(signals: &[libc::c_int]) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    Ok((ours, theirs))
}

impl Reactor {
    pub(crate) fn new(
        config: Config,
        access: Access,
        logs: Logs,
        listeners: Vec<Listener>,
        libraries: (Catalog, Vec<LibrarySource>),
        worker_command: WorkerCommand,
    ) -> io::Result<Reactor> {
        let bells = Bells::new()?;
        let connections = allow_connections(config.limits.connections, "limits.connections");
        let clock = Clock::start();
        let (mut folder, mut data) = (None, Vec::new());
        if let Some(path) = &config.data.folder {
            let opened = Folder::open(path, bells.doorbell.try_clone()?)?;
            (folder, data) = (Some(opened.0), opened.1);
            let files = farcall_quantity::counted(data.len(), "file");
            tracing::info!("{files} in the data folder {}", path.display());
        }
        let crew = Crew::new(&config, libraries, worker_command)?;
        let mut settings = config.settings(logs.audit.is_some(), crew.gpus())?;
        settings.limits.connections = connections;
        let mut server = Server::new(settings, crew.documents(), data, clock.now());
        if let Some(folder) = &config.state {
            let (functions, links) = server.learned();
            learned::load(folder, functions, links);
        }
        let poll = Poll::new()?;
        watch_all(&poll, &listeners, &bells)?;
        let peers = config.data.peers.clone();
        let connectors = config.connectors()?;
        Ok(Reactor {
            crew,
            poll,
            listeners: Listeners {
                open: listeners,
                deaf_until: None,
                accepting: Accepting::default(),
            },
            sockets: Sockets::default(),
            memories: Memories::default(),
            state: State::new(
                config.workers.folder(),
                config.state_settings(),
                bells.doorbell.try_clone()?,
            ),
            arrivals: Arrivals::new(folder, peers, connectors, bells.doorbell.try_clone()?),
            bells,
            operator: Operator::new(config, access, logs),
            server,
            clock,
            readers: Readers::default(),
            keeper: learned::Keeper::default(),
        })
    }

    /// Sets how the configuration is read again.
    pub(crate) fn reread_with(&mut self, reread: Reread) {
        self.operator.reread_with(reread);
    }

    /// Opens the state folder, if there is one. During a takeover, the old server uses it until its
    /// calls have ended.
    pub(crate) fn open_disk(&mut self) -> Result<(), StartError> {
        let Some(path) = &self.operator.config.state else {
            return Ok(());
        };
        match self.state.open(path, self.operator.config.takeover) {
            Ok(happened) => self.tell(happened),
            Err(source) => {
                let path = path.clone();
                return Err(StartError::Journal { path, source });
            }
        }
        Ok(())
    }

    /// The status after every change.
    pub(crate) fn subscribe(&mut self) -> Receiver<ServerStatus> {
        self.server.subscribe();
        // Room for one is enough: a subscriber that takes it late gets the next at once.
        let (to, from) = sync_channel(1);
        self.readers.subscribers.push(to);
        from
    }

    /// Sends the status to subscribers, if that is due.
    fn report(&mut self) {
        let Some(status) = self.server.poll_report() else {
            return;
        };
        let mut all = true;
        let at = Instant::now();
        self.readers.subscribers.retain(|to| {
            let told = ServerStatus {
                at,
                status: status.clone(),
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
        self.server.reported(&status, all);
    }

    /// A handle to ask for metrics.
    pub(crate) fn readings(&mut self) -> io::Result<Readings> {
        let doorbell = self.bells.doorbell.try_clone()?;
        let state = self.operator.config.state.clone();
        self.readers.metrics.readings(state, doorbell)
    }

    /// Number of functions.
    pub(crate) fn functions(&self) -> usize {
        self.server.overview().functions().count()
    }

    /// Serves until SIGTERM or SIGINT.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let spin = Spin::new(self.operator.config.workers.spin());
        let mut wait = spin.begin();
        let mut looks = wait.spins();
        self.clock.read_calendar();
        self.server.set_time(self.clock.now());
        self.server.begin_record();
        self.act();
        while !self.is_stopped() {
            let waits = self.sockets.ready.is_empty() && !self.server.has_work();
            let sleeps = !looks && waits && self.crew.ask_for_doorbells();
            if sleeps {
                self.state.record();
                if let Some(audit) = &mut self.operator.logs.audit {
                    audit.flush();
                }
            }
            let lingers = self.crew.hurry();
            let timeout = if sleeps {
                let deadline = self.next_deadline().into_iter();
                deadline.chain(lingers).min()
            } else {
                Some(Duration::ZERO)
            };
            self.poll.wait(&mut events, timeout)?;
            let had_events = self.turn(&mut events);
            if had_events {
                wait = spin.begin();
                looks = wait.spins();
            } else {
                looks = wait.look_again();
            }
            if let Some(patience) = self.state.pass_on(had_events) {
                wait = spin.begin_for(patience);
                looks = wait.spins();
            }
        }
        self.shut_down();
        Ok(())
    }

    /// Handles a batch of events. Returns whether there were any.
    fn turn(&mut self, events: &mut Vec<Event>) -> bool {
        let mut active = !events.is_empty() || self.server.has_work();
        self.clock.read_calendar();
        for event in events.drain(..) {
            // Copied: the fields of a packed struct cannot be borrowed.
            let Event { flags, data } = event;
            self.handle(Source::from_data(data), flags);
        }
        active |= self.collect_outcomes();
        active |= self.serve_threads();
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

    /// Lets the server continue with what has become possible.
    fn go_on(&mut self) {
        self.server.set_time(self.clock.now());
        self.server.turn();
        self.act();
    }

    /// Reports an event to the server, and performs the actions that follow.
    fn tell(&mut self, happened: Happened) {
        self.server.set_time(self.clock.now());
        self.server.handle(happened);
        self.act();
    }

    fn next_deadline(&self) -> Option<Duration> {
        let server = self.server.next_deadline();
        let server = server.map(|nanos| self.clock.until(nanos));
        let now = Instant::now();
        let deaf = self.listeners.deaf_until;
        let deaf = deaf.map(|end| end.saturating_duration_since(now));
        let next_try = self.state.next_try();
        server.into_iter().chain(deaf).chain(next_try).min()
    }

    /// Tries again to accept connections, and to take over the state folder.
    fn look_again(&mut self) {
        let deaf_until = self.listeners.deaf_until;
        if deaf_until.is_some_and(|end| Instant::now() >= end) {
            self.listeners.listen_again(&self.poll);
        }
        if self.state.tries_again()
            && let Err(error) = self.open_disk()
        {
            self.state.cannot_take(error.to_string());
        }
    }

    /// Handles results of threads. Returns whether there were any.
    fn serve_threads(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.state.next(&mut self.memories) {
            any = true;
            self.tell(event);
        }
        while let Some(event) = self.arrivals.next(&mut self.memories) {
            any = true;
            self.tell(event);
        }
        any
    }

    /// Saves what was learned.
    fn keep_learned(&mut self) {
        if let Some(folder) = &self.operator.config.state {
            let overview = self.server.overview();
            let (functions, links) = (overview.functions(), overview.links());
            self.keeper.keep(folder, functions, links);
        }
    }

    fn is_stopped(&self) -> bool {
        self.server.stops().is_some_and(|deadline| {
            let mut sockets = self.sockets.open.iter();
            let flushed = sockets.all(|(_, socket)| socket.is_flushed());
            let has_answered = flushed && !self.server.awaits_records();
            has_answered || self.clock.nanos() >= deadline
        })
    }

    fn shut_down(&mut self) {
        self.keeper.wait();
        self.keep_learned();
        let deadline = Instant::now() + LAST_RECORDS;
        while !self.server.is_settled()
            && let Some(event) = self.state.last(deadline, &mut self.memories)
        {
            self.tell(event);
        }
        if let Some(audit) = &mut self.operator.logs.audit {
            audit.flush();
        }
        self.server.end_record();
        self.act();
        self.operator.end_logs();
        self.crew.end_all();
        self.listeners.open.clear();
        self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The pipe for SIGHUP of a server that was started at a terminal.
    #[test]
    fn a_pipe_of_no_signal_is_never_readable() {
        let (mut ours, _theirs) = pipe_of(&[]).unwrap();
        let error = ours.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}

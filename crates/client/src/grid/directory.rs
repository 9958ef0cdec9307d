//! The client's copy of the directory, and its questions to the metaserver.
//!
//! Questions go to the metaserver first. If none answers, the client's copy answers, with what the
//! client knew last.

use crate::address::Address;
use crate::error::{Error, Fault};
use crate::grid::probe::{self, Probes};
use crate::options::Options;
use crate::remote::{
    Connection, Server, answers, connect_within, connection_within, directory, generation,
    same_function,
};
use farcall_directory::Refusal;
use farcall_directory::client::{ChosenServer, Known};
use farcall_directory::message::{Choose, Chosen, Find, Found, Observe, Offer};
use farcall_rpc_proto::{FailureKind, Kind, TRACES};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The servers behind a metaserver. Clones share one directory.
#[derive(Clone)]
pub(crate) struct Grid(Arc<Shared>);

struct Shared {
    /// The metaserver.
    meta: Server,
    known: Mutex<Known>,
    start: Instant,
    /// Connections to servers, by server number.
    servers: Mutex<HashMap<u64, Server>>,
    probes: Probes,
    /// The process of which a thread waits until a metaserver answers again; 0 if none does.
    sought_by: AtomicU32,
}

/// A question that failed after this time was to a metaserver that stands still, or to a network
/// that swallows everything.
const SLOW: Duration = Duration::from_millis(500);
/// Most servers to which a client connects at once.
const MOST_AT_ONCE: usize = 32;
/// Time between two looks whether a metaserver answers again.
const PAUSE: Duration = Duration::from_secs(1);

impl Grid {
    /// The servers behind this metaserver.
    pub(crate) fn behind(meta: Server) -> Grid {
        Grid(Arc::new(Shared {
            meta,
            known: Mutex::default(),
            start: Instant::now(),
            servers: Mutex::default(),
            probes: Probes::default(),
            sought_by: AtomicU32::new(0),
        }))
    }

    /// The metaserver.
    pub(crate) fn meta(&self) -> &Server {
        &self.0.meta
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds on the clock of the client's directory.
    pub(super) fn now(&self) -> f64 {
        self.0.start.elapsed().as_secs_f64()
    }

    /// Asks a metaserver. Returns `None` if none answers.
    pub(super) fn ask<T>(
        &self,
        ask: impl Fn(&Arc<Connection>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let is_sought = self.0.sought_by.load(Ordering::Relaxed) == own_process();
        if is_sought || !self.known().asks(self.now()) {
            return Ok(None);
        }
        let start = Instant::now();
        // The second try uses a new connection, which may lead to another metaserver.
        for _ in 0..2 {
            let answer = self
                .meta()
                .connection()
                .and_then(|connection| ask(&connection));
            match answer {
                Ok(answer) => {
                    self.known().answered(self.now(), true);
                    return Ok(Some(answer));
                }
                Err(error) if error.fault() == Fault::Peer || error.was_let_go() => {
                    match self.meta().renew() {
                        Ok(()) => {}
                        Err(Error::Interrupted) => return Err(Error::Interrupted),
                        Err(_) => break,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        self.known().answered(self.now(), false);
        if start.elapsed() >= SLOW && !self.meta().needs_login() {
            self.seek();
        }
        Ok(None)
    }

    /// Waits on a thread of its own until a metaserver answers again, so that no call waits for it.
    fn seek(&self) {
        let process = own_process();
        if self.0.sought_by.swap(process, Ordering::Relaxed) == process {
            return;
        }
        let shared = Arc::downgrade(&self.0);
        let seek = move || loop {
            thread::sleep(PAUSE);
            let Some(meta) = shared.upgrade().map(|shared| shared.meta.clone()) else {
                return;
            };
            if answers(&meta)
                && let Some(shared) = shared.upgrade()
            {
                return shared.sought_by.store(0, Ordering::Relaxed);
            }
        };
        let thread = thread::Builder::new().name("metaserver".into());
        if thread.spawn(seek).is_err() {
            // Calls ask again.
            self.0.sought_by.store(0, Ordering::Relaxed);
        }
    }

    /// Finds out which servers have a function, unless the client knows it. Returns the qualified
    /// name.
    pub(super) fn find(&self, name: &str) -> Result<String, Error> {
        if self.known().is_fresh(self.now(), name) {
            return self.resolve(name);
        }
        let find = Find {
            function: name.to_string(),
        };
        let found: Option<Found> = self.ask(|connection| {
            directory::ask_directory(connection, (Kind::Find, Kind::Found), &find)
        })?;
        match found {
            Some(found) => Ok(self.known().found(self.now(), name, found)),
            None => self.resolve(name),
        }
    }

    fn resolve(&self, name: &str) -> Result<String, Error> {
        let known = self.known();
        known.directory().resolve(name).map_err(|refusal| {
            let is_unknown = matches!(refusal, Refusal::Unknown { .. } | Refusal::NobodyJoined(_));
            // What the client knows is not what the servers have.
            let (kind, text) = match known.is_away() && is_unknown {
                true => (
                    FailureKind::NoServer,
                    format!(
                        "no metaserver answers, and this client does not know a function `{name}` \
                         yet; try again when one answers"
                    ),
                ),
                false => (FailureKind::UnknownFunction, refusal.to_string()),
            };
            Error::failed(kind, text)
        })
    }

    /// Numbers and addresses of the servers that are known to have a function. With a digest, only
    /// those with that interface.
    pub(super) fn servers_with(&self, function: &str, digest: Option<u64>) -> Vec<(u64, String)> {
        self.known().servers_with(self.now(), function, digest)
    }

    /// The reachable servers that have a function with this interface. They have described it.
    ///
    /// # Errors
    /// [`Options::on_interrupt`] asked to give up.
    pub(crate) fn servers_of(&self, function: &str, text: &str) -> Result<Vec<Server>, Error> {
        let digest = farcall_directory::digest(text);
        look_for(self, function)?;
        let found = self.servers_with(function, Some(digest));
        // A server that does not answer must not keep the client from the others.
        let (sender, answers) = mpsc::channel();
        for part in found.chunks(found.len().div_ceil(MOST_AT_ONCE).max(1)) {
            let (grid, sender, part) = (self.clone(), sender.clone(), part.to_vec());
            let (function, text) = (function.to_owned(), text.to_owned());
            let reach = move || {
                for (number, address) in part {
                    let answer = answer(&grid, (number, &address), (&function, &text));
                    // Nobody waits for it anymore after an interrupt.
                    let _ = sender.send((number, answer));
                }
            };
            // Without another thread, this one waits.
            if thread::Builder::new().spawn(reach.clone()).is_err() {
                reach();
            }
        }
        drop(sender);
        let mut reached = wait_for_all(self.meta().options(), &answers)?;
        let places = found.iter().map(|(number, _)| reached.remove(number));
        Ok(places.flatten().collect())
    }

    fn has_paths(&self, server: u64) -> bool {
        let known = self.known();
        known.directory().paths().any(|(_, to, _)| to == server)
    }

    /// How the client connects to a server that the metaserver has named.
    fn server_options(&self) -> Options {
        let options = self.meta().options().clone();
        Options {
            credentials: options.credentials.for_named_server(),
            ..options
        }
    }

    /// The connection to a server. Connects if there is none.
    pub(crate) fn server(&self, number: u64, at: &str) -> Result<Server, Error> {
        self.server_within(number, at, Duration::MAX)
    }

    /// The connection to a server that answers within `patience`.
    pub(super) fn server_within(
        &self,
        number: u64,
        at: &str,
        patience: Duration,
    ) -> Result<Server, Error> {
        let lock = || {
            self.0
                .servers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let known = lock().get(&number).cloned();
        if let Some(known) = known {
            return connection_within(&known, patience).map(|_| known);
        }
        let server = connect_within(at, self.server_options(), patience)?;
        if server.is_metaserver() {
            let text = format!("{at} has joined as a server, but it is a metaserver");
            return Err(Error::failed(FailureKind::Internal, text));
        }
        let mut servers = lock();
        // Connections to servers that are gone would keep their descriptors. Calls under way have
        // their own.
        servers.retain(|_, known| known.live_connection().is_some());
        // If two threads connected at once, the first connection stays.
        Ok(servers.entry(number).or_insert(server).clone())
    }

    /// The server at this address, if it has a function with this interface.
    pub(crate) fn server_of(
        &self,
        (function, text): (&str, &str),
        address: &Address,
    ) -> Result<Option<Server>, Error> {
        let digest = farcall_directory::digest(text);
        look_for(self, function)?;
        let found = self.servers_with(function, Some(digest)).into_iter();
        let is_it = |at: &str| at.parse().is_ok_and(|at: Address| at == *address);
        let mut its = found.filter(|(_, at)| is_it(at));
        let server = its.next();
        server
            .map(|(server, at)| self.server(server, &at))
            .transpose()
    }

    /// The connection to the server with this address. Connects if there is none.
    pub(crate) fn server_at(&self, address: &Address) -> Result<Server, Error> {
        let servers = self.0.servers.lock();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        let known = servers.values().find(|server| server.address() == address);
        if let Some(known) = known.cloned() {
            return Ok(known);
        }
        drop(servers);
        Server::connect(&address.to_string(), self.server_options())
    }

    /// Chooses the server for a call.
    pub(crate) fn choose(&self, wanted: &Choose) -> Result<ChosenServer, Error> {
        // Keeps the client's copy fresh for a time without a metaserver.
        match self.find(&wanted.function) {
            Err(error) if !knows_none(&error) => return Err(error),
            _ => {}
        }
        let (is_own, chosen) = self.offers(wanted)?;
        ChosenServer::of(wanted, chosen, is_own)
            .map_err(|refusal| Error::failed(FailureKind::NoServer, refusal.to_string()))
    }

    /// Placements for a call, from the metaserver (`true`) or from the client's own directory
    /// (`false`). A metaserver that has just started, or has stood still, may know no server yet
    /// or any more. Then the servers that the client knows get the call, if they can be reached.
    fn offers(&self, wanted: &Choose) -> Result<(bool, Chosen), Error> {
        let chosen: Result<Option<Chosen>, Error> = self.ask(|connection| {
            let kinds = (Kind::Choose, Kind::Chosen);
            match wanted.trace.is_some() && !connection.has(TRACES) {
                false => directory::ask_directory(connection, kinds, wanted),
                true => {
                    let (wanted, trace) = (wanted.clone(), None);
                    directory::ask_directory(connection, kinds, &Choose { trace, ..wanted })
                }
            }
        });
        let refused = match chosen {
            Ok(Some(chosen)) => return Ok((false, chosen)),
            Ok(None) => None,
            Err(error) if knows_none(&error) && !wanted.explain => Some(error),
            Err(error) => return Err(error),
        };
        let own = self.known().choose(self.now(), wanted);
        own.map(|chosen| (true, chosen)).map_err(|refusal| {
            let text = format!("{refusal} (no metaserver answers)");
            refused.unwrap_or_else(|| Error::failed(FailureKind::NoServer, text))
        })
    }

    /// The estimate of a call at each server.
    pub(crate) fn explain(&self, wanted: &Choose) -> Result<Vec<Offer>, Error> {
        Ok(self.offers(wanted)?.1.offers)
    }

    /// Reports the outcome of a call to the metaserver and to the client's own directory.
    pub(crate) fn observe(&self, place: &ChosenServer, observed: &Observe) {
        let told = self.known().observe(self.now(), place, observed);
        if let Some(told) = told
            && let Some(connection) = self.meta().live_connection()
        {
            directory::observe(&connection, &told);
        }
    }

    /// Probes those of these servers to which no path is known, one after the other, on a thread of
    /// its own.
    pub(super) fn probe(&self, servers: &[(u64, String)]) {
        let fresh = self.0.probes.take(servers, |server| self.has_paths(server));
        if fresh.is_empty() {
            return;
        }
        let grid = self.clone();
        let probe = move || {
            for (server, address) in fresh {
                let reached = grid.server(server, &address);
                let observed = reached.and_then(|server| probe::probe(&server));
                for observed in observed.into_iter().flatten() {
                    grid.observe(&ChosenServer::unplaced(server), &observed);
                }
            }
        };
        // If the system gives no thread, the transfers of calls will measure the paths.
        let _ = thread::Builder::new().name("probe".into()).spawn(probe);
    }
}

/// Finds out which servers have a function. If no metaserver answers, the servers that the client
/// knows must do.
///
/// # Errors
/// [`Options::on_interrupt`] asked to give up.
fn look_for(grid: &Grid, function: &str) -> Result<(), Error> {
    match grid.find(function) {
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A server, if it answers and has a function with this interface.
fn answer(
    grid: &Grid,
    (number, address): (u64, &str),
    function: (&str, &str),
) -> Result<Server, Error> {
    let server = grid.server(number, address)?;
    // It may have fallen silent since it was connected.
    same_function(&server, function)?;
    Ok(server)
}

/// The servers that have answered, when none is waited for anymore.
fn wait_for_all(
    options: &Options,
    answers: &Receiver<(u64, Result<Server, Error>)>,
) -> Result<HashMap<u64, Server>, Error> {
    let give_up = options.on_interrupt.as_ref();
    let mut reached = HashMap::new();
    loop {
        match answers.recv_timeout(Duration::from_millis(100)) {
            Ok((number, answer)) => reached.extend(answer.ok().map(|server| (number, server))),
            Err(RecvTimeoutError::Disconnected) => return Ok(reached),
            Err(RecvTimeoutError::Timeout) if give_up.is_some_and(|give_up| give_up()) => {
                return Err(Error::Interrupted);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// A number of this process that is not 0. A forked child has none of the threads of its parent.
fn own_process() -> u32 {
    generation().wrapping_add(1)
}

/// Whether a metaserver says that it knows no server for a call.
fn knows_none(error: &Error) -> bool {
    let kinds = [FailureKind::UnknownFunction, FailureKind::NoServer];
    matches!(error, Error::Failed(failure) if kinds.contains(&failure.kind))
}

//! What a client knows of the servers behind its metaserver, and how it asks for more.

use crate::address::Address;
use crate::error::{Error, Fault};
use crate::grid::probe::{self, Probes};
use crate::remote::{Connection, Server, directory};
use farcall_directory::message::{Choose, Chosen, Find, Found, Observe, Offer, Terms};
use farcall_directory::{Directory, Settings};
use farcall_rpc_proto::{FailureKind, Kind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// While no metaserver answers, it is tried again so often.
const RETRY: Duration = Duration::from_secs(1);
/// What is known of a function is asked for again after so long.
pub(super) const FRESH: Duration = Duration::from_secs(2);
/// The client's own name for where it is.
pub(super) const HERE: &str = "here";

/// The servers behind a metaserver. Clones share what is known of them.
#[derive(Clone)]
pub(crate) struct Grid(Arc<Shared>);

struct Shared {
    /// The metaserver.
    meta: Server,
    known: Mutex<Known>,
    /// Connections to servers, by their numbers.
    servers: Mutex<HashMap<u64, Server>>,
    probes: Probes,
}

pub(super) struct Known {
    pub(super) directory: Directory,
    /// When each function was asked for last.
    asked: HashMap<String, Instant>,
    /// When data of each name were asked for last.
    pub(super) asked_data: HashMap<String, Instant>,
    /// No metaserver has answered; none is asked before.
    away_until: Option<Instant>,
}

/// A server that was chosen for a call.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) server: u64,
    pub(crate) address: String,
    /// What the call is predicted to take there.
    pub(crate) terms: Option<Terms>,
    /// Its number at the metaserver; 0 where the client has decided.
    placement: u64,
    /// Its number in the client's own directory; 0 where the metaserver has decided.
    own: u64,
}

pub(super) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl Grid {
    /// What is behind a metaserver.
    pub(crate) fn behind(meta: Server) -> Grid {
        let settings = Settings {
            forgets: false,
            ..Settings::default()
        };
        Grid(Arc::new(Shared {
            meta,
            known: Mutex::new(Known {
                directory: Directory::new(settings),
                asked: HashMap::new(),
                asked_data: HashMap::new(),
                away_until: None,
            }),
            servers: Mutex::default(),
            probes: Probes::default(),
        }))
    }

    /// The metaserver.
    pub(crate) fn meta(&self) -> &Server {
        &self.0.meta
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a metaserver; `None` where none answers.
    pub(super) fn ask<T>(
        &self,
        ask: impl Fn(&Arc<Connection>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let away = self.known().away_until;
        if away.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        // Once more on a new connection, which may lead to another metaserver.
        for _ in 0..2 {
            let answer = self
                .meta()
                .connection()
                .and_then(|connection| ask(&connection));
            match answer {
                Ok(answer) => {
                    self.known().away_until = None;
                    return Ok(Some(answer));
                }
                Err(error) if error.fault() == Fault::Peer || error.was_let_go() => {
                    self.meta().leave();
                }
                Err(error) => return Err(error),
            }
        }
        self.known().away_until = Some(Instant::now() + RETRY);
        Ok(None)
    }

    /// Learns which servers have a function, unless that is known; returns its qualified name.
    pub(super) fn find(&self, name: &str) -> Result<String, Error> {
        let is_fresh = |at: &Instant| at.elapsed() < FRESH;
        if self.known().asked.get(name).is_some_and(is_fresh) {
            return self.resolve(name);
        }
        let find = Find {
            function: name.to_string(),
        };
        let found: Option<Found> = self.ask(|connection| {
            directory::ask_directory(connection, (Kind::Find, Kind::Found), &find)
        })?;
        let Some(found) = found else {
            return self.resolve(name);
        };
        let mut known = self.known();
        for record in found.records {
            known.directory.apply(now(), record.at(HERE));
        }
        known.asked.insert(name.to_string(), Instant::now());
        Ok(found.function)
    }

    fn resolve(&self, name: &str) -> Result<String, Error> {
        let known = self.known();
        known.directory.resolve(name).map_err(|refusal| {
            let away = match known.away_until {
                Some(_) => "; no metaserver answers, and this client has not asked for it before",
                None => "",
            };
            let text = format!("{refusal}{away}");
            Error::failed(FailureKind::UnknownFunction, text)
        })
    }

    /// Numbers and addresses of the servers that are known to have a function, with the interface
    /// of that digest where there is one.
    pub(super) fn servers_with(&self, function: &str, digest: Option<u64>) -> Vec<(u64, String)> {
        let known = self.known();
        let directory = &known.directory;
        let address = |server| directory.address(server).unwrap_or_default().to_string();
        let found = directory.with_function(function, digest);
        found.map(|(server, _)| (server, address(server))).collect()
    }

    /// The servers that have a function with this interface and can be reached.
    pub(crate) fn servers_of(&self, function: &str, text: &str) -> Vec<Server> {
        let digest = farcall_directory::digest(text);
        // Where no metaserver answers, those that are known are all there are.
        let _ = self.find(function);
        let found = self.servers_with(function, Some(digest));
        let reached = found
            .iter()
            .map(|(server, address)| self.server(*server, address));
        reached.filter_map(Result::ok).collect()
    }

    fn has_paths(&self, server: u64) -> bool {
        let known = self.known();
        known.directory.paths().any(|(_, to, _)| to == server)
    }

    /// The connection to a server, made where there is none.
    pub(crate) fn server(&self, number: u64, at: &str) -> Result<Server, Error> {
        let lock = || {
            self.0
                .servers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(known) = lock().get(&number) {
            return Ok(known.clone());
        }
        let server = Server::connect(at, self.meta().options().clone())?;
        if server.is_metaserver() {
            let text = format!("{at} is a metaserver, though it has joined as a server");
            return Err(Error::failed(FailureKind::Internal, text));
        }
        // Of two that were made at once the first stays.
        Ok(lock().entry(number).or_insert(server).clone())
    }

    /// The server at an address, if it has a function with this interface.
    pub(crate) fn server_of(
        &self,
        (function, text): (&str, &str),
        address: &Address,
    ) -> Result<Option<Server>, Error> {
        let digest = farcall_directory::digest(text);
        // Where no metaserver answers, those that are known are all there are.
        let _ = self.find(function);
        let found = self.servers_with(function, Some(digest)).into_iter();
        let is_it = |at: &str| at.parse().is_ok_and(|at: Address| at == *address);
        let mut its = found.filter(|(_, at)| is_it(at));
        let server = its.next();
        server
            .map(|(server, at)| self.server(server, &at))
            .transpose()
    }

    /// The connection to a server by its address, made where there is none.
    pub(crate) fn server_at(&self, address: &Address) -> Result<Server, Error> {
        let servers = self.0.servers.lock();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        let known = servers.values().find(|server| server.address() == address);
        if let Some(known) = known.cloned() {
            return Ok(known);
        }
        drop(servers);
        Server::connect(&address.to_string(), self.meta().options().clone())
    }

    /// The server for a call.
    pub(crate) fn choose(&self, wanted: &Choose) -> Result<Place, Error> {
        // Kept fresh for the time when no metaserver answers.
        self.find(&wanted.function)?;
        let chosen = self.offers(wanted)?;
        let (is_own, chosen) = chosen;
        let Some(offer) = chosen.offers.into_iter().next() else {
            let text = format!("no server for `{}` was named", wanted.function);
            return Err(Error::failed(FailureKind::NoServer, text));
        };
        let number = |is_it: bool| if is_it { chosen.placement } else { 0 };
        Ok(Place {
            server: offer.server,
            address: offer.address,
            terms: offer.terms,
            placement: number(!is_own),
            own: number(is_own),
        })
    }

    /// What the metaserver says of a call, or the client's own directory, and which it was.
    fn offers(&self, wanted: &Choose) -> Result<(bool, Chosen), Error> {
        let chosen: Option<Chosen> = self.ask(|connection| {
            directory::ask_directory(connection, (Kind::Choose, Kind::Chosen), wanted)
        })?;
        if let Some(chosen) = chosen {
            return Ok((false, chosen));
        }
        let own = self.known().directory.choose(now(), HERE, wanted);
        own.map(|chosen| (true, chosen)).map_err(|refusal| {
            let text = format!("{refusal} (no metaserver answers)");
            Error::failed(FailureKind::NoServer, text)
        })
    }

    /// What a call would take at each server.
    pub(crate) fn explain(&self, wanted: &Choose) -> Result<Vec<Offer>, Error> {
        Ok(self.offers(wanted)?.1.offers)
    }

    /// Tells the metaserver and the client's own directory what became of a call.
    pub(crate) fn observe(&self, place: &Place, mut observed: Observe) {
        observed.server = place.server;
        observed.placement = place.own;
        let mut known = self.known();
        known.directory.observe(now(), HERE, &observed);
        let is_away = known.away_until.is_some();
        drop(known);
        observed.placement = place.placement;
        if !is_away && let Some(connection) = self.meta().live_connection() {
            directory::observe(&connection, &observed);
        }
    }

    /// Probes, one after the other and beside the caller, those of these servers to which no way is
    /// known.
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
                    grid.observe_probe(server, observed);
                }
            }
        };
        // Without a thread, transfers of calls will tell.
        let _ = std::thread::Builder::new()
            .name("probe".into())
            .spawn(probe);
    }

    /// A probe has ended.
    fn observe_probe(&self, server: u64, observed: Observe) {
        let place = Place {
            server,
            address: String::new(),
            terms: None,
            placement: 0,
            own: 0,
        };
        self.observe(&place, observed);
    }
}

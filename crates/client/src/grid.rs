//! All servers behind a metaserver, as one: where each call goes, what became of it, and where it
//! goes on when its server is lost.
//!
//! The metaserver is asked for each call. While none answers, the client decides itself, by the
//! directory as it knew it last.

mod data;
mod placed;
mod probe;

pub(crate) use placed::{Placed, call, start};

use crate::connection::Connection;
use crate::function::Function;
use crate::{Address, Error, Fault, Server};
use farcall_directory::message::{Choose, Chosen, Find, Found, Observe, Offer, Terms};
use farcall_directory::{Directory, Settings};
use farcall_rpc_proto::{Failure, FailureKind, Kind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// While no metaserver answers, it is tried again so often.
const RETRY: Duration = Duration::from_secs(1);
/// What is known of a function is asked for again after so long.
const FRESH: Duration = Duration::from_secs(2);
/// The client's own name for where it is.
const HERE: &str = "here";

/// What a client knows of the servers behind its metaserver.
pub(crate) struct Grid {
    known: Mutex<Known>,
    /// Connections to servers, by their numbers.
    servers: Mutex<HashMap<u64, Server>>,
    probes: probe::Probes,
}

struct Known {
    directory: Directory,
    /// When each function was asked for last.
    asked: HashMap<String, Instant>,
    /// When data of each name were asked for last.
    asked_data: HashMap<String, Instant>,
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

pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl Grid {
    /// What is behind the metaserver at the other end; none where that is a server.
    pub(crate) fn behind(connection: &Connection) -> Option<Grid> {
        let settings = Settings {
            forgets: false,
            ..Settings::default()
        };
        connection.is_to_metaserver().then(|| Grid {
            known: Mutex::new(Known {
                directory: Directory::new(settings),
                asked: HashMap::new(),
                asked_data: HashMap::new(),
                away_until: None,
            }),
            servers: Mutex::default(),
            probes: probe::Probes::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks a metaserver; `None` where none answers.
    fn ask<T>(
        &self,
        meta: &Server,
        ask: impl Fn(&Arc<Connection>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let away = self.known().away_until;
        if away.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        // Once more on a new connection, which may lead to another metaserver.
        for _ in 0..2 {
            let answer = meta.connection().and_then(|connection| ask(&connection));
            match answer {
                Ok(answer) => {
                    self.known().away_until = None;
                    return Ok(Some(answer));
                }
                Err(error) if error.fault() == Fault::Peer || error.was_let_go() => {
                    meta.leave();
                }
                Err(error) => return Err(error),
            }
        }
        self.known().away_until = Some(Instant::now() + RETRY);
        Ok(None)
    }

    /// Learns which servers have a function, unless that is known; returns its qualified name.
    fn find(&self, meta: &Server, name: &str) -> Result<String, Error> {
        let is_fresh = |at: &Instant| at.elapsed() < FRESH;
        if self.known().asked.get(name).is_some_and(is_fresh) {
            return self.resolve(name);
        }
        let find = Find {
            function: name.to_string(),
        };
        let found: Option<Found> = self.ask(meta, |connection| {
            connection.ask_directory((Kind::Find, Kind::Found), &find)
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
            Error::Failed(Failure::new(FailureKind::UnknownFunction, text))
        })
    }

    /// Numbers and addresses of the servers that are known to have a function, with the interface
    /// of that digest where there is one.
    fn servers_with(&self, function: &str, digest: Option<u64>) -> Vec<(u64, String)> {
        let known = self.known();
        let directory = &known.directory;
        let address = |server| directory.address(server).unwrap_or_default().to_string();
        let found = directory.with_function(function, digest);
        found.map(|(server, _)| (server, address(server))).collect()
    }

    /// A handle on a function, whose calls go to the servers that have it. Its interface comes from
    /// the first that answers.
    pub(crate) fn function(&self, meta: &Server, name: &str) -> Result<Function, Error> {
        let qualified = self.find(meta, name)?;
        let servers = self.servers_with(&qualified, None);
        self.probes
            .begin(meta, &servers, |server| self.has_paths(server));
        let mut last = None;
        for (server, address) in &servers {
            match self
                .server(meta, *server, address)
                .and_then(|server| server.function(&qualified))
            {
                Ok(function) => return Ok(function.by(meta.clone())),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let text = format!("no server has a function `{name}`");
            Error::Failed(Failure::new(FailureKind::UnknownFunction, text))
        }))
    }

    /// The servers that have a function with this interface and can be reached.
    pub(crate) fn servers_of(&self, meta: &Server, function: &str, text: &str) -> Vec<Server> {
        let digest = farcall_directory::digest(text);
        // Where no metaserver answers, those that are known are all there are.
        let _ = self.find(meta, function);
        let found = self.servers_with(function, Some(digest));
        let reached = found
            .iter()
            .map(|(server, address)| self.server(meta, *server, address));
        reached.filter_map(Result::ok).collect()
    }

    fn has_paths(&self, server: u64) -> bool {
        let known = self.known();
        known.directory.paths().any(|(_, to, _)| to == server)
    }

    /// The connection to a server, made where there is none.
    pub(crate) fn server(&self, meta: &Server, number: u64, at: &str) -> Result<Server, Error> {
        let lock = || self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&number) {
            return Ok(known.clone());
        }
        let server = Server::connect(at, meta.0.options.clone())?;
        if server.grid().is_some() {
            let text = format!("{at} is a metaserver, though it has joined as a server");
            return Err(Error::Failed(Failure::new(FailureKind::Internal, text)));
        }
        // Of two that were made at once the first stays.
        Ok(lock().entry(number).or_insert(server).clone())
    }

    /// The server at an address, if it has a function with this interface.
    pub(crate) fn server_of(
        &self,
        meta: &Server,
        (function, text): (&str, &str),
        address: &Address,
    ) -> Result<Option<Server>, Error> {
        let digest = farcall_directory::digest(text);
        // Where no metaserver answers, those that are known are all there are.
        let _ = self.find(meta, function);
        let found = self.servers_with(function, Some(digest)).into_iter();
        let is_it = |at: &str| at.parse().is_ok_and(|at: Address| at == *address);
        let mut its = found.filter(|(_, at)| is_it(at));
        let server = its.next();
        server
            .map(|(server, at)| self.server(meta, server, &at))
            .transpose()
    }

    /// The connection to a server by its address, made where there is none.
    pub(crate) fn server_at(&self, meta: &Server, address: &Address) -> Result<Server, Error> {
        let servers = self.servers.lock();
        let servers = servers.unwrap_or_else(PoisonError::into_inner);
        let known = servers.values().find(|server| server.address() == address);
        if let Some(known) = known.cloned() {
            return Ok(known);
        }
        drop(servers);
        Server::connect(&address.to_string(), meta.0.options.clone())
    }

    /// The server for a call.
    pub(crate) fn choose(&self, meta: &Server, wanted: &Choose) -> Result<Place, Error> {
        // Kept fresh for the time when no metaserver answers.
        self.find(meta, &wanted.function)?;
        let chosen = self.offers(meta, wanted)?;
        let (is_own, chosen) = chosen;
        let Some(offer) = chosen.offers.into_iter().next() else {
            let text = format!("no server for `{}` was named", wanted.function);
            return Err(Error::Failed(Failure::new(FailureKind::NoServer, text)));
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
    fn offers(&self, meta: &Server, wanted: &Choose) -> Result<(bool, Chosen), Error> {
        let chosen: Option<Chosen> = self.ask(meta, |connection| {
            connection.ask_directory((Kind::Choose, Kind::Chosen), wanted)
        })?;
        if let Some(chosen) = chosen {
            return Ok((false, chosen));
        }
        let own = self.known().directory.choose(now(), HERE, wanted);
        own.map(|chosen| (true, chosen)).map_err(|refusal| {
            let text = format!("{refusal} (no metaserver answers)");
            Error::Failed(Failure::new(FailureKind::NoServer, text))
        })
    }

    /// What a call would take at each server.
    pub(crate) fn explain(&self, meta: &Server, wanted: &Choose) -> Result<Vec<Offer>, Error> {
        Ok(self.offers(meta, wanted)?.1.offers)
    }

    /// Tells the metaserver and the client's own directory what became of a call.
    pub(crate) fn observe(&self, meta: &Server, place: &Place, mut observed: Observe) {
        observed.server = place.server;
        observed.placement = place.own;
        let mut known = self.known();
        known.directory.observe(now(), HERE, &observed);
        let is_away = known.away_until.is_some();
        drop(known);
        observed.placement = place.placement;
        if !is_away && let Some(connection) = meta.live_connection() {
            connection.observe(&observed);
        }
    }

    /// A probe has ended.
    fn observe_probe(&self, meta: &Server, server: u64, observed: Observe) {
        let place = Place {
            server,
            address: String::new(),
            terms: None,
            placement: 0,
            own: 0,
        };
        self.observe(meta, &place, observed);
    }
}

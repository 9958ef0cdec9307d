//! The callers of a gateway: for each of them one connection to the server, as that user, and a
//! bound on calls at a time. The gateway learns from the server whether a token is right, and keeps
//! a connection for a few minutes at most, so that a withdrawn token ends soon.

use crate::failure::Failure;
use axum::http::StatusCode;
use farcall_client::{Address, Credentials, Error, Options, Server};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time without calls after which a connection ends.
const IDLE: Duration = Duration::from_secs(60);
/// Age after which a connection takes no more calls.
const AGE: Duration = Duration::from_secs(300);

/// Who calls: a user with a token, or somebody without one.
pub(crate) type Caller = Option<String>;

/// How a gateway connects to its server.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    /// The server or the metaservers.
    pub(crate) address: String,
    /// Whether callers without a token use the identity of the gateway.
    pub(crate) own_identity: bool,
    /// A word with which callers use the user of this process, in place of a token.
    pub(crate) key: Option<String>,
    /// Certificates of authorities that vouch for the server, in place of those of the
    /// environment.
    pub(crate) authorities: Option<PathBuf>,
}

impl Door {
    /// Connects as the caller. The gateway shows nothing of its own, unless its operator wants it.
    fn open(&self, caller: &Caller) -> Result<Server, Error> {
        let options = Options::default();
        let options = match caller {
            Some(token) if self.is_key(token) => Options {
                credentials: Credentials::anonymous(),
                ..options
            },
            Some(token) => Options {
                credentials: Credentials::of_token(token.clone()),
                ..options
            },
            None if self.own_identity => options,
            // A metaserver may name servers that would take the caller for the user of the gateway.
            None => Options {
                credentials: Credentials::of_stranger(),
                same_host: false,
                ..options
            },
        };
        let credentials = match &self.authorities {
            Some(file) => options.credentials.clone().with_authorities(file),
            None => options.credentials.clone(),
        };
        let options = Options {
            credentials,
            ..options
        };
        Server::connect(&self.address, options)
    }
}

impl Door {
    /// Whether a text is the key. The time of the comparison does not say how much of it is right.
    fn is_key(&self, text: &str) -> bool {
        self.key.as_ref().is_some_and(|key| {
            let pairs = key.bytes().zip(text.bytes());
            key.len() == text.len() && pairs.fold(0, |wrong, (one, two)| wrong | (one ^ two)) == 0
        })
    }
}

/// Whether a server at this address takes local processes for their user of the host.
pub(crate) fn mistakes(address: &str) -> bool {
    let mut addresses = address.split(',').map(str::trim).map(str::parse);
    addresses.any(|address| matches!(address, Ok(Address::Unix(_) | Address::Ssh(_))))
}

/// The connections of all callers.
#[derive(Debug)]
pub(crate) struct Users {
    door: Door,
    /// Most callers with a connection.
    most: usize,
    /// Most calls of one caller at a time.
    calls: usize,
    known: Mutex<HashMap<Caller, Known>>,
}

#[derive(Debug)]
struct Known {
    server: Server,
    calls: Arc<Semaphore>,
    since: Instant,
    used: Instant,
}

/// A caller with a call, and the connection for it.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) server: Server,
    _place: OwnedSemaphorePermit,
}

impl Users {
    pub(crate) fn new(door: Door, most: usize, calls: usize) -> Users {
        Users {
            door,
            most,
            calls,
            known: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Caller, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a call of the caller. Waits for the server if the caller has no connection yet.
    ///
    /// # Errors
    /// The server refuses the caller, or the caller has too many calls.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<Guest, Failure> {
        if let Some(guest) = self.known_guest(caller)? {
            return Ok(guest);
        }
        let server = self.door.open(caller)?;
        self.keep(caller, server)?;
        let guest = self.known_guest(caller)?;
        guest.ok_or_else(|| Failure::busy("too many users call at the same time; try again"))
    }

    fn known_guest(&self, caller: &Caller) -> Result<Option<Guest>, Failure> {
        let mut known = self.lock();
        let Some(found) = known
            .get_mut(caller)
            .filter(|found| found.since.elapsed() < AGE)
        else {
            return Ok(None);
        };
        let place = Arc::clone(&found.calls).try_acquire_owned().map_err(|_| {
            let most = self.calls;
            let text = format!("{most} calls of this user are running, as many as may; try again");
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "QuotaExceeded", text)
        })?;
        found.used = Instant::now();
        Ok(Some(Guest {
            server: found.server.clone(),
            _place: place,
        }))
    }

    fn is_idle(&self, one: &Known) -> bool {
        one.calls.available_permits() == self.calls
    }

    /// Forgets callers who have no calls, and their tokens.
    pub(crate) fn tidy(&self) {
        let is_used = |one: &Known| one.used.elapsed() < IDLE && one.since.elapsed() < AGE;
        self.lock()
            .retain(|_, one| !self.is_idle(one) || is_used(one));
    }

    /// Keeps a connection, in the place of connections that are not in use.
    fn keep(&self, caller: &Caller, server: Server) -> Result<(), Failure> {
        let now = Instant::now();
        let mut known = self.lock();
        // The calls of an older connection of the caller still count.
        let calls = known.get(caller).map(|older| Arc::clone(&older.calls));
        if calls.is_none() && known.len() >= self.most {
            let idle = known.iter().filter(|(_, one)| self.is_idle(one));
            let oldest = idle.min_by_key(|(_, one)| one.used);
            let Some(oldest) = oldest.map(|(caller, _)| caller.clone()) else {
                return Err(Failure::busy(
                    "too many users call at the same time; try again",
                ));
            };
            known.remove(&oldest);
        }
        let calls = calls.unwrap_or_else(|| Arc::new(Semaphore::new(self.calls)));
        let fresh = Known {
            server,
            calls,
            since: now,
            used: now,
        };
        known.insert(caller.clone(), fresh);
        Ok(())
    }
}

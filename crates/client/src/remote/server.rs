//! A server or a metaserver: the program at an address, and the connections to it.
//!
//! If a connection is lost, the next request opens a new one.

use crate::address::Address;
use crate::error::Error;
use crate::options::{Options, lost_after};
use crate::remote::catalogue::Entry;
use crate::remote::connection::Connection;
use crate::remote::paths::Paths;
use crate::remote::requests::directory;
use crate::remote::reserved::Reserved;
use crate::remote::socket::look_up;
use crate::timeout::Timeout;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Array bytes up to which a call counts as small, so that it may overtake larger ones.
const SMALL: u64 = 64 << 10;
/// Array bytes from which calls take turns on several connections.
const LARGE: u64 = 4 << 20;

/// Longest time in which a metaserver greets a client again. Calls wait meanwhile.
const MOST_TO_CONNECT: Duration = Duration::from_secs(5);
/// How long a client tries again while one server replaces another.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two tries: at first, and in the end.
const SHORTEST_NAP: Duration = Duration::from_millis(5);
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// A server. Clones share its connection and interfaces.
#[derive(Clone)]
pub(crate) struct Server(Arc<Shared>);

struct Shared {
    address: Address,
    options: Options,
    /// The address to connect to, or those of several metaservers.
    at: Vec<Address>,
    /// Other addresses that are known to lead to the server.
    aliases: Mutex<Vec<Address>>,
    is_metaserver: bool,
    /// Nobody holds this lock for long: some who want it hold others, as that of an interpreter.
    connection: Mutex<Arc<Connection>>,
    /// Held by the thread that opens a new connection, for which others wait.
    opening: Mutex<()>,
    /// For small calls while large arrays travel on the other one; made when it is first needed.
    express: Mutex<Option<Arc<Connection>>>,
    functions: Mutex<HashMap<String, Arc<Entry>>>,
    /// Connections of bandwidth reservations.
    reserved: Mutex<Reserved>,
    /// Connections for arrays that travel over several.
    paths: Mutex<Paths>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Connects and exchanges greetings. If `addresses` has several, with commas between them, all
    /// are metaservers.
    pub(crate) fn connect(addresses: &str, options: Options) -> Result<Server, Error> {
        connect_within(addresses, options, Duration::MAX)
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> &Address {
        &self.0.address
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    /// Whether it is a metaserver.
    pub(crate) fn is_metaserver(&self) -> bool {
        self.0.is_metaserver
    }

    /// The connection. Opens a new one if the last one cannot be used.
    pub(crate) fn connection(&self) -> Result<Arc<Connection>, Error> {
        connection_within(self, Duration::MAX)
    }

    /// Whether a new connection needs a login.
    pub(crate) fn needs_login(&self) -> bool {
        self.0.at.iter().any(needs_login)
    }

    /// The connection, if it can still be used.
    pub(crate) fn live_connection(&self) -> Option<Arc<Connection>> {
        let connection = lock(&self.0.connection);
        (!connection.is_stale()).then(|| connection.clone())
    }

    /// Makes a request. If the server released the client because it shuts down, makes the request
    /// again on a new connection, where its successor listens, for a bounded time, and at most for
    /// the time-out of one operation. If nobody listens, returns the error of the first server.
    pub(crate) fn persist<T>(&self, ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        persist_within(self, Timeout::from_now(self.0.options.timeout), ask)
    }

    /// Replaces the connection by a new one. Calls under way end on the old one.
    ///
    /// # Errors
    /// Nobody answers.
    pub(crate) fn renew(&self) -> Result<(), Error> {
        renew_within(&self.0, Duration::MAX)
    }

    /// The function with this name, from the cache or from the server.
    pub(super) fn entry(&self, name: &str) -> Result<Arc<Entry>, Error> {
        let known = lock(&self.0.functions).get(name).cloned();
        let Some(known) = known else {
            return self.fetch(name);
        };
        match known.is_of(&*self.connection()?) {
            true => Ok(known),
            false => self.fetch(name),
        }
    }

    /// Asks the server for the function again, and caches the answer.
    pub(super) fn fetch(&self, name: &str) -> Result<Arc<Entry>, Error> {
        let entry = self.persist(|| Entry::ask(&self.connection()?, name))?;
        let entry = Arc::new(entry);
        lock(&self.0.functions).insert(name.to_string(), entry.clone());
        Ok(entry)
    }

    /// The connection for a call with this many array bytes and this time-out.
    pub(super) fn for_arrays(
        &self,
        first: Arc<Connection>,
        bytes: u64,
        timeout: Timeout,
    ) -> Result<Arc<Connection>, Error> {
        if bytes <= SMALL {
            return self.for_small(first, timeout);
        }
        if bytes < LARGE || !first.moves_parts() || !may_add_connections(self, &first) {
            return Ok(first);
        }
        self.paths(|paths, to| paths.next(first, to))
    }

    /// The connection for a small call. While large arrays travel on one connection, small calls
    /// use another, so that they do not wait behind full buffers.
    fn for_small(
        &self,
        connection: Arc<Connection>,
        timeout: Timeout,
    ) -> Result<Arc<Connection>, Error> {
        if !connection.carries_bulk() || needs_login(connection.address()) {
            return Ok(connection);
        }
        let mut express = lock(&self.0.express);
        if express.as_ref().is_none_or(|known| known.is_stale()) {
            let options = hurried(self.0.options.clone(), &self.0.at, timeout.patience());
            *express = match Connection::open(&self.0.address, &options) {
                Ok(fresh) => Some(fresh),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // A full server may refuse the second connection. The call then uses the first.
                Err(_) => None,
            };
        }
        Ok(express.clone().unwrap_or(connection))
    }

    /// Gives access to the extra connections of the server, with its address and options.
    pub(super) fn paths<T>(&self, act: impl FnOnce(&mut Paths, (&Address, &Options)) -> T) -> T {
        act(&mut lock(&self.0.paths), (&self.0.address, &self.0.options))
    }

    /// Gives access to the connections of reservations.
    pub(super) fn reserved<T>(
        &self,
        act: impl FnOnce(&mut Reserved, (&Address, &Options)) -> T,
    ) -> T {
        act(
            &mut lock(&self.0.reserved),
            (&self.0.address, &self.0.options),
        )
    }
}

/// [`Server::connect`], but this time it waits for an answer for at most `patience`.
pub(crate) fn connect_within(
    addresses: &str,
    options: Options,
    patience: Duration,
) -> Result<Server, Error> {
    let at = addresses.split(',').map(|one| one.trim().parse());
    let at: Vec<Address> = at.collect::<Result<_, _>>()?;
    lost_after().map_err(|text| Error::Connect {
        address: at[0].clone(),
        source: io::Error::other(text),
    })?;
    let connection = open_any(&at, &hurried(options.clone(), &at, patience))?;
    if at.len() > 1 {
        directory::check_metaserver(&connection)?;
    }
    let address = at.first().cloned();
    Ok(Server(Arc::new(Shared {
        address: address.unwrap_or_else(|| unreachable!("split gives one")),
        options,
        at,
        aliases: Mutex::default(),
        is_metaserver: connection.is_to_metaserver(),
        connection: Mutex::new(connection),
        opening: Mutex::default(),
        express: Mutex::default(),
        functions: Mutex::default(),
        reserved: Mutex::default(),
        paths: Mutex::default(),
    })))
}

/// [`Server::connection`], but it waits for an answer of a new one for at most `patience`.
pub(crate) fn connection_within(
    server: &Server,
    patience: Duration,
) -> Result<Arc<Connection>, Error> {
    if let Some(connection) = server.live_connection() {
        return Ok(connection);
    }
    let start = Instant::now();
    let mut options = hurried(again(&server.0), &server.0.at, patience);
    let whole = options.connect_timeout;
    let _opening = turn_to_open(server, &options)?;
    if let Some(connection) = server.live_connection() {
        return Ok(connection);
    }
    if !server.needs_login() {
        // Another thread may have tried in vain meanwhile.
        options.connect_timeout = options.connect_timeout.saturating_sub(start.elapsed());
    }
    let opened = open_any(&server.0.at, &options).map_err(|error| match error {
        // The caller has waited for its turn, too.
        Error::Timeout { address, .. } => Error::Timeout {
            address,
            after: whole,
        },
        other => other,
    })?;
    *lock(&server.0.connection) = opened.clone();
    Ok(opened)
}

/// [`Server::connection`] for a call with this time-out.
pub(crate) fn connection_by(server: &Server, timeout: Timeout) -> Result<Arc<Connection>, Error> {
    connection_within(server, timeout.patience()).map_err(|error| match error {
        Error::Interrupted => error,
        _ if timeout.has_passed() => timeout.error(server.address()),
        _ => error,
    })
}

/// [`Server::persist`] for a request that belongs to a call with this time-out.
pub(crate) fn persist_within<T>(
    server: &Server,
    timeout: Timeout,
    mut ask: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    let (mut since, mut nap) = (None, SHORTEST_NAP);
    let late = || timeout.error(&server.0.address);
    loop {
        let before = lock(&server.0.connection).number();
        let error = match ask() {
            Err(error) if error.was_let_go() && timeout.has_passed() => return Err(late()),
            Err(error) if error.was_let_go() => error,
            other => return other,
        };
        match since {
            None => since = Some(Instant::now()),
            Some(since) if since.elapsed() >= PATIENCE => return Err(error),
            Some(_) => {
                std::thread::sleep(nap);
                nap = (2 * nap).min(LONGEST_NAP);
                let give_up = server.0.options.on_interrupt.as_ref();
                if give_up.is_some_and(|give_up| give_up()) {
                    return Err(Error::Interrupted);
                }
            }
        }
        let is_renewed = lock(&server.0.connection).number() != before;
        let renewed = match is_renewed {
            true => Ok(()),
            false => renew_within(&server.0, timeout.patience()),
        };
        match renewed {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(_) if timeout.has_passed() => return Err(late()),
            Err(_) => return Err(error),
        }
    }
}

/// Replaces the connection by a new one. Waits for an answer for at most `patience`.
fn renew_within(shared: &Shared, patience: Duration) -> Result<(), Error> {
    let options = hurried(again(shared), &shared.at, patience);
    *lock(&shared.connection) = open_any(&shared.at, &options)?;
    *lock(&shared.express) = None;
    Ok(())
}

/// Waits until no other thread opens a connection to the server, for at most the time in which a
/// connection must be there. A login takes its time.
fn turn_to_open<'s>(server: &'s Server, options: &Options) -> Result<MutexGuard<'s, ()>, Error> {
    let (start, mut asked) = (Instant::now(), Instant::now());
    loop {
        match server.0.opening.try_lock() {
            Ok(turn) => return Ok(turn),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(SHORTEST_NAP),
        }
        if asked.elapsed() >= LONGEST_NAP {
            asked = Instant::now();
            if options.on_interrupt.as_ref().is_some_and(|ask| ask()) {
                return Err(Error::Interrupted);
            }
        }
        if !server.needs_login() && start.elapsed() >= options.connect_timeout {
            let text = "connection timed out; another thread of this program waits for one, too";
            return Err(Error::Connect {
                address: server.address().clone(),
                source: io::Error::new(io::ErrorKind::TimedOut, text),
            });
        }
    }
}

/// Whether an address leads to a server: it is its own, or both names have an IP address and a port
/// in common.
pub(super) fn is_at(server: &Server, address: &Address) -> Result<bool, Error> {
    if address == server.address() || lock(&server.0.aliases).contains(address) {
        return Ok(true);
    }
    let mut own = sockets(server.address(), server.options())?;
    own.extend(server.live_connection().map_or(vec![], |one| one.paths()));
    let others = sockets(address, server.options())?;
    let is_at = others.iter().any(|socket| own.contains(socket));
    if is_at {
        lock(&server.0.aliases).push(address.clone());
    }
    Ok(is_at)
}

/// The IP addresses and ports that an address of a network leads to; none if nobody knows them in
/// time.
fn sockets(address: &Address, options: &Options) -> Result<Vec<SocketAddr>, Error> {
    let (Address::Tcp { host, port } | Address::Tls { host, port }) = address else {
        return Ok(Vec::new());
    };
    let give_up = options.on_interrupt.as_deref();
    match look_up(host, *port, options.connect_timeout, give_up) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(Error::Interrupted),
        found => Ok(found.unwrap_or_default()),
    }
}

/// Whether the arrays of a call may travel over several connections.
pub(super) fn may_add_connections(server: &Server, first: &Connection) -> bool {
    server.0.options.streams > 1 && !needs_login(first.address())
}

/// Whether each connection to this address needs a login.
fn needs_login(address: &Address) -> bool {
    matches!(address, Address::Ssh(_))
}

/// Options with less time to connect. A login takes its time.
fn hurried(options: Options, at: &[Address], patience: Duration) -> Options {
    match at.iter().any(needs_login) {
        true => options,
        false => Options {
            connect_timeout: options.connect_timeout.min(patience),
            ..options
        },
    }
}

/// How a client connects again. Calls wait for a metaserver, which answers at once.
fn again(shared: &Shared) -> Options {
    let mut options = shared.options.clone();
    if shared.is_metaserver {
        options.connect_timeout = options.connect_timeout.min(MOST_TO_CONNECT);
    }
    options
}

/// Whether somebody answers at the address of a server. Asks on a connection of its own, for a
/// thread that nobody interrupts.
pub(crate) fn answers(server: &Server) -> bool {
    let options = Options {
        on_interrupt: None,
        ..again(&server.0)
    };
    open_any(&server.0.at, &options).is_ok()
}

/// Connects to the first address that answers.
fn open_any(at: &[Address], options: &Options) -> Result<Arc<Connection>, Error> {
    let mut first = None;
    for address in at {
        match Connection::open(address, options) {
            Ok(connection) => return Ok(connection),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => first = Some(joined(first, error)),
        }
    }
    Err(first.unwrap_or_else(|| unreachable!("there is an address")))
}

/// The first error of several addresses. If none of them can be reached, it names each.
fn joined(first: Option<Error>, error: Error) -> Error {
    match (first, error) {
        (None, error) => error,
        (
            Some(Error::Connect { address, source }),
            Error::Connect {
                address: other,
                source: reason,
            },
        ) => {
            let text = format!("{source}, nor to {other}: {reason}");
            let source = io::Error::new(source.kind(), text);
            Error::Connect { address, source }
        }
        (Some(first), _) => first,
    }
}

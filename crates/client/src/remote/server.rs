//! A server as its clients see it.

use crate::connection::Connection;
use crate::function::Described;
use crate::grid::Grid;
use crate::reservation::Reserved;
use crate::streams::Streams;
use crate::{
    Address, ArrayForm, Credentials, Error, Function, Handle, HandleId, HandleStatus, Job, JobId,
    JobStatus, SharedMemory,
};
use farcall_rpc_proto::{FunctionSummary, Pull, Put};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How to talk to a server.
#[derive(Clone)]
pub struct Options {
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for one operation, from its start to its end; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Longest time for which a thread looks for the answer before it sleeps, while the cores have
    /// nothing else to do. It saves the time to wake up; zero saves the processor instead.
    pub spin: Duration,
    /// Whether to change to a Unix socket and shared memory where the server is on this host.
    pub same_host: bool,
    /// Connections over which the arrays of one call may travel at once, where measurement shows
    /// that they pay; 1 keeps to one.
    pub streams: usize,
    /// What proves who the client is, and which servers it believes.
    pub credentials: Credentials,
    /// Asked whenever a signal interrupts the wait for the server, and ten times a second, because
    /// a signal may come just before the wait; `true` gives the operation up.
    pub on_interrupt: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(10),
            timeout: None,
            spin: Duration::from_micros(100),
            same_host: true,
            streams: 8,
            credentials: Credentials::from_environment(),
            on_interrupt: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A server. Clones share its connection and interfaces; all of it may be used from any thread,
/// and any number of calls may be under way at once.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) options: Options,
    /// Where to connect: the address, or those of several metaservers.
    ways: Vec<Address>,
    /// What is behind a metaserver.
    grid: Option<Grid>,
    connection: Mutex<Arc<Connection>>,
    /// For small calls while large arrays travel on the other one; made when it is first needed.
    express: Mutex<Option<Arc<Connection>>>,
    functions: Mutex<HashMap<String, Arc<Described>>>,
    /// For calls of reservations of bandwidth.
    pub(crate) reserved: Mutex<Reserved>,
    /// For arrays that travel over several connections.
    pub(crate) streams: Mutex<Streams>,
}

impl Server {
    /// Connects to `address` and exchanges greetings. Behind a metaserver are all servers that have
    /// joined it: each call of its functions goes to one of them. The address of a metaserver may
    /// be several, with commas between, that share their directory: where one is away, the next is
    /// asked.
    pub fn connect(address: &str, options: Options) -> Result<Server, Error> {
        let ways = address.split(',').map(|one| one.trim().parse());
        let ways: Vec<Address> = ways.collect::<Result<_, _>>()?;
        let connection = open_any(&ways, &options)?;
        if ways.len() > 1 {
            connection.check_metaserver()?;
        }
        let address = ways
            .first()
            .cloned()
            .unwrap_or_else(|| unreachable!("split gives one"));
        let grid = Grid::behind(&connection);
        let connection = Mutex::new(connection);
        let functions = Mutex::default();
        Ok(Server(Arc::new(Shared {
            address,
            options,
            ways,
            grid,
            connection,
            express: Mutex::default(),
            functions,
            reserved: Mutex::default(),
            streams: Mutex::default(),
        })))
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// The server's program and version, as it says.
    pub fn agent(&self) -> Result<String, Error> {
        Ok(self.connection()?.agent())
    }

    /// Whether the server is on this host, so that arrays lie in shared memory.
    pub fn shares_memory(&self) -> Result<bool, Error> {
        Ok(self.connection()?.shares())
    }

    /// The time to the server and back.
    pub fn ping(&self) -> Result<Duration, Error> {
        let connection = self.connection()?;
        let start = Instant::now();
        // No server has so many functions: the page is empty.
        connection.list(u32::MAX)?;
        Ok(start.elapsed())
    }

    /// Has the server serve the functions of an interface file as well, until it ends: `text` is
    /// what the file at `path` says, after the C preprocessor. Returns their names. The server
    /// allows it to its operators only.
    pub fn register(&self, path: &str, text: &str) -> Result<Vec<String>, Error> {
        let listing = self.connection()?.register(path, text)?;
        let functions = listing.functions.into_iter();
        Ok(functions.map(|function| function.name).collect())
    }

    /// How the server stands, as a JSON object whose `schema` says which names it has: its queue,
    /// processor elements, memory, functions, and users as far as they may be seen.
    pub fn status(&self) -> Result<String, Error> {
        self.connection()?.status()
    }

    /// Has the server take no more calls, and end after those that it has; returns how many these
    /// are. Only its operators may.
    pub fn drain(&self) -> Result<u64, Error> {
        self.connection()?.drain()
    }

    /// All functions served, by qualified name.
    pub fn functions(&self) -> Result<Vec<FunctionSummary>, Error> {
        let mut functions = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let page = self.connection()?.list(from)?;
            // A page that leads nowhere would be asked for without end.
            next = page.next.filter(|&index| index > from);
            functions.extend(page.functions);
        }
        Ok(functions)
    }

    /// The function of that name, `module/name` or `name` alone. Its interface is fetched once.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        if let Some(grid) = self.grid() {
            return grid.function(self, name);
        }
        let known = self.lock_functions().get(name).cloned();
        match known {
            Some(described) => Ok(Function::new(self.clone(), described)),
            None => self.fetch(name),
        }
    }

    /// Does what is asked of a server, and once more on a new connection where the server lets its
    /// clients go: another may be there by then.
    pub(crate) fn persist<T>(&self, mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        match ask() {
            Err(error) if error.was_let_go() => match self.renew() {
                Ok(()) => ask(),
                Err(_) => Err(error),
            },
            other => other,
        }
    }

    /// Leaves the connection for a new one; calls under way end on the old one.
    fn renew(&self) -> Result<(), Error> {
        let fresh = open_any(&self.0.ways, &self.0.options)?;
        let known = self.0.connection.lock();
        *known.unwrap_or_else(PoisonError::into_inner) = fresh;
        let express = self.0.express.lock();
        *express.unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// What is behind a metaserver; none at a server.
    pub(crate) fn grid(&self) -> Option<&Grid> {
        self.0.grid.as_ref()
    }

    /// Whether a metaserver is there: calls go to the servers behind it.
    pub fn is_metaserver(&self) -> bool {
        self.grid().is_some()
    }

    /// Leaves the connection, for one that does not work; the next request makes a new one.
    pub(crate) fn leave(&self) {
        // Where none can be made, the next request finds that out.
        let _ = self.renew();
    }

    /// Fetches the interface anew and keeps it.
    pub(crate) fn fetch(&self, name: &str) -> Result<Function, Error> {
        let (connection, answered) = self.persist(|| {
            let connection = self.connection()?;
            let answered = connection.describe(name)?;
            Ok((connection, answered))
        })?;
        let described = Arc::new(Described::new(self, &connection, name, answered)?);
        self.lock_functions()
            .insert(name.to_string(), described.clone());
        Ok(Function::new(self.clone(), described))
    }

    /// Memory shared with the server, for arrays that are not to be copied; none where the server
    /// is not on this host, or has no memory to give.
    pub fn share(&self, bytes: usize) -> Result<Option<SharedMemory>, Error> {
        let connection = self.connection()?;
        if !connection.shares() {
            return Ok(None);
        }
        match connection.share(bytes.max(1) as u64, false) {
            Ok(segment) => Ok(Some(SharedMemory::new(segment))),
            Err(Error::Failed(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The submitted call of that id. Nothing is asked of the server yet.
    pub fn job(&self, id: JobId) -> Job {
        Job::new(self.clone(), id)
    }

    /// The caller's submitted calls at this server, in the order of submission.
    pub fn jobs(&self) -> Result<Vec<JobStatus>, Error> {
        let mut jobs = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let page = self.connection()?.jobs(number)?;
            // A page that leads nowhere would be asked for without end.
            after = page.next.filter(|&next| next > number);
            jobs.extend(page.jobs.into_iter().map(JobStatus::new));
        }
        Ok(jobs)
    }

    /// Puts an array at the server, in the byte order of this machine: its elements one after the
    /// other as `form` says, or nothing where it is to be zero. It goes when it is dropped, when it
    /// was not used for long, and, unless it `stays`, when the connection ends.
    pub fn put(&self, form: ArrayForm, bytes: &[u8], stays: bool) -> Result<Handle, Error> {
        let data_bytes = bytes.len() as u64;
        let put = Put {
            form,
            data_bytes,
            stays,
        };
        let record = self.connection()?.put(&put, bytes)?;
        Ok(Handle::new(self.clone(), record))
    }

    /// Has the server read an array from `from`, which has lent it under the name `loan`
    /// ([`Handle::lend`]). It is kept as [`Server::put`] keeps it.
    pub fn pull(
        &self,
        from: &Address,
        loan: HandleId,
        form: ArrayForm,
        stays: bool,
    ) -> Result<Handle, Error> {
        let pull = Pull {
            address: from.to_string(),
            loan,
            form,
            stays,
        };
        let record = self.connection()?.pull(&pull)?;
        Ok(Handle::new(self.clone(), record))
    }

    /// Reads an array that is lent under that name, once; `bytes` is as long as it is.
    pub fn redeem(&self, loan: HandleId, bytes: &mut [u8]) -> Result<(), Error> {
        self.connection()?.get(loan, bytes, 1)
    }

    /// An array that is at the server by now.
    pub fn handle(&self, id: HandleId) -> Result<Handle, Error> {
        let record = self.connection()?.handle(id)?;
        Ok(Handle::new(self.clone(), record))
    }

    /// The caller's arrays at this server, in the order of their creation.
    pub fn handles(&self) -> Result<Vec<HandleStatus>, Error> {
        let mut handles = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let page = self.connection()?.handles(number)?;
            // A page that leads nowhere would be asked for without end.
            after = page.next.filter(|&next| next > number);
            handles.extend(page.handles.into_iter().map(HandleStatus::new));
        }
        Ok(handles)
    }

    fn lock_functions(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Described>>> {
        self.0
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection for a call whose arrays come to so many bytes.
    pub(crate) fn for_arrays(&self, first: Arc<Connection>, bytes: u64) -> Arc<Connection> {
        /// Bytes of a call that may overtake the arrays of larger ones.
        const SMALL: u64 = 64 << 10;
        match bytes <= SMALL {
            true => self.for_small(first),
            false => self.for_large(first, bytes),
        }
    }

    /// The connection for a small call: another than the one on which large arrays travel, so that
    /// it does not wait behind what is in the buffers on the way.
    fn for_small(&self, connection: Arc<Connection>) -> Arc<Connection> {
        if !connection.carries_bulk() {
            return connection;
        }
        let mut express = self
            .0
            .express
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if express.as_ref().is_none_or(|known| known.is_stale()) {
            // A server that is full may refuse it; the call is made all the same.
            *express = Connection::open(&self.0.address, &self.0.options).ok();
        }
        express.clone().unwrap_or(connection)
    }

    /// The connection, if it is still of use.
    pub(crate) fn live_connection(&self) -> Option<Arc<Connection>> {
        let connection = self.0.connection.lock();
        let connection = connection.unwrap_or_else(PoisonError::into_inner);
        (!connection.is_stale()).then(|| connection.clone())
    }

    /// The connection, made anew where the last one is of no more use.
    pub(crate) fn connection(&self) -> Result<Arc<Connection>, Error> {
        let mut connection = self
            .0
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if connection.is_stale() {
            *connection = open_any(&self.0.ways, &self.0.options)?;
        }
        Ok(connection.clone())
    }
}

/// A connection to the first address where one can be made.
fn open_any(ways: &[Address], options: &Options) -> Result<Arc<Connection>, Error> {
    let mut first = None;
    for address in ways {
        match Connection::open(address, options) {
            Ok(connection) => return Ok(connection),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| unreachable!("there is an address")))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.0.address)
    }
}

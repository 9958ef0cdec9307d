//! A server as its clients see it.

use crate::connection::Connection;
use crate::function::Described;
use crate::{Address, Error, Function};
use farcall_rpc_proto::FunctionSummary;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How to talk to a server.
#[derive(Clone)]
pub struct Options {
    /// Longest time to wait for a connection.
    pub connect_timeout: Duration,
    /// Longest time for one operation, from its start to its end; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Asked whenever a signal interrupts the wait for the server; `true` gives the operation up.
    pub on_interrupt: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            connect_timeout: Duration::from_secs(10),
            timeout: None,
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

/// Connections kept open when no call uses them.
const MAX_IDLE: usize = 64;

/// A server. Clones share connections and interfaces; all of it may be used from any thread.
/// Every call has a connection of its own while it runs; connections are kept for the next.
#[derive(Clone)]
pub struct Server(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) address: Address,
    pub(crate) options: Options,
    idle: Mutex<Vec<Connection>>,
    functions: Mutex<HashMap<String, Arc<Described>>>,
}

impl Server {
    /// Connects to `address` and exchanges greetings.
    pub fn connect(address: &str, options: Options) -> Result<Server, Error> {
        let address = address.parse()?;
        let shared = Shared {
            address,
            options,
            idle: Mutex::default(),
            functions: Mutex::default(),
        };
        let server = Server(Arc::new(shared));
        let connection = server.open()?;
        server.release(connection);
        Ok(server)
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// All functions served, by qualified name.
    pub fn functions(&self) -> Result<Vec<FunctionSummary>, Error> {
        let mut functions = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let page = self.with_connection(|connection| connection.list(from))?;
            // A page that leads nowhere would be asked for without end.
            next = page.next.filter(|&index| index > from);
            functions.extend(page.functions);
        }
        Ok(functions)
    }

    /// The function of that name, `module/name` or `name` alone. Its interface is fetched once.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let known = self.lock_functions().get(name).cloned();
        match known {
            Some(described) => Ok(Function::new(self.clone(), described)),
            None => self.fetch(name),
        }
    }

    /// Fetches the interface anew and keeps it.
    pub(crate) fn fetch(&self, name: &str) -> Result<Function, Error> {
        let (number, text) = self.with_connection(|connection| connection.describe(name))?;
        let described = Arc::new(Described::new(self, name, number, &text)?);
        self.lock_functions()
            .insert(name.to_string(), described.clone());
        Ok(Function::new(self.clone(), described))
    }

    fn lock_functions(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Described>>> {
        self.0
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one operation on a connection, which is kept if it is sound afterwards.
    pub(crate) fn with_connection<T>(
        &self,
        operation: impl FnOnce(&mut Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut connection = self.acquire()?;
        let result = operation(&mut connection);
        if matches!(result, Ok(_) | Err(Error::Failed(_))) {
            self.release(connection);
        }
        result
    }

    fn acquire(&self) -> Result<Connection, Error> {
        loop {
            let idle = self
                .0
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            match idle {
                Some(connection) if connection.is_stale() => drop(connection),
                Some(connection) => return Ok(connection),
                None => return self.open(),
            }
        }
    }

    fn open(&self) -> Result<Connection, Error> {
        Connection::open(&self.0.address, &self.0.options)
    }

    fn release(&self, connection: Connection) {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.0.address)
    }
}

//! A server, or all servers behind a metaserver, as their clients see them.

use crate::address::Address;
use crate::data::DataStatus;
use crate::description::FunctionSummary;
use crate::error::Error;
use crate::grid::Grid;
use crate::options::Options;
use crate::remote::{
    self, DurableCall, DurableStatus, Handle, HandleStatus, Object, ObjectStatus, SharedMemory,
    functions, operation, pages,
};
use crate::reservation::{Reservation, ReservationSpec};
use farcall_rpc_proto::{ArrayForm, DataName, FailureKind, HandleId, JobId, check_name};
use std::fmt;
use std::time::Duration;

/// A server. Clones share its connection and interfaces; all of it may be used from any thread,
/// and any number of calls may be under way at once.
#[derive(Clone)]
pub struct Server(pub(crate) Backend);

/// Who computes.
#[derive(Clone)]
pub(crate) enum Backend {
    /// The server itself.
    One(remote::Server),
    /// The servers behind a metaserver.
    Many(Grid),
}

impl From<remote::Server> for Server {
    fn from(server: remote::Server) -> Server {
        Server(match server.is_metaserver() {
            true => Backend::Many(Grid::behind(server)),
            false => Backend::One(server),
        })
    }
}

impl Server {
    /// Connects to `address` and exchanges greetings. Behind a metaserver are all servers that have
    /// joined it: each call of its functions goes to one of them. The address of a metaserver may
    /// be several, with commas between, that share their directory: where one is away, the next is
    /// asked.
    pub fn connect(address: &str, options: Options) -> Result<Server, Error> {
        remote::Server::connect(address, options).map(Server::from)
    }

    /// The program at the other end: the server, or the metaserver.
    pub(crate) fn peer(&self) -> &remote::Server {
        match &self.0 {
            Backend::One(server) => server,
            Backend::Many(grid) => grid.meta(),
        }
    }

    /// Where the server is.
    pub fn address(&self) -> &Address {
        self.peer().address()
    }

    /// Whether a metaserver is there: calls go to the servers behind it.
    pub fn is_metaserver(&self) -> bool {
        matches!(self.0, Backend::Many(_))
    }

    /// The server's program and version, as it says.
    pub fn agent(&self) -> Result<String, Error> {
        Ok(self.peer().connection()?.agent())
    }

    /// Whether the server is on this host, so that arrays lie in shared memory.
    pub fn shares_memory(&self) -> Result<bool, Error> {
        Ok(self.peer().connection()?.shares())
    }

    /// The time to the server and back.
    pub fn ping(&self) -> Result<Duration, Error> {
        functions::ping(&self.peer().connection()?)
    }

    /// Has the server serve the functions of an interface file as well, until it ends: `text` is
    /// what the file at `path` says, after the C preprocessor. Returns their names. The server
    /// allows it to its operators only.
    pub fn register(&self, path: &str, text: &str) -> Result<Vec<String>, Error> {
        let listing = functions::register(&self.peer().connection()?, path, text)?;
        let functions = listing.functions.into_iter();
        Ok(functions.map(|function| function.name).collect())
    }

    /// How the server stands, as a JSON object whose `schema` says which names it has: its queue,
    /// processor elements, memory, functions, and users as far as they may be seen.
    pub fn status(&self) -> Result<String, Error> {
        operation::status(&self.peer().connection()?)
    }

    /// Has the server take no more calls, and end after those that it has; returns how many these
    /// are. Only its operators may.
    pub fn drain(&self) -> Result<u64, Error> {
        operation::drain(&self.peer().connection()?)
    }

    /// All functions served, by qualified name.
    pub fn functions(&self) -> Result<Vec<FunctionSummary>, Error> {
        pages::all(|from| {
            let from = u32::try_from(from).unwrap_or(u32::MAX);
            let page = functions::list(&self.peer().connection()?, from)?;
            let functions = page.functions.into_iter().map(FunctionSummary::from);
            Ok((functions, page.next.map(u64::from)))
        })
    }

    /// The server at an address: itself, or one behind a metaserver.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn behind(&self, address: &Address) -> Result<Server, Error> {
        match &self.0 {
            Backend::One(_) => Ok(self.clone()),
            Backend::Many(grid) => grid.server_at(address).map(Server::from),
        }
    }

    /// Memory shared with the server, for arrays that are not to be copied; none where the server
    /// is not on this host, or has no memory to give.
    pub fn share(&self, bytes: usize) -> Result<Option<SharedMemory>, Error> {
        let connection = self.peer().connection()?;
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
    pub fn job(&self, id: JobId) -> DurableCall {
        self.peer().job(id)
    }

    /// The caller's submitted calls at this server, in the order of submission.
    pub fn jobs(&self) -> Result<Vec<DurableStatus>, Error> {
        self.peer().jobs()
    }

    /// Makes an object of a class, `module/class` or `class` alone.
    pub fn new_object(&self, class: &str) -> Result<Object, Error> {
        self.peer().new_object(class)
    }

    /// An object that stays at the server by now.
    pub fn object(&self, id: HandleId) -> Result<Object, Error> {
        self.peer().object(id)
    }

    /// The caller's objects that stay at this server, in the order of their creation.
    pub fn objects(&self) -> Result<Vec<ObjectStatus>, Error> {
        self.peer().objects()
    }

    /// Destroys an object that stays: what runs is ended, and later calls fail.
    pub fn drop_object(&self, id: HandleId) -> Result<(), Error> {
        self.peer().drop_object(id)
    }

    /// Puts an array at the server, in the byte order of this machine: its elements one after the
    /// other as `form` says, or nothing where it is to be zero. It goes when it is dropped, when it
    /// was not used for long, and, unless it `stays`, when the connection ends.
    pub fn put(&self, form: ArrayForm, bytes: &[u8], stays: bool) -> Result<Handle, Error> {
        self.peer().put(form, bytes, stays)
    }

    /// Reads an array that is lent under that name, once; `bytes` is as long as it is.
    pub fn redeem(&self, loan: HandleId, bytes: &mut [u8]) -> Result<(), Error> {
        self.peer().redeem(loan, bytes)
    }

    /// An array that is at the server by now.
    pub fn handle(&self, id: HandleId) -> Result<Handle, Error> {
        self.peer().handle(id)
    }

    /// The caller's arrays at this server, in the order of their creation.
    pub fn handles(&self) -> Result<Vec<HandleStatus>, Error> {
        self.peer().handles()
    }

    /// Puts an array at the server under a name, or, behind a metaserver, at the server that has
    /// data of that name, or else most memory free. The data stay until they are dropped, or were
    /// not used for long, and do not change: another array put under the name is the next version,
    /// and takes the place of this one. Other users read what is `shared`.
    ///
    /// # Errors
    /// The name is none, there is no room, or the server is too old.
    pub fn put_named(
        &self,
        form: ArrayForm,
        bytes: &[u8],
        name: &str,
        shared: bool,
    ) -> Result<Handle, Error> {
        check_name(name)
            .map_err(|error| Error::failed(FailureKind::BadArgument, error.to_string()))?;
        match &self.0 {
            Backend::One(server) => server.put_named(form, bytes, (name, shared, 0)),
            Backend::Many(grid) => grid.put_named(form, bytes, name, shared),
        }
    }

    /// The array that a name stands for: the caller's own, a file of the server's data folder, or
    /// what another user shares. Behind a metaserver, it is at one of the servers that hold it.
    ///
    /// # Errors
    /// There is nothing of that name that the caller may read.
    pub fn data(&self, name: &DataName) -> Result<Handle, Error> {
        name.check()
            .map_err(|error| Error::failed(FailureKind::BadArgument, error.to_string()))?;
        match &self.0 {
            Backend::One(server) => server.data(name),
            Backend::Many(grid) => grid.data(name),
        }
    }

    /// All data with names that the caller may see, by name.
    ///
    /// # Errors
    /// The server cannot be asked, or is too old.
    pub fn list_data(&self) -> Result<Vec<DataStatus>, Error> {
        match &self.0 {
            Backend::One(server) => server.list_data(),
            Backend::Many(grid) => grid.list_data(),
        }
    }

    /// Drops the caller's data of that name, wherever they are. Calls that use them go on.
    ///
    /// # Errors
    /// There are none.
    pub fn drop_data(&self, name: &DataName) -> Result<(), Error> {
        match &self.0 {
            Backend::One(_) => self.data(name)?.drop_array(),
            Backend::Many(grid) => grid.drop_data(name),
        }
    }

    /// Reserves processor elements and bandwidth from a time on, for so long. Calls of this user
    /// that name the reservation start at once then; those of others do not start where they would
    /// probably be in the way. The calls' arrays travel at the rates that are reserved, on a
    /// connection of their own, and all other connections to the server leave room for them.
    ///
    /// # Errors
    /// Where they are not free then: [`FailureKind::NotFree`], with the time from which they are
    /// ([`Error::earliest`]).
    pub fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        match &self.0 {
            Backend::One(server) => server.reserve(wanted),
            Backend::Many(grid) => Err(grid.refuse_reservation()),
        }
    }

    /// Ends a reservation before its time. Calls that name it and wait do so as all others from
    /// then on.
    pub fn release(&self, id: u64) -> Result<Reservation, Error> {
        self.peer().release(id)
    }

    /// The caller's reservations at this server that are not over, in the order in which they were
    /// made.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        match &self.0 {
            Backend::One(server) => server.reservations(),
            Backend::Many(grid) => Err(grid.refuse_reservations()),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.address())
    }
}

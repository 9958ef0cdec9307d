//! The facade of the client: one server, or all servers behind a metaserver.
//!
//! Each operation chooses here, once, between `remote` (one server) and `grid` (many).

use crate::address::Address;
use crate::data::{DataStatus, Source};
use crate::description::FunctionSummary;
use crate::error::Error;
use crate::grid::Grid;
use crate::options::Options;
use crate::remote::{
    self, DurableCall, DurableStatus, Handle, HandleStatus, Object, ObjectStatus, SharedMemory,
    functions, operation, pages,
};
use crate::reservation::{Reservation, ReservationSpec};
use crate::timeout::Timeout;
use farcall_rpc_proto::{
    ArrayForm, AskSnapshot, DataName, FailureKind, HandleId, JobId, check_name,
};
use std::fmt;
use std::time::Duration;

/// A server or a metaserver. Clones share its connections and interfaces. It may be used from any
/// thread, and any number of calls may be under way at once.
#[derive(Clone)]
pub struct Server(pub(crate) Backend);

/// What is at the address.
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
    /// Connects to `address` and exchanges greetings. If a metaserver is there, calls go to the
    /// servers that have joined it. Several metaservers that share a directory can be given with
    /// commas between them; if one is away, the client asks the next.
    pub fn connect(address: &str, options: Options) -> Result<Server, Error> {
        remote::Server::connect(address, options).map(Server::from)
    }

    /// The connection to the address itself: the server or the metaserver.
    pub(crate) fn peer(&self) -> &remote::Server {
        match &self.0 {
            Backend::One(server) => server,
            Backend::Many(grid) => grid.meta(),
        }
    }

    /// The address that the client connected to.
    pub fn address(&self) -> &Address {
        self.peer().address()
    }

    /// Whether a metaserver is at the address.
    pub fn is_metaserver(&self) -> bool {
        matches!(self.0, Backend::Many(_))
    }

    /// The server's program and version.
    pub fn agent(&self) -> Result<String, Error> {
        Ok(self.peer().connection()?.agent())
    }

    /// Whether the server is on this host, so that arrays can lie in shared memory.
    pub fn shares_memory(&self) -> Result<bool, Error> {
        Ok(self.peer().connection()?.has_shared_memory())
    }

    /// The round-trip time to the server.
    pub fn ping(&self) -> Result<Duration, Error> {
        let peer = self.peer();
        peer.persist(|| functions::ping(&peer.connection()?))
    }

    /// Makes the server serve the functions of another interface file until it ends. `text` is the
    /// content of the file `path` after the C preprocessor. Returns the names of the functions. The
    /// server allows this to its operators only.
    pub fn register(&self, path: &str, text: &str) -> Result<Vec<String>, Error> {
        let listing = functions::register(&self.peer().connection()?, path, text)?;
        let functions = listing.functions.into_iter();
        Ok(functions.map(|function| function.name).collect())
    }

    /// The server's status as a JSON object: queue, processor elements, memory, functions, and the
    /// users that the caller may see. Its `schema` names the version of the format.
    pub fn status(&self) -> Result<String, Error> {
        let peer = self.peer();
        peer.persist(|| operation::status(&peer.connection()?))
    }

    /// What somebody who watches the server or metaserver sees now, as a JSON object: the text of a
    /// `farcall_snapshot::Snapshot`. It shows the part of the calls that `asked` names.
    pub fn snapshot(&self, asked: &AskSnapshot) -> Result<String, Error> {
        let peer = self.peer();
        peer.persist(|| operation::snapshot(&peer.connection()?, asked))
    }

    /// Makes the server take no more calls and end after its current ones. Returns how many these
    /// are. Only operators may do this.
    pub fn drain(&self) -> Result<u64, Error> {
        operation::drain(&self.peer().connection()?)
    }

    /// All functions served, by qualified name.
    pub fn functions(&self) -> Result<Vec<FunctionSummary>, Error> {
        pages::all(|from| {
            let from = u32::try_from(from).unwrap_or(u32::MAX);
            let peer = self.peer();
            let page = peer.persist(|| functions::list(&peer.connection()?, from))?;
            let functions = page.functions.into_iter().map(FunctionSummary::from);
            Ok((functions, page.next.map(u64::from)))
        })
    }

    /// The server at an address: itself, one behind a metaserver, or another one.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn behind(&self, address: &Address) -> Result<Server, Error> {
        match &self.0 {
            Backend::One(server) if server.address() == address => Ok(self.clone()),
            Backend::One(server) => Server::connect(&address.to_string(), server.options().clone()),
            Backend::Many(grid) => grid.server_at(address).map(Server::from),
        }
    }

    /// Memory shared with the server, for arrays that are not copied. `None` if the server is on
    /// another host, or has no memory to give.
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

    /// The durable call with this job id. The server is not asked yet.
    pub fn job(&self, id: JobId) -> DurableCall {
        self.peer().job(id)
    }

    /// The caller's durable calls at this server, in the order of submission.
    pub fn jobs(&self) -> Result<Vec<DurableStatus>, Error> {
        self.peer().jobs()
    }

    /// The qualified names of the methods of a class, `module/class` or `class` alone. Empty if no
    /// class has this name.
    pub fn methods(&self, class: &str) -> Result<Vec<String>, Error> {
        let names = self.functions()?.into_iter().map(|known| known.name);
        let is_of = |name: &String| {
            let Some((owner, _)) = name.rsplit_once('.') else {
                return false;
            };
            owner == class
                || owner
                    .rsplit_once('/')
                    .is_some_and(|(_, plain)| plain == class)
        };
        Ok(names.filter(is_of).collect())
    }

    /// Makes an object of a class, `module/class` or `class` alone.
    pub fn new_object(&self, class: &str) -> Result<Object, Error> {
        self.peer().new_object(class)
    }

    /// A persistent object that is already at the server.
    pub fn object(&self, id: HandleId) -> Result<Object, Error> {
        self.peer().object(id)
    }

    /// The caller's persistent objects at this server, in the order of creation.
    pub fn objects(&self) -> Result<Vec<ObjectStatus>, Error> {
        self.peer().objects()
    }

    /// Destroys a persistent object. A running method is ended, and later calls fail.
    pub fn drop_object(&self, id: HandleId) -> Result<(), Error> {
        self.peer().drop_object(id)
    }

    /// Stores an array at the server. `bytes` are its elements as `form` says, in the byte order of
    /// this machine; empty bytes make an array of zeros. The array ends when it is dropped, when it
    /// was not used for the retention time, and, unless `stays`, when the connection ends.
    pub fn put(&self, form: ArrayForm, bytes: &[u8], stays: bool) -> Result<Handle, Error> {
        self.peer().put(form, bytes, stays)
    }

    /// Reads an array that another server has lent under this name, once. `bytes` must have its
    /// length.
    pub fn redeem(&self, loan: HandleId, bytes: &mut [u8]) -> Result<(), Error> {
        self.peer().redeem(loan, bytes)
    }

    /// A stored array that is already at the server.
    pub fn handle(&self, id: HandleId) -> Result<Handle, Error> {
        self.peer().handle(id)
    }

    /// The caller's stored arrays at this server, in the order of creation.
    pub fn handles(&self) -> Result<Vec<HandleStatus>, Error> {
        self.peer().handles()
    }

    /// Stores an array under a name. Behind a metaserver it goes to the server that has data with
    /// this name, or to the one with the most free memory. Named data do not change: another array
    /// under the same name is the next version and replaces this one. They remain until they are
    /// dropped, or until they were not used for the retention time. Other users can read them if
    /// they are `shared`.
    ///
    /// # Errors
    /// The name is invalid, the server has no room, or the server is too old.
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

    /// The array with this name: the caller's own, a file of the server's data folder, or another
    /// user's shared data. Behind a metaserver, it is at one of its holders.
    ///
    /// # Errors
    /// There are no data with this name that the caller may read.
    pub fn data(&self, name: &DataName) -> Result<Handle, Error> {
        name.check()
            .map_err(|error| Error::failed(FailureKind::BadArgument, error.to_string()))?;
        match &self.0 {
            Backend::One(server) => server.data(name, Timeout::from_now(server.options().timeout)),
            Backend::Many(grid) => grid.data(name),
        }
    }

    /// Makes the server read an array from an address outside of Farcall, in the type `form` names
    /// (empty: that of the source) and in its order; the shape is that of the source. Returns the
    /// array, and whether it belongs to the caller alone. The server keeps the array of a source
    /// that says its version, as named data; it reads it again after a change only.
    ///
    /// # Errors
    /// The server's operator has not named the address, or it cannot be read.
    pub fn read_source(
        &self,
        source: &Source,
        form: ArrayForm,
        stays: bool,
    ) -> Result<(Handle, bool), Error> {
        let peer = self.peer();
        let timeout = Timeout::from_now(peer.options().timeout);
        peer.read_source(source, form, stays, timeout)
    }

    /// All named data that the caller may see, by name.
    ///
    /// # Errors
    /// The server cannot be reached, or is too old.
    pub fn list_data(&self) -> Result<Vec<DataStatus>, Error> {
        match &self.0 {
            Backend::One(server) => server.list_data(),
            Backend::Many(grid) => grid.list_data(),
        }
    }

    /// Drops the caller's data with this name at all holders. Calls that use them continue.
    ///
    /// # Errors
    /// There are no such data.
    pub fn drop_data(&self, name: &DataName) -> Result<(), Error> {
        match &self.0 {
            Backend::One(_) => self.data(name)?.drop_array(),
            Backend::Many(grid) => grid.drop_data(name),
        }
    }

    /// Reserves processor elements and bandwidth for a time. Calls of this user that name the
    /// reservation then start at once; calls of others do not start if they would probably still
    /// run then. Arrays of calls with the reservation travel at the reserved rates, on a connection
    /// of their own. All other connections of the server leave room for them.
    ///
    /// # Errors
    /// [`FailureKind::NotFree`] if the elements are not free then, with the time from which they
    /// are ([`Error::earliest`]).
    pub fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        match &self.0 {
            Backend::One(server) => server.reserve(wanted),
            Backend::Many(grid) => Err(grid.refuse_reservation()),
        }
    }

    /// Ends a reservation early. Waiting calls that name it then wait like all others.
    pub fn release(&self, id: u64) -> Result<Reservation, Error> {
        self.peer().release(id)
    }

    /// The caller's reservations at this server that have not ended, in the order in which they
    /// were made.
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

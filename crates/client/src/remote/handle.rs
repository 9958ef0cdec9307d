//! Stored arrays at one server, and the handles that name them. The server owns the arrays and
//! decides who may use them. The client copies no array between two servers: one server reads it
//! from the other.

use crate::address::Address;
use crate::data::Named;
use crate::error::Error;
use crate::memory::zeroed;
use crate::remote::pages;
use crate::remote::requests::arrays;
use crate::remote::server::{Server, connection_by, persist_within};
use crate::timeout::Timeout;
use farcall_rpc_proto::{ArrayForm, FailureKind, HandleId, HandleRecord, Pull, Put};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The handle of a stored array, to be passed as [`crate::Argument::Handle`]. Calls use the array
/// in the order in which they are made. Several calls may read it together; a call that writes it
/// has it alone. If such a call fails, the contents are undefined until another call has written
/// the whole array.
#[derive(Clone)]
pub struct Handle {
    server: Server,
    id: HandleId,
    form: ArrayForm,
    named: Option<Named>,
}

/// The status of a stored array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    /// Id of its handle.
    pub id: HandleId,
    /// Type, shape and order.
    pub form: ArrayForm,
    /// Whether it remains after the end of the connection that stored it.
    pub stays: bool,
    /// Time of its last use.
    pub used: SystemTime,
    /// Whether it is on the disk because memory is short.
    pub on_disk: bool,
    /// Why its contents are undefined.
    pub undefined: Option<String>,
}

impl Handle {
    pub(crate) fn new(server: Server, record: HandleRecord) -> Handle {
        Handle {
            server,
            id: record.id,
            form: record.form,
            named: None,
        }
    }

    pub(crate) fn named(server: Server, id: HandleId, form: ArrayForm, named: Named) -> Handle {
        Handle {
            server,
            id,
            form,
            named: Some(named),
        }
    }

    /// Its name and version, if it is named data.
    pub fn name(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    /// The id, which also names the array in other programs of the same user.
    pub fn id(&self) -> HandleId {
        self.id
    }

    /// The address of its server.
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    pub(crate) fn at(&self) -> &Server {
        &self.server
    }

    /// Type, shape and order.
    pub fn form(&self) -> &ArrayForm {
        &self.form
    }

    /// Asks the server for the status.
    pub fn status(&self) -> Result<HandleStatus, Error> {
        Ok(HandleStatus::new(arrays::handle(
            &self.server.connection()?,
            self.id,
        )?))
    }

    /// Fetches the array in its own order. `bytes` must have its length.
    pub fn get(&self, bytes: &mut [u8]) -> Result<(), Error> {
        self.get_within(bytes, Timeout::from_now(self.server.options().timeout))
    }

    fn get_within(&self, bytes: &mut [u8], timeout: Timeout) -> Result<(), Error> {
        let unit = self.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
        let connection = connection_by(&self.server, timeout)?;
        arrays::get(&connection, self.id, bytes, unit, timeout)
    }

    /// Fetches the array in its own order, into new memory of its size. Fails as [`Handle::get`]
    /// does, and if this machine has no memory of that size.
    pub fn fetch(&self) -> Result<Vec<u8>, Error> {
        self.fetch_within(Timeout::from_now(self.server.options().timeout))
    }

    /// [`Handle::fetch`] for a call with this time-out.
    pub(crate) fn fetch_within(&self, timeout: Timeout) -> Result<Vec<u8>, Error> {
        let length = self.form.bytes();
        let length =
            length.map_err(|error| Error::failed(FailureKind::BadArgument, error.to_string()))?;
        let mut bytes = zeroed(length)?;
        self.get_within(&mut bytes, timeout)?;
        Ok(bytes)
    }

    /// Lends the array: makes a name under which another server may read it, once and within a
    /// minute.
    pub fn lend(&self) -> Result<HandleId, Error> {
        let timeout = Timeout::from_now(self.server.options().timeout);
        arrays::lend(&self.server.connection()?, self.id, timeout)
    }

    /// Copies the array to another server, which reads it from this one. If a call needs the copy,
    /// `timeout` is that of the call.
    pub(crate) fn copy(
        &self,
        server: &Server,
        stays: bool,
        timeout: Timeout,
    ) -> Result<Handle, Error> {
        let connection = connection_by(&self.server, timeout)?;
        let loan = arrays::lend(&connection, self.id, timeout)?;
        let pull = Pull {
            address: self.server.address().to_string(),
            loan,
            form: self.form.clone(),
            stays,
            source: None,
        };
        let ask = || arrays::pull(&connection_by(server, timeout)?, &pull, timeout);
        let record = persist_within(server, timeout, ask)?;
        Ok(Handle::new(server.clone(), record))
    }

    /// Drops the array. Calls that use it continue.
    pub fn drop_array(&self) -> Result<(), Error> {
        arrays::drop_handle(&self.server.connection()?, self.id).map(drop)
    }

    /// Drops the array without waiting for the answer.
    pub fn drop_soon(&self) {
        // If the connection is lost, the array is gone already.
        if let Some(connection) = self.server.live_connection() {
            arrays::drop_handle_soon(&connection, self.id);
        }
    }
}

impl Server {
    pub(crate) fn put(&self, form: ArrayForm, bytes: &[u8], stays: bool) -> Result<Handle, Error> {
        let timeout = Timeout::from_now(self.options().timeout);
        put_within(self, (form, bytes, stays), timeout)
    }

    /// Reads an array that was lent under this name.
    pub(crate) fn redeem(&self, loan: HandleId, bytes: &mut [u8]) -> Result<(), Error> {
        let timeout = Timeout::from_now(self.options().timeout);
        arrays::get(&self.connection()?, loan, bytes, 1, timeout)
    }

    pub(crate) fn handle(&self, id: HandleId) -> Result<Handle, Error> {
        let record = self.persist(|| arrays::handle(&self.connection()?, id))?;
        Ok(Handle::new(self.clone(), record))
    }

    pub(crate) fn handles(&self) -> Result<Vec<HandleStatus>, Error> {
        pages::all(|after| {
            let page = self.persist(|| arrays::handles(&self.connection()?, after))?;
            Ok((page.handles.into_iter().map(HandleStatus::new), page.next))
        })
    }
}

/// [`Server::put`] for a call with this time-out.
pub(crate) fn put_within(
    server: &Server,
    (form, bytes, stays): (ArrayForm, &[u8], bool),
    timeout: Timeout,
) -> Result<Handle, Error> {
    let data_bytes = bytes.len() as u64;
    let put = Put {
        form,
        data_bytes,
        stays,
    };
    let ask = || arrays::put(&connection_by(server, timeout)?, &put, bytes, timeout);
    let record = persist_within(server, timeout, ask)?;
    Ok(Handle::new(server.clone(), record))
}

impl HandleStatus {
    pub(crate) fn new(record: HandleRecord) -> HandleStatus {
        let used = UNIX_EPOCH.checked_add(Duration::from_millis(record.used));
        HandleStatus {
            id: record.id,
            form: record.form,
            stays: record.stays,
            used: used.unwrap_or(UNIX_EPOCH),
            on_disk: record.on_disk,
            undefined: record.undefined,
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({} at {})", self.id, self.server.address())
    }
}

//! Arrays that stay at a server.

use crate::{Argument, ArrayForm, Error, HandleId, Named, Server};
use farcall_rpc_proto::HandleRecord;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An array at a server, to be passed as [`crate::Argument::Handle`]. Calls use it in the order in
/// which they are made: those that read it together, one that writes it alone. After a call that
/// was to write it and failed its contents are undefined until another call has written all of it.
#[derive(Clone)]
pub struct Handle {
    server: Server,
    id: HandleId,
    form: ArrayForm,
    named: Option<Named>,
}

/// What is known of an array at a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleStatus {
    /// Its handle.
    pub id: HandleId,
    /// What it is.
    pub form: ArrayForm,
    /// Whether it stays when the connection ends that has put it there.
    pub stays: bool,
    /// When it was used last.
    pub used: SystemTime,
    /// Whether it is on the disk, for want of memory.
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

    /// Its name, where it was put or looked up by one.
    pub fn name(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    /// What a call of a function of that server passes for it: by its name where the server of the
    /// call is chosen later.
    pub fn argument(&self, server: &Server) -> Argument<'static> {
        match &self.named {
            Some(named) if server.is_metaserver() => Argument::Named(named.name.clone()),
            _ => Argument::Handle(self.id),
        }
    }

    /// Names it, in this program and in others of the same user.
    pub fn id(&self) -> HandleId {
        self.id
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Type, shape and order.
    pub fn form(&self) -> &ArrayForm {
        &self.form
    }

    /// Asks what is known of it.
    pub fn status(&self) -> Result<HandleStatus, Error> {
        Ok(HandleStatus::new(
            self.server.connection()?.handle(self.id)?,
        ))
    }

    /// Gets it, in its own order; `bytes` is as long as it is.
    pub fn get(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let unit = self.form.ty().map_or(1, farcall_idl::Type::swap_unit) as usize;
        self.server.connection()?.get(self.id, bytes, unit)
    }

    /// A name of the array that another server may read it by, once and within a minute.
    pub fn lend(&self) -> Result<HandleId, Error> {
        self.server.connection()?.lend(self.id)
    }

    /// A copy of the array at another server, which reads it from this one: nothing of it passes
    /// through the client. The other server must be able to reach this one by the address that the
    /// client has of it, and must allow it (`data.peers` in its configuration).
    pub fn copy_to(&self, server: &Server, stays: bool) -> Result<Handle, Error> {
        let loan = self.lend()?;
        server.pull(self.server.address(), loan, self.form.clone(), stays)
    }

    /// The server need not keep it any more. Calls that use it go on.
    pub fn drop_array(&self) -> Result<(), Error> {
        self.server.connection()?.drop_handle(self.id).map(drop)
    }

    /// The same without waiting for the answer.
    pub fn drop_soon(&self) {
        // With its connection it is gone already.
        if let Some(connection) = self.server.live_connection() {
            connection.drop_handle_soon(self.id);
        }
    }
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

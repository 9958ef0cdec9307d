//! Data with names: put, looked up and listed, at a server or at those behind a metaserver.

use crate::{ArrayForm, DataName, Error, Failure, FailureKind, Handle, Server};
use farcall_rpc_proto::{Edition, Name, NameRecord};

/// The name of an array, and which edition it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// With its owner.
    pub name: DataName,
    /// Counts the editions, from 1 on.
    pub version: u64,
    /// Whether all users may read it.
    pub shared: bool,
    /// Whether it is the caller's own.
    pub own: bool,
    pub(crate) edition: Edition,
}

/// What is known of data with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataStatus {
    /// With their owner.
    pub name: DataName,
    /// Counts the editions, from 1 on.
    pub version: u64,
    /// Whether all users may read them.
    pub shared: bool,
    /// Type of the elements, by its name in the interface language.
    pub element: String,
    /// The shape.
    pub shape: Vec<u64>,
    /// All bytes.
    pub bytes: u64,
    /// The addresses of the servers that hold them in this edition.
    pub holders: Vec<String>,
}

impl Server {
    /// Puts an array at the server under a name, or, behind a metaserver, at the server that has
    /// data of that name, or else most memory free. The data stay until they are dropped, or were
    /// not used for long, and do not change: another array put under the name is the next edition,
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
        farcall_rpc_proto::check_name(name)
            .map_err(|error| failed(FailureKind::BadArgument, error.to_string()))?;
        match self.grid() {
            Some(grid) => grid.put_named(self, form, bytes, name, shared),
            None => self.put_named_here(form, bytes, (name, shared, 0)),
        }
    }

    /// The same at this server; `after` is the version that another has.
    pub(crate) fn put_named_here(
        &self,
        form: ArrayForm,
        bytes: &[u8],
        (name, shared, after): (&str, bool, u64),
    ) -> Result<Handle, Error> {
        self.connection()?.check_names()?;
        let handle = self.put(form, bytes, true)?;
        let name = Name {
            id: handle.id(),
            name: name.to_string(),
            shared,
            after,
            copy: None,
        };
        self.name(&handle, &name)
            .inspect_err(|_| handle.drop_soon())
    }

    pub(crate) fn name(&self, handle: &Handle, name: &Name) -> Result<Handle, Error> {
        let record = self.connection()?.name(name)?;
        self.named_array(NameRecord {
            id: record.id.or(Some(handle.id())),
            ..record
        })
    }

    /// The array that a name stands for: the caller's own, a file of the server's data folder, or
    /// what another user shares. Behind a metaserver, it is at one of the servers that hold it.
    ///
    /// # Errors
    /// There is nothing of that name that the caller may read.
    pub fn data(&self, name: &DataName) -> Result<Handle, Error> {
        name.check()
            .map_err(|error| failed(FailureKind::BadArgument, error.to_string()))?;
        match self.grid() {
            Some(grid) => grid.data(self, name),
            None => self.named_array(self.connection()?.ask_name(name)?),
        }
    }

    fn named_array(&self, record: NameRecord) -> Result<Handle, Error> {
        let Some(id) = record.id else {
            let text = format!("the server has no array for `{}`", record.name);
            return Err(failed(FailureKind::Internal, text));
        };
        let named = Named {
            version: record.edition.version,
            name: record.name,
            shared: record.shared,
            own: record.own,
            edition: record.edition,
        };
        Ok(Handle::named(self.clone(), id, record.form, named))
    }

    /// All data with names that the caller may see, by name.
    ///
    /// # Errors
    /// The server cannot be asked, or is too old.
    pub fn list_data(&self) -> Result<Vec<DataStatus>, Error> {
        if let Some(grid) = self.grid() {
            return grid.list_data(self);
        }
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.connection()?.names(after.as_ref())?;
            all.extend(page.names.into_iter().map(|record| DataStatus {
                name: record.name,
                version: record.edition.version,
                shared: record.shared,
                bytes: record.form.bytes().unwrap_or(0),
                element: record.form.element,
                shape: record.form.shape,
                holders: vec![self.address().to_string()],
            }));
            // A page that leads nowhere would be asked for without end.
            match page.next.filter(|next| after.as_ref() != Some(next)) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Drops the caller's data of that name, wherever they are. Calls that use them go on.
    ///
    /// # Errors
    /// There are none.
    pub fn drop_data(&self, name: &DataName) -> Result<(), Error> {
        match self.grid() {
            Some(grid) => grid.drop_data(self, name),
            None => self.data(name)?.drop_array(),
        }
    }
}

pub(crate) fn failed(kind: FailureKind, text: String) -> Error {
    Error::Failed(Failure::new(kind, text))
}

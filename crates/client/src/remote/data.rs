//! Named data at one server: put, look up and list. Where named data are in a grid is known to
//! `grid::data`.

use crate::data::{DataStatus, Named};
use crate::error::Error;
use crate::remote::handle::Handle;
use crate::remote::requests::names;
use crate::remote::server::{Server, connection_by, persist_within};
use crate::timeout::Timeout;
use farcall_rpc_proto::{ArrayForm, DataName, FailureKind, Name, NameRecord};

impl Server {
    /// Puts an array under a name; `after` is the version that another server has.
    pub(crate) fn put_named(
        &self,
        form: ArrayForm,
        bytes: &[u8],
        (name, shared, after): (&str, bool, u64),
    ) -> Result<Handle, Error> {
        names::check_names(&*self.connection()?)?;
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
        let record = names::name(&self.connection()?, name)?;
        self.named_array(NameRecord {
            id: record.id.or(Some(handle.id())),
            ..record
        })
    }

    /// The array with this name. `timeout` is that of the call that reads it.
    pub(crate) fn data(&self, name: &DataName, timeout: Timeout) -> Result<Handle, Error> {
        let ask = || names::ask_name(&connection_by(self, timeout)?, name, timeout);
        self.named_array(persist_within(self, timeout, ask)?)
    }

    fn named_array(&self, record: NameRecord) -> Result<Handle, Error> {
        let Some(id) = record.id else {
            let text = format!("the server has no array for `{}`", record.name);
            return Err(Error::failed(FailureKind::Internal, text));
        };
        let named = Named {
            version: record.version.number,
            name: record.name,
            shared: record.shared,
            own: record.own,
            identity: record.version,
        };
        Ok(Handle::named(self.clone(), id, record.form, named))
    }

    /// All named data that the caller may see, by name.
    pub(crate) fn list_data(&self) -> Result<Vec<DataStatus>, Error> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.persist(|| names::names(&self.connection()?, after.as_ref()))?;
            all.extend(page.names.into_iter().map(|record| DataStatus {
                name: record.name,
                version: record.version.number,
                shared: record.shared,
                bytes: record.form.bytes().unwrap_or(0),
                element: record.form.element,
                shape: record.form.shape,
                holders: vec![self.address().to_string()],
            }));
            // A page that points to itself would make this loop endless.
            match page.next.filter(|next| after.as_ref() != Some(next)) {
                Some(next) => after = Some(next),
                None => return Ok(all),
            }
        }
    }
}

//! Arrays at addresses outside of Farcall, which the server of a call reads. This module asks for
//! them, and drops those that belong to one call when the call has ended. The server decides which
//! addresses users may read, and which arrays it keeps.

use crate::argument::Argument;
use crate::data::Source;
use crate::error::Error;
use crate::remote::handle::Handle;
use crate::remote::requests::arrays;
use crate::remote::server::Server;
use farcall_idl::{Interface, Mode, Order};
use farcall_rpc_proto::{ArrayForm, HandleId, Pull};

/// Arrays that a server has read for one call. It drops them after the call.
#[derive(Default)]
pub(crate) struct OwnArrays(Vec<Handle>);

impl Drop for OwnArrays {
    fn drop(&mut self) {
        for handle in &self.0 {
            handle.drop_soon();
        }
    }
}

impl OwnArrays {
    /// Takes an array for the call. One of its own is dropped after the call.
    pub(crate) fn take(&mut self, handle: Handle, is_own: bool) -> HandleId {
        let id = handle.id();
        if is_own {
            self.0.push(handle);
        }
        id
    }
}

/// The form of an array that a parameter takes, as far as it is known: its shape is that of the
/// source.
pub(crate) fn wanted(interface: &Interface, param: usize) -> ArrayForm {
    let element = interface.params.get(param).map(|param| param.ty.name());
    ArrayForm {
        element: element.unwrap_or_default().to_string(),
        shape: Vec::new(),
        column_major: interface.order() == Order::ColumnMajor,
    }
}

impl Server {
    /// Makes the server read a source. Returns the array, and whether it belongs to the caller, who
    /// must drop it. Otherwise the server keeps it for further requests.
    pub(crate) fn read_source(
        &self,
        source: &Source,
        form: ArrayForm,
        stays: bool,
    ) -> Result<(Handle, bool), Error> {
        let pull = Pull {
            address: source.address.clone(),
            loan: HandleId([0; 16]),
            form,
            stays,
            source: Some(source.options.clone()),
        };
        let record = self.persist(|| arrays::pull(&self.connection()?, &pull))?;
        let is_own = !record.stays;
        Ok((Handle::new(self.clone(), record), is_own))
    }

    /// Makes the server read the sources among the IN arguments of a call.
    pub(super) fn read_sources(
        &self,
        interface: &Interface,
        arguments: &mut [Argument<'_>],
    ) -> Result<(Vec<(usize, Argument<'static>)>, OwnArrays), Error> {
        let (mut before, mut own) = (Vec::new(), OwnArrays::default());
        for (index, argument) in arguments.iter_mut().enumerate() {
            let Argument::Source(source) = argument else {
                continue;
            };
            let param = interface.params.get(index);
            if param.is_none_or(|param| param.mode != Mode::In) {
                continue;
            }
            let (handle, is_own) = self.read_source(source, wanted(interface, index), false)?;
            before.push((index, Argument::Source(source.clone())));
            *argument = Argument::Handle(own.take(handle, is_own));
        }
        Ok((before, own))
    }
}

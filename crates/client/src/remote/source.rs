//! Arrays at addresses outside of Farcall: a server reads them for a call, or writes the results of
//! a call to them. This module asks the server to, before the call and after it, and drops the
//! arrays that belong to one call when the call has ended. The server decides which addresses users
//! may read and write, and which arrays it keeps.

use crate::argument::Argument;
use crate::data::Source;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::attempt::{After, Attempt};
use crate::remote::connection::{Request, answered};
use crate::remote::handle::Handle;
use crate::remote::requests::arrays;
use crate::remote::server::{Server, connection_by, persist_within};
use crate::timeout::Timeout;
use farcall_idl::{Interface, Layout, Mode, Order};
use farcall_rpc_proto::{ArrayForm, HandleId, HandleRecord, Pull, Receipt, Write};
use std::sync::Arc;

/// Arrays that a server has for one call: those that it has read, and results that it writes to
/// addresses when the call has ended. They are dropped after the call.
#[derive(Default)]
pub(crate) struct OwnArrays {
    arrays: Vec<Handle>,
    /// Results: the parameter, the array and its address. The last one is next.
    results: Vec<(usize, Handle, Source)>,
    /// Whether a result is being written: the call itself is over.
    is_writing: bool,
}

impl Drop for OwnArrays {
    fn drop(&mut self) {
        let results = self.results.iter().map(|(_, handle, _)| handle);
        for handle in self.arrays.iter().chain(results) {
            handle.drop_soon();
        }
    }
}

impl OwnArrays {
    /// Takes an array for the call. One of its own is dropped after the call.
    pub(crate) fn take(&mut self, handle: Handle, is_own: bool) -> HandleId {
        let id = handle.id();
        if is_own {
            self.arrays.push(handle);
        }
        id
    }

    /// Makes an array for a result that will be written to an address. `timeout` is that of the
    /// call.
    pub(crate) fn result(
        &mut self,
        server: &Server,
        (interface, layout): (&Interface, &Layout),
        param: usize,
        source: &Source,
        timeout: Timeout,
    ) -> Result<HandleId, Error> {
        let mut arrays = layout.arrays.iter();
        let array = arrays.find(|array| array.param == param);
        let form = array.map(|array| ArrayForm::of(array, interface.order()));
        let form = form.unwrap_or_else(|| wanted_form(interface, param));
        let record = arrays::put_zeros(&connection_by(server, timeout)?, form, timeout)?;
        let (id, handle) = (record.id, Handle::new(server.clone(), record));
        self.results.push((param, handle, source.clone()));
        Ok(id)
    }

    /// Makes arrays for the results of a call whose arguments are addresses. `timeout` is that of
    /// the call.
    pub(super) fn take_results(
        &mut self,
        server: &Server,
        of: (&Interface, &Layout),
        arguments: &mut [Argument<'_>],
        timeout: Timeout,
    ) -> Result<(), Error> {
        for (index, argument) in arguments.iter_mut().enumerate().rev() {
            if let Argument::Source(source) = argument {
                *argument = Argument::Handle(self.result(server, of, index, source, timeout)?);
            }
        }
        Ok(())
    }

    /// Forgets the results of an earlier attempt.
    pub(crate) fn forget_results(&mut self) {
        for (_, handle, _) in self.results.drain(..) {
            handle.drop_soon();
        }
    }

    /// Whether the call is over and a result is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// How a call goes on that has this outcome: with the next result that must be written.
    pub(crate) fn after(&mut self, outcome: Outcome) -> After {
        let Some((param, handle, source)) = self.results.pop() else {
            return After::End(Ok(outcome));
        };
        self.is_writing = true;
        let request = handle.begin_to_write(&source);
        self.arrays.push(handle);
        match request {
            Ok(request) => After::Again(Arc::new(Attempt::writing(request, outcome, param))),
            Err(error) => After::End(Err(error)),
        }
    }

    /// Writes all results of a call that has this outcome. `timeout` is that of the call.
    pub(crate) fn finish(&mut self, outcome: Outcome, timeout: Timeout) -> Result<Outcome, Error> {
        let mut outcome = outcome;
        loop {
            match self.after(outcome) {
                After::Again(mut attempt) => {
                    // Nobody else has the attempt.
                    if let Some(attempt) = Arc::get_mut(&mut attempt) {
                        attempt.request.within(timeout);
                    }
                    outcome = attempt.wait_shared()?;
                }
                After::End(end) => return end,
            }
        }
    }
}

/// The sources among the IN arguments of a call, by the indices of the parameters.
pub(super) fn sources(
    interface: &Interface,
    arguments: &[Argument<'_>],
) -> Vec<(usize, Box<Source>)> {
    let params = interface.params.iter().zip(arguments).enumerate();
    let found = params.filter_map(|(index, (param, argument))| match argument {
        Argument::Source(source) if param.mode == Mode::In => Some((index, source.clone())),
        _ => None,
    });
    found.collect()
}

/// The form of an array that a parameter takes, as far as it is known: its shape is that of the
/// source.
pub(crate) fn wanted_form(interface: &Interface, param: usize) -> ArrayForm {
    let element = interface.params.get(param).map(|param| param.ty.name());
    ArrayForm {
        element: element.unwrap_or_default().to_string(),
        shape: Vec::new(),
        column_major: interface.order() == Order::ColumnMajor,
    }
}

fn pull_of(source: &Source, form: ArrayForm, stays: bool) -> Pull {
    Pull {
        address: source.address.clone(),
        loan: HandleId([0; 16]),
        form,
        stays,
        source: Some(source.options.clone()),
    }
}

impl Handle {
    /// Lets the server write the array to an address outside of Farcall: all of it, or nothing.
    /// Returns what lies there then.
    pub fn write(&self, destination: &Source) -> Result<Receipt, Error> {
        let request = self.begin_to_write(destination)?;
        request.answer(answered!(Receipt))
    }

    fn begin_to_write(&self, destination: &Source) -> Result<Request, Error> {
        let write = Write {
            id: self.id(),
            address: destination.address.clone(),
            options: destination.options.clone(),
        };
        arrays::write(&self.at().connection()?, &write)
    }
}

impl Server {
    /// Makes the server read a source. Returns the array, and whether it belongs to the caller, who
    /// must drop it. Otherwise the server keeps it for further requests. `timeout` is that of the
    /// call.
    pub(crate) fn read_source(
        &self,
        source: &Source,
        form: ArrayForm,
        stays: bool,
        timeout: Timeout,
    ) -> Result<(Handle, bool), Error> {
        let pull = pull_of(source, form, stays);
        let ask = || arrays::pull(&connection_by(self, timeout)?, &pull, timeout);
        let record = persist_within(self, timeout, ask)?;
        Ok(self.has_read(record))
    }

    /// Begins to make the server read a source, for a call with this time-out.
    pub(crate) fn begin_to_read(
        &self,
        source: &Source,
        form: ArrayForm,
        timeout: Timeout,
    ) -> Result<Attempt, Error> {
        let pull = pull_of(source, form, false);
        let ask = || arrays::begin_pull(&connection_by(self, timeout)?, &pull);
        let mut request = persist_within(self, timeout, ask)?;
        request.within(timeout);
        Ok(Attempt::reading(request))
    }

    /// The array of a source that was read, and whether it belongs to the caller.
    pub(crate) fn has_read(&self, record: HandleRecord) -> (Handle, bool) {
        let is_own = !record.stays;
        (Handle::new(self.clone(), record), is_own)
    }

    /// Makes the server read the sources among the IN arguments of a call. `timeout` is that of the
    /// call.
    pub(super) fn read_sources(
        &self,
        interface: &Interface,
        arguments: &mut [Argument<'_>],
        timeout: Timeout,
    ) -> Result<(Vec<(usize, Argument<'static>)>, OwnArrays), Error> {
        let (mut before, mut own) = (Vec::new(), OwnArrays::default());
        for (index, source) in sources(interface, arguments) {
            let form = wanted_form(interface, index);
            let (handle, is_own) = self.read_source(&source, form, false, timeout)?;
            arguments[index] = Argument::Handle(own.take(handle, is_own));
            before.push((index, Argument::Source(source)));
        }
        Ok((before, own))
    }
}

//! What users do with parts of a server: its arrays, its objects, its submitted calls.

use crate::argument::Argument;
use crate::error::Error;
use crate::function::Function;
use crate::outcome::Outcome;
use crate::pending::Pending;
use crate::remote::{Handle, Object, SubmittedCall};
use crate::server::Server;

impl Handle {
    /// What a call of a function of that server passes for it: by its name where the server of the
    /// call is chosen later.
    pub fn argument(&self, server: &Server) -> Argument<'static> {
        match self.name() {
            Some(named) if server.is_metaserver() => Argument::Named(named.name.clone()),
            _ => Argument::Handle(self.id()),
        }
    }

    /// The server that has it.
    pub fn server(&self) -> Server {
        self.at().clone().into()
    }

    /// A copy of the array at another server, which reads it from this one: nothing of it passes
    /// through the client. The other server must be able to reach this one by the address that the
    /// client has of it, and must allow it (`data.peers` in its configuration).
    pub fn copy_to(&self, server: &Server, stays: bool) -> Result<Handle, Error> {
        self.copy(server.peer(), stays)
    }
}

impl Object {
    /// The method of that name, as a function that is called on this object. The methods of an
    /// object run one after the other.
    pub fn method(&self, name: &str) -> Result<Function, Error> {
        let method = self.at().function(&format!("{}.{name}", self.class()))?;
        Ok(Function::of_one(method.on(self.instance().clone())))
    }

    /// The server that has it.
    pub fn server(&self) -> Server {
        self.at().clone().into()
    }
}

impl SubmittedCall {
    /// Waits for the end of the call and fills OUT and INOUT arrays with its results. `arguments`
    /// has one for each parameter: those, and [`Argument::Skip`]. The server keeps the results.
    pub fn fetch(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        // SAFETY: the borrows outlive the request, which is over or given up when this returns.
        unsafe { self.start(arguments) }?.wait()
    }

    /// Begins to fetch, and returns at once.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// stay where they are and are not touched.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.begin(arguments) }.map(Pending::from)
    }
}

//! Operations on stored arrays, objects and durable calls that need the public [`Server`], which is
//! one server or a metaserver. `remote` has the operations at a single server.

use crate::argument::Argument;
use crate::error::Error;
use crate::function::Function;
use crate::outcome::Outcome;
use crate::pending::Pending;
use crate::remote::{Handle, Object, SubmittedCall};
use crate::server::Server;
use crate::timeout::Timeout;

impl Handle {
    /// The argument that a call at `server` passes for this array. If the server of the call is
    /// chosen later, the argument holds the name of the data.
    pub fn argument(&self, server: &Server) -> Argument<'static> {
        match self.name() {
            Some(named) if server.is_metaserver() => Argument::Named(named.name.clone()),
            _ => Argument::Handle(self.id()),
        }
    }

    /// The server that has the array.
    pub fn server(&self) -> Server {
        self.at().clone().into()
    }

    /// Copies the array to another server, which reads it from this one. No byte passes through the
    /// client. The other server must reach this one by the address that the client uses, and its
    /// configuration must allow it (`data.peers`).
    pub fn copy_to(&self, server: &Server, stays: bool) -> Result<Handle, Error> {
        let peer = server.peer();
        self.copy(peer, stays, Timeout::from_now(peer.options().timeout))
    }
}

impl Object {
    /// The method with this name, as a function that is called on this object. The methods of an
    /// object run one after the other.
    pub fn method(&self, name: &str) -> Result<Function, Error> {
        let method = self.at().function(&format!("{}.{name}", self.class()))?;
        Ok(Function::of_one(method.on(self.instance().clone())))
    }

    /// The server that has the object.
    pub fn server(&self) -> Server {
        self.at().clone().into()
    }
}

impl SubmittedCall {
    /// Waits for the end of the call and fills OUT and INOUT arrays with its results. `arguments`
    /// has one entry for each parameter: these arrays, and [`Argument::Skip`] for the rest. The
    /// server keeps the results.
    pub fn fetch(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        // SAFETY: the borrows outlive the request, which has ended or is given up when this
        // returns.
        unsafe { self.start(arguments) }?.wait()
    }

    /// Begins to fetch the results, and returns at once.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// must stay where they are, and the caller must not touch them.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.begin(arguments) }.map(Pending::from)
    }
}

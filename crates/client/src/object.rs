//! Remote objects: state that lives on the server, in a process of its own.

use crate::connection::Connection;
use crate::{Error, Function, Server};
use farcall_rpc_proto::{CallId, Failure, FailureKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An object of a class of a server. Clones are the same object. It is destroyed when it is closed,
/// when the last clone and the last method are dropped, or when the connection ends.
#[derive(Clone)]
pub struct Object {
    server: Server,
    instance: Arc<Instance>,
}

/// What the server knows of it.
pub(crate) struct Instance {
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: CallId,
    class: String,
    is_closed: AtomicBool,
}

impl Server {
    /// Makes an object of a class, `module/class` or `class` alone.
    pub fn new_object(&self, class: &str) -> Result<Object, Error> {
        let connection = self.connection()?;
        let id = connection.create(class)?.ok_or_else(|| {
            let text = "the server is too old to keep objects; update it";
            Error::Failed(Failure::new(FailureKind::Internal, text))
        })?;
        let instance = Instance {
            connection,
            id,
            class: class.to_string(),
            is_closed: AtomicBool::new(false),
        };
        Ok(Object {
            server: self.clone(),
            instance: Arc::new(instance),
        })
    }
}

impl Object {
    /// The class, as it was asked for.
    pub fn class(&self) -> &str {
        &self.instance.class
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The method of that name, as a function that is called on this object. The methods of an
    /// object run one after the other.
    pub fn method(&self, name: &str) -> Result<Function, Error> {
        let name = format!("{}.{name}", self.class());
        let method = self.server.function(&name)?;
        Ok(method.on(self.instance.clone()))
    }

    /// Destroys it: what runs is ended, and later calls fail.
    pub fn close(&self) {
        self.instance.close();
    }
}

impl Instance {
    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.connection.delete(self.id);
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} at {})", self.class(), self.server.address())
    }
}

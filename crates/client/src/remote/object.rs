//! Remote objects: state at the server, in a worker process of its own. Calls of methods are
//! ordinary calls, in `function`. An object is destroyed when its last clone and its last method
//! are dropped, unless it was made persistent.

use crate::error::Error;
use crate::remote::connection::Connection;
use crate::remote::pages;
use crate::remote::requests::objects;
use crate::remote::server::Server;
use farcall_rpc_proto::{CallId, HandleId, ObjectRecord, ObjectRequest};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An object of a class. Clones are the same object. It is destroyed when it is closed, when the
/// last clone and the last method are dropped, or when the connection ends.
#[derive(Clone)]
pub struct Object {
    server: Server,
    instance: Arc<Instance>,
}

/// The object as the server knows it.
pub(crate) struct Instance {
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: CallId,
    class: String,
    is_closed: AtomicBool,
}

/// The status of a persistent object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    /// Its id.
    pub id: HandleId,
    /// Qualified name of its class.
    pub class: String,
    /// Time of its last use.
    pub used: SystemTime,
    /// Why the object is lost: how its process ended.
    pub lost: Option<String>,
}

impl ObjectStatus {
    fn new(record: ObjectRecord) -> ObjectStatus {
        let used = UNIX_EPOCH.checked_add(Duration::from_millis(record.used));
        ObjectStatus {
            id: record.id,
            class: record.class,
            used: used.unwrap_or(UNIX_EPOCH),
            lost: record.lost,
        }
    }
}

impl Server {
    pub(crate) fn new_object(&self, class: &str) -> Result<Object, Error> {
        let (connection, id) = self.persist(|| {
            let connection = self.connection()?;
            let id = objects::create(&connection, class)?;
            Ok((connection, id))
        })?;
        Ok(Object::new(self.clone(), connection, id, class.to_string()))
    }

    pub(crate) fn object(&self, id: HandleId) -> Result<Object, Error> {
        let (connection, (number, record)) = self.persist(|| {
            let connection = self.connection()?;
            let attached = objects::object(&connection, ObjectRequest::Attach(id))?;
            Ok((connection, attached))
        })?;
        Ok(Object::new(self.clone(), connection, number, record.class))
    }

    pub(crate) fn objects(&self) -> Result<Vec<ObjectStatus>, Error> {
        pages::all(|after| {
            let ask = || objects::objects(&self.connection()?, ObjectRequest::List(after));
            let (_, page) = self.persist(ask)?;
            Ok((page.objects.into_iter().map(ObjectStatus::new), page.next))
        })
    }

    pub(crate) fn drop_object(&self, id: HandleId) -> Result<(), Error> {
        objects::object(&self.connection()?, ObjectRequest::Drop(id)).map(drop)
    }
}

impl Object {
    fn new(server: Server, connection: Arc<Connection>, id: CallId, class: String) -> Object {
        let instance = Instance {
            connection,
            id,
            class,
            is_closed: AtomicBool::new(false),
        };
        Object {
            server,
            instance: Arc::new(instance),
        }
    }

    /// Makes the object persistent: it remains after the connection has ended or this value is
    /// closed. Other programs of the same user find it by its id ([`crate::Server::object`]).
    /// [`crate::Server::drop_object`] destroys it.
    pub fn keep(&self) -> Result<HandleId, Error> {
        let asked = ObjectRequest::Keep(self.instance.id);
        Ok(objects::object(&self.instance.connection, asked)?.1.id)
    }

    /// The name of the class that the caller asked for.
    pub fn class(&self) -> &str {
        &self.instance.class
    }

    pub(crate) fn at(&self) -> &Server {
        &self.server
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.instance
    }

    /// Destroys the object. A running method is ended, and later calls fail.
    pub fn close(&self) {
        self.instance.close();
    }
}

impl Instance {
    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            objects::delete(&self.connection, self.id);
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

//! Remote objects: state that lives on the server, in a process of its own.

use crate::connection::Connection;
use crate::{Error, Function, HandleId, Server};
use farcall_rpc_proto::{CallId, Failure, FailureKind, ObjectRecord, ObjectRequest};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// What is known of an object that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStatus {
    /// Its name.
    pub id: HandleId,
    /// Its class, qualified.
    pub class: String,
    /// When it was used last.
    pub used: SystemTime,
    /// Why it is lost: its process has ended.
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
    /// Makes an object of a class, `module/class` or `class` alone.
    pub fn new_object(&self, class: &str) -> Result<Object, Error> {
        let connection = self.connection()?;
        let id = connection.create(class)?.ok_or_else(|| {
            let text = "the server is too old to keep objects; update it";
            Error::Failed(Failure::new(FailureKind::Internal, text))
        })?;
        Ok(Object::new(self.clone(), connection, id, class.to_string()))
    }

    /// An object that stays at the server by now.
    pub fn object(&self, id: HandleId) -> Result<Object, Error> {
        let connection = self.connection()?;
        let (number, record) = connection.object(ObjectRequest::Attach(id))?;
        Ok(Object::new(self.clone(), connection, number, record.class))
    }

    /// The caller's objects that stay at this server, in the order of their creation.
    pub fn objects(&self) -> Result<Vec<ObjectStatus>, Error> {
        let mut objects = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let (_, page) = self.connection()?.objects(ObjectRequest::List(number))?;
            // A page that leads nowhere would be asked for without end.
            after = page.next.filter(|&next| next > number);
            objects.extend(page.objects.into_iter().map(ObjectStatus::new));
        }
        Ok(objects)
    }

    /// Destroys an object that stays: what runs is ended, and later calls fail.
    pub fn drop_object(&self, id: HandleId) -> Result<(), Error> {
        self.connection()?.object(ObjectRequest::Drop(id)).map(drop)
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

    /// Lets it stay when the connection ends, or this is closed; other programs of the same user
    /// find it by its name ([`Server::object`]). [`Server::drop_object`] destroys it.
    pub fn keep(&self) -> Result<HandleId, Error> {
        let asked = ObjectRequest::Keep(self.instance.id);
        Ok(self.instance.connection.object(asked)?.1.id)
    }

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

//! Requests about objects, those that stay too.

use super::directory::check_one_server;
use crate::error::Error;
use crate::remote::connection::{Answer, Connection};
use farcall_rpc_proto::{
    CallId, FailureKind, KEPT_OBJECTS, OBJECTS, ObjectPage, ObjectRecord, ObjectRequest,
};
use std::sync::Arc;

/// Asks for an object of a class; `None` where the server has no objects.
pub(crate) fn create(connection: &Arc<Connection>, class: &str) -> Result<Option<CallId>, Error> {
    check_one_server(connection, "objects")?;
    if !connection.has(OBJECTS) {
        return Ok(None);
    }
    match connection.ask(|proto| proto.create(class))? {
        Answer::Created(id) => Ok(Some(id)),
        _ => Err(connection.unexpected()),
    }
}

/// Gives an object up. A child that this process forked leaves it alone: it is the parent's.
pub(crate) fn delete(connection: &Connection, object: CallId) {
    if connection.is_ours() {
        connection.tell(|proto| proto.delete(object));
    }
}

/// Asks about objects that stay; the number of the request with the answer.
pub(crate) fn objects(
    connection: &Arc<Connection>,
    asked: ObjectRequest,
) -> Result<(CallId, ObjectPage), Error> {
    check_one_server(connection, "objects that stay")?;
    if !connection.has(KEPT_OBJECTS) {
        let text = "the server is too old to keep objects for other connections; update it";
        return Err(Error::failed(FailureKind::BadArgument, text));
    }
    match connection.ask(|proto| proto.objects(asked))? {
        Answer::Objects(id, page) => Ok((id, page)),
        _ => Err(connection.unexpected()),
    }
}

/// The same where the answer is one object.
pub(crate) fn object(
    connection: &Arc<Connection>,
    asked: ObjectRequest,
) -> Result<(CallId, ObjectRecord), Error> {
    let (id, page) = objects(connection, asked)?;
    let record = page.objects.into_iter().next();
    Ok((id, record.ok_or_else(|| connection.unexpected())?))
}

//! Requests about objects and persistent objects. Calls of their methods are ordinary calls. A
//! forked child does not destroy the objects of its parent.

use super::directory::check_one_server;
use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use farcall_rpc_proto::client::Answer;
use farcall_rpc_proto::{
    CallId, FailureKind, KEPT_OBJECTS, OBJECTS, ObjectPage, ObjectRecord, ObjectRequest,
};
use std::sync::Arc;

/// Makes an object of a class.
pub(crate) fn create(connection: &Arc<Connection>, class: &str) -> Result<CallId, Error> {
    check_one_server(connection, "objects")?;
    connection.check(OBJECTS, FailureKind::Internal, "keep objects")?;
    let request = connection.begin(|proto| proto.create(class))?;
    let id = request.id();
    request.answer(|answer| (answer == Answer::Created).then_some(id))
}

/// Destroys an object. A forked child does not, because the object belongs to its parent.
pub(crate) fn delete(connection: &Connection, object: CallId) {
    if connection.is_ours() {
        connection.tell(|proto| proto.delete(object));
    }
}

/// Asks about persistent objects. Returns the number of the request with the answer.
pub(crate) fn objects(
    connection: &Arc<Connection>,
    asked: ObjectRequest,
) -> Result<(CallId, ObjectPage), Error> {
    check_one_server(connection, "persistent objects")?;
    let what = "keep persistent objects";
    connection.check(KEPT_OBJECTS, FailureKind::BadArgument, what)?;
    let request = connection.begin(|proto| proto.objects(asked))?;
    Ok((request.id(), request.answer(answered!(Objects))?))
}

/// Asks about persistent objects, when the answer is a single one.
pub(crate) fn object(
    connection: &Arc<Connection>,
    asked: ObjectRequest,
) -> Result<(CallId, ObjectRecord), Error> {
    let (id, page) = objects(connection, asked)?;
    let record = page.objects.into_iter().next();
    Ok((id, record.ok_or_else(|| connection.unexpected())?))
}

//! Requests of an operator: status, snapshots and drain. The server decides whether the user may
//! drain it. A server that does not know these requests is an error that says so.

use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use farcall_rpc_proto::{AskSnapshot, FailureKind, OPERATION, SNAPSHOTS, client};
use std::sync::Arc;

/// Asks for the status as a JSON object.
pub(crate) fn status(connection: &Arc<Connection>) -> Result<String, Error> {
    check_operation(connection)?;
    connection.ask(client::Connection::status, answered!(StatusText))
}

/// Asks for a snapshot as a JSON object.
pub(crate) fn snapshot(connection: &Arc<Connection>, asked: &AskSnapshot) -> Result<String, Error> {
    connection.check(SNAPSHOTS, FailureKind::NotAllowed, "make snapshots")?;
    connection.ask(|proto| proto.ask_snapshot(asked), answered!(StatusText))
}

/// Makes the server take no more calls and end. Returns how many calls still run or wait.
pub(crate) fn drain(connection: &Arc<Connection>) -> Result<u64, Error> {
    check_operation(connection)?;
    connection.ask(client::Connection::drain, answered!(Draining))
}

fn check_operation(connection: &Connection) -> Result<(), Error> {
    if connection.has(OPERATION) {
        return Ok(());
    }
    let text = "the server is older than these requests; update it";
    Err(Error::failed(FailureKind::NotAllowed, text))
}

//! Requests to the directory of a metaserver. The module checks first whether the peer is a
//! metaserver, so that a wrong address gets an error that names the remedy. `grid` decides what to
//! ask.

use crate::error::Error;
use crate::remote::connection::Connection;
use farcall_directory::message::{Message, Observe};
use farcall_rpc_proto::client::Answer;
use farcall_rpc_proto::{FailureKind, Kind};
use std::sync::Arc;

/// Fails if the peer is a server.
pub(crate) fn check_metaserver(connection: &Connection) -> Result<(), Error> {
    if connection.is_to_metaserver() {
        return Ok(());
    }
    let text = format!(
        "{} is a server, not a metaserver: name one that `farcall meta` runs",
        connection.address()
    );
    Err(Error::failed(FailureKind::NotAllowed, text))
}

/// Fails if the peer is a metaserver.
pub(crate) fn check_one_server(connection: &Connection, what: &str) -> Result<(), Error> {
    if !connection.is_to_metaserver() {
        return Ok(());
    }
    let text = format!(
        "{what} belong to one server, and {} is a metaserver: connect to one of its servers, \
         which `farcall status` lists",
        connection.address()
    );
    Err(Error::failed(FailureKind::NotAllowed, text))
}

/// Asks the directory a question, whose answer is a message of another kind.
pub(crate) fn ask_directory<A: Message>(
    connection: &Arc<Connection>,
    (kind, answered_by): (Kind, Kind),
    message: &impl Message,
) -> Result<A, Error> {
    check_metaserver(connection)?;
    let message = message.to_bytes();
    let request = connection.begin(|proto| proto.ask_directory(kind, &message))?;
    let answer = request.answer(|answer| match answer {
        Answer::Directory(kind, answer) => Some((kind, answer)),
        _ => None,
    });
    match answer? {
        (kind, answer) if kind == answered_by => A::from_bytes(&answer).map_err(|error| {
            let address = connection.address();
            let text = format!("{address}: its answer cannot be read: {error}");
            Error::failed(FailureKind::Internal, text)
        }),
        _ => Err(connection.unexpected()),
    }
}

/// Reports the outcome of a call to the directory.
pub(crate) fn observe(connection: &Connection, observed: &Observe) {
    connection.tell(|proto| proto.observe(&observed.to_bytes()));
}

//! Requests about data with names.

use crate::error::Error;
use crate::remote::connection::{Answer, Connection};
use farcall_rpc_proto::{DataName, FailureKind, NAMES, Name, NamePage, NameRecord};
use std::sync::Arc;

/// Whether the other side knows data by name; the error says that it does not.
pub(crate) fn check_names(connection: &Connection) -> Result<(), Error> {
    if connection.has(NAMES) {
        return Ok(());
    }
    let what = match connection.is_to_metaserver() {
        true => "metaserver",
        false => "server",
    };
    let text = format!("the {what} is too old to know data by name; update it");
    Err(Error::failed(FailureKind::BadArgument, text))
}

/// Gives an array a name.
pub(crate) fn name(connection: &Arc<Connection>, name: &Name) -> Result<NameRecord, Error> {
    check_names(connection)?;
    named(connection, connection.ask(|proto| proto.name(name))?)
}

/// Asks for data by name.
pub(crate) fn ask_name(connection: &Arc<Connection>, name: &DataName) -> Result<NameRecord, Error> {
    check_names(connection)?;
    named(connection, connection.ask(|proto| proto.ask_name(name))?)
}

fn named(connection: &Connection, answer: Answer) -> Result<NameRecord, Error> {
    match answer {
        Answer::Named(record) => Ok(record),
        _ => Err(connection.unexpected()),
    }
}

/// Asks for a page of data with names.
pub(crate) fn names(
    connection: &Arc<Connection>,
    after: Option<&DataName>,
) -> Result<NamePage, Error> {
    check_names(connection)?;
    match connection.ask(|proto| proto.list_names(after))? {
        Answer::Names(page) => Ok(page),
        _ => Err(connection.unexpected()),
    }
}

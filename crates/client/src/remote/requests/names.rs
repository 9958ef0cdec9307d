//! Requests about data with names.

use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use farcall_rpc_proto::{DataName, FailureKind, NAMES, Name, NamePage, NameRecord};
use std::sync::Arc;

/// Whether the other side knows data by name; the error says that it does not.
pub(crate) fn check_names(connection: &Connection) -> Result<(), Error> {
    connection.check(NAMES, FailureKind::BadArgument, "know data by name")
}

/// Gives an array a name.
pub(crate) fn name(connection: &Arc<Connection>, name: &Name) -> Result<NameRecord, Error> {
    check_names(connection)?;
    connection.ask(|proto| proto.name(name), answered!(Named))
}

/// Asks for data by name.
pub(crate) fn ask_name(connection: &Arc<Connection>, name: &DataName) -> Result<NameRecord, Error> {
    check_names(connection)?;
    connection.ask(|proto| proto.ask_name(name), answered!(Named))
}

/// Asks for a page of data with names.
pub(crate) fn names(
    connection: &Arc<Connection>,
    after: Option<&DataName>,
) -> Result<NamePage, Error> {
    check_names(connection)?;
    connection.ask(|proto| proto.list_names(after), answered!(Names))
}

//! Requests about named data. Each first checks that the server supports names.

use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use crate::timeout::Timeout;
use farcall_rpc_proto::{DataName, FailureKind, NAMES, Name, NamePage, NameRecord};
use std::sync::Arc;

/// Fails if the peer has no named data.
pub(crate) fn check_names(connection: &Connection) -> Result<(), Error> {
    connection.check(NAMES, FailureKind::BadArgument, "use named data")
}

/// Gives an array a name.
pub(crate) fn name(connection: &Arc<Connection>, name: &Name) -> Result<NameRecord, Error> {
    check_names(connection)?;
    connection.ask(|proto| proto.name(name), answered!(Named))
}

/// Asks for data by name. `timeout` is that of the call that reads them.
pub(crate) fn ask_name(
    connection: &Arc<Connection>,
    name: &DataName,
    timeout: Timeout,
) -> Result<NameRecord, Error> {
    check_names(connection)?;
    connection.ask_within(|proto| proto.ask_name(name), answered!(Named), timeout)
}

/// Asks for a page of named data.
pub(crate) fn names(
    connection: &Arc<Connection>,
    after: Option<&DataName>,
) -> Result<NamePage, Error> {
    check_names(connection)?;
    connection.ask(|proto| proto.list_names(after), answered!(Names))
}

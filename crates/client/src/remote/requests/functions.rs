//! Requests about the functions of a server, and what a call of one would take.

use super::directory::check_one_server;
use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use farcall_rpc_proto::{
    Call, ESTIMATES, Estimate, FailureKind, FunctionInterface, Listing, REGISTER,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks for a page of the functions served.
pub(crate) fn list(connection: &Arc<Connection>, from: u32) -> Result<Listing, Error> {
    connection.ask(|proto| proto.list(from), answered!(Listing))
}

/// The time there and back.
pub(crate) fn ping(connection: &Arc<Connection>) -> Result<Duration, Error> {
    let start = Instant::now();
    // No server has so many functions: the page is empty.
    list(connection, u32::MAX)?;
    Ok(start.elapsed())
}

/// Asks for number and canonical IDL of a function.
pub(crate) fn describe(
    connection: &Arc<Connection>,
    name: &str,
) -> Result<FunctionInterface, Error> {
    connection.ask(|proto| proto.describe(name), answered!(Interface))
}

/// Has the functions of an interface file served; returns them.
pub(crate) fn register(
    connection: &Arc<Connection>,
    path: &str,
    text: &str,
) -> Result<Listing, Error> {
    check_one_server(connection, "libraries")?;
    connection.check(REGISTER, FailureKind::NotAllowed, "register libraries")?;
    connection.ask(|proto| proto.register(path, text), answered!(Listing))
}

/// What a call would take, as far as the server knows.
pub(crate) fn estimate(connection: &Arc<Connection>, call: &Call) -> Result<Estimate, Error> {
    if !connection.has(ESTIMATES) {
        return Ok(Estimate::default());
    }
    connection.ask(|proto| proto.estimate(call), answered!(Estimated))
}

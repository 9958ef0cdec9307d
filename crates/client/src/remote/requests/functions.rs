//! Requests about the functions of a server, and what a call of one would take.

use super::directory::check_one_server;
use crate::error::Error;
use crate::remote::connection::{Answer, Answered, Connection};
use farcall_rpc_proto::{Call, ESTIMATES, Estimate, FailureKind, Listing, REGISTER};
use std::sync::Arc;

/// Asks for a page of the functions served.
pub(crate) fn list(connection: &Arc<Connection>, from: u32) -> Result<Listing, Error> {
    match connection.ask(|proto| proto.list(from))? {
        Answer::Listing(listing) => Ok(listing),
        _ => Err(connection.unexpected()),
    }
}

/// Asks for number and canonical IDL of a function.
pub(crate) fn describe(connection: &Arc<Connection>, name: &str) -> Result<Answered, Error> {
    match connection.ask(|proto| proto.describe(name))? {
        Answer::Interface(answered) => Ok(answered),
        _ => Err(connection.unexpected()),
    }
}

/// Has the functions of an interface file served; returns them.
pub(crate) fn register(
    connection: &Arc<Connection>,
    path: &str,
    text: &str,
) -> Result<Listing, Error> {
    check_one_server(connection, "libraries")?;
    if !connection.has(REGISTER) {
        let text = "the server is too old to register libraries; update it";
        return Err(Error::failed(FailureKind::NotAllowed, text));
    }
    match connection.ask(|proto| proto.register(path, text))? {
        Answer::Listing(listing) => Ok(listing),
        _ => Err(connection.unexpected()),
    }
}

/// What a call would take, as far as the server knows.
pub(crate) fn estimate(connection: &Arc<Connection>, call: &Call) -> Result<Estimate, Error> {
    if !connection.has(ESTIMATES) {
        return Ok(Estimate::default());
    }
    match connection.ask(|proto| proto.estimate(call))? {
        Answer::Estimated(estimate) => Ok(estimate),
        _ => Err(connection.unexpected()),
    }
}

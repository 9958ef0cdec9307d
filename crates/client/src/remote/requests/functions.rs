//! Requests about functions and their calls: lists, interfaces, registration, estimates, and the
//! status of calls. It converts between messages and values, and keeps nothing. An older server
//! gets no requests that it does not know; the estimate is then empty, and the status says little.

use super::directory::check_one_server;
use crate::call_status::CallStatus;
use crate::error::Error;
use crate::remote::connection::{Connection, answered};
use farcall_rpc_proto::{
    CALL_STATUS, Call, CallName, ESTIMATES, Estimate, FailureKind, FunctionInterface, Listing,
    REGISTER,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks for a page of the server's functions.
pub(crate) fn list(connection: &Arc<Connection>, from: u32) -> Result<Listing, Error> {
    connection.ask(|proto| proto.list(from), answered!(Listing))
}

/// Measures the round-trip time.
pub(crate) fn ping(connection: &Arc<Connection>) -> Result<Duration, Error> {
    let start = Instant::now();
    // No server has so many functions, so the page is empty.
    list(connection, u32::MAX)?;
    Ok(start.elapsed())
}

/// Asks for the number and the interface of a function.
pub(crate) fn describe(
    connection: &Arc<Connection>,
    name: &str,
) -> Result<FunctionInterface, Error> {
    connection.ask(|proto| proto.describe(name), answered!(Interface))
}

/// Makes the server serve the functions of an interface file. Returns their names.
pub(crate) fn register(
    connection: &Arc<Connection>,
    path: &str,
    text: &str,
) -> Result<Listing, Error> {
    check_one_server(connection, "libraries")?;
    connection.check(REGISTER, FailureKind::NotAllowed, "register libraries")?;
    connection.ask(|proto| proto.register(path, text), answered!(Listing))
}

/// Asks for the estimate of a call.
pub(crate) fn estimate(connection: &Arc<Connection>, call: &Call) -> Result<Estimate, Error> {
    if !connection.has(ESTIMATES) {
        return Ok(Estimate::default());
    }
    connection.ask(|proto| proto.estimate(call), answered!(Estimated))
}

/// How long a question for a status waits for its answer. A server that reads nothing from the
/// connection, because a request waits there for memory, answers later.
const STATUS: Duration = Duration::from_secs(5);

/// Asks how a call fares.
pub(crate) fn call_status(
    connection: &Arc<Connection>,
    name: CallName,
) -> Result<CallStatus, Error> {
    if !connection.has(CALL_STATUS) {
        return Ok(CallStatus::untold());
    }
    let request = connection.begin(|proto| proto.ask_call(name))?;
    request.wait_for(STATUS)?;
    Ok(request.answer(answered!(CallStatus))?.into())
}

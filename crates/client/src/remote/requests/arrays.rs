//! Requests about stored arrays: put, get, drop, and arrays that go from server to server.
//! `remote::handle` has the types for programs. A request that the server does not know is not
//! sent: the caller gets an error instead.

use super::directory::check_one_server;
use crate::argument::Argument;
use crate::error::Error;
use crate::remote::connection::{Connection, Request, Transfer, answered};
use crate::timeout::Timeout;
use farcall_rpc_proto::{
    ArrayForm, ArrayPart, FailureKind, HANDLES, HandleId, HandlePage, HandleRecord, LOANS, Pull,
    Put, ROWS, SOURCES, WRITES, Write,
};
use std::sync::Arc;

/// Fails if the server has no stored arrays.
pub(crate) fn check_handles(connection: &Connection) -> Result<(), Error> {
    check_one_server(connection, "stored arrays")?;
    connection.check(HANDLES, FailureKind::BadArgument, "keep arrays")
}

/// Stores an array: its bytes, or zeros. If it is stored for a call, `timeout` is that of the call.
pub(crate) fn put(
    connection: &Arc<Connection>,
    put: &Put,
    bytes: &[u8],
    timeout: Timeout,
) -> Result<HandleRecord, Error> {
    check_handles(connection)?;
    // SAFETY: the borrow outlives the request, which is over or given up when this returns.
    let transfer = unsafe { Transfer::of_one_piece(Argument::In(bytes), 1) };
    let mut request = connection.carry(|proto| proto.put(put), transfer)?;
    request.within(timeout);
    request.for_an_array().answer(answered!(Handle))
}

/// Stores an array of zeros for a call with this time-out.
pub(crate) fn put_zeros(
    connection: &Arc<Connection>,
    form: ArrayForm,
    timeout: Timeout,
) -> Result<HandleRecord, Error> {
    let zeros = Put {
        form,
        data_bytes: 0,
        stays: false,
    };
    put(connection, &zeros, &[], timeout)
}

/// Begins to fill a part of a stored array.
///
/// # Safety
/// As [`Connection::call`].
pub(crate) unsafe fn put_part(
    connection: &Arc<Connection>,
    part: &ArrayPart,
    bytes: &[u8],
) -> Result<Request, Error> {
    // SAFETY: the caller's promise.
    let transfer = unsafe { Transfer::of_one_piece(Argument::In(bytes), 1) };
    connection.carry(|proto| proto.put_part(part), transfer)
}

/// Begins to fetch a part of an array. `unit` is the size of the parts that are swapped between
/// byte orders.
///
/// # Safety
/// As [`Connection::call`].
pub(crate) unsafe fn get_part(
    connection: &Arc<Connection>,
    part: &ArrayPart,
    bytes: &mut [u8],
    unit: usize,
) -> Result<Request, Error> {
    // SAFETY: the caller's promise.
    let transfer = unsafe { Transfer::of_one_piece(Argument::Out(bytes), unit) };
    connection.carry(|proto| proto.get_part(part), transfer)
}

/// Fetches an array. `unit` is the size of the parts that are swapped between byte orders. If it is
/// fetched for a call, `timeout` is that of the call.
pub(crate) fn get(
    connection: &Arc<Connection>,
    handle: HandleId,
    bytes: &mut [u8],
    unit: usize,
    timeout: Timeout,
) -> Result<(), Error> {
    check_handles(connection)?;
    let length = bytes.len() as u64;
    // SAFETY: the borrow outlives the request, which is over or given up when this returns.
    let transfer = unsafe { Transfer::of_one_piece(Argument::Out(bytes), unit) };
    let mut request = connection.carry(|proto| proto.get(handle, length), transfer)?;
    request.within(timeout);
    request.times().map(drop)
}

/// Asks for the status of a stored array.
pub(crate) fn handle(
    connection: &Arc<Connection>,
    handle: HandleId,
) -> Result<HandleRecord, Error> {
    check_handles(connection)?;
    connection.ask(|proto| proto.ask_handle(handle), answered!(Handle))
}

/// Drops a stored array.
pub(crate) fn drop_handle(
    connection: &Arc<Connection>,
    handle: HandleId,
) -> Result<HandleRecord, Error> {
    check_handles(connection)?;
    connection.ask(|proto| proto.drop_handle(handle), answered!(Handle))
}

/// Drops a stored array without waiting for the answer.
pub(crate) fn drop_handle_soon(connection: &Arc<Connection>, handle: HandleId) {
    if connection.is_ours() && check_handles(connection).is_ok() {
        // The answer is discarded with the request.
        drop(connection.begin(|proto| proto.drop_handle(handle)));
    }
}

/// Fails if the server cannot pass arrays to other servers.
fn check_loans(connection: &Connection) -> Result<(), Error> {
    check_one_server(connection, "stored arrays")?;
    let what = "pass arrays to other servers";
    connection.check(LOANS, FailureKind::BadArgument, what)
}

/// Lends an array: asks for a name under which another server may read it once.
pub(crate) fn lend(
    connection: &Arc<Connection>,
    handle: HandleId,
    timeout: Timeout,
) -> Result<HandleId, Error> {
    check_loans(connection)?;
    let lent = connection.ask_within(|proto| proto.lend(handle), answered!(Handle), timeout);
    Ok(lent?.id)
}

/// Begins to make the server read an array from another server or from a source.
pub(crate) fn begin_pull(connection: &Arc<Connection>, pull: &Pull) -> Result<Request, Error> {
    check_loans(connection)?;
    if pull.source.is_some() {
        connection.check(SOURCES, FailureKind::BadArgument, "read addresses")?;
    }
    let options = pull.source.as_ref();
    if options.is_some_and(|options| options.rows.is_some()) {
        connection.check(ROWS, FailureKind::BadArgument, "read parts of addresses")?;
    }
    let request = connection.begin(|proto| proto.pull(pull))?;
    Ok(request.for_an_array())
}

/// Makes the server read an array from another server or from a source.
pub(crate) fn pull(
    connection: &Arc<Connection>,
    pull: &Pull,
    timeout: Timeout,
) -> Result<HandleRecord, Error> {
    let mut request = begin_pull(connection, pull)?;
    request.within(timeout);
    request.answer(answered!(Handle))
}

/// Begins to write an array to an address outside of Farcall.
pub(crate) fn write(connection: &Arc<Connection>, write: &Write) -> Result<Request, Error> {
    check_handles(connection)?;
    connection.check(WRITES, FailureKind::BadArgument, "write to addresses")?;
    connection.begin(|proto| proto.write(write))
}

/// Asks for a page of stored arrays.
pub(crate) fn handles(connection: &Arc<Connection>, after: u64) -> Result<HandlePage, Error> {
    check_handles(connection)?;
    connection.ask(|proto| proto.list_handles(after), answered!(Handles))
}

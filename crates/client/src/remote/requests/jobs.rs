//! Requests about durable calls. Each first checks that the server takes durable calls.

use super::directory::check_one_server;
use crate::argument::Argument;
use crate::error::Error;
use crate::remote::connection::{Connection, Request, Transfer, answered};
use crate::remote::early::{Early, Scratch};
use farcall_idl::Layout;
use farcall_rpc_proto::{
    DurableDescription, DurablePage, FailureKind, JOBS, JobId, OUTCOMES, SubmitRequest,
};
use std::sync::Arc;
use std::time::Instant;

/// Fails if the server takes no durable calls.
pub(crate) fn check_jobs(connection: &Connection) -> Result<(), Error> {
    check_one_server(connection, "durable calls")?;
    if connection.has(JOBS) {
        return Ok(());
    }
    let text = format!(
        "{} takes no durable calls: start it with a state folder (farcall serve --state DIR), or \
         update it",
        connection.address()
    );
    Err(Error::failed(FailureKind::BadArgument, text))
}

/// Submits a durable call. Returns its job id, and its results if they come without being asked
/// for again.
///
/// # Safety
/// As [`Connection::call`].
pub(crate) unsafe fn submit(
    connection: &Arc<Connection>,
    submission: &SubmitRequest,
    arguments: &mut [Argument<'_>],
    layout: Arc<Layout>,
) -> Result<(JobId, Option<Early>), Error> {
    check_jobs(connection)?;
    let mut scratch = match connection.has(OUTCOMES) {
        true => Scratch::of(&layout, arguments.len()),
        false => None,
    };
    let results = scratch.as_mut().map(|scratch| scratch.transfer(&layout));
    // SAFETY: the caller's promise.
    let transfer = unsafe { Transfer::submitting(arguments, layout) };
    let start = Instant::now();
    let (request, fetch) = connection.submit(submission, transfer, results)?;
    let early = fetch.zip(scratch);
    let early = early.map(|(request, scratch)| Early { request, scratch });
    let id = request.after_a_disk().answer(answered!(Submitted))?;
    connection.records.took(start.elapsed());
    Ok((id, early))
}

/// Begins to fetch the results of a durable call.
///
/// # Safety
/// As [`Connection::call`].
pub(crate) unsafe fn fetch(
    connection: &Arc<Connection>,
    job: JobId,
    arguments: &mut [Argument<'_>],
    layout: Arc<Layout>,
) -> Result<Request, Error> {
    check_jobs(connection)?;
    // SAFETY: the caller's promise.
    let transfer = unsafe { Transfer::fetching(arguments, layout) };
    let bytes = transfer.result_bytes();
    connection.carry(|proto| proto.fetch(job, bytes), transfer)
}

/// Asks about a durable call.
pub(crate) fn job(connection: &Arc<Connection>, job: JobId) -> Result<DurableDescription, Error> {
    check_jobs(connection)?;
    let told = connection.ask(|proto| proto.ask_job(job), answered!(Job))?;
    Ok(*told)
}

/// Cancels a durable call. With `forget`, the server forgets it.
pub(crate) fn cancel_job(
    connection: &Arc<Connection>,
    job: JobId,
    forget: bool,
) -> Result<DurableDescription, Error> {
    check_jobs(connection)?;
    let told = connection.ask(|proto| proto.cancel_job(job, forget), answered!(Job))?;
    Ok(*told)
}

/// Asks for a page of durable calls.
pub(crate) fn jobs(connection: &Arc<Connection>, after: u64) -> Result<DurablePage, Error> {
    check_jobs(connection)?;
    connection.ask(|proto| proto.list_jobs(after), answered!(Jobs))
}

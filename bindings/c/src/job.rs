//! Submitted calls.

use crate::argument::{self, Use};
use crate::call::{list, unchecked};
use crate::connect::Server;
use crate::error::{Problem, guard, status};
use crate::function::{Function, share};
use crate::texts::Texts;
use crate::{Status, Value, text};
use farcall_client::{DurableState, JobId};
use std::ffi::{c_char, c_void};

/// Bytes of the id of a submitted call as text, with the NUL at its end.
pub const FARCALL_JOB_ID_BYTES: usize = 33;

/// Where a submitted call is. More may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)]
pub enum State {
    /// The server could not be asked, or has no such call.
    FarcallJobUnknown = 0,
    /// It waits to run.
    FarcallJobQueued = 1,
    /// The library computes.
    FarcallJobRunning = 2,
    /// Its results can be fetched.
    FarcallJobDone = 3,
    /// It failed; `farcall_fetch` says why.
    FarcallJobFailed = 4,
    /// It was cancelled.
    FarcallJobCancelled = 5,
}

/// Submits a call: once this returns `FARCALL_OK`, the server runs it whatever happens to this
/// program or to the server, and keeps what it comes to. Arguments are as for
/// `farcall_call_array`; INOUT arrays are only read, OUT arrays may be NULL. The id of the call is
/// written to `id`, with a NUL at its end.
///
/// # Safety
/// As for `farcall_call_array`; `id` points to `FARCALL_JOB_ID_BYTES` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_submit_array(
    function: *const Function,
    id: *mut c_char,
    arguments: *const *mut c_void,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let given = unchecked(arguments, count)?;
        submit(function, id, &given)
    })
}

/// The same with arguments as for `farcall_call_values`.
///
/// # Safety
/// As for `farcall_submit_array`; `values` points to `count` arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_submit_values(
    function: *const Function,
    id: *mut c_char,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let given = list(values, count)?;
        submit(function, id, given)
    })
}

/// Waits for the end of a submitted call and fills OUT and INOUT arrays with its results.
/// Arguments are those of the call, with the same scalars; IN arrays may be NULL. What the call has
/// failed with is what this fails with. The server keeps the results until they expire.
///
/// # Safety
/// As for `farcall_call_array`; `id` is a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_fetch_array(
    function: *const Function,
    id: *const c_char,
    arguments: *const *mut c_void,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let given = unchecked(arguments, count)?;
        fetch(function, id, &given)
    })
}

/// The same with arguments as for `farcall_call_values`.
///
/// # Safety
/// As for `farcall_fetch_array`; `values` points to `count` arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_fetch_values(
    function: *const Function,
    id: *const c_char,
    values: *const Value,
    count: usize,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let given = list(values, count)?;
        fetch(function, id, given)
    })
}

/// Where a submitted call is, asked of the server; `FARCALL_JOB_UNKNOWN` where that fails.
///
/// # Safety
/// `server` is from `farcall_connect`, `id` a string ended by NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_job_state(server: *mut Server, id: *const c_char) -> State {
    guard(State::FarcallJobUnknown, || {
        // SAFETY: the caller's promise.
        let job = unsafe { job(server, id) }?;
        Ok(match job.status()?.state {
            DurableState::Queued => State::FarcallJobQueued,
            DurableState::Running => State::FarcallJobRunning,
            DurableState::Done => State::FarcallJobDone,
            DurableState::Failed => State::FarcallJobFailed,
            DurableState::Cancelled => State::FarcallJobCancelled,
        })
    })
}

/// Ends a submitted call that has not ended; a library that runs is stopped. What it has come to
/// before stays.
///
/// # Safety
/// As for `farcall_job_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_cancel_job(server: *mut Server, id: *const c_char) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { job(server, id) }?.cancel()?;
        Ok(Status::FarcallOk)
    })
}

/// The same, and the server keeps nothing of the call.
///
/// # Safety
/// As for `farcall_job_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_forget_job(server: *mut Server, id: *const c_char) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { job(server, id) }?.forget()?;
        Ok(Status::FarcallOk)
    })
}

/// # Safety
/// As for `farcall_submit_values`.
unsafe fn submit(
    function: *const Function,
    id: *mut c_char,
    given: &[Value],
) -> Result<Status, Problem> {
    // SAFETY: the caller's promise.
    let function = unsafe { share(function) }?;
    if id.is_null() {
        return Err(Problem::null("id"));
    }
    let mut texts = Texts::default();
    // SAFETY: the caller's promise; the texts outlive the submission.
    let read = unsafe { argument::read(&function, given, Use::Submit, &mut texts) };
    let (laid_out, mut arguments) = read?;
    let client = function.client();
    let job = client.submit_laid_out(laid_out, &mut arguments, None)?;
    let text = format!("{}\0", job.id());
    assert_eq!(text.len(), FARCALL_JOB_ID_BYTES);
    // SAFETY: the caller has so much room.
    unsafe { text.as_ptr().copy_to_nonoverlapping(id.cast(), text.len()) };
    Ok(Status::FarcallOk)
}

/// # Safety
/// As for `farcall_fetch_values`.
unsafe fn fetch(
    function: *const Function,
    id: *const c_char,
    given: &[Value],
) -> Result<Status, Problem> {
    // SAFETY: the caller's promise.
    let function = unsafe { share(function) }?;
    // SAFETY: the caller's promise.
    let id = read_id(unsafe { text(id, "id") }?)?;
    let mut texts = Texts::default();
    // SAFETY: the caller's promise; the texts outlive the request.
    let read = unsafe { argument::read(&function, given, Use::Fetch, &mut texts) };
    let (laid_out, mut arguments) = read?;
    let client = function.client();
    let submitted = client.server().job(id).describe()?;
    let name = client.qualified_name();
    if submitted.interface() != client.interface() {
        let called = &submitted.status().function;
        return Err(Problem::argument(format!(
            "{id} is not a call of {name}, but of {called}"
        )));
    }
    if submitted.scalars() != laid_out.scalars() {
        let text = format!("{name}: the scalars are not those with which {id} was submitted");
        return Err(Problem::argument(text));
    }
    let outcome = submitted.fetch(&mut arguments)?;
    texts.deliver();
    function.keep(&outcome);
    Ok(Status::FarcallOk)
}

fn read_id(id: &str) -> Result<JobId, Problem> {
    id.parse()
        .map_err(|error| Problem::argument(format!("`{id}`: {error}")))
}

/// # Safety
/// As for `farcall_job_state`.
unsafe fn job(
    server: *mut Server,
    id: *const c_char,
) -> Result<farcall_client::DurableCall, Problem> {
    // SAFETY: the caller's promise.
    let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
    // SAFETY: the caller's promise.
    let id = unsafe { text(id, "id") }?;
    Ok(server.job(read_id(id)?))
}

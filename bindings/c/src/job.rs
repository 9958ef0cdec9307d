//! Durable calls: submit, fetch, state, cancel and drop, by job id. Nothing here outlives a call,
//! so no object has to be freed.

use crate::argument::{self, Use};
use crate::call::{list, unchecked};
use crate::connect::Server;
use crate::error::{Problem, guard, status};
use crate::function::{Function, share};
use crate::texts::Texts;
use crate::{Status, Value, text};
use farcall_client::{DurableState, JobId, Scalar};
use farcall_idl::{Param, Type, Values};
use std::ffi::{c_char, c_void};

/// Bytes of a job id as text, with the NUL at its end.
pub const FARCALL_JOB_ID_BYTES: usize = 33;

/// The state of a durable call. Later versions may have more values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)]
pub enum State {
    /// The server did not answer, or has no such call.
    FarcallJobUnknown = 0,
    /// The call waits.
    FarcallJobQueued = 1,
    /// The call runs.
    FarcallJobRunning = 2,
    /// The call has ended; fetch its results.
    FarcallJobDone = 3,
    /// The call has failed; `farcall_fetch` gives the error.
    FarcallJobFailed = 4,
    /// The call was cancelled.
    FarcallJobCancelled = 5,
}

/// Submits a durable call, which survives the end of this program and a restart of the server. When
/// this returns `FARCALL_OK`, the server has recorded the call. Arguments are as for
/// `farcall_call_array`; the call only reads INOUT arrays, and OUT arrays may be NULL. `id` gets
/// the job id, with a NUL at its end.
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

/// As `farcall_submit_array`, with arguments as for `farcall_call_values`.
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
        let given = list(values, count, "the array of values")?;
        submit(function, id, given)
    })
}

/// Waits for the end of a durable call, and fills OUT and INOUT arrays with its results. Arguments
/// are those of the call, with the same scalars; IN arrays may be NULL. If the call has failed,
/// this fails with its error. The server keeps the results until their retention ends.
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

/// As `farcall_fetch_array`, with arguments as for `farcall_call_values`.
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
        let given = list(values, count, "the array of values")?;
        fetch(function, id, given)
    })
}

/// The state of a durable call, which this asks the server; `FARCALL_JOB_UNKNOWN` on failure.
///
/// # Safety
/// `server` is from `farcall_connect`, `id` is a string ended by NUL.
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

/// Cancels a durable call; the server stops the library. A call that has ended keeps its results.
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

/// Cancels a durable call, and drops it with its results at the server. Since `FARCALL_1.5`.
///
/// # Safety
/// As for `farcall_job_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_drop_job(server: *mut Server, id: *const c_char) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe { job(server, id) }?.forget()?;
        Ok(Status::FarcallOk)
    })
}

/// The earlier name of `farcall_drop_job`.
///
/// # Safety
/// As for `farcall_job_state`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_forget_job(server: *mut Server, id: *const c_char) -> Status {
    // SAFETY: the caller's promise.
    unsafe { farcall_drop_job(server, id) }
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
    // SAFETY: the caller's promise; the texts outlive this function.
    let read = unsafe { argument::read(&function, given, Use::Submit, &mut texts) };
    let (laid_out, mut arguments) = read?;
    let client = function.client();
    let job = client.submit_laid_out(laid_out, &mut arguments, None)?;
    let text = format!("{}\0", job.id());
    assert_eq!(text.len(), FARCALL_JOB_ID_BYTES);
    // SAFETY: the caller has memory for a job id.
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
    let client = function.client();
    let submitted = client.server().job(id).describe()?;
    let name = client.qualified_name();
    if submitted.interface() != client.interface() {
        let called = submitted.function();
        return Err(Problem::argument(format!(
            "{id} is not a call of {name}, but of {called}"
        )));
    }
    let mut texts = Texts::default();
    let known = Some(Values {
        scalars: submitted.scalars(),
        elements: submitted.elements(),
    });
    // SAFETY: the caller's promise; the texts outlive the request.
    let read = unsafe { argument::read_knowing(known, &function, given, Use::Fetch, &mut texts) };
    let (laid_out, mut arguments) = read?;
    let params = &client.interface().params;
    if !are_same(params, submitted.scalars(), laid_out.scalars()) {
        let text = format!("{name}: the scalars differ from those of the call {id}");
        return Err(Problem::argument(text));
    }
    let outcome = submitted.fetch(&mut arguments)?;
    texts.deliver();
    function.keep(&outcome);
    Ok(Status::FarcallOk)
}

/// Whether the function gets the same values of both. Another language may have submitted one of
/// them: there a character can be a text, and a `float` can have more digits.
fn are_same(params: &[Param], one: &[Option<Scalar>], other: &[Option<Scalar>]) -> bool {
    let mut pairs = params.iter().zip(one.iter().zip(other));
    one.len() == other.len()
        && pairs.all(|(param, pair)| match pair {
            (Some(one), Some(other)) => is_same(param.ty, one, other),
            (one, other) => one.is_none() && other.is_none(),
        })
}

fn is_same(ty: Type, one: &Scalar, other: &Scalar) -> bool {
    let is_short = ty.precision() == Some(f32::MANTISSA_DIGITS);
    let held = |value: f64| match is_short {
        true => f64::from(value as f32),
        false => value,
    };
    let are_equal = |one: f64, other: f64| {
        let (one, other) = (held(one), held(other));
        one == other || (one.is_nan() && other.is_nan())
    };
    let code = |scalar: &Scalar| scalar.as_integer().map(|code| code as u8);
    match (one, other) {
        (Scalar::Float(one), Scalar::Float(other)) => are_equal(*one, *other),
        (
            Scalar::Complex { re, im },
            Scalar::Complex {
                re: real,
                im: imaginary,
            },
        ) => are_equal(*re, *real) && are_equal(*im, *imaginary),
        _ if ty == Type::Char => code(one) == code(other),
        _ => one == other,
    }
}

fn read_id(id: &str) -> Result<JobId, Problem> {
    id.parse()
        .map_err(|error| Problem::argument(format!("`{id}`: {error}")))
}

/// # Safety
/// As for `farcall_job_state`.
pub(crate) unsafe fn job(
    server: *mut Server,
    id: *const c_char,
) -> Result<farcall_client::DurableCall, Problem> {
    // SAFETY: the caller's promise.
    let server = unsafe { server.as_ref() }.ok_or(Problem::null("server"))?;
    // SAFETY: the caller's promise.
    let id = unsafe { text(id, "id") }?;
    Ok(server.job(read_id(id)?))
}

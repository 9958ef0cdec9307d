//! Asynchronous calls by session number: probe, wait, cancel, times. `sessions` has the table
//! behind it.

use crate::call::list;
use crate::connect::Server;
use crate::error::{Problem, guard, status};
use crate::function::Times;
use crate::sessions::{Any, End, Sessions};
use crate::{SessionId, Status};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The sessions of all servers that `farcall_connect` has connected to.
pub(crate) static SESSIONS: Sessions = Sessions::new(i64::MAX as u64);

thread_local! {
    /// Sessions that failed in the last wait of this thread.
    static FAILED: RefCell<VecDeque<u64>> = const { RefCell::new(VecDeque::new()) };
}

/// The status of a call: `FARCALL_RUNNING` if it has not ended, else its result. It also moves
/// arguments and results as far as it can without waiting, and runs a pending callback, so that a
/// program can complete a call with probes alone.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_probe(session: SessionId) -> Status {
    status(|| match SESSIONS.probe(session)? {
        Some(end) => end.map(|_| Status::FarcallOk),
        None => Ok(Status::FarcallRunning),
    })
}

/// Waits for the end of a call, at most `timeout` seconds; a negative number means no limit.
/// Returns `FARCALL_RUNNING` if the time ends first, else the result of the call. A program may ask
/// again: the library remembers the last 65536 sessions that a wait has reported.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_wait(session: SessionId, timeout: f64) -> Status {
    status(|| {
        let end = SESSIONS.wait(session, deadline(timeout)?)?;
        Ok(report(end.map(|end| (session, end)), None)?.unwrap_or(Status::FarcallRunning))
    })
}

/// Waits until one of the calls has ended, stores its session in `which`, and returns its result.
/// If the time ends first, returns `FARCALL_RUNNING` and stores 0.
///
/// # Safety
/// `sessions` points to `count` sessions, `which` to a session, or it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_wait_or(
    sessions: *const SessionId,
    count: usize,
    timeout: f64,
    which: *mut SessionId,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let which = clear(which.as_mut());
        let sessions = list(sessions, count, "the array of sessions")?;
        let over = SESSIONS.wait_or(sessions, deadline(timeout)?)?;
        Ok(report(over, which)?.unwrap_or(Status::FarcallRunning))
    })
}

/// Waits until all of the calls have ended. Returns `FARCALL_OK` if none has failed, else the
/// result of the first that has failed; `farcall_next_failed` gives all of them. Returns
/// `FARCALL_RUNNING` if the time ends first.
///
/// # Safety
/// `sessions` points to `count` sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_wait_and(
    sessions: *const SessionId,
    count: usize,
    timeout: f64,
) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let sessions = unsafe { list(sessions, count, "the array of sessions") }?;
        report_all(SESSIONS.wait_and(sessions, deadline(timeout)?)?)
    })
}

/// Waits until one of the server's calls has ended that no wait has reported yet. Otherwise as
/// `farcall_wait_or`. If no such call is left, returns `FARCALL_OK` and stores 0. NULL means all
/// servers.
///
/// # Safety
/// `server` is from `farcall_connect` or is NULL; `which` points to a session or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_wait_any(
    server: *const Server,
    timeout: f64,
    which: *mut SessionId,
) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe {
        let which = clear(which.as_mut());
        let tag = server.as_ref().map(Server::tag);
        match SESSIONS.wait_any(tag, deadline(timeout)?)? {
            Any::Over(id, end) => {
                Ok(report(Some((id, end)), which)?.unwrap_or(Status::FarcallRunning))
            }
            Any::Running => {
                remember_failed(None);
                Ok(Status::FarcallRunning)
            }
            Any::NoneLeft => {
                remember_failed(None);
                Ok(Status::FarcallOk)
            }
        }
    })
}

/// Waits until all of the server's calls have ended that no wait has reported yet. Otherwise as
/// `farcall_wait_and`. If the time ends first, `farcall_next_failed` gives the calls that have
/// failed until then, and the next wait does not report them again. NULL means all servers.
///
/// # Safety
/// `server` is from `farcall_connect` or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_wait_all(server: *const Server, timeout: f64) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        let tag = unsafe { server.as_ref() }.map(Server::tag);
        report_all(SESSIONS.wait_all(tag, deadline(timeout)?)?)
    })
}

/// The next session that failed in the last wait of this thread; 0 if there are no more.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_next_failed() -> SessionId {
    next_failed().unwrap_or(0)
}

/// Gives a call up. A call that has ended keeps its result. When this returns, nothing uses the
/// arrays of the call, except those in memory of `farcall_allocate`, and the client has told the
/// server to end it.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_cancel(session: SessionId) -> Status {
    status(|| SESSIONS.cancel(session).map(|()| Status::FarcallOk))
}

/// Gives up all calls to a server; NULL means all servers.
///
/// # Safety
/// `server` is from `farcall_connect` or is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_cancel_all(server: *const Server) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        SESSIONS.cancel_all(unsafe { server.as_ref() }.map(Server::tag));
        Ok(Status::FarcallOk)
    })
}

/// The times of a call; zeros if it has failed, has not ended, or is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_session_times(session: SessionId) -> Times {
    guard(Times::default(), || {
        let end = SESSIONS.end(session)?;
        Ok(end.and_then(Result::ok).unwrap_or_default())
    })
}

pub(crate) fn next_failed() -> Option<u64> {
    let failed = FAILED.try_with(|failed| failed.borrow_mut().pop_front());
    failed.ok().flatten()
}

pub(crate) fn remember_failed(ids: impl IntoIterator<Item = u64>) {
    // A destructor of the thread may come after that of the list.
    let _ = FAILED.try_with(|failed| failed.replace(ids.into_iter().collect()));
}

fn clear(which: Option<&mut u64>) -> Option<&mut u64> {
    which.map(|which| {
        *which = 0;
        which
    })
}

/// Reports the result of a session; `None` if none has ended.
fn report(over: Option<(u64, End)>, which: Option<&mut u64>) -> Result<Option<Status>, Problem> {
    let failed = |over: &(u64, End)| over.1.is_err().then_some(over.0);
    remember_failed(over.as_ref().and_then(failed));
    let Some((id, end)) = over else {
        return Ok(None);
    };
    if let Some(which) = which {
        *which = id;
    }
    end.map(|_| Some(Status::FarcallOk))
}

fn report_all((failed, all): (Vec<(u64, Problem)>, bool)) -> Result<Status, Problem> {
    remember_failed(failed.iter().map(|(id, _)| *id));
    match failed.into_iter().next() {
        _ if !all => Ok(Status::FarcallRunning),
        Some((_, problem)) => Err(problem),
        None => Ok(Status::FarcallOk),
    }
}

/// The time `timeout` seconds from now.
fn deadline(timeout: f64) -> Result<Option<Instant>, Problem> {
    if timeout.is_nan() {
        return Err(Problem::argument("the time-out is not a number".to_owned()));
    }
    if timeout < 0.0 {
        return Ok(None);
    }
    let time = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
    Ok(Instant::now().checked_add(time))
}

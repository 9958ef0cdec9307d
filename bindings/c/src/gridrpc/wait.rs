//! Control of asynchronous calls: GFD-R-P.052, 3.4 and 3.5. `sessions` waits; this module gives its
//! results the codes of the standard. A session that has completed keeps its result when it is
//! cancelled.

use super::{
    Code, Fault, INVALID_SESSION_ID, NO_ERROR, NONE_COMPLETED, NOT_COMPLETED, SESSION_FAILED,
    SESSIONS, VOID, failed, grid, run,
};
use crate::call::list;
use crate::error::Problem;
use crate::session::remember_failed;
use crate::sessions::{Any, End, Found};
use std::ffi::c_int;

/// The number of a possible session.
pub(super) fn id(session: c_int) -> Result<u64, Fault> {
    match u64::try_from(session) {
        Ok(id) if id > 0 => Ok(id),
        _ => {
            let text = format!("there is no session {session}");
            Err(Fault::new(INVALID_SESSION_ID, &text))
        }
    }
}

/// # Safety
/// `sessions` points to `length` sessions.
unsafe fn ids(sessions: *const c_int, length: usize) -> Result<Vec<u64>, Fault> {
    // SAFETY: the caller's promise.
    let sessions = unsafe { list(sessions, length, "the array of sessions") }?;
    sessions.iter().map(|&session| id(session)).collect()
}

/// Whether the session has completed, with or without success.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_probe(session: c_int) -> Code {
    run(|| {
        grid()?;
        let end = SESSIONS.probe(id(session)?)?;
        Ok(end.map_or(NOT_COMPLETED, |_| NO_ERROR))
    })
}

/// Whether one of the sessions has completed, and which one.
///
/// # Safety
/// `sessions` points to `length` sessions, `which` to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_probe_or(
    sessions: *const c_int,
    length: usize,
    which: *mut c_int,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        grid()?;
        let which = which.as_mut().ok_or(Problem::null("idPtr"))?;
        *which = VOID;
        let ids = ids(sessions, length)?;
        for &id in &ids {
            let over = match SESSIONS.find(id) {
                Some(Found::Open(session)) => session.probe().is_some(),
                Some(Found::Past(_)) => true,
                None => return Err(Problem::unknown_session(id).into()),
            };
            if over && *which == VOID {
                *which = id as c_int;
            }
        }
        Ok(if *which == VOID {
            NONE_COMPLETED
        } else {
            NO_ERROR
        })
    })
}

/// Cancels the session; one that has completed keeps its result.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_cancel(session: c_int) -> Code {
    run(|| {
        grid()?;
        SESSIONS.cancel(id(session)?)?;
        Ok(NO_ERROR)
    })
}

/// Cancels all sessions that have not completed.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_cancel_all() -> Code {
    run(|| {
        grid()?;
        SESSIONS.cancel_all(None);
        Ok(NO_ERROR)
    })
}

/// Waits for the session.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_wait(session: c_int) -> Code {
    run(|| {
        grid()?;
        let id = id(session)?;
        match SESSIONS.wait(id, None)? {
            Some(end) => Ok(report(id, end)),
            None => Ok(NOT_COMPLETED),
        }
    })
}

/// Waits for all of the sessions.
///
/// # Safety
/// `sessions` points to `length` sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_and(sessions: *const c_int, length: usize) -> Code {
    run(|| {
        grid()?;
        // SAFETY: the caller's promise.
        let ids = unsafe { ids(sessions, length) }?;
        Ok(report_all(SESSIONS.wait_and(&ids, None)?.0))
    })
}

/// Waits for one of the sessions, and returns it.
///
/// # Safety
/// `sessions` points to `length` sessions, `which` to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_or(
    sessions: *const c_int,
    length: usize,
    which: *mut c_int,
) -> Code {
    // SAFETY: the caller's promise.
    run(|| unsafe {
        grid()?;
        let which = which.as_mut().ok_or(Problem::null("idPtr"))?;
        *which = VOID;
        let ids = ids(sessions, length)?;
        if ids.is_empty() {
            return Err(Fault::new(INVALID_SESSION_ID, "no session to wait for"));
        }
        match SESSIONS.wait_or(&ids, None)? {
            Some((id, end)) => {
                *which = id as c_int;
                Ok(report(id, end))
            }
            None => Ok(NONE_COMPLETED),
        }
    })
}

/// Waits for all sessions that no wait has reported yet.
#[unsafe(no_mangle)]
pub extern "C" fn grpc_wait_all() -> Code {
    run(|| {
        grid()?;
        Ok(report_all(SESSIONS.wait_all(None, None)?.0))
    })
}

/// Waits for one of the sessions that no wait has reported yet, and returns it;
/// `GRPC_SESSIONID_VOID` if none is left.
///
/// # Safety
/// `which` points to a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn grpc_wait_any(which: *mut c_int) -> Code {
    run(|| {
        grid()?;
        // SAFETY: the caller's promise.
        let which = unsafe { which.as_mut() }.ok_or(Problem::null("idPtr"))?;
        *which = VOID;
        match SESSIONS.wait_any(None, None)? {
            Any::Over(id, end) => {
                *which = id as c_int;
                Ok(report(id, end))
            }
            Any::Running => Ok(NONE_COMPLETED),
            Any::NoneLeft => {
                remember_failed(None);
                Ok(NO_ERROR)
            }
        }
    })
}

fn report(id: u64, end: End) -> Code {
    match end {
        Ok(_) => {
            remember_failed(None);
            NO_ERROR
        }
        Err(problem) => report_all(vec![(id, problem)]),
    }
}

/// Fails if one of the sessions has failed; `grpc_get_failed_sessionid` returns each of them.
fn report_all(ended: Vec<(u64, Problem)>) -> Code {
    remember_failed(ended.iter().map(|(id, _)| *id));
    match ended.into_iter().next() {
        Some((_, problem)) => failed(Fault(SESSION_FAILED, problem)),
        None => NO_ERROR,
    }
}

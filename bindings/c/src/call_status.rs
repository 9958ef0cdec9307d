//! How calls under way fare, for C: of an asynchronous call by its session, and of a durable call
//! by its id. The server tells it; nothing is computed here.

use crate::SessionId;
use crate::Status;
use crate::connect::Server;
use crate::error::{Problem, status};
use crate::job::job;
use crate::session::SESSIONS;
use farcall_client::{CallPhase, Expected};
use std::ffi::c_char;

/// How far a call has come.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::enum_variant_names)]
pub enum Phase {
    /// Its arguments are on their way, or wait for memory.
    FarcallArriving = 1,
    /// It has its arguments and waits to compute.
    FarcallWaiting = 2,
    /// The library computes.
    FarcallComputing = 3,
    /// Its results are on their way.
    FarcallReturning = 4,
    /// It has ended.
    FarcallOver = 5,
}

/// How a call fares. Times are in seconds from now, and negative if they are not known: one of ten
/// is earlier than `low`, one of ten later than `high`, and half are earlier than `likely`. Since
/// `FARCALL_1.6`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallStatus {
    /// `sizeof(farcall_call_status)`, which the caller sets: later versions may have more members.
    pub size: usize,
    /// How far it has come.
    pub phase: Phase,
    /// What it does or waits for, in words, with a NUL at the end.
    pub reason: [c_char; 256],
    /// When it will start to compute.
    pub starts_low: f64,
    /// The same.
    pub starts_likely: f64,
    /// The same.
    pub starts_high: f64,
    /// When it will have computed.
    pub ends_low: f64,
    /// The same.
    pub ends_likely: f64,
    /// The same.
    pub ends_high: f64,
}

/// Stores how an asynchronous call fares, which this asks the server: how far it has come, why it
/// waits, and when it will start and end. Since `FARCALL_1.6`.
///
/// # Safety
/// `into` points to a `farcall_call_status` whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_session_status(
    session: SessionId,
    into: *mut CallStatus,
) -> Status {
    status(|| {
        let told = SESSIONS.status(session)?;
        // SAFETY: the caller's promise.
        unsafe { store(&told, into) }
    })
}

/// Stores how a durable call fares, which this asks the server. Otherwise as
/// `farcall_session_status`. Since `FARCALL_1.6`.
///
/// # Safety
/// As for `farcall_job_state` and `farcall_session_status`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_job_status(
    server: *mut Server,
    id: *const c_char,
    into: *mut CallStatus,
) -> Status {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let told = job(server, id)?.call_status()?;
            store(&told, into)
        }
    })
}

/// # Safety
/// As for [`farcall_session_status`].
unsafe fn store(
    told: &farcall_client::CallStatus,
    into: *mut CallStatus,
) -> Result<Status, Problem> {
    // SAFETY: the caller's promise.
    let into = unsafe { into.as_mut() };
    let Some(into) = into.filter(|into| into.size == size_of::<CallStatus>()) else {
        let text = "`size` of the farcall_call_status must be sizeof(farcall_call_status)";
        return Err(Problem::new(Status::FarcallArgument, text.to_owned()));
    };
    into.phase = match told.phase {
        CallPhase::Arriving => Phase::FarcallArriving,
        CallPhase::Waiting => Phase::FarcallWaiting,
        CallPhase::Running => Phase::FarcallComputing,
        CallPhase::Returning => Phase::FarcallReturning,
        CallPhase::Over => Phase::FarcallOver,
    };
    into.reason.fill(0);
    let end = told.reason.floor_char_boundary(into.reason.len() - 1);
    for (to, byte) in into.reason.iter_mut().zip(told.reason[..end].bytes()) {
        *to = byte as c_char;
    }
    let times = |expected: Option<Expected>| match expected {
        Some(known) => [known.low, known.likely, known.high].map(|time| time.as_secs_f64()),
        None => [-1.0; 3],
    };
    [into.starts_low, into.starts_likely, into.starts_high] = times(told.starts);
    [into.ends_low, into.ends_likely, into.ends_high] = times(told.ends);
    Ok(Status::FarcallOk)
}

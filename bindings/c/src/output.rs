//! What a called function prints, in this program.

use crate::Status;
use crate::error::{Problem, status};
use crate::function::{Function, share};
use farcall_client::Output;
use std::ffi::{c_char, c_void};
use std::io::Write;
use std::sync::PoisonError;

/// Takes a line that a called function has printed: `bytes` bytes, with the end of the line, not
/// ended by NUL. It runs on the thread that waits for the call.
pub type OutputWriter =
    Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, bytes: usize)>;

/// From now on, what the library prints in calls of the function is given to `writer`, line by
/// line, with `user`; to this program's standard output where `writer` is NULL. It is in
/// `FARCALL_1.1`.
///
/// # Safety
/// `function` is from `farcall_function_of`; `writer` may be called from any thread that waits for
/// a call of the function, until `farcall_keep_output` and the end of all calls begun before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_forward_output(
    function: *mut Function,
    writer: OutputWriter,
    user: *mut c_void,
) -> Status {
    let user = user.expose_provenance();
    let output = Output::new(move |line| {
        let Some(writer) = writer else {
            return Ok(std::io::stdout().write_all(line.as_bytes())?);
        };
        let user = std::ptr::with_exposed_provenance_mut(user);
        // SAFETY: the caller's promise.
        unsafe { writer(user, line.as_ptr().cast(), line.len()) };
        Ok(())
    });
    // SAFETY: the caller's promise.
    status(|| unsafe { set(function, Some(output)) })
}

/// From now on, what the library prints in calls of the function goes to the server's log, as it
/// does at first. It is in `FARCALL_1.1`.
///
/// # Safety
/// `function` is from `farcall_function_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_keep_output(function: *mut Function) -> Status {
    // SAFETY: the caller's promise.
    status(|| unsafe { set(function, None) })
}

/// # Safety
/// `function` is NULL or from `farcall_function_of`.
unsafe fn set(function: *mut Function, output: Option<Output>) -> Result<Status, Problem> {
    // SAFETY: the caller's promise.
    let function = unsafe { share(function) }?;
    *function
        .output
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = output;
    Ok(Status::FarcallOk)
}

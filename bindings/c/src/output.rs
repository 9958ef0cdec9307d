//! The printed output of called functions: forwarded to a function of the caller, or left in the
//! server's log. The client cuts it into lines. The writer runs on the thread that waits for the
//! call.

use crate::Status;
use crate::error::{Problem, status};
use crate::function::{Function, share};
use crate::variadic::farcall_internal_print;
use farcall_client::Output;
use std::ffi::{c_char, c_void};
use std::io;
use std::sync::PoisonError;

/// A function of the program that gets a line which a called function has printed: `bytes` bytes
/// with the end of the line, without a NUL. It runs on the thread that waits for the call.
pub type OutputWriter =
    Option<unsafe extern "C" fn(user: *mut c_void, text: *const c_char, bytes: usize)>;

/// From now on, calls of the function pass what the library prints to `writer`, line by line, with
/// `user`. If `writer` is NULL, it goes to the standard output of this program. Since
/// `FARCALL_1.1`.
///
/// # Safety
/// `function` is from `farcall_function_of`. Any thread that waits for a call of the function may
/// call `writer`, until `farcall_keep_output` and the end of all calls that were started before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_forward_output(
    function: *mut Function,
    writer: OutputWriter,
    user: *mut c_void,
) -> Status {
    let user = user.expose_provenance();
    let output = Output::new(move |line| {
        let Some(writer) = writer else {
            // SAFETY: the line has that many bytes.
            let written = unsafe { farcall_internal_print(line.as_ptr().cast(), line.len()) };
            return match written {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error().into()),
            };
        };
        let user = std::ptr::with_exposed_provenance_mut(user);
        // SAFETY: the caller's promise.
        unsafe { writer(user, line.as_ptr().cast(), line.len()) };
        Ok(())
    });
    // SAFETY: the caller's promise.
    status(|| unsafe { set(function, Some(output)) })
}

/// From now on, what the library prints in calls of the function goes to the log of the server.
/// This is the default. Since `FARCALL_1.1`.
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

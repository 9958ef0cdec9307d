//! The functions that only `variadic.c` uses, and one of it. No header declares them, and programs
//! must not call them.

use crate::Status;
use crate::error::{Problem, fail};
use crate::function::Function;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

unsafe extern "C" {
    /// Writes to the `stdout` of C (`variadic.c`), among what the program itself prints, at once.
    pub(crate) fn farcall_internal_print(text: *const c_char, bytes: usize) -> c_int;
}

/// Reports that there is no memory for an argument list.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_internal_out_of_memory() -> Status {
    let text = "no memory for the list of arguments".to_owned();
    fail(Problem::new(Status::FarcallInternal, text))
}

/// Drops a share of a function that no call has taken over.
///
/// # Safety
/// `function` is from `farcall_internal_grpc_function` or `farcall_internal_ninf_function`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_internal_give_back(function: *const Function) {
    // SAFETY: the caller's promise.
    drop(unsafe { Arc::from_raw(function) });
}

//! `libfarcall`: the client for C. `cargo xtask generate` makes `include/farcall.h` from the
//! comments and declarations of these modules, in the order of `farcall.h.in`. `variadic.c` has the
//! functions with a list of arguments, which only C can define.
//!
//! No panic leaves a function of the library, and NULL instead of an object is an error.
//! docs/languages.md says what is frozen.

mod argument;
mod call;
mod call_status;
mod callback;
#[cfg(target_os = "linux")]
mod channel;
mod connect;
mod error;
mod estimate;
mod function;
/// cbindgen:ignore
mod gridrpc;
mod handle;
mod job;
mod memory;
/// cbindgen:ignore
mod ninf;
mod object;
mod output;
mod reservation;
mod session;
mod sessions;
mod shape;
#[cfg(target_os = "linux")]
mod steps;
mod texts;
mod transaction;
/// cbindgen:ignore
mod variadic;

use crate::argument::Value;
use crate::error::Problem;
// Drop-in libraries load its functions from this library.
#[cfg(target_os = "linux")]
use farcall_offload as _;
use std::ffi::{CStr, c_char};

/// The result of an operation. Later versions may have more values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The operation succeeded.
    FarcallOk = 0,
    /// The caller's fault: a wrong argument, name or address.
    FarcallArgument = 1,
    /// The server has no function of that name.
    FarcallUnknownFunction = 2,
    /// The server cannot be reached, or the connection was lost.
    FarcallConnection = 3,
    /// The server did not answer in time.
    FarcallTimeout = 4,
    /// The called library crashed, ended its process, or exceeded a limit.
    FarcallLibrary = 5,
    /// The server refused the call or failed.
    FarcallServer = 6,
    /// This library has a fault.
    FarcallInternal = 7,
    /// The call has not ended.
    FarcallRunning = 8,
    /// The call was cancelled.
    FarcallCancelled = 9,
    /// There is no such session, or the library has forgotten it.
    FarcallUnknownSession = 10,
}

/// The session of a call that was started; 0 means no session.
pub type SessionId = u64;

/// The kind of an argument, or of the elements of an array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A pointer to the first element.
    FarcallArray = 0,
    /// char
    FarcallChar = 1,
    /// int16_t
    FarcallShort = 2,
    /// int32_t
    FarcallInt = 3,
    /// int64_t
    FarcallLong = 4,
    /// float
    FarcallFloat = 5,
    /// double
    FarcallDouble = 6,
    /// farcall_scomplex
    FarcallScomplex = 7,
    /// farcall_dcomplex
    FarcallDcomplex = 8,
    /// const char *
    FarcallText = 9,
    /// A callback; see docs/languages.md
    FarcallFunction = 10,
    /// An array of char *, for an array of texts with a length limit. The call reads these texts;
    /// NULL is an empty text. It replaces them by the texts that it returns; free them with
    /// `farcall_free_texts`
    FarcallTexts = 11,
}

/// The version of the binary interface. A program works with every library that has the same
/// version.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_abi_version() -> u32 {
    1
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// # Safety
/// `text` is NULL or a string ended by NUL, which outlives the result.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Problem> {
    if text.is_null() {
        return Err(Problem::null(what));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Problem::argument(format!("{what} is not UTF-8")))
}

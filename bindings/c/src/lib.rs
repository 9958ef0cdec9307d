//! `libfarcall`: the client for C. `include/farcall.h` is made from this file and its modules;
//! `variadic.c` has the functions that take a list of arguments, which only C can define.
//!
//! No panic leaves a function of the library, and a NULL where an object belongs is an error.
//! What of it is frozen stands in docs/languages.md.

mod argument;
mod call;
mod callback;
mod channel;
mod connect;
mod error;
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
mod texts;
mod transaction;
/// cbindgen:ignore
mod variadic;

use crate::argument::Value;
use crate::error::Problem;
use std::ffi::{CStr, c_char};

/// What became of an operation, and whose fault it was. More may be added.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    FarcallOk = 0,
    /// The caller's: an argument, a name or an address.
    FarcallArgument = 1,
    /// The server has no function of that name.
    FarcallUnknownFunction = 2,
    /// The server cannot be reached, or the connection was lost.
    FarcallConnection = 3,
    /// The server did not answer in time.
    FarcallTimeout = 4,
    /// The called library crashed, ended its process, or ran past a limit.
    FarcallLibrary = 5,
    /// The server refused the call or failed.
    FarcallServer = 6,
    /// A fault of this library.
    FarcallInternal = 7,
    /// The call has not ended.
    FarcallRunning = 8,
    /// The call was cancelled.
    FarcallCancelled = 9,
    /// There is no such session, or it was forgotten.
    FarcallUnknownSession = 10,
}

/// A call under way; 0 is none.
pub type SessionId = u64;

/// How an argument is passed.
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
    /// A function that the called function calls; see docs/languages.md
    FarcallFunction = 10,
    /// char *, as many as there are texts, in an array of texts that have a longest one: what the
    /// call reads, or NULL for an empty text. What it returns is put in their place, to be freed by
    /// `farcall_free_texts`
    FarcallTexts = 11,
}

/// The version of the interface between programs and this library: programs made for one work
/// with every library of the same.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_abi_version() -> u32 {
    1
}

/// The version of the library, `0.1.0`.
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

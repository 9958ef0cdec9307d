//! The last error of each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use farcall_client::{Error, FailureKind};

use crate::Status;

/// An operation that failed: what to tell the caller.
pub(crate) struct Problem {
    status: Status,
    message: String,
}

impl Problem {
    pub(crate) fn argument(message: String) -> Problem {
        Problem {
            status: Status::FarcallArgument,
            message,
        }
    }

    pub(crate) fn internal(message: String) -> Problem {
        Problem {
            status: Status::FarcallInternal,
            message,
        }
    }

    pub(crate) fn null(what: &str) -> Problem {
        Problem::argument(format!("{what} is NULL"))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        let status = match &error {
            Error::Address(_) | Error::Argument { .. } => Status::FarcallArgument,
            Error::Timeout { .. } => Status::FarcallTimeout,
            Error::Failed(failure) => match failure.kind {
                FailureKind::UnknownFunction => Status::FarcallUnknownFunction,
                FailureKind::BadArgument => Status::FarcallArgument,
                FailureKind::LibraryCrashed | FailureKind::TimeLimit | FailureKind::OutOfMemory => {
                    Status::FarcallLibrary
                }
                _ => Status::FarcallServer,
            },
            _ => Status::FarcallConnection,
        };
        Problem {
            status,
            message: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<(Status, CString)> =
        RefCell::new((Status::FarcallOk, CString::default()));
}

/// The status of the last operation of this thread that failed; `FARCALL_OK` before the first.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_error_status() -> Status {
    LAST.with_borrow(|(status, _)| *status)
}

/// What went wrong in the last operation of this thread that failed, for people; valid until the
/// next one that fails.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_error_message() -> *const c_char {
    LAST.with_borrow(|(_, message)| message.as_ptr())
}

/// Runs the body of a function of the library; `failed` is its value where that fails.
pub(crate) fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, Problem>) -> T {
    let problem = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(problem)) => problem,
        Err(_) => {
            let message = "a fault of libfarcall: its message is on standard error".to_owned();
            Problem {
                status: Status::FarcallInternal,
                message,
            }
        }
    };
    let message = problem.message.replace('\0', "?");
    LAST.set((problem.status, CString::new(message).unwrap_or_default()));
    failed
}

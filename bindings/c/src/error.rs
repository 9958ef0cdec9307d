//! The last error of each thread, and the status of each kind of error. Every function of the
//! library runs inside `guard`, so no panic leaves it.

use crate::Status;
use farcall_client::{Error, FailureKind};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An operation that failed, as the caller sees it.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: Status,
    message: String,
    /// Whether the caller passed what a function returns when it fails. The failure before this one
    /// is then the cause.
    follows: bool,
}

/// Stands in a message before the failure that is its cause.
const BEFORE: &str = "; the failure before it: ";

impl Problem {
    pub(crate) fn new(status: Status, message: String) -> Problem {
        Problem {
            status,
            message,
            follows: false,
        }
    }

    pub(crate) fn argument(message: String) -> Problem {
        Problem::new(Status::FarcallArgument, message)
    }

    pub(crate) fn unknown_session(id: u64) -> Problem {
        // Callers also pass a negative status as a session.
        let id = id as i64;
        let text = format!("there is no session {id}, or it was forgotten");
        let problem = Problem::new(Status::FarcallUnknownSession, text);
        Problem {
            follows: id == 0,
            ..problem
        }
    }

    /// The same problem, with the name of its thing.
    pub(crate) fn of(self, what: &str) -> Problem {
        let message = format!("{what}: {}", self.message);
        Problem { message, ..self }
    }

    pub(crate) fn null(what: &str) -> Problem {
        Problem {
            follows: matches!(what, "server" | "function" | "object" | "handle"),
            ..Problem::argument(format!("{what} is NULL"))
        }
    }

    /// The message, with that of the failure before it if this is its cause.
    fn message_after(self, last: &CString) -> String {
        let last = last.to_string_lossy();
        let cause = last.split_once(BEFORE).map_or(&*last, |(_, cause)| cause);
        match self.follows && !cause.is_empty() {
            true => format!("{}{BEFORE}{cause}", self.message),
            false => self.message,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem {
            status: status_of(&error),
            message: error.to_string(),
            follows: false,
        }
    }
}

fn status_of(error: &Error) -> Status {
    match error {
        Error::Address(_) | Error::Argument { .. } | Error::Misuse { .. } | Error::File { .. } => {
            Status::FarcallArgument
        }
        Error::Transaction { source, .. } => status_of(source),
        Error::Timeout { .. } => Status::FarcallTimeout,
        Error::Callback { .. } => Status::FarcallCancelled,
        Error::Failed(failure) => match failure.kind {
            FailureKind::UnknownFunction => Status::FarcallUnknownFunction,
            FailureKind::BadArgument | FailureKind::NotFound => Status::FarcallArgument,
            FailureKind::ObjectLost
            | FailureKind::LibraryCrashed
            | FailureKind::TimeLimit
            | FailureKind::OutOfMemory
            | FailureKind::FunctionFailed => Status::FarcallLibrary,
            FailureKind::Cancelled => Status::FarcallCancelled,
            FailureKind::Stalled | FailureKind::NoAnswer => Status::FarcallTimeout,
            _ => Status::FarcallServer,
        },
        _ => Status::FarcallConnection,
    }
}

thread_local! {
    static LAST: RefCell<(Status, CString)> =
        RefCell::new((Status::FarcallOk, CString::default()));
}

/// The status of the last operation of this thread that failed; `FARCALL_OK` before the first
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_error_status() -> Status {
    // A destructor of the thread may come after that of the last error.
    let known = LAST.try_with(|last| last.borrow().0);
    known.unwrap_or(Status::FarcallInternal)
}

/// The message of the last operation of this thread that failed. It is valid until the next
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_error_message() -> *const c_char {
    let known = LAST.try_with(|last| last.borrow().1.as_ptr());
    known.unwrap_or(c"the thread has ended, and its last error with it".as_ptr())
}

/// The text of a status, such as `unknown function`. It is valid until the program ends.
#[unsafe(no_mangle)]
pub extern "C" fn farcall_status_text(status: i32) -> *const c_char {
    let text = match status {
        0 => c"done",
        1 => c"wrong argument, name or address",
        2 => c"unknown function",
        3 => c"server not reached, or connection lost",
        4 => c"no answer in time",
        5 => c"the called library failed",
        6 => c"the server refused the call or failed",
        7 => c"fault of libfarcall",
        8 => c"still running",
        9 => c"cancelled",
        10 => c"unknown session",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Runs the body of a function of the library, which returns `failed` on failure.
#[inline]
pub(crate) fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, Problem>) -> T {
    caught(body).unwrap_or(failed)
}

#[inline]
fn caught<T>(body: impl FnOnce() -> Result<T, Problem>) -> Result<T, Status> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(problem)) => Err(fail(problem)),
        Err(_) => Err(fail_by_panic()),
    }
}

#[cold]
fn fail_by_panic() -> Status {
    let message = "a fault of libfarcall: its message is on standard error".to_owned();
    fail(Problem::new(Status::FarcallInternal, message))
}

/// The same for functions that return a status.
#[inline]
pub(crate) fn status(body: impl FnOnce() -> Result<Status, Problem>) -> Status {
    caught(body).unwrap_or_else(|failed| failed)
}

/// Records a failure as the last one of this thread.
#[cold]
pub(crate) fn fail(problem: Problem) -> Status {
    let status = problem.status;
    let _ = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        let message = problem.message_after(&last.1).replace('\0', "?");
        *last = (status, CString::new(message).unwrap_or_default());
    });
    status
}

//! Turns errors into Python's exceptions, which `farcall._errors` defines. A `KeyboardInterrupt` or
//! `SystemExit` in a callback reaches the caller unchanged.

use crate::server::take_interrupt;
#[cfg(target_os = "linux")]
use farcall_channel::ChannelError;
use farcall_client::{Error, FailureKind, Fault};
use pyo3::exceptions::{PyDeprecationWarning, PyException, PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use std::ffi::CStr;
use std::io;
use std::path::Path;

/// Warns of a method's name of earlier versions; `text` names the present one.
pub(crate) fn deprecated(py: Python<'_>, text: &CStr) -> PyResult<()> {
    PyErr::warn(py, &py.get_type::<PyDeprecationWarning>(), text, 1)
}

/// An argument that does not match its parameter: the function, the argument, what was expected
/// and what was given.
pub(crate) fn argument(
    py: Python<'_>,
    function: &str,
    argument: &str,
    expected: &str,
    given: &str,
) -> PyErr {
    let text = format!("{function}: argument `{argument}`: expected {expected}, given {given}");
    raise(py, "ArgumentError", text, None)
}

/// Arguments that do not match each other.
pub(crate) fn arguments(py: Python<'_>, function: &str, what: &str) -> PyErr {
    raise(py, "ArgumentError", format!("{function}: {what}"), None)
}

/// An error of the connection that the client has not seen.
pub(crate) fn connection(py: Python<'_>, text: String) -> PyErr {
    raise(py, "ConnectionError", text, None)
}

/// The exception for a failed operation.
pub(crate) fn from_client(py: Python<'_>, error: &Error) -> PyErr {
    let inner = innermost(error);
    if let Error::Interrupted = inner {
        // The handler of the signal has raised an exception: it reaches the caller.
        return take_interrupt().unwrap_or_else(|| PyKeyboardInterrupt::new_err(error.to_string()));
    }
    if let Error::Callback { source, .. } = inner
        && let Some(cause) = source.downcast_ref::<PyErr>()
    {
        // Other exceptions, such as KeyboardInterrupt, reach the caller unchanged.
        if !cause.is_instance_of::<PyException>(py) {
            return cause.clone_ref(py);
        }
        let exception = raise(py, "CallbackError", error.to_string(), Some("caller"));
        exception.set_cause(py, Some(cause.clone_ref(py)));
        return exception;
    }
    if let Error::File { path, source, .. } = inner {
        return file(py, error, path, source);
    }
    let class = class_of(error);
    let fault = match error.fault() {
        Fault::Caller => "caller",
        Fault::Peer => "peer",
        Fault::Library => "library",
        Fault::Machine => "machine",
    };
    let exception = raise(py, class, error.to_string(), Some(fault));
    let value = exception.value(py);
    let earliest = error.earliest().map(|earliest| earliest.as_secs_f64());
    let told = earliest.map_or(Ok(()), |earliest| value.setattr("earliest", earliest));
    let begun = error.lost_server();
    match told.and_then(|()| begun.map_or(Ok(()), |begun| value.setattr("_begun", begun))) {
        Ok(()) => exception,
        Err(error) => error,
    }
}

/// Why a call of a transaction has failed; for other operations the error itself.
fn innermost(error: &Error) -> &Error {
    match error {
        Error::Transaction { source, .. } => innermost(source),
        other => other,
    }
}

/// The class of the exception.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Argument { .. } | Error::Misuse { .. } | Error::Address(_) => "ArgumentError",
        Error::Transaction { source, .. } => class_of(source),
        Error::Timeout { .. } => "TimeoutError",
        Error::Callback { .. } => "CallbackError",
        Error::Failed(failure) => match failure.kind {
            FailureKind::UnknownFunction => "UnknownFunction",
            FailureKind::BadArgument => "ArgumentError",
            FailureKind::NotFound => "NotFoundError",
            FailureKind::Stalled => "TimeoutError",
            FailureKind::NoAnswer => "CallbackError",
            FailureKind::ObjectLost
            | FailureKind::LibraryCrashed
            | FailureKind::TimeLimit
            | FailureKind::OutOfMemory
            | FailureKind::FunctionFailed => "LibraryError",
            _ => "ServerError",
        },
        _ => "ConnectionError",
    }
}

/// A failure of a file that an argument names. The exception is also Python's own for that failure.
fn file(py: Python<'_>, error: &Error, path: &Path, source: &io::Error) -> PyErr {
    let class = match source.kind() {
        io::ErrorKind::NotFound => "FileNotFoundError",
        io::ErrorKind::PermissionDenied => "PermissionError",
        _ => "FileError",
    };
    let exception = raise(py, class, error.to_string(), Some("caller"));
    let value = exception.value(py);
    let told = value
        .setattr("filename", path.as_os_str())
        .and_then(|()| value.setattr("errno", source.raw_os_error()));
    match told {
        Ok(()) => exception,
        Err(error) => error,
    }
}

/// The exception for a failed operation on a channel.
#[cfg(target_os = "linux")]
pub(crate) fn from_channel(py: Python<'_>, error: &ChannelError) -> PyErr {
    let (class, fault) = match error {
        ChannelError::Interrupted => {
            return take_interrupt()
                .unwrap_or_else(|| PyKeyboardInterrupt::new_err(error.to_string()));
        }
        ChannelError::NoJob(_)
        | ChannelError::Foreign
        | ChannelError::Open(_)
        | ChannelError::Forked
        | ChannelError::Cut => ("ChannelError", "caller"),
        ChannelError::Corrupt(_) => ("ChannelError", "peer"),
        ChannelError::System(_) => ("ChannelError", "machine"),
        _ => ("ArgumentError", "caller"),
    };
    raise(py, class, error.to_string(), Some(fault))
}

/// Another thread uses the channel.
#[cfg(target_os = "linux")]
pub(crate) fn channel_in_use(py: Python<'_>) -> PyErr {
    let text = "another thread uses the channel: only one thread may use it at a time".to_owned();
    raise(py, "ChannelError", text, Some("caller"))
}

/// The channel is closed.
#[cfg(target_os = "linux")]
pub(crate) fn channel_closed(py: Python<'_>) -> PyErr {
    raise(
        py,
        "ChannelError",
        "the channel is closed".to_owned(),
        Some("caller"),
    )
}

fn raise(py: Python<'_>, class: &str, text: String, fault: Option<&str>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let made = MODULE
        .get_or_try_init(py, || py.import("farcall._errors").map(Bound::unbind))
        .and_then(|module| module.bind(py).getattr(class)?.call1((&text,)));
    let made = made.and_then(|exception| {
        if let Some(fault) = fault {
            exception.setattr("fault", fault)?;
        }
        Ok(exception)
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(text),
    }
}

/// A description of an object, for an error message.
pub(crate) fn describe(object: &Bound<'_, PyAny>) -> String {
    if let Ok(array) = object.cast::<numpy::PyUntypedArray>() {
        return crate::array::describe(array);
    }
    if object.is_none() {
        return "None".to_owned();
    }
    let class = object.get_type().name();
    let class = class.map_or_else(|_| "an object".to_owned(), |name| name.to_string());
    let text = object
        .repr()
        .unwrap_or_else(|_| PyString::new(object.py(), "?"))
        .to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{class} {}...", &text[..end]),
        None => format!("{class} {text}"),
    }
}

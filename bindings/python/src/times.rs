//! The times of a finished call in seconds, by its parts. The server measures its parts, the client
//! measures the total, and `other` is the rest.

use pyo3::prelude::*;

/// The times of a call in seconds: `send` until the server had the arguments, `exec` in the
/// library, `recv` until the server had sent the results, and `other` for the rest of `total`.
#[pyclass(frozen, get_all, from_py_object, module = "farcall")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    send: f64,
    exec: f64,
    recv: f64,
    other: f64,
    total: f64,
}

#[pymethods]
impl Times {
    fn __repr__(&self) -> String {
        let Times {
            send,
            exec,
            recv,
            other,
            total,
        } = self;
        format!(
            "Times(send={send:.6}, exec={exec:.6}, recv={recv:.6}, other={other:.6}, \
             total={total:.6})"
        )
    }
}

impl From<farcall_client::Times> for Times {
    fn from(times: farcall_client::Times) -> Times {
        let farcall_client::Times {
            send,
            exec,
            recv,
            other,
            total,
        } = times;
        Times {
            send,
            exec,
            recv,
            other,
            total,
        }
    }
}

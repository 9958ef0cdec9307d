//! Where an object has its connection from.

use crate::error;
use farcall_client::Error;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// The process that has made a connection, and how another makes it anew. A forked child has the
/// parent's sockets: if both used them, each would get answers meant for the other.
#[derive(Clone)]
pub(crate) struct Origin {
    process: u32,
    address: String,
    timeout: Option<f64>,
    connect_timeout: f64,
    same_host: bool,
}

impl Origin {
    /// Of a connection that this process has made.
    pub(crate) fn new(
        address: String,
        timeout: Option<f64>,
        connect_timeout: f64,
        same_host: bool,
    ) -> Origin {
        Origin {
            process: std::process::id(),
            address,
            timeout,
            connect_timeout,
            same_host,
        }
    }

    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = "the connection belongs to the process this one was forked from: connect again";
        Err(error::connection(py, text.to_owned()))
    }

    /// Asks something over the connection, while other threads run.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.check(py)?;
        ask(py, question)
    }

    /// What a pickled object is made anew by: a function of `farcall._handles`, and its arguments.
    pub(crate) fn reduce<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        name: Option<&str>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let make = py.import("farcall._handles")?.getattr(kind)?;
        let settings = (
            &self.address,
            self.timeout,
            self.connect_timeout,
            self.same_host,
        );
        let settings = settings.into_pyobject(py)?.into_any();
        let arguments = match name {
            Some(name) => PyTuple::new(py, [name])?.add(settings)?,
            None => settings,
        };
        PyTuple::new(py, [make, arguments])
    }
}

/// Waits for something of the client, while other threads run.
pub(crate) fn ask<T: Send>(
    py: Python<'_>,
    question: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(question)
        .map_err(|error| error::from_client(py, &error))
}

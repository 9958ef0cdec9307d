//! Remembers how an object's connection was made, so that another process can make it again. A
//! token is never pickled. A forked child cannot use the connection of its parent.

use crate::error;
use farcall_client::Error;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::CString;
use std::path::PathBuf;

/// The process that made a connection, and the arguments of `connect`. A forked child has the
/// parent's sockets: if both used them, each would get answers meant for the other.
///
/// Files of credentials are pickled by their paths. A token is a secret and is not pickled.
#[derive(Clone)]
pub(crate) struct Origin {
    process: u32,
    address: String,
    timeout: Option<f64>,
    connect_timeout: f64,
    same_host: bool,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
    /// The caller gave a token that is not in the environment.
    has_token: bool,
}

impl Origin {
    /// A connection that this process has made.
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
            authorities: None,
            certificate: None,
            has_token: false,
        }
    }

    /// The same connection, with the credentials that the caller gave.
    pub(crate) fn with_credentials(
        self,
        token: Option<&str>,
        authorities: Option<PathBuf>,
        certificate: Option<(PathBuf, PathBuf)>,
    ) -> Origin {
        let known = std::env::var("FARCALL_TOKEN").ok();
        Origin {
            authorities,
            certificate,
            has_token: token.is_some_and(|token| known.as_deref() != Some(token)),
            ..self
        }
    }

    pub(crate) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text =
            "the connection belongs to the parent of this process: connect again after a fork";
        Err(error::connection(py, text.to_owned()))
    }

    /// Asks the server, while other Python threads run.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce() -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.check(py)?;
        ask(py, question)
    }

    /// How pickle makes an object again: a function of `farcall._handles`, and its arguments.
    pub(crate) fn reduce<'py>(
        &self,
        py: Python<'py>,
        kind: &str,
        name: Option<&str>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        if self.has_token {
            let text = format!(
                "the token of {} is not pickled: the process that loads the pickle takes its token \
                 from FARCALL_TOKEN",
                self.address
            );
            let text = CString::new(text)?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
        }
        let make = py.import("farcall._handles")?.getattr(kind)?;
        let settings = (
            &self.address,
            self.timeout,
            self.connect_timeout,
            self.same_host,
            self.authorities.as_ref(),
            self.certificate.as_ref(),
        );
        let settings = settings.into_pyobject(py)?.into_any();
        let arguments = match name {
            Some(name) => PyTuple::new(py, [name])?.add(settings)?,
            None => settings,
        };
        PyTuple::new(py, [make, arguments])
    }
}

/// Waits for the client, while other Python threads run.
pub(crate) fn ask<T: Send>(
    py: Python<'_>,
    question: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    py.detach(question)
        .map_err(|error| error::from_client(py, &error))
}

//! The status of calls under way, as read-only Python attributes. The server writes the reason and
//! predicts the times; nothing is computed here.

use pyo3::prelude::*;
use std::time::Duration;

/// How a call fares: how far it has come, why it waits, and when it will start and end. `str` of it
/// is a sentence.
#[pyclass(frozen, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct CallStatus(pub(crate) farcall_client::CallStatus);

/// A moment to come, in seconds from the question on. It lies between `low` and `high` in four of
/// five cases.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// One of ten is earlier.
    low: f64,
    /// As many are earlier as later.
    likely: f64,
    /// One of ten is later.
    high: f64,
}

impl From<farcall_client::Expected> for Expected {
    fn from(expected: farcall_client::Expected) -> Expected {
        let [low, likely, high] =
            [expected.low, expected.likely, expected.high].map(|time: Duration| time.as_secs_f64());
        Expected { low, likely, high }
    }
}

impl CallStatus {
    /// The status of a call that the client knows to have ended.
    pub(crate) fn over(reason: &str) -> CallStatus {
        CallStatus(farcall_client::CallStatus {
            reason: reason.to_owned(),
            ..farcall_client::CallStatus::over()
        })
    }
}

#[pymethods]
impl CallStatus {
    /// "arriving", "waiting", "running", "returning" or "over".
    #[getter]
    fn phase(&self) -> &'static str {
        self.0.phase.name()
    }

    /// What the call does or waits for, in words. It never names other users.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    /// When the call will start to compute, if it waits and the server can predict it.
    #[getter]
    fn starts(&self) -> Option<Expected> {
        self.0.starts.map(Expected::from)
    }

    /// When the call will have computed, if the server can predict it.
    #[getter]
    fn ends(&self) -> Option<Expected> {
        self.0.ends.map(Expected::from)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<{}: {}>", self.0.phase.name(), self.0)
    }
}

#[pymethods]
impl Expected {
    fn __repr__(&self) -> String {
        let Expected { low, likely, high } = self;
        format!("Expected(low={low:.3}, likely={likely:.3}, high={high:.3})")
    }
}

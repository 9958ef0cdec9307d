//! The status of calls under way, as read-only Python attributes. The server writes the reason and
//! predicts the times; nothing is computed here.

use crate::record::{self, Reduced};
use farcall_client::CallPhase;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// What a pickle of a status has.
type Fields = (String, String, Option<Expected>, Option<Expected>);

/// How a call fares: how far it has come, why it waits, and when it will start and end. `str` of it
/// is a sentence.
#[pyclass(frozen, from_py_object, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct CallStatus(pub(crate) farcall_client::CallStatus);

/// A moment to come, in seconds from the question on. It lies between `low` and `high` in four of
/// five cases.
#[pyclass(frozen, get_all, from_py_object, module = "farcall")]
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

impl Expected {
    fn for_client(self) -> PyResult<farcall_client::Expected> {
        let duration = |seconds| {
            let duration = Duration::try_from_secs_f64(seconds);
            duration.map_err(|error| PyValueError::new_err(error.to_string()))
        };
        Ok(farcall_client::Expected {
            low: duration(self.low)?,
            likely: duration(self.likely)?,
            high: duration(self.high)?,
        })
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

    #[staticmethod]
    fn _make(fields: Fields) -> PyResult<CallStatus> {
        let (phase, reason, starts, ends) = fields;
        let mut phases = (0..=u8::MAX).filter_map(CallPhase::from_repr);
        let known = phases.find(|known| known.name() == phase);
        let unknown = || PyValueError::new_err(format!("`{phase}` is not the phase of a call"));
        Ok(CallStatus(farcall_client::CallStatus {
            phase: known.ok_or_else(unknown)?,
            reason,
            starts: starts.map(Expected::for_client).transpose()?,
            ends: ends.map(Expected::for_client).transpose()?,
        }))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py, Fields>> {
        let status = slf.get();
        let (phase, reason) = (status.phase().to_owned(), status.reason().to_owned());
        record::reduce(slf, (phase, reason, status.starts(), status.ends()))
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
    #[staticmethod]
    fn _make(fields: (f64, f64, f64)) -> Expected {
        let (low, likely, high) = fields;
        Expected { low, likely, high }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py, (f64, f64, f64)>> {
        let Expected { low, likely, high } = *slf.get();
        record::reduce(slf, (low, likely, high))
    }

    fn __repr__(&self) -> String {
        let Expected { low, likely, high } = self;
        format!("Expected(low={low:.3}, likely={likely:.3}, high={high:.3})")
    }
}

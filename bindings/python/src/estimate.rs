//! Estimates of calls: predicted bytes, memory and seconds, as read-only Python attributes. The
//! client and the server compute them. A time that is not known yet is `None`.

use crate::notebook;
use pyo3::prelude::*;

/// The estimate of a call. Times are in seconds. A time is `None` if the server has seen no call of
/// the function, or no long transfer, yet.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Estimate(pub(crate) farcall_client::Estimate);

#[pymethods]
impl Estimate {
    /// Bytes of arrays that go to the server.
    #[getter]
    fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes
    }

    /// Bytes of arrays that come back from the server.
    #[getter]
    fn returned_bytes(&self) -> u64 {
        self.0.returned_bytes
    }

    /// Bytes of memory that the call needs at the server.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }

    /// Operations of the call, if the interface states them.
    #[getter]
    fn operations(&self) -> Option<f64> {
        self.0.operations
    }

    /// Time of an empty message to the server and back.
    #[getter]
    fn latency(&self) -> f64 {
        self.0.latency
    }

    /// Time to send the arguments.
    #[getter]
    fn send(&self) -> Option<f64> {
        self.0.send
    }

    /// Time until a worker is free, from the present queue.
    #[getter]
    fn wait(&self) -> f64 {
        self.0.wait
    }

    /// Time in the library.
    #[getter]
    fn exec(&self) -> Option<f64> {
        self.0.exec
    }

    /// Spread of `exec`: two thirds of the calls take between `exec / factor` and `exec * factor`.
    #[getter]
    fn factor(&self) -> Option<f64> {
        self.0.factor
    }

    /// Processor elements of the server.
    #[getter]
    fn processor_elements(&self) -> Option<u32> {
        self.0.pes
    }

    /// Time to receive the results.
    #[getter]
    fn recv(&self) -> Option<f64> {
        self.0.recv
    }

    /// Time from the start of the call to its return, if all parts are known.
    #[getter]
    fn total(&self) -> Option<f64> {
        self.0.total()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook::html(slf, "estimate")
    }
}

//! What a call would take.

use pyo3::prelude::*;

/// What a call would take. Times are in seconds; `None` where the server has seen no call of the
/// function, or no long transfer, yet.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Plan(pub(crate) farcall_client::Estimate);

#[pymethods]
impl Plan {
    /// Bytes of arrays that go to the server.
    #[getter]
    fn sent_bytes(&self) -> u64 {
        self.0.sent_bytes
    }

    /// Bytes of arrays that come back.
    #[getter]
    fn returned_bytes(&self) -> u64 {
        self.0.returned_bytes
    }

    /// Memory of the call on the server, in bytes.
    #[getter]
    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }

    /// Operations, where the interface states them.
    #[getter]
    fn operations(&self) -> Option<f64> {
        self.0.operations
    }

    /// To the server and back, with nothing to carry.
    #[getter]
    fn latency(&self) -> f64 {
        self.0.latency
    }

    /// The arguments on their way.
    #[getter]
    fn send(&self) -> Option<f64> {
        self.0.send
    }

    /// Until a worker is free, as things stand.
    #[getter]
    fn wait(&self) -> f64 {
        self.0.wait
    }

    /// In the library.
    #[getter]
    fn exec(&self) -> Option<f64> {
        self.0.exec
    }

    /// Two thirds of the calls lie within `exec` divided and multiplied by this.
    #[getter]
    fn factor(&self) -> Option<f64> {
        self.0.factor
    }

    /// The results on their way.
    #[getter]
    fn recv(&self) -> Option<f64> {
        self.0.recv
    }

    /// From the start of the call to its return, where all of it is known.
    #[getter]
    fn total(&self) -> Option<f64> {
        self.0.total()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

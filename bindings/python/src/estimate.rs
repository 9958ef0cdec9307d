//! Estimates of calls: predicted bytes, memory and seconds, as read-only Python attributes. The
//! client and the server compute them. A time that is not known yet is `None`.

use crate::notebook;
use crate::record::{self, Reduced};
use pyo3::prelude::*;

/// What a pickle has: the fields of the client's estimate in their order.
type Fields = (
    u64,
    u64,
    u64,
    Option<f64>,
    f64,
    Option<f64>,
    f64,
    Option<f64>,
    Option<f64>,
    Option<f64>,
    (Option<f64>, Option<f64>),
    Option<u32>,
);

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

    #[staticmethod]
    fn _make(fields: Fields) -> Estimate {
        let (sent_bytes, returned_bytes, memory_bytes, operations, latency, send, ..) = fields;
        let (.., wait, exec, factor, recv, rates, pes) = fields;
        Estimate(farcall_client::Estimate {
            sent_bytes,
            returned_bytes,
            memory_bytes,
            operations,
            latency,
            send,
            wait,
            exec,
            factor,
            recv,
            rates,
            pes,
        })
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Reduced<'py, Fields>> {
        let farcall_client::Estimate {
            sent_bytes,
            returned_bytes,
            memory_bytes,
            operations,
            latency,
            send,
            wait,
            exec,
            factor,
            recv,
            rates,
            pes,
        } = slf.get().0;
        let fields = (
            sent_bytes,
            returned_bytes,
            memory_bytes,
            operations,
            latency,
            send,
            wait,
            exec,
            factor,
            recv,
            rates,
            pes,
        );
        record::reduce(slf, fields)
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook::html(slf, "estimate")
    }
}

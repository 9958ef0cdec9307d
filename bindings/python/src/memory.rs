//! Memory shared with a server, for NumPy arrays. An array keeps the memory alive as long as it
//! exists.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The memory of an array that was made in shared memory.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct SharedMemory(farcall_client::SharedMemory);

impl SharedMemory {
    pub(crate) fn new(memory: farcall_client::SharedMemory) -> SharedMemory {
        SharedMemory(memory)
    }
}

#[pymethods]
impl SharedMemory {
    /// The bytes, described for NumPy's array interface.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.0.bytes(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.0.start().expose_provenance(), false))?;
        Ok(interface)
    }
}

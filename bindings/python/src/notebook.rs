//! How notebooks show objects. The Python module `farcall._notebook` makes the HTML; this one only
//! calls it.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;

/// The HTML of an object, by the function of that module with this name.
pub(crate) fn html<'py, T: PyTypeInfo>(
    shown: &Bound<'py, T>,
    function: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let module = shown.py().import("farcall._notebook")?;
    module.call_method1(function, (shown,))
}

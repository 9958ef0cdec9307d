//! Callbacks: callables that a remote function calls while it runs.

use crate::array;
use farcall_client::{CallbackArguments, CallbackError, Scalar};
use farcall_idl::Type;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};

/// Calls `callable` with all arguments in order: numbers and texts by value, arrays as new arrays.
/// The contents of OUT and INOUT arrays go back; the return value is ignored.
pub(crate) fn run(
    callable: &Py<PyAny>,
    arguments: &mut CallbackArguments<'_>,
) -> Result<(), CallbackError> {
    Python::attach(|py| call(callable.bind(py), arguments)).map_err(Into::into)
}

/// Writes a line that a function has printed, by default to `sys.stdout`.
pub(crate) fn write(write: Option<&Py<PyAny>>, line: &str) -> PyResult<()> {
    Python::attach(|py| {
        match write {
            Some(write) => write.bind(py).call1((line,))?,
            None => {
                let stdout = py.import("sys")?.getattr("stdout")?;
                stdout.call_method1("write", (line,))?
            }
        };
        Ok(())
    })
}

fn call(callable: &Bound<'_, PyAny>, arguments: &mut CallbackArguments<'_>) -> PyResult<()> {
    let py = callable.py();
    let interface = arguments.interface();
    let mut values = Vec::with_capacity(interface.params.len());
    let mut returned: Vec<(usize, Bound<'_, PyUntypedArray>)> = Vec::new();
    for (index, param) in interface.params.iter().enumerate() {
        if let Some(scalar) = &arguments.scalars()[index] {
            values.push(value(py, param.ty, scalar)?);
            continue;
        }
        let Some(layout) = arguments.layout().array(index).cloned() else {
            continue;
        };
        let (order, bytes) = (interface.order(), arguments.array(index));
        let array = array::argument(py, param, &layout, order, bytes)?;
        if param.mode.is_returned() {
            returned.push((index, array.clone()));
        }
        values.push(array.into_any());
    }
    callable.call1(PyTuple::new(py, values)?)?;
    for (index, array) in returned {
        array::copy_out(&array, arguments.array(index));
    }
    Ok(())
}

fn value<'py>(py: Python<'py>, ty: Type, scalar: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match scalar {
        Scalar::Int(code) if ty == Type::Char => {
            PyString::new(py, &char::from(*code as u8).to_string()).into_any()
        }
        Scalar::Int(value) => PyInt::new(py, *value).into_any(),
        Scalar::Float(value) => PyFloat::new(py, *value).into_any(),
        Scalar::Complex { re, im } => PyComplex::from_doubles(py, *re, *im).into_any(),
        Scalar::Text(text) => PyString::new(py, text).into_any(),
        Scalar::Texts(texts) => PyList::new(py, texts)?.into_any(),
    })
}

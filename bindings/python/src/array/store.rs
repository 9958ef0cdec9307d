//! Stores values that functions return in the memory of a call. The rules are those of an IN
//! argument, so a value that would be refused as an argument is refused here too.

use super::{copy, dtype_name, fits, range, shape, shape_text, type_of, typed};
use crate::error;
use farcall_idl::{Mode, Order, Param};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;

/// Stores a value that a function has returned, by the rules of an IN argument.
pub(crate) fn store(
    param: &Param,
    target: &Bound<'_, PyUntypedArray>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = value.py();
    let wanted: Vec<u64> = shape(target).iter().map(|&size| size as u64).collect();
    let refuse = |why: &str| {
        let (ty, shape) = (dtype_name(param.ty), shape_text(&wanted));
        PyTypeError::new_err(format!(
            "it returned {} for `{}`, which is {ty} of shape {shape}{why}",
            error::describe(value),
            param.name,
        ))
    };
    let read = Param {
        mode: Mode::In,
        ..param.clone()
    };
    let typed = match typed("", &read, value) {
        Ok(typed) if fits(shape(&typed.array), &wanted) => typed,
        Ok(_) => return Err(refuse("")),
        Err(error) if error.is_instance_of::<PyException>(py) => return Err(refuse("")),
        Err(error) => return Err(error),
    };
    let (order, is_right) = match target.is_c_contiguous() {
        true => (Order::RowMajor, typed.array.is_c_contiguous()),
        false => (Order::ColumnMajor, typed.array.is_fortran_contiguous()),
    };
    let memory = match is_right && !typed.needs_conversion {
        true => typed.array,
        false => {
            let shape = shape(&typed.array).to_vec();
            copy(&typed.array, &shape, param.ty, order)?
        }
    };
    let ((start, length), (from, given)) = (range(target), range(&memory));
    // SAFETY: both are contiguous, with elements of the same size; the interpreter is held.
    unsafe { start.copy_from(from, length.min(given)) };
    Ok(())
}

/// Stores a value that a served function has returned for the parameter `name`, in the memory of
/// the call.
#[pyfunction]
pub(crate) fn store_result(
    name: &str,
    target: &Bound<'_, PyUntypedArray>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let ty = type_of(&target.dtype());
    let Some(ty) = ty.filter(|_| target.is_c_contiguous()) else {
        return Err(PyTypeError::new_err("not the memory of a call"));
    };
    let param = Param {
        name: name.to_owned(),
        mode: Mode::Out,
        allocate: false,
        count: None,
        broadcast: false,
        ty,
        dims: Vec::new(),
    };
    store(&param, target, value)
}

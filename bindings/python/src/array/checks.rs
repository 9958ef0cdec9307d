//! Finds what would be lost or ambiguous if an array were an argument: a mask, numbers that do not
//! fit, elements that share memory, another shape. The callers refuse such an array or copy it. In
//! doubt, an array with very many elements counts as one that shares memory.

use super::types::{casts_safely, dtype};
use super::{contents, copy, dtype_name, shape};
use farcall_idl::{Order, Type, is_exact};
use numpy::npyffi;
use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};

/// Whether the array has a mask, which no function would see.
pub(crate) fn is_masked(array: &Bound<'_, PyUntypedArray>) -> PyResult<bool> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = array.py();
    // SAFETY: the type is alive as long as the array.
    if unsafe { npyffi::PyArray_CheckExact(py, array.as_ptr()) } != 0 {
        return Ok(false);
    }
    let class = CLASS.get_or_try_init(py, || {
        let module = py.import("numpy.ma")?;
        module.getattr("MaskedArray").map(Bound::unbind)
    })?;
    array.is_instance(class.bind(py))
}

/// Whether a list, or one within it, has an array with a mask. `levels` is the number of its
/// dimensions, the last of which has numbers.
pub(super) fn has_masks(value: &Bound<'_, PyAny>, levels: usize) -> PyResult<bool> {
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        return is_masked(array);
    }
    if levels < 2 || !(value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>()) {
        return Ok(false);
    }
    for one in value.try_iter()? {
        if has_masks(&one?, levels - 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How to pass a masked array.
pub(super) const UNMASKED: &str = "its mask would be lost; pass its filled(value), or its data";

/// What an array of this type would lose of a value, for an error message. `array` is the value as
/// NumPy sees it.
pub(crate) fn lost(
    value: &Bound<'_, PyAny>,
    array: &Bound<'_, PyUntypedArray>,
    ty: Type,
) -> PyResult<Option<String>> {
    if has_masks(value, array.ndim())? {
        return Ok(Some(format!("a masked array: {UNMASKED}")));
    }
    match inexact(array, ty)? {
        None if value.cast::<PyUntypedArray>().is_err() => rounded(value, array, ty),
        lost => Ok(lost),
    }
}

/// A number of the array that the floating-point type cannot hold, for an error message: an integer
/// that would be rounded, or a number that would become infinite.
pub(super) fn inexact(array: &Bound<'_, PyUntypedArray>, ty: Type) -> PyResult<Option<String>> {
    let name = dtype_name(ty);
    if let Some(lost) = inexact_integer(array, ty)? {
        let text = format!("the integer {lost}, which {name} cannot hold exactly");
        return Ok(Some(text));
    }
    let lost = overflowing(array, ty)?;
    Ok(lost.map(|lost| format!("the number {lost}, which {name} cannot hold")))
}

/// An integer among floats of a sequence that the floating-point type cannot hold, for an error
/// message. `array` is the sequence as NumPy sees it.
pub(super) fn rounded(
    value: &Bound<'_, PyAny>,
    array: &Bound<'_, PyUntypedArray>,
    ty: Type,
) -> PyResult<Option<String>> {
    let py = value.py();
    if ty.precision().is_none() || !matches!(array.dtype().kind(), b'f' | b'c') {
        return Ok(None);
    }
    let module = py.import(intern!(py, "farcall._arrays"))?;
    let arguments = (value, array, dtype(py, ty)?);
    let lost: Option<String> = module
        .call_method1(intern!(py, "rounded"), arguments)?
        .extract()?;
    let name = dtype_name(ty);
    Ok(lost.map(|lost| format!("the integer {lost}, which {name} cannot hold exactly")))
}

fn overflowing(array: &Bound<'_, PyUntypedArray>, ty: Type) -> PyResult<Option<String>> {
    let (py, descr) = (array.py(), array.dtype());
    let to = dtype(py, ty)?;
    // A complex number is no real number, whatever its size.
    let pairs = [(b'f', b'f'), (b'f', b'c'), (b'c', b'c')];
    if !pairs.contains(&(descr.kind(), to.kind())) || casts_safely(&descr, &to) {
        return Ok(None);
    }
    let module = py.import(intern!(py, "farcall._arrays"))?;
    let lost = module.call_method1(intern!(py, "overflowing"), (array, to))?;
    lost.extract()
}

fn inexact_integer(array: &Bound<'_, PyUntypedArray>, ty: Type) -> PyResult<Option<String>> {
    let Some(bits) = ty.precision() else {
        return Ok(None);
    };
    let descr = array.dtype();
    let wide = match descr.kind() {
        b'i' => Type::Long,
        b'u' => Type::UnsignedLong,
        _ => return Ok(None),
    };
    if descr.itemsize() * 8 <= bits as usize {
        return Ok(None);
    }
    let shape = shape(array).to_vec();
    let wide_copy = copy(array, &shape, wide, Order::RowMajor)?;
    let is_signed = wide == Type::Long;
    // SAFETY: the copy is contiguous.
    let bytes = unsafe { contents(&wide_copy) };
    Ok(bytes.as_chunks().0.iter().find_map(|&bytes: &[u8; 8]| {
        let (signed, unsigned) = (i64::from_ne_bytes(bytes), u64::from_ne_bytes(bytes));
        match is_signed {
            true if is_exact(signed.unsigned_abs(), bits) => None,
            false if is_exact(unsigned, bits) => None,
            true => Some(signed.to_string()),
            false => Some(unsigned.to_string()),
        }
    }))
}

/// Whether two elements share memory. An array of unusual strides with very many elements counts as
/// one that does.
pub(super) fn overlaps_itself(array: &Bound<'_, PyUntypedArray>) -> bool {
    const MOST: usize = 1 << 20;
    if array.is_empty() {
        return false;
    }
    let axes = shape(array).iter().zip(array.strides());
    let axes = axes.filter(|(size, _)| **size > 1);
    let mut axes: Vec<(usize, usize)> = axes
        .map(|(&size, stride)| (stride.unsigned_abs(), size))
        .collect();
    axes.sort_unstable();
    let item = array.dtype().itemsize();
    // An axis that steps over all that the faster ones reach shares nothing with them.
    let mut reach = item;
    let is_nested = axes.iter().all(|&(stride, size)| {
        let is_apart = stride >= reach;
        reach = reach.saturating_add(stride.saturating_mul(size - 1));
        is_apart
    });
    if is_nested || array.len() > MOST {
        return !is_nested;
    }
    let mut starts = vec![0];
    for (stride, size) in axes {
        let each = |start: &usize| (0..size).map(move |index| start + index * stride).collect();
        starts = starts.iter().flat_map::<Vec<usize>, _>(each).collect();
    }
    starts.sort_unstable();
    starts.windows(2).any(|pair| pair[1] - pair[0] < item)
}

/// Whether a shape is the expected one. A vector and a matrix of one row or column may stand for
/// each other, because they have the same elements in the same order.
pub(super) fn fits(given: &[usize], expected: &[u64]) -> bool {
    if given.len() == expected.len() {
        return given
            .iter()
            .zip(expected)
            .all(|(&given, &expected)| given as u64 == expected);
    }
    let mut long = given
        .iter()
        .map(|&size| size as u64)
        .filter(|&size| size != 1);
    let mut wanted = expected.iter().copied().filter(|&size| size != 1);
    let (first, other) = (long.next(), wanted.next());
    (given.len() <= 1 || expected.len() <= 1)
        && first == other
        && long.next().is_none()
        && wanted.next().is_none()
}

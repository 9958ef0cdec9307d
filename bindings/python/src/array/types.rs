//! Maps the element types of interfaces to those of NumPy. `array` decides about conversions. An
//! array has the right type only if its bytes are in the order of this machine.

use crate::error;
use farcall_idl::Type;
use numpy::npyffi::{NPY_CASTING, PY_ARRAY_API};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// Whether NumPy converts elements from one type to the other without loss.
pub(super) fn casts_safely(from: &Bound<'_, PyArrayDescr>, to: &Bound<'_, PyArrayDescr>) -> bool {
    let (py, casting) = (from.py(), NPY_CASTING::NPY_SAFE_CASTING);
    // SAFETY: both are alive; nothing is taken.
    let answer = unsafe {
        let (from, to) = (from.as_dtype_ptr(), to.as_dtype_ptr());
        PY_ARRAY_API.PyArray_CanCastTypeTo(py, from, to, casting)
    };
    answer != 0
}

/// Whether elements are of this type, in the order of this machine's bytes.
pub(super) fn has_type(descr: &Bound<'_, PyArrayDescr>, ty: Type) -> bool {
    let (kind, size) = (descr.kind(), descr.itemsize());
    let right = match ty {
        Type::Char => matches!(kind, b'S' | b'i' | b'u') && size == 1,
        _ => (kind, size) == kind_and_size(ty),
    };
    right && descr.is_native_byteorder() != Some(false)
}

/// The type of numbers or characters that the elements have, in the order of this machine's bytes.
pub(super) fn type_of(descr: &Bound<'_, PyArrayDescr>) -> Option<Type> {
    let numbers = |ty: &Type| ty.size().is_some() && *ty != Type::Char;
    let mut types = Type::ALL.into_iter().filter(numbers).chain([Type::Char]);
    types.find(|ty| has_type(descr, *ty))
}

/// The array, or a copy whose elements have their bytes in the order of this machine.
pub(super) fn native<'py>(
    array: Bound<'py, PyUntypedArray>,
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let (py, dtype) = (array.py(), array.dtype());
    if dtype.is_native_byteorder() != Some(false) {
        return Ok(array);
    }
    let dtype = dtype.call_method1(intern!(py, "newbyteorder"), (intern!(py, "="),))?;
    let array = array.call_method1(intern!(py, "astype"), (dtype,))?;
    let array: Bound<'py, PyUntypedArray> = array.cast_into()?;
    Ok(array)
}

/// NumPy's kind of an element, and its bytes.
fn kind_and_size(ty: Type) -> (u8, usize) {
    match ty {
        Type::Char => (b'S', 1),
        Type::Short => (b'i', 2),
        Type::Int => (b'i', 4),
        Type::Long | Type::LongLong => (b'i', 8),
        Type::SignedChar => (b'i', 1),
        Type::UnsignedChar => (b'u', 1),
        Type::UnsignedShort => (b'u', 2),
        Type::UnsignedInt => (b'u', 4),
        Type::UnsignedLong | Type::UnsignedLongLong => (b'u', 8),
        Type::Float => (b'f', 4),
        Type::Double => (b'f', 8),
        Type::SComplex => (b'c', 8),
        Type::DComplex => (b'c', 16),
        // No array has these elements: the checker of interfaces refuses them.
        Type::FixedString => (b'S', 1),
        Type::String | Type::Filename | Type::FilePointer => (b'O', 0),
    }
}

/// The NumPy type of an element.
pub(crate) fn dtype<'py>(py: Python<'py>, ty: Type) -> PyResult<Bound<'py, PyArrayDescr>> {
    static TYPES: PyOnceLock<Vec<Py<PyArrayDescr>>> = PyOnceLock::new();
    let types = TYPES.get_or_try_init(py, || {
        let made = Type::ALL.iter().map(|&ty| {
            let (kind, size) = kind_and_size(ty);
            let name = if size == 0 {
                "O".to_owned()
            } else {
                format!("{}{size}", kind as char)
            };
            Ok(PyArrayDescr::new(py, name)?.unbind())
        });
        made.collect::<PyResult<Vec<_>>>()
    })?;
    let index = Type::ALL
        .iter()
        .position(|&other| other == ty)
        .unwrap_or_default();
    Ok(types[index].bind(py).clone())
}

/// The type of elements that a NumPy type, or the name of one, stands for, and whether their bytes
/// are big-endian.
pub(crate) fn element_of(dtype: &Bound<'_, PyAny>) -> PyResult<(Type, bool)> {
    let descr = PyArrayDescr::new(dtype.py(), dtype)?;
    let (kind, size) = (descr.kind(), descr.itemsize());
    let found = Type::ALL
        .into_iter()
        .find(|ty| *ty != Type::Char && ty.size().is_some() && (kind, size) == kind_and_size(*ty));
    let found = match (kind, size) {
        (b'i', 1) => Some(Type::Char),
        _ => found,
    };
    let ty = found.ok_or_else(|| {
        let (expected, given) = ("a type of numbers that functions take", descr.to_string());
        error::argument(dtype.py(), "url", "dtype", expected, &given)
    })?;
    let is_native = descr.is_native_byteorder() != Some(false);
    Ok((ty, is_native == cfg!(target_endian = "big")))
}

/// The NumPy type of elements with this name in an interface, in one order of bytes.
pub(crate) fn dtype_of<'py>(
    py: Python<'py>,
    element: &str,
    big_endian: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let mut types = Type::ALL.into_iter();
    let ty = types.find(|ty| ty.name() == element);
    let descr = match ty {
        Some(Type::Char) => PyArrayDescr::new(py, "i1")?,
        ty => dtype(py, ty.unwrap_or(Type::Double))?,
    };
    let order = if big_endian { ">" } else { "<" };
    descr.call_method1("newbyteorder", (order,))
}

/// The NumPy name of an element's type.
pub(crate) fn dtype_name(ty: Type) -> String {
    let name = match kind_and_size(ty) {
        (b'S', _) => return "S1".to_owned(),
        (b'O', _) => return "object".to_owned(),
        (b'i', _) => "int",
        (b'u', _) => "uint",
        (b'f', _) => "float",
        _ => "complex",
    };
    format!("{name}{}", kind_and_size(ty).1 * 8)
}

//! Conversion of Python values to scalar arguments. A value that does not fit the declared type is
//! an error, never rounded.

use crate::{error, texts};
use farcall_idl::{Param, Scalar, Type};
use numpy::{PyArrayDescrMethods, PyUntypedArrayMethods};
use pyo3::exceptions::PyOverflowError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyComplex, PyFloat, PyInt, PyString};

/// The value in the type of the parameter, or an error that says why it does not fit.
pub(crate) fn read(function: &str, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<Scalar> {
    let py = value.py();
    let mismatch = |expected: &str, given: String| {
        error::argument(py, function, &param.name, expected, &given)
    };
    if let Ok(array) = value.cast::<numpy::PyUntypedArray>()
        && crate::array::is_masked(array)?
    {
        return Err(mismatch(expected(param), error::describe(value)));
    }
    let scalar = match param.ty {
        Type::Float | Type::Double | Type::SComplex | Type::DComplex
            if let Some(number) = inexact(param.ty, value) =>
        {
            let name = crate::array::dtype_name(param.ty);
            let number = error::describe(&number);
            let given = format!("{number}, which {name} cannot hold exactly");
            return Err(mismatch(expected(param), given));
        }
        Type::Char => character(value),
        Type::Float | Type::Double => number(value).map(Scalar::Float),
        Type::SComplex | Type::DComplex => complex(value),
        Type::String | Type::Filename if param.is_texts() => {
            texts::of_sequence(value)?.map(Scalar::Texts)
        }
        Type::String => text(value),
        Type::Filename | Type::FilePointer => path(value),
        _ => integer(value),
    };
    let Some(scalar) = scalar else {
        let is_text = param.ty == Type::String && !param.is_texts();
        let expected = match is_text && value.is_instance_of::<PyString>() {
            true => "a str without lone surrogates",
            false => expected(param),
        };
        return Err(mismatch(expected, error::describe(value)));
    };
    let is_null = |text: &str| text == Scalar::NULL_TEXT;
    let has_null = match &scalar {
        Scalar::Text(text) => is_null(text),
        Scalar::Texts(texts) => texts.iter().any(|text| is_null(text)),
        _ => false,
    };
    if has_null {
        return Err(mismatch("texts without NUL", error::describe(value)));
    }
    match scalar.check(param) {
        Ok(()) => Ok(scalar),
        // An integer of more than 64 bits is a text here, but not to the user.
        Err(error) if value.is_instance_of::<PyInt>() => {
            Err(mismatch(&error.expected, value.to_string()))
        }
        Err(error) => Err(mismatch(&error.expected, error.given.into())),
    }
}

/// A description of a scalar of the type, for error messages.
pub(crate) fn expected(param: &Param) -> &'static str {
    match param.ty {
        Type::String | Type::Filename if param.is_texts() => "a sequence of str",
        Type::Char => "one character, or its code",
        Type::Float | Type::Double => "a real number",
        Type::SComplex | Type::DComplex => "a complex number",
        Type::String => "a str",
        Type::Filename | Type::FilePointer => "the path of a file",
        _ => "an integer",
    }
}

/// A text, if UTF-8 can hold it.
fn text(value: &Bound<'_, PyAny>) -> Option<Scalar> {
    let text = value.cast::<PyString>().ok()?;
    Some(Scalar::Text(text.to_str().ok()?.to_owned()))
}

/// An integer of Python or NumPy, never a float.
fn integer(value: &Bound<'_, PyAny>) -> Option<Scalar> {
    if let Ok(value) = value.cast_exact::<PyInt>() {
        // A value of more than 64 bits fits no type; the error shows it as text.
        return Some(
            value
                .extract()
                .map_or_else(|_| Scalar::Text(value.to_string()), Scalar::Int),
        );
    }
    if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyString>() {
        return None;
    }
    match is_numpy(value, "bool_") {
        true => value.is_truthy().ok().map(|is| Scalar::Int(is.into())),
        false => value.extract().ok().map(Scalar::Int),
    }
}

/// A real number. `float()` takes complex numbers of NumPy too, and drops a part of them.
fn number(value: &Bound<'_, PyAny>) -> Option<f64> {
    let is_real = match value.cast::<numpy::PyUntypedArray>() {
        Ok(array) => kind_of_one(array).is_some_and(|kind| b"biuf".contains(&kind)),
        Err(_) if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() => true,
        Err(_) => !is_numpy(value, "complexfloating"),
    };
    is_real.then(|| value.extract().ok()).flatten()
}

/// NumPy's kind of the element of an array without dimensions.
fn kind_of_one(array: &Bound<'_, numpy::PyUntypedArray>) -> Option<u8> {
    let is_one = crate::array::shape(array).is_empty();
    is_one.then(|| array.dtype().kind())
}

/// Whether the value has this class of NumPy.
fn is_numpy(value: &Bound<'_, PyAny>, class: &str) -> bool {
    let class = crate::array::numpy(value.py()).and_then(|numpy| numpy.getattr(class));
    class.is_ok_and(|class| value.is_instance(&class).unwrap_or(false))
}

/// The value, if the type of the parameter, a floating-point type, would round an integer or make a
/// larger number infinite. A number with a fraction is rounded as everywhere.
fn inexact<'py>(ty: Type, value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let index = match value.cast::<PyInt>() {
        Ok(value) => value.clone().into_any(),
        Err(_) if value.is_instance_of::<PyFloat>() => return None,
        Err(_) => match value.call_method0(intern!(value.py(), "__index__")) {
            Ok(index) => index,
            Err(_) => return overflows(value).then(|| value.clone()),
        },
    };
    let Ok(held) = index.extract::<f64>() else {
        return Some(index);
    };
    let held = match ty {
        Type::Float | Type::SComplex => f64::from(held as f32),
        _ => held,
    };
    let is_exact = index.eq(held).unwrap_or(false);
    (!is_exact).then_some(index)
}

/// Whether a number of more bits, such as `numpy.longdouble` or `Decimal`, would become infinite.
fn overflows(value: &Bound<'_, PyAny>) -> bool {
    number(value).is_some_and(|held| held.is_infinite() && !value.eq(held).unwrap_or(false))
}

fn complex(value: &Bound<'_, PyAny>) -> Option<Scalar> {
    if let Ok(value) = value.cast::<PyComplex>() {
        return value
            .extract::<Pair>()
            .ok()
            .map(|Pair(re, im)| Scalar::Complex { re, im });
    }
    if let Some(re) = number(value) {
        return Some(Scalar::Complex { re, im: 0.0 });
    }
    if value.is_instance_of::<PyString>() {
        return None;
    }
    if let Ok(array) = value.cast::<numpy::PyUntypedArray>()
        && kind_of_one(array) != Some(b'c')
    {
        return None;
    }
    value
        .extract::<Pair>()
        .ok()
        .map(|Pair(re, im)| Scalar::Complex { re, im })
}

/// The real and the imaginary part of a value that has them.
struct Pair(f64, f64);

impl<'py> FromPyObject<'_, 'py> for Pair {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Pair> {
        let part = |name: &str| -> PyResult<f64> {
            let part = value.getattr(name)?;
            match overflows(&part) {
                true => Err(PyOverflowError::new_err("too large for a float")),
                false => part.extract(),
            }
        };
        Ok(Pair(part("real")?, part("imag")?))
    }
}

fn character(value: &Bound<'_, PyAny>) -> Option<Scalar> {
    if value.is_instance_of::<PyString>() {
        return text(value);
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let &[code] = bytes.as_bytes() else {
            return None;
        };
        return Some(Scalar::Int(i64::from(code)));
    }
    integer(value)
}

fn path(value: &Bound<'_, PyAny>) -> Option<Scalar> {
    let path: std::path::PathBuf = value.extract().ok()?;
    path.to_str().map(|path| Scalar::Text(path.to_owned()))
}

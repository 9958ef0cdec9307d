//! Arrays of texts of fixed length, which are lists of `str` in Python. `array` handles arrays of
//! numbers. A single `str` is not taken for a sequence of texts.

use crate::error;
use farcall_idl::{ArrayLayout, MOST_TEXTS, Param, read_texts};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

/// A description of what a caller passes, for error messages.
pub(crate) fn expected(param: &Param) -> &'static str {
    match param.mode.is_returned() {
        true => "a list of str",
        false => "a sequence of str",
    }
}

/// The texts of an argument.
pub(crate) fn read(
    function: &str,
    param: &Param,
    value: &Bound<'_, PyAny>,
) -> PyResult<Vec<String>> {
    let is_written = param.mode.is_returned();
    let texts = match is_written && !value.is_instance_of::<PyList>() {
        true => None,
        false => of_sequence(value)?,
    };
    texts.ok_or_else(|| {
        let given = error::describe(value);
        error::argument(value.py(), function, &param.name, expected(param), &given)
    })
}

/// The texts of a list, a tuple, an array of str, or another iterable of texts, but not of a text.
///
/// # Errors
/// That of the iterable itself.
pub(crate) fn of_sequence(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<String>>> {
    if value.is_instance_of::<PyString>() {
        return Ok(None);
    }
    let listed = match value.try_iter() {
        Ok(listed) => listed,
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut texts = Vec::new();
    for text in listed.take(MOST_TEXTS + 1) {
        let text = text?;
        let Some(text) = text
            .cast::<PyString>()
            .ok()
            .and_then(|text| text.to_str().ok())
        else {
            return Ok(None);
        };
        texts.push(text.to_owned());
    }
    Ok(Some(texts))
}

/// Puts texts into the fields of an array.
pub(crate) fn write(
    (param, layout): (&Param, &ArrayLayout),
    texts: &[String],
    fields: &mut [u8],
) -> Result<(), farcall_idl::ScalarError> {
    layout.write_texts(param, texts.iter().map(String::as_bytes), fields)
}

/// The texts of fields of so many bytes. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn list<'py>(
    py: Python<'py>,
    fields: &[u8],
    length: usize,
) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, read_texts(fields, length).map(String::from_utf8_lossy))
}

/// Replaces the contents of a list.
pub(crate) fn fill(list: &Bound<'_, PyAny>, fields: &[u8], length: usize) -> PyResult<()> {
    let list = list.cast::<PyList>()?;
    let texts = self::list(list.py(), fields, length)?;
    list.set_slice(0, list.len(), &texts)
}

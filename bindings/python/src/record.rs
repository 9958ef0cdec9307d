//! Pickles and copies of records: objects that only have values, such as the times of a call. A
//! record leaves as its values, and `_make` of its class makes it again. Objects that have a
//! connection are pickled by `origin`.

use pyo3::prelude::*;

/// How pickle and `copy` make a record again: a function, and its one argument.
pub(crate) type Reduced<'py, Fields> = (Bound<'py, PyAny>, (Fields,));

/// The way to make a record again from its values.
pub(crate) fn reduce<'py, Fields>(
    record: &Bound<'py, PyAny>,
    fields: Fields,
) -> PyResult<Reduced<'py, Fields>> {
    Ok((record.get_type().getattr("_make")?, (fields,)))
}

//! `farcall.url`: an address outside of Farcall that stands for an array. The client sends the
//! address, and the server of a call reads it. This module checks what the client itself must know:
//! the type and the order of the numbers.

use crate::array;
use crate::error;
use farcall_client::Rows;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySlice, PyTuple};

/// Stands for an array at an address outside of Farcall; calls take it as an array. The server of
/// the call reads it.
#[pyclass(frozen, eq, hash, module = "farcall")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Source {
    source: farcall_client::Source,
}

/// An array at an address: `https://...`, `s3://BUCKET/KEY`, `flight://...`, `file:///...`,
/// `folder:NAME` for a file of the server's data folder, or a database with a `query`. The server
/// of the call reads the address, if its operator has named it (`[sources]` in its configuration).
/// The array is converted to the type and the order that the function takes, if that loses nothing.
/// In place of an OUT argument, the server writes the array to the address, and the call returns a
/// `Receipt`; `dtype`, `order` and `columns` then say how it lies there.
///
/// The end of the address says the format (`.npy`, `.csv`, `.raw`), or `format` does. Raw numbers
/// need a `dtype` and, for more than one dimension, a `shape`; `order="F"` if they are in columns.
/// `dtype` is also the type of the numbers of a table, float64 by default. `columns` are names of
/// columns of a table. For other formats, `shape` is the shape that the array must have. `sha256`
/// is the checksum that the bytes of the source must have. `rows=slice(10, 20)` takes a part of the
/// first dimension; of `.npy` and raw files the server reads only this part.
#[pyfunction]
#[pyo3(signature = (
    address, *, dtype=None, shape=None, order=None, columns=None, query=None, format=None,
    rows=None, sha256=None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn url(
    py: Python<'_>,
    address: String,
    dtype: Option<&Bound<'_, PyAny>>,
    shape: Option<Vec<u64>>,
    order: Option<&str>,
    columns: Option<&Bound<'_, PyAny>>,
    query: Option<String>,
    format: Option<String>,
    rows: Option<&Bound<'_, PySlice>>,
    sha256: Option<String>,
) -> PyResult<Source> {
    let given = dtype.map(|dtype| array::element_of(dtype)).transpose()?;
    let column_major = match order {
        None => None,
        Some("C") => Some(false),
        Some("F") => Some(true),
        Some(other) => return Err(error::argument(py, "url", "order", "\"C\" or \"F\"", other)),
    };
    let options = farcall_client::SourceOptions {
        format,
        element: given.map(|(ty, _)| ty.name().to_owned()),
        shape,
        column_major,
        columns: columns.map(names_of).transpose()?,
        query,
        sha256,
        big_endian: given.map(|(_, big_endian)| big_endian),
        rows: rows.map(|rows| rows_of(py, rows)).transpose()?,
    };
    Ok(Source {
        source: farcall_client::Source { address, options },
    })
}

/// The names of columns.
fn names_of(columns: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let names = columns.extract::<Vec<String>>().ok();
    names.filter(|names| !names.is_empty()).ok_or_else(|| {
        let expected = "a list of names, such as [\"rain\"]";
        let given = error::describe(columns);
        error::argument(columns.py(), "url", "columns", expected, &given)
    })
}

/// The rows of a slice. A source says its length only when it is read, so no number counts from its
/// end.
fn rows_of(py: Python<'_>, rows: &Bound<'_, PySlice>) -> PyResult<Rows> {
    let number = |name: &str| rows.getattr(name)?.extract::<Option<u64>>();
    match (number("start"), number("stop"), number("step")) {
        (Ok(begin), Ok(end), Ok(None | Some(1))) => Ok(Rows {
            begin: begin.unwrap_or(0),
            end,
        }),
        _ => {
            let expected = "a slice from the beginning, without a step";
            Err(error::argument(
                py,
                "url",
                "rows",
                expected,
                &rows.to_string(),
            ))
        }
    }
}

/// What a call has written to an address instead of returning the array.
#[pyclass(frozen, get_all, module = "farcall")]
pub(crate) struct Receipt {
    /// The address.
    address: String,
    /// Number of bytes that lie there.
    nbytes: u64,
    /// Their SHA-256 checksum, as 64 hexadecimal digits.
    sha256: String,
    /// Their version there, such as an `ETag`; `None` if the address says none.
    version: Option<String>,
}

impl From<farcall_client::Receipt> for Receipt {
    fn from(receipt: farcall_client::Receipt) -> Receipt {
        Receipt {
            address: receipt.address,
            nbytes: receipt.bytes,
            sha256: receipt.sha256,
            version: receipt.version,
        }
    }
}

#[pymethods]
impl Receipt {
    #[new]
    fn new(address: String, nbytes: u64, sha256: String, version: Option<String>) -> Receipt {
        Receipt {
            address,
            nbytes,
            sha256,
            version,
        }
    }

    /// For `pickle`: results of calls can be pickled, and have receipts.
    fn __getnewargs__(&self) -> (String, u64, String, Option<String>) {
        let Receipt {
            address,
            nbytes,
            sha256,
            version,
        } = self;
        let (address, sha256) = (address.clone(), sha256.clone());
        (address, *nbytes, sha256, version.clone())
    }

    fn __repr__(&self) -> String {
        format!("<{} bytes at {}>", self.nbytes, self.address)
    }
}

#[pymethods]
impl Source {
    /// The address.
    #[getter]
    fn address(&self) -> &str {
        &self.source.address
    }

    /// For NumPy, which would make an array that has this object: servers read the address.
    #[pyo3(signature = (*_args, **_options))]
    fn __array__(
        &self,
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let name = self.__repr__(py)?;
        let get = format!("server.put({name}).get()");
        Err(array::not_here(
            &name,
            "is an address that servers read",
            &get,
        ))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let keywords = self.keywords(py)?;
        let url = py.import("farcall")?.getattr("url")?;
        let partial = py.import("functools")?.getattr("partial")?;
        let make = partial.call((url,), Some(&keywords))?;
        let reduced = (make, (&self.source.address,)).into_pyobject(py)?;
        Ok(reduced.into_any())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = format!("farcall.url({:?}", self.source.address);
        for (name, value) in self.keywords(py)?.iter() {
            let name = name.extract::<String>()?;
            let value = match name.as_str() {
                "dtype" => value.getattr("str")?,
                _ => value,
            };
            text += &format!(", {name}={}", value.repr()?);
        }
        Ok(text + ")")
    }
}

impl Source {
    /// The options that were given, as keywords of `url`.
    fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = &self.source.options;
        let keywords = PyDict::new(py);
        if let Some(element) = &options.element {
            let dtype = array::dtype_of(py, element, options.big_endian == Some(true))?;
            keywords.set_item("dtype", dtype)?;
        }
        if let Some(shape) = &options.shape {
            keywords.set_item("shape", shape)?;
        }
        if let Some(columns) = options.column_major {
            keywords.set_item("order", if columns { "F" } else { "C" })?;
        }
        if let Some(columns) = &options.columns {
            keywords.set_item("columns", columns)?;
        }
        if let Some(query) = &options.query {
            keywords.set_item("query", query)?;
        }
        if let Some(format) = &options.format {
            keywords.set_item("format", format)?;
        }
        if let Some(Rows { begin, end }) = options.rows {
            let slice = py.import("builtins")?.getattr("slice")?;
            keywords.set_item("rows", slice.call1((begin, end))?)?;
        }
        if let Some(sha256) = &options.sha256 {
            keywords.set_item("sha256", sha256)?;
        }
        Ok(keywords)
    }

    pub(crate) fn client(&self) -> &farcall_client::Source {
        &self.source
    }
}

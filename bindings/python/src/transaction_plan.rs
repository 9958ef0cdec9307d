//! Plans: transactions that are saved as text. The crate `plan` reads the text, and
//! `farcall_client` runs the calls. Running a plan from Python writes no file.

use crate::array;
use crate::error;
use crate::handle;
use crate::origin;
use crate::server::{Server, Servers};
use farcall_client::{ArrayForm, Playback};
use farcall_idl::{Order, Type};
use farcall_plan::{MOST_BYTES, Plan, data};
use numpy::PyUntypedArray;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A plan: a transaction that is saved as text. `Transaction.save` writes a plan, and
/// `farcall.load_plan` reads it.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct TransactionPlan {
    plan: Plan,
    path: PathBuf,
}

/// Reads a plan, which `Transaction.save` or a person has written.
#[pyfunction]
pub(crate) fn load_plan(path: PathBuf) -> PyResult<TransactionPlan> {
    let wrong = |text: String| PyValueError::new_err(format!("{}: {text}", path.display()));
    let named = |error: std::io::Error| {
        PyErr::from(std::io::Error::new(
            error.kind(),
            format!("{}: {error}", path.display()),
        ))
    };
    if std::fs::metadata(&path).map_err(named)?.len() > MOST_BYTES as u64 {
        return Err(wrong(format!("it has more than {MOST_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(&path).map_err(named)?;
    let plan = Plan::parse(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(TransactionPlan { plan, path })
}

#[pymethods]
impl TransactionPlan {
    /// The functions that the plan calls, in order.
    #[getter]
    fn calls(&self) -> Vec<String> {
        let calls = self.plan.calls.iter();
        calls.map(|call| call.function.clone()).collect()
    }

    /// The arrays that come from files, with these files.
    #[getter]
    fn inputs(&self) -> BTreeMap<String, String> {
        self.plan.inputs.clone()
    }

    /// The arrays that the calls make, with the files for them.
    #[getter]
    fn outputs(&self) -> BTreeMap<String, String> {
        self.plan.outputs.clone()
    }

    /// Runs the plan on a list of servers or on one, or on all servers behind a metaserver, and
    /// returns its outputs by name. It writes no file. `arrays` replaces inputs that come from
    /// files.
    #[pyo3(signature = (servers, arrays=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        servers: Servers<'py>,
        arrays: Option<BTreeMap<String, Bound<'py, PyAny>>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Servers(servers) = servers;
        let arrays = arrays.unwrap_or_default();
        let known = &self.plan.inputs;
        if let Some(name) = arrays.keys().find(|name| !known.contains_key(*name)) {
            let text = format!("the plan has no input `{name}`; it has: {:?}", known.keys());
            return Err(PyValueError::new_err(text));
        }
        let clients = servers.iter().map(|server| server.get().client().clone());
        let clients: Vec<_> = clients.collect();
        let arrays = arrays
            .into_iter()
            .map(|(name, array)| (name, array.unbind()));
        let arrays: BTreeMap<String, Py<PyAny>> = arrays.collect();
        let first = servers.first().map(|server| server.clone().unbind());
        let mut failed = None;
        // Servers are asked without the interpreter.
        let recorded = py.detach(|| {
            let mut load = |name: &str, form: &ArrayForm| {
                Python::attach(|py| {
                    let given = arrays.get(name).map(|array| array.bind(py));
                    let server = first.as_ref().map(|server| server.bind(py));
                    let loaded = self.load(py, (given, server), name, form);
                    loaded.map_err(|error| {
                        let text = error.to_string();
                        failed = Some(error);
                        text
                    })
                })
            };
            Playback::record(&self.plan, &clients, &mut load)
        });
        let mut playback = match (recorded, failed) {
            (Ok(playback), _) => playback,
            (Err(_), Some(error)) => return Err(error),
            (Err(error), None) => return Err(error::from_client(py, &error)),
        };
        origin::ask(py, || playback.run())?;
        let results = PyDict::new(py);
        for name in self.plan.outputs.keys() {
            if let Some((form, bytes)) = playback.output(name) {
                results.set_item(name, made(py, form, bytes)?)?;
            }
        }
        Ok(results)
    }

    fn __str__(&self) -> String {
        self.plan.to_string()
    }

    fn __repr__(&self) -> String {
        let calls = self.plan.calls.len();
        format!("<transaction plan {}: {calls} calls>", self.path.display())
    }
}

impl TransactionPlan {
    /// The elements of an input in the form that a call needs.
    fn load(
        &self,
        py: Python<'_>,
        (given, server): (Option<&Bound<'_, PyAny>>, Option<&Bound<'_, Server>>),
        name: &str,
        form: &ArrayForm,
    ) -> PyResult<Vec<u8>> {
        let numpy = array::numpy(py)?;
        let value = match given {
            Some(value) => numpy.call_method1(intern!(py, "asarray"), (value,))?,
            None if let Some(data) = self.plan.inputs.get(name).and_then(|file| data(file)) => {
                let name = handle::data_name(data)?;
                let server = server.ok_or_else(|| {
                    PyValueError::new_err("there is no server: give at least one")
                })?;
                server.get().of_data(py, &name)?.get(py)?.into_any()
            }
            None => {
                let folder = self.path.parent().map(PathBuf::from).unwrap_or_default();
                let file = self.plan.inputs.get(name).map(|file| folder.join(file));
                numpy.call_method1(intern!(py, "load"), (file,))?
            }
        };
        let shape: Vec<u64> = value.getattr(intern!(py, "shape"))?.extract()?;
        let long = |shape: &[u64]| -> Vec<u64> {
            let lengths = shape.iter().copied();
            lengths.filter(|length| *length != 1).collect()
        };
        if !form.shape.is_empty() && long(&shape) != long(&form.shape) {
            let expected = &form.shape;
            let text = format!("`{name}`: expected shape {expected:?}, given {shape:?}");
            return Err(PyValueError::new_err(text));
        }
        let ty = form
            .ty()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        if let Ok(array) = value.cast::<PyUntypedArray>()
            && let Some(lost) = array::lost(given.unwrap_or(&value), array, ty)?
        {
            let text = format!("`{name}`: {lost}");
            return Err(PyValueError::new_err(text));
        }
        let options = PyDict::new(py);
        options.set_item("order", if form.column_major { "F" } else { "C" })?;
        options.set_item("casting", "safe")?;
        // NumPy has texts for char arrays, but numbers in their files.
        let is_char = ty == Type::Char;
        let dtype = if is_char {
            "int8".to_string()
        } else {
            array::dtype_name(ty)
        };
        let kind: String = value
            .getattr(intern!(py, "dtype"))?
            .getattr("str")?
            .extract()?;
        let value = match is_char && kind == "|S1" {
            true => value.call_method1(intern!(py, "view"), ("int8",))?,
            false => value,
        };
        let arguments = (dtype.as_str(),);
        let converted = value.call_method(intern!(py, "astype"), arguments, Some(&options));
        let converted = converted.map_err(|error| unfit(py, name, &dtype, error))?;
        let converted: Bound<'_, PyUntypedArray> = converted.cast_into()?;
        // SAFETY: the array was made here, or is held, and is read with the interpreter held.
        Ok(unsafe { array::contents(&converted) }.to_vec())
    }
}

/// The error of an input that cannot have the type of the plan.
fn unfit(py: Python<'_>, name: &str, dtype: &str, error: PyErr) -> PyErr {
    match error.is_instance_of::<PyTypeError>(py) {
        true => {
            let why = error.value(py);
            PyValueError::new_err(format!("`{name}`: expected {dtype}: {why}"))
        }
        false => error,
    }
}

/// A NumPy array of that form with these elements.
pub(crate) fn made<'py>(
    py: Python<'py>,
    form: &ArrayForm,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyUntypedArray>> {
    let shape: Vec<usize> = form.shape.iter().map(|&size| size as usize).collect();
    let order = match form.column_major {
        true => Order::ColumnMajor,
        false => Order::RowMajor,
    };
    let ty = form
        .ty()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let made = array::empty(py, &shape, ty, order)?;
    // SAFETY: the array is new.
    unsafe { array::contents_mut(&made) }.copy_from_slice(bytes);
    Ok(made)
}

//! Callbacks: Python callables that a remote function calls while it runs. The client runs them on
//! the thread that waits for the call. A callable that fills none of its OUT arguments and returns
//! nothing is an error.

use crate::transaction::{self, Inside};
use crate::{array, error};
use farcall_client::{CallbackArguments, CallbackError, Scalar};
use farcall_idl::{Interface, Mode, Type};
use numpy::PyUntypedArray;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyFloat, PyInt, PyList, PyString, PyTuple};

/// A callable of the caller for a callback.
pub(crate) struct Callable {
    callable: Py<PyAny>,
    /// Whether it takes the OUT arguments, which it may fill. Otherwise it returns them.
    takes_out: bool,
    /// The transaction of its call.
    transaction: Option<usize>,
}

impl Callable {
    /// Looks at how many arguments a callable takes.
    pub(crate) fn new(
        callable: &Bound<'_, PyAny>,
        callback: &farcall_idl::Callback,
    ) -> PyResult<Callable> {
        let params = &callback.params;
        let out = params.iter().filter(|param| param.mode == Mode::Out);
        let takes_out = match out.count() {
            0 => true,
            out => takes_out(callable, callback.passed(), out)?,
        };
        let transaction = transaction::active(callable.py());
        Ok(Callable {
            callable: callable.clone().unbind(),
            takes_out,
            transaction: transaction.map(|transaction| transaction.get().identity()),
        })
    }

    /// Runs it: numbers and texts go by value, arrays as new arrays. The contents of OUT and INOUT
    /// arrays go back, or what it returns for the OUT arrays.
    pub(crate) fn run(&self, arguments: &mut CallbackArguments<'_>) -> Result<(), CallbackError> {
        let _inside = self.transaction.map(Inside::new);
        Python::attach(|py| self.call(py, arguments)).map_err(Into::into)
    }
}

fn takes_out(callable: &Bound<'_, PyAny>, all: usize, out: usize) -> PyResult<bool> {
    let py = callable.py();
    let module = py.import(intern!(py, "farcall._callbacks"))?;
    let takes = module.call_method1(intern!(py, "takes_out"), (callable, all, out))?;
    takes.extract()
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

impl Callable {
    fn call(&self, py: Python<'_>, arguments: &mut CallbackArguments<'_>) -> PyResult<()> {
        let interface = arguments.interface();
        let mut values = Vec::with_capacity(interface.params.len());
        let mut written: Vec<Filled<'_>> = Vec::new();
        for (index, param) in interface.params.iter().enumerate() {
            if !param.is_passed() {
                continue;
            }
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
                written.push(Filled {
                    param: index,
                    array: array.clone(),
                });
            }
            if param.mode != Mode::Out || self.takes_out {
                values.push(array.into_any());
            }
        }
        let callable = self.callable.bind(py);
        let returned = callable.call1(PyTuple::new(py, values)?)?;
        let out: Vec<&Filled<'_>> = written
            .iter()
            .filter(|filled| interface.params[filled.param].mode == Mode::Out)
            .collect();
        match returned.is_none() {
            true => self.check_filled(callable, interface, &out, arguments)?,
            false => store(&returned, interface, &out, arguments)?,
        }
        for Filled { param, array } in written {
            array::copy_out(&array, arguments.array(param));
        }
        Ok(())
    }

    /// Makes sure that a callable that returned None had a way to fill its OUT arguments.
    fn check_filled(
        &self,
        callable: &Bound<'_, PyAny>,
        interface: &Interface,
        out: &[&Filled<'_>],
        arguments: &mut CallbackArguments<'_>,
    ) -> PyResult<()> {
        let py = callable.py();
        if out.is_empty() {
            return Ok(());
        }
        if self.takes_out {
            for filled in out {
                if filled.is_changed(arguments) {
                    return Ok(());
                }
                let module = py.import(intern!(py, "farcall._callbacks"))?;
                let ignores = (callable, filled.param);
                let ignores = module.call_method1(intern!(py, "ignores"), ignores)?;
                if !ignores.extract::<bool>()? {
                    return Ok(());
                }
            }
        }
        Err(PyTypeError::new_err(format!(
            "it returned None and did not fill {}: return a value for each OUT argument, or take \
             the OUT arguments and fill them, {}",
            names(interface, out),
            fill(interface, out)
        )))
    }
}

/// An array that the callable may have filled.
struct Filled<'py> {
    param: usize,
    array: Bound<'py, PyUntypedArray>,
}

impl Filled<'_> {
    /// Whether it has other bytes than it was made with.
    fn is_changed(&self, arguments: &mut CallbackArguments<'_>) -> bool {
        let before = arguments.array(self.param);
        // SAFETY: the array is contiguous and held with the interpreter.
        unsafe { array::contents(&self.array) != before }
    }
}

/// Stores what a callable has returned in its OUT arguments.
fn store(
    returned: &Bound<'_, PyAny>,
    interface: &Interface,
    out: &[&Filled<'_>],
    arguments: &mut CallbackArguments<'_>,
) -> PyResult<()> {
    let refuse = |text: String| Err(PyTypeError::new_err(text));
    let values: Vec<Bound<'_, PyAny>> = match out {
        [] => {
            return refuse(format!(
                "it returned {}, but it has no OUT argument: return None",
                error::describe(returned)
            ));
        }
        [_] => vec![returned.clone()],
        _ => match returned.cast::<PyTuple>() {
            Ok(values) if values.len() == out.len() => values.iter().collect(),
            _ => {
                return refuse(format!(
                    "it returned {}, expected a tuple with values for {}; or return None and fill \
                     them, {}",
                    error::describe(returned),
                    names(interface, out),
                    fill(interface, out)
                ));
            }
        },
    };
    for (filled, value) in out.iter().zip(values) {
        let param = &interface.params[filled.param];
        if value.is(&filled.array) {
            continue;
        }
        let was_changed = filled.is_changed(arguments);
        // SAFETY: the array is contiguous and held with the interpreter.
        let before = was_changed.then(|| unsafe { array::contents(&filled.array) }.to_vec());
        array::store(param, &filled.array, &value)?;
        // SAFETY: as above.
        let after = unsafe { array::contents(&filled.array) };
        if before.is_some_and(|before| before != after) {
            return refuse(format!(
                "it filled `{}` and returned {} for it: do one of the two",
                param.name,
                error::describe(&value)
            ));
        }
    }
    Ok(())
}

fn names(interface: &Interface, out: &[&Filled<'_>]) -> String {
    let name = |filled: &&Filled<'_>| format!("`{}`", interface.params[filled.param].name);
    out.iter().map(name).collect::<Vec<_>>().join(" and ")
}

/// How the first of the arguments is filled.
fn fill(interface: &Interface, out: &[&Filled<'_>]) -> String {
    let name = out
        .first()
        .map_or("", |filled| &interface.params[filled.param].name);
    format!("as in `{name}[...] = value`")
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

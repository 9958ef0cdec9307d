//! A worker process whose functions are Python's. The crate `worker` talks to the server; this
//! module calls the Python functions with NumPy views of the call's memory. A function that keeps a
//! view after its call fails, because the memory belongs to the next call.

use crate::{array, texts};
use callback::{Callback, Line};
use farcall_idl::{ArrayLayout, Body, Document, Interface, Layout, Mode, Passed, Scalar, Type};
use farcall_worker::{Callee, Caller, Failure, FailureKind, Source, run_worker_for};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList, PyTuple};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod callback;

/// How a memory view may be used, as Python's stable ABI numbers it.
const READ: i32 = 0x100;
const WRITE: i32 = 0x200;

/// Runs a worker in this process, which a server has started. `bind(path)` returns a callable for
/// each function of a module; it takes (arguments, results).
#[pyfunction]
pub(crate) fn run_worker(py: Python<'_>, bind: Py<PyAny>) -> PyResult<()> {
    let load = |source: &Source, document: &Document, _: Option<&Path>| {
        refuse_streams(document).map_err(|error| format!("{}: {error}", source.path.display()))?;
        Python::attach(|py| {
            let functions = bind.call1(py, (source.path.as_path(),));
            let functions = functions.and_then(|list| list.extract::<Vec<Py<PyAny>>>(py));
            let functions = functions
                .map_err(|error| format!("{}: {}", source.path.display(), error.value(py)))?;
            Ok(Functions(functions))
        })
    };
    Ok(py.detach(|| run_worker_for(load))?)
}

/// Python cannot use a stream of the C library.
fn refuse_streams(document: &Document) -> Result<(), String> {
    let is_stream = |param: &farcall_idl::Param| param.ty == Type::FilePointer;
    let mut functions = document.functions();
    match functions.find(|function| function.params.iter().any(is_stream)) {
        None => Ok(()),
        Some(function) => Err(format!(
            "`{}` has a parameter of type filepointer, which Python cannot use; use filename",
            function.name
        )),
    }
}

/// By index of the interface.
struct Functions(Vec<Py<PyAny>>);

impl Callee for Functions {
    unsafe fn invoke(
        &self,
        function: usize,
        interface: &Interface,
        scalars: &[Option<Scalar>],
        layout: &Layout,
        starts: &[*mut u8],
        caller: &mut Caller<'_>,
    ) -> Result<(), Failure> {
        let failed = |text: String| Failure::new(FailureKind::FunctionFailed, text);
        let Some(callable) = self.0.get(function) else {
            return Err(failed("is no longer in the module".to_string()));
        };
        Python::attach(|py| {
            // SAFETY: the caller's promise; `check_release` makes sure that nothing keeps them.
            let memory = unsafe { memory(py, layout, starts) };
            let memory = memory.map_err(|error| failed(error.to_string()))?;
            // SAFETY: it is closed as soon as the function has returned.
            let line = unsafe { Line::open(caller) };
            let called = call(py, callable, (interface, scalars, layout), &memory, &line);
            // SAFETY: as above.
            let called = called.and_then(|lists| unsafe { lists.store(interface, layout, starts) });
            py.detach(|| line.close());
            let called = called.map_err(|error| failed(error.value(py).to_string()));
            let released = check_release(py, interface, layout, &memory);
            called.and(released.map_err(failed))
        })
    }

    fn library(&self, _: usize) -> Option<String> {
        Python::attach(|py| {
            let version = array::numpy(py).and_then(|numpy| numpy.getattr("__version__"));
            let numpy =
                version.map_or_else(|_| String::new(), |version| format!(", NumPy {version}"));
            let python = py.version_info();
            let (major, minor, patch) = (python.major, python.minor, python.patch);
            Some(format!("Python {major}.{minor}.{patch}{numpy}"))
        })
    }

    /// `os.environ` is a copy of the environment. Through its methods, the C library would keep
    /// every value for ever, so this changes the copy alone if it can.
    fn enter_trace(&self, traceparent: Option<&str>) {
        const NAME: &str = "TRACEPARENT";
        // A trace never fails a call.
        let _ = Python::attach(|py| -> PyResult<()> {
            let environ = py
                .import(intern!(py, "os"))?
                .getattr(intern!(py, "environ"))?;
            match (environ.getattr(intern!(py, "_data")), traceparent) {
                (Ok(data), Some(value)) => data.set_item(NAME.as_bytes(), value.as_bytes()),
                (Ok(data), None) => data.del_item(NAME.as_bytes()),
                (Err(_), Some(value)) => environ.set_item(NAME, value),
                (Err(_), None) => environ.del_item(NAME),
            }
        });
    }

    /// The folders of the modules that functions import when they run.
    fn folders(&self) -> Vec<PathBuf> {
        let folders = Python::attach(|py| {
            let sys = py.import(intern!(py, "sys"))?;
            let mut folders: Vec<PathBuf> = Vec::new();
            for folder in sys.getattr(intern!(py, "path"))?.try_iter()? {
                folders.extend(folder?.extract::<PathBuf>());
            }
            for prefix in ["prefix", "base_prefix", "exec_prefix"] {
                folders.push(sys.getattr(prefix)?.extract()?);
            }
            PyResult::Ok(folders)
        });
        folders.unwrap_or_default()
    }
}

/// The memory of each array as a NumPy array of one dimension; IN arrays are read-only.
///
/// # Safety
/// As [`Callee::invoke`]; nothing may use the arrays after the call.
unsafe fn memory<'py>(
    py: Python<'py>,
    layout: &Layout,
    starts: &[*mut u8],
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let numpy = array::numpy(py)?;
    let flat = |(array, start): (&ArrayLayout, &*mut u8)| {
        let access = match array.mode {
            Mode::In => READ,
            _ => WRITE,
        };
        // SAFETY: the memory is good for that many bytes until the call returns. The function
        // returns a new reference or null with an exception set.
        let view = unsafe {
            let view =
                ffi::PyMemoryView_FromMemory(start.cast(), array.bytes as ffi::Py_ssize_t, access);
            Bound::from_owned_ptr_or_err(py, view)?
        };
        let dtype = array::dtype(py, array.element)?;
        numpy.call_method1(intern!(py, "frombuffer"), (view, dtype))
    };
    layout.arrays.iter().zip(starts).map(flat).collect()
}

fn call<'py>(
    py: Python<'py>,
    callable: &Py<PyAny>,
    (interface, scalars, layout): (&Interface, &[Option<Scalar>], &Layout),
    memory: &[Bound<'py, PyAny>],
    line: &Arc<Line>,
) -> PyResult<Lists<'py>> {
    let mut lists = Lists(Vec::new());
    let mut values: Vec<Option<Bound<'py, PyAny>>> = scalars
        .iter()
        .map(|value| value.as_ref().map(|value| scalar(py, value)).transpose())
        .collect::<PyResult<_>>()?;
    for (index, (array, flat)) in layout.arrays.iter().zip(memory).enumerate() {
        values[array.param] = Some(match array.element {
            Type::FixedString => lists.add(index, array, flat)?,
            _ => shaped(array, flat)?,
        });
    }
    for index in 0..interface.callbacks.len() {
        let callback = Callback::new(line.clone(), interface, index, scalars);
        values.push(Some(Bound::new(py, callback)?.into_any()));
    }
    let value = |param: &usize| values.get(*param).cloned().flatten();
    let Body::Calls { args, .. } = &interface.body else {
        return Ok(lists);
    };
    let args: Vec<usize> = args.iter().filter_map(Passed::param).collect();
    let arguments = PyList::new(py, args.iter().map(value))?;
    let is_returned =
        |param: &usize| interface.params[*param].mode == Mode::Out && !args.contains(param);
    let returned = (0..interface.params.len()).filter(is_returned);
    let results = returned.map(|param| (&interface.params[param].name, value(&param)));
    let results = results.collect::<Vec<_>>();
    callable.call1(py, (arguments, PyTuple::new(py, results)?))?;
    Ok(lists)
}

/// The texts that a call returns: the index of each array, and its list.
struct Lists<'py>(Vec<(usize, Bound<'py, PyList>)>);

impl<'py> Lists<'py> {
    /// The list for an array of texts.
    fn add(
        &mut self,
        index: usize,
        array: &ArrayLayout,
        flat: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let fields: Vec<u8> = flat
            .call_method0(intern!(flat.py(), "tobytes"))?
            .extract()?;
        let length = array.text_length();
        let list = match array.mode.is_sent() {
            true => texts::list(flat.py(), &fields, length)?,
            false => PyList::new(flat.py(), vec![""; array.text_count()])?,
        };
        if array.mode.is_returned() {
            self.0.push((index, list.clone()));
        }
        Ok(list.into_any())
    }

    /// Copies the texts of the lists into the memory of the call.
    ///
    /// # Safety
    /// As [`Callee::invoke`].
    unsafe fn store(
        self,
        interface: &Interface,
        layout: &Layout,
        starts: &[*mut u8],
    ) -> PyResult<()> {
        for (index, list) in self.0 {
            let array = &layout.arrays[index];
            let param = &interface.params[array.param];
            let refuse = |text: String| Err(PyValueError::new_err(text));
            let Some(given) = texts::of_sequence(list.as_any())? else {
                return refuse(format!(
                    "put a value that is not a str into `{}`",
                    param.name
                ));
            };
            // SAFETY: the caller's promise; the function has returned.
            let fields =
                unsafe { std::slice::from_raw_parts_mut(starts[index], array.bytes as usize) };
            if let Err(error) = texts::write((param, array), &given, fields) {
                return refuse(format!("returned texts that do not fit: {error}"));
            }
        }
        Ok(())
    }
}

fn scalar<'py>(py: Python<'py>, value: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Scalar::Int(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Complex { re, im } => PyComplex::from_doubles(py, *re, *im).into_any(),
        Scalar::Text(text) => text.as_str().into_pyobject(py)?.into_any(),
        Scalar::Texts(texts) => PyList::new(py, texts)?.into_any(),
    })
}

/// The array in its declared size.
fn shaped<'py>(array: &ArrayLayout, flat: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = flat.py();
    let shape = PyTuple::new(py, array.axes.iter().map(|axis| axis.size))?;
    flat.call_method1(intern!(py, "reshape"), (shape,))
}

/// Fails if the function has kept an array: its memory belongs to another call from now on.
fn check_release(
    py: Python<'_>,
    interface: &Interface,
    layout: &Layout,
    memory: &[Bound<'_, PyAny>],
) -> Result<(), String> {
    // Each view of an array has a reference to it.
    // SAFETY: the arrays are alive, and the interpreter is held.
    let references = |flat: &Bound<'_, PyAny>| unsafe { ffi::Py_REFCNT(flat.as_ptr()) };
    let kept = || memory.iter().position(|flat| references(flat) > 1);
    if kept().is_none() {
        return Ok(());
    }
    // A reference cycle, and not the function, may hold it.
    let collected = py.import("gc").and_then(|gc| gc.call_method0("collect"));
    let Some(index) = kept() else { return Ok(()) };
    let name = &interface.params[layout.arrays[index].param].name;
    let why = collected.map_or_else(|error| format!(" ({error})"), |_| String::new());
    Err(format!(
        "keeps its argument `{name}` after the call; it must keep a copy ({name}.copy()){why}"
    ))
}

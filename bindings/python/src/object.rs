//! Remote objects. Methods of their class are attributes; `close` or the end of a `with` block
//! releases the object.

use crate::function::Function;
use crate::origin::Origin;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A remote object, which `server.new` has made. Its methods are attributes; call them like
/// functions. They run one after the other. The object is destroyed by `close`, at the end of a
/// `with` block, when the program deletes it, and when the connection ends. None of these destroys
/// a persistent object, only `server.drop_object`.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Object {
    client: farcall_client::Object,
    /// The id of a persistent object.
    id: Option<farcall_client::HandleId>,
    origin: Origin,
    methods: Mutex<HashMap<String, Py<Function>>>,
}

impl Object {
    pub(crate) fn new(
        client: farcall_client::Object,
        id: Option<farcall_client::HandleId>,
        origin: Origin,
    ) -> Object {
        Object {
            client,
            id,
            origin,
            methods: Mutex::default(),
        }
    }
}

#[pymethods]
impl Object {
    /// The id of a persistent object, by which `server.object(id)` finds it, else `None`.
    #[getter]
    fn id(&self) -> Option<String> {
        self.id.map(|id| id.to_string())
    }

    /// The function handle of a method.
    fn method<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Function>> {
        self.origin.check(py)?;
        let known = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(name) {
            return Ok(known.bind(py).clone());
        }
        drop(known);
        let client = self.origin.ask(py, || self.client.method(name))?;
        let method = Function::new(client, self.origin.clone());
        let method = Bound::new(py, method)?;
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        methods.insert(name.to_owned(), method.clone().unbind());
        Ok(method)
    }

    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Function>> {
        // Python and notebooks look for special names, which no server has.
        if name.starts_with('_') {
            return Err(PyAttributeError::new_err(name.to_owned()));
        }
        self.method(py, name).map_err(|error| {
            let unknown = error.is_instance_of::<pyo3::exceptions::PyLookupError>(py);
            match unknown {
                true => PyAttributeError::new_err(error.value(py).to_string()),
                false => error,
            }
        })
    }

    /// The names of the methods.
    fn __dir__(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let functions = self.origin.ask(py, || self.client.server().functions())?;
        let class = self.client.class().rsplit('/').next().unwrap_or("");
        let method = |name: &str| {
            let (_, name) = name.rsplit_once('/').unwrap_or(("", name));
            let (of, name) = name.split_once('.')?;
            (of == class).then(|| name.to_owned())
        };
        let mut names = vec!["close".to_owned(), "method".to_owned()];
        names.extend(functions.iter().filter_map(|each| method(&each.name)));
        Ok(names)
    }

    /// Destroys the object. The server ends a method that runs, and later calls fail.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.client.close());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if let Some(id) = self.id {
            return self.origin.reduce(py, "object", Some(&id.to_string()));
        }
        let text =
            "a remote object belongs to its connection and cannot be pickled; a persistent one can";
        Err(PyTypeError::new_err(text))
    }

    fn __repr__(&self) -> String {
        let server = self.client.server();
        format!(
            "<object of {} at {}>",
            self.client.class(),
            server.address()
        )
    }
}

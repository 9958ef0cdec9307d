//! Stored arrays and named data as Python objects. A handle that owns its array drops it when the
//! last reference goes.

use crate::array;
use crate::error;
use crate::origin::{self, Origin};
use crate::server::Server;
use crate::source::{Receipt, Source};
use farcall_client::{Argument, ArrayForm, DataName, DataStatus, Error, HandleId, NoName};
use farcall_idl::{ArrayLayout, Order, Param, Type};
use numpy::{PyArrayDescr, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};

/// The handle of a stored array, which calls take as an array. Calls use the array in the order in
/// which they are made. The server drops the array after `drop`, when the program deletes the
/// handle that stored it, when the connection ends, or a day after its last use. If the array was
/// stored with `stays`, only `drop` and the time since its last use count.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Handle {
    client: farcall_client::Handle,
    origin: Origin,
    /// The array is dropped with this object.
    is_owned: AtomicBool,
}

/// Stands for an OUT or INOUT argument whose array remains at the server. The result of the call
/// has its handle.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Keep {
    stays: bool,
}

/// For an OUT or INOUT argument of a call: the array remains at the server as a stored array, and
/// the result of the call has its handle. An INOUT argument reads zeros. With `stays`, the server
/// keeps the array after the connection ends.
#[pyfunction]
#[pyo3(signature = (*, stays=false))]
pub(crate) fn keep(stays: bool) -> Keep {
    Keep { stays }
}

#[pymethods]
impl Keep {
    fn __repr__(&self) -> &'static str {
        match self.stays {
            true => "farcall.keep(stays=True)",
            false => "farcall.keep()",
        }
    }
}

impl Keep {
    /// Makes the array at the server that the call fills.
    pub(crate) fn make(
        &self,
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        param: &Param,
        (layout, order): (&ArrayLayout, Order),
    ) -> PyResult<Handle> {
        let form = ArrayForm {
            element: param.ty.name().to_owned(),
            shape: layout.shape(order),
            column_major: order == Order::ColumnMajor,
        };
        let client = origin::ask(py, || server.put(form, &[], self.stays))?;
        Ok(Handle::new(client, origin, !self.stays))
    }
}

impl Handle {
    pub(crate) fn new(client: farcall_client::Handle, origin: Origin, is_owned: bool) -> Handle {
        Handle {
            client,
            origin,
            is_owned: AtomicBool::new(is_owned),
        }
    }

    /// Stores an array at a server.
    pub(crate) fn put(
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        value: &Bound<'_, PyAny>,
        order: Option<&str>,
        (stays, name, shared): (bool, Option<&str>, bool),
    ) -> PyResult<Handle> {
        let (array, ty, column_major) = array::to_put(value, order)?;
        let form = ArrayForm {
            element: ty.name().to_owned(),
            shape: array::shape(&array)
                .iter()
                .map(|&size| size as u64)
                .collect(),
            column_major,
        };
        // SAFETY: this function holds the array. Nothing writes to it meanwhile: that is the
        // contract of every call.
        let bytes = unsafe { array::contents(&array) };
        let client = origin::ask(py, || match name {
            None => server.put(form, bytes, stays),
            Some(name) => server.put_named(form, bytes, name, shared),
        })?;
        let is_owned = !stays && name.is_none();
        Ok(Handle::new(client, origin, is_owned))
    }

    /// Makes a server read a source.
    pub(crate) fn of_source(
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        source: &farcall_client::Source,
        (order, stays): (Option<&str>, bool),
    ) -> PyResult<Handle> {
        let form = ArrayForm {
            element: String::new(),
            shape: Vec::new(),
            column_major: match order {
                None | Some("C") => false,
                Some("F") => true,
                Some(other) => {
                    let expected = "\"C\" or \"F\"";
                    return Err(error::argument(py, "put", "order", expected, other));
                }
            },
        };
        let (client, is_own) = origin::ask(py, || server.read_source(source, form, stays))?;
        Ok(Handle::new(client, origin, is_own))
    }

    /// The named data of a name.
    pub(crate) fn of_data(
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        name: &DataName,
    ) -> PyResult<Handle> {
        let client = origin::ask(py, || server.data(name))?;
        Ok(Handle::new(client, origin, false))
    }

    /// The stored array with an id that a user gives.
    pub(crate) fn named(
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        id: &str,
    ) -> PyResult<Handle> {
        let id: HandleId = id
            .parse()
            .map_err(|_| error::argument(py, "handle", "id", "32 hexadecimal digits", id))?;
        let client = origin::ask(py, || server.handle(id))?;
        Ok(Handle::new(client, origin, false))
    }

    /// The argument for a call at its own server.
    pub(crate) fn argument(&self) -> Argument<'static> {
        self.client.argument(&self.client.server())
    }

    /// Whether the array is at that server.
    pub(crate) fn is_at(&self, server: &farcall_client::Server) -> bool {
        self.client.address() == server.address()
    }

    fn ty(&self) -> Type {
        self.client.form().ty().unwrap_or(Type::Char)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&farcall_client::Handle) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.origin.ask(py, || question(&self.client))
    }
}

#[pymethods]
impl Handle {
    /// The id of the array, 32 hexadecimal digits; `server.handle(id)` finds the array by it.
    #[getter]
    fn id(&self) -> String {
        self.client.id().to_string()
    }

    /// The name of named data, else `None`; with `@` and the owner if another user owns them.
    #[getter]
    fn name(&self) -> Option<String> {
        let named = self.client.name()?;
        Some(match named.own {
            true => named.name.name.clone(),
            false => named.name.to_string(),
        })
    }

    /// The version of named data: 1, 2, ...
    #[getter]
    fn version(&self) -> Option<u64> {
        self.client.name().map(|named| named.version)
    }

    /// The shape of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.client.form().shape)
    }

    /// The type of the elements.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        array::dtype(py, self.ty())
    }

    /// "F" if the first index varies fastest in memory, else "C".
    #[getter]
    fn order(&self) -> &'static str {
        match self.client.form().column_major {
            true => "F",
            false => "C",
        }
    }

    /// The size of the array in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.client.form().bytes().unwrap_or(0)
    }

    /// Whether the server has moved the array to its disk because memory was short.
    #[getter]
    fn on_disk(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ask(py, |handle| handle.status())?.on_disk)
    }

    /// The array, when all earlier calls that use it have ended.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let form = self.client.form();
        let shape: Vec<usize> = form.shape.iter().map(|&size| size as usize).collect();
        let order = match form.column_major {
            true => Order::ColumnMajor,
            false => Order::RowMajor,
        };
        let array = array::empty(py, &shape, self.ty(), order)?;
        // SAFETY: the array is new.
        let bytes = unsafe { array::contents_mut(&array) };
        self.ask(py, |handle| handle.get(bytes))?;
        Ok(array)
    }

    /// For `numpy.asarray` and everything else of NumPy, which gets the array.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            let text = "a stored array travels from its server: NumPy must make a copy";
            return Err(PyValueError::new_err(text));
        }
        let array = self.get(py)?.into_any();
        match dtype {
            Some(dtype) => array.call_method1(intern!(py, "astype"), (dtype,)),
            None => Ok(array),
        }
    }

    /// Lets the server write the array to an address, `farcall.url(...)`, if its operator allows
    /// it. All of the array is there afterwards, or an error says why nothing is.
    fn write(&self, py: Python<'_>, destination: &Bound<'_, PyAny>) -> PyResult<Receipt> {
        let Ok(source) = destination.cast::<Source>() else {
            let element = array::dtype_name(self.ty());
            let shape = array::shape_text(&self.client.form().shape);
            let expected = format!(
                "farcall.url(...), an address to which the server writes this {element} array of \
                 shape {shape}"
            );
            let mut given = error::describe(destination);
            if destination.cast::<PyUntypedArray>().is_ok() {
                given.push_str(": store another array with `Server.put`");
            }
            let name = "Handle.write";
            return Err(error::argument(py, name, "destination", &expected, &given));
        };
        let destination = source.get().client();
        self.ask(py, |handle| handle.write(destination))
            .map(Receipt::from)
    }

    /// Copies the array to another server, which reads it from this one. The other server must be
    /// able to use this server's address as this program knows it, and must allow the copy
    /// (`data.peers` in its configuration).
    #[pyo3(signature = (server, *, stays=false))]
    fn copy_to(&self, py: Python<'_>, server: &Bound<'_, Server>, stays: bool) -> PyResult<Handle> {
        let server = server.get();
        let copy = self.ask(py, |handle| handle.copy_to(server.client(), stays))?;
        let origin = server.origin();
        Ok(Handle::new(copy, origin, !stays))
    }

    /// Drops the array at the server. Calls that use it complete.
    fn drop(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |handle| handle.drop_array())?;
        // An array that could not be dropped goes with this object.
        self.is_owned.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Another process connects again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.origin.reduce(py, "handle", Some(&self.id()))
    }

    fn __repr__(&self) -> PyResult<String> {
        let form = self.client.form();
        let (element, shape) = (&form.element, &form.shape);
        let address = self.client.address();
        Ok(format!(
            "<handle {} at {address}: {element} {shape:?}>",
            self.client.id()
        ))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.is_owned.load(Ordering::Relaxed) {
            self.client.drop_soon();
        }
    }
}

/// Stands for named data at any server; calls take it as an array.
#[pyclass(frozen, eq, hash, module = "farcall")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Data {
    name: DataName,
}

/// Named data, for a call to read: `atoms`, `atoms@alice` for data that the user alice shares, or
/// `runs/atoms.npy` for a file of a server's data folder. Each call uses the newest version. Behind
/// a metaserver, the call goes to a server that has the data, or the data go to the call.
#[pyfunction]
pub(crate) fn data(name: &str) -> PyResult<Data> {
    let name = data_name(name)?;
    Ok(Data { name })
}

/// The name of data, from a text that a user gives.
pub(crate) fn data_name(name: &str) -> PyResult<DataName> {
    name.parse()
        .map_err(|error: NoName| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl Data {
    /// The name.
    #[getter]
    fn name(&self) -> String {
        self.name.to_string()
    }

    /// For NumPy, which would make an array that has this object: the data are at a server.
    #[pyo3(signature = (*_args, **_options))]
    fn __array__(
        &self,
        _args: &Bound<'_, PyTuple>,
        _options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let name = self.__repr__();
        let get = format!("server.get({name})");
        Err(array::not_here(&name, "names data at a server", &get))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let make = py.import("farcall")?.getattr("data")?;
        let arguments = PyTuple::new(py, [self.name.to_string()])?;
        PyTuple::new(py, [make, arguments.into_any()])
    }

    fn __repr__(&self) -> String {
        format!("farcall.data({:?})", self.name.to_string())
    }
}

impl Data {
    pub(crate) fn data_name(&self) -> &DataName {
        &self.name
    }
}

/// The status of named data.
#[pyclass(frozen, get_all, name = "DataStatus", module = "farcall")]
pub(crate) struct KnownData {
    /// The name.
    name: String,
    /// The user who owns them; empty for files of a server's data folder.
    owner: String,
    /// The newest version: 1, 2, ...
    version: u64,
    /// Whether all users can read them.
    shared: bool,
    /// The shape of the array.
    shape: Vec<u64>,
    /// The size of the array in bytes.
    nbytes: u64,
    /// The addresses of the servers that hold this version.
    holders: Vec<String>,
}

impl From<DataStatus> for KnownData {
    fn from(data: DataStatus) -> KnownData {
        KnownData {
            name: data.name.name,
            owner: data.name.owner.unwrap_or_default(),
            version: data.version,
            shared: data.shared,
            shape: data.shape,
            nbytes: data.bytes,
            holders: data.holders,
        }
    }
}

#[pymethods]
impl KnownData {
    fn __repr__(&self) -> String {
        let KnownData {
            name,
            version,
            nbytes,
            ..
        } = self;
        format!("<data {name:?} version {version}, {nbytes} bytes>")
    }
}

/// Whether a caller gives an array that is at a server, or one that the server reads.
pub(crate) fn stays(value: &Bound<'_, PyAny>) -> bool {
    given(value).is_some() || value.cast::<Data>().is_ok() || value.cast::<Source>().is_ok()
}

/// The argument for such an array.
pub(crate) fn argument(
    value: &Bound<'_, PyAny>,
    server: &farcall_client::Server,
) -> Option<Argument<'static>> {
    if let Some(handle) = given(value) {
        return Some(handle.get().client.argument(server));
    }
    if let Ok(source) = value.cast::<Source>() {
        let source = source.get().client().clone();
        return Some(Argument::Source(Box::new(source)));
    }
    let data = value.cast::<Data>().ok()?;
    Some(Argument::Named(data.get().name.clone()))
}

/// The handle that a caller gives, if the value is one.
pub(crate) fn given<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Handle>> {
    value.cast::<Handle>().ok()
}

/// The placeholder in a result for an array that remains at the server.
pub(crate) fn placeholder(py: Python<'_>) -> PyResult<Bound<'_, PyUntypedArray>> {
    let numpy = array::numpy(py)?;
    let empty = numpy.call_method1(intern!(py, "empty"), (0,))?;
    let empty: Bound<'_, PyUntypedArray> = empty.cast_into()?;
    debug_assert_eq!(empty.len(), 0);
    Ok(empty)
}

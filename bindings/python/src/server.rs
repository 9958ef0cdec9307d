//! A server, and the way to it.

use crate::error;
use crate::function::Function;
use crate::handle::{self, Data, Handle, KnownData};
use crate::job::{DurableStatus, Job};
use crate::memory::SharedMemory;
use crate::object::Object;
use crate::origin::Origin;
use crate::reservation::{self, Rate, Reservation};
use crate::times::Times;
use crate::transaction::Transaction;
use farcall_client::{Credentials, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connects to a server: `farcall://host:port` or `unix:///path`.
///
/// Without an address it is the one of the environment variable `FARCALL_SERVER`, or of
/// `NINF_SERVER` and `NINF_SERVER_PORT`, or the metaserver of `FARCALL_METASERVER`, or else this
/// machine. Behind a metaserver, `meta://host:port`, are all servers that have joined it: each call
/// goes to the one that will have done it first, and to another where that one is lost.
///
/// `timeout` bounds every call and `connect_timeout` the connection, in seconds. Where a server
/// reached over TCP turns out to be on this host, the connection changes to a Unix socket and
/// shared memory, unless `same_host` is false.
///
/// `farcalls://host:port` speaks TLS. `authorities` is a file with the certificates to believe
/// instead of this machine's, `certificate` the files of a certificate to show and of its private
/// key, `token` what tells the server who the caller is; without them the environment names them:
/// `FARCALL_CA`, `FARCALL_CERT` with `FARCALL_KEY`, `FARCALL_TOKEN`. None of them goes into a
/// pickled handle. A token is not sent in clear text over a network.
#[pyfunction]
#[pyo3(signature = (
    address=None, *, timeout=None, connect_timeout=10.0, same_host=true, token=None,
    authorities=None, certificate=None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn connect(
    py: Python<'_>,
    address: Option<String>,
    timeout: Option<f64>,
    connect_timeout: f64,
    same_host: bool,
    token: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
) -> PyResult<Server> {
    let named = address.or_else(farcall_client::address_from_environment);
    let is_named = named.is_some();
    let address = named.unwrap_or_else(farcall_client::default_address);
    let options = Options {
        connect_timeout: seconds(py, "connect_timeout", connect_timeout)?,
        timeout: timeout
            .map(|timeout| seconds(py, "timeout", timeout))
            .transpose()?,
        on_interrupt: Some(Arc::new(is_interrupted)),
        same_host,
        credentials: credentials(token, authorities, certificate),
        ..Options::default()
    };
    let client = py
        .detach(|| farcall_client::Server::connect(&address, options))
        .map_err(|error| match error {
            farcall_client::Error::Connect { .. } if !is_named => {
                let text = format!(
                    "{error} (another server is named by its address, or by FARCALL_SERVER or \
                     FARCALL_METASERVER)"
                );
                error::connection(py, text)
            }
            other => error::from_client(py, &other),
        })?;
    Ok(Server {
        client,
        origin: Origin::new(address, timeout, connect_timeout, same_host),
        functions: Mutex::default(),
        last: Mutex::default(),
    })
}

/// What was given, and what the environment names for the rest.
fn credentials(
    token: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
) -> Credentials {
    let mut credentials = Credentials::from_environment();
    if let Some(token) = token {
        credentials = credentials.with_token(token);
    }
    if let Some(file) = authorities {
        credentials = credentials.with_authorities(file);
    }
    if let Some((certificate, key)) = certificate {
        credentials = credentials.with_certificate(certificate, key);
    }
    credentials
}

pub(crate) fn seconds(py: Python<'_>, name: &str, value: f64) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(value)
        .ok()
        .filter(|time| !time.is_zero());
    duration.ok_or_else(|| {
        error::argument(
            py,
            "connect",
            name,
            "seconds greater than 0",
            &value.to_string(),
        )
    })
}

thread_local! {
    /// The exception that a signal's handler raised while a call was under way.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs the handlers of signals that have come; whether one raised an exception.
pub(crate) fn is_interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            INTERRUPT.set(Some(error));
            true
        }
    })
}

/// The exception that interrupted the call on this thread.
pub(crate) fn take_interrupt() -> Option<PyErr> {
    INTERRUPT.take()
}

/// A function that a server offers.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct FunctionSummary {
    /// Qualified name.
    name: String,
    /// What it does, in a line.
    title: String,
}

#[pymethods]
impl FunctionSummary {
    fn __repr__(&self) -> String {
        format!("<{}: {}>", self.name, self.title)
    }

    fn __str__(&self) -> &str {
        &self.name
    }
}

/// A server. It may be used from any thread; calls of several threads run at the same time.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Server {
    client: farcall_client::Server,
    origin: Origin,
    functions: Mutex<HashMap<String, Py<Function>>>,
    /// The function called last by name.
    last: Mutex<Option<Py<Function>>>,
}

impl Server {
    pub(crate) fn client(&self) -> &farcall_client::Server {
        &self.client
    }

    pub(crate) fn of_data(
        &self,
        py: Python<'_>,
        name: &farcall_client::DataName,
    ) -> PyResult<Handle> {
        Handle::of_data(py, &self.client, self.origin.clone(), name)
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin.clone()
    }
}

#[pymethods]
impl Server {
    /// Where it is.
    #[getter]
    fn address(&self) -> String {
        self.client.address().to_string()
    }

    /// The functions it offers.
    fn ls(&self, py: Python<'_>) -> PyResult<Vec<FunctionSummary>> {
        let functions = self.origin.ask(py, || self.client.functions())?;
        let summary = |function: farcall_client::FunctionSummary| FunctionSummary {
            name: function.name,
            title: function.title,
        };
        Ok(functions.into_iter().map(summary).collect())
    }

    /// The interface of a function as IDL.
    fn describe(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        let function = self.origin.ask(py, || self.client.function(name))?;
        Ok(function.interface().public_text())
    }

    /// A handle on the function of that name, `module/name` or `name` alone. Its interface is
    /// fetched once.
    fn function<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, Function>> {
        self.origin.check(py)?;
        if let Some(known) = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
        {
            return Ok(known.bind(py).clone());
        }
        let client = self.origin.ask(py, || self.client.function(name))?;
        let function = Bound::new(py, Function::new(client, self.origin.clone()))?;
        let mut functions = self
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        functions.insert(name.to_owned(), function.clone().unbind());
        Ok(function)
    }

    /// An object of a class of that name, `module/class` or `class` alone: `obj.method(...)` calls
    /// a method on it. It lives on the server until it is closed or deleted; with `stays`, until
    /// `drop_object`, or a day after its last use: `server.object(id)` finds it again.
    #[pyo3(name = "new", signature = (name, *, stays=false))]
    fn new_object(&self, py: Python<'_>, name: &str, stays: bool) -> PyResult<Object> {
        let (object, id) = self.origin.ask(py, || {
            let object = self.client.new_object(name)?;
            let id = stays.then(|| object.keep()).transpose()?;
            Ok((object, id))
        })?;
        Ok(Object::new(object, id, self.origin.clone()))
    }

    /// The object of that id that stays at the server, which may be from another program of the
    /// same user.
    fn object(&self, py: Python<'_>, id: &str) -> PyResult<Object> {
        let id = object_id(py, id)?;
        let object = self.origin.ask(py, || self.client.object(id))?;
        Ok(Object::new(object, Some(id), self.origin.clone()))
    }

    /// Destroys an object that stays at the server.
    fn drop_object(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        let id = object_id(py, id)?;
        self.origin.ask(py, || self.client.drop_object(id))
    }

    /// Ids of the caller's objects that stay at the server, with their classes, in the order of
    /// their creation.
    fn objects(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let objects = self.origin.ask(py, || self.client.objects())?;
        let told = objects.into_iter();
        Ok(told
            .map(|known| (known.id.to_string(), known.class))
            .collect())
    }

    /// Calls a function by name: arguments in the order of the interface, or by name.
    #[pyo3(signature = (name, /, *args, **kwargs))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function(py, name)?;
        let result = Function::__call__(&function, py, args, kwargs)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(function.unbind());
        Ok(result)
    }

    /// Calls in a `with` block over it are recorded, and run as a data-flow graph at its end:
    /// `farcall.transaction` says how. They run on this server.
    fn transaction(&self, py: Python<'_>) -> PyResult<Transaction> {
        self.origin.check(py)?;
        Ok(Transaction::new(
            vec![self.client.clone()],
            self.origin.clone(),
        ))
    }

    /// The submitted call of that id. Nothing is asked of the server yet.
    fn job(&self, py: Python<'_>, id: &str) -> PyResult<Job> {
        Job::named(py, &self.client, self.origin.clone(), id)
    }

    /// The caller's submitted calls at this server, in the order of submission.
    fn jobs(&self, py: Python<'_>) -> PyResult<Vec<DurableStatus>> {
        let jobs = self.origin.ask(py, || self.client.jobs())?;
        Ok(jobs.into_iter().map(DurableStatus::from).collect())
    }

    /// Reserves processor elements, and bandwidth `up` to the server and `down` from it, in bytes
    /// per second or as text such as `"20Mbit/s"`; from `start` seconds from now on and for so many
    /// `seconds`, with `earliest` as soon after that as they are free. Calls of
    /// `Function.with_reservation` start at once then, and their arrays travel at these rates.
    /// Where they are not free then, the error's `earliest` is the seconds from now on after which
    /// they are.
    #[pyo3(signature = (pes=1, *, seconds, start=0.0, earliest=false, up=None, down=None))]
    #[allow(clippy::too_many_arguments, reason = "each is a name in Python")]
    fn reserve(
        &self,
        py: Python<'_>,
        pes: u32,
        seconds: f64,
        start: f64,
        earliest: bool,
        up: Option<Rate>,
        down: Option<Rate>,
    ) -> PyResult<Reservation> {
        let wanted = reservation::wanted(py, pes, seconds, start, earliest, (up, down))?;
        let made = self.origin.ask(py, || self.client.reserve(&wanted))?;
        Ok(Reservation::new(
            self.client.clone(),
            self.origin.clone(),
            made,
        ))
    }

    /// The caller's reservations that are not over, in the order in which they were made.
    fn reservations(&self, py: Python<'_>) -> PyResult<Vec<Reservation>> {
        let known = self.origin.ask(py, || self.client.reservations())?;
        let reservation = |known| Reservation::new(self.client.clone(), self.origin.clone(), known);
        Ok(known.into_iter().map(reservation).collect())
    }

    /// Puts an array at the server, to be used in calls by its handle. Functions of Fortran want
    /// matrices in columns: `order="F"`, which is also that of an array in that order. With `stays`
    /// it stays when the connection ends. With a `name` it stays as well, and calls find it by
    /// `farcall.data(name)`: named data do not change, and another array put under the name is the
    /// next version. Behind a metaserver, the array goes to the server that has data of that name,
    /// or else most memory free. Other users read what is `shared`.
    #[pyo3(signature = (array, *, order=None, stays=false, name=None, shared=false))]
    fn put(
        &self,
        py: Python<'_>,
        array: &Bound<'_, PyAny>,
        order: Option<&str>,
        stays: bool,
        name: Option<&str>,
        shared: bool,
    ) -> PyResult<Handle> {
        self.origin.check(py)?;
        let whose = self.origin.clone();
        if shared && name.is_none() {
            return Err(PyValueError::new_err(
                "only an array with a name can be shared",
            ));
        }
        Handle::put(py, &self.client, whose, array, order, (stays, name, shared))
    }

    /// The array of a handle, or of `farcall.data(name)`.
    fn get<'py>(&self, py: Python<'py>, handle: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.origin.check(py)?;
        if let Ok(data) = handle.cast::<Data>() {
            let found = self.of_data(py, data.get().data_name())?;
            return Bound::new(py, found)?.into_any().call_method0("get");
        }
        handle.cast::<Handle>()?.call_method0("get")
    }

    /// The array that is at the server under that name: the caller's own, a file of the server's
    /// data folder, or what another user shares.
    fn data(&self, py: Python<'_>, name: &str) -> PyResult<Handle> {
        self.origin.check(py)?;
        let name = handle::data_name(name)?;
        self.of_data(py, &name)
    }

    /// All data with names that the caller may see, by name.
    fn list_data(&self, py: Python<'_>) -> PyResult<Vec<KnownData>> {
        let data = self.origin.ask(py, || self.client.list_data())?;
        Ok(data.into_iter().map(KnownData::from).collect())
    }

    /// Drops the caller's data of that name, wherever they are. Calls that use them go on.
    fn drop_data(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let name = handle::data_name(name)?;
        self.origin.ask(py, || self.client.drop_data(&name))
    }

    /// The handle of that id, which may be from another program of the same user.
    fn handle(&self, py: Python<'_>, id: &str) -> PyResult<Handle> {
        self.origin.check(py)?;
        let whose = self.origin.clone();
        Handle::named(py, &self.client, whose, id)
    }

    /// The handles of the caller's arrays at this server, in the order of their creation.
    fn handles(&self, py: Python<'_>) -> PyResult<Vec<Handle>> {
        let handles = self.origin.ask(py, || {
            let known = self.client.handles()?;
            let handles = known.iter().map(|known| self.client.handle(known.id));
            handles.collect::<Result<Vec<_>, _>>()
        })?;
        let handle = |client| Handle::new(client, self.origin.clone(), false);
        Ok(handles.into_iter().map(handle).collect())
    }

    /// An array like `numpy.empty`, in memory shared with the server where it is on the same host:
    /// `farcall.empty` says what that means.
    #[pyo3(signature = (shape, dtype=None, order="C"))]
    fn empty<'py>(
        slf: &Bound<'py, Self>,
        shape: Bound<'py, PyAny>,
        dtype: Option<Bound<'py, PyAny>>,
        order: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let options = PyDict::new(py);
        options.set_item("order", order)?;
        options.set_item("server", slf)?;
        if let Some(dtype) = dtype {
            options.set_item("dtype", dtype)?;
        }
        py.import("farcall")?
            .call_method("empty", (shape,), Some(&options))
    }

    /// Memory shared with the server; `None` where there cannot be any.
    fn _share(&self, py: Python<'_>, size: usize) -> PyResult<Option<SharedMemory>> {
        let memory = self.origin.ask(py, || self.client.share(size))?;
        Ok(memory.map(SharedMemory::new))
    }

    /// How long the last call by name took; `None` before the first.
    #[getter]
    fn times(&self) -> Option<Times> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().and_then(|function| function.get().times())
    }

    /// Another process connects anew.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.origin.reduce(py, "server", None)
    }

    fn __repr__(&self) -> String {
        format!("<server {}>", self.client.address())
    }
}

fn object_id(py: Python<'_>, id: &str) -> PyResult<farcall_client::HandleId> {
    id.parse()
        .map_err(|_| error::argument(py, "object", "id", "32 hexadecimal digits", id))
}

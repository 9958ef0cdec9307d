//! Servers: connecting, and what a connection can do. `farcall_client` does the work, and other
//! Python threads run meanwhile. A signal handler that raises an exception interrupts the wait.

use crate::durable_call::{DurableCall, DurableStatus};
use crate::error;
use crate::function::Function;
use crate::handle::{self, Data, Handle, KnownData};
use crate::memory::SharedMemory;
use crate::object::Object;
use crate::origin::Origin;
use crate::reservation::{self, Elements, Rate, Reservation};
use crate::source::Source;
use crate::times::Times;
use crate::transaction::Transaction;
use farcall_client::{Credentials, Error, FailureKind, Options};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyTuple};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connects to a server: `farcall://host:port`, `unix:///path` or `ssh://host`.
///
/// Without an address, the environment names the server: `FARCALL_SERVER`, or `NINF_SERVER` and
/// `NINF_SERVER_PORT`, or the metaserver of `FARCALL_METASERVER`. If none of them is set, the
/// server is on this machine. `meta://host:port` connects to all servers behind a metaserver: each
/// call goes to the server that will complete it first, and to another one if that server is lost.
///
/// `timeout` limits the time of each call that has none of its own, and `connect_timeout` the time
/// to connect, in seconds.
/// If the server sends nothing for 15 s while calls are open, although it was asked for a sign of
/// life, it counts as lost. `FARCALL_LOST_AFTER` changes these seconds, and 0 means never.
/// If a server that was reached over TCP is on this host, the connection changes to a Unix socket
/// and shared memory, unless `same_host` is false.
///
/// `farcalls://host:port` uses TLS. `authorities` is a file with the certificates of authorities to
/// trust instead of those of this machine. `certificate` is a pair of files: a certificate and its
/// private key. `token` identifies the caller. Without these arguments, the environment names
/// them: `FARCALL_CA`, `FARCALL_CERT` with `FARCALL_KEY`, `FARCALL_TOKEN`. The client never sends a
/// token in clear text over a network.
///
/// A pickled server or handle keeps the paths of these files, but not the token: the process that
/// loads it takes the token from `FARCALL_TOKEN`, and a warning says so.
#[pyfunction]
#[pyo3(signature = (
    address=None, *, timeout=None, connect_timeout=10.0, same_host=true, token=None,
    authorities=None, certificate=None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn connect(
    py: Python<'_>,
    address: Option<Address>,
    timeout: Option<f64>,
    connect_timeout: f64,
    same_host: bool,
    token: Option<String>,
    authorities: Option<PathBuf>,
    certificate: Option<(PathBuf, PathBuf)>,
) -> PyResult<Server> {
    let named = address
        .map(|Address(address)| address)
        .or_else(farcall_client::address_from_environment);
    let is_named = named.is_some();
    let address = named.unwrap_or_else(farcall_client::default_address);
    let options = Options {
        connect_timeout: seconds(py, "connect", "connect_timeout", connect_timeout)?,
        timeout: timeout
            .map(|timeout| seconds(py, "connect", "timeout", timeout))
            .transpose()?,
        on_interrupt: Some(Arc::new(is_interrupted)),
        same_host,
        credentials: credentials(token.clone(), authorities.clone(), certificate.clone()),
        ..Options::default()
    };
    let client = py
        .detach(|| farcall_client::Server::connect(&address, options))
        .map_err(|error| match error {
            Error::Connect { .. } if !is_named => {
                let text = format!(
                    "{error} (to use another server, give its address, or set FARCALL_SERVER or \
                     FARCALL_METASERVER)"
                );
                error::connection(py, text)
            }
            other => error::from_client(py, &other),
        })?;
    Ok(Server {
        client,
        origin: Origin::new(address, timeout, connect_timeout, same_host).with_credentials(
            token.as_deref(),
            authorities,
            certificate,
        ),
        functions: Mutex::default(),
        last: Mutex::default(),
    })
}

/// Connects for somebody else: as the user with this token, or as somebody without credentials.
/// Nothing of this process reaches the server, which takes it for no other user.
#[pyfunction]
pub(crate) fn connect_for(
    py: Python<'_>,
    address: String,
    token: Option<String>,
) -> PyResult<Server> {
    let same_host = token.is_some();
    let options = Options {
        on_interrupt: Some(Arc::new(is_interrupted)),
        same_host,
        credentials: match &token {
            Some(token) => Credentials::of_token(token),
            None => Credentials::of_stranger(),
        },
        ..Options::default()
    };
    let connect_timeout = options.connect_timeout.as_secs_f64();
    let client = py.detach(|| farcall_client::Server::connect(&address, options));
    let origin = Origin::new(address, None, connect_timeout, same_host);
    Ok(Server {
        client: client.map_err(|error| error::from_client(py, &error))?,
        origin: origin.with_credentials(token.as_deref(), None, None),
        functions: Mutex::default(),
        last: Mutex::default(),
    })
}

/// The credentials that the caller gave; the environment names the others.
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

/// The address of a server, from any value that a user gives.
pub(crate) struct Address(String);

impl<'py> FromPyObject<'_, 'py> for Address {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Address> {
        given.extract().map(Address).map_err(|_| {
            PyTypeError::new_err(format!(
                "expected an address, such as \"farcall://host:3717\", given {}",
                error::describe(&given)
            ))
        })
    }
}

/// Servers, from one server or a list of them.
pub(crate) struct Servers<'py>(pub(crate) Vec<Bound<'py, Server>>);

impl<'py> FromPyObject<'_, 'py> for Servers<'py> {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Servers<'py>> {
        if let Ok(server) = given.extract::<Bound<'py, Server>>() {
            return Ok(Servers(vec![server]));
        }
        given.extract().map(Servers).map_err(|_| {
            PyTypeError::new_err(format!(
                "expected a server or a list of servers, given {}; `farcall.connect(address)` \
                 makes a server",
                error::describe(&given)
            ))
        })
    }
}

/// The name of a function or a class, from any value that a user gives.
struct FunctionName<'a>(&'a str);

impl<'a, 'py> FromPyObject<'a, 'py> for FunctionName<'a> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<FunctionName<'a>> {
        value.extract().map(FunctionName).map_err(|_| {
            PyTypeError::new_err(format!(
                "expected a name, such as \"lapack/dgesv\", given {}; `farcall ls` lists the \
                 functions",
                error::describe(&value)
            ))
        })
    }
}

pub(crate) fn seconds(
    py: Python<'_>,
    function: &str,
    name: &str,
    value: f64,
) -> PyResult<Duration> {
    let duration = Duration::try_from_secs_f64(value)
        .ok()
        .filter(|time| !time.is_zero());
    duration.ok_or_else(|| {
        error::argument(
            py,
            function,
            name,
            "seconds greater than 0",
            &value.to_string(),
        )
    })
}

thread_local! {
    /// The exception that a signal handler raised while a call was under way.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The main thread of Python, as Python numbers threads.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Finds out which thread is the main one, now and in each forked child.
pub(crate) fn know_main_thread(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    find_main_thread(py)?;
    if cfg!(unix) {
        let find = wrap_pyfunction!(find_main_thread, module)?;
        let options = [("after_in_child", find)].into_py_dict(py)?;
        py.import("os")?
            .call_method("register_at_fork", (), Some(&options))?;
    }
    Ok(())
}

#[pyfunction]
fn find_main_thread(py: Python<'_>) -> PyResult<()> {
    let main = py.import("threading")?.call_method0("main_thread")?;
    MAIN_THREAD.store(main.getattr("ident")?.extract()?, Ordering::Relaxed);
    Ok(())
}

/// Runs the handlers of pending signals, and says whether one of them raised an exception. Python
/// runs them in its main thread only. Other threads do not ask for the interpreter, which ends
/// before they do.
pub(crate) fn is_interrupted() -> bool {
    // SAFETY: the function needs no interpreter.
    let here = unsafe { pyo3::ffi::PyThread_get_thread_ident() } as usize;
    if here != MAIN_THREAD.load(Ordering::Relaxed) {
        return false;
    }
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

/// A function that a server has.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct FunctionSummary {
    /// Qualified name.
    name: String,
    /// What it does, in one line.
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

/// A server. Any thread may use it, and calls of several threads run at the same time.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Server {
    client: farcall_client::Server,
    origin: Origin,
    functions: Mutex<HashMap<String, Py<Function>>>,
    /// The function called last by name.
    last: Mutex<Option<Py<Function>>>,
}

impl Server {
    pub(crate) fn new(client: farcall_client::Server, origin: Origin) -> Server {
        Server {
            client,
            origin,
            functions: Mutex::default(),
            last: Mutex::default(),
        }
    }

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
    /// The address of the server.
    #[getter]
    fn address(&self) -> String {
        self.client.address().to_string()
    }

    /// The functions that the server has.
    fn ls(&self, py: Python<'_>) -> PyResult<Vec<FunctionSummary>> {
        let functions = self.origin.ask(py, || self.client.functions())?;
        let summary = |function: farcall_client::FunctionSummary| FunctionSummary {
            name: function.name,
            title: function.title,
        };
        Ok(functions.into_iter().map(summary).collect())
    }

    /// The interface of a function, or of each method of a class, in the interface language.
    fn describe(&self, py: Python<'_>, name: FunctionName<'_>) -> PyResult<String> {
        let FunctionName(name) = name;
        self.origin.ask(py, || {
            let unknown = match self.client.function(name) {
                Ok(function) => return Ok(function.interface().public_text()),
                Err(error) => error,
            };
            let methods = self.client.methods(name)?.into_iter();
            let functions = methods.map(|method| self.client.function(&method));
            let functions: Vec<_> = functions.collect::<Result<_, _>>()?;
            let texts = functions
                .iter()
                .map(|known| known.interface().public_text());
            let texts: Vec<String> = texts.collect();
            match texts.is_empty() {
                true => Err(unknown),
                false => Ok(texts.join("\n")),
            }
        })
    }

    /// The function handle for a name: `module/name`, or `name` alone. The client fetches the
    /// interface once.
    fn function<'py>(
        &self,
        py: Python<'py>,
        name: FunctionName<'_>,
    ) -> PyResult<Bound<'py, Function>> {
        let FunctionName(name) = name;
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

    /// Makes an object of a class, `module/class` or `class` alone. `obj.method(...)` calls a
    /// method of it. The server keeps the object until the program closes or deletes it. With
    /// `stays` the object is persistent: the server keeps it until `drop_object`, or until a day
    /// after its last use, and `server.object(id)` finds it again.
    #[pyo3(name = "new", signature = (name, *, stays=false))]
    fn new_object(&self, py: Python<'_>, name: FunctionName<'_>, stays: bool) -> PyResult<Object> {
        let FunctionName(name) = name;
        let (object, id) = self.origin.ask(py, || {
            let object = self.client.new_object(name)?;
            let id = stays.then(|| object.keep()).transpose()?;
            Ok((object, id))
        })?;
        Ok(Object::new(object, id, self.origin.clone()))
    }

    /// The persistent object with this id. Another program of the same user may have made it.
    fn object(&self, py: Python<'_>, id: &str) -> PyResult<Object> {
        let id = object_id(py, id)?;
        let object = self.origin.ask(py, || self.client.object(id))?;
        Ok(Object::new(object, Some(id), self.origin.clone()))
    }

    /// Destroys a persistent object.
    fn drop_object(&self, py: Python<'_>, id: &str) -> PyResult<()> {
        let id = object_id(py, id)?;
        self.origin.ask(py, || self.client.drop_object(id))
    }

    /// The ids and the classes of the caller's persistent objects, in the order of their creation.
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
        name: FunctionName<'_>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = self.function(py, name)?;
        let result = Function::__call__(&function, py, args, kwargs)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(function.unbind());
        Ok(result)
    }

    /// A transaction on this server: a `with` block records its calls, and runs them at its end as
    /// a data-flow graph. See `farcall.transaction`.
    fn transaction(&self, py: Python<'_>) -> PyResult<Transaction> {
        self.origin.check(py)?;
        Ok(Transaction::new([(
            self.client.clone(),
            self.origin.clone(),
        )]))
    }

    /// The durable call with this job id. This does not ask the server yet.
    fn job(&self, py: Python<'_>, id: &str) -> PyResult<DurableCall> {
        DurableCall::named(py, &self.client, self.origin.clone(), id)
    }

    /// The caller's durable calls at this server, in the order in which they were submitted.
    fn jobs(&self, py: Python<'_>) -> PyResult<Vec<DurableStatus>> {
        let jobs = self.origin.ask(py, || self.client.jobs())?;
        Ok(jobs.into_iter().map(DurableStatus::from).collect())
    }

    /// Reserves processor elements, and bandwidth `up` to the server and `down` from it, in bytes/s
    /// or as text such as `"20Mbit/s"`. The reservation begins `start` seconds from now and lasts
    /// `seconds`. With `earliest` it begins as soon after that as enough is free. Calls of
    /// `Function.with_reservation` then start at once, and their arrays travel at these rates. If
    /// too little is free, the `earliest` of the error is the number of seconds from now until
    /// enough is free.
    #[pyo3(
        signature = (pes=Elements::ONE, *, seconds, start=0.0, earliest=false, up=None, down=None),
        text_signature = "($self, pes=1, *, seconds, start=0.0, earliest=False, up=None, \
            down=None)",
    )]
    #[allow(clippy::too_many_arguments, reason = "each is a name in Python")]
    fn reserve(
        &self,
        py: Python<'_>,
        pes: Elements,
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

    /// The caller's reservations that have not ended, in the order in which they were made.
    fn reservations(&self, py: Python<'_>) -> PyResult<Vec<Reservation>> {
        let known = self.origin.ask(py, || self.client.reservations())?;
        let reservation = |known| Reservation::new(self.client.clone(), self.origin.clone(), known);
        Ok(known.into_iter().map(reservation).collect())
    }

    /// Stores an array at the server and returns its handle, which calls take as an array.
    /// The array may also be `farcall.url(address)`, which the server reads.
    /// Functions of Fortran need matrices in columns: `order="F"`. The default is the order of the
    /// array. With `stays`, the server keeps the array after the connection ends. With a `name`,
    /// the array is named data: the server keeps it too, and calls take it as
    /// `farcall.data(name)`. Named data do not change; another array under the same name is the
    /// next version. Behind a metaserver, the array goes to the server that has data of that name,
    /// or else to the server with the most free memory. Other users can read `shared` data.
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
                "only named data can be shared: give a `name`",
            ));
        }
        if let Ok(source) = array.cast::<Source>() {
            if name.is_some() {
                return Err(PyValueError::new_err(
                    "the server names the array of an address itself: leave `name` out",
                ));
            }
            let source = source.get().client();
            return Handle::of_source(py, &self.client, whose, source, (order, stays));
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

    /// The earlier name of `handle(name=...)`.
    fn data(&self, py: Python<'_>, name: &str) -> PyResult<Handle> {
        error::deprecated(
            py,
            c"Server.data is deprecated; use Server.handle(name=...)",
        )?;
        self.handle(py, None, Some(name))
    }

    /// All named data that the caller can read, in the order of their names.
    fn list_data(&self, py: Python<'_>) -> PyResult<Vec<KnownData>> {
        let data = self.origin.ask(py, || self.client.list_data())?;
        Ok(data.into_iter().map(KnownData::from).collect())
    }

    /// Drops the caller's data of that name at all servers. Calls that use them complete.
    fn drop_data(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let name = handle::data_name(name)?;
        self.origin.ask(py, || self.client.drop_data(&name))
    }

    /// The handle of the stored array with this id, or of the named data of this name. Another
    /// program of the same user may have stored the array. Named data are the caller's own, a file
    /// of the server's data folder, or data that another user shares.
    #[pyo3(signature = (id=None, *, name=None))]
    fn handle(&self, py: Python<'_>, id: Option<&str>, name: Option<&str>) -> PyResult<Handle> {
        self.origin.check(py)?;
        match (id, name) {
            (Some(id), None) => Handle::named(py, &self.client, self.origin.clone(), id),
            (None, Some(name)) => self.of_data(py, &handle::data_name(name)?),
            _ => Err(error::arguments(
                py,
                "handle",
                "give either an id or a name",
            )),
        }
    }

    /// The handles of the caller's stored arrays at this server, in the order of their creation.
    fn handles(&self, py: Python<'_>) -> PyResult<Vec<Handle>> {
        let handles = self.origin.ask(py, || {
            let known = self.client.handles()?;
            let handles = known.iter().map(|known| self.client.handle(known.id));
            // Another program may have dropped some since the list was made.
            let is_gone = |error: &Error| match error {
                Error::Failed(failure) => failure.kind == FailureKind::NotFound,
                _ => false,
            };
            let there = handles.filter(|handle| !handle.as_ref().is_err_and(is_gone));
            there.collect::<Result<Vec<_>, _>>()
        })?;
        let handle = |client| Handle::new(client, self.origin.clone(), false);
        Ok(handles.into_iter().map(handle).collect())
    }

    /// An array like `numpy.empty`, in memory that is shared with the server if it is on this host.
    /// See `farcall.empty`.
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

    /// Memory that is shared with the server; `None` if the server has none to share.
    fn _share(&self, py: Python<'_>, size: usize) -> PyResult<Option<SharedMemory>> {
        let memory = self.origin.ask(py, || self.client.share(size))?;
        Ok(memory.map(SharedMemory::new))
    }

    /// The times of the last call by name; `None` before the first call.
    #[getter]
    fn times(&self) -> Option<Times> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().and_then(|function| function.get().times())
    }

    /// Another process connects again.
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

//! Transactions: calls that are recorded first, and then run as a data-flow graph. `farcall_client`
//! runs them. Each thread records into one transaction at most, and the arrays of its calls are
//! held until they have run.

use crate::array::{self, Kept, Slot};
use crate::error;
use crate::handle::Handle;
use crate::origin::Origin;
use crate::server::{Server, Servers};
use crate::transaction_plan::made;
use farcall_client::{Argument, ArgumentOptions, ArrayForm, Deferred, Identity, LaidOut, Report};
use farcall_idl::{ArrayLayout, Order, Param, Type};
use numpy::{PyArrayDescr, PyUntypedArray};
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Arrays of at most this many bytes that are left out are made here and not at a server.
const SMALL: u64 = 4096;

thread_local! {
    /// The transaction that records the calls of this thread.
    static ACTIVE: RefCell<Option<Py<Transaction>>> = const { RefCell::new(None) };
    /// The transactions of whose calls this thread runs callbacks.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Until this is dropped, the thread runs a callback of a call of a transaction.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn new(transaction: usize) -> Inside {
        INSIDE.with_borrow_mut(|inside| inside.push(transaction));
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with_borrow_mut(|inside| {
            inside.pop();
        });
    }
}

/// The transaction that records the calls of this thread.
pub(crate) fn active(py: Python<'_>) -> Option<Bound<'_, Transaction>> {
    ACTIVE.with_borrow(|active| active.as_ref().map(|active| active.bind(py).clone()))
}

/// Whether a transaction records the calls of this thread.
#[pyfunction]
pub(crate) fn is_recording() -> bool {
    ACTIVE.with_borrow(Option::is_some)
}

/// Records the calls of a `with` block, and runs them at its end on these servers as a data-flow
/// graph. Calls that do not depend on each other run at the same time. An array that one call
/// writes and another reads remains at a server, or goes from server to server.
///
/// with farcall.transaction([one, other]) as t:
///     c = dgemm(...).c        # left out: remains at a server until you ask for it
///     dgemm(..., c, ..., D)   # D is filled at the end
/// t.report
///
/// The memory of an array identifies it. The arrays that the caller passes are filled at the end of
/// the block, except those of `discard`. An exception that leaves the block discards its calls, and
/// another block begins anew. For an array that is left out, the result of the call has
/// a `RemoteArray`. An error names the call that failed.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Transaction {
    servers: Vec<farcall_client::Server>,
    /// How each of the servers was connected.
    origins: Vec<Origin>,
    state: Mutex<State>,
    /// Number of calls of a run that is under way. It holds `state`, and a signal handler on its
    /// thread could wait for it for ever.
    running: Mutex<Option<usize>>,
}

#[derive(Default)]
struct State {
    client: farcall_client::Transaction,
    /// The arrays of the calls, until they have run.
    slots: Vec<Vec<Option<Kept>>>,
    remote: Vec<Py<RemoteArray>>,
    report: Option<Report>,
    /// The calls have run, and their arrays may be gone.
    is_over: bool,
}

// SAFETY: the client's transaction is used by one thread at a time, under the lock, and the arrays
// that it points to are held in `slots`.
unsafe impl Send for State {}

/// A `with` block of it records calls, and runs them at its end on these servers: a list, or one
/// server.
#[pyfunction]
pub(crate) fn transaction(servers: Servers<'_>) -> PyResult<Transaction> {
    let Servers(servers) = servers;
    if servers.is_empty() {
        let text = "a transaction needs at least one server";
        return Err(PyValueError::new_err(text));
    }
    let pair = |server: &Bound<'_, Server>| {
        let server = server.get();
        (server.client().clone(), server.origin())
    };
    Ok(Transaction::new(servers.iter().map(pair)))
}

impl Transaction {
    /// A transaction on these servers, of which there is at least one.
    pub(crate) fn new(
        servers: impl IntoIterator<Item = (farcall_client::Server, Origin)>,
    ) -> Transaction {
        let (servers, origins) = servers.into_iter().unzip();
        Transaction {
            servers,
            origins,
            state: Mutex::default(),
            running: Mutex::default(),
        }
    }

    /// What tells it from all other transactions: objects of Python do not move.
    pub(crate) fn identity(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Fails in a callback of one of its calls. The run holds `state`, and waits for the callback.
    fn check_outside(&self) -> PyResult<()> {
        let identity = self.identity();
        match INSIDE.with_borrow(|inside| inside.contains(&identity)) {
            true => {
                let text = "a callback cannot use the transaction of its own call while it runs";
                Err(PyRuntimeError::new_err(text))
            }
            false => Ok(()),
        }
    }

    /// How the server of an array was connected: itself, or the metaserver that it is behind.
    fn origin_of(&self, handle: &farcall_client::Handle) -> &Origin {
        let at = |server: &farcall_client::Server| server.address() == handle.address();
        let servers = &self.servers;
        let found = servers.iter().position(at).or_else(|| {
            let mut servers = servers.iter();
            servers.position(farcall_client::Server::is_metaserver)
        });
        &self.origins[found.unwrap_or(0)]
    }

    /// Waits for the lock without the interpreter, which calls need while the transaction runs.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        loop {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
                }
            }
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the calls, which do not run.
    fn forget(&self, py: Python<'_>) {
        let mut state = std::mem::take(&mut *self.lock(py));
        for remote in state.remote.drain(..) {
            remote.get().settle(py, self, &mut state.client, false);
        }
    }

    /// The array of a call for an OUT argument that the caller left out.
    pub(crate) fn make<'py>(
        &self,
        py: Python<'py>,
        param: &Param,
        layout: &ArrayLayout,
        order: Order,
    ) -> PyResult<Bound<'py, PyAny>> {
        let form = ArrayForm {
            element: param.ty.name().to_owned(),
            shape: layout.shape(order),
            column_major: order == Order::ColumnMajor,
        };
        let mut state = self.lock(py);
        let place = match layout.bytes <= SMALL || layout.is_shrunk {
            true => {
                let slot = Slot::make(py, param, layout, order)?;
                Place::Small(slot.given.cast_into::<PyUntypedArray>()?.unbind())
            }
            false => Place::Coming(state.client.defer()),
        };
        let made = RemoteArray {
            form,
            place: Mutex::new(place),
        };
        let made = Bound::new(py, made)?;
        state.remote.push(made.clone().unbind());
        Ok(made.into_any())
    }

    /// Records a call.
    pub(crate) fn add(
        &self,
        py: Python<'_>,
        (function, laid_out): (&farcall_client::Function, LaidOut),
        arguments: &mut [Argument<'_>],
        slots: &[Option<Slot<'_>>],
    ) -> PyResult<()> {
        let mut ways = ArgumentOptions::default();
        for (param, slot) in slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            match given(&slot.given) {
                Some(remote) => {
                    if let Place::Coming(deferred) = &*remote.get().lock() {
                        ways.deferred.push((param, *deferred));
                    }
                }
                None => ways
                    .copies
                    .extend(slot.copy_of().map(|range| (param, range))),
            }
        }
        // SAFETY: the slots are held until the transaction has run. That the user leaves the arrays
        // alone until then is the contract of a transaction.
        let added = unsafe {
            let client = &mut self.lock(py).client;
            client.add_laid_out(function, laid_out, arguments, &ways)
        };
        added.map_err(|error| error::from_client(py, &error))
    }

    /// Holds the arrays of a call until the call has run.
    pub(crate) fn hold(&self, py: Python<'_>, slots: Vec<Option<Slot<'_>>>) {
        let kept = slots.into_iter().map(|slot| slot.map(Slot::keep));
        self.lock(py).slots.push(kept.collect());
    }

    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.origins[0].check(py)?;
        let outcome = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *self.running() = Some(state.client.len());
            let outcome = state.client.run(&self.servers);
            *self.running() = None;
            state.report = outcome.as_ref().ok().copied();
            state.is_over = true;
            outcome
        });
        let State {
            slots,
            remote,
            client,
            ..
        } = &mut *self.lock(py);
        slots.clear();
        for remote in remote.drain(..) {
            remote.get().settle(py, self, client, outcome.is_ok());
        }
        outcome
            .map(drop)
            .map_err(|error| error::from_client(py, &error))
    }
}

#[pymethods]
impl Transaction {
    fn __enter__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        if active(slf.py()).is_some() {
            let text = "a transaction is open on this thread already";
            return Err(PyRuntimeError::new_err(text));
        }
        let this = slf.get();
        this.check_outside()?;
        let is_over = this.lock(slf.py()).is_over;
        if is_over {
            this.forget(slf.py());
        }
        ACTIVE.set(Some(slf.clone().unbind()));
        Ok(slf)
    }

    /// Runs the calls, unless an exception ended the block.
    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyType>>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let _ = (value, traceback);
        ACTIVE.set(None);
        match kind {
            None => self.run(py)?,
            Some(_) => self.forget(py),
        }
        Ok(false)
    }

    /// Says that the contents of an array are not needed after the transaction: they do not travel
    /// to this program.
    fn discard(&self, array: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
        self.check_outside()?;
        let range = array::address(array);
        self.lock(array.py()).client.discard(range);
        Ok(())
    }

    /// Saves the calls recorded so far as a plan, which `farcall plan run` and `farcall.load_plan`
    /// use. The arrays that the calls read go to `.npy` files in the same folder. `arrays` gives
    /// names to arrays; named arrays that calls write are the outputs of the plan. With `run=False`
    /// the calls do not run at the end of the block.
    #[pyo3(signature = (path, arrays, *, run=true))]
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        arrays: &Bound<'_, PyDict>,
        run: bool,
    ) -> PyResult<()> {
        self.check_outside()?;
        let mut names = Vec::new();
        for (name, array) in arrays.iter() {
            names.push((name.extract::<String>()?, identity(&array)?));
        }
        let state = self.lock(py);
        if state.is_over {
            let text = "the calls have run: save the transaction in its block";
            return Err(error::arguments(py, "Transaction.save", text));
        }
        let recording = state.client.record(&names);
        drop(state);
        let recording = recording.map_err(|error| error::from_client(py, &error))?;
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        let numpy = array::numpy(py)?;
        for input in &recording.inputs {
            let file = folder.join(&input.file);
            let mut array = made(py, &input.form, &input.bytes)?.into_any();
            if input.form.ty() == Ok(Type::Char) {
                // Other programs do not read files whose elements are texts of one byte.
                array = array.call_method1(intern!(py, "view"), ("int8",))?;
            }
            numpy.call_method1(intern!(py, "save"), (file, array))?;
        }
        std::fs::write(&path, recording.plan.to_string())?;
        if !run {
            self.forget(py);
        }
        Ok(())
    }

    /// The figures of the transaction: calls made, servers used, bytes sent, returned and passed
    /// from server to server, and the total time in seconds. `None` before the end.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if self.running().is_some() {
            return Ok(None);
        }
        let Some(report) = self.lock(py).report else {
            return Ok(None);
        };
        let told = PyDict::new(py);
        told.set_item("calls", report.calls)?;
        told.set_item("servers", report.servers)?;
        told.set_item("sent_bytes", report.sent_bytes)?;
        told.set_item("returned_bytes", report.returned_bytes)?;
        told.set_item("passed_bytes", report.passed_bytes)?;
        told.set_item("total", report.total)?;
        Ok(Some(told))
    }

    /// The graph in the DOT language.
    fn dot(&self, py: Python<'_>) -> PyResult<String> {
        self.check_outside()?;
        Ok(self.lock(py).client.dot())
    }

    /// The graph as a picture; this needs matplotlib.
    fn svg(&self, py: Python<'_>) -> PyResult<String> {
        let drawing = py.import("farcall._graph")?;
        drawing.call_method1("svg", (self.dot(py)?,))?.extract()
    }

    /// The picture in a notebook; nothing without matplotlib.
    fn _repr_svg_(&self, py: Python<'_>) -> PyResult<Option<String>> {
        match self.svg(py) {
            Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
            picture => picture.map(Some),
        }
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        let running = *self.running();
        running.unwrap_or_else(|| self.lock(py).client.len())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        if let Some(calls) = *self.running() {
            return format!("<transaction: {calls} calls, running>");
        }
        let state = self.lock(py);
        let calls = state.client.len();
        match state.report {
            Some(report) => format!("<transaction: {calls} calls in {:.3} s>", report.total),
            // An error or a signal ended it, and calls may have run.
            None if state.is_over => format!("<transaction: {calls} calls, failed>"),
            None => format!("<transaction: {calls} calls, not run>"),
        }
    }
}

/// An array that a call of a transaction makes. It travels to this program when `get()`,
/// `numpy.asarray` or another call needs it.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct RemoteArray {
    form: ArrayForm,
    place: Mutex<Place>,
}

/// How a transaction identifies an array of the caller.
fn identity(array: &Bound<'_, PyAny>) -> PyResult<Identity> {
    if let Some(remote) = given(array) {
        return match &*remote.get().lock() {
            Place::Coming(deferred) => Ok(Identity::Deferred(*deferred)),
            Place::Small(array) | Place::Here(array) => {
                Ok(Identity::Memory(array::address(array.bind(remote.py()))))
            }
            Place::There(_) | Place::Nowhere => {
                let text = "the array belongs to a transaction that has run";
                Err(PyValueError::new_err(text))
            }
        };
    }
    let array = array.cast::<PyUntypedArray>()?;
    Ok(Identity::Memory(array::address(array)))
}

/// Where the array is.
enum Place {
    /// The transaction has not run.
    Coming(Deferred),
    /// The same for a small array, whose memory is here already.
    Small(Py<PyUntypedArray>),
    There(Py<Handle>),
    Here(Py<PyUntypedArray>),
    /// The transaction has failed.
    Nowhere,
}

impl RemoteArray {
    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its transaction has run.
    pub(crate) fn has_run(&self) -> bool {
        !matches!(&*self.lock(), Place::Coming(_) | Place::Small(_))
    }

    /// The argument of a call for it.
    pub(crate) fn argument<'a>(&self) -> Argument<'a> {
        match &*self.lock() {
            Place::There(handle) => handle.get().argument(),
            Place::Coming(_) | Place::Small(_) | Place::Here(_) | Place::Nowhere => Argument::Skip,
        }
    }

    /// The transaction has run or was given up. `is_done` says whether all calls were made.
    fn settle(
        &self,
        py: Python<'_>,
        transaction: &Transaction,
        client: &mut farcall_client::Transaction,
        is_done: bool,
    ) {
        let mut place = self.lock();
        let settled = match &*place {
            Place::Coming(deferred) => {
                let handle = client.take(*deferred).and_then(|handle| {
                    let origin = transaction.origin_of(&handle).clone();
                    Py::new(py, Handle::new(handle, origin, true)).ok()
                });
                handle.map_or(Place::Nowhere, Place::There)
            }
            Place::Small(array) if is_done => Place::Here(array.clone_ref(py)),
            // Nobody knows whether its call was made.
            Place::Small(_) => Place::Nowhere,
            Place::There(_) | Place::Here(_) | Place::Nowhere => return,
        };
        *place = settled;
    }
}

#[pymethods]
impl RemoteArray {
    /// The shape of the array.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.form.shape)
    }

    /// The type of the elements.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArrayDescr>> {
        array::dtype(py, self.form.ty().unwrap_or(Type::Char))
    }

    /// The handle of the array, if it is at a server.
    #[getter]
    fn handle(&self, py: Python<'_>) -> Option<Py<Handle>> {
        match &*self.lock() {
            Place::There(handle) => Some(handle.clone_ref(py)),
            _ => None,
        }
    }

    /// The array. The first call gets it from its server, and the server drops it then.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let handle = match &*self.lock() {
            Place::Here(array) => return Ok(array.bind(py).clone().into_any()),
            Place::There(handle) => handle.clone_ref(py),
            Place::Coming(_) | Place::Small(_) => {
                let text = "the array exists only when its transaction has run";
                return Err(error::arguments(py, "RemoteArray.get", text));
            }
            Place::Nowhere => {
                let text = "the transaction of the array has failed, or has not run";
                return Err(error::arguments(py, "RemoteArray.get", text));
            }
        };
        let array = handle.bind(py).call_method0(intern!(py, "get"))?;
        *self.lock() = Place::Here(array.cast::<PyUntypedArray>()?.clone().unbind());
        Ok(array)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.get(py)?;
        let array = match dtype {
            Some(dtype) => array.call_method1(intern!(py, "astype"), (dtype,))?,
            None => array,
        };
        match copy {
            Some(true) => array.call_method0(intern!(py, "copy")),
            _ => Ok(array),
        }
    }

    /// The only element, as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.get(py)?.call_method0(intern!(py, "item"))
    }

    fn __repr__(&self) -> String {
        let state = match &*self.lock() {
            Place::Coming(_) | Place::Small(_) => "not made yet",
            Place::There(_) => "at a server",
            Place::Here(_) => "here",
            Place::Nowhere => "lost",
        };
        format!(
            "<remote array {} {:?}, {state}>",
            self.form.element, self.form.shape
        )
    }
}

/// The remote array that a caller gives, if it is one.
pub(crate) fn given<'a, 'py>(value: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, RemoteArray>> {
    value.cast::<RemoteArray>().ok()
}

/// The array itself, if a remote array is in this program or at another server.
pub(crate) fn for_server<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    server: &farcall_client::Server,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(remote) = given(value) else {
        return Ok(None);
    };
    let remote = remote.get();
    let is_there = match &*remote.lock() {
        Place::There(handle) => handle.get().is_at(server),
        Place::Here(_) => false,
        // The calls of the transaction use its memory.
        Place::Small(array) if active(py).is_some() => {
            return Ok(Some(array.bind(py).clone().into_any()));
        }
        Place::Coming(_) | Place::Small(_) | Place::Nowhere => return Ok(None),
    };
    match is_there {
        true => Ok(None),
        false => remote.get(py).map(Some),
    }
}

/// The memory of a remote array that is in this program.
pub(crate) fn memory_of<'py>(value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    let remote = given(value)?;
    match &*remote.get().lock() {
        Place::Small(array) | Place::Here(array) => Some(array.bind(value.py()).clone().into_any()),
        _ => None,
    }
}

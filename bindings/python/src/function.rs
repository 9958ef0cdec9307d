//! Function handles and the ways to call them: at once, asynchronously, as durable calls, and as a
//! map over many arguments. `arguments` prepares the arguments, and the client makes the call. The
//! arrays of a call are held until it has ended.

mod arguments;
mod recording;
mod sizes;

use crate::array::{self, Slot};
use crate::durable_call::DurableCall;
use crate::estimate::Estimate;
use crate::future::Future;
use crate::handle;
use crate::interface::Interface;
use crate::notebook;
use crate::origin::Origin;
use crate::reservation::{self, Elements, Rate, Reservation};
use crate::result::Results;
use crate::server::{Server, seconds, take_interrupt};
use crate::source::Receipt;
use crate::times::Times;
use crate::{callback, error, trace, transaction};
use farcall_client::{Argument, LaidOut, Output};
use farcall_idl::{Mode, Order};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Whether blocking calls show their progress; `farcall.progress` sets it.
static SHOWS_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Makes blocking calls show their progress, or stops it.
#[pyfunction]
pub(crate) fn show_progress(shows: bool) {
    SHOWS_PROGRESS.store(shows, Ordering::Relaxed);
}

// The class has no docstring: Python would show it instead of that of each function.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Function {
    client: farcall_client::Function,
    name: String,
    /// What a caller passes, in order: parameters except work space, then callbacks.
    passed: Vec<usize>,
    order: Order,
    results: Results,
    origin: Origin,
    own: Own,
    times: Mutex<Option<Times>>,
    /// The library that computed the last call, also of a handle that was made for one call.
    library: Arc<Mutex<Option<Arc<str>>>>,
}

/// What a user has set for the calls of one handle, beside what the client knows.
#[derive(Clone, Default)]
struct Own {
    /// How long the server keeps the results of a durable call.
    retention: Option<Duration>,
    /// Where the output goes, as the user gave it; `None` of Python is `sys.stdout`.
    output: Option<Arc<Py<PyAny>>>,
}

impl Function {
    pub(crate) fn new(client: farcall_client::Function, origin: Origin) -> Function {
        let interface = client.interface();
        let (params, callbacks) = (interface.params.len(), interface.callbacks.len());
        let passed = |&index: &usize| index >= params || interface.params[index].is_passed();
        Function {
            name: client.qualified_name().to_owned(),
            passed: (0..params + callbacks).filter(passed).collect(),
            order: interface.order(),
            results: Results::new(interface),
            origin,
            own: Own::default(),
            times: Mutex::default(),
            library: Arc::default(),
            client,
        }
    }
}

impl Function {
    /// The same function, whose calls the client makes in another way.
    fn with_client(&self, client: farcall_client::Function) -> Function {
        Function {
            own: self.own.clone(),
            ..Function::new(client, self.origin.clone())
        }
    }

    /// Fails in a forked child, whose parent has the connection.
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.origin.check(py)
    }

    /// The servers that have the function, and the function of each. If none can be reached, calls
    /// tell why.
    fn everywhere(
        &self,
        py: Python<'_>,
    ) -> PyResult<Vec<(farcall_client::Server, farcall_client::Function)>> {
        let mut found = self.reached(py)?;
        if found.is_empty() {
            found.push((self.client.server().clone(), self.client.clone()));
        }
        Ok(found)
    }

    /// The servers that have the function and can be reached, and the function of each.
    fn reached(
        &self,
        py: Python<'_>,
    ) -> PyResult<Vec<(farcall_client::Server, farcall_client::Function)>> {
        // The arguments are for this interface, and a server may have another one by now.
        let is_same = |function: &farcall_client::Function| function.text() == self.client.text();
        let at = |server: farcall_client::Server| {
            let function = server.function(&self.name).ok().filter(is_same)?;
            Some((server, function.with_output(self.client.output().cloned())))
        };
        let found: Vec<_> = py.detach(|| match self.client.reservation() {
            // All calls of a reservation go to one server.
            Some(_) => Vec::new(),
            None => {
                let servers = self.client.servers().unwrap_or_default();
                servers.into_iter().filter_map(at).collect()
            }
        });
        // A server that Ctrl-C kept from answering counts as one that cannot be reached.
        take_interrupt().map_or(Ok(found), Err)
    }

    /// Servers by their addresses.
    fn placed(
        &self,
        found: Vec<(farcall_client::Server, farcall_client::Function)>,
    ) -> Vec<(String, Function)> {
        let function = |(server, client): (farcall_client::Server, farcall_client::Function)| {
            let function = Function::new(client, self.origin.clone());
            (server.address().to_string(), function)
        };
        found.into_iter().map(function).collect()
    }
}

#[pymethods]
impl Function {
    /// The full name, `module/name`.
    #[getter]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.client.interface().name
    }

    /// The interface: parameters, description, and text in the interface language.
    #[getter]
    fn interface(&self) -> Interface {
        Interface::new(self.client.interface())
    }

    /// The times of the last call of this handle; `None` before the first call.
    #[getter]
    pub(crate) fn times(&self) -> Option<Times> {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library that computed the last call of this handle, with its version and its kernel if
    /// the library states them. Before the first call: the library of a server that has the
    /// function.
    #[getter]
    fn library(&self) -> Option<String> {
        let last = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_deref().or(self.client.library());
        known.map(str::to_owned)
    }

    /// An estimate of a call: its bytes, memory and predicted time. This does not make the call.
    /// Arguments are as in a call. Arrays are only needed if their elements decide the sizes of
    /// other arrays.
    #[pyo3(signature = (*args, **kwargs))]
    fn estimate<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Estimate> {
        let (scalars, elements) = self.sizes(py, args, kwargs)?;
        let plan = py.detach(|| self.client.estimate(&scalars, &elements));
        plan.map(Estimate)
            .map_err(|error| error::from_client(py, &error))
    }

    /// The shapes of all arrays of a call, by their names. Arguments are as for `estimate`.
    #[pyo3(name = "_shapes", signature = (*args, **kwargs))]
    fn shapes<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<BTreeMap<&str, Vec<u64>>> {
        let (scalars, elements) = self.sizes(py, args, kwargs)?;
        let laid_out = self.client.lay_out(scalars, elements);
        let laid_out = laid_out.map_err(|error| error::from_client(py, &error))?;
        let (order, params) = (self.client.interface().order(), self.params());
        let arrays = laid_out.layout().arrays.iter();
        let shapes = arrays.map(|array| (params[array.param].name.as_str(), array.shape(order)));
        Ok(shapes.collect())
    }

    /// The earlier name of `estimate`.
    #[pyo3(signature = (*args, **kwargs))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Estimate> {
        error::deprecated(py, c"Function.plan is deprecated; use Function.estimate")?;
        self.estimate(py, args, kwargs)
    }

    /// Another process connects again and asks for the function there. The reservation, the
    /// retention and the output go with it.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.client.is_method() {
            let text = "a method of a remote object cannot be pickled";
            return Err(pyo3::exceptions::PyTypeError::new_err(text));
        }
        let own = PyDict::new(py);
        if let Some(reservation) = self.client.reservation() {
            own.set_item("reservation", reservation.to_string())?;
        }
        if let Some(retention) = self.own.retention {
            own.set_item("hours", retention.as_secs_f64() / 3600.0)?;
        }
        if let Some(output) = &self.own.output {
            own.set_item("output", output.bind(py))?;
        }
        let reduced = self.origin.reduce(py, "function", Some(&self.name))?;
        if own.is_empty() {
            return Ok(reduced);
        }
        let make = py.import("farcall._handles")?.getattr("function_with")?;
        PyTuple::new(
            py,
            [
                make,
                PyTuple::new(py, [own.into_any(), reduced.get_item(1)?])?.into_any(),
            ],
        )
    }

    /// The same function. Its calls write what the library prints, line by line, to `sys.stdout`
    /// or to `target`, a file or a callable. The thread that waits for the call writes it. If
    /// writing raises an exception, the client gives the call up.
    #[pyo3(signature = (target=None))]
    fn with_output(&self, py: Python<'_>, target: Option<Bound<'_, PyAny>>) -> PyResult<Function> {
        let given = target.clone().map_or_else(|| py.None(), Bound::unbind);
        let target = target.map(|target| match target.hasattr("write") {
            Ok(true) => target.getattr("write"),
            _ if target.is_callable() => Ok(target),
            _ => {
                let given = error::describe(&target);
                let expected = "a file or a callable";
                Err(error::argument(py, &self.name, "target", expected, &given))
            }
        });
        let target = target.transpose()?.map(Bound::unbind);
        let output = Output::new(move |line| Ok(callback::write(target.as_ref(), line)?));
        let mut function = self.with_client(self.client.with_output(Some(output)));
        function.own.output = Some(Arc::new(given));
        Ok(function)
    }

    /// Submits a durable call: it survives the end of this program and a restart of the server.
    /// When this returns, the server has recorded the call. Arguments are as in a call; the call
    /// only reads INOUT arrays, and OUT arguments must be left out. `DurableCall.fetch` gets the
    /// results.
    #[pyo3(signature = (*args, **kwargs))]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<DurableCall> {
        // All of an array comes back, so a part of longer lines is an array of its own.
        let given = self.bind(py, args, kwargs, false)?;
        let params = self.params().iter().zip(&given);
        for (param, value) in params.filter(|(param, _)| param.mode == Mode::Out) {
            if let Some(value) = value.as_ref().filter(|value| !value.is_none()) {
                let expected = "nothing: fetch() makes it, or fills an array of its `into`";
                let (name, given) = (&param.name, error::describe(value));
                return Err(error::argument(py, &self.name, name, expected, &given));
            }
        }
        let is_handle = |value: &&Bound<'_, PyAny>| handle::stays(value);
        if let Some(handle) = given.iter().flatten().find(is_handle) {
            let text = format!(
                "{} does not survive a restart of the server, but a durable call does: pass the \
                 array itself",
                error::describe(handle)
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        let (laid_out, mut typed) = self.lay_out(py, &given)?;
        let callbacks = self.callbacks(py, &given)?;
        let mut slots: Vec<Option<Slot<'py>>> = self.params().iter().map(|_| None).collect();
        let arrays = laid_out.layout().arrays.iter();
        for layout in arrays.filter(|array| array.mode.is_sent()) {
            let (index, order) = (layout.param, self.order);
            let param = &self.params()[index];
            if let (Some(given), Some(typed)) = (&given[index], typed[index].take()) {
                let slot = array::place(&self.name, param, layout, order, given, typed)?;
                slots[index] = Some(slot);
            }
        }
        let argument = |slot: &Option<Slot<'_>>| match slot {
            None => Argument::Skip,
            // SAFETY: the slots outlive this function. The user must not change the arrays until it
            // returns: that is the contract of a call.
            Some(slot) => Argument::In(unsafe { slot.bytes() }),
        };
        let mut arguments: Vec<_> = slots.iter().map(argument).collect();
        arguments.extend(callbacks);
        let (retention, client) = (self.own.retention, trace::traced(py, &self.client));
        let job = self.origin.ask(py, || {
            client.submit_laid_out(laid_out, &mut arguments, retention)
        })?;
        Ok(DurableCall::new(job, self.origin.clone()))
    }

    /// The same function. Its calls use a reservation: the result of `reserve`, its id, or the text
    /// that `farcall reservation make` printed. `None` means no reservation.
    fn with_reservation(&self, reservation: Option<&Bound<'_, PyAny>>) -> PyResult<Function> {
        let name = reservation.map(|given| reservation::name(&self.name, given));
        Ok(self.with_client(self.client.with_reservation(name.transpose()?)))
    }

    /// Reserves processor elements and bandwidth for calls of the function, as `Server.reserve`
    /// does. Behind a metaserver, the reservation is at the server that has the function and is
    /// free first.
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
        let (server, made) = self.origin.ask(py, || {
            let made = self.client.reserve(&wanted)?;
            let server = self.client.server().behind(&made.server)?;
            Ok((server, made))
        })?;
        Ok(Reservation::new(server, self.origin.clone(), made))
    }

    /// The caller's reservations that have not ended, at the servers that have the function.
    fn reservations(&self, py: Python<'_>) -> PyResult<Vec<Reservation>> {
        let known = self.origin.ask(py, || {
            let known = self.client.reservations()?.into_iter();
            let server = self.client.server();
            let known = known.map(|one| Ok((server.behind(&one.server)?, one)));
            known.collect::<Result<Vec<_>, _>>()
        })?;
        let reservation = |(server, one)| Reservation::new(server, self.origin.clone(), one);
        Ok(known.into_iter().map(reservation).collect())
    }

    /// The same function. The server keeps the results of its durable calls for so many hours.
    fn with_retention(&self, py: Python<'_>, hours: f64) -> PyResult<Function> {
        let retention = seconds(py, "with_retention", "hours", hours * 3600.0).map_err(|_| {
            let (expected, given) = ("hours greater than 0", hours.to_string());
            error::argument(py, "with_retention", "hours", expected, &given)
        })?;
        let mut function = self.with_client(self.client.clone());
        function.own.retention = Some(retention);
        Ok(function)
    }

    /// The earlier name of `with_retention`.
    fn with_keep(&self, py: Python<'_>, hours: f64) -> PyResult<Function> {
        let text = c"Function.with_keep is deprecated; use Function.with_retention";
        error::deprecated(py, text)?;
        self.with_retention(py, hours)
    }

    /// For `inspect.signature`, and for editors and notebooks that complete the names of arguments.
    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Interface::new(self.client.interface()).python_signature(py)
    }

    #[getter]
    fn __doc__(&self) -> String {
        Interface::new(self.client.interface()).help()
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook::html(slf, "function")
    }

    fn __repr__(&self) -> String {
        format!(
            "<function {} at {}>",
            self.name,
            self.client.server().address()
        )
    }

    /// Calls the function. Arguments are in the order of the interface, or by name. The call makes
    /// the OUT arguments that are left out. It returns OUT and INOUT arguments as a named tuple, or
    /// `None` if the function has none. Callbacks run on this thread while it waits. With
    /// `timeout`, the call ends with `TimeoutError` after so many seconds. With `before`, the
    /// server promises that the call ends within so many seconds, or refuses it: `earliest` of the
    /// error is the time that it can promise. An argument of the function that has one of these
    /// names goes first.
    #[pyo3(signature = (*args, **kwargs))]
    pub(crate) fn __call__<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        if let Some((timely, others)) = this.timely(py, kwargs)? {
            let timely = Bound::new(py, timely)?;
            let result = Function::__call__(&timely, py, args, Some(&others));
            let times = timely.get().times();
            times.into_iter().for_each(|times| this.took(times));
            return result;
        }
        if let Some(transaction) = transaction::active(py) {
            return this.record(py, &transaction, args, kwargs);
        }
        if SHOWS_PROGRESS.load(Ordering::Relaxed) {
            let future = Function::call_async(slf, args, kwargs)?;
            let module = py.import("farcall._progress")?;
            let outcome = module.call_method1("shown", (&this.name, future))?;
            let (result, times) = outcome.extract::<(Bound<'py, PyAny>, Times)>()?;
            this.took(times);
            return Ok(result);
        }
        let (laid_out, mut arguments, slots) = this.prepare(py, args, kwargs)?;
        let receipts = this.run(py, laid_out, &mut arguments)?;
        this.settle(py, slots, receipts)
    }

    /// Calls the function many times, on all servers that have it: once for each of `calls`, which
    /// is a dictionary of arguments by name, a tuple of arguments in order, or one value. All calls
    /// have the arguments `fixed`; a dictionary that names one of them has its own value. This
    /// returns a sweep at once. Iterate over the sweep to get the results in order, each when it is
    /// complete. If a server is lost, its calls are made again at another server, if the interface
    /// says that they are repeatable. With `progress`, or in a block of `farcall.progress`, a bar
    /// shows the progress.
    ///
    /// A server gets `group` entries at a time; "auto" decides by the measured times of calls. If
    /// the function takes a list, one call has a whole group. Such a function has an integer
    /// parameter that is the outermost size of each array of an entry: leave it out.
    #[pyo3(signature = (calls, *, group=None, progress=None, **fixed))]
    fn map<'py>(
        slf: &Bound<'py, Self>,
        calls: &Bound<'py, PyAny>,
        group: Option<Bound<'py, PyAny>>,
        progress: Option<bool>,
        fixed: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.origin.check(py)?;
        if transaction::active(py).is_some() {
            let text =
                "a transaction records its calls: call the function in a loop instead of `map`";
            return Err(error::arguments(py, &this.name, text));
        }
        if this.client.is_method() {
            let text = "a method runs on one object: call it in a loop instead of `map`";
            return Err(error::arguments(py, &this.name, text));
        }
        let functions = this.placed(this.everywhere(py)?);
        let empty = PyDict::new(py);
        let fixed = fixed.unwrap_or(&empty);
        let sweep = py.import("farcall._sweep")?.getattr("Sweep")?;
        let holders = slf.getattr("_holders")?;
        let is_meta = this.client.server().is_metaserver();
        let joined = is_meta.then(|| slf.getattr("_reached")).transpose()?;
        let whole = is_meta.then_some(slf);
        sweep.call1((
            functions, calls, fixed, progress, group, holders, joined, whole,
        ))
    }

    /// The addresses of the servers that can be reached now, and the function of each.
    fn _reached(&self, py: Python<'_>) -> PyResult<Vec<(String, Function)>> {
        Ok(self.placed(self.reached(py)?))
    }

    /// The servers that have the function, and the function of each.
    fn _everywhere(&self, py: Python<'_>) -> PyResult<Vec<(Server, Function)>> {
        self.origin.check(py)?;
        let found = self.everywhere(py)?.into_iter();
        let pair = |(server, client): (farcall_client::Server, farcall_client::Function)| {
            let server = Server::new(server, self.origin.clone());
            (server, Function::new(client, self.origin.clone()))
        };
        Ok(found.map(pair).collect())
    }

    /// Files of data folders, by their names: the addresses of the servers that have them.
    fn _holders(&self, py: Python<'_>) -> PyResult<HashMap<String, Vec<String>>> {
        let data = self.origin.ask(py, || self.client.server().list_data())?;
        let files = data.into_iter().filter_map(|one| {
            let is_file = one.name.owner.as_deref() == Some("");
            is_file.then_some((one.name.name, one.holders))
        });
        Ok(files.collect())
    }

    /// Starts a call and returns its future at once. Any number of calls may be under way at one
    /// server. The future holds the arrays; do not use them until it is done. With `timeout`, the
    /// call is given up after so many seconds, and the future raises `TimeoutError`. `before` is as
    /// in a call.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_async<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Future> {
        let (py, function) = (slf.py(), slf.get());
        if let Some((timely, others)) = function.timely(py, kwargs)? {
            return Function::call_async(&Bound::new(py, timely)?, args, Some(&others));
        }
        if transaction::active(py).is_some() {
            let text = "a transaction records its calls: call the function without `call_async`";
            return Err(error::arguments(py, &function.name, text));
        }
        let (laid_out, mut arguments, slots) = function.prepare(py, args, kwargs)?;
        let client = trace::traced(py, &function.client);
        // SAFETY: the future holds the slots until the call has ended. The user must not use the
        // arrays until then: that is the contract of a call.
        let pending = py.detach(|| unsafe { client.start_laid_out(laid_out, &mut arguments) });
        let pending = pending.map_err(|error| error::from_client(py, &error))?;
        let kept = slots.into_iter().map(|slot| slot.map(Slot::keep));
        Ok(Future::new(slf.clone().unbind(), pending, kept.collect()))
    }
}

/// The name of a call's time limit among its arguments.
const TIMEOUT: &str = "timeout";
/// The name of a call's deadline among its arguments.
const BEFORE: &str = "before";

/// What was written to addresses, by parameter.
pub(crate) type Receipts = Vec<(usize, farcall_client::Receipt)>;

/// The scalars and the sizes of a call, its arguments, and the memory of its arrays.
type Prepared<'py> = (LaidOut, Vec<Argument<'py>>, Vec<Option<Slot<'py>>>);

impl Function {
    /// Whether a name is an option of a call, and no argument of the function.
    fn takes(&self, option: &str) -> bool {
        let interface = self.client.interface();
        let callbacks = interface.callbacks.iter().map(|callback| &callback.name);
        let params = self.params().iter().map(|param| &param.name);
        !params.chain(callbacks).any(|name| name == option)
    }

    /// The function with the time-out and the deadline of a call, if it has one of them, and its
    /// other arguments by name.
    fn timely<'py>(
        &self,
        py: Python<'py>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Option<(Function, Bound<'py, PyDict>)>> {
        let Some(kwargs) = kwargs else {
            return Ok(None);
        };
        let is_given = |option| PyResult::Ok(kwargs.contains(option)? && self.takes(option));
        if !is_given(TIMEOUT)? && !is_given(BEFORE)? {
            return Ok(None);
        }
        let (timeout, others) = self.take_seconds(py, TIMEOUT, kwargs)?;
        let (before, others) = self.take_seconds(py, BEFORE, &others)?;
        let client = self.client.with_timeout(timeout).with_deadline(before);
        let timely = Function {
            library: self.library.clone(),
            ..self.with_client(client)
        };
        Ok(Some((timely, others)))
    }

    /// An option of a call that is a time, and its other arguments by name.
    fn take_seconds<'py>(
        &self,
        py: Python<'py>,
        option: &str,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<(Option<Duration>, Bound<'py, PyDict>)> {
        let given = kwargs.get_item(option)?;
        let Some(limit) = given.filter(|_| self.takes(option)) else {
            return Ok((None, kwargs.clone()));
        };
        let others = kwargs.copy()?;
        others.del_item(option)?;
        if limit.is_none() {
            return Ok((None, others));
        }
        let Ok(limit) = limit.extract::<f64>() else {
            let given = error::describe(&limit);
            let expected = "a number of seconds";
            return Err(error::argument(py, &self.name, option, expected, &given));
        };
        Ok((Some(seconds(py, &self.name, option, limit)?), others))
    }

    fn prepare<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Prepared<'py>> {
        self.origin.check(py)?;
        self.results.prepare(py)?;
        let given = self.bind(py, args, kwargs, true)?;
        let (laid_out, typed) = self.lay_out(py, &given)?;
        let callbacks = self.callbacks(py, &given)?;
        let mut slots = self.place(py, laid_out.layout(), &given, typed)?;
        self.part(py, &mut slots)?;
        let mut arguments = self.arguments(&slots);
        arguments.extend(callbacks);
        Ok((laid_out, arguments, slots))
    }

    /// Copies the results to the caller's arrays where needed, and makes the result of the call.
    pub(crate) fn settle<'py>(
        &self,
        py: Python<'py>,
        slots: Vec<Option<Slot<'py>>>,
        receipts: Receipts,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut slots = slots;
        for slot in slots.iter().flatten() {
            slot.finish()?;
        }
        for (param, receipt) in receipts {
            if let Some(slot) = &mut slots[param] {
                slot.given = Bound::new(py, Receipt::from(receipt))?.into_any();
            }
        }
        self.results.make(py, &slots)
    }

    fn run(
        &self,
        py: Python<'_>,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
    ) -> PyResult<Receipts> {
        let client = trace::traced(py, &self.client);
        let outcome = self
            .origin
            .ask(py, || client.call_laid_out(laid_out, arguments))?;
        self.took(outcome.times.into());
        self.computed_by(outcome.library);
        Ok(outcome.receipts)
    }

    fn took(&self, times: Times) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = Some(times);
    }

    pub(crate) fn computed_by(&self, library: Option<Arc<str>>) {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner) = library;
    }
}

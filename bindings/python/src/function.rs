//! A handle on a remote function, and its call.

mod arguments;
mod recording;

use crate::array::{self, Slot};
use crate::future::Future;
use crate::handle;
use crate::interface::Interface;
use crate::job::Job;
use crate::origin::Origin;
use crate::plan::Plan;
use crate::reservation::{self, Rate, Reservation};
use crate::result::Results;
use crate::server::seconds;
use crate::times::Times;
use crate::{callback, error, transaction};
use farcall_client::{Argument, LaidOut, Output};
use farcall_idl::{Mode, Order};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Whether blocking calls show how far they are: `farcall.progress` decides it.
static SHOWS_PROGRESS: AtomicBool = AtomicBool::new(false);

/// Lets blocking calls show how far they are, or not.
#[pyfunction]
pub(crate) fn show_progress(shows: bool) {
    SHOWS_PROGRESS.store(shows, Ordering::Relaxed);
}

// Without a documentation of the class, which would stand before that of each function.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Function {
    client: farcall_client::Function,
    name: String,
    /// What a caller passes, in order: parameters but work space, and, counted on, callbacks.
    passed: Vec<usize>,
    order: Order,
    results: Results,
    origin: Origin,
    /// How long the outcome of a submitted call is kept.
    keep: Option<Duration>,
    times: Mutex<Option<Times>>,
    /// What has computed the last call.
    library: Mutex<Option<Arc<str>>>,
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
            keep: None,
            times: Mutex::default(),
            library: Mutex::default(),
            client,
        }
    }
}

#[pymethods]
impl Function {
    /// The qualified name, `module/name`.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn __name__(&self) -> &str {
        &self.client.interface().name
    }

    /// The interface: parameters, description, and as text the IDL.
    #[getter]
    fn interface(&self) -> Interface {
        Interface::new(self.client.interface())
    }

    /// How long the last call of this handle took; `None` before the first.
    #[getter]
    pub(crate) fn times(&self) -> Option<Times> {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The library that has computed the last call of this handle, its version and the kernel that
    /// it chose, as far as it says; before the first call, that of a server which has the function.
    #[getter]
    fn library(&self) -> Option<String> {
        let last = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.as_deref().or(self.client.library());
        known.map(str::to_owned)
    }

    /// What a call would take: bytes, memory and predicted time, before anything of it is sent.
    /// Arguments are as in a call; of the arrays those alone are needed on whose elements sizes
    /// depend.
    #[pyo3(signature = (*args, **kwargs))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Plan> {
        self.origin.check(py)?;
        let given = self.bind(py, args, kwargs)?;
        let references = &self.client.interface().element_refs;
        let is_needed = |index: usize| {
            let param = &self.params()[index];
            param.is_value() || references.iter().any(|reference| reference.param == index)
        };
        let (scalars, mut arrays) = self.read(py, &given, is_needed)?;
        let elements = self.elements(py, &scalars, &mut arrays)?;
        let plan = py.detach(|| self.client.estimate(&scalars, &elements));
        plan.map(Plan)
            .map_err(|error| error::from_client(py, &error))
    }

    /// Another process connects anew and asks for the function there.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.client.is_method() {
            let text = "a method of an object on a server cannot be pickled";
            return Err(pyo3::exceptions::PyTypeError::new_err(text));
        }
        self.origin.reduce(py, "function", Some(&self.name))
    }

    /// The same function, whose calls write what the library prints, line by line: to
    /// `sys.stdout`, or to `target`, a file or a callable. It is written on the thread that waits
    /// for the call; an exception gives the call up.
    #[pyo3(signature = (target=None))]
    fn with_output(&self, target: Option<Bound<'_, PyAny>>) -> PyResult<Function> {
        let target = target.map(|target| match target.hasattr("write") {
            Ok(true) => target.getattr("write"),
            _ if target.is_callable() => Ok(target),
            _ => {
                let given = error::describe(&target);
                let expected = "a file or a callable";
                Err(error::argument(
                    target.py(),
                    &self.name,
                    "target",
                    expected,
                    &given,
                ))
            }
        });
        let target = target.transpose()?.map(Bound::unbind);
        let output = Output::new(move |line| Ok(callback::write(target.as_ref(), line)?));
        let client = self.client.with_output(Some(output));
        let function = Function::new(client, self.origin.clone());
        Ok(Function {
            keep: self.keep,
            ..function
        })
    }

    /// Submits a call: once this returns, the server runs it whatever happens to this program or to
    /// the server, and keeps what it comes to. Arguments are as in a call; INOUT arrays are only
    /// read, OUT arguments are left out. `Job.fetch` gets the results.
    #[pyo3(signature = (*args, **kwargs))]
    fn submit<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Job> {
        let given = self.bind(py, args, kwargs)?;
        let params = self.params().iter().zip(&given);
        for (param, value) in params.filter(|(param, _)| param.mode == Mode::Out) {
            if let Some(value) = value.as_ref().filter(|value| !value.is_none()) {
                let expected = "nothing: job.fetch() makes it, or fills an array of its `into`";
                let (name, given) = (&param.name, error::describe(value));
                return Err(error::argument(py, &self.name, name, expected, &given));
            }
        }
        let is_handle = |value: &&Bound<'_, PyAny>| handle::stays(value);
        if let Some(handle) = given.iter().flatten().find(is_handle) {
            let text = format!(
                "{} does not outlive the server, and a submitted call may: pass the array",
                error::describe(handle)
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        let callbacks = self.callbacks(py, &given)?;
        let (laid_out, mut typed) = self.lay_out(py, &given)?;
        let mut slots: Vec<Option<Slot<'py>>> = given.iter().map(|_| None).collect();
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
            // SAFETY: the slots outlive the submission. That the user leaves the arrays alone until
            // it is over is the contract of a call.
            Some(slot) => Argument::In(unsafe { slot.bytes() }),
        };
        let mut arguments: Vec<_> = slots.iter().map(argument).collect();
        arguments.extend(callbacks);
        let keep = self.keep;
        let job = self.origin.ask(py, || {
            self.client.submit_laid_out(laid_out, &mut arguments, keep)
        })?;
        Ok(Job::new(job, self.origin.clone()))
    }

    /// The same function, whose calls have the processor elements of a reservation: what `reserve`
    /// gave, its number or what `farcall reserve` printed, or `None` for those of all.
    fn with_reservation(&self, reservation: Option<&Bound<'_, PyAny>>) -> PyResult<Function> {
        let name = reservation.map(|given| reservation::name(&self.name, given));
        let client = self.client.with_reservation(name.transpose()?);
        let function = Function::new(client, self.origin.clone());
        Ok(Function {
            keep: self.keep,
            ..function
        })
    }

    /// Reserves processor elements for calls of the function, as `Server.reserve` does; behind a
    /// metaserver at the server that has it and can have them first.
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
        let (server, made) = self.origin.ask(py, || {
            let made = self.client.reserve(&wanted)?;
            let server = self.client.server().behind(&made.server)?;
            Ok((server, made))
        })?;
        Ok(Reservation::new(server, self.origin.clone(), made))
    }

    /// The caller's reservations that are not over, at the servers that have the function.
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

    /// The same function; what its submitted calls come to is kept for so many hours.
    fn with_keep(&self, py: Python<'_>, hours: f64) -> PyResult<Function> {
        let keep = seconds(py, "hours", hours * 3600.0)?;
        let client = self.client.clone();
        let function = Function::new(client, self.origin.clone());
        Ok(Function {
            keep: Some(keep),
            ..function
        })
    }

    /// For `inspect.signature`, and editors and notebooks that complete names of arguments.
    #[getter]
    fn __signature__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Interface::new(self.client.interface()).python_signature(py)
    }

    #[getter]
    fn __doc__(&self) -> String {
        Interface::new(self.client.interface()).help()
    }

    fn __repr__(&self) -> String {
        format!(
            "<function {} at {}>",
            self.name,
            self.client.server().address()
        )
    }

    /// Calls the function. Arguments are in the order of the interface, or by name; OUT arguments
    /// left out are made. Returns OUT and INOUT arguments as a named tuple, or `None` if the
    /// function has none. Functions of the caller are called on this thread, while it waits.
    #[pyo3(signature = (*args, **kwargs))]
    pub(crate) fn __call__<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
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
        this.run(py, laid_out, &mut arguments)?;
        this.settle(py, &slots)
    }

    /// Calls the function many times, over all servers that have it: for each of `calls` once, a
    /// dictionary of arguments by name, a tuple in their order, or one value, with `fixed` the same
    /// in all of them. Returns a sweep at once; iterating over it gives the results in order, each
    /// when it is there. Calls that are brief travel in groups; those of a server that is lost are
    /// made elsewhere where they may be repeated. With `progress`, or in a block of
    /// `farcall.progress`, a bar shows how far it is.
    #[pyo3(signature = (calls, *, progress=None, **fixed))]
    fn map<'py>(
        slf: &Bound<'py, Self>,
        calls: &Bound<'py, PyAny>,
        progress: Option<bool>,
        fixed: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        this.origin.check(py)?;
        if transaction::active(py).is_some() {
            let text = "in a transaction calls are not made at once: call it in a loop";
            return Err(error::arguments(py, &this.name, text));
        }
        let at = |server: farcall_client::Server| server.function(&this.name).ok();
        let found = py.detach(|| match this.client.reservation() {
            // All of its calls go to one server.
            Some(_) => Vec::new(),
            None => this.client.servers().into_iter().filter_map(at).collect(),
        });
        let function = |client| Function::new(client, this.origin.clone());
        let mut functions: Vec<Function> = found.into_iter().map(function).collect();
        if functions.is_empty() {
            functions.push(function(this.client.clone()));
        }
        let empty = PyDict::new(py);
        let fixed = fixed.unwrap_or(&empty);
        let sweep = py.import("farcall._sweep")?.getattr("Sweep")?;
        sweep.call1((functions, calls, fixed, progress))
    }

    /// Begins a call and returns its future at once. Any number of calls may be under way on one
    /// server; the arrays are held, and must be left alone, until the future is done.
    #[pyo3(signature = (*args, **kwargs))]
    fn call_async<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Future> {
        let (py, function) = (slf.py(), slf.get());
        if transaction::active(py).is_some() {
            let text = "in a transaction calls are not made at once: call it without `call_async`";
            return Err(error::arguments(py, &function.name, text));
        }
        let (laid_out, mut arguments, slots) = function.prepare(py, args, kwargs)?;
        // SAFETY: the future holds the slots until the call is over or given up. That the user
        // leaves the arrays alone until then is the contract of the call.
        let pending =
            py.detach(|| unsafe { function.client.start_laid_out(laid_out, &mut arguments) });
        let pending = pending.map_err(|error| error::from_client(py, &error))?;
        let kept = slots.into_iter().map(|slot| slot.map(Slot::keep));
        Ok(Future::new(slf.clone().unbind(), pending, kept.collect()))
    }
}

/// The scalars and sizes of a call, its arguments, and the memory of its arrays.
type Prepared<'py> = (LaidOut, Vec<Argument<'py>>, Vec<Option<Slot<'py>>>);

impl Function {
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Prepared<'py>> {
        self.origin.check(py)?;
        let given = self.bind(py, args, kwargs)?;
        let callbacks = self.callbacks(py, &given)?;
        let (laid_out, typed) = self.lay_out(py, &given)?;
        let mut slots = self.place(py, laid_out.layout(), &given, typed)?;
        self.part(py, &mut slots)?;
        let mut arguments = self.arguments(&slots);
        arguments.extend(callbacks);
        Ok((laid_out, arguments, slots))
    }

    /// Hands the results to the caller's arrays, and makes the result.
    pub(crate) fn settle<'py>(
        &self,
        py: Python<'py>,
        slots: &[Option<Slot<'py>>],
    ) -> PyResult<Bound<'py, PyAny>> {
        for slot in slots.iter().flatten() {
            slot.finish()?;
        }
        self.results.make(py, slots)
    }

    fn run(
        &self,
        py: Python<'_>,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
    ) -> PyResult<()> {
        let outcome = self
            .origin
            .ask(py, || self.client.call_laid_out(laid_out, arguments))?;
        self.took(outcome.times.into());
        self.computed_by(outcome.library);
        Ok(())
    }

    fn took(&self, times: Times) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = Some(times);
    }

    pub(crate) fn computed_by(&self, library: Option<Arc<str>>) {
        *self.library.lock().unwrap_or_else(PoisonError::into_inner) = library;
    }
}

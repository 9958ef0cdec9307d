//! A handle on a remote function, and its call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farcall_client::{Argument, Callback, CallbackArguments, Output, Scalar};
use farcall_idl::{Layout, Mode, Order, Param};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::array::{self, Slot, Typed};
use crate::future::Future;
use crate::handle::{self, Keep};
use crate::interface::Interface;
use crate::job::Job;
use crate::plan::Plan;
use crate::reservation::{self, Rate, Reservation};
use crate::result::Results;
use crate::server::{Process, Settings, seconds};
use crate::transaction::{self, Transaction};
use crate::{callback, error, scalar, texts};

/// How long a call took, in seconds: `send` until the server had the arguments, `exec` in the
/// library, `recv` until the server had sent the results, `other` the rest of `total`.
#[pyclass(frozen, get_all, from_py_object, module = "farcall")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    send: f64,
    exec: f64,
    recv: f64,
    other: f64,
    total: f64,
}

#[pymethods]
impl Times {
    fn __repr__(&self) -> String {
        let Times {
            send,
            exec,
            recv,
            other,
            total,
        } = self;
        format!(
            "Times(send={send:.6}, exec={exec:.6}, recv={recv:.6}, other={other:.6}, \
             total={total:.6})"
        )
    }
}

impl From<farcall_client::Times> for Times {
    fn from(times: farcall_client::Times) -> Times {
        let farcall_client::Times {
            send,
            exec,
            recv,
            other,
            total,
        } = times;
        Times {
            send,
            exec,
            recv,
            other,
            total,
        }
    }
}

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
    process: Process,
    settings: Settings,
    /// How long the outcome of a submitted call is kept.
    keep: Option<Duration>,
    times: Mutex<Option<Times>>,
    /// What has computed the last call.
    library: Mutex<Option<Arc<str>>>,
}

impl Function {
    pub(crate) fn new(
        client: farcall_client::Function,
        process: Process,
        settings: Settings,
    ) -> Function {
        let interface = client.interface();
        let (params, callbacks) = (interface.params.len(), interface.callbacks.len());
        let passed = |&index: &usize| index >= params || interface.params[index].is_passed();
        Function {
            name: client.qualified_name().to_owned(),
            passed: (0..params + callbacks).filter(passed).collect(),
            order: interface.order(),
            results: Results::new(interface),
            process,
            settings,
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
        self.process.check(py)?;
        let given = self.bind(py, args, kwargs)?;
        let references = &self.client.interface().element_refs;
        let is_needed = |index: usize| {
            let param = &self.params()[index];
            param.is_value() || references.iter().any(|reference| reference.param == index)
        };
        let (scalars, mut arrays) = self.read(py, &given, is_needed)?;
        let elements = self.elements(py, &scalars, &mut arrays)?;
        let plan = py.detach(|| self.client.plan(&scalars, &elements));
        plan.map(Plan)
            .map_err(|error| error::from_client(py, &error))
    }

    /// Another process connects anew and asks for the function there.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        if self.client.is_method() {
            let text = "a method of an object on a server cannot be pickled";
            return Err(pyo3::exceptions::PyTypeError::new_err(text));
        }
        self.settings.reduce(py, "function", Some(&self.name))
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
        let function = Function::new(client, self.process, self.settings.clone());
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
        self.process.check(py)?;
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
        let (layout, scalars, mut typed) = self.lay_out(py, &given)?;
        let mut slots: Vec<Option<Slot<'py>>> = given.iter().map(|_| None).collect();
        for layout in layout.arrays.iter().filter(|array| array.mode.is_sent()) {
            let (index, order) = (layout.param, self.order);
            let param = &self.params()[index];
            if let (Some(given), Some(typed)) = (&given[index], typed[index].take()) {
                let slot = array::place(&self.name, param, layout, order, given, typed)?;
                slots[index] = Some(slot);
            }
        }
        let argument = |(scalar, slot): (Option<Scalar>, &Option<Slot<'_>>)| match (scalar, slot) {
            (Some(scalar), _) => Argument::Scalar(scalar),
            (None, None) => Argument::Skip,
            // SAFETY: the slots outlive the submission. That the user leaves the arrays alone until
            // it is over is the contract of a call.
            (None, Some(slot)) => Argument::In(unsafe { slot.bytes() }),
        };
        let mut arguments: Vec<_> = scalars.into_iter().zip(&slots).map(argument).collect();
        arguments.extend(callbacks);
        let job = py.detach(|| self.client.submit(&mut arguments, self.keep));
        let job = job.map_err(|error| error::from_client(py, &error))?;
        Ok(Job::new(job, self.process, self.settings.clone()))
    }

    /// The same function, whose calls have the processor elements of a reservation: what `reserve`
    /// gave, its number or what `farcall reserve` printed, or `None` for those of all.
    fn with_reservation(&self, reservation: Option<&Bound<'_, PyAny>>) -> PyResult<Function> {
        let name = reservation.map(|given| reservation::name(&self.name, given));
        let client = self.client.with_reservation(name.transpose()?);
        let function = Function::new(client, self.process, self.settings.clone());
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
        self.process.check(py)?;
        let wanted = reservation::wanted(py, pes, seconds, start, earliest, (up, down))?;
        let made = py.detach(|| {
            let made = self.client.reserve(&wanted)?;
            let server = self.client.server().behind(&made.server)?;
            Ok((server, made))
        });
        let (server, made) = made.map_err(|error| error::from_client(py, &error))?;
        Ok(Reservation::new(server, self.process, made))
    }

    /// The caller's reservations that are not over, at the servers that have the function.
    fn reservations(&self, py: Python<'_>) -> PyResult<Vec<Reservation>> {
        self.process.check(py)?;
        let known = py.detach(|| {
            let known = self.client.reservations()?.into_iter();
            let server = self.client.server();
            let known = known.map(|one| Ok((server.behind(&one.server)?, one)));
            known.collect::<Result<Vec<_>, _>>()
        });
        let known = known.map_err(|error| error::from_client(py, &error))?;
        let reservation = |(server, one)| Reservation::new(server, self.process, one);
        Ok(known.into_iter().map(reservation).collect())
    }

    /// The same function; what its submitted calls come to is kept for so many hours.
    fn with_keep(&self, py: Python<'_>, hours: f64) -> PyResult<Function> {
        let keep = seconds(py, "hours", hours * 3600.0)?;
        let client = self.client.clone();
        let function = Function::new(client, self.process, self.settings.clone());
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
        let (mut arguments, slots) = this.prepare(py, args, kwargs)?;
        this.run(py, &mut arguments)?;
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
        this.process.check(py)?;
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
        let function = |client| Function::new(client, this.process, this.settings.clone());
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
        let (mut arguments, slots) = function.prepare(py, args, kwargs)?;
        // SAFETY: the future holds the slots until the call is over or given up. That the user
        // leaves the arrays alone until then is the contract of the call.
        let pending = py.detach(|| unsafe { function.client.start(&mut arguments) });
        let pending = pending.map_err(|error| error::from_client(py, &error))?;
        let kept = slots.into_iter().map(|slot| slot.map(Slot::keep));
        Ok(Future::new(slf.clone().unbind(), pending, kept.collect()))
    }
}

/// What the caller gave for each parameter.
type Given<'py> = Vec<Option<Bound<'py, PyAny>>>;

/// The arguments of a call, and the memory of its arrays.
type Prepared<'py> = (Vec<Argument<'py>>, Vec<Option<Slot<'py>>>);

impl Function {
    fn params(&self) -> &[Param] {
        &self.client.interface().params
    }

    fn prepare<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Prepared<'py>> {
        self.process.check(py)?;
        let given = self.bind(py, args, kwargs)?;
        let callbacks = self.callbacks(py, &given)?;
        let (layout, scalars, typed) = self.lay_out(py, &given)?;
        let mut slots = self.place(py, &layout, &given, typed)?;
        self.part(py, &mut slots)?;
        let mut arguments = self.arguments(scalars, &slots);
        arguments.extend(callbacks);
        Ok((arguments, slots))
    }

    /// Records a call in a transaction. The result has the caller's arrays, which are filled at
    /// the end, and a remote array for each that was left out.
    fn record<'py>(
        &self,
        py: Python<'py>,
        transaction: &Bound<'py, Transaction>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.process.check(py)?;
        let mut given = self.bind(py, args, kwargs)?;
        for value in given.iter_mut().flatten() {
            if value.cast::<Keep>().is_ok() {
                let text = "in a transaction leave the argument out: its array stays at a server \
                            until it is asked for";
                return Err(error::arguments(py, &self.name, text));
            }
            if let Some(remote) = transaction::given(value)
                && remote.get().has_run()
            {
                *value = remote.get().get(py)?;
            }
        }
        let returns_texts = |param: &&Param| param.is_fixed_texts() && param.mode.is_returned();
        if let Some(param) = self.params().iter().find(returns_texts) {
            let name = &param.name;
            let text = format!(
                "in a transaction no strings come back (`{name}`): call it before or after it"
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        let callbacks = self.callbacks(py, &given)?;
        let (layout, scalars, typed) = self.lay_out(py, &given)?;
        let mut remote = Vec::new();
        for array in &layout.arrays {
            let param = &self.params()[array.param];
            let value = &mut given[array.param];
            let is_left_out = value.as_ref().is_none_or(|value| value.is_none());
            if param.mode == Mode::Out && is_left_out {
                let made = transaction.get().make(py, param, array, self.order)?;
                // Small ones have memory here all the same.
                *value = Some(transaction::memory_of(&made).unwrap_or_else(|| made.clone()));
                remote.push((array.param, made));
            }
        }
        let typed = self.retype(&given, typed)?;
        let mut slots = self.place(py, &layout, &given, typed)?;
        self.part(py, &mut slots)?;
        let mut arguments = self.arguments(scalars, &slots);
        arguments.extend(callbacks);
        transaction
            .get()
            .add(py, &self.client, &mut arguments, &slots)?;
        // What was left out is told as a remote array, whether it has memory here or not.
        for (param, made) in remote {
            if let Some(slot) = &mut slots[param] {
                slot.given = made;
            }
        }
        let result = self.results.make(py, &slots)?;
        transaction.get().hold(slots);
        Ok(result)
    }

    /// The arrays with those that were made since.
    fn retype<'py>(
        &self,
        given: &Given<'py>,
        typed: Vec<Option<Typed<'py>>>,
    ) -> PyResult<Vec<Option<Typed<'py>>>> {
        let params = self.params().iter().zip(given).zip(typed);
        let again = params.map(|((param, given), typed)| match (given, typed) {
            (Some(given), None) if !param.is_value() && param.mode == Mode::Out => {
                match transaction::given(given).is_some() {
                    true => Ok(None),
                    false => array::typed(&self.name, param, given).map(Some),
                }
            }
            (_, typed) => Ok(typed),
        });
        again.collect()
    }

    /// The functions of the caller.
    fn callbacks<'a>(&self, py: Python<'_>, given: &Given<'_>) -> PyResult<Vec<Argument<'a>>> {
        let callbacks = &self.client.interface().callbacks;
        let given = &given[self.params().len()..];
        let callable = |(known, given): (&farcall_idl::Callback, &Option<Bound<'_, PyAny>>)| {
            let callable = given.as_ref().filter(|given| given.is_callable());
            let Some(callable) = callable else {
                let given = given.as_ref().map_or("nothing".into(), error::describe);
                let expected = format!("a callable with {} arguments", known.params.len());
                return Err(error::argument(
                    py,
                    &self.name,
                    &known.name,
                    &expected,
                    &given,
                ));
            };
            let callable = callable.clone().unbind();
            let run =
                move |arguments: &mut CallbackArguments<'_>| callback::run(&callable, arguments);
            Ok(Argument::Function(Callback::new(run)))
        };
        callbacks.iter().zip(given).map(callable).collect()
    }

    /// The name by which Python passes the parameter or callback with this index.
    fn passed_name(&self, index: usize) -> String {
        let interface = self.client.interface();
        let name = match interface.params.get(index) {
            Some(param) => &param.name,
            None => &interface.callbacks[index - interface.params.len()].name,
        };
        Interface::python_name(name)
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

    /// Assigns the arguments to the parameters.
    fn bind<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Given<'py>> {
        let interface = self.client.interface();
        let count = interface.params.len() + interface.callbacks.len();
        let mut given: Given<'py> = vec![None; count];
        if args.len() > self.passed.len() {
            let text = format!(
                "takes {} arguments ({}), given {}",
                self.passed.len(),
                self.signature(),
                args.len()
            );
            return Err(error::arguments(py, &self.name, &text));
        }
        for (value, &index) in args.iter().zip(&self.passed) {
            given[index] = Some(value);
        }
        for (name, value) in kwargs.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_str()?;
            let matches = |&&index: &&usize| self.passed_name(index) == name;
            let Some(&index) = self.passed.iter().find(matches) else {
                let text = format!("has no argument `{name}`; it takes {}", self.signature());
                return Err(error::arguments(py, &self.name, &text));
            };
            if given[index].replace(value).is_some() {
                let text = format!("argument `{name}` is given twice");
                return Err(error::arguments(py, &self.name, &text));
            }
        }
        for value in given.iter_mut().flatten() {
            if let Some(array) = transaction::for_server(py, value, self.client.server())? {
                *value = array;
            }
        }
        Ok(given)
    }

    fn signature(&self) -> String {
        let names: Vec<String> = self.passed.iter().map(|&i| self.passed_name(i)).collect();
        names.join(", ")
    }

    /// Reads the scalars, checks the types of the arrays, and computes the sizes.
    #[allow(clippy::type_complexity)]
    fn lay_out<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
    ) -> PyResult<(Layout, Vec<Option<Scalar>>, Vec<Option<Typed<'py>>>)> {
        let interface = self.client.interface();
        let is_needed = |index: usize| interface.params[index].mode != Mode::Out;
        let (scalars, mut arrays) = self.read(py, given, is_needed)?;
        let elements = self.elements(py, &scalars, &mut arrays)?;
        let layout = interface
            .layout(&scalars, &elements)
            .map_err(|error| error::arguments(py, &self.name, &error.to_string()))?;
        Ok((layout, scalars, arrays))
    }

    /// Reads the scalars and checks the types of the arrays; what is needed must be given.
    #[allow(clippy::type_complexity)]
    fn read<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
        is_needed: impl Fn(usize) -> bool,
    ) -> PyResult<(Vec<Option<Scalar>>, Vec<Option<Typed<'py>>>)> {
        let mut scalars = Vec::with_capacity(given.len());
        let mut arrays = Vec::with_capacity(given.len());
        for (index, (param, value)) in self.params().iter().zip(given).enumerate() {
            let value = value.as_ref().filter(|value| !value.is_none());
            if value.is_none() && param.is_passed() && is_needed(index) {
                let expected = match param.is_value() {
                    true => scalar::expected(param).to_owned(),
                    false if param.is_fixed_texts() => texts::expected(param).to_owned(),
                    false => format!("an array of {}", array::dtype_name(param.ty)),
                };
                let name = &param.name;
                return Err(error::argument(py, &self.name, name, &expected, "nothing"));
            }
            let (mut scalar, mut array) = (None, None);
            match value {
                Some(value) if param.is_value() => {
                    scalar = Some(scalar::read(&self.name, param, value)?);
                }
                Some(value) if param.is_fixed_texts() => {
                    array = Some(array::typed(&self.name, param, value)?);
                }
                // The server checks the form of what it has.
                Some(value) if handle::stays(value) => {}
                Some(value) if transaction::given(value).is_some() => {}
                Some(value) if param.mode.is_returned() && value.cast::<Keep>().is_ok() => {}
                Some(value) => array = Some(array::typed(&self.name, param, value)?),
                None => {}
            }
            scalars.push(scalar);
            arrays.push(array);
        }
        Ok((scalars, arrays))
    }

    /// The elements of IN arrays that sizes depend on.
    fn elements<'py>(
        &self,
        py: Python<'py>,
        scalars: &[Option<Scalar>],
        arrays: &mut [Option<Typed<'py>>],
    ) -> PyResult<Vec<i64>> {
        let interface = self.client.interface();
        if interface.element_refs.is_empty() {
            return Ok(Vec::new());
        }
        for reference in &interface.element_refs {
            let ty = interface.params[reference.param].ty;
            let array = &mut arrays[reference.param];
            *array = array.take().map(|array| array.convert(ty)).transpose()?;
        }
        let bytes = |param: usize| arrays[param].as_ref().map_or(&[][..], Typed::bytes);
        interface
            .element_values(scalars, bytes)
            .map_err(|error| error::arguments(py, &self.name, &error.to_string()))
    }

    fn place<'py>(
        &self,
        py: Python<'py>,
        layout: &Layout,
        given: &Given<'py>,
        mut typed: Vec<Option<Typed<'py>>>,
    ) -> PyResult<Vec<Option<Slot<'py>>>> {
        let mut slots: Vec<Option<Slot<'py>>> = given.iter().map(|_| None).collect();
        for layout in &layout.arrays {
            let (index, order) = (layout.param, self.order);
            let param = &self.params()[index];
            slots[index] = match (&given[index], typed[index].take()) {
                _ if param.mode == Mode::Work => None,
                (Some(given), None)
                    if handle::stays(given) || transaction::given(given).is_some() =>
                {
                    Some(Slot::at_server(given.clone())?)
                }
                (Some(given), None) if let Ok(keep) = given.cast::<Keep>() => {
                    let whose = (self.process, self.settings.clone());
                    let server = self.client.server();
                    let form = (layout, order);
                    let made = keep.get().make(py, server, whose, param, form)?;
                    Some(Slot::at_server(Bound::new(py, made)?.into_any())?)
                }
                (Some(given), Some(typed)) => Some(array::place(
                    &self.name, param, layout, order, given, typed,
                )?),
                _ => Some(Slot::make(py, param, layout, order)?),
            };
        }
        Ok(slots)
    }

    /// Sees to it that no array which is written shares memory with another.
    fn part(&self, py: Python<'_>, slots: &mut [Option<Slot<'_>>]) -> PyResult<()> {
        let returned = |index: usize| self.params()[index].mode.is_returned();
        for written in 0..slots.len() {
            let Some(range) = slots[written].as_ref().map(Slot::range) else {
                continue;
            };
            if !returned(written) {
                continue;
            }
            for index in (0..slots.len()).filter(|&index| index != written) {
                let Some(other) = &slots[index] else { continue };
                let range_of_other = other.range();
                let apart = range.is_empty()
                    || range_of_other.is_empty()
                    || range.end <= range_of_other.start
                    || range_of_other.end <= range.start;
                let same = slots[written]
                    .as_ref()
                    .is_some_and(|slot| slot.given.is(&other.given));
                if returned(index) && (!apart || same) {
                    let (a, b) = (&self.params()[written].name, &self.params()[index].name);
                    let text = format!("arguments `{a}` and `{b}` are written and share memory");
                    return Err(error::arguments(py, &self.name, &text));
                }
                if let Some(other) = slots[index].as_mut().filter(|_| !apart) {
                    other.detach(self.params()[index].ty, self.order)?;
                }
            }
        }
        Ok(())
    }

    fn run(&self, py: Python<'_>, arguments: &mut [Argument<'_>]) -> PyResult<()> {
        let done = py.detach(|| self.client.call(arguments));
        let outcome = done.map_err(|error| error::from_client(py, &error))?;
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

    /// The arguments for the client. They live as long as the caller keeps the slots.
    fn arguments<'a>(
        &self,
        scalars: Vec<Option<Scalar>>,
        slots: &[Option<Slot<'_>>],
    ) -> Vec<Argument<'a>> {
        let argument = |((param, scalar), slot): ((&Param, Option<Scalar>), &Option<Slot<'_>>)| {
            match (scalar, slot) {
                (Some(scalar), _) => Argument::Scalar(scalar),
                (None, None) => Argument::Skip,
                (None, Some(slot))
                    if let Some(kept) = handle::argument(&slot.given, self.client.server()) =>
                {
                    kept
                }
                // In a transaction, where the client knows it; otherwise it is a handle.
                (None, Some(slot)) if let Some(remote) = transaction::given(&slot.given) => {
                    remote.get().argument()
                }
                // SAFETY: the slots outlive the call, and `part` has seen to it that no memory
                // which is written belongs to two of them. That the user leaves the arrays alone
                // until the call ends is the contract of the call.
                (None, Some(slot)) => unsafe {
                    match param.mode {
                        Mode::In => Argument::In(slot.bytes()),
                        _ => Argument::Out(slot.bytes_mut()),
                    }
                },
            }
        };
        let params = self.params().iter().zip(scalars).zip(slots);
        params.map(argument).collect()
    }
}

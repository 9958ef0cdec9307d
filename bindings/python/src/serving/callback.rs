//! Callbacks as arguments of served Python functions. They travel over the worker's line to the
//! server, which passes them to the client. A callback that a function keeps fails after the call
//! has ended.

use crate::array::{self, Slot, Typed};
use crate::{error, scalar};
use farcall_idl::{Interface, Layout, Mode, Order, Param, Scalar};
use farcall_worker::{CallbackAnswer, CallbackRequest, Caller, MOST_CALLBACK_BYTES};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};

/// The connection to the caller, while the call runs.
pub(super) struct Line(Mutex<Option<*mut Caller<'static>>>);

// SAFETY: the pointer is only used under the lock, and a `Caller` may change threads.
unsafe impl Send for Line {}
// SAFETY: the same reason.
unsafe impl Sync for Line {}

impl Line {
    /// # Safety
    /// The line is closed before `caller` is dropped.
    pub(super) unsafe fn open(caller: &mut Caller<'_>) -> Arc<Line> {
        let caller = std::ptr::from_mut(caller);
        // SAFETY: only the lifetime changes, for which the caller answers.
        let caller: *mut Caller<'static> = unsafe { std::mem::transmute(caller) };
        Arc::new(Line(Mutex::new(Some(caller))))
    }

    /// Ends the line, because the call has ended: a callback that the function has kept fails now.
    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn call(&self, request: CallbackRequest) -> Option<CallbackAnswer> {
        let caller = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let caller = (*caller)?;
        // SAFETY: the line is open, so the caller is there; the lock keeps others away.
        Some(unsafe { (*caller)(Ok(request)) })
    }
}

/// A callback of the caller of a served function. Call it with the parameters of its interface in
/// order, or by name. It returns the OUT parameters that are left out, and fills INOUT arrays in
/// place. It cannot be called after the served function has returned.
#[pyclass(frozen, module = "farcall")]
pub(super) struct Callback {
    line: Arc<Line>,
    index: usize,
    interface: Interface,
    /// The values of the function's scalars that its dimensions use: its last parameters.
    outer: Vec<Option<Scalar>>,
}

impl Callback {
    /// `scalars` are those of the call.
    pub(super) fn new(
        line: Arc<Line>,
        of: &Interface,
        index: usize,
        scalars: &[Option<Scalar>],
    ) -> Callback {
        let outer = of.callbacks[index].outer.iter();
        Callback {
            outer: outer.map(|outer| scalars[*outer].clone()).collect(),
            line,
            index,
            interface: of.callbacks[index].interface(of),
        }
    }
}

type Given<'py> = Vec<Option<Bound<'py, PyAny>>>;

#[pymethods]
impl Callback {
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = self.bind(py, args, kwargs)?;
        let (layout, scalars, slots) = self.lay_out(py, &given)?;
        let data = gather(&layout, &slots);
        let request = CallbackRequest {
            index: self.index,
            scalars,
            data,
        };
        let answer = py.detach(|| self.line.call(request));
        let answer = answer.ok_or_else(|| {
            let text = format!("the call of callback `{}` has ended", self.interface.name);
            PyRuntimeError::new_err(text)
        })?;
        if answer.data.len() as u64 != layout.returned_bytes() {
            let text = format!(
                "the answer of callback `{}` is not valid",
                self.interface.name
            );
            return Err(PyRuntimeError::new_err(text));
        }
        scatter(&layout, &slots, answer);
        self.results(py, &given, &slots)
    }

    fn __repr__(&self) -> String {
        format!("<callback {}>", self.interface.name)
    }
}

impl Callback {
    fn params(&self) -> &[Param] {
        &self.interface.params[..self.interface.params.len() - self.outer.len()]
    }

    fn bind<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Given<'py>> {
        let params = self.params();
        let name = &self.interface.name;
        let sent = || (0..params.len()).filter(|&index| params[index].mode != Mode::Out);
        let places: Vec<usize> = match args.len() <= sent().count() {
            true => sent().collect(),
            false => (0..params.len()).collect(),
        };
        let mut given: Given<'py> = vec![None; params.len()];
        if args.len() > places.len() {
            let takes = farcall_quantity::counted(params.len(), "argument");
            let text = format!("takes {takes}, given {}", args.len());
            return Err(error::arguments(py, name, &text));
        }
        for (value, &index) in args.iter().zip(&places) {
            given[index] = Some(value);
        }
        for (key, value) in kwargs.into_iter().flatten() {
            let key = key.cast::<PyString>()?.to_str()?;
            let index = params.iter().position(|param| param.name == key);
            match index.map(|index| given[index].replace(value)) {
                Some(None) => {}
                Some(Some(_)) => {
                    let text = format!("argument `{key}` is given twice");
                    return Err(error::arguments(py, name, &text));
                }
                None => {
                    let text = format!("has no argument `{key}`");
                    return Err(error::arguments(py, name, &text));
                }
            }
        }
        Ok(given)
    }

    #[allow(clippy::type_complexity)]
    fn lay_out<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
    ) -> PyResult<(Layout, Vec<Option<Scalar>>, Vec<Option<Slot<'py>>>)> {
        let name = &self.interface.name;
        let mut scalars = Vec::with_capacity(given.len());
        let mut typed: Vec<Option<Typed<'py>>> = Vec::with_capacity(given.len());
        for (param, value) in self.params().iter().zip(given) {
            let (mut scalar, mut array) = (None, None);
            match value {
                Some(value) if param.is_value() => {
                    scalar = Some(scalar::read(name, param, value)?);
                }
                Some(value) => array = Some(array::typed(name, param, value)?),
                None if param.mode == Mode::Out => {}
                None => {
                    let expected = "an argument";
                    return Err(error::argument(py, name, &param.name, expected, "nothing"));
                }
            }
            scalars.push(scalar);
            typed.push(array);
        }
        scalars.extend(self.outer.iter().cloned());
        let layout = self.interface.layout(&scalars, &[]);
        let layout = layout.map_err(|error| error::arguments(py, name, &error.to_string()))?;
        if layout.bytes > MOST_CALLBACK_BYTES {
            let text = format!(
                "its arrays have {} bytes, more than {MOST_CALLBACK_BYTES}",
                layout.bytes
            );
            return Err(error::arguments(py, name, &text));
        }
        let mut slots: Vec<Option<Slot<'py>>> = given.iter().map(|_| None).collect();
        for array in &layout.arrays {
            let (index, order) = (array.param, Order::RowMajor);
            let param = &self.params()[index];
            slots[index] = Some(match (&given[index], typed[index].take()) {
                (Some(given), Some(typed)) => {
                    array::place(name, param, array, order, given, typed)?
                }
                _ => Slot::make(py, param, array, order)?,
            });
        }
        Ok((layout, scalars, slots))
    }

    /// Fills the arrays that the function gave, and returns the others.
    fn results<'py>(
        &self,
        py: Python<'py>,
        given: &Given<'py>,
        slots: &[Option<Slot<'py>>],
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut made = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            let Some(slot) = slot else { continue };
            slot.finish()?;
            if given[index].is_none() {
                let values = farcall_idl::Values {
                    scalars: &[],
                    elements: &[],
                };
                let dims = &self.params()[index].dims;
                let is_number = dims.iter().all(|dim| dim.size.integer(values) == Ok(1));
                made.push(slot.result(is_number)?);
            }
        }
        match made.len() {
            0 => Ok(py.None().into_bound(py)),
            1 => Ok(made.remove(0)),
            _ => Ok(PyTuple::new(py, made)?.into_any()),
        }
    }
}

/// The sections of the arrays that travel to the caller.
fn gather(layout: &Layout, slots: &[Option<Slot<'_>>]) -> Vec<u8> {
    let mut data = Vec::with_capacity(layout.sent_bytes() as usize);
    for array in layout.arrays.iter().filter(|array| array.mode.is_sent()) {
        let Some(slot) = &slots[array.param] else {
            continue;
        };
        // SAFETY: the slot is held, and nobody writes to it while the interpreter is.
        let bytes = unsafe { slot.bytes() };
        for run in array.client_runs() {
            data.extend_from_slice(&bytes[run.offset as usize..][..run.len as usize]);
        }
    }
    data
}

/// Stores the sections that come back, in the other byte order if the answer says so.
fn scatter(layout: &Layout, slots: &[Option<Slot<'_>>], answer: CallbackAnswer) {
    let mut rest = &answer.data[..];
    for array in layout
        .arrays
        .iter()
        .filter(|array| array.mode.is_returned())
    {
        let Some(slot) = &slots[array.param] else {
            continue;
        };
        // SAFETY: as above; each slot has memory of its own, or that of an array to write to.
        let bytes = unsafe { slot.bytes_mut() };
        for run in array.client_runs() {
            let (part, after) = rest.split_at(run.len as usize);
            rest = after;
            let target = &mut bytes[run.offset as usize..][..run.len as usize];
            target.copy_from_slice(part);
            if answer.swap {
                let unit = array.element.swap_unit() as usize;
                target.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
            }
        }
    }
}

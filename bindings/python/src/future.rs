//! Futures of calls in progress. A future holds the arrays of its call until the call has ended.

use crate::array::{Kept, Slot};
use crate::call_status::CallStatus;
use crate::completion;
use crate::error;
use crate::function::Function;
use crate::notebook;
use crate::origin;
use crate::server::seconds;
use crate::times::Times;
use farcall_client::{Error, Pending, Progress};
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The future of a call. It holds the arrays until the call has ended. If the program deletes the
/// future before that, the client gives the call up.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Future {
    function: Py<Function>,
    state: Mutex<State>,
    /// What drives the future where a coroutine is wanted.
    coroutine: PyOnceLock<Py<PyAny>>,
}

/// What has computed a call.
struct Maker {
    library: Option<Arc<str>>,
    threads: Option<u32>,
}

enum State {
    /// Under way, with the memory that it reads and fills. What the client and the server hold for
    /// the call ends with this state.
    Pending(Arc<Pending>, Vec<Option<Kept>>),
    Done(Py<PyAny>, Times, Maker),
    Failed(PyErr),
    Cancelled,
}

impl Drop for Future {
    fn drop(&mut self) {
        // The call is given up before its memory.
        let state = self.state.get_mut();
        if let State::Pending(pending, _) = state.unwrap_or_else(PoisonError::into_inner) {
            Python::attach(|py| {
                // The call of a parent goes on.
                if self.function.get().check_process(py).is_ok() {
                    py.detach(|| pending.cancel());
                }
            });
        }
    }
}

impl Future {
    pub(crate) fn new(
        function: Py<Function>,
        pending: Pending,
        slots: Vec<Option<Kept>>,
    ) -> Future {
        Future {
            function,
            state: Mutex::new(State::Pending(Arc::new(pending), slots)),
            coroutine: PyOnceLock::new(),
        }
    }

    /// Waits for the lock without the interpreter, which the holder may need.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        loop {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(std::sync::TryLockError::Poisoned(error)) => return error.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {
                    py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
                }
            }
        }
    }

    /// The call, if it is under way as far as this object knows. Ask it without the interpreter: a
    /// thread that moves the call to another server holds its lock, and may need the interpreter.
    fn pending(&self, py: Python<'_>) -> Option<Arc<Pending>> {
        match &*self.lock(py) {
            State::Pending(pending, _) => Some(pending.clone()),
            _ => None,
        }
    }

    /// The same for a caller who can wait for the call. A forked child cannot: the connection is
    /// the parent's. A callback of the call cannot: the call waits for the callback. Nor can a
    /// signal handler that interrupts the thread while it moves the call to another server, or a
    /// function that gets the last output.
    fn awaitable(&self, py: Python<'_>) -> PyResult<Option<Arc<Pending>>> {
        let pending = self.pending(py);
        if pending.is_some() {
            self.function.get().check_process(py)?;
        }
        let Some(call) = &pending else {
            return Ok(pending);
        };
        let (moves, calls_back) = py.detach(|| (call.moves_here(), call.calls_back_here()));
        let text = match (moves, calls_back) {
            (false, false) => return Ok(pending),
            (true, _) => {
                "a signal handler cannot ask a call that its thread moves to another server, nor \
                 can a function that gets the last output of the call; return and ask later, or \
                 raise an exception to end the call"
            }
            (false, true) => {
                "a callback cannot ask its own call; raise an exception to end the call"
            }
        };
        Err(PyRuntimeError::new_err(text))
    }

    /// Waits until the call has ended, for at most `timeout`. Returns the error of a call whose own
    /// time-out passes, and which is given up then.
    fn wait(pending: &Pending, timeout: Option<Duration>) -> Result<Option<Error>, Error> {
        let left = |end: Instant| end.saturating_duration_since(Instant::now());
        match timeout {
            Some(timeout) if pending.deadline().is_none_or(|end| timeout < left(end)) => {
                pending.wait_timeout(timeout).map(|()| None)
            }
            _ => Ok(pending.wait_out().err()),
        }
    }

    /// Whether the time-out of the call has passed.
    fn is_late(pending: &Pending) -> bool {
        pending.deadline().is_some_and(|end| end <= Instant::now())
    }

    /// Makes the result of a call that has ended: with an error, or with the outcome of the client.
    fn settle(&self, py: Python<'_>, state: &mut State, error: Option<Error>) {
        let State::Pending(pending, kept) = state else {
            return;
        };
        let cancelled = || CancelledError::new_err("the call was cancelled");
        let (taken, changed) = py.detach(|| (pending.take(), pending.has_changed()));
        let outcome = match (error, taken) {
            (Some(error), _) | (None, Some(Err(error))) => Err(failure(py, &error, changed)),
            (None, Some(Ok(outcome))) => Ok(outcome),
            (None, None) => Err(cancelled()),
        };
        let bind = |kept: Kept| kept.bind(py);
        let slots = std::mem::take(kept).into_iter();
        let slots: Vec<Option<Slot<'_>>> = slots.map(|kept| kept.map(bind)).collect();
        let settled = outcome.and_then(|outcome| {
            let function = self.function.get();
            let result = function.settle(py, slots, outcome.receipts)?;
            function.computed_by(outcome.library.clone());
            let maker = Maker {
                library: outcome.library,
                threads: outcome.threads,
            };
            Ok(State::Done(result.unbind(), outcome.times.into(), maker))
        });
        *state = settled.unwrap_or_else(State::Failed);
    }
}

#[pymethods]
impl Future {
    /// Waits for the end of the call, and returns or raises what the call returns or raises.
    /// Callbacks run on this thread while it waits. After `timeout` seconds it raises
    /// `TimeoutError`, and the call continues.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = timeout
            .map(|timeout| seconds(py, "result", "timeout", timeout))
            .transpose()?;
        if let Some(pending) = self.awaitable(py)? {
            let error = origin::ask(py, || Future::wait(&pending, timeout))?;
            self.settle(py, &mut self.lock(py), error);
        }
        match &*self.lock(py) {
            State::Done(result, ..) => Ok(result.clone_ref(py)),
            State::Failed(error) => Err(error.clone_ref(py)),
            _ => Err(CancelledError::new_err("the call was cancelled")),
        }
    }

    /// Whether the call has ended, is cancelled, or is given up because its `timeout`, or that of
    /// the connection, has passed. This also moves arrays and files as far as it can without
    /// waiting, and runs a pending callback on this thread.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        if self.pending(py).is_some_and(|pending| pending.moves_here()) {
            return Ok(false);
        }
        let Some(pending) = self.awaitable(py)? else {
            return Ok(true);
        };
        if py.detach(|| pending.is_done()) {
            return Ok(true);
        }
        if !py.detach(|| Future::is_late(&pending)) {
            return Ok(false);
        }
        // It does not wait, because the time has passed.
        let error = origin::ask(py, || Future::wait(&pending, None))?;
        self.settle(py, &mut self.lock(py), error);
        Ok(true)
    }

    /// Gives the call up, and the server ends it. Returns whether the call was under way.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let Some(pending) = self.awaitable(py)? else {
            return Ok(false);
        };
        // Without the lock, because a thread that moves the call may ask this future.
        let was_open = py.detach(|| {
            let is_open = !pending.has_ended();
            if is_open {
                pending.cancel();
            }
            is_open
        });
        let mut state = self.lock(py);
        if !was_open || matches!(*state, State::Done(..)) {
            return Ok(false);
        }
        // The call is given up before its memory.
        *state = State::Cancelled;
        Ok(true)
    }

    /// Whether the call was cancelled.
    fn cancelled(&self, py: Python<'_>) -> bool {
        matches!(*self.lock(py), State::Cancelled)
    }

    /// Calls `callback(future)` once, as soon as the call has ended, was cancelled, or its time
    /// limit has passed. It runs on a thread that waits for all such calls and runs their
    /// callbacks; it should return soon. If the end is known already, it runs at once.
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>) -> PyResult<()> {
        let future = slf.clone().unbind();
        slf.get()
            .tell(slf.py(), move |py| callback.call1(py, (future,)).map(drop))
    }

    /// `wait` and `as_completed` of `concurrent.futures` ask for it, and need their own futures.
    #[getter]
    fn _condition(&self) -> PyResult<()> {
        Err(PyAttributeError::new_err(
            "concurrent.futures does not wait for a farcall.Future. Wait for a \
             concurrent.futures.Future whose `set_result` you have passed to `add_done_callback` \
             of the farcall.Future, or `await` it",
        ))
    }

    /// Calls `told()` in the same manner, for a coroutine that waits for that.
    fn _tell(&self, py: Python<'_>, told: Py<PyAny>) -> PyResult<()> {
        if completion::is_here() {
            let text = "a callback of a call that is awaited cannot await a call: call the \
                        function, or ask the future for its `result`";
            return Err(PyRuntimeError::new_err(text));
        }
        self.tell(py, move |py| told.call0(py).map(drop))
    }

    /// The progress of the arrays of the call in bytes: sent, to send, received, to receive. `None`
    /// when the call has ended. Arrays in shared memory do not travel.
    fn progress(&self, py: Python<'_>) -> Option<(u64, u64, u64, u64)> {
        let Progress {
            sent,
            to_send,
            received,
            to_receive,
        } = self
            .pending(py)
            .and_then(|pending| py.detach(|| pending.progress()))?;
        Some((sent, to_send, received, to_receive))
    }

    /// How the call fares: how far it has come, why it waits, and when it will start and end. This
    /// asks the server.
    fn status(&self, py: Python<'_>) -> PyResult<CallStatus> {
        if let Some(pending) = self.awaitable(py)? {
            return Ok(CallStatus(origin::ask(py, || pending.status())?));
        }
        Ok(CallStatus::over(match self.cancelled(py) {
            true => "was cancelled",
            false => "has ended",
        }))
    }

    /// The function and the state of the call, without a question to the server.
    fn __repr__(&self, py: Python<'_>) -> String {
        let ended = self
            .pending(py)
            .map(|pending| py.detach(|| pending.progress().is_none()));
        let (state, error) = match (&*self.lock(py), ended) {
            (State::Pending(..), Some(true)) => ("has ended", None),
            (State::Pending(..), _) => ("under way", None),
            (State::Done(..), _) => ("done", None),
            (State::Failed(error), _) => ("failed: ", Some(error.clone_ref(py))),
            (State::Cancelled, _) => ("cancelled", None),
        };
        // This may run code in Python, and a signal handler in it that asks for the lock.
        let error = error.map_or_else(String::new, |error| error.to_string());
        format!("<future of {}: {state}{error}>", self.function.get().name())
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook::html(slf, "future")
    }

    /// Whether the time limit of the call has passed: its result is an error now.
    fn _expired(&self, py: Python<'_>) -> bool {
        let Some(pending) = self.pending(py) else {
            return false;
        };
        py.detach(|| Future::is_late(&pending))
    }

    /// The times of the call; `None` before `result` was called.
    #[getter]
    fn times(&self, py: Python<'_>) -> PyResult<Option<Times>> {
        Ok(match &*self.lock(py) {
            State::Done(_, times, _) => Some(*times),
            _ => None,
        })
    }

    /// The library that computed the call, with its version and its kernel; `None` before `result`
    /// was called, or if the library does not state them.
    #[getter]
    fn library(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(match &*self.lock(py) {
            State::Done(_, _, maker) => maker.library.as_deref().map(str::to_owned),
            _ => None,
        })
    }

    /// The number of threads of the library in the call; `None` before `result` was called, or if
    /// the server does not state it.
    #[getter]
    fn threads(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(match &*self.lock(py) {
            State::Done(_, _, maker) => maker.threads,
            _ => None,
        })
    }

    /// The result, in a coroutine of asyncio or trio. If the task is cancelled, so is the call.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let wait = slf.py().import("farcall._waiting")?.getattr("wait")?;
        wait.call1((slf,))?.call_method0("__await__")
    }

    /// Continues what `await` begins, as a coroutine does, so that `asyncio.create_task` takes a
    /// future.
    fn send<'py>(slf: &Bound<'py, Self>, value: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Future::coroutine(slf)?.call_method1("send", (value,))
    }

    /// Raises an exception where the coroutine waits.
    #[pyo3(signature = (*error))]
    fn throw<'py>(
        slf: &Bound<'py, Self>,
        error: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Future::coroutine(slf)?.call_method1("throw", error)
    }

    /// Ends the coroutine.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        Future::coroutine(slf)?.call_method0("close").map(drop)
    }
}

/// The exception of a call. `changed` says whether arrays of the caller may have changed if the
/// call has lost its server.
fn failure(py: Python<'_>, error: &Error, changed: bool) -> PyErr {
    let exception = error::from_client(py, error);
    let told = match changed {
        true => exception.value(py).setattr("_changed", true),
        false => Ok(()),
    };
    match told {
        Ok(()) => exception,
        Err(error) => error,
    }
}

impl Future {
    fn coroutine<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let make = || {
            let wait = slf.py().import("farcall._waiting")?.getattr("wait")?;
            PyResult::Ok(wait.call1((slf,))?.unbind())
        };
        let coroutine = slf.get().coroutine.get_or_try_init(slf.py(), make)?;
        Ok(coroutine.bind(slf.py()).clone())
    }

    /// Runs `told` on the thread that waits for calls, once the call has ended.
    fn tell(
        &self,
        py: Python<'_>,
        told: impl FnOnce(Python<'_>) -> PyResult<()> + Send + 'static,
    ) -> PyResult<()> {
        match self.pending(py) {
            Some(pending) => {
                self.function.get().check_process(py)?;
                completion::tell(py, &pending, told)?;
            }
            None => completion::run(py, told),
        }
        Ok(())
    }
}

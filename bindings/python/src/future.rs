//! Futures of calls in progress. A future holds the arrays of its call until the call has ended.

use crate::array::{Kept, Slot};
use crate::call_status::CallStatus;
use crate::error;
use crate::function::Function;
use crate::origin;
use crate::server::seconds;
use crate::times::Times;
use farcall_client::{Error, Outcome, Pending, Progress};
use pyo3::exceptions::PyRuntimeError;
use pyo3::exceptions::asyncio::CancelledError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// The future of a call. It holds the arrays until the call has ended. If the program deletes the
/// future before that, the client gives the call up.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct Future {
    function: Py<Function>,
    state: Mutex<State>,
    /// The thread that waits for the call with the lock held, and runs its callbacks.
    waiter: Mutex<Option<ThreadId>>,
    limit: Option<TimeLimit>,
}

/// The time limit of one call, which ends when the limit passes.
#[derive(Clone, Copy)]
struct TimeLimit {
    seconds: Duration,
    end: Instant,
}

/// What has computed a call.
struct Maker {
    library: Option<Arc<str>>,
    threads: Option<u32>,
}

enum State {
    /// Under way, with the memory that it reads and fills.
    Pending(Box<Pending>, Vec<Option<Kept>>),
    /// Ended, but its result is not made yet.
    Over(Result<Outcome, Error>, Vec<Option<Kept>>),
    Done(Py<PyAny>, Times, Maker),
    Failed(PyErr),
    Cancelled,
    /// Between two states; the lock is held.
    Moving,
}

impl Future {
    pub(crate) fn new(
        function: Py<Function>,
        pending: Pending,
        slots: Vec<Option<Kept>>,
        limit: Option<(Duration, Instant)>,
    ) -> Future {
        let limit = limit.map(|(seconds, start)| TimeLimit {
            seconds,
            end: start + seconds,
        });
        let state = Mutex::new(State::Pending(Box::new(pending), slots));
        let waiter = Mutex::new(None);
        Future {
            function,
            state,
            waiter,
            limit,
        }
    }

    /// Waits for the lock without the interpreter, which the holder may need. A callback of the
    /// call cannot get the lock: its own thread holds it.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        self.check_waiter()?;
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(std::sync::TryLockError::Poisoned(error)) => return Ok(error.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => {
                    py.detach(|| drop(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
                }
            }
        }
    }

    fn waiter(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_waiter(&self) -> PyResult<()> {
        if *self.waiter() != Some(std::thread::current().id()) {
            return Ok(());
        }
        let text = "a callback cannot ask its own call; raise an exception to end the call";
        Err(PyRuntimeError::new_err(text))
    }

    /// Waits until the call has ended.
    fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *self.waiter() = Some(std::thread::current().id());
        let waited = self.wait_with(&mut state, timeout);
        *self.waiter() = None;
        waited
    }

    fn wait_with(&self, state: &mut State, timeout: Option<Duration>) -> Result<(), Error> {
        let left = self
            .limit
            .map(|limit| limit.end.saturating_duration_since(Instant::now()));
        if let (State::Pending(pending, _), Some(most)) =
            (&*state, left.into_iter().chain(timeout).min())
        {
            let waited = pending.wait_timeout(most);
            if let (Err(Error::Timeout { address, .. }), Some(seconds)) = (&waited, self.passed()) {
                let error = Error::Timeout {
                    address: address.clone(),
                    after: seconds,
                };
                // The call is given up before its memory.
                *state = State::Over(Err(error), Vec::new());
                return Ok(());
            }
            waited?;
        }
        match std::mem::replace(state, State::Moving) {
            State::Pending(pending, slots) => *state = State::Over(pending.wait(), slots),
            other => *state = other,
        }
        Ok(())
    }

    /// The time limit of the call in seconds, if it has passed.
    fn passed(&self) -> Option<Duration> {
        let limit = self.limit.filter(|limit| limit.end <= Instant::now());
        limit.map(|limit| limit.seconds)
    }

    /// Makes the result of a call that has ended.
    fn settle(&self, py: Python<'_>, state: &mut State) {
        match std::mem::replace(state, State::Moving) {
            State::Over(Err(error), _) => *state = State::Failed(error::from_client(py, &error)),
            State::Over(Ok(outcome), kept) => {
                let bind = |kept: Kept| kept.bind(py);
                let slots: Vec<Option<Slot<'_>>> =
                    kept.into_iter().map(|kept| kept.map(bind)).collect();
                *state = match self.function.get().settle(py, slots, outcome.receipts) {
                    Ok(result) => {
                        let library = outcome.library;
                        self.function.get().computed_by(library.clone());
                        let maker = Maker {
                            library,
                            threads: outcome.threads,
                        };
                        State::Done(result.unbind(), outcome.times.into(), maker)
                    }
                    Err(error) => State::Failed(error),
                };
            }
            other => *state = other,
        }
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
            .map(|timeout| seconds(py, "timeout", timeout))
            .transpose()?;
        self.check_waiter()?;
        origin::ask(py, || self.wait(timeout))?;
        let mut state = self.lock(py)?;
        self.settle(py, &mut state);
        match &*state {
            State::Done(result, ..) => Ok(result.clone_ref(py)),
            State::Failed(error) => Err(error.clone_ref(py)),
            _ => Err(CancelledError::new_err("the call was cancelled")),
        }
    }

    /// Whether the call has ended or is cancelled. This also moves arrays and files as far as it
    /// can without waiting, and runs a pending callback on this thread.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.lock(py)?;
        let State::Pending(pending, _) = &*state else {
            return Ok(true);
        };
        *self.waiter() = Some(std::thread::current().id());
        let done = py.detach(|| pending.is_done());
        *self.waiter() = None;
        Ok(done)
    }

    /// Gives the call up, and the server ends it. Returns whether the call was under way.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let mut state = self.lock(py)?;
        let pending = matches!(&*state, State::Pending(pending, _) if !pending.has_ended());
        if pending {
            *state = State::Cancelled;
        }
        Ok(pending)
    }

    /// Whether the call was cancelled.
    fn cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(matches!(*self.lock(py)?, State::Cancelled))
    }

    /// The progress of the arrays of the call in bytes: sent, to send, received, to receive. `None`
    /// when the call has ended. Arrays in shared memory do not travel.
    fn progress(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, u64, u64)>> {
        Ok(match &*self.lock(py)? {
            State::Pending(pending, _) => pending.progress().map(|progress| {
                let Progress {
                    sent,
                    to_send,
                    received,
                    to_receive,
                } = progress;
                (sent, to_send, received, to_receive)
            }),
            _ => None,
        })
    }

    /// How the call fares: how far it has come, why it waits, and when it will start and end. This
    /// asks the server.
    fn status(&self, py: Python<'_>) -> PyResult<CallStatus> {
        match &*self.lock(py)? {
            State::Pending(pending, _) => {
                let status = origin::ask(py, || pending.status())?;
                Ok(CallStatus(status))
            }
            State::Cancelled => Ok(CallStatus::over("was cancelled")),
            _ => Ok(CallStatus::over("has ended")),
        }
    }

    /// Whether the time limit of the connection has passed: the result of the call is an error now.
    fn _expired(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(match &*self.lock(py)? {
            State::Pending(pending, _) => {
                let end = pending.deadline();
                end.is_some_and(|end| end <= Instant::now()) || self.passed().is_some()
            }
            _ => false,
        })
    }

    /// The times of the call; `None` before `result` was called.
    #[getter]
    fn times(&self, py: Python<'_>) -> PyResult<Option<Times>> {
        Ok(match &*self.lock(py)? {
            State::Done(_, times, _) => Some(*times),
            _ => None,
        })
    }

    /// The library that computed the call, with its version and its kernel; `None` before `result`
    /// was called, or if the library does not state them.
    #[getter]
    fn library(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(match &*self.lock(py)? {
            State::Done(_, _, maker) => maker.library.as_deref().map(str::to_owned),
            _ => None,
        })
    }

    /// The number of threads of the library in the call; `None` before `result` was called, or if
    /// the server does not state it.
    #[getter]
    fn threads(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(match &*self.lock(py)? {
            State::Done(_, _, maker) => maker.threads,
            _ => None,
        })
    }

    /// The result, in a coroutine. A thread of the event loop's executor waits.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = slf
            .py()
            .import("asyncio")?
            .call_method0("get_running_loop")?;
        event_loop
            .call_method1("run_in_executor", (slf.py().None(), slf.getattr("result")?))?
            .call_method0("__await__")
    }
}

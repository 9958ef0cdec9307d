//! Durable calls as Python objects: status, results and cancelling. The job id is enough to make
//! such an object in another process.

use crate::array::{self, Slot};
use crate::call_status::CallStatus;
use crate::error;
use crate::interface::Interface;
use crate::notebook;
use crate::origin::Origin;
use crate::result::Results;
use crate::server::seconds;
use farcall_client::{Argument, Error, JobId, SubmittedCall};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The status of a durable call. Times are seconds since 1970, as from `time.time()`.
#[pyclass(frozen, get_all, module = "farcall")]
#[derive(Clone, Debug)]
pub(crate) struct DurableStatus {
    /// The job id.
    id: String,
    /// Full name of the function.
    function: String,
    /// "queued", "running", "done", "failed" or "cancelled".
    state: &'static str,
    /// When the server accepted the call.
    submitted: f64,
    /// When the call began to run.
    started: Option<f64>,
    /// When the call ended.
    ended: Option<f64>,
    /// When the server deletes the call and its results.
    expires: Option<f64>,
    /// Bytes of the call on the disk of the server.
    bytes: u64,
    /// Why the call failed.
    failure: Option<String>,
    /// Why the call waits, and when it will start and end; `None` if it has ended.
    call: Option<CallStatus>,
}

impl From<farcall_client::DurableStatus> for DurableStatus {
    fn from(status: farcall_client::DurableStatus) -> DurableStatus {
        let seconds = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH);
            since.map_or(0.0, |since| since.as_secs_f64())
        };
        DurableStatus {
            id: status.id.to_string(),
            function: status.function,
            state: status.state.name(),
            submitted: seconds(status.submitted),
            started: status.started.map(seconds),
            ended: status.ended.map(seconds),
            expires: status.expires.map(seconds),
            bytes: status.bytes,
            failure: status.failure.map(|failure| failure.message),
            call: None,
        }
    }
}

#[pymethods]
impl DurableStatus {
    fn __repr__(&self) -> String {
        let DurableStatus {
            id,
            function,
            state,
            failure,
            ..
        } = self;
        let call = self.call.as_ref().map(|call| call.0.to_string());
        match failure.clone().or(call) {
            Some(reason) => format!("<{id}: {function} {state}: {reason}>"),
            None => format!("<{id}: {function} {state}>"),
        }
    }
}

/// A durable call: the server records it on disk, so that it survives the end of this program and a
/// restart of the server. `server.job(id)` finds it again.
#[pyclass(frozen, module = "farcall")]
pub(crate) struct DurableCall {
    client: farcall_client::DurableCall,
    origin: Origin,
}

impl DurableCall {
    pub(crate) fn new(client: farcall_client::DurableCall, origin: Origin) -> DurableCall {
        DurableCall { client, origin }
    }

    /// The durable call with an id that a user gives.
    pub(crate) fn named(
        py: Python<'_>,
        server: &farcall_client::Server,
        origin: Origin,
        id: &str,
    ) -> PyResult<DurableCall> {
        let id: JobId = id
            .parse()
            .map_err(|_| error::argument(py, "job", "id", "32 hexadecimal digits", id))?;
        Ok(DurableCall::new(server.job(id), origin))
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&farcall_client::DurableCall) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.origin.ask(py, || question(&self.client))
    }
}

#[pymethods]
impl DurableCall {
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        notebook::html(slf, "durable_call")
    }

    /// The job id: 32 hexadecimal digits.
    #[getter]
    fn id(&self) -> String {
        self.client.id().to_string()
    }

    /// The status of the call; this asks the server.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<DurableStatus> {
        let (status, call) = self.ask(py, |job| {
            let status = job.status()?;
            let call = (!status.state.is_over()).then(|| job.call_status());
            Ok((status, call.transpose()?))
        })?;
        Ok(DurableStatus {
            call: call.map(CallStatus),
            ..status.into()
        })
    }

    /// Waits until the call has ended, and returns its results: OUT and INOUT arguments as a named
    /// tuple. `into` has arrays to fill, by the names of the arguments; the others are made. After
    /// `timeout` seconds it raises `TimeoutError`, and the call continues. If the call has failed,
    /// it raises the failure. The server keeps the results until their retention ends.
    #[pyo3(signature = (timeout=None, *, into=None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
        into: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = timeout
            .map(|timeout| seconds(py, "fetch", "timeout", timeout))
            .transpose()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let submitted = self.ask(py, |job| job.describe())?;
        let slots = slots(py, &submitted, into)?;
        let mut arguments: Vec<Argument<'_>> = slots
            .iter()
            .map(|slot| match slot {
                // SAFETY: the slots outlive the request, and nothing else uses their memory:
                // `slots` has checked that they do not overlap.
                Some(slot) => Argument::Out(unsafe { slot.bytes_mut() }),
                None => Argument::Skip,
            })
            .collect();
        let fetched = py.detach(|| {
            // SAFETY: the same holds here.
            let pending = unsafe { submitted.start(&mut arguments) }?;
            if let Some(deadline) = deadline {
                pending.wait_timeout(deadline.saturating_duration_since(Instant::now()))?;
            }
            pending.wait()
        });
        fetched.map_err(|error| error::from_client(py, &error))?;
        for slot in slots.iter().flatten() {
            slot.finish()?;
        }
        Results::new(submitted.interface()).make(py, &slots)
    }

    /// Cancels the call, if it has not ended; the server stops the library. Returns the status.
    fn cancel(&self, py: Python<'_>) -> PyResult<DurableStatus> {
        Ok(self.ask(py, |job| job.cancel())?.into())
    }

    /// Cancels the call, if it has not ended, and makes the server delete it with its results.
    fn forget(&self, py: Python<'_>) -> PyResult<DurableStatus> {
        Ok(self.ask(py, |job| job.forget())?.into())
    }

    /// Another process connects again.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.origin.reduce(py, "job", Some(&self.id()))
    }

    fn __repr__(&self) -> String {
        format!(
            "<durable call {} at {}>",
            self.client.id(),
            self.client.address()
        )
    }
}

/// Memory for the results: the arrays of `into`, and new arrays.
fn slots<'py>(
    py: Python<'py>,
    submitted: &SubmittedCall,
    into: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<Option<Slot<'py>>>> {
    let interface = submitted.interface();
    let (name, order) = (submitted.function(), interface.order());
    let mut slots: Vec<Option<Slot<'py>>> = interface.params.iter().map(|_| None).collect();
    let mut left: Vec<String> = match into {
        Some(into) => into.keys().extract()?,
        None => Vec::new(),
    };
    let returned = submitted.layout().arrays.iter();
    for layout in returned.filter(|array| array.mode.is_returned()) {
        let param = &interface.params[layout.param];
        let key = Interface::python_name(&param.name);
        let given = into.map(|into| into.get_item(&key)).transpose()?.flatten();
        slots[layout.param] = Some(match given {
            Some(given) => {
                left.retain(|name| *name != key);
                let typed = array::typed(name, param, &given)?;
                array::place(name, param, layout, order, &given, typed)?
            }
            None => Slot::make(py, param, layout, order)?,
        });
    }
    if let Some(unknown) = left.first() {
        let text = format!("`{unknown}` is not an OUT or INOUT argument");
        return Err(error::arguments(py, name, &text));
    }
    let filled: Vec<&Slot<'py>> = slots.iter().flatten().collect();
    for (index, one) in filled.iter().enumerate() {
        for other in &filled[index + 1..] {
            if one.given.is(&other.given) || one.shares(other)? {
                let text = "two arrays of `into` share memory";
                return Err(error::arguments(py, name, text));
            }
        }
    }
    Ok(slots)
}

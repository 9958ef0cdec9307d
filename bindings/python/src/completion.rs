//! The thread of this process that tells Python when calls have ended. It begins with the first
//! such call, and ends before the interpreter does. A forked child begins one of its own.

use farcall_client::{Completions, Pending};
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::sync::{Arc, Mutex, PoisonError};

/// The thread, and the process that began it.
static COMPLETIONS: Mutex<Option<(u32, Arc<Completions>)>> = Mutex::new(None);

/// Runs `told`. An exception is reported and does not go further.
pub(crate) fn run(py: Python<'_>, told: impl FnOnce(Python<'_>) -> PyResult<()>) {
    if let Err(error) = told(py) {
        error.write_unraisable(py, None);
    }
}

/// Runs `told` on the thread, once the call has ended or its deadline has passed.
pub(crate) fn tell(
    py: Python<'_>,
    pending: &Arc<Pending>,
    told: impl FnOnce(Python<'_>) -> PyResult<()> + Send + 'static,
) -> PyResult<()> {
    let told = move || Python::attach(|py| run(py, told));
    let completions = completions(py)?;
    Ok(py.detach(|| completions.tell(pending, told))?)
}

/// Whether this is the thread, which runs the callbacks of calls that coroutines await.
pub(crate) fn is_here() -> bool {
    let known = COMPLETIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let own = known
        .as_ref()
        .filter(|(owner, _)| *owner == std::process::id());
    own.is_some_and(|(_, completions)| completions.is_here())
}

fn completions(py: Python<'_>) -> PyResult<Arc<Completions>> {
    let process = std::process::id();
    let mut known = COMPLETIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, completions)) = known.as_ref().filter(|(owner, _)| *owner == process) {
        return Ok(completions.clone());
    }
    // The thread of a parent does not exist here, so nobody can end it.
    std::mem::forget(known.take());
    let completions = Arc::new(Completions::default());
    *known = Some((process, completions.clone()));
    drop(known);
    let stopped = completions.clone();
    // A thread that asks for the interpreter after its end would end the process.
    let stop = PyCFunction::new_closure(py, None, None, move |arguments, _| {
        // A forked child runs this too when it ends, and does not have the thread.
        if std::process::id() == process {
            arguments.py().detach(|| stopped.stop());
        }
    })?;
    py.import("atexit")?.call_method1("register", (stop,))?;
    Ok(completions)
}

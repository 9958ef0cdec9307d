//! The current span of OpenTelemetry, which causes the calls that are made under it. This module
//! never imports OpenTelemetry: a program that has a span has imported it.

use farcall_client::{Function, TraceContext};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3::{ffi, intern};
use std::borrow::Cow;

/// The function, with calls that belong to the trace of the current span.
pub(crate) fn traced<'f>(py: Python<'_>, function: &'f Function) -> Cow<'f, Function> {
    match current(py) {
        None => Cow::Borrowed(function),
        trace => Cow::Owned(function.with_trace(trace)),
    }
}

/// The current span, if there is one. A fault of OpenTelemetry never fails a call.
fn current(py: Python<'_>) -> Option<TraceContext> {
    // SAFETY: the interpreter has this dictionary as long as it runs.
    let modules = unsafe { Bound::from_borrowed_ptr(py, ffi::PyImport_GetModuleDict()) };
    let modules = modules.cast_into::<PyDict>().ok()?;
    let module = modules
        .get_item(intern!(py, "opentelemetry.trace"))
        .ok()??;
    context(&module).unwrap_or_default()
}

fn context(module: &Bound<'_, PyAny>) -> PyResult<Option<TraceContext>> {
    let py = module.py();
    let span = module.call_method0(intern!(py, "get_current_span"))?;
    let context = span.call_method0(intern!(py, "get_span_context"))?;
    if !context.getattr(intern!(py, "is_valid"))?.is_truthy()? {
        return Ok(None);
    }
    let flags: u8 = context.getattr(intern!(py, "trace_flags"))?.extract()?;
    let trace = bytes(&context.getattr(intern!(py, "trace_id"))?)?;
    let span = bytes(&context.getattr(intern!(py, "span_id"))?)?;
    Ok(TraceContext::with_flags(trace, span, flags))
}

/// The bytes of a number.
fn bytes<const N: usize>(number: &Bound<'_, PyAny>) -> PyResult<[u8; N]> {
    let bytes = number.call_method1(intern!(number.py(), "to_bytes"), (N, "big"))?;
    let bytes = bytes.cast_into::<PyBytes>()?;
    Ok(bytes.as_bytes().try_into()?)
}

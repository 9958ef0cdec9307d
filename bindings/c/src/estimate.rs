//! The estimate of a call, before it is made. The client asks the server now and then, and computes
//! the estimates of similar calls from its answer.

use crate::argument;
use crate::call::unchecked;
use crate::error::{Problem, status};
use crate::function::{Function, share};
use crate::{Status, argument::Value};
use std::ffi::c_void;

/// The estimated cost of a call. Times are in seconds; NaN means that nobody knows yet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// Round trip to the server without data.
    pub latency: f64,
    /// Transfer of the arguments.
    pub send: f64,
    /// Wait for processor elements.
    pub wait: f64,
    /// In the library.
    pub exec: f64,
    /// Transfer of the results.
    pub recv: f64,
    /// The sum of the times above.
    pub total: f64,
    /// Operations, by the interface.
    pub operations: f64,
    /// Bytes of arrays that travel to the server.
    pub sent_bytes: u64,
    /// Bytes of arrays that travel back.
    pub returned_bytes: u64,
}

impl From<farcall_client::Estimate> for Estimate {
    fn from(estimate: farcall_client::Estimate) -> Estimate {
        let known = |value: Option<f64>| value.unwrap_or(f64::NAN);
        Estimate {
            latency: estimate.latency,
            send: known(estimate.send),
            wait: estimate.wait,
            exec: known(estimate.exec),
            recv: known(estimate.recv),
            total: known(estimate.total()),
            operations: known(estimate.operations),
            sent_bytes: estimate.sent_bytes,
            returned_bytes: estimate.returned_bytes,
        }
    }
}

/// Estimates a call with these arguments, which are as for `farcall_call_array`. This reads only
/// scalars, arrays of texts without a length limit, and arrays whose elements decide the sizes of
/// others; other arrays may be NULL. The server is asked once a second at most for calls of about
/// the same size, so that a program can compare the estimate with its own time before every call.
/// Since `FARCALL_1.7`.
///
/// # Safety
/// `function` is from `farcall_function_of`, `arguments` points to `count` addresses, and
/// `estimate` to memory for the estimate. The scalars are of the types of the interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn farcall_estimate_array(
    function: *const Function,
    arguments: *const *mut c_void,
    count: usize,
    estimate: *mut Estimate,
) -> Status {
    status(|| {
        if estimate.is_null() {
            return Err(Problem::null("estimate"));
        }
        // SAFETY: the caller's promise.
        let function = unsafe { share(function) }?;
        // SAFETY: as above.
        let given: Vec<Value> = unsafe { unchecked(arguments, count) }?;
        let values = argument::by_parameter(&function, &given)?;
        // SAFETY: as above.
        let laid_out = unsafe { argument::lay_out(&function, &values) }?;
        let answer = function.estimator().estimate(&laid_out)?;
        // SAFETY: as above.
        unsafe { estimate.write(answer.into()) };
        Ok(Status::FarcallOk)
    })
}

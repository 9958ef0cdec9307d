//! A call under way at one server.

use crate::error::Error;
use crate::outcome::{Outcome, Times};
use crate::remote::connection::Request;
use crate::remote::staging::Staging;
use farcall_rpc_proto::{self as proto, FailureKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A call under way at one server. Dropped before its end, it is given up: the server ends it.
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Copies of its arrays in shared memory, until its end is told.
    staging: Mutex<Option<Staging>>,
    /// What computes it.
    library: Option<Arc<str>>,
    start: Instant,
    /// Whether arrays of it lie in shared memory.
    pub(crate) shares: bool,
}

impl Attempt {
    pub(crate) fn new(
        request: Request,
        staging: Option<Staging>,
        library: Option<Arc<str>>,
        start: Instant,
    ) -> Attempt {
        Attempt {
            request,
            shares: staging.is_some(),
            staging: Mutex::new(staging),
            library,
            start,
        }
    }

    /// What it came to, if it has ended; told once.
    pub(crate) fn take(&self) -> Option<Result<Outcome, Error>> {
        let times = self.request.take_times()?;
        Some(times.map(|times| {
            let staging = self.staging.lock();
            let staging = staging.unwrap_or_else(PoisonError::into_inner).take();
            outcome(times, staging, self.library.clone(), self.start)
        }))
    }

    /// Waits for the end of a call that others may look at.
    pub(crate) fn wait_shared(&self) -> Result<Outcome, Error> {
        self.request.wait_out()?;
        let cancelled = || Error::failed(FailureKind::Cancelled, "it was given up");
        self.take().unwrap_or_else(|| Err(cancelled()))
    }

    /// Waits for the end.
    pub(crate) fn wait(self) -> Result<Outcome, Error> {
        let times = self.request.times()?;
        let staging = self.staging.into_inner();
        let staging = staging.unwrap_or_else(PoisonError::into_inner);
        Ok(outcome(times, staging, self.library, self.start))
    }
}

/// The call has succeeded: its results go where they belong.
fn outcome(
    times: proto::Times,
    staging: Option<Staging>,
    library: Option<Arc<str>>,
    start: Instant,
) -> Outcome {
    if let Some(staging) = staging {
        staging.finish();
    }
    Outcome {
        times: Times::new(times, start.elapsed().as_secs_f64()),
        wait: times.wait as f64 * 1e-9,
        placement: None,
        library,
    }
}

//! An attempt: one try to make a call at one server. `again` and `grid` make further attempts
//! through [`Continues`]. The outcome of a call is taken once. An attempt that is dropped before
//! its end gives the call up.

use crate::error::Error;
use crate::outcome::{Outcome, Times};
use crate::remote::connection::Request;
use crate::remote::staging::Staging;
use farcall_rpc_proto::{self as proto, FailureKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A call under way at one server. If it is dropped before its end, the client gives it up and the
/// server ends it.
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Copies of the call's arrays in shared memory, until its outcome is taken.
    staging: Mutex<Option<Staging>>,
    /// The library that computes the call.
    library: Option<Arc<str>>,
    start: Instant,
    /// Whether arrays of the call lie in shared memory.
    pub(crate) shares: bool,
    /// The outcome of the call and a parameter, if its array is being written to an address.
    written: Mutex<Option<(Outcome, usize)>>,
}

/// A call that has begun, as a caller waits for it.
pub(crate) struct Begun {
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) call: Box<dyn Continues>,
}

/// How a call goes on after an attempt.
pub(crate) enum After {
    /// With another attempt.
    Again(Arc<Attempt>),
    /// Not at all: this is its outcome.
    End(Result<Outcome, Error>),
}

/// A call that may go on with another attempt.
pub(crate) trait Continues: Send {
    /// Says how the call goes on after `ended`, which had this result. Not called again after the
    /// end.
    fn after(&mut self, ended: &Attempt, result: Result<Outcome, Error>) -> After;
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
            written: Mutex::default(),
        }
    }

    /// The last part of a call that has this outcome: the array of a parameter is being written.
    pub(crate) fn writing(request: Request, outcome: Outcome, param: usize) -> Attempt {
        let written = Mutex::new(Some((outcome, param)));
        Attempt {
            written,
            ..Attempt::new(request, None, None, Instant::now())
        }
    }

    /// Takes the outcome of the call if it has ended, once.
    pub(crate) fn take(&self) -> Option<Result<Outcome, Error>> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.is_some() {
            let receipt = self.request.take_receipt()?;
            let (mut outcome, param) = written.take()?;
            return Some(receipt.map(|receipt| {
                let seconds = self.start.elapsed().as_secs_f64();
                outcome.times.other += seconds;
                outcome.times.total += seconds;
                outcome.receipts.push((param, receipt));
                outcome
            }));
        }
        drop(written);
        let times = self.request.take_times()?;
        Some(times.map(|times| {
            let staging = self.staging.lock();
            let staging = staging.unwrap_or_else(PoisonError::into_inner).take();
            outcome(times, staging, self.library.clone(), self.start)
        }))
    }

    /// Waits for the end of the call, which other threads may look at too.
    pub(crate) fn wait_shared(&self) -> Result<Outcome, Error> {
        self.request.wait_out()?;
        let cancelled = || Error::failed(FailureKind::Cancelled, "it was cancelled");
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

/// Puts the results of a successful call where the caller wants them.
fn outcome(
    times: proto::Times,
    staging: Option<Staging>,
    library: Option<Arc<str>>,
    start: Instant,
) -> Outcome {
    if let Some(staging) = staging {
        staging.finish();
    }
    let made = times.made.clone();
    let told = made.as_ref().and_then(|made| made.library.as_deref());
    Outcome {
        wait: times.wait as f64 * 1e-9,
        placement: None,
        library: told.map(Arc::from).or(library),
        threads: made.map(|made| made.threads),
        times: Times::new(&times, start.elapsed().as_secs_f64()),
        receipts: Vec::new(),
        trace: None,
    }
}

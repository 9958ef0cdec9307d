//! Calls under way.

use crate::connection::{self, Progress, Request};
use crate::staging::Staging;
use crate::{Error, Outcome, Times};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A call under way. Dropped before its end, it is given up: the server ends it.
pub struct Pending {
    request: Request,
    /// Copies of its arrays in shared memory, until its end is told.
    staging: Mutex<Option<Staging>>,
    start: Instant,
}

impl Pending {
    pub(crate) fn new(request: Request, staging: Option<Staging>, start: Instant) -> Pending {
        let staging = Mutex::new(staging);
        Pending {
            request,
            staging,
            start,
        }
    }

    /// Whether the call has ended. Moves what can be moved without waiting, and runs the callback
    /// that has come: who asks again and again gets to the end without a wait.
    pub fn is_done(&self) -> bool {
        self.request.is_done()
    }

    /// Whether the call has ended, as far as is known; does nothing for it.
    pub fn has_ended(&self) -> bool {
        self.request.has_ended()
    }

    /// How far its arrays have travelled; none when it has ended.
    pub fn progress(&self) -> Option<Progress> {
        self.request.progress()
    }

    /// Waits for the end, for at most `timeout` from now. After an error that says that the time
    /// is over, the call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.request.wait_for(timeout)
    }

    /// Waits for the end.
    pub fn wait(self) -> Result<Outcome, Error> {
        let start = self.start;
        let times = self.request.times()?;
        let staging = self.staging.into_inner();
        if let Some(staging) = staging.unwrap_or_else(PoisonError::into_inner) {
            staging.finish();
        }
        Ok(Outcome {
            times: Times::new(times, start.elapsed().as_secs_f64()),
        })
    }

    /// When [`crate::Options::timeout`] passes for this call. A wait for several calls does not
    /// end them by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.request.deadline()
    }

    /// What the call came to, if it has ended; told once. Its arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        let times = self.request.take_times()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = staging.take();
        Some(times.map(|times| {
            if let Some(staging) = staging {
                staging.finish();
            }
            let total = self.start.elapsed().as_secs_f64();
            Outcome {
                times: Times::new(times, total),
            }
        }))
    }

    /// Gives the call up: its arrays are left alone from now on, the server ends it, and every wait
    /// for it returns.
    pub fn cancel(&self) {
        self.request.cancel();
    }
}

/// Waits until one of the calls has ended, whatever their servers. Returns `false` when `deadline`
/// comes before, or when there is none to wait for.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    let requests: Vec<&Request> = calls.iter().map(|call| &call.request).collect();
    connection::wait_for_any(&requests, deadline)
}

//! Calls under way.

use crate::connection::{self, Progress, Request};
use crate::grid::Placed;
use crate::staging::Staging;
use crate::{Error, Outcome, Times};
use farcall_rpc_proto::{self as proto, Failure, FailureKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A call under way. Dropped before its end, it is given up: the server ends it.
///
/// A call that a metaserver has placed goes on elsewhere where its server is lost and the function
/// is declared repeatable; while somebody waits for it, as all calls.
pub struct Pending {
    attempt: Mutex<Arc<Attempt>>,
    /// What it takes to go on elsewhere.
    placed: Option<Box<Placed>>,
}

/// A call at one server.
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Copies of its arrays in shared memory, until its end is told.
    staging: Mutex<Option<Staging>>,
    /// What computes it.
    library: Option<Arc<str>>,
    start: Instant,
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

    fn outcome(&self, times: proto::Times) -> Outcome {
        let staging = self.staging.lock();
        if let Some(staging) = staging.unwrap_or_else(PoisonError::into_inner).take() {
            staging.finish();
        }
        Outcome {
            times: Times::new(times, self.start.elapsed().as_secs_f64()),
            wait: times.wait as f64 * 1e-9,
            placement: None,
            library: self.library.clone(),
        }
    }

    /// What it came to, if it has ended; told once.
    pub(crate) fn take(&self) -> Option<Result<Outcome, Error>> {
        let times = self.request.take_times()?;
        Some(times.map(|times| self.outcome(times)))
    }

    fn wait_shared(&self) -> Result<Outcome, Error> {
        self.request.wait_out()?;
        let cancelled = || Error::Failed(Failure::new(FailureKind::Cancelled, "it was given up"));
        self.take().unwrap_or_else(|| Err(cancelled()))
    }

    fn wait(self) -> Result<Outcome, Error> {
        let Attempt {
            request,
            staging,
            library,
            start,
            shares: _,
        } = self;
        let times = request.times()?;
        let staging = staging.into_inner();
        if let Some(staging) = staging.unwrap_or_else(PoisonError::into_inner) {
            staging.finish();
        }
        Ok(Outcome {
            times: Times::new(times, start.elapsed().as_secs_f64()),
            wait: times.wait as f64 * 1e-9,
            placement: None,
            library,
        })
    }
}

impl Pending {
    pub(crate) fn new(attempt: Attempt) -> Pending {
        Pending {
            attempt: Mutex::new(Arc::new(attempt)),
            placed: None,
        }
    }

    /// One whose attempt has begun already.
    pub(crate) fn shared(attempt: Arc<Attempt>) -> Pending {
        Pending {
            attempt: Mutex::new(attempt),
            placed: None,
        }
    }

    /// One that may go on elsewhere.
    pub(crate) fn placed(self, placed: Placed) -> Pending {
        Pending {
            placed: Some(Box::new(placed)),
            ..self
        }
    }

    /// The attempt, of a call that was just begun.
    pub(crate) fn into_attempt(self) -> Arc<Attempt> {
        let attempt = self.attempt.into_inner();
        attempt.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Attempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Arc<Attempt> {
        self.lock().clone()
    }

    /// Whether a call whose attempt has ended goes on with another one, at another server.
    fn goes_on(&self, ended: &Arc<Attempt>) -> bool {
        let Some(placed) = &self.placed else {
            return false;
        };
        let mut attempt = self.lock();
        if !Arc::ptr_eq(&attempt, ended) {
            // Another thread has seen to it.
            return true;
        }
        match placed.next(ended) {
            Some(next) => {
                *attempt = next;
                true
            }
            None => false,
        }
    }

    /// Whether the call has ended. Moves what can be moved without waiting, and runs the callback
    /// that has come: who asks again and again gets to the end without a wait.
    pub fn is_done(&self) -> bool {
        let attempt = self.current();
        attempt.request.is_done() && !self.goes_on(&attempt)
    }

    /// Whether the call has ended, as far as is known; does nothing for it but to begin it anew at
    /// another server where its own was lost.
    pub fn has_ended(&self) -> bool {
        let attempt = self.current();
        attempt.request.has_ended() && !self.goes_on(&attempt)
    }

    /// How far its arrays have travelled; none when it has ended.
    pub fn progress(&self) -> Option<Progress> {
        self.current().request.progress()
    }

    /// Waits for the end, for at most `timeout` from now. After an error that says that the time
    /// is over, the call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(timeout);
        let mut left = timeout;
        loop {
            let attempt = self.current();
            attempt
                .request
                .wait_for(left)
                .map_err(|error| match error {
                    Error::Timeout { address, .. } => Error::Timeout {
                        address,
                        after: timeout,
                    },
                    other => other,
                })?;
            if !self.goes_on(&attempt) {
                return Ok(());
            }
            left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
        }
    }

    /// Waits for the end.
    pub fn wait(self) -> Result<Outcome, Error> {
        let Some(placed) = &self.placed else {
            let attempt = self.into_attempt();
            return match Arc::try_unwrap(attempt) {
                Ok(attempt) => attempt.wait(),
                // A wait for several calls that is about to return still looks at it.
                Err(attempt) => attempt.wait_shared(),
            };
        };
        let ended = self.wait_out()?;
        placed.take_end().unwrap_or_else(|| ended.wait_shared())
    }

    /// Waits for the end, and leaves it to be taken. A call whose time-out passes is given up.
    pub(crate) fn wait_out(&self) -> Result<Arc<Attempt>, Error> {
        loop {
            let attempt = self.current();
            if let Err(error) = attempt.request.wait_out() {
                self.cancel();
                return Err(error);
            }
            if !self.goes_on(&attempt) {
                return Ok(attempt);
            }
        }
    }

    /// When [`crate::Options::timeout`] passes for this call. A wait for several calls does not
    /// end them by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.current().request.deadline()
    }

    /// What the call came to, if it has ended; told once. Its arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        let attempt = self.current();
        match &self.placed {
            None => attempt.take(),
            Some(_) if attempt.request.has_ended() && self.goes_on(&attempt) => None,
            Some(placed) => placed.take_end().or_else(|| attempt.take()),
        }
    }

    /// Gives the call up: its arrays are left alone from now on, the server ends it, and every wait
    /// for it returns.
    pub fn cancel(&self) {
        if let Some(placed) = &self.placed {
            placed.give_up();
        }
        self.current().request.cancel();
    }
}

/// Waits until one of the calls has ended, whatever their servers. Returns `false` when `deadline`
/// comes before, or when there is none to wait for.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    loop {
        let attempts: Vec<Arc<Attempt>> = calls.iter().map(|call| call.current()).collect();
        let requests: Vec<&Request> = attempts.iter().map(|attempt| &attempt.request).collect();
        if !connection::wait_for_any(&requests, deadline)? {
            return Ok(false);
        }
        let ended = calls
            .iter()
            .zip(&attempts)
            .filter(|(_, attempt)| attempt.request.has_ended());
        // Each that can go on does.
        let over = ended
            .filter(|(call, attempt)| !call.goes_on(attempt))
            .count();
        if over > 0 {
            return Ok(true);
        }
    }
}

//! Calls under way: how a caller waits for them, asks about them and gives them up.
//!
//! A call ends exactly once, and its outcome is taken once. A call may consist of several attempts,
//! one after the other; `remote` and `grid` decide whether it continues.

use crate::call_status::CallStatus;
use crate::error::Error;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::remote::{self, After, Attempt, Begun, Continues, Request};
use crate::trace::CallSpan;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A call under way. If it is dropped before its end, the client gives it up and the server ends
/// it.
///
/// If the server of a placed call is lost and the function is declared repeatable, the call
/// continues at another server. If a server is replaced by another one before it began with the
/// call, the call continues there. Like every call, it makes progress only while a thread waits for
/// it.
pub struct Pending {
    state: Mutex<State>,
}

struct State {
    call: Box<dyn Continues>,
    /// The current attempt, or the last one.
    attempt: Arc<Attempt>,
    /// The call has ended, or was given up. Holds its outcome until it is taken; the outcome of a
    /// call that was given up stays with its attempt.
    over: bool,
    end: Option<Result<Outcome, Error>>,
    /// The span of the call, until the call is over.
    span: Option<CallSpan>,
}

impl From<Begun> for Pending {
    fn from(begun: Begun) -> Pending {
        let state = State {
            call: begun.call,
            attempt: begun.attempt,
            over: false,
            end: None,
            span: None,
        };
        Pending {
            state: Mutex::new(state),
        }
    }
}

impl Pending {
    /// The same call with its span.
    pub(crate) fn with_span(self, span: CallSpan) -> Pending {
        self.lock().span = Some(span);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current attempt, or the last one.
    pub(crate) fn current(&self) -> Arc<Attempt> {
        self.lock().attempt.clone()
    }

    /// Whether the call continues with another attempt after one has ended.
    fn goes_on(&self, ended: &Arc<Attempt>) -> bool {
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.attempt, ended) {
            // Another thread has moved the call already.
            return true;
        }
        if state.over {
            return false;
        }
        let Some(result) = ended.take() else {
            return false;
        };
        match state.call.after(ended, result) {
            After::Again(attempt) => state.attempt = attempt,
            After::End(end) => {
                state.over = true;
                state.end = Some(match state.span.take() {
                    Some(span) => span.end(end),
                    None => end,
                });
            }
        }
        !state.over
    }

    /// Whether the call has ended. Moves data that can be moved without waiting, and runs a
    /// callback that has arrived. A caller that asks repeatedly reaches the end of the call without
    /// waiting.
    pub fn is_done(&self) -> bool {
        let attempt = self.current();
        attempt.request.is_done() && !self.goes_on(&attempt)
    }

    /// Whether the call is known to have ended. Moves no data, but begins the call again at another
    /// server if its server was lost.
    pub fn has_ended(&self) -> bool {
        let attempt = self.current();
        attempt.request.has_ended() && !self.goes_on(&attempt)
    }

    /// How many bytes of the arrays have travelled; `None` after the end of the call.
    pub fn progress(&self) -> Option<Progress> {
        self.current().request.progress()
    }

    /// How the call fares: how far it has come, why it waits, and when it will start and end. This
    /// asks its server.
    pub fn status(&self) -> Result<CallStatus, Error> {
        self.current().request.status()
    }

    /// The address of the server that has the call, or had it last.
    pub fn server(&self) -> String {
        self.current().request.server()
    }

    /// Waits for the end of the call, for at most `timeout` from now. After a timeout error the
    /// call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(timeout);
        let mut left = timeout;
        loop {
            let attempt = self.current();
            let waited = attempt.request.wait_for(left);
            waited.map_err(|error| match error {
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

    /// Waits for the end of the call and leaves its outcome to be taken. Gives the call up at its
    /// [deadline](Pending::deadline).
    pub fn wait_out(&self) -> Result<(), Error> {
        self.last().map(drop)
    }

    /// Waits for the end of the last attempt. Gives the call up after the timeout.
    fn last(&self) -> Result<Arc<Attempt>, Error> {
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

    /// Waits for the end of the call.
    pub fn wait(self) -> Result<Outcome, Error> {
        let ended = self.last()?;
        let end = self.lock().end.take();
        end.unwrap_or_else(|| ended.wait_shared())
    }

    /// Whether the current thread runs a callback of this call, which cannot wait for the call.
    pub fn calls_back_here(&self) -> bool {
        self.current().request.works_here()
    }

    /// When the timeout of this call ([`crate::Options::timeout`]) passes. A wait for several calls
    /// does not give them up then.
    pub fn deadline(&self) -> Option<Instant> {
        self.current().request.deadline()
    }

    /// Takes the outcome of the call if it has ended, once. The arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        let attempt = self.current();
        if attempt.request.has_ended() && self.goes_on(&attempt) {
            return None;
        }
        self.lock().end.take().or_else(|| attempt.take())
    }

    /// Gives the call up. The client no longer touches its arrays, the server ends it, and every
    /// wait for it returns.
    pub fn cancel(&self) {
        let mut state = self.lock();
        state.over = true;
        state.span = None;
        state.attempt.request.cancel();
    }
}

/// Waits until one of the calls has ended, at any server. Returns `false` if `deadline` passes
/// first, or if `calls` is empty.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    loop {
        let attempts: Vec<Arc<Attempt>> = calls.iter().map(|call| call.current()).collect();
        let requests: Vec<&Request> = attempts.iter().map(|attempt| &attempt.request).collect();
        if !remote::wait_for_any(&requests, deadline)? {
            return Ok(false);
        }
        let pairs = calls.iter().zip(&attempts);
        let ended = pairs.filter(|(_, attempt)| attempt.request.has_ended());
        // Every call that can continue elsewhere does so.
        if ended
            .filter(|(call, attempt)| !call.goes_on(attempt))
            .count()
            > 0
        {
            return Ok(true);
        }
    }
}

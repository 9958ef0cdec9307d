//! Calls under way: how a caller waits for them, asks about them and gives them up.
//!
//! A call ends exactly once, and its outcome is taken once. This module hides whether the call is
//! at one server or was placed; `remote` and `grid` do the work.

use crate::error::Error;
use crate::grid::{Placed, Started};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::remote::{self, Attempt, Request};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call under way. If it is dropped before its end, the client gives it up and the server ends
/// it.
///
/// If the server of a placed call is lost and the function is declared repeatable, the call
/// continues at another server. Like every call, it makes progress only while a thread waits for
/// it.
pub struct Pending(Call);

#[expect(
    clippy::large_enum_variant,
    reason = "a call of one server costs no box"
)]
enum Call {
    /// A call at one server.
    One(Attempt),
    /// A placed call behind a metaserver.
    Many(Box<Placed>),
}

impl From<Attempt> for Pending {
    fn from(attempt: Attempt) -> Pending {
        Pending(Call::One(attempt))
    }
}

impl From<Started> for Pending {
    fn from(started: Started) -> Pending {
        Pending(match started {
            Started::Placed(placed) => Call::Many(placed),
            Started::There(attempt) => Call::One(*attempt),
        })
    }
}

/// The current attempt of a call.
enum Current<'c> {
    Only(&'c Attempt),
    Shared(Arc<Attempt>),
}

impl Deref for Current<'_> {
    type Target = Attempt;

    fn deref(&self) -> &Attempt {
        match self {
            Current::Only(attempt) => attempt,
            Current::Shared(attempt) => attempt,
        }
    }
}

impl Pending {
    fn current(&self) -> Current<'_> {
        match &self.0 {
            Call::One(attempt) => Current::Only(attempt),
            Call::Many(placed) => Current::Shared(placed.current()),
        }
    }

    /// Whether the call has ended. Moves data that can be moved without waiting, and runs a
    /// callback that has arrived. A caller that asks repeatedly reaches the end of the call without
    /// waiting.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Call::One(attempt) => attempt.request.is_done(),
            Call::Many(placed) => placed.is_done(),
        }
    }

    /// Whether the call is known to have ended. Moves no data, but begins the call again at another
    /// server if its server was lost.
    pub fn has_ended(&self) -> bool {
        match &self.0 {
            Call::One(attempt) => attempt.request.has_ended(),
            Call::Many(placed) => placed.has_ended(),
        }
    }

    /// How many bytes of the arrays have travelled; `None` after the end of the call.
    pub fn progress(&self) -> Option<Progress> {
        self.current().request.progress()
    }

    /// Waits for the end of the call, for at most `timeout` from now. After a timeout error the
    /// call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        match &self.0 {
            Call::One(attempt) => attempt.request.wait_for(timeout),
            Call::Many(placed) => placed.wait_timeout(timeout),
        }
    }

    /// Waits for the end of the call.
    pub fn wait(self) -> Result<Outcome, Error> {
        match self.0 {
            Call::One(attempt) => attempt.wait(),
            Call::Many(placed) => placed.wait(),
        }
    }

    /// When the timeout of this call ([`crate::Options::timeout`]) passes. A wait for several calls
    /// does not give them up then.
    pub fn deadline(&self) -> Option<Instant> {
        self.current().request.deadline()
    }

    /// Takes the outcome of the call if it has ended, once. The arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        match &self.0 {
            Call::One(attempt) => attempt.take(),
            Call::Many(placed) => placed.take(),
        }
    }

    /// Gives the call up. The client no longer touches its arrays, the server ends it, and every
    /// wait for it returns.
    pub fn cancel(&self) {
        match &self.0 {
            Call::One(attempt) => attempt.request.cancel(),
            Call::Many(placed) => placed.cancel(),
        }
    }

    /// Whether a call whose attempt has ended does not continue elsewhere.
    fn is_over(&self, ended: &Current<'_>) -> bool {
        match (&self.0, ended) {
            (Call::Many(placed), Current::Shared(attempt)) => !placed.goes_on(attempt),
            _ => true,
        }
    }
}

/// Waits until one of the calls has ended, at any server. Returns `false` if `deadline` passes
/// first, or if `calls` is empty.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    loop {
        let attempts: Vec<Current<'_>> = calls.iter().map(|call| call.current()).collect();
        let requests: Vec<&Request> = attempts.iter().map(|attempt| &attempt.request).collect();
        if !remote::wait_for_any(&requests, deadline)? {
            return Ok(false);
        }
        let pairs = calls.iter().zip(&attempts);
        let ended = pairs.filter(|(_, attempt)| attempt.request.has_ended());
        // Every call that can continue elsewhere does so.
        if ended
            .filter(|(call, attempt)| call.is_over(attempt))
            .count()
            > 0
        {
            return Ok(true);
        }
    }
}

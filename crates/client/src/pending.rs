//! Calls under way.

use crate::error::Error;
use crate::grid::{Placed, Started};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::remote::{self, Attempt, Request};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A call under way. Dropped before its end, it is given up: the server ends it.
///
/// A call that a metaserver has placed goes on elsewhere where its server is lost and the function
/// is declared repeatable; while somebody waits for it, as all calls.
pub struct Pending(Call);

#[expect(
    clippy::large_enum_variant,
    reason = "a call of one server costs no box"
)]
enum Call {
    /// At one server to its end.
    One(Attempt),
    /// At one of many, or at the next.
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

/// The attempt of a call that is under way.
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

    /// Whether the call has ended. Moves what can be moved without waiting, and runs the callback
    /// that has come: who asks again and again gets to the end without a wait.
    pub fn is_done(&self) -> bool {
        match &self.0 {
            Call::One(attempt) => attempt.request.is_done(),
            Call::Many(placed) => placed.is_done(),
        }
    }

    /// Whether the call has ended, as far as is known; does nothing for it but to begin it anew at
    /// another server where its own was lost.
    pub fn has_ended(&self) -> bool {
        match &self.0 {
            Call::One(attempt) => attempt.request.has_ended(),
            Call::Many(placed) => placed.has_ended(),
        }
    }

    /// How far its arrays have travelled; none when it has ended.
    pub fn progress(&self) -> Option<Progress> {
        self.current().request.progress()
    }

    /// Waits for the end, for at most `timeout` from now. After an error that says that the time
    /// is over, the call is still under way.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), Error> {
        match &self.0 {
            Call::One(attempt) => attempt.request.wait_for(timeout),
            Call::Many(placed) => placed.wait_timeout(timeout),
        }
    }

    /// Waits for the end.
    pub fn wait(self) -> Result<Outcome, Error> {
        match self.0 {
            Call::One(attempt) => attempt.wait(),
            Call::Many(placed) => placed.wait(),
        }
    }

    /// When [`crate::Options::timeout`] passes for this call. A wait for several calls does not
    /// end them by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.current().request.deadline()
    }

    /// What the call came to, if it has ended; told once. Its arrays are filled by then.
    pub fn take(&self) -> Option<Result<Outcome, Error>> {
        match &self.0 {
            Call::One(attempt) => attempt.take(),
            Call::Many(placed) => placed.take(),
        }
    }

    /// Gives the call up: its arrays are left alone from now on, the server ends it, and every wait
    /// for it returns.
    pub fn cancel(&self) {
        match &self.0 {
            Call::One(attempt) => attempt.request.cancel(),
            Call::Many(placed) => placed.cancel(),
        }
    }

    /// Whether a call whose attempt has ended is over, and does not go on elsewhere.
    fn is_over(&self, ended: &Current<'_>) -> bool {
        match (&self.0, ended) {
            (Call::Many(placed), Current::Shared(attempt)) => !placed.goes_on(attempt),
            _ => true,
        }
    }
}

/// Waits until one of the calls has ended, whatever their servers. Returns `false` when `deadline`
/// comes before, or when there is none to wait for.
pub fn wait_any(calls: &[&Pending], deadline: Option<Instant>) -> Result<bool, Error> {
    loop {
        let attempts: Vec<Current<'_>> = calls.iter().map(|call| call.current()).collect();
        let requests: Vec<&Request> = attempts.iter().map(|attempt| &attempt.request).collect();
        if !remote::wait_for_any(&requests, deadline)? {
            return Ok(false);
        }
        let pairs = calls.iter().zip(&attempts);
        let ended = pairs.filter(|(_, attempt)| attempt.request.has_ended());
        // Each that can go on does.
        if ended
            .filter(|(call, attempt)| call.is_over(attempt))
            .count()
            > 0
        {
            return Ok(true);
        }
    }
}

//! The time-out of a call. All requests that belong to the call share it, and it counts from the
//! moment at which the caller asked for the call. Each wait looks at the clock itself.

use crate::address::Address;
use crate::error::Error;
use std::time::{Duration, Instant};

/// A time-out, and when it began.
#[derive(Clone, Copy)]
pub(crate) struct Timeout {
    pub(crate) start: Instant,
    /// `None` means that there is none.
    pub(crate) after: Option<Duration>,
}

impl Timeout {
    /// A time-out that begins now.
    pub(crate) fn from_now(after: Option<Duration>) -> Timeout {
        let start = Instant::now();
        Timeout { start, after }
    }

    /// When it passes; `None` without one.
    pub(crate) fn end(&self) -> Option<Instant> {
        self.after.and_then(|after| self.start.checked_add(after))
    }

    /// What is left of it; `None` without one.
    pub(crate) fn left(&self) -> Option<Duration> {
        Some(self.after?.saturating_sub(self.start.elapsed()))
    }

    /// How long somebody may still wait for it.
    pub(crate) fn patience(&self) -> Duration {
        self.left().unwrap_or(Duration::MAX)
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// The error of what waited for a server.
    pub(crate) fn error(&self, address: &Address) -> Error {
        Error::Timeout {
            address: address.clone(),
            after: self.after.unwrap_or_default(),
        }
    }
}

//! An attempt: one try to make a call at one server. `again` and `grid` make further attempts
//! through [`Continues`]. The outcome of a call is taken once. An attempt that is dropped before
//! its end gives the call up.

use crate::error::Error;
use crate::outcome::{Outcome, Times};
use crate::remote::connection::{Request, answered};
use crate::remote::early::Landing;
use crate::remote::staging::Staging;
use farcall_rpc_proto::{self as proto, FailureKind, HandleRecord};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A call under way at one server. If it is dropped before its end, the client gives it up and the
/// server ends it.
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Where results lie until the outcome is taken, if that is not in the caller's arrays.
    copies: Mutex<Option<Copies>>,
    /// The library that computes the call.
    library: Option<Arc<str>>,
    start: Instant,
    /// Whether arrays of the call lie in shared memory.
    pub(crate) shares: bool,
    /// Whether the function fills arrays of the caller in place, in shared memory.
    in_place: bool,
    part: Mutex<Part>,
}

/// Results that go to the caller's arrays when the outcome of the call is taken.
enum Copies {
    /// In shared memory.
    Staged(Staging),
    /// They came before the caller had arrays for them.
    Early(Landing),
}

impl Copies {
    fn finish(self) {
        match self {
            Copies::Staged(staging) => staging.finish(),
            Copies::Early(landing) => landing.finish(),
        }
    }
}

/// Which part of a call an attempt is.
enum Part {
    Call,
    /// Its server reads a source. The array, once it is there.
    Reading(Option<HandleRecord>),
    /// Its server writes the array of a parameter to an address. The outcome of the call so far.
    Writing(Option<(Outcome, usize)>),
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
            in_place: false,
            copies: Mutex::new(staging.map(Copies::Staged)),
            library,
            start,
            part: Mutex::new(Part::Call),
        }
    }

    /// A fetch of results that come early, and go to the caller's arrays at its end.
    pub(crate) fn early(request: Request, landing: Landing, start: Instant) -> Attempt {
        Attempt {
            copies: Mutex::new(Some(Copies::Early(landing))),
            ..Attempt::new(request, None, None, start)
        }
    }

    /// The last part of a call that has this outcome: the array of a parameter is being written.
    pub(crate) fn writing(request: Request, outcome: Outcome, param: usize) -> Attempt {
        let part = Mutex::new(Part::Writing(Some((outcome, param))));
        Attempt {
            part,
            ..Attempt::new(request, None, None, Instant::now())
        }
    }

    /// The first part of a call: its server reads a source. It ends without an outcome.
    pub(crate) fn reading(request: Request) -> Attempt {
        Attempt {
            part: Mutex::new(Part::Reading(None)),
            ..Attempt::new(request, None, None, Instant::now())
        }
    }

    /// The same attempt; says whether the function fills arrays of the caller in place.
    pub(crate) fn in_place(self, in_place: bool) -> Attempt {
        Attempt { in_place, ..self }
    }

    /// Whether it may have changed arrays of the caller when it lost its server. `begun` says
    /// whether the server had begun with the call.
    pub(crate) fn has_changed(&self, begun: bool) -> bool {
        (begun && self.in_place) || self.request.was_returning()
    }

    /// Whether it failed because an array of the call is gone, before the server began with the
    /// call.
    pub(crate) fn lacks_array(&self, error: &Error) -> bool {
        let is_missing =
            matches!(error, Error::Failed(failure) if failure.kind == FailureKind::NotFound);
        let part = self.part.lock().unwrap_or_else(PoisonError::into_inner);
        is_missing && matches!(*part, Part::Call)
    }

    /// Takes the array of a source that was read, once.
    pub(crate) fn take_read(&self) -> Option<HandleRecord> {
        match &mut *self.part.lock().unwrap_or_else(PoisonError::into_inner) {
            Part::Reading(found) => found.take(),
            Part::Call | Part::Writing(_) => None,
        }
    }

    /// Takes the outcome of the call if it has ended, once.
    pub(crate) fn take(&self) -> Option<Result<Outcome, Error>> {
        match &mut *self.part.lock().unwrap_or_else(PoisonError::into_inner) {
            Part::Call => {}
            Part::Reading(found) => {
                let read = self.request.take(answered!(Handle))?;
                return Some(read.map(|record| {
                    *found = Some(record);
                    Outcome::default()
                }));
            }
            Part::Writing(written) => {
                let receipt = self.request.take(answered!(Receipt))?;
                let (mut outcome, param) = written.take()?;
                return Some(receipt.map(|receipt| {
                    let seconds = self.start.elapsed().as_secs_f64();
                    outcome.times.other += seconds;
                    outcome.times.total += seconds;
                    outcome.receipts.push((param, receipt));
                    outcome
                }));
            }
        }
        let times = self.request.take_times()?;
        Some(times.map(|times| {
            let copies = self.copies.lock();
            let copies = copies.unwrap_or_else(PoisonError::into_inner).take();
            outcome(times, copies, self.library.clone(), self.start)
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
        let copies = self.copies.into_inner();
        let copies = copies.unwrap_or_else(PoisonError::into_inner);
        Ok(outcome(times, copies, self.library, self.start))
    }
}

/// Puts the results of a successful call where the caller wants them.
fn outcome(
    times: proto::Times,
    copies: Option<Copies>,
    library: Option<Arc<str>>,
    start: Instant,
) -> Outcome {
    if let Some(copies) = copies {
        copies.finish();
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

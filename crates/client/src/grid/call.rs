//! Calls of functions behind a metaserver. A call with a reservation goes to the server of the
//! reservation; every other call is placed.

use crate::argument::Argument;
use crate::call::{LaidOut, Prepared, Travel};
use crate::error::Error;
use crate::grid::function::Function;
use crate::grid::placed::{Call, trouble, trouble_at_start};
use crate::outcome::Outcome;
use crate::pending::Pending;
use crate::remote::{Begun, DurableCall, is_large};
use crate::timeout::Timeout;
use farcall_directory::client::{Course, Next, Trouble};
use farcall_rpc_proto::{FailureKind, JOBS};
use std::time::Duration;

impl Function {
    /// Prepares a call. Its layout does not count arrays that are already at servers.
    fn prepare(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
    ) -> Result<Prepared, Error> {
        let timeout = Timeout::from_now(self.timeout());
        let (description, way) = (self.description(), Travel::Both);
        let mut prepared = Prepared::new(description, timeout, laid_out, arguments, way)?;
        prepared.settle(arguments);
        Ok(prepared)
    }

    /// Makes a call, at the server of its reservation or at the server chosen for it. Large arrays
    /// may travel over several connections.
    pub(crate) fn call(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.call(laid_out, arguments);
        }
        let prepared = self.prepare(laid_out, arguments)?;
        let wanted = self.wanted(&prepared.layout);
        let is_large = is_large(arguments);
        let call = Call::new(self, wanted, prepared, arguments)?;
        match is_large {
            true => call.finish(),
            false => Pending::from(call.start(None)?).wait(),
        }
    }

    /// Begins a call and returns at once.
    ///
    /// # Safety
    /// As [`Function::begin`](crate::remote::Function::begin), until the call is over or given up.
    pub(crate) unsafe fn start(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Begun, Error> {
        if let Some(function) = self.at_reservation()? {
            // SAFETY: the caller makes the same promise.
            return unsafe { function.start(laid_out, arguments) };
        }
        let prepared = self.prepare(laid_out, arguments)?;
        let wanted = self.wanted(&prepared.layout);
        let call = Call::new(self, wanted, prepared, arguments)?;
        call.start(None)
    }

    /// Submits a durable call to the server of its reservation, or to the server chosen for it.
    pub(crate) fn submit(
        &self,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.submit(prepared, arguments, keep);
        }
        // Nobody knows whether a server that was lost has the call.
        let mut course = Course::new(self.wanted(&prepared.layout), false, false);
        let mut before = None;
        loop {
            let place = match self.grid().choose(course.wanted()) {
                Ok(place) => place,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => return Err(before.unwrap_or(error)),
            };
            course.goes_to(place.clone());
            let server = self.grid().server(place.server, &place.address);
            let reached = server.and_then(|server| {
                let keeps_calls = server.connection()?.has(JOBS);
                Ok((keeps_calls, self.at(&server)?))
            });
            let (error, kept_by, changed) = match reached {
                Err(error) => {
                    let kept_by = trouble_at_start(&error);
                    (error, kept_by, None)
                }
                Ok((keeps_calls, function)) => {
                    match function.submit(prepared.clone(), arguments, keep) {
                        Ok(submitted) => return Ok(submitted),
                        // The metaserver does not know which servers have a state folder.
                        Err(error) if !keeps_calls => {
                            (error, Trouble::Failed(FailureKind::Busy), None)
                        }
                        Err(error) => {
                            let kept_by = trouble(&error);
                            (error, kept_by, Some(true))
                        }
                    }
                }
            };
            if course.after(kept_by, changed) != Next::Elsewhere {
                return Err(error);
            }
            if let Some((place, observed)) = course.give_away(kept_by) {
                self.grid().observe(&place, &observed);
            }
            if prepared.timeout().has_passed() {
                return Err(error);
            }
            before = Some(error);
        }
    }
}

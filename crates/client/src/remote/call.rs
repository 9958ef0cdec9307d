//! Calls of one server from their start to their end: named data looked up, made again where the
//! server lets its clients go or has its functions anew, over several connections where that pays.

use crate::argument::Argument;
use crate::call::{LaidOut, Prepared, Travel};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::attempt::Attempt;
use crate::remote::durable::DurableCall;
use crate::remote::function::Function;
use crate::remote::requests::{jobs, reservations};
use farcall_rpc_proto::{DataName, FailureKind, SubmitRequest};
use std::time::Duration;

impl Function {
    /// Makes a call, and fills OUT and INOUT arrays in place.
    pub(crate) fn call(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        let names = self.look_up(arguments)?;
        let mut prepared = self.prepare(laid_out, arguments, Travel::Both)?;
        match self.call_or_renew(&mut prepared, arguments) {
            // They were put again since they were looked up; nothing of the call was done.
            Err(Error::Failed(failure))
                if !names.is_empty() && failure.kind == FailureKind::NotFound =>
            {
                for (index, name) in names {
                    arguments[index] = Argument::Named(name);
                }
                self.look_up(arguments)?;
                self.call_or_renew(&mut prepared, arguments)
            }
            other => other,
        }
    }

    /// Begins a call and returns at once.
    ///
    /// # Safety
    /// As [`Function::begin`].
    pub(crate) unsafe fn start(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Attempt, Error> {
        self.look_up(arguments)?;
        let mut prepared = self.prepare(laid_out, arguments, Travel::Both)?;
        // SAFETY: the caller's promise is the same.
        unsafe { self.begin(&mut prepared, arguments) }
    }

    /// Finds the arrays that are named; returns their places among the arguments and their names.
    fn look_up(&self, arguments: &mut [Argument<'_>]) -> Result<Vec<(usize, DataName)>, Error> {
        let mut names = Vec::new();
        for (index, argument) in arguments.iter_mut().enumerate() {
            if let Argument::Named(name) = argument {
                let handle = self.server().data(name)?.id();
                names.push((index, name.clone()));
                *argument = Argument::Handle(handle);
            }
        }
        Ok(names)
    }

    fn call_or_renew(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        let called = self
            .server()
            .persist(|| self.call_once(prepared, arguments));
        match called {
            Err(error) if error.is_stale_interface() => {
                let known = self.description();
                let renewed = self.server().fetch(&known.requested)?;
                // The arguments were made for the interface that the caller has seen.
                match renewed.description.text == known.text {
                    true => self.described_by(renewed).call_once(prepared, arguments),
                    false => Err(error),
                }
            }
            other => other,
        }
    }

    fn call_once(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        if let Some(outcome) = self.call_in_streams(prepared, arguments)? {
            return Ok(outcome);
        }
        // SAFETY: the borrows outlive the call, which is over or given up when this returns.
        unsafe { self.begin(prepared, arguments) }?.wait()
    }

    /// Submits a call that was prepared: the server keeps what it comes to for `keep`.
    pub(crate) fn submit(
        &self,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        let Prepared {
            mut call, layout, ..
        } = prepared;
        let connection = self.server().connection()?;
        jobs::check_jobs(&connection)?;
        call.reservation = self.reservation().map(|named| named.id);
        if call.reservation.is_some() {
            reservations::check_reservations(&connection)?;
        }
        call.function = self.entry.number_on(&connection)?;
        let keep = keep.map(|keep| keep.as_secs().max(1));
        let submission = SubmitRequest { call, keep };
        let connection = self.own_connection(&connection)?.unwrap_or(connection);
        // SAFETY: the borrows outlive the submission, which is over when this returns.
        let id = unsafe { jobs::submit(&connection, &submission, arguments, layout) }?;
        Ok(self.server().job(id))
    }
}

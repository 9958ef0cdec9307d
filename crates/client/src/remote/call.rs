//! Calls at one server, from start to end.
//!
//! This module looks up named data, lets the server read sources, makes a call again if the server
//! released the client or renumbered its functions, and uses several connections for large arrays.
//! A call is made again only if the server has not begun with it.

use crate::argument::{Argument, Held};
use crate::call::{LaidOut, Prepared, Travel};
use crate::error::Error;
use crate::outcome::Outcome;
use crate::remote::again::Next;
use crate::remote::attempt::Begun;
use crate::remote::durable::DurableCall;
use crate::remote::function::Function;
use crate::remote::requests::{jobs, reservations};
use crate::remote::server::persist_within;
use crate::remote::source::{OwnArrays, sources, wanted_form};
use crate::timeout::Timeout;
use farcall_rpc_proto::{FailureKind, SubmitRequest};
use std::time::Duration;

/// Arguments that are handles now, as they were before, and the arrays that end with the call.
type LookedUp = (Vec<(usize, Argument<'static>)>, OwnArrays);

impl Function {
    /// Makes a call, and fills OUT and INOUT arrays in place.
    pub(crate) fn call(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        let timeout = Timeout::from_now(self.timeout());
        let (before, mut own) = self.look_up(arguments, timeout)?;
        let mut prepared = self.prepare(timeout, laid_out, arguments, Travel::Both)?;
        let of = (&self.description().interface, &*prepared.layout);
        own.take_results(self.server(), of, arguments, timeout)?;
        let outcome = match self.call_or_renew(&mut prepared, arguments) {
            // The data were replaced after the look-up. The server has done nothing yet.
            Err(Error::Failed(failure))
                if !before.is_empty() && failure.kind == FailureKind::NotFound =>
            {
                for (index, argument) in before {
                    arguments[index] = argument;
                }
                let (_, _own) = self.look_up(arguments, timeout)?;
                self.call_or_renew(&mut prepared, arguments)
            }
            other => other,
        };
        own.finish(outcome?, timeout)
    }

    /// Begins a call and returns at once.
    ///
    /// # Safety
    /// As [`Function::begin`].
    pub(crate) unsafe fn start(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Begun, Error> {
        let timeout = Timeout::from_now(self.timeout());
        self.look_up_names(arguments, timeout)?;
        let mut prepared = self.prepare(timeout, laid_out, arguments, Travel::Both)?;
        let mut held: Vec<Held> = arguments.iter_mut().map(Held::of).collect();
        let mut all = sources(&self.description().interface, arguments);
        all.reverse();
        let (mut unread, reads) = (all.clone(), !all.is_empty());
        let (function, mut own) = (self.clone(), OwnArrays::default());
        let mut begin = move |own: &mut OwnArrays, next: Next| {
            let (server, interface) = (function.server(), &function.description().interface);
            match next {
                Next::Go => {}
                Next::Anew => unread.clone_from(&all),
                Next::Read(record) => {
                    let (handle, is_own) = server.has_read(record);
                    if let Some((index, _)) = unread.pop() {
                        held[index] = Held::Handle(own.take(handle, is_own));
                    }
                    prepared = prepared.again();
                }
            }
            // The server reads one source after the other before the call itself begins.
            if let Some((index, source)) = unread.last() {
                return server.begin_to_read(source, wanted_form(interface, *index), timeout);
            }
            // SAFETY: the caller leaves the arrays alone until the call ends, and the attempt
            // before has ended.
            let arguments = held.iter().map(|held| unsafe { held.argument() });
            let mut arguments: Vec<Argument<'_>> = arguments.collect();
            let of = (interface, &*prepared.layout);
            own.take_results(server, of, &mut arguments, timeout)?;
            for (held, argument) in held.iter_mut().zip(&mut arguments) {
                if let (Held::Source(_), Argument::Handle(id)) = (&held, argument) {
                    *held = Held::Handle(*id);
                }
            }
            function.persist(timeout, || {
                // SAFETY: as above.
                unsafe { function.begin(&mut prepared, &mut arguments) }
            })
        };
        let attempt = begin(&mut own, Next::Go)?;
        Ok(Begun::with(attempt, own, reads, begin))
    }

    /// Makes a request, if need be at the server that takes over from this one. An object has no
    /// other server.
    fn persist<T>(
        &self,
        timeout: Timeout,
        ask: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut ask = ask;
        match self.is_method() {
            true => ask(),
            false => persist_within(self.server(), timeout, ask),
        }
    }

    /// Looks up named data among the arguments, and lets the server read sources. Returns their
    /// positions and what they were, and the arrays that the server has for this call alone.
    fn look_up(&self, arguments: &mut [Argument<'_>], timeout: Timeout) -> Result<LookedUp, Error> {
        let interface = &self.description().interface;
        let (mut before, own) = self.server().read_sources(interface, arguments, timeout)?;
        before.extend(self.look_up_names(arguments, timeout)?);
        Ok((before, own))
    }

    /// Looks up named data among the arguments. Returns their positions and what they were.
    fn look_up_names(
        &self,
        arguments: &mut [Argument<'_>],
        timeout: Timeout,
    ) -> Result<Vec<(usize, Argument<'static>)>, Error> {
        let mut before = Vec::new();
        for (index, argument) in arguments.iter_mut().enumerate() {
            if let Argument::Named(name) = argument {
                let handle = self.server().data(name, timeout)?.id();
                before.push((index, Argument::Named(name.clone())));
                *argument = Argument::Handle(handle);
            }
        }
        Ok(before)
    }

    fn call_or_renew(
        &self,
        prepared: &mut Prepared,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        let timeout = prepared.timeout();
        let called = self.persist(timeout, || self.call_once(prepared, arguments));
        match called {
            Err(error) if error.is_stale_interface() => {
                let known = self.description();
                let renewed = self.server().fetch(&known.requested)?;
                // The arguments were made for the old interface, so a new one must be the same.
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
        // SAFETY: the borrows outlive the call, which has ended or is given up when this returns.
        unsafe { self.begin(prepared, arguments) }?.wait()
    }

    /// Submits a prepared call as a durable call. The server keeps its outcome for `keep`.
    pub(crate) fn submit(
        &self,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        let made = prepared.laid_out(self.description());
        let timeout = prepared.timeout();
        let Prepared {
            mut call, layout, ..
        } = prepared;
        if self.terms.before.is_some() {
            let text = "a durable call has no deadline; call the function instead";
            let text = format!("{}: {text}", self.description().qualified);
            return Err(Error::failed(FailureKind::BadArgument, text));
        }
        call.reservation = self.reserved()?;
        let keep = keep.map(|keep| keep.as_secs().max(1));
        let mut submission = SubmitRequest {
            call,
            keep,
            fetch: None,
        };
        let (id, early) = self.persist(timeout, || {
            let connection = self.server().connection()?;
            jobs::check_jobs(&connection)?;
            if submission.call.reservation.is_some() {
                reservations::check_reservations(&connection)?;
            }
            submission.call.function = self.entry.number_on(&connection)?;
            submission.call.trace = self.trace_on(&connection, submission.call.trace);
            let own = self.own_connection(&connection, timeout)?;
            let connection = own.unwrap_or(connection);
            // SAFETY: the borrows outlive the request, which has ended when this returns.
            unsafe { jobs::submit(&connection, &submission, arguments, layout.clone()) }
        })?;
        Ok(self.server().job(id).made_as(made, early))
    }
}

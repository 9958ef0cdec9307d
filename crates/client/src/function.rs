//! Function handles: what a caller holds to call one function.
//!
//! A handle has the interface and knows where calls go: to one server, or to the servers behind a
//! metaserver. This module chooses between the two; `remote` and `grid` make the calls.

use crate::argument::{Argument, named};
use crate::call::{LaidOut, Prepared, Travel};
use crate::description::Description;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::grid;
use crate::offer::Offer;
use crate::outcome::Outcome;
use crate::output::Output;
use crate::pending::Pending;
use crate::remote::{self, DurableCall};
use crate::reservation::{Reservation, ReservationName, ReservationSpec};
use crate::server::{Backend, Server};
use crate::terms::Terms;
use crate::timeout::Timeout;
use crate::trace::{self, CallSpan};
use farcall_idl::{Interface, Scalar};
use farcall_rpc_proto::{FailureKind, TraceContext};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A handle for a function of a server. Clones share the interface.
#[derive(Clone)]
pub struct Function {
    server: Server,
    target: Target,
    /// What has caused the calls.
    trace: Option<TraceContext>,
}

/// Where the calls of a function go.
#[derive(Clone)]
enum Target {
    /// To one server.
    One(remote::Function),
    /// To one of many, each to another.
    Many(grid::Function),
}

impl Target {
    fn terms(&mut self) -> &mut Terms {
        match self {
            Target::One(function) => &mut function.terms,
            Target::Many(function) => &mut function.terms,
        }
    }
}

impl Server {
    /// The function with this name, `module/name` or `name` alone. The client fetches its interface
    /// once, and again after the server was started again.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let target = match &self.0 {
            Backend::One(server) => Target::One(server.function(name)?),
            Backend::Many(grid) => Target::Many(grid.function(name)?),
        };
        Ok(Function {
            server: self.clone(),
            target,
            trace: None,
        })
    }
}

impl Function {
    pub(crate) fn of_one(function: remote::Function) -> Function {
        Function {
            server: Server::from(function.server().clone()),
            target: Target::One(function),
            trace: None,
        }
    }

    pub(crate) fn description(&self) -> &Arc<Description> {
        match &self.target {
            Target::One(function) => function.description(),
            Target::Many(function) => function.description(),
        }
    }

    /// The servers to which the function's calls may go.
    pub(crate) fn places(&self) -> Result<Vec<remote::Server>, Error> {
        match &self.target {
            Target::One(function) => Ok(vec![function.server().clone()]),
            Target::Many(function) => function.servers(),
        }
    }

    /// The reachable servers that have the function with this interface: the servers behind a
    /// metaserver, or the one server.
    ///
    /// # Errors
    /// [`Options::on_interrupt`](crate::Options::on_interrupt) asked to give up.
    pub fn servers(&self) -> Result<Vec<Server>, Error> {
        Ok(self.places()?.into_iter().map(Server::from).collect())
    }

    /// Whether the function is a method of an object.
    pub fn is_method(&self) -> bool {
        match &self.target {
            Target::One(function) => function.is_method(),
            Target::Many(_) => false,
        }
    }

    /// The interface of the function.
    pub fn interface(&self) -> &Interface {
        &self.description().interface
    }

    /// The interface in the canonical form of the interface language.
    pub fn text(&self) -> &str {
        &self.description().text
    }

    /// The library that has the function, with version and kernel if the library reports them.
    pub fn library(&self) -> Option<&str> {
        self.description().library.as_deref()
    }

    /// Qualified name, `module/name`.
    pub fn qualified_name(&self) -> &str {
        &self.description().qualified
    }

    /// The server or metaserver of the function.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The same function with its own output. What the library prints during its calls goes to
    /// `output`; with `None` it goes to the server's log.
    pub fn with_output(&self, output: Option<Output>) -> Function {
        self.with(|terms| terms.output = output)
    }

    /// The same function on other terms.
    fn with(&self, set: impl FnOnce(&mut Terms)) -> Function {
        let mut function = self.clone();
        set(function.target.terms());
        function
    }

    /// The same function, whose calls belong to the trace of this span. With `None`, they belong to
    /// the one in the environment variable `TRACEPARENT`, if there is one.
    pub fn with_trace(&self, trace: Option<TraceContext>) -> Function {
        Function {
            trace,
            ..self.clone()
        }
    }

    /// The span that causes calls of the function.
    pub(crate) fn cause(&self) -> Option<TraceContext> {
        self.trace.or_else(trace::of_environment)
    }

    /// Begins the span of a call, and returns where the call goes.
    fn spanned(&self, what: &str) -> Option<(CallSpan, Target)> {
        let span = CallSpan::begin(self.cause(), what, self.qualified_name())?;
        let mut target = self.target.clone();
        target.terms().trace = Some(span.context());
        Some((span, target))
    }

    /// Where the printed text of the function goes.
    pub fn output(&self) -> Option<&Output> {
        self.terms().output.as_ref()
    }

    pub(crate) fn terms(&self) -> &Terms {
        match &self.target {
            Target::One(function) => &function.terms,
            Target::Many(function) => &function.terms,
        }
    }

    /// The same function with a reservation ([`Server::reserve`]). Its calls use the reserved
    /// processor elements, and all go to the server of the reservation. A reservation behind a
    /// metaserver has a name that includes its server. With `None`, calls wait in the queue like
    /// all others.
    pub fn with_reservation<N: Into<ReservationName>>(&self, reservation: Option<N>) -> Function {
        let name = reservation.map(Into::into);
        self.with(|terms| terms.reservation = name)
    }

    /// The reservation that the function's calls use.
    pub fn reservation(&self) -> Option<&ReservationName> {
        self.terms().reservation.as_ref()
    }

    /// The same function with a deadline: its calls must end within this time from the moment at
    /// which they are made. A server promises that, and nine of ten promises hold, or it refuses
    /// the call with the time that it can promise ([`Error::earliest`](crate::Error::earliest)).
    /// Behind a metaserver, the servers are asked in turn. Durable calls and methods of objects
    /// have no deadlines.
    pub fn with_deadline(&self, before: Option<Duration>) -> Function {
        self.with(|terms| terms.before = before)
    }

    /// The time within which the function's calls must end.
    pub fn deadline(&self) -> Option<Duration> {
        self.terms().before
    }

    /// The same function with a time-out of its own for each of its calls, in place of
    /// [`crate::Options::timeout`]. It counts from the moment at which the caller asks for the
    /// call, also while servers are tried. Durable calls have none.
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Function {
        self.with(|terms| terms.timeout = timeout)
    }

    /// Reserves processor elements for calls of the function, as [`Server::reserve`] does. Behind a
    /// metaserver it reserves them at the server that has the function with this interface and is
    /// free first.
    ///
    /// # Errors
    /// As [`Server::reserve`]. Behind a metaserver, the error names the earliest time of all
    /// servers, and the server.
    pub fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        match &self.target {
            Target::One(function) => function.server().reserve(wanted),
            Target::Many(function) => function.reserve(wanted),
        }
    }

    /// The caller's reservations that have not ended, at the function's server, or at all reachable
    /// servers behind the metaserver.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let mut all = Vec::new();
        for server in self.places()? {
            all.extend(server.reservations()?);
        }
        Ok(all)
    }

    /// Computes the sizes of a call's arrays from its scalars. `scalars` has one entry for each
    /// parameter, with `None` for arrays. `elements` are the values of the array elements that
    /// sizes depend on ([`Interface::element_values`]). A caller that makes the arrays itself
    /// passes the result to [`Function::call_laid_out`], which does not compute it again.
    ///
    /// # Errors
    /// A scalar is out of range, or a size cannot be computed.
    pub fn lay_out(
        &self,
        scalars: Vec<Option<Scalar>>,
        elements: Vec<i64>,
    ) -> Result<LaidOut, Error> {
        let description = self.description();
        LaidOut::new(description, scalars, elements).map_err(|error| Error::Argument {
            function: description.qualified.clone(),
            source: error.into(),
        })
    }

    /// Estimates of a call with these scalars at each server behind a metaserver, the soonest
    /// first. Servers that cannot run the call come last, with the reason. `elements` are as in
    /// [`Function::lay_out`].
    pub fn offers(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Vec<Offer>, Error> {
        let Target::Many(function) = &self.target else {
            let text = format!(
                "{} is a server, not a metaserver, so there are no placements to compare",
                self.server.address()
            );
            return Err(Error::failed(FailureKind::NotAllowed, text));
        };
        let laid_out = self.lay_out(scalars.to_vec(), elements.to_vec())?;
        let offers = function.offers(&laid_out)?;
        Ok(offers.into_iter().map(Offer::from).collect())
    }

    /// The estimated cost of a call with these scalars. No array is sent. `elements` are as in
    /// [`Function::lay_out`].
    pub fn estimate(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Estimate, Error> {
        self.estimate_laid_out(self.lay_out(scalars.to_vec(), elements.to_vec())?)
    }

    pub(crate) fn estimate_laid_out(&self, laid_out: LaidOut) -> Result<Estimate, Error> {
        match &self.target {
            Target::One(function) => function.estimate(laid_out),
            Target::Many(function) => function.estimate(laid_out),
        }
    }

    /// Calls the function with one argument for each parameter and each callback. Fills OUT and
    /// INOUT arrays in place; if the call fails, their contents are undefined. Callbacks run on
    /// this thread.
    pub fn call(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        self.make(None, arguments)
    }

    /// Calls the function with sizes that are already computed. Scalars come from `laid_out`, so
    /// [`Argument::Skip`] may stand in their place.
    pub fn call_laid_out(
        &self,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        self.make(Some(laid_out), arguments)
    }

    fn make(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        let call = |target: &Target| match target {
            Target::One(function) => function.call(laid_out, arguments),
            Target::Many(function) => function.call(laid_out, arguments),
        };
        match self.spanned("call") {
            None => call(&self.target),
            Some((span, target)) => span.end(call(&target)),
        }
    }

    /// Calls the function with arguments by name, in any order. Leave work space out.
    ///
    /// ```no_run
    /// # let server = farcall_client::Server::connect("", Default::default())?;
    /// let scale = server.function("example/scale")?;
    /// let (x, mut y) = (vec![1.0, 2.0], vec![0.0; 2]);
    /// scale.call_named([
    ///     ("n", 2.into()),
    ///     ("factor", 1.5.into()),
    ///     ("x", (&x).into()),
    ///     ("y", (&mut y).into()),
    /// ])?;
    /// # Ok::<(), farcall_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Function::call`]. A name is unknown, given twice, or missing.
    pub fn call_named<'n, 'a>(
        &self,
        arguments: impl IntoIterator<Item = (&'n str, Argument<'a>)>,
    ) -> Result<Outcome, Error> {
        self.call(&mut self.in_order(arguments)?)
    }

    /// Puts named arguments into the order of the interface, for [`Function::start`] and
    /// [`Function::submit`]. Leave work space out.
    ///
    /// # Errors
    /// A name is unknown, given twice, or missing.
    pub fn in_order<'n, 'a>(
        &self,
        arguments: impl IntoIterator<Item = (&'n str, Argument<'a>)>,
    ) -> Result<Vec<Argument<'a>>, Error> {
        let description = self.description();
        let ordered = named::in_order(&description.interface, arguments);
        ordered.map_err(|source| Error::Argument {
            function: description.qualified.clone(),
            source,
        })
    }

    /// Begins a call and returns at once. Any number of calls may be under way. Arguments travel
    /// while a thread waits for one of the calls to this server. Callbacks run on a thread that
    /// waits for the call.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// must stay where they are. The caller must not touch OUT and INOUT arrays, and must not write
    /// IN arrays.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.begin(None, arguments) }
    }

    /// Begins a call with sizes that are already computed, as [`Function::call_laid_out`].
    ///
    /// # Safety
    /// As [`Function::start`].
    pub unsafe fn start_laid_out(
        &self,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
    ) -> Result<Pending, Error> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.begin(Some(laid_out), arguments) }
    }

    unsafe fn begin(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Pending, Error> {
        // SAFETY: the caller makes the same promise.
        let start = |target: &Target| unsafe {
            match target {
                Target::One(function) => function.start(laid_out, arguments).map(Pending::from),
                Target::Many(function) => function.start(laid_out, arguments).map(Pending::from),
            }
        };
        match self.spanned("call") {
            None => start(&self.target),
            Some((span, target)) => match start(&target) {
                Ok(pending) => Ok(pending.with_span(span)),
                Err(error) => {
                    span.close(Some(&error));
                    Err(error)
                }
            },
        }
    }

    /// Submits a durable call. Once this returns, the server runs the call even if this program
    /// ends or the server restarts. The server keeps the outcome for `keep`, or for its own
    /// retention time. INOUT arrays are only read; OUT arrays are [`Argument::Skip`].
    pub fn submit(
        &self,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        self.commit(None, arguments, keep)
    }

    /// Submits a durable call with sizes that are already computed, as [`Function::call_laid_out`].
    pub fn submit_laid_out(
        &self,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        self.commit(Some(laid_out), arguments, keep)
    }

    fn commit(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        let prepared = self.prepare(laid_out, arguments, Travel::There)?;
        if !prepared.functions.is_empty() {
            let text = "has callbacks, so it cannot be a durable call";
            let text = format!("{} {text}", self.qualified_name());
            return Err(Error::failed(FailureKind::BadArgument, text));
        }
        let submit = |target: &Target| match target {
            Target::One(function) => function.submit(prepared, arguments, keep),
            Target::Many(function) => function.submit(prepared, arguments, keep),
        };
        match self.spanned("submit") {
            None => submit(&self.target),
            Some((span, target)) => {
                let submitted = submit(&target);
                span.close(submitted.as_ref().err());
                submitted
            }
        }
    }

    /// Checks the arguments of a call.
    pub(crate) fn prepare(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        let timeout = Timeout::from_now(match &self.target {
            Target::One(function) => function.timeout(),
            Target::Many(function) => function.timeout(),
        });
        Prepared::new(self.description(), timeout, laid_out, arguments, way)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.server.address();
        write!(f, "Function({} at {address})", self.qualified_name())
    }
}

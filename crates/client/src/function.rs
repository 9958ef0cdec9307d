//! A handle on one remote function.

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
use farcall_idl::{Interface, Scalar};
use farcall_rpc_proto::FailureKind;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A function of a server. Clones share the interface.
#[derive(Clone)]
pub struct Function {
    server: Server,
    target: Target,
}

/// Where its calls go.
#[derive(Clone)]
enum Target {
    /// To one server.
    One(remote::Function),
    /// To one of many, each to another.
    Many(grid::Function),
}

impl Server {
    /// The function of that name, `module/name` or `name` alone. Its interface is fetched once.
    pub fn function(&self, name: &str) -> Result<Function, Error> {
        let target = match &self.0 {
            Backend::One(server) => Target::One(server.function(name)?),
            Backend::Many(grid) => Target::Many(grid.function(name)?),
        };
        Ok(Function {
            server: self.clone(),
            target,
        })
    }
}

impl Function {
    pub(crate) fn of_one(function: remote::Function) -> Function {
        Function {
            server: Server::from(function.server().clone()),
            target: Target::One(function),
        }
    }

    pub(crate) fn description(&self) -> &Arc<Description> {
        match &self.target {
            Target::One(function) => function.description(),
            Target::Many(function) => function.description(),
        }
    }

    /// The servers to which its calls may go.
    pub(crate) fn places(&self) -> Vec<remote::Server> {
        match &self.target {
            Target::One(function) => vec![function.server().clone()],
            Target::Many(function) => function.servers(),
        }
    }

    /// The servers that have it with this interface, as far as they can be reached: those behind a
    /// metaserver, or the one.
    pub fn servers(&self) -> Vec<Server> {
        self.places().into_iter().map(Server::from).collect()
    }

    /// Whether it is called on an object.
    pub fn is_method(&self) -> bool {
        match &self.target {
            Target::One(function) => function.is_method(),
            Target::Many(_) => false,
        }
    }

    /// The interface.
    pub fn interface(&self) -> &Interface {
        &self.description().interface
    }

    /// The interface in canonical IDL.
    pub fn text(&self) -> &str {
        &self.description().text
    }

    /// The library behind it, its version and its kernel, as far as it says.
    pub fn library(&self) -> Option<&str> {
        self.description().library.as_deref()
    }

    /// `module/name`.
    pub fn qualified_name(&self) -> &str {
        &self.description().qualified
    }

    /// The server that has it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The same function, whose calls have what the library prints written to `output`; without one
    /// it goes to the server's log.
    pub fn with_output(&self, output: Option<Output>) -> Function {
        self.with(match self.target.clone() {
            Target::One(function) => Target::One(function.with_output(output)),
            Target::Many(function) => Target::Many(function.with_output(output)),
        })
    }

    fn with(&self, target: Target) -> Function {
        Function {
            server: self.server.clone(),
            target,
        }
    }

    /// Where what it prints goes.
    pub(crate) fn output(&self) -> Option<&Output> {
        match &self.target {
            Target::One(function) => function.output(),
            Target::Many(function) => function.output(),
        }
    }

    /// The same function, whose calls have the processor elements of a reservation at its server
    /// ([`Server::reserve`]), by its number, or by its whole name behind a metaserver: they all go
    /// to its server. Without one they wait as all others.
    pub fn with_reservation<N: Into<ReservationName>>(&self, reservation: Option<N>) -> Function {
        let name = reservation.map(Into::into);
        self.with(match self.target.clone() {
            Target::One(function) => Target::One(function.with_reservation(name)),
            Target::Many(function) => Target::Many(function.with_reservation(name)),
        })
    }

    /// The reservation whose processor elements its calls have.
    pub fn reservation(&self) -> Option<&ReservationName> {
        match &self.target {
            Target::One(function) => function.reservation(),
            Target::Many(function) => function.reservation(),
        }
    }

    /// Reserves processor elements for calls of the function as [`Server::reserve`] does; behind a
    /// metaserver at the server that has it with this interface and can have them first.
    ///
    /// # Errors
    /// As [`Server::reserve`]; behind a metaserver the earliest time of all servers, and which it
    /// is.
    pub fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        match &self.target {
            Target::One(function) => function.server().reserve(wanted),
            Target::Many(function) => function.reserve(wanted),
        }
    }

    /// The caller's reservations that are not over: at its server, or behind a metaserver at those
    /// of its servers that can be reached.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let mut all = Vec::new();
        for server in self.places() {
            all.extend(server.reservations()?);
        }
        Ok(all)
    }

    /// Computes the sizes of the arrays of a call with these scalars, one for each parameter, with
    /// `None` for arrays. `elements` are the values of the array elements that sizes depend on
    /// ([`Interface::element_values`]). Who needs them to make the arrays hands them on to the call
    /// ([`Function::call_laid_out`]), which does not compute them again.
    ///
    /// # Errors
    /// A scalar does not fit, or sizes do not come out.
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

    /// What a call with these scalars would take at each of the servers behind a metaserver, the
    /// soonest first; then those that cannot have it, and why. `elements` are as in
    /// [`Function::lay_out`].
    pub fn offers(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Vec<Offer>, Error> {
        let Target::Many(function) = &self.target else {
            let text = format!(
                "{} is a server, not a metaserver: there is no choice",
                self.server.address()
            );
            return Err(Error::failed(FailureKind::NotAllowed, text));
        };
        let laid_out = self.lay_out(scalars.to_vec(), elements.to_vec())?;
        let offers = function.offers(&laid_out)?;
        Ok(offers.into_iter().map(Offer::from).collect())
    }

    /// What a call with these scalars would take, before anything of it is sent. `elements` are as
    /// in [`Function::lay_out`].
    pub fn estimate(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Estimate, Error> {
        let laid_out = self.lay_out(scalars.to_vec(), elements.to_vec())?;
        match &self.target {
            Target::One(function) => function.estimate(laid_out),
            Target::Many(function) => function.estimate(laid_out),
        }
    }

    /// Calls the function with one argument for each parameter and each callback, and fills OUT and
    /// INOUT arrays in place. If it fails, their contents are undefined. Callbacks run on this
    /// thread.
    pub fn call(&self, arguments: &mut [Argument<'_>]) -> Result<Outcome, Error> {
        self.make(None, arguments)
    }

    /// The same for a call whose sizes are known. The scalars among the arguments are not looked
    /// at: [`Argument::Skip`] may stand for them.
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
        match &self.target {
            Target::One(function) => function.call(laid_out, arguments),
            Target::Many(function) => function.call(laid_out, arguments),
        }
    }

    /// Calls the function with arguments by their names, in any order. Work space is left out.
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
    /// As [`Function::call`]; a name is none, is there twice, or is missing.
    pub fn call_named<'n, 'a>(
        &self,
        arguments: impl IntoIterator<Item = (&'n str, Argument<'a>)>,
    ) -> Result<Outcome, Error> {
        self.call(&mut self.in_order(arguments)?)
    }

    /// Arguments by their names in the order of the interface, for [`Function::start`] and
    /// [`Function::submit`]. Work space is left out.
    ///
    /// # Errors
    /// A name is none, is there twice, or is missing.
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

    /// Begins a call and returns at once; any number may be under way. Its arguments travel while
    /// somebody waits for one of the calls to this server; its callbacks run on a thread that waits
    /// for it.
    ///
    /// # Safety
    /// Until [`Pending::wait`] returns or the [`Pending`] is dropped, the arrays of `arguments`
    /// stay where they are; OUT and INOUT arrays are not touched, IN arrays not written.
    pub unsafe fn start(&self, arguments: &mut [Argument<'_>]) -> Result<Pending, Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.begin(None, arguments) }
    }

    /// The same for a call whose sizes are known, as [`Function::call_laid_out`].
    ///
    /// # Safety
    /// As [`Function::start`].
    pub unsafe fn start_laid_out(
        &self,
        laid_out: LaidOut,
        arguments: &mut [Argument<'_>],
    ) -> Result<Pending, Error> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.begin(Some(laid_out), arguments) }
    }

    unsafe fn begin(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Pending, Error> {
        // SAFETY: the caller's promise is the same.
        unsafe {
            match &self.target {
                Target::One(function) => function.start(laid_out, arguments).map(Pending::from),
                Target::Many(function) => function.start(laid_out, arguments).map(Pending::from),
            }
        }
    }

    /// Submits a call: once this returns, the server runs it whatever happens to this program or to
    /// the server, and keeps what it comes to for `keep`, or for as long as the server likes.
    /// INOUT arrays are read only, OUT arrays are [`Argument::Skip`].
    pub fn submit(
        &self,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<DurableCall, Error> {
        self.commit(None, arguments, keep)
    }

    /// The same for a call whose sizes are known, as [`Function::call_laid_out`].
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
            let text = "calls functions of its caller, so that it cannot be submitted";
            let text = format!("{} {text}", self.qualified_name());
            return Err(Error::failed(FailureKind::BadArgument, text));
        }
        match &self.target {
            Target::One(function) => function.submit(prepared, arguments, keep),
            Target::Many(function) => function.submit(prepared, arguments, keep),
        }
    }

    /// Checks the arguments of a call.
    pub(crate) fn prepare(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Travel,
    ) -> Result<Prepared, Error> {
        Prepared::new(self.description(), laid_out, arguments, way)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.server.address();
        write!(f, "Function({} at {address})", self.qualified_name())
    }
}

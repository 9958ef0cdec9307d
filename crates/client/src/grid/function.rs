//! A function of all servers behind a metaserver.

use crate::argument::Argument;
use crate::call::{LaidOut, Prepared, Way};
use crate::description::Description;
use crate::error::Error;
use crate::grid::directory::Grid;
use crate::grid::placed::{Call, Placed};
use crate::outcome::Outcome;
use crate::output::Output;
use crate::plan::Plan;
use crate::remote::{self, Job, Server, is_large};
use crate::reservation::ReservationName;
use farcall_directory::message::{Choose, Offer};
use farcall_idl::Layout;
use farcall_rpc_proto::FailureKind;
use std::sync::Arc;
use std::time::Duration;

/// A function of all servers behind a metaserver that have it with the same interface.
#[derive(Clone)]
pub(crate) struct Function {
    grid: Grid,
    description: Arc<Description>,
    output: Option<Output>,
    /// The reservation whose processor elements its calls have.
    reservation: Option<ReservationName>,
}

impl Grid {
    /// The function of that name. Its interface comes from the first server that answers.
    pub(crate) fn function(&self, name: &str) -> Result<Function, Error> {
        let qualified = self.find(name)?;
        let servers = self.servers_with(&qualified, None);
        self.probe(&servers);
        let mut last = None;
        for (server, address) in &servers {
            let server = self.server(*server, address);
            match server.and_then(|server| server.function(&qualified)) {
                Ok(function) => {
                    return Ok(Function {
                        grid: self.clone(),
                        description: function.description().clone(),
                        output: None,
                        reservation: None,
                    });
                }
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| {
            let text = format!("no server has a function `{name}`");
            Error::failed(FailureKind::UnknownFunction, text)
        }))
    }
}

impl Function {
    pub(crate) fn grid(&self) -> &Grid {
        &self.grid
    }

    pub(crate) fn description(&self) -> &Arc<Description> {
        &self.description
    }

    pub(crate) fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    pub(crate) fn reservation(&self) -> Option<&ReservationName> {
        self.reservation.as_ref()
    }

    /// The same function, whose calls have what the library prints written to `output`.
    pub(crate) fn with_output(self, output: Option<Output>) -> Function {
        Function { output, ..self }
    }

    /// The same function, whose calls have what is reserved.
    pub(crate) fn with_reservation(self, reservation: Option<ReservationName>) -> Function {
        Function {
            reservation,
            ..self
        }
    }

    /// The same function of one of the servers.
    pub(super) fn at(&self, server: &Server) -> Result<remote::Function, Error> {
        let known = &*self.description;
        let function = server.function(&known.qualified)?;
        if function.description().text != known.text {
            let text = format!("the interface of `{}` is another there", known.qualified);
            return Err(Error::failed(FailureKind::StaleInterface, text));
        }
        Ok(function.with_output(self.output.clone()))
    }

    /// The servers that have it with this interface, as far as they can be reached.
    pub(crate) fn servers(&self) -> Vec<Server> {
        let known = &*self.description;
        self.grid.servers_of(&known.qualified, &known.text)
    }

    pub(super) fn nowhere(&self) -> Error {
        let name = &self.description.qualified;
        let text = format!("no server has `{name}` with this interface");
        Error::failed(FailureKind::NoServer, text)
    }

    /// What is asked of a metaserver for a call.
    fn wanted(&self, layout: &Layout) -> Choose {
        let elements = |count: Option<i64>| count.map(|pes| u32::try_from(pes).unwrap_or(u32::MAX));
        Choose {
            function: self.description.qualified.clone(),
            digest: farcall_directory::digest(&self.description.text),
            work: layout.cost.unwrap_or(layout.bytes as f64).max(0.0),
            up: layout.sent_bytes(),
            down: layout.returned_bytes(),
            memory: layout.bytes,
            fewest: elements(layout.fewest_elements),
            most: elements(layout.processor_elements),
            exclude: Vec::new(),
            explain: false,
            data: None,
        }
    }

    /// What a call would take at each of the servers, the soonest first; then those that cannot
    /// have it, and why.
    pub(crate) fn offers(&self, laid_out: &LaidOut) -> Result<Vec<Offer>, Error> {
        let wanted = Choose {
            explain: true,
            ..self.wanted(laid_out.layout())
        };
        self.grid.explain(&wanted)
    }

    /// What a call would take at the server that would have it.
    pub(crate) fn plan(&self, laid_out: LaidOut) -> Result<Plan, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.plan(laid_out);
        }
        let offers = self.offers(&laid_out)?;
        let soonest = offers.first().ok_or_else(|| self.nowhere())?;
        let server = self.grid.server(soonest.server, &soonest.address)?;
        self.at(&server)?.plan(laid_out)
    }

    fn prepare(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &[Argument<'_>],
        way: Way,
    ) -> Result<Prepared, Error> {
        Prepared::new(&self.description, laid_out, arguments, way)
    }

    /// Makes a call: at the server of its reservation, or at the one that is chosen for it, and
    /// there over several connections where that pays.
    pub(crate) fn call(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Outcome, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.call(laid_out, arguments);
        }
        let prepared = self.prepare(laid_out, arguments, Way::Both)?;
        let wanted = self.wanted(&prepared.layout);
        let is_large = is_large(arguments);
        let call = Call::new(self, wanted, prepared, arguments)?;
        match is_large {
            true => call.finish(),
            false => Placed::start(call, None)?.wait(),
        }
    }

    /// Begins a call and returns at once.
    ///
    /// # Safety
    /// As [`remote::Function::begin`], until the call is over or given up.
    pub(crate) unsafe fn start(
        &self,
        laid_out: Option<LaidOut>,
        arguments: &mut [Argument<'_>],
    ) -> Result<Started, Error> {
        if let Some(function) = self.at_reservation()? {
            // SAFETY: the caller's promise is the same.
            let attempt = unsafe { function.start(laid_out, arguments) }?;
            return Ok(Started::There(Box::new(attempt)));
        }
        let prepared = self.prepare(laid_out, arguments, Way::Both)?;
        let wanted = self.wanted(&prepared.layout);
        let call = Call::new(self, wanted, prepared, arguments)?;
        Ok(Started::Placed(Box::new(Placed::start(call, None)?)))
    }

    /// Submits a call to the server of its reservation, or to the one that is chosen for it.
    pub(crate) fn submit(
        &self,
        prepared: Prepared,
        arguments: &mut [Argument<'_>],
        keep: Option<Duration>,
    ) -> Result<Job, Error> {
        let function = match self.at_reservation()? {
            Some(function) => function,
            None => {
                let place = self.grid.choose(&self.wanted(&prepared.layout))?;
                self.at(&self.grid.server(place.server, &place.address)?)?
            }
        };
        function.submit(prepared, arguments, keep)
    }
}

/// A call that has begun.
pub(crate) enum Started {
    /// It goes on elsewhere where its server is lost.
    Placed(Box<Placed>),
    /// It is at the server of its reservation.
    There(Box<remote::Attempt>),
}

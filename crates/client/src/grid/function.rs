//! Functions behind a metaserver. Such a function is bound to a server for each call.

use crate::call::LaidOut;
use crate::description::Description;
use crate::error::Error;
use crate::estimate::Estimate;
use crate::grid::directory::Grid;
use crate::remote::{self, Server, same_function};
use crate::terms::Terms;
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
    pub(crate) terms: Terms,
}

impl Grid {
    /// The function with this name. Its interface comes from the first server that answers.
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
                        terms: Terms::default(),
                    });
                }
                Err(Error::Interrupted) => return Err(Error::Interrupted),
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

    /// The time-out of the calls.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let of_grid = self.grid.meta().options().timeout;
        self.terms.timeout.or(of_grid)
    }

    /// The same function at one of the servers, without its reservation.
    pub(super) fn at(&self, server: &Server) -> Result<remote::Function, Error> {
        let known = &*self.description;
        let mut function = same_function(server, (&known.qualified, &known.text))?;
        function.terms = Terms {
            reservation: None,
            ..self.terms.clone()
        };
        Ok(function)
    }

    /// The reachable servers that have the function with this interface.
    ///
    /// # Errors
    /// [`Options::on_interrupt`](crate::Options::on_interrupt) asked to give up.
    pub(crate) fn servers(&self) -> Result<Vec<Server>, Error> {
        let known = &*self.description;
        self.grid.servers_of(&known.qualified, &known.text)
    }

    pub(super) fn nowhere(&self) -> Error {
        let name = &self.description.qualified;
        let text = format!("no server has `{name}` with this interface");
        Error::failed(FailureKind::NoServer, text)
    }

    /// The question that asks a metaserver to place a call.
    pub(super) fn wanted(&self, layout: &Layout) -> Choose {
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
            trace: self.terms.trace,
        }
    }

    /// Estimates of a call at each server, the soonest first. Servers that cannot run the call come
    /// last, with the reason.
    pub(crate) fn offers(&self, laid_out: &LaidOut) -> Result<Vec<Offer>, Error> {
        let wanted = Choose {
            explain: true,
            ..self.wanted(laid_out.layout())
        };
        self.grid.explain(&wanted)
    }

    /// The estimate of a call at the server that would run it.
    pub(crate) fn estimate(&self, laid_out: LaidOut) -> Result<Estimate, Error> {
        if let Some(function) = self.at_reservation()? {
            return function.estimate(laid_out);
        }
        let offers = self.offers(&laid_out)?;
        let soonest = offers.first().ok_or_else(|| self.nowhere())?;
        let server = self.grid.server(soonest.server, &soonest.address)?;
        self.at(&server)?.estimate(laid_out)
    }
}

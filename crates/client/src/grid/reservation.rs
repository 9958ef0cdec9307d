//! Reservations behind a metaserver. Each one is at one server.

use crate::error::{Error, Failure};
use crate::grid::directory::Grid;
use crate::grid::function::Function;
use crate::remote::{self, Server};
use crate::reservation::{Reservation, ReservationSpec};
use farcall_rpc_proto::FailureKind;
use std::time::Duration;

impl Function {
    /// Reserves at the server that is free first.
    pub(crate) fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        let servers = self.servers()?;
        let mut soonest: Option<(Duration, &Server, Error)> = None;
        let mut other = None;
        for server in &servers {
            // If a server can begin in time, no other one can begin sooner.
            let in_time = ReservationSpec {
                latest: None,
                ..*wanted
            };
            let error = match server.reserve(&in_time) {
                Ok(made) => return Ok(made),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => error,
            };
            match error.earliest() {
                Some(earliest) if soonest.as_ref().is_none_or(|(known, ..)| earliest < *known) => {
                    soonest = Some((earliest, server, error));
                }
                Some(_) => {}
                None => other = Some(at(server, error)),
            }
        }
        match soonest {
            Some((earliest, server, error)) => match wanted.latest {
                Some(latest) if earliest <= latest => server.reserve(wanted),
                _ => Err(at(server, error)),
            },
            None => Err(other.unwrap_or_else(|| self.nowhere())),
        }
    }

    /// The function at the server of its reservation, if it has one.
    pub(super) fn at_reservation(&self) -> Result<Option<remote::Function>, Error> {
        let Some(reservation) = &self.terms.reservation else {
            return Ok(None);
        };
        let meta = self.grid().meta().address();
        let Some(address) = &reservation.at else {
            let text = format!(
                "{meta} is a metaserver, and reservation {reservation} is at one of its servers: \
                 add that server, as in {reservation}@farcall://host:port"
            );
            return Err(Error::failed(FailureKind::BadArgument, text));
        };
        let known = self.description();
        let wanted = (known.qualified.as_str(), known.text.as_str());
        let Some(server) = self.grid().server_of(wanted, address)? else {
            let text = format!(
                "{address} has reservation {}, but {meta} does not list `{}` with this interface \
                 there",
                reservation.id, known.qualified
            );
            return Err(Error::failed(FailureKind::NoServer, text));
        };
        let mut function = self.at(&server)?;
        function.terms.reservation = Some(reservation.id.into());
        Ok(Some(function))
    }
}

impl Grid {
    /// The error for a reservation at a metaserver, which has no processor elements.
    pub(crate) fn refuse_reservation(&self) -> Error {
        let text = format!(
            "{} is a metaserver: name the function to reserve for (farcall reservation make \
             --function NAME; in Python function.reserve)",
            self.meta().address()
        );
        Error::failed(FailureKind::NotAllowed, text)
    }

    /// The error for a list of reservations at a metaserver.
    pub(crate) fn refuse_reservations(&self) -> Error {
        let text = format!(
            "{} is a metaserver, and reservations belong to one server: connect to a server, or \
             name a function (farcall reservation list --function NAME; in Python \
             function.reservations)",
            self.meta().address()
        );
        Error::failed(FailureKind::NotAllowed, text)
    }
}

/// The refusal of one of several servers, with its address.
fn at(server: &Server, error: Error) -> Error {
    match error {
        Error::Failed(failure) => Error::Failed(Failure {
            message: format!("{}: {}", server.address(), failure.message),
            ..failure
        }),
        other => other,
    }
}

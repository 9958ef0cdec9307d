//! Reservations at one server: make, list and release. Times are converted to those of this
//! machine.

use crate::error::Error;
use crate::remote::pages;
use crate::remote::requests::reservations;
use crate::remote::server::Server;
use crate::reservation::{Reservation, ReservationSpec};
use farcall_rpc_proto::{ReservationRequest, Reserve};
use std::time::Duration;

impl Server {
    pub(crate) fn reserve(&self, wanted: &ReservationSpec) -> Result<Reservation, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wanted = Reserve {
            pes: wanted.pes,
            start: millis(wanted.start),
            length: millis(wanted.length),
            latest: wanted.latest.map(millis),
            up: wanted.up,
            down: wanted.down,
        };
        self.one_reservation(ReservationRequest::Reserve(wanted))
    }

    /// Ends a reservation early.
    pub(crate) fn release(&self, id: u64) -> Result<Reservation, Error> {
        let released = self.one_reservation(ReservationRequest::Release(id))?;
        self.reserved(|reserved, _| reserved.release(id));
        Ok(released)
    }

    fn one_reservation(&self, asked: ReservationRequest) -> Result<Reservation, Error> {
        let record = self.persist(|| {
            let connection = self.connection()?;
            let page = reservations::ask(&connection, asked)?;
            let record = page.reservations.into_iter().next();
            record.ok_or_else(|| connection.unexpected())
        })?;
        Ok(Reservation::new(&record, self.address()))
    }

    /// The caller's reservations that have not ended, in the order in which they were made.
    pub(crate) fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        pages::all(|after| {
            let ask = || reservations::ask(&self.connection()?, ReservationRequest::List(after));
            let page = self.persist(ask)?;
            let records = page.reservations.into_iter();
            let known = records.map(|record| Reservation::new(&record, self.address()));
            Ok((known, page.next))
        })
    }
}

//! Processor elements reserved ahead of time.

use crate::{Error, Server};
use farcall_rpc_proto::{ReservationRecord, ReservationRequest, Reserve};
use std::time::Duration;

/// What is to be reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Processor elements.
    pub pes: u32,
    /// Time from now until it begins.
    pub start: Duration,
    /// Where it is not free then, it begins as soon as it is, in so long at most;
    /// [`Duration::MAX`] for whenever that is.
    pub latest: Option<Duration>,
    /// For how long.
    pub length: Duration,
}

/// A reservation at a server. It is over at its end, whether it is dropped here or not;
/// [`Server::release`] ends it before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its number at the server, for
    /// [`Function::with_reservation`](crate::Function::with_reservation).
    pub id: u64,
    /// Processor elements.
    pub pes: u32,
    /// Time from when this was told until it begins; zero where it has begun.
    pub begins: Duration,
    /// Time from when this was told until it is over.
    pub ends: Duration,
}

impl Reservation {
    fn new(record: &ReservationRecord) -> Reservation {
        Reservation {
            id: record.id,
            pes: record.pes,
            begins: Duration::from_millis(record.begins),
            ends: Duration::from_millis(record.ends),
        }
    }
}

impl Server {
    /// Reserves processor elements from a time on, for so long. Calls of this user that name the
    /// reservation start at once then; those of others do not start where they would probably be in
    /// the way.
    ///
    /// # Errors
    /// Where they are not free then: [`FailureKind::NotFree`](farcall_rpc_proto::FailureKind), with
    /// the time from which they are ([`Error::earliest`]).
    pub fn reserve(&self, wanted: &Wanted) -> Result<Reservation, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wanted = Reserve {
            pes: wanted.pes,
            start: millis(wanted.start),
            length: millis(wanted.length),
            latest: wanted.latest.map(millis),
            ..Reserve::default()
        };
        self.one_reservation(ReservationRequest::Reserve(wanted))
    }

    /// Ends a reservation before its time. Calls that name it and wait do so as all others from
    /// then on.
    pub fn release(&self, id: u64) -> Result<Reservation, Error> {
        self.one_reservation(ReservationRequest::Release(id))
    }

    fn one_reservation(&self, asked: ReservationRequest) -> Result<Reservation, Error> {
        let connection = self.connection()?;
        let page = connection.reservations(asked)?;
        let record = page.reservations.first();
        Ok(Reservation::new(
            record.ok_or_else(|| connection.unexpected())?,
        ))
    }

    /// The caller's reservations at this server that are not over, in the order in which they were
    /// made.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let mut reservations = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let asked = ReservationRequest::List(number);
            let page = self.connection()?.reservations(asked)?;
            // A page that leads nowhere would be asked for without end.
            after = page.next.filter(|&next| next > number);
            reservations.extend(page.reservations.iter().map(Reservation::new));
        }
        Ok(reservations)
    }
}

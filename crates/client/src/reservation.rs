//! Processor elements and bandwidth reserved ahead of time.

use crate::connection::Connection;
use crate::{Error, Server};
use farcall_rpc_proto::{ReservationRecord, ReservationRequest, Reserve};
use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is to be reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Processor elements; 0 for bandwidth alone.
    pub pes: u32,
    /// Bytes per second to the server; 0 for none.
    pub up: u64,
    /// Bytes per second from the server; 0 for none.
    pub down: u64,
    /// Time from now until it begins.
    pub start: Duration,
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
    /// Bytes per second to the server.
    pub up: u64,
    /// Bytes per second from the server.
    pub down: u64,
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
            up: record.up,
            down: record.down,
            begins: Duration::from_millis(record.begins),
            ends: Duration::from_millis(record.ends),
        }
    }
}

/// The connections of reservations, by their numbers.
#[derive(Default)]
pub(crate) struct Reserved(HashMap<u64, Own>);

/// What a reservation has for itself.
struct Own {
    ends: Instant,
    /// The connection that has its bandwidth; none where it has no bandwidth, or needs none.
    connection: Option<Arc<Connection>>,
}

impl Server {
    /// Reserves processor elements and bandwidth from a time on, for so long. Calls of this user
    /// that name the reservation start at once then; those of others do not start where they would
    /// probably be in the way. The calls' arrays travel at the rates that are reserved, on a
    /// connection of their own, and all other connections to the server leave room for them.
    ///
    /// # Errors
    /// Where they are not free then: [`FailureKind::NotFree`](farcall_rpc_proto::FailureKind), with
    /// the time from which they are.
    pub fn reserve(&self, wanted: &Wanted) -> Result<Reservation, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let wanted = Reserve {
            pes: wanted.pes,
            start: millis(wanted.start),
            length: millis(wanted.length),
            up: wanted.up,
            down: wanted.down,
        };
        self.one_reservation(ReservationRequest::Reserve(wanted))
    }

    /// Ends a reservation before its time. Calls that name it and wait do so as all others from
    /// then on.
    pub fn release(&self, id: u64) -> Result<Reservation, Error> {
        let released = self.one_reservation(ReservationRequest::Release(id))?;
        if let Some(own) = self.lock_reserved().0.remove(&id)
            && let Some(connection) = own.connection
        {
            connection.detach();
        }
        Ok(released)
    }

    fn lock_reserved(&self) -> MutexGuard<'_, Reserved> {
        let reserved = self.0.reserved.lock();
        reserved.unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of a reservation that has bandwidth; none for others, and where there is no
    /// such reservation, which is for the server to say.
    pub(crate) fn reserved(
        &self,
        first: &Arc<Connection>,
        id: u64,
    ) -> Result<Option<Arc<Connection>>, Error> {
        let now = Instant::now();
        let mut reserved = self.lock_reserved();
        reserved.0.retain(|_, own| own.ends > now);
        if let Some(own) = reserved.0.get(&id)
            && !own.connection.as_ref().is_some_and(|one| one.is_stale())
        {
            return Ok(own.connection.clone());
        }
        let asked = ReservationRequest::List(id.saturating_sub(1));
        let page = first.reservations(asked)?;
        let record = page.reservations.first().filter(|record| record.id == id);
        let Some(record) = record.map(Reservation::new) else {
            return Ok(None);
        };
        let mut connection = None;
        if record.up > 0 || record.down > 0 {
            let fresh = Connection::open(self.address(), &self.0.options)?;
            connection = fresh.attach(id)?.then_some(fresh);
        }
        let ends = now + record.ends.min(Duration::from_secs(1 << 30));
        let own = Own { ends, connection };
        let own = reserved.0.entry(id).insert_entry(own);
        Ok(own.get().connection.clone())
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

//! Processor elements and bandwidth reserved ahead of time.

use crate::connection::Connection;
use crate::{Address, Error, Function, Server};
use farcall_rpc_proto::{Failure, FailureKind, ReservationRecord, ReservationRequest, Reserve};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
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
    /// Where it is not free then, it begins as soon as it is, in so long at most;
    /// [`Duration::MAX`] for whenever that is.
    pub latest: Option<Duration>,
    /// For how long.
    pub length: Duration,
}

/// A reservation at a server. It is over at its end, whether it is dropped here or not;
/// [`Server::release`] ends it before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its number at the server, for [`Function::with_reservation`].
    pub id: u64,
    /// The server it is at.
    pub server: Address,
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
    fn new(record: &ReservationRecord, server: &Address) -> Reservation {
        Reservation {
            id: record.id,
            server: server.clone(),
            pes: record.pes,
            up: record.up,
            down: record.down,
            begins: Duration::from_millis(record.begins),
            ends: Duration::from_millis(record.ends),
        }
    }
}

/// Names a reservation. Its text is `3`, or `3@farcall://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationName {
    /// Its number at its server.
    pub id: u64,
    /// The server it is at, which only clients of metaservers need to be told.
    pub at: Option<Address>,
}

impl From<u64> for ReservationName {
    fn from(id: u64) -> ReservationName {
        ReservationName { id, at: None }
    }
}

impl From<&Reservation> for ReservationName {
    fn from(reservation: &Reservation) -> ReservationName {
        ReservationName {
            id: reservation.id,
            at: Some(reservation.server.clone()),
        }
    }
}

impl fmt::Display for ReservationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(address) => write!(f, "{}@{address}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

impl FromStr for ReservationName {
    type Err = String;

    fn from_str(text: &str) -> Result<ReservationName, String> {
        let (id, at) = match text.split_once('@') {
            Some((id, at)) => (id, Some(at)),
            None => (text, None),
        };
        let expected = "write a number, as in 3, or where it is as well, as in 3@farcall://host";
        let id = id.parse().map_err(|_| expected.to_string())?;
        let at = at.map(str::parse).transpose();
        let at = at.map_err(|error| format!("{error}; {expected}"))?;
        Ok(ReservationName { id, at })
    }
}

fn refused(kind: FailureKind, text: String) -> Error {
    Error::Failed(Failure::new(kind, text))
}

impl Function {
    /// The same function, whose calls have the processor elements of a reservation at its server
    /// ([`Server::reserve`]), by its number, or by its whole name behind a metaserver: they all go
    /// to its server. Without one they wait as all others.
    pub fn with_reservation<N: Into<ReservationName>>(&self, reservation: Option<N>) -> Function {
        let mut function = self.clone();
        function.reservation = reservation.map(Into::into);
        function
    }

    /// The reservation whose processor elements its calls have.
    pub fn reservation(&self) -> Option<&ReservationName> {
        self.reservation.as_ref()
    }

    /// Reserves processor elements for calls of the function as [`Server::reserve`] does; behind a
    /// metaserver at the server that has it with this interface and can have them first.
    ///
    /// # Errors
    /// As [`Server::reserve`]; behind a metaserver the earliest time of all servers, and which it
    /// is.
    pub fn reserve(&self, wanted: &Wanted) -> Result<Reservation, Error> {
        if !self.server().is_metaserver() {
            return self.server().reserve(wanted);
        }
        let servers = self.servers();
        let mut soonest: Option<(Duration, &Server, Error)> = None;
        let mut other = None;
        for server in &servers {
            // One that begins in time cannot begin sooner elsewhere.
            let in_time = Wanted {
                latest: None,
                ..*wanted
            };
            let error = match server.reserve(&in_time) {
                Ok(made) => return Ok(made),
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

    /// The caller's reservations that are not over: at its server, or behind a metaserver at those
    /// of its servers that can be reached.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        let mut all = Vec::new();
        for server in self.servers() {
            all.extend(server.reservations()?);
        }
        Ok(all)
    }

    /// The function of the server at which its reservation is, where the calls of others are
    /// placed; none where they are not, and without a reservation.
    pub(crate) fn at_reservation(&self) -> Result<Option<Function>, Error> {
        let (Some(reservation), Some(grid)) = (&self.reservation, self.server().grid()) else {
            return Ok(None);
        };
        let Some(address) = &reservation.at else {
            let text = format!(
                "{} is a metaserver, and reservation {reservation} is at one of its servers: say \
                 at which, as in {reservation}@farcall://host:port",
                self.server().address()
            );
            return Err(refused(FailureKind::BadArgument, text));
        };
        let wanted = (self.qualified_name(), self.text());
        let Some(server) = grid.server_of(self.server(), wanted, address)? else {
            let text = format!(
                "{address}, where reservation {} is, does not serve `{}` with this interface \
                 through {} (any more)",
                reservation.id,
                self.qualified_name(),
                self.server().address()
            );
            return Err(refused(FailureKind::NoServer, text));
        };
        let function = self.at(&server)?;
        Ok(Some(function.with_reservation(Some(reservation.id))))
    }
}

/// A refusal of one of several servers.
fn at(server: &Server, error: Error) -> Error {
    match error {
        Error::Failed(failure) => Error::Failed(Failure {
            message: format!("{}: {}", server.address(), failure.message),
            ..failure
        }),
        other => other,
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
    /// the time from which they are ([`Error::earliest`]).
    pub fn reserve(&self, wanted: &Wanted) -> Result<Reservation, Error> {
        if self.is_metaserver() {
            let text = format!(
                "{} is a metaserver, and a reservation is at a server that has a function: reserve \
                 for one (farcall reserve --function NAME; in Python function.reserve)",
                self.address()
            );
            return Err(refused(FailureKind::NotAllowed, text));
        }
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

    /// The server at an address: itself, or one behind a metaserver.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn behind(&self, address: &Address) -> Result<Server, Error> {
        match self.grid() {
            Some(grid) => grid.server_at(self, address),
            None => Ok(self.clone()),
        }
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
        let record = record.map(|record| Reservation::new(record, self.address()));
        let Some(record) = record else {
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
        let record = record.ok_or_else(|| connection.unexpected())?;
        Ok(Reservation::new(record, self.address()))
    }

    /// The caller's reservations at this server that are not over, in the order in which they were
    /// made.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        if self.is_metaserver() {
            let text = format!(
                "reservations are at one server, and {} is a metaserver: connect to one of its \
                 servers, or ask those that have a function (farcall reservations --function NAME; \
                 in Python function.reservations)",
                self.address()
            );
            return Err(refused(FailureKind::NotAllowed, text));
        }
        let mut reservations = Vec::new();
        let mut after = Some(0);
        while let Some(number) = after {
            let asked = ReservationRequest::List(number);
            let page = self.connection()?.reservations(asked)?;
            // A page that leads nowhere would be asked for without end.
            after = page.next.filter(|&next| next > number);
            let records = page.reservations.iter();
            reservations.extend(records.map(|record| Reservation::new(record, self.address())));
        }
        Ok(reservations)
    }
}

//! Reservations of processor elements and bandwidth, as a program sees them. `remote` makes them.
//! Dropping a [`Reservation`] does not end it, because other processes can use it by its name.

use crate::address::Address;
use farcall_rpc_proto::ReservationRecord;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A wish for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservationSpec {
    /// Processor elements; 0 for bandwidth alone.
    pub pes: u32,
    /// Bytes per second to the server; 0 for none.
    pub up: u64,
    /// Bytes per second from the server; 0 for none.
    pub down: u64,
    /// Time from now until the reservation begins.
    pub start: Duration,
    /// Time from now until the reservation must begin, if the elements are not free at `start`.
    /// [`Duration::MAX`] accepts any time.
    pub latest: Option<Duration>,
    /// How long it lasts.
    pub length: Duration,
}

/// A reservation at a server. It lasts until its end even if this value is dropped;
/// [`crate::Server::release`] ends it earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its number at the server, for [`crate::Function::with_reservation`].
    pub id: u64,
    /// The server it is at.
    pub server: Address,
    /// Processor elements.
    pub pes: u32,
    /// Bytes per second to the server.
    pub up: u64,
    /// Bytes per second from the server.
    pub down: u64,
    /// Time from the server's answer until the reservation begins; zero if it has begun.
    pub begins: Duration,
    /// Time from the server's answer until the reservation ends.
    pub ends: Duration,
}

impl Reservation {
    pub(crate) fn new(record: &ReservationRecord, server: &Address) -> Reservation {
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

/// The name of a reservation: `3`, or `3@farcall://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationName {
    /// Number of the reservation at its server.
    pub id: u64,
    /// The server of the reservation. Only clients of metaservers need it.
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
        let expected = "write a number, as in 3, or a number with a server, as in 3@farcall://host";
        let id = id.parse().map_err(|_| expected.to_string())?;
        let at = at.map(str::parse).transpose();
        let at = at.map_err(|error| format!("{error}; {expected}"))?;
        Ok(ReservationName { id, at })
    }
}

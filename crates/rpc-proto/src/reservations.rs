//! Messages about reservations: make, list, release and attach. The server decides what is free.
//! All times are relative to now, so the clocks of both sides need not agree.

use crate::{CallId, Kind, ProtocolError, message};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: processor elements and bandwidth can be reserved, and calls can name their
/// reservation.
pub const RESERVATIONS: u64 = 1 << 19;

/// A wish for a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Reserve {
    /// Processor elements.
    #[n(0)]
    pub pes: u32,
    /// Milliseconds from now until it begins.
    #[n(1)]
    pub start: u64,
    /// Length in milliseconds.
    #[n(2)]
    pub length: u64,
    /// Bytes per second to the server; 0 for none.
    #[n(3)]
    pub up: u64,
    /// Bytes per second from the server; 0 for none.
    #[n(4)]
    pub down: u64,
    /// Milliseconds from now until the reservation must begin, if the elements are not free at
    /// `start`.
    #[n(5)]
    pub latest: Option<u64>,
}

/// A request about reservations. [`ReservationPage`] answers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationRequest {
    /// Makes a reservation.
    Reserve(Reserve),
    /// Releases a reservation.
    Release(u64),
    /// Lists reservations after this number.
    List(u64),
    /// Gives the connection the bandwidth of a reservation while it lasts.
    Attach(u64),
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReservationRecord {
    /// Number at this server.
    #[n(0)]
    pub id: u64,
    /// Processor elements.
    #[n(1)]
    pub pes: u32,
    /// Milliseconds until it begins; 0 if it has begun.
    #[n(2)]
    pub begins: u64,
    /// Milliseconds until it ends.
    #[n(3)]
    pub ends: u64,
    /// Bytes per second to the server.
    #[n(4)]
    pub up: u64,
    /// Bytes per second from the server.
    #[n(5)]
    pub down: u64,
}

/// A page of a user's reservations, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReservationPage {
    /// The reservations of this page.
    #[n(0)]
    pub reservations: Vec<ReservationRecord>,
    /// Number after which the next page begins, if there is one.
    #[n(1)]
    pub next: Option<u64>,
}

impl ReservationRequest {
    /// Whether a frame is a request about reservations.
    pub(crate) fn is_kind(kind: Kind) -> bool {
        matches!(
            kind,
            Kind::Reserve | Kind::Release | Kind::ListReservations | Kind::AttachReservation
        )
    }

    pub(crate) fn append(self, out: &mut Vec<u8>, request: CallId) {
        let (kind, number) = match self {
            ReservationRequest::Reserve(wanted) => {
                return message::append(out, Kind::Reserve, request, &wanted);
            }
            ReservationRequest::Release(id) => (Kind::Release, id),
            ReservationRequest::List(after) => (Kind::ListReservations, after),
            ReservationRequest::Attach(id) => (Kind::AttachReservation, id),
        };
        message::append(out, kind, request, &message::NumberMessage { number });
    }

    pub(crate) fn parse(kind: Kind, payload: &[u8]) -> Result<ReservationRequest, ProtocolError> {
        if kind == Kind::Reserve {
            return Ok(ReservationRequest::Reserve(message::parse(kind, payload)?));
        }
        let message::NumberMessage { number } = message::parse(kind, payload)?;
        Ok(match kind {
            Kind::Release => ReservationRequest::Release(number),
            Kind::AttachReservation => ReservationRequest::Attach(number),
            _ => ReservationRequest::List(number),
        })
    }
}

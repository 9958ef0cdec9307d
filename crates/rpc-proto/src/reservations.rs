//! Messages about what is reserved ahead of time.

use crate::{CallId, Kind, ProtocolError, message};
use alloc::vec::Vec;
use minicbor::{Decode, Encode};

/// Feature bit: processor elements and bandwidth may be reserved, and calls name their reservation.
pub const RESERVATIONS: u64 = 1 << 19;

/// What is to be reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub struct Reserve {
    /// Processor elements.
    #[n(0)]
    pub pes: u32,
    /// Milliseconds from now until it begins.
    #[n(1)]
    pub start: u64,
    /// For how many milliseconds.
    #[n(2)]
    pub length: u64,
    /// Bytes per second to the server; 0 for none.
    #[n(3)]
    pub up: u64,
    /// Bytes per second from the server; 0 for none.
    #[n(4)]
    pub down: u64,
    /// Where it is not free then, it begins as soon as it is, in so many milliseconds at most.
    #[n(5)]
    pub latest: Option<u64>,
}

/// What a client asks about reservations. [`ReservationPage`] answers all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationRequest {
    /// To make one.
    Reserve(Reserve),
    /// To give that one up.
    Release(u64),
    /// Those with greater numbers.
    List(u64),
    /// That the connection has its bandwidth, as long as that lasts.
    Attach(u64),
}

/// What is known of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReservationRecord {
    /// Its number at this server, greater than that of every earlier one.
    #[n(0)]
    pub id: u64,
    /// Processor elements.
    #[n(1)]
    pub pes: u32,
    /// Milliseconds until it begins; 0 where it has.
    #[n(2)]
    pub begins: u64,
    /// Milliseconds until it is over.
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
    /// Those of this page.
    #[n(0)]
    pub reservations: Vec<ReservationRecord>,
    /// Ask for those after this number next, if there are more.
    #[n(1)]
    pub next: Option<u64>,
}

impl ReservationRequest {
    /// Whether a frame is one.
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

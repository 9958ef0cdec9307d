//! Requests about reservations at the server's end. It turns them into events and writes the
//! answers; the server has the reservations.

use super::{Connection, Event};
use crate::message;
use crate::reservations::{ReservationPage, ReservationRequest};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers a request about reservations.
    pub fn reservations(&mut self, request: CallId, page: &ReservationPage) {
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Reservations, request, page);
    }
}

/// Handles a request about reservations.
pub(super) fn about_reservations(
    kind: Kind,
    id: CallId,
    payload: &[u8],
) -> Result<Event, ProtocolError> {
    match kind {
        kind if ReservationRequest::is_kind(kind) => {
            let asked = ReservationRequest::parse(kind, payload)?;
            Ok(Event::Reservations(id, asked))
        }
        _ => Err(ProtocolError::OutOfPlace(kind)),
    }
}

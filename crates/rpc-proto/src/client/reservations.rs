//! What is reserved at a server.

use super::{Connection, Core, Event, Request};
use crate::reservations::ReservationRequest;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks about reservations, at a server with the feature [`RESERVATIONS`](crate::RESERVATIONS).
    pub fn reservations(&mut self, asked: ReservationRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        asked.append(&mut self.core.sender.control, id);
        Ok(id)
    }
}

impl Core {
    /// What the server says of reservations.
    pub(super) fn about_reservations(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Reservations => Ok(Event::Reservations(id, self.answered(kind, id, payload)?)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

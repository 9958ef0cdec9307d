//! Requests of an operator at the server's end: status, snapshots and drain. It turns them into
//! events and writes the answers. The server decides whether the user is an operator.

use super::{Connection, Core, Event};
use crate::message;
use crate::operation::{DrainingMessage, SNAPSHOTS, StatusMessage};
use crate::{CallId, Kind, ProtocolError};
use alloc::string::String;

impl Connection {
    /// Answers a request for the status or a snapshot with a JSON object.
    pub fn status_text(&mut self, request: CallId, text: String) {
        let message = StatusMessage { text };
        let out = &mut self.core.sender.control;
        message::append(out, Kind::StatusText, request, &message);
    }

    /// Answers a drain request with the number of calls that must end before the server does.
    pub fn draining(&mut self, request: CallId, calls: u64) {
        let message = DrainingMessage { calls };
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Draining, request, &message);
    }
}

impl Core {
    /// Handles a request of an operator.
    pub(super) fn about_operation(
        &self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Status => Ok(Event::Status(id)),
            Kind::Drain => Ok(Event::Drain(id)),
            Kind::AskSnapshot if self.has(SNAPSHOTS) => {
                Ok(Event::AskSnapshot(id, message::parse(kind, payload)?))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

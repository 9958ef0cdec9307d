//! Requests of an operator at the server's end: status and drain. It turns them into events and
//! writes the answers. The server decides whether the user is an operator.

use super::{Connection, Event};
use crate::message;
use crate::operation::{DrainingMessage, StatusMessage};
use crate::{CallId, Kind, ProtocolError};
use alloc::string::String;

impl Connection {
    /// Answers a status request with a JSON object.
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

/// Handles a request of an operator.
pub(super) fn about_operation(kind: Kind, id: CallId) -> Result<Event, ProtocolError> {
    match kind {
        Kind::Status => Ok(Event::Status(id)),
        Kind::Drain => Ok(Event::Drain(id)),
        _ => Err(ProtocolError::OutOfPlace(kind)),
    }
}

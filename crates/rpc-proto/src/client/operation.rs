//! What an operator asks of a server.

use super::{Connection, Core, Event, Request};
use crate::frame::append_control;
use crate::operation::{DrainingMessage, StandingMessage};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks how a server with the feature [`OPERATION`](crate::OPERATION) stands.
    pub fn status(&mut self) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Status)
    }

    /// Asks a server with the feature [`OPERATION`](crate::OPERATION) to take no more calls and to
    /// end.
    pub fn drain(&mut self) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Drain)
    }

    /// A request that says nothing more.
    fn ask(&mut self, kind: Kind) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        append_control(&mut self.core.sender.control, kind, id, |_| {});
        Ok(id)
    }
}

impl Core {
    /// The answer of the server to its operator.
    pub(super) fn about_operation(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Standing => {
                let StandingMessage { text } = self.answered(kind, id, payload)?;
                Ok(Event::Standing(id, text))
            }
            Kind::Draining => {
                let DrainingMessage { calls } = self.answered(kind, id, payload)?;
                Ok(Event::Draining(id, calls))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

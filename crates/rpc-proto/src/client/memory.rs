//! Memory that both sides share.

use super::{Connection, Core, Event, Request};
use crate::frame::append_control;
use crate::memory::MemoryMessage;
use crate::message;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks for shared memory of `bytes` bytes, where both sides have the feature.
    pub fn share(&mut self, bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Memory { bytes })?;
        let request = MemoryMessage { bytes };
        message::append(&mut self.core.sender.control, Kind::Share, id, &request);
        Ok(id)
    }

    /// Gives shared memory back. Calls that use it go on.
    pub fn unshare(&mut self, memory: CallId) {
        append_control(&mut self.core.sender.control, Kind::Unshare, memory, |_| ());
    }
}

impl Core {
    /// Memory that was asked for is there.
    pub(super) fn about_memory(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        if kind != Kind::Shared {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        let MemoryMessage { bytes } = message::parse(kind, payload)?;
        match self.requests.remove(&id) {
            Some(Request::Memory { bytes: asked }) if bytes >= asked => {
                Ok(Event::Shared(id, bytes))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

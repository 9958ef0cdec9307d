//! Memory that both sides share.

use super::{Connection, Event};
use crate::memory::MemoryMessage;
use crate::message;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers a request for shared memory. The memory itself goes beside the bytes, no later than
    /// the last of this frame.
    pub fn shared(&mut self, request: CallId, bytes: u64) {
        let message = MemoryMessage { bytes };
        message::append(
            &mut self.core.sender.control,
            Kind::Shared,
            request,
            &message,
        );
    }
}

/// A request for memory, or its end.
pub(super) fn about_memory(kind: Kind, id: CallId, payload: &[u8]) -> Result<Event, ProtocolError> {
    match kind {
        Kind::Share => {
            let MemoryMessage { bytes } = message::parse(kind, payload)?;
            Ok(Event::Share(id, bytes))
        }
        Kind::Unshare => Ok(Event::Unshare(id)),
        _ => Err(ProtocolError::OutOfPlace(kind)),
    }
}

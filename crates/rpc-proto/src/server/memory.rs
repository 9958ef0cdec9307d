//! Requests about shared memory at the server's end. It turns them into events and writes the
//! answer. The shell passes the memory with the last byte of the answer at the latest.

use super::{Connection, Event};
use crate::memory::MemoryMessage;
use crate::message;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers a request for shared memory. The shell passes the memory itself beside the bytes,
    /// with the last byte of this frame at the latest.
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

/// Handles a request for memory, or its end.
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

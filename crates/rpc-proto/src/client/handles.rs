//! Arrays that stay at the server.

use super::{Connection, Core, Event, Request};
use crate::handles::{ArrayPart, HandleMessage, ListHandlesMessage, Pull, Put};
use crate::ids::HandleId;
use crate::message;
use crate::{CallId, Kind, ProtocolError};
use alloc::vec::Vec;

impl Connection {
    /// Puts an array at a server with the feature [`HANDLES`](crate::HANDLES).
    pub fn put(&mut self, put: &Put) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut opening = Vec::new();
        message::append(&mut opening, Kind::Put, id, put);
        self.core.start(id, opening, put.data_bytes, false);
        Ok(id)
    }

    /// Fills a part of an array at a server with the feature [`PARTS`](crate::PARTS).
    pub fn put_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut frame = Vec::new();
        message::append(&mut frame, Kind::PutPart, id, part);
        self.core.start(id, frame, part.bytes, true);
        Ok(id)
    }

    /// Asks for a part of an array at the server. Its end is told as that of a call.
    pub fn get_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes: part.bytes,
            calls_back: false,
        })?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::GetPart, id, part);
        Ok(id)
    }

    /// Asks for an array of `bytes` bytes at the server. Its end is told as that of a call.
    pub fn get(&mut self, handle: HandleId, bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes: bytes,
            calls_back: false,
        })?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Get, id, &HandleMessage { id: handle });
        Ok(id)
    }

    /// Asks about an array at the server.
    pub fn ask_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask_of_handle(Kind::AskHandle, handle)
    }

    /// Gives an array at the server up.
    pub fn drop_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask_of_handle(Kind::Drop, handle)
    }

    /// Asks a server with the feature [`LOANS`](crate::LOANS) for a name of an array that another
    /// server may read it by, once.
    pub fn lend(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask_of_handle(Kind::Lend, handle)
    }

    /// Has a server with the feature [`LOANS`](crate::LOANS) read an array from another.
    pub fn pull(&mut self, pull: &Pull) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        message::append(&mut self.core.sender.control, Kind::Pull, id, pull);
        Ok(id)
    }

    /// Asks for the arrays at the server with numbers above `after`.
    pub fn list_handles(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::ListHandles, id, &ListHandlesMessage { after });
        Ok(id)
    }

    fn ask_of_handle(&mut self, kind: Kind, handle: HandleId) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, kind, id, &HandleMessage { id: handle });
        Ok(id)
    }
}

impl Core {
    /// What the server says of arrays.
    pub(super) fn about_handles(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Handle => {
                let record = message::parse(kind, payload)?;
                self.close_handle(id)?;
                Ok(Event::Handle(id, record))
            }
            Kind::Handles => Ok(Event::Handles(id, self.answered(kind, id, payload)?)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// The answer about an array has come, one that was put at the server too.
    fn close_handle(&mut self, id: CallId) -> Result<(), ProtocolError> {
        if self.sender.has_stream(id) {
            return Err(ProtocolError::OutOfPlace(Kind::Handle));
        }
        match self.requests.remove(&id) {
            Some(Request::Submitting | Request::Query | Request::Cancelled(None)) => Ok(()),
            _ => Err(ProtocolError::OutOfPlace(Kind::Handle)),
        }
    }
}

//! Requests about stored arrays at the server's end. It turns them into events and writes the
//! answers; the server has the arrays. A request whose feature was not agreed ends the connection.

use super::{Connection, Core, Event, State};
use crate::handles::{
    ArrayPart, HANDLES, HandleMessage, HandlePage, HandleRecord, LOANS, ListHandlesMessage, PARTS,
    Pull, Put, Receipt, SOURCES, WRITES, Write,
};
use crate::message;
use crate::{CallId, Kind, Nanos, ProtocolError};

impl Connection {
    /// Answers with the status of an array, also after a put.
    pub fn handle(&mut self, request: CallId, record: &HandleRecord) {
        self.core.calls.remove(&request);
        message::append(&mut self.core.sender.control, Kind::Handle, request, record);
    }

    /// Answers a list of arrays.
    pub fn handles(&mut self, request: CallId, page: &HandlePage) {
        message::append(&mut self.core.sender.control, Kind::Handles, request, page);
    }

    /// Answers with what was written to an address.
    pub fn receipt(&mut self, request: CallId, receipt: &Receipt) {
        self.core.calls.remove(&request);
        message::append(
            &mut self.core.sender.control,
            Kind::Receipt,
            request,
            receipt,
        );
    }
}

impl Core {
    /// Handles a request about stored arrays.
    pub(super) fn about_handles(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Event, ProtocolError> {
        let features = match kind {
            Kind::PutPart | Kind::GetPart => HANDLES | PARTS,
            Kind::Lend | Kind::Pull => LOANS,
            Kind::Write => HANDLES | SOURCES | WRITES,
            _ => HANDLES,
        };
        if !self.has(features) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        let handle = || message::parse(kind, payload).map(|HandleMessage { id }| id);
        match kind {
            Kind::Put => {
                let put: Put = message::parse(kind, payload)?;
                self.open(id, State::offered(put.data_bytes, now))?;
                Ok(Event::Put(id, put))
            }
            Kind::PutPart => {
                let part: ArrayPart = message::parse(kind, payload)?;
                self.open(id, State::offered_with_room(part.bytes, now))?;
                Ok(Event::PutPart(id, part))
            }
            Kind::GetPart => {
                let part = message::parse(kind, payload)?;
                self.open(id, State::waiting(now))?;
                Ok(Event::GetPart(id, part))
            }
            Kind::Get => {
                let handle = handle()?;
                self.open(id, State::waiting(now))?;
                Ok(Event::Get(id, handle))
            }
            Kind::AskHandle => Ok(Event::AskHandle(id, handle()?)),
            Kind::Drop => Ok(Event::Drop(id, handle()?)),
            Kind::Lend => Ok(Event::Lend(id, handle()?)),
            Kind::Pull => {
                let pull: Pull = message::parse(kind, payload)?;
                if pull.source.is_some() && !self.has(SOURCES) {
                    return Err(ProtocolError::OutOfPlace(kind));
                }
                self.open(id, State::Asking)?;
                Ok(Event::Pull(id, pull))
            }
            Kind::Write => {
                let write: Write = message::parse(kind, payload)?;
                self.open(id, State::Asking)?;
                Ok(Event::Write(id, write))
            }
            Kind::ListHandles => {
                let ListHandlesMessage { after } = message::parse(kind, payload)?;
                Ok(Event::ListHandles(id, after))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

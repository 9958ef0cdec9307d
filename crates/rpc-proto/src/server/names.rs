//! Requests about named data at the server's end. It turns them into events and writes the answers;
//! the server has the names.

use super::{Connection, Event};
use crate::message;
use crate::names::{AskNameMessage, ListNamesMessage, NamePage, NameRecord};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers with the status of named data.
    pub fn named(&mut self, request: CallId, record: &NameRecord) {
        message::append(&mut self.core.sender.control, Kind::Named, request, record);
    }

    /// Answers a list of named data.
    pub fn names(&mut self, request: CallId, page: &NamePage) {
        message::append(&mut self.core.sender.control, Kind::Names, request, page);
    }
}

/// Handles a request about named data.
pub(super) fn about_names(kind: Kind, id: CallId, payload: &[u8]) -> Result<Event, ProtocolError> {
    match kind {
        Kind::Name => Ok(Event::Name(id, message::parse(kind, payload)?)),
        Kind::AskName => {
            let AskNameMessage { name } = message::parse(kind, payload)?;
            Ok(Event::AskName(id, name))
        }
        Kind::ListNames => {
            let ListNamesMessage { after } = message::parse(kind, payload)?;
            Ok(Event::ListNames(id, after))
        }
        _ => Err(ProtocolError::OutOfPlace(kind)),
    }
}

//! Data with names at a server.

use super::{Connection, Core, Event, Request};
use crate::message;
use crate::names::{AskNameMessage, DataName, ListNamesMessage, Name};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Gives an array a name, at a server with the feature [`NAMES`](crate::NAMES).
    pub fn name(&mut self, name: &Name) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        message::append(&mut self.core.sender.control, Kind::Name, id, name);
        Ok(id)
    }

    /// Asks a server with the feature [`NAMES`](crate::NAMES) for data by name.
    pub fn ask_name(&mut self, name: &DataName) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let name = name.clone();
        let out = &mut self.core.sender.control;
        message::append(out, Kind::AskName, id, &AskNameMessage { name });
        Ok(id)
    }

    /// Asks a server with the feature [`NAMES`](crate::NAMES) for the data whose names come after
    /// this one.
    pub fn list_names(&mut self, after: Option<&DataName>) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let after = after.cloned();
        let out = &mut self.core.sender.control;
        message::append(out, Kind::ListNames, id, &ListNamesMessage { after });
        Ok(id)
    }
}

impl Core {
    /// What the server says of data with names.
    pub(super) fn about_names(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Named => Ok(Event::Named(id, self.answered(kind, id, payload)?)),
            Kind::Names => Ok(Event::Names(id, self.answered(kind, id, payload)?)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

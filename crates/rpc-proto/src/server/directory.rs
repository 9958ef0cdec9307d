//! Requests for the directory of a metaserver. Their messages are not read here.

use super::{Connection, Core, Event};
use crate::frame::append_control;
use crate::names::NAMES;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers a request for the directory with a message of this kind.
    pub fn directory(&mut self, request: CallId, kind: Kind, message: &[u8]) {
        let out = &mut self.core.sender.control;
        append_control(out, kind, request, |out| out.extend_from_slice(message));
    }
}

impl Core {
    /// Handles a request for the directory. Requests about data need the feature for named data.
    pub(super) fn about_directory(
        &self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Join | Kind::Report | Kind::Leave | Kind::Find | Kind::Choose | Kind::Observe => {
            }
            Kind::Hold | Kind::FindData | Kind::ListData if self.has(NAMES) => {}
            _ => return Err(ProtocolError::OutOfPlace(kind)),
        }
        Ok(Event::Directory(id, kind, payload.to_vec()))
    }
}

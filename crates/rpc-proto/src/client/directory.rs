//! What is asked of the directory of a metaserver, whose messages are not read here.

use super::{Connection, Core, Event, Request};
use crate::frame::append_control;
use crate::names::NAMES;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks the directory of a metaserver, which has the feature
    /// [`DIRECTORY`](crate::DIRECTORY), with a message of this kind.
    pub fn ask_directory(&mut self, kind: Kind, message: &[u8]) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, kind, id, |out| out.extend_from_slice(message));
        Ok(id)
    }

    /// Tells the directory of a metaserver what became of a call; nothing answers.
    pub fn observe(&mut self, message: &[u8]) {
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Observe, 0, |out| out.extend_from_slice(message));
    }
}

impl Core {
    /// An answer of the directory; one about data comes only where data have names.
    pub(super) fn about_directory(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Noted | Kind::Found | Kind::Chosen => {}
            Kind::DataFound | Kind::DataListed if self.features & NAMES != 0 => {}
            _ => return Err(ProtocolError::OutOfPlace(kind)),
        }
        self.close_query(id, kind)?;
        Ok(Event::Directory(id, kind, payload.to_vec()))
    }
}

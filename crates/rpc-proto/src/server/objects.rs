//! Requests about objects at the server's end of a connection. It reads the requests and writes the
//! answers; the server knows which objects exist. A request about persistent objects ends the
//! connection if the feature was not agreed.

use super::{Connection, Core, Event};
use crate::frame::append_control;
use crate::message;
use crate::objects::{KEPT_OBJECTS, NewRequest, ObjectPage, ObjectRequest};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Answers a request for an object.
    pub fn created(&mut self, request: CallId) {
        append_control(
            &mut self.core.sender.control,
            Kind::Created,
            request,
            |_| (),
        );
    }

    /// Answers a request about persistent objects.
    pub fn objects(&mut self, request: CallId, page: &ObjectPage) {
        message::append(&mut self.core.sender.control, Kind::Objects, request, page);
    }
}

impl Core {
    /// Handles a request about objects, or the end of one.
    pub(super) fn about_objects(
        &self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::New => {
                let NewRequest { class } = message::parse(kind, payload)?;
                Ok(Event::New(id, class))
            }
            Kind::Delete => Ok(Event::Delete(id)),
            kind if ObjectRequest::is_kind(kind) && self.has(KEPT_OBJECTS) => {
                Ok(Event::Objects(id, ObjectRequest::parse(kind, payload)?))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

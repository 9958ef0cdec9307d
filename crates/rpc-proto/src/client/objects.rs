//! Objects, whose methods are called, and those of them that stay.

use super::{Connection, Core, Event, Request};
use crate::frame::append_control;
use crate::message;
use crate::objects::{KEPT_OBJECTS, NewRequest, ObjectRequest};
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks for an object of a class, of a server with the feature [`OBJECTS`](crate::OBJECTS). The
    /// number of the request is that of the object.
    pub fn create(&mut self, class: &str) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Object)?;
        let class = class.into();
        let request = NewRequest { class };
        message::append(&mut self.core.sender.control, Kind::New, id, &request);
        Ok(id)
    }

    /// Gives an object up; calls of its methods fail.
    pub fn delete(&mut self, object: CallId) {
        append_control(&mut self.core.sender.control, Kind::Delete, object, |_| ());
    }

    /// Asks about objects that stay, at a server with the feature [`KEPT_OBJECTS`].
    pub fn objects(&mut self, request: ObjectRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        request.append(&mut self.core.sender.control, id);
        Ok(id)
    }
}

impl Core {
    /// What the server says of objects.
    pub(super) fn about_objects(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Created => match self.requests.remove(&id) {
                Some(Request::Object) => Ok(Event::Created(id)),
                _ => Err(ProtocolError::OutOfPlace(kind)),
            },
            Kind::Objects if self.features & KEPT_OBJECTS != 0 => {
                Ok(Event::Objects(id, self.answered(kind, id, payload)?))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

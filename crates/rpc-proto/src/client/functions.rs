//! The functions that a server has, and what a call of one would take.

use super::{Connection, Core, Event, Request};
use crate::call::Call;
use crate::frame::append_control;
use crate::functions::{DescribeRequest, InterfaceMessage, ListRequest, RegisterRequest};
use crate::message;
use crate::{CallId, Kind, ProtocolError};

impl Connection {
    /// Asks for the functions served, from index `from` on.
    pub fn list(&mut self, from: u32) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        message::append(
            &mut self.core.sender.control,
            Kind::List,
            id,
            &ListRequest { from },
        );
        Ok(id)
    }

    /// Asks for the interface of `name`.
    pub fn describe(&mut self, name: &str) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let request = DescribeRequest { name: name.into() };
        message::append(&mut self.core.sender.control, Kind::Describe, id, &request);
        Ok(id)
    }

    /// Asks for the functions of an interface file to be served, of a server with the feature
    /// [`REGISTER`](crate::REGISTER). [`Event::Listing`] names them.
    pub fn register(&mut self, path: &str, text: &str) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let request = RegisterRequest {
            path: path.into(),
            text: text.into(),
        };
        message::append(&mut self.core.sender.control, Kind::Register, id, &request);
        Ok(id)
    }

    /// Asks what a call would take, of a server with the feature [`ESTIMATES`](crate::ESTIMATES).
    /// Nothing of it is sent but its scalars.
    pub fn estimate(&mut self, call: &Call) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Estimate, id, |out| call.encode(out));
        Ok(id)
    }
}

impl Core {
    /// What the server says of its functions.
    pub(super) fn about_functions(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Listing => Ok(Event::Listing(id, self.answered(kind, id, payload)?)),
            Kind::Interface => {
                let InterfaceMessage {
                    function,
                    text,
                    library,
                } = self.answered(kind, id, payload)?;
                Ok(Event::Interface {
                    request: id,
                    function,
                    text,
                    library,
                })
            }
            Kind::Estimated => Ok(Event::Estimated(id, self.answered(kind, id, payload)?)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

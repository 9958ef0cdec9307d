//! Requests about functions at the server's end: lists, interfaces, registration, estimates, and
//! the status of calls. It reads the requests and writes the answers. A request whose feature was
//! not agreed ends the connection.

use super::{Connection, Core, Event};
use crate::call::parse_call;
use crate::call_status::{AskCallMessage, CALL_STATUS, CallStatus};
use crate::functions::{
    DescribeRequest, ESTIMATES, Estimate, FunctionInterface, ListRequest, Listing, REGISTER,
    RegisterRequest,
};
use crate::message;
use crate::{CallId, Kind, ProtocolError};
use alloc::string::String;

impl Connection {
    /// Answers a list request.
    pub fn listing(&mut self, request: CallId, listing: &Listing) {
        message::append(
            &mut self.core.sender.control,
            Kind::Listing,
            request,
            listing,
        );
    }

    /// Answers a describe request with the canonical interface, the number for
    /// [`Call::function`](crate::Call::function), and the library.
    pub fn interface(
        &mut self,
        request: CallId,
        function: u64,
        text: String,
        library: Option<String>,
    ) {
        let message = FunctionInterface {
            function,
            text,
            library,
        };
        message::append(
            &mut self.core.sender.control,
            Kind::Interface,
            request,
            &message,
        );
    }

    /// Answers an estimate request.
    pub fn estimated(&mut self, request: CallId, estimate: &Estimate) {
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Estimated, request, estimate);
    }

    /// Answers a request for the status of a call.
    pub fn call_status(&mut self, request: CallId, status: &CallStatus) {
        let out = &mut self.core.sender.control;
        message::append(out, Kind::CallStatus, request, status);
    }
}

impl Core {
    /// Handles a request about functions.
    pub(super) fn about_functions(
        &self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::List => {
                let ListRequest { from } = message::parse(kind, payload)?;
                Ok(Event::List(id, from))
            }
            Kind::Describe => {
                let DescribeRequest { name } = message::parse(kind, payload)?;
                Ok(Event::Describe(id, name))
            }
            Kind::Estimate if self.has(ESTIMATES) => Ok(Event::Estimate(id, parse_call(payload)?)),
            Kind::AskCall if self.has(CALL_STATUS) => {
                let asked: AskCallMessage = message::parse(kind, payload)?;
                let name = asked.name().ok_or(ProtocolError::OutOfPlace(kind))?;
                Ok(Event::AskCall(id, name))
            }
            Kind::Register if self.has(REGISTER) => {
                let RegisterRequest { path, text } = message::parse(kind, payload)?;
                Ok(Event::Register(id, path, text))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

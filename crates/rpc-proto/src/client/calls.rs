//! The client's end of calls: opens a call, delivers its output, and passes callbacks and their
//! answers. `client::requests` has all requests without arguments in a data stream. A call has at
//! most one open callback, and a callback cannot arrive before all arguments are sent.

use super::{Connection, Core, Event, Opening, Request};
use crate::call::{Call, OUTPUT, OutputMessage};
use crate::callback::{CALLBACKS, Callback, CallbackAnswer};
use crate::frame::{BIG_ENDIAN, Header, append_control, append_flagged};
use crate::message;
use crate::{CallId, Kind, ProtocolError};
use alloc::vec::Vec;

impl Connection {
    /// Opens a call whose result stream will have `result_bytes` bytes.
    pub fn call(&mut self, call: &Call, result_bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes,
            calls_back: false,
        })?;
        let mut opening = Vec::new();
        append_control(&mut opening, Kind::Call, id, |out| call.encode(out));
        self.core.start(Opening {
            arrays: call.handles.iter().map(|(_, array)| *array).collect(),
            ..Opening::new(id, opening, call.data_bytes)
        });
        Ok(id)
    }

    /// Answers the callback of a call. Sends nothing if the call no longer waits for an answer.
    pub fn answer(&mut self, call: CallId, answer: &CallbackAnswer) {
        let Some(Request::Computing { calls_back, .. }) = self.core.requests.get_mut(&call) else {
            return;
        };
        if !core::mem::take(calls_back) {
            return;
        }
        let flags = if answer.big_endian { BIG_ENDIAN } else { 0 };
        let control = &mut self.core.sender.control;
        append_flagged(control, Kind::Answer, flags, call, |out| answer.encode(out));
    }
}

impl Core {
    /// Handles frames of a running call.
    pub(super) fn about_calls(
        &mut self,
        header: &Header,
        payload: &[u8],
    ) -> Result<Option<Event>, ProtocolError> {
        match header.kind {
            Kind::Output if self.features & OUTPUT != 0 => self.output(header.call, payload),
            Kind::Callback if self.features & CALLBACKS != 0 => self.callback(header, payload),
            kind => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Handles output of a function. Output of a call that was given up is discarded.
    fn output(&mut self, id: CallId, payload: &[u8]) -> Result<Option<Event>, ProtocolError> {
        let OutputMessage { data } = message::parse(Kind::Output, payload)?;
        match self.requests.get(&id) {
            Some(Request::Computing { .. }) => Ok(Some(Event::Output(id, data))),
            Some(Request::Cancelled(None)) => Ok(None),
            _ => Err(ProtocolError::OutOfPlace(Kind::Output)),
        }
    }

    fn callback(
        &mut self,
        header: &Header,
        payload: &[u8],
    ) -> Result<Option<Event>, ProtocolError> {
        let big_endian = header.flags & BIG_ENDIAN != 0;
        let callback = Callback::decode(payload, big_endian);
        let callback = message::parse_with(Kind::Callback, callback)?;
        let is_answered = self.calls_back(header.call)?;
        Ok(is_answered.then_some(Event::Callback(header.call, callback)))
    }

    /// Whether the callback needs an answer. A call that was given up needs none.
    fn calls_back(&mut self, id: CallId) -> Result<bool, ProtocolError> {
        let unsent = self.sender.has_stream(id);
        match self.requests.get_mut(&id) {
            Some(Request::Computing { calls_back, .. }) if !*calls_back && !unsent => {
                *calls_back = true;
                Ok(true)
            }
            Some(Request::Cancelled(None)) => Ok(false),
            _ => Err(ProtocolError::OutOfPlace(Kind::Callback)),
        }
    }
}

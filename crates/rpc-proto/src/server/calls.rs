//! The server's end of calls: accepts a call, sends output, and passes callbacks and their answers.
//! Whether a call may run is for the server to decide. A call has at most one open callback. An
//! answer that arrives after the end of its call is ignored.

use super::{Connection, Core, Event, State};
use crate::call::{OUTPUT, OutputMessage, parse_call};
use crate::callback::{CALLBACKS, Callback, CallbackAnswer};
use crate::file::FILES;
use crate::frame::{BIG_ENDIAN, Header, append_flagged};
use crate::message;
use crate::{CallId, Kind, Nanos, ProtocolError};
use alloc::vec::Vec;

impl Connection {
    /// Whether the client answers callbacks.
    pub fn answers_callbacks(&self) -> bool {
        self.core.features & CALLBACKS != 0
    }

    /// Whether the client's files can travel.
    pub fn moves_files(&self) -> bool {
        self.core.features & (FILES | CALLBACKS) == FILES | CALLBACKS
    }

    /// Whether the client takes output of functions.
    pub fn takes_output(&self) -> bool {
        self.core.features & OUTPUT != 0
    }

    /// Sends output of a running call's function. Ignores a call that does not run.
    pub fn print(&mut self, call: CallId, data: Vec<u8>) {
        if let Some(State::Running { .. }) = self.core.calls.get(&call) {
            let message = OutputMessage { data };
            message::append(&mut self.core.sender.control, Kind::Output, call, &message);
        }
    }

    /// Sends a callback of a running call, before all array data. There is one callback at a time;
    /// [`Event::Answer`] follows. Ignores a call that does not run.
    pub fn call_back(&mut self, call: CallId, callback: &Callback) {
        let Some(State::Running { calls_back, .. }) = self.core.calls.get_mut(&call) else {
            return;
        };
        *calls_back = true;
        let flags = if callback.big_endian { BIG_ENDIAN } else { 0 };
        let control = &mut self.core.sender.control;
        append_flagged(control, Kind::Callback, flags, call, |out| {
            callback.encode(out);
        });
    }
}

impl Core {
    /// Handles a call, or the answer to a callback.
    pub(super) fn about_calls(
        &mut self,
        header: &Header,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        match kind {
            Kind::Call => {
                let call = parse_call(payload)?;
                self.open(id, State::offered(call.data_bytes, now))?;
                Ok(Some(Event::Call(id, call)))
            }
            Kind::Answer if self.has(CALLBACKS) => {
                let big_endian = header.flags & BIG_ENDIAN != 0;
                let answer = CallbackAnswer::decode(payload, big_endian);
                let answer = message::parse_with(kind, answer)?;
                Ok(self.answer(id)?.then_some(Event::Answer(id, answer)))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Whether a call waits for the answer. An answer for a call that has ended is late.
    fn answer(&mut self, call: CallId) -> Result<bool, ProtocolError> {
        match self.calls.get_mut(&call) {
            Some(State::Running { calls_back, .. }) if *calls_back => {
                *calls_back = false;
                Ok(true)
            }
            Some(_) => Err(ProtocolError::OutOfPlace(Kind::Answer)),
            None => Ok(false),
        }
    }
}

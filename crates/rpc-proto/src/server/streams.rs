//! Data streams at the server's end: how they begin, and how requests end. The bytes themselves
//! pass between the socket and the memory of a call. Answers to a request that is no longer open
//! are not sent, and its data are marked to be discarded.

use super::{Connection, Core, Event, State};
use crate::call::{Made, ResultMessage, Times};
use crate::failure::{Failure, FailureKind};
use crate::frame::{Header, append_control};
use crate::message;
use crate::receiver::{Chunk, Stream};
use crate::sender::CREDIT;
use crate::{CallId, Kind, Nanos, ProtocolError};

impl Connection {
    /// Accepts an offered call. Returns whether it is ready at once because it has no data stream.
    pub fn accept(&mut self, call: CallId, now: Nanos) -> bool {
        let Some(state) = self.core.calls.get_mut(&call) else {
            return false;
        };
        let State::Offered {
            bytes,
            since,
            has_room,
        } = *state
        else {
            return false;
        };
        *state = State::Receiving {
            stream: Stream::new(bytes),
            since,
        };
        if !has_room && self.waits_for_grant(bytes) {
            append_control(&mut self.core.sender.control, Kind::Grant, call, |_| ());
        }
        self.core.stream_progress(call, now).is_some()
    }

    /// Whether the client waits with a data stream of this length until its request is accepted.
    /// The answer may then take any time.
    pub fn waits_for_grant(&self, bytes: u64) -> bool {
        self.core.features & CREDIT != 0 && self.core.sender.is_long(bytes)
    }

    /// Answers a fetch: sends the result stream of `result_bytes` bytes, then `times` with the time
    /// of the sending. Ignores a fetch that is no longer open.
    pub fn deliver(&mut self, request: CallId, result_bytes: u64, times: Times, now: Nanos) {
        if let Some(State::Running { .. }) = self.core.calls.get(&request) {
            self.send_result(request, result_bytes, times, now);
        }
    }

    /// Ends a computed call: sends the result stream of `result_bytes` bytes, then the times and
    /// `made`. The caller measures `exec`, in nanoseconds. Ignores a call that is no longer open.
    pub fn complete(
        &mut self,
        call: CallId,
        result_bytes: u64,
        (exec, made): (u64, Option<Made>),
        now: Nanos,
    ) {
        let Some(State::Running { received, send, .. }) = self.core.calls.get(&call) else {
            return;
        };
        let times = Times {
            send: *send,
            wait: now.saturating_sub(*received).saturating_sub(exec),
            exec,
            recv: 0,
            made,
        };
        self.send_result(call, result_bytes, times, now);
    }

    fn send_result(&mut self, call: CallId, result_bytes: u64, times: Times, now: Nanos) {
        let sending = State::Sending {
            since: now,
            times,
            bytes: result_bytes,
        };
        self.core.calls.insert(call, sending);
        let result = ResultMessage {
            data_bytes: result_bytes,
        };
        message::append(&mut self.core.sender.control, Kind::Result, call, &result);
        self.core.sender.start_stream(call, result_bytes);
        if result_bytes == 0 {
            self.core.done(call, now);
        }
    }

    /// Fails a request of any kind. Data of the call that still arrive must be discarded. With a
    /// submission, the request for its outcome fails.
    pub fn fail(&mut self, request: CallId, failure: &Failure) {
        if let Some(fetch) = self.core.fetches.remove(&request) {
            self.fail(fetch, failure);
        }
        let core = &mut self.core;
        match core.calls.remove(&request) {
            Some(State::Offered { bytes, .. }) if bytes > 0 => {
                core.calls
                    .insert(request, State::Discarding(Stream::new(bytes)));
            }
            Some(State::Receiving { stream, .. }) => {
                core.calls.insert(request, State::Discarding(stream));
                if let Some(chunk) = self.receiver.incoming.as_mut() {
                    chunk.discard |= chunk.call == request;
                }
            }
            _ => {}
        }
        core.sender.drop_stream(request);
        message::append(&mut core.sender.control, Kind::Failure, request, failure);
    }
}

impl Core {
    pub(super) fn cancel(&mut self, call: CallId) -> Option<Event> {
        match self.calls.remove(&call)? {
            State::Discarding(_) => None,
            // It still gets its answer.
            State::Asking => {
                self.calls.insert(call, State::Asking);
                None
            }
            _ => {
                self.sender.drop_stream(call);
                let failure = Failure::new(FailureKind::Cancelled, "cancelled by the client");
                message::append(&mut self.sender.control, Kind::Failure, call, &failure);
                self.give_up_fetch(call, &failure);
                Some(Event::Cancelled(call))
            }
        }
    }

    /// Ends the request for the outcome of a submission. Either of the two was given up.
    fn give_up_fetch(&mut self, call: CallId, failure: &Failure) {
        self.fetches.retain(|_, fetch| *fetch != call);
        if let Some(fetch) = self.fetches.remove(&call) {
            self.calls.remove(&fetch);
            message::append(&mut self.sender.control, Kind::Failure, fetch, failure);
        }
    }

    pub(super) fn data(&mut self, header: &Header) -> Result<Chunk, ProtocolError> {
        match self.calls.get_mut(&header.call) {
            Some(State::Receiving { stream, .. }) => stream.admit(header, false),
            Some(State::Discarding(stream)) => stream.admit(header, true),
            _ => Err(ProtocolError::StrayData),
        }
    }

    /// Handles a whole chunk of the call's stream.
    pub(super) fn stream_progress(&mut self, call: CallId, now: Nanos) -> Option<Event> {
        match self.calls.get_mut(&call)? {
            State::Receiving { stream, .. } | State::Discarding(stream)
                if !stream.is_complete() =>
            {
                None
            }
            state @ State::Receiving { .. } => {
                let State::Receiving { since, stream } = *state else {
                    return None;
                };
                let send = now.saturating_sub(since);
                self.moved.up = Some((stream.bytes(), send));
                *state = State::Running {
                    received: now,
                    send,
                    calls_back: false,
                };
                Some(Event::Ready(call))
            }
            State::Discarding(_) => {
                self.calls.remove(&call);
                None
            }
            _ => None,
        }
    }

    pub(super) fn done(&mut self, call: CallId, now: Nanos) {
        let state = self.calls.remove(&call);
        if let Some(State::Sending {
            since,
            mut times,
            bytes,
        }) = state
        {
            times.recv = now.saturating_sub(since);
            self.moved.down = Some((bytes, times.recv));
            message::append(&mut self.sender.control, Kind::Done, call, &times);
        }
    }
}

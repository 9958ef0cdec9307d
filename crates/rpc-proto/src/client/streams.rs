//! Data streams of the client's requests: how they begin, and how their requests end. The bytes
//! themselves pass between the caller's arrays and the socket. A call whose arguments are not all
//! sent cannot have a result, and a stream that was given up is withdrawn.

use super::{Answer, Connection, Core, Event, Opening, Request};
use crate::call::ResultMessage;
use crate::failure::Failure;
use crate::frame::{Header, append_control};
use crate::handles::{ArrayPart, Put};
use crate::jobs::SubmitRequest;
use crate::message;
use crate::receiver::{Chunk, Stream};
use crate::sender::CREDIT;
use crate::{CallId, HandleId, Kind, ProtocolError};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

impl Connection {
    /// Submits a durable call to a server with the feature [`JOBS`](crate::JOBS).
    pub fn submit(&mut self, submission: &SubmitRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut opening = Vec::new();
        append_control(&mut opening, Kind::Submit, id, |out| submission.encode(out));
        let bytes = submission.call.data_bytes;
        self.core.start(Opening::new(id, opening, bytes));
        Ok(id)
    }

    /// Submits a durable call to a server with the feature [`OUTCOMES`](crate::OUTCOMES), and asks
    /// with it for the outcome, a stream of `result_bytes` bytes. Returns both requests. The second
    /// one ends like a call. It is not made if the submission must wait until others have ended.
    pub fn submit_and_fetch(
        &mut self,
        submission: &SubmitRequest,
        result_bytes: u64,
    ) -> Result<(CallId, Option<CallId>), ProtocolError> {
        if !self.core.opens_two_at_once() {
            return Ok((self.submit(submission)?, None));
        }
        let fetch = self.open(Request::Computing {
            result_bytes,
            calls_back: false,
        })?;
        let submission = SubmitRequest {
            fetch: Some(fetch),
            ..submission.clone()
        };
        Ok((self.submit(&submission)?, Some(fetch)))
    }

    /// Stores an array at a server with the feature [`HANDLES`](crate::HANDLES).
    pub fn put(&mut self, put: &Put) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut opening = Vec::new();
        message::append(&mut opening, Kind::Put, id, put);
        self.core.start(Opening::new(id, opening, put.data_bytes));
        Ok(id)
    }

    /// Fills a part of a stored array at a server with the feature [`PARTS`](crate::PARTS).
    pub fn put_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut frame = Vec::new();
        message::append(&mut frame, Kind::PutPart, id, part);
        self.core.start(Opening {
            has_room: true,
            arrays: vec![part.id],
            ..Opening::new(id, frame, part.bytes)
        });
        Ok(id)
    }

    /// Gives up a call. List and describe requests still get their answers. The end of the call is
    /// still reported, as [`Answer::Done`] or [`Event::Failed`], and result bytes that arrive
    /// before it are marked to be discarded.
    ///
    /// Returns `false` if the call was not opened yet. It has then ended, and nothing is reported.
    pub fn cancel(&mut self, call: CallId) -> bool {
        let Some(request) = self.core.requests.get_mut(&call) else {
            return true;
        };
        let stream = match request {
            Request::Receiving(stream) => Some(*stream),
            Request::Computing { .. } | Request::Submitting => None,
            Request::Query | Request::Object | Request::Memory { .. } | Request::Cancelled(_) => {
                return true;
            }
        };
        *request = Request::Cancelled(stream);
        if let Some(chunk) = self
            .receiver
            .incoming
            .as_mut()
            .filter(|chunk| chunk.call == call)
        {
            chunk.discard = true;
        }
        if self.core.forget_unopened(call) {
            return false;
        }
        self.core.sender.drop_stream(call);
        append_control(&mut self.core.sender.control, Kind::Cancel, call, |_| ());
        true
    }

    /// Whether the server cannot know the request yet: it waits until others have ended, or behind
    /// the data of others.
    pub fn is_unopened(&self, call: CallId) -> bool {
        let mut waiting = self.core.waiting.iter();
        waiting.any(|opening| opening.call == call) || self.core.sender.is_unopened(call)
    }
}

impl Core {
    /// Handles frames of a data stream, and the end of a request.
    pub(super) fn about_streams(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Option<Event>, ProtocolError> {
        match kind {
            Kind::Grant if self.grants => self.granted(id).map(|()| None),
            Kind::Result => self
                .result(id, message::parse(kind, payload)?)
                .map(|()| None),
            Kind::Done => {
                let times = message::parse(kind, payload)?;
                self.done(id)?;
                Ok(Some(Event::Answered(id, Answer::Done(times))))
            }
            Kind::Failure => {
                let failure: Failure = message::parse(kind, payload)?;
                Ok(self.failed(id).then_some(Event::Failed(id, failure)))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Opens a request with a data stream, now or when others have ended.
    pub(super) fn start(&mut self, opening: Opening) {
        self.waiting.push_back(opening);
        self.open_next();
    }

    /// Opens a request without a data stream. It waits only if the server allows no more, or if it
    /// cannot have accepted a request before it that uses the same array.
    pub(super) fn start_plain(&mut self, call: CallId, frame: Vec<u8>, array: Option<HandleId>) {
        let mut frame = frame;
        // The request is one of them.
        let open = self.requests.len() - self.waiting.len();
        let is_used = array.is_some_and(|array| {
            let mut waiting = self.waiting.iter();
            waiting.any(|one| one.arrays.contains(&array)) || self.is_unsent(array)
        });
        match open > self.most || is_used {
            false => self.sender.control.append(&mut frame),
            true => self.waiting.push_back(Opening {
                is_plain: true,
                arrays: Vec::from_iter(array),
                ..Opening::new(call, frame, 0)
            }),
        }
    }

    /// Whether the server cannot have accepted a call that uses this array.
    fn is_unsent(&self, array: HandleId) -> bool {
        let mut unsent = self.unsent.iter();
        unsent.any(|(call, arrays)| arrays.contains(&array) && self.sender.keeps_back(*call))
    }

    /// Opens as many requests as the server allows. Opens none before the client knows whether the
    /// server grants streams. A request stays behind all requests before it that use one of its
    /// arrays, until the server can have accepted them; others go past.
    pub(super) fn open_next(&mut self) {
        if self.waiting.is_empty() || (self.features & CREDIT != 0 && !self.connected) {
            return;
        }
        let sender = &self.sender;
        self.unsent.retain(|(call, _)| sender.keeps_back(*call));
        let unsent = self.unsent.iter().flat_map(|(_, arrays)| arrays);
        let mut kept: BTreeSet<HandleId> = unsent.copied().collect();
        let mut place = 0;
        while let Some(next) = self.waiting.get(place) {
            let most = match next.is_plain {
                true => self.most,
                false => self.most_open,
            };
            if self.requests.len() - self.waiting.len() >= most {
                return;
            }
            if next.arrays.iter().any(|array| kept.contains(array)) {
                kept.extend(&next.arrays);
                place += 1;
                continue;
            }
            let Some(next) = self.waiting.remove(place) else {
                return;
            };
            let granted = next.has_room || !self.grants;
            let (call, arrays) = (next.call, next.arrays);
            self.sender
                .start_call(call, next.frame, next.total, granted);
            if !arrays.is_empty() && self.sender.keeps_back(call) {
                kept.extend(&arrays);
                self.unsent.push((call, arrays));
            }
        }
    }

    /// Whether two requests can be opened now, one of them with a data stream.
    fn opens_two_at_once(&self) -> bool {
        let has_room = self.requests.len() + 2 <= self.most_open;
        self.connected && self.waiting.is_empty() && has_room
    }

    /// The place of a request among those that wait to be opened.
    pub(super) fn waiting_at(&self, call: CallId) -> Option<usize> {
        // They wait in the order of their numbers.
        self.waiting
            .binary_search_by_key(&call, |opening| opening.call)
            .ok()
    }

    /// Forgets a request that was given up before it was opened. Returns `false` if it is open.
    fn forget_unopened(&mut self, call: CallId) -> bool {
        let Some(place) = self.waiting_at(call) else {
            return false;
        };
        self.waiting.remove(place);
        self.requests.remove(&call);
        true
    }

    /// Handles a grant for a data stream. Its call may have been given up.
    fn granted(&mut self, id: CallId) -> Result<(), ProtocolError> {
        let known = match self.requests.get(&id) {
            Some(Request::Computing { .. } | Request::Submitting) => self.sender.grant(id),
            Some(Request::Cancelled(None)) | None => true,
            Some(_) => false,
        };
        match known {
            true => Ok(()),
            false => Err(ProtocolError::OutOfPlace(Kind::Grant)),
        }
    }

    fn result(&mut self, id: CallId, message: ResultMessage) -> Result<(), ProtocolError> {
        // A call whose arguments are not all sent cannot have a result.
        if self.sender.has_stream(id) {
            return Err(ProtocolError::OutOfPlace(Kind::Result));
        }
        let stream = Stream::new(message.data_bytes);
        match self.requests.get_mut(&id) {
            Some(request @ Request::Computing { .. }) => {
                let announced = message.data_bytes;
                let Request::Computing {
                    result_bytes: expected,
                    calls_back: false,
                } = *request
                else {
                    return Err(ProtocolError::OutOfPlace(Kind::Result));
                };
                if expected != announced {
                    return Err(ProtocolError::ResultLength {
                        expected,
                        announced,
                    });
                }
                *request = Request::Receiving(stream);
                Ok(())
            }
            Some(Request::Cancelled(slot @ None)) => {
                *slot = Some(stream);
                Ok(())
            }
            _ => Err(ProtocolError::OutOfPlace(Kind::Result)),
        }
    }

    fn done(&mut self, id: CallId) -> Result<(), ProtocolError> {
        match self.requests.remove(&id) {
            Some(Request::Receiving(stream) | Request::Cancelled(Some(stream)))
                if stream.is_complete() =>
            {
                Ok(())
            }
            _ => Err(ProtocolError::OutOfPlace(Kind::Done)),
        }
    }

    /// Closes a failed request. The unsent part of its data stream is withdrawn. The server cannot
    /// know a request that waits to be opened.
    fn failed(&mut self, id: CallId) -> bool {
        if self.waiting_at(id).is_some() {
            return false;
        }
        let known = self.requests.remove(&id).is_some();
        if self.sender.drop_stream(id) {
            append_control(&mut self.sender.control, Kind::Cancel, id, |_| ());
        }
        known
    }

    pub(super) fn data(&mut self, header: &Header) -> Result<Chunk, ProtocolError> {
        match self.requests.get_mut(&header.call) {
            Some(Request::Receiving(stream)) => stream.admit(header, false),
            Some(Request::Cancelled(Some(stream))) => stream.admit(header, true),
            _ => Err(ProtocolError::StrayData),
        }
    }
}

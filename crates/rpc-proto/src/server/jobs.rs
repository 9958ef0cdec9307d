//! Requests about durable calls at the server's end. It turns them into events and writes the
//! answers; the server has the calls. An answer to a submission that the client gave up is not
//! sent.

use super::{Connection, Core, Event, State};
use crate::ids::JobId;
use crate::jobs::{
    CancelJobMessage, DurableDescription, DurablePage, JobMessage, ListJobsMessage, OUTCOMES,
    SubmitRequest,
};
use crate::message;
use crate::{CallId, Kind, Nanos, ProtocolError};

impl Connection {
    /// Answers a submission after the call is recorded. Ignores a request that was given up
    /// meanwhile. Returns the request for the outcome that came with the submission, if there is
    /// one: handle it as [`Event::Fetch`] of this call.
    pub fn submitted(&mut self, call: CallId, id: JobId) -> Option<CallId> {
        let Some(State::Running { .. }) = self.core.calls.get(&call) else {
            return None;
        };
        self.core.calls.remove(&call);
        let control = &mut self.core.sender.control;
        message::append(control, Kind::Submitted, call, &JobMessage { id });
        self.core.fetches.remove(&call)
    }

    /// Answers a question about a durable call.
    pub fn job(&mut self, request: CallId, job: &DurableDescription) {
        self.core.calls.remove(&request);
        job.append(&mut self.core.sender.control, request);
    }

    /// Answers a list of durable calls.
    pub fn jobs(&mut self, request: CallId, page: &DurablePage) {
        message::append(&mut self.core.sender.control, Kind::Jobs, request, page);
    }
}

impl Core {
    /// Handles a request about durable calls.
    pub(super) fn about_jobs(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Submit => {
                let submission = message::parse_with(kind, SubmitRequest::decode(payload))?;
                self.open(id, State::offered(submission.call.data_bytes, now))?;
                if let Some(fetch) = submission.fetch {
                    self.open_fetch(id, fetch, now)?;
                }
                Ok(Event::Submit(id, submission))
            }
            Kind::Fetch => {
                let JobMessage { id: job } = message::parse(kind, payload)?;
                self.open(id, State::waiting(now))?;
                Ok(Event::Fetch(id, job))
            }
            Kind::CancelJob => {
                let CancelJobMessage { id: job, forget } = message::parse(kind, payload)?;
                self.open(id, State::Asking)?;
                Ok(Event::CancelJob(id, job, forget))
            }
            Kind::AskJob => {
                let JobMessage { id: job } = message::parse(kind, payload)?;
                Ok(Event::AskJob(id, job))
            }
            Kind::ListJobs => {
                let ListJobsMessage { after } = message::parse(kind, payload)?;
                Ok(Event::ListJobs(id, after))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Opens the request for the outcome of a call that is being submitted.
    fn open_fetch(&mut self, call: CallId, fetch: CallId, now: Nanos) -> Result<(), ProtocolError> {
        if !self.has(OUTCOMES) || fetch == 0 || self.calls.contains_key(&fetch) {
            return Err(ProtocolError::OutOfPlace(Kind::Submit));
        }
        self.open(fetch, State::waiting(now))?;
        self.fetches.insert(call, fetch);
        Ok(())
    }
}

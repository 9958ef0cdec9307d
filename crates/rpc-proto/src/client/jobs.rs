//! Submitted calls, which outlive the connection.

use super::{Connection, Core, Event, Request};
use crate::frame::append_control;
use crate::ids::JobId;
use crate::jobs::{CancelJobMessage, JobDescription, JobMessage, ListJobsMessage, Submission};
use crate::message;
use crate::{CallId, Kind, ProtocolError};
use alloc::vec::Vec;

impl Connection {
    /// Submits a call, to a server with the feature [`JOBS`](crate::JOBS).
    pub fn submit(&mut self, submission: &Submission) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut opening = Vec::new();
        append_control(&mut opening, Kind::Submit, id, |out| submission.encode(out));
        let bytes = submission.call.data_bytes;
        self.core.start(id, opening, bytes, false);
        Ok(id)
    }

    /// Asks about a submitted call.
    pub fn ask_job(&mut self, job: JobId) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::AskJob, id, &JobMessage { id: job });
        Ok(id)
    }

    /// Asks for the results of a submitted call, whose stream will have `result_bytes` bytes. Its
    /// end is told as that of a call.
    pub fn fetch(&mut self, job: JobId, result_bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes,
            calls_back: false,
        })?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Fetch, id, &JobMessage { id: job });
        Ok(id)
    }

    /// Ends a submitted call; with `forget`, the server keeps nothing of it.
    pub fn cancel_job(&mut self, job: JobId, forget: bool) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let message = CancelJobMessage { id: job, forget };
        let out = &mut self.core.sender.control;
        message::append(out, Kind::CancelJob, id, &message);
        Ok(id)
    }

    /// Asks for the submitted calls with numbers greater than `after`.
    pub fn list_jobs(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::ListJobs, id, &ListJobsMessage { after });
        Ok(id)
    }
}

impl Core {
    /// What the server says of submitted calls.
    pub(super) fn about_jobs(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Submitted => {
                let JobMessage { id: job } = message::parse(kind, payload)?;
                self.close_submission(id)?;
                Ok(Event::Submitted(id, job))
            }
            Kind::Job => {
                self.close_query(id, kind)?;
                Ok(Event::Job(id, JobDescription::parse(payload)?))
            }
            Kind::Jobs => Ok(Event::Jobs(id, self.answered(kind, id, payload)?)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// The server keeps a submitted call, which it has whole: it cannot keep another.
    fn close_submission(&mut self, id: CallId) -> Result<(), ProtocolError> {
        if self.sender.has_stream(id) {
            return Err(ProtocolError::OutOfPlace(Kind::Submitted));
        }
        match self.requests.remove(&id) {
            Some(Request::Submitting | Request::Cancelled(None)) => Ok(()),
            _ => Err(ProtocolError::OutOfPlace(Kind::Submitted)),
        }
    }
}

//! Requests without a data stream of the client, and the answers to requests.

use super::{Answer, Connection, Core, Event, Request};
use crate::call::Call;
use crate::frame::append_control;
use crate::functions::{DescribeRequest, ListRequest, RegisterRequest};
use crate::handles::{ArrayPart, HANDLES, HandleMessage, ListHandlesMessage, Pull};
use crate::hello::DIRECTORY;
use crate::ids::{HandleId, JobId};
use crate::jobs::{CancelJobMessage, DurableDescription, JOBS, JobMessage, ListJobsMessage};
use crate::kind::Subject;
use crate::memory::MemoryMessage;
use crate::message;
use crate::names::{AskNameMessage, DataName, ListNamesMessage, NAMES, Name};
use crate::objects::{KEPT_OBJECTS, NewRequest, ObjectRequest};
use crate::operation::{DrainingMessage, StatusMessage};
use crate::reservations::{RESERVATIONS, ReservationRequest};
use crate::{CallId, Kind, ProtocolError};
use alloc::boxed::Box;
use minicbor::Encode;

impl Connection {
    /// A request that a message says all of.
    fn request(
        &mut self,
        request: Request,
        kind: Kind,
        message: &impl Encode<()>,
    ) -> Result<CallId, ProtocolError> {
        let id = self.open(request)?;
        message::append(&mut self.core.sender.control, kind, id, message);
        Ok(id)
    }

    fn ask(&mut self, kind: Kind, message: &impl Encode<()>) -> Result<CallId, ProtocolError> {
        self.request(Request::Query, kind, message)
    }

    /// A request whose answer is a data stream; its end is told as that of a call.
    fn ask_for_data(
        &mut self,
        kind: Kind,
        message: &impl Encode<()>,
        result_bytes: u64,
    ) -> Result<CallId, ProtocolError> {
        let request = Request::Computing {
            result_bytes,
            calls_back: false,
        };
        self.request(request, kind, message)
    }

    /// Asks for the functions served, from index `from` on.
    pub fn list(&mut self, from: u32) -> Result<CallId, ProtocolError> {
        self.ask(Kind::List, &ListRequest { from })
    }

    /// Asks for the interface of `name`.
    pub fn describe(&mut self, name: &str) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Describe, &DescribeRequest { name: name.into() })
    }

    /// Asks for the functions of an interface file to be served, of a server with the feature
    /// [`REGISTER`](crate::REGISTER). [`Answer::Listing`] names them.
    pub fn register(&mut self, path: &str, text: &str) -> Result<CallId, ProtocolError> {
        let (path, text) = (path.into(), text.into());
        self.ask(Kind::Register, &RegisterRequest { path, text })
    }

    /// Asks what a call would take, of a server with the feature [`ESTIMATES`](crate::ESTIMATES).
    /// Nothing of it is sent but its scalars.
    pub fn estimate(&mut self, call: &Call) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Estimate, id, |out| call.encode(out));
        Ok(id)
    }

    /// Asks how a server with the feature [`OPERATION`](crate::OPERATION) stands.
    pub fn status(&mut self) -> Result<CallId, ProtocolError> {
        self.ask_plainly(Kind::Status)
    }

    /// Asks a server with the feature [`OPERATION`](crate::OPERATION) to take no more calls and to
    /// end.
    pub fn drain(&mut self) -> Result<CallId, ProtocolError> {
        self.ask_plainly(Kind::Drain)
    }

    /// A request that says nothing more.
    fn ask_plainly(&mut self, kind: Kind) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        append_control(&mut self.core.sender.control, kind, id, |_| {});
        Ok(id)
    }

    /// Asks for shared memory of `bytes` bytes, where both sides have the feature.
    pub fn share(&mut self, bytes: u64) -> Result<CallId, ProtocolError> {
        self.request(
            Request::Memory { bytes },
            Kind::Share,
            &MemoryMessage { bytes },
        )
    }

    /// Gives shared memory back. Calls that use it go on.
    pub fn unshare(&mut self, memory: CallId) {
        append_control(&mut self.core.sender.control, Kind::Unshare, memory, |_| ());
    }

    /// Asks for an object of a class, of a server with the feature [`OBJECTS`](crate::OBJECTS). The
    /// number of the request is that of the object.
    pub fn create(&mut self, class: &str) -> Result<CallId, ProtocolError> {
        let class = class.into();
        self.request(Request::Object, Kind::New, &NewRequest { class })
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

    /// Asks about a durable call.
    pub fn ask_job(&mut self, job: JobId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskJob, &JobMessage { id: job })
    }

    /// Asks for the results of a durable call, whose stream will have `result_bytes` bytes. Its
    /// end is told as that of a call.
    pub fn fetch(&mut self, job: JobId, result_bytes: u64) -> Result<CallId, ProtocolError> {
        self.ask_for_data(Kind::Fetch, &JobMessage { id: job }, result_bytes)
    }

    /// Ends a durable call; with `forget`, the server keeps nothing of it.
    pub fn cancel_job(&mut self, job: JobId, forget: bool) -> Result<CallId, ProtocolError> {
        self.ask(Kind::CancelJob, &CancelJobMessage { id: job, forget })
    }

    /// Asks for the durable calls with numbers greater than `after`.
    pub fn list_jobs(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        self.ask(Kind::ListJobs, &ListJobsMessage { after })
    }

    /// Asks for a part of an array at the server. Its end is told as that of a call.
    pub fn get_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        self.ask_for_data(Kind::GetPart, part, part.bytes)
    }

    /// Asks for an array of `bytes` bytes at the server. Its end is told as that of a call.
    pub fn get(&mut self, handle: HandleId, bytes: u64) -> Result<CallId, ProtocolError> {
        self.ask_for_data(Kind::Get, &HandleMessage { id: handle }, bytes)
    }

    /// Asks about an array at the server.
    pub fn ask_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskHandle, &HandleMessage { id: handle })
    }

    /// Gives an array at the server up.
    pub fn drop_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Drop, &HandleMessage { id: handle })
    }

    /// Asks a server with the feature [`LOANS`](crate::LOANS) for a name of an array that another
    /// server may read it by, once.
    pub fn lend(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Lend, &HandleMessage { id: handle })
    }

    /// Has a server with the feature [`LOANS`](crate::LOANS) read an array from another.
    pub fn pull(&mut self, pull: &Pull) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Pull, pull)
    }

    /// Asks for the arrays at the server with numbers above `after`.
    pub fn list_handles(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        self.ask(Kind::ListHandles, &ListHandlesMessage { after })
    }

    /// Gives an array a name, at a server with the feature [`NAMES`].
    pub fn name(&mut self, name: &Name) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Name, name)
    }

    /// Asks a server with the feature [`NAMES`] for data by name.
    pub fn ask_name(&mut self, name: &DataName) -> Result<CallId, ProtocolError> {
        let name = name.clone();
        self.ask(Kind::AskName, &AskNameMessage { name })
    }

    /// Asks a server with the feature [`NAMES`] for the data whose names come after this one.
    pub fn list_names(&mut self, after: Option<&DataName>) -> Result<CallId, ProtocolError> {
        let after = after.cloned();
        self.ask(Kind::ListNames, &ListNamesMessage { after })
    }

    /// Asks about reservations, at a server with the feature [`RESERVATIONS`].
    pub fn reservations(&mut self, asked: ReservationRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        asked.append(&mut self.core.sender.control, id);
        Ok(id)
    }

    /// Asks the directory of a metaserver, which has the feature [`DIRECTORY`], with a message of
    /// this kind, which is not read here.
    pub fn ask_directory(&mut self, kind: Kind, message: &[u8]) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, kind, id, |out| out.extend_from_slice(message));
        Ok(id)
    }

    /// Tells the directory of a metaserver what became of a call; nothing answers.
    pub fn observe(&mut self, message: &[u8]) {
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Observe, 0, |out| out.extend_from_slice(message));
    }
}

impl Core {
    /// The answer to a request, which is over with it.
    pub(super) fn answered(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        let needed = needed_for(kind);
        if self.features & needed != needed || !self.is_due(kind, id) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        let answer = match kind {
            Kind::Listing => Answer::Listing(message::parse(kind, payload)?),
            Kind::Interface => Answer::Interface(message::parse(kind, payload)?),
            Kind::Estimated => Answer::Estimated(message::parse(kind, payload)?),
            Kind::StatusText => {
                let StatusMessage { text } = message::parse(kind, payload)?;
                Answer::StatusText(text)
            }
            Kind::Draining => {
                let DrainingMessage { calls } = message::parse(kind, payload)?;
                Answer::Draining(calls)
            }
            Kind::Noted | Kind::Found | Kind::Chosen | Kind::DataFound | Kind::DataListed => {
                Answer::Directory(kind, payload.to_vec())
            }
            Kind::Shared => match (message::parse(kind, payload)?, self.requests.get(&id)) {
                (MemoryMessage { bytes }, Some(Request::Memory { bytes: asked }))
                    if bytes >= *asked =>
                {
                    Answer::Shared(bytes)
                }
                _ => return Err(ProtocolError::OutOfPlace(kind)),
            },
            Kind::Submitted => {
                let JobMessage { id } = message::parse(kind, payload)?;
                Answer::Submitted(id)
            }
            Kind::Job => Answer::Job(Box::new(DurableDescription::parse(payload)?)),
            Kind::Jobs => Answer::Jobs(message::parse(kind, payload)?),
            Kind::Handle => Answer::Handle(message::parse(kind, payload)?),
            Kind::Handles => Answer::Handles(message::parse(kind, payload)?),
            Kind::Named => Answer::Named(message::parse(kind, payload)?),
            Kind::Names => Answer::Names(message::parse(kind, payload)?),
            Kind::Created => Answer::Created,
            Kind::Objects => Answer::Objects(message::parse(kind, payload)?),
            Kind::Reservations => Answer::Reservations(message::parse(kind, payload)?),
            _ => return Err(ProtocolError::OutOfPlace(kind)),
        };
        self.requests.remove(&id);
        Ok(Event::Answered(id, answer))
    }

    /// Whether the request is one that is answered so. What is kept, the server has whole.
    fn is_due(&self, kind: Kind, id: CallId) -> bool {
        match (kind, self.requests.get(&id)) {
            (
                Kind::Submitted | Kind::Handle,
                Some(Request::Submitting | Request::Cancelled(None)),
            ) => !self.sender.has_stream(id),
            (Kind::Created, Some(Request::Object)) => true,
            (Kind::Shared, Some(Request::Memory { .. })) => true,
            (Kind::Submitted | Kind::Created | Kind::Shared, _) => false,
            (_, request) => matches!(request, Some(Request::Query)),
        }
    }
}

/// The features without which no such answer comes.
fn needed_for(kind: Kind) -> u64 {
    match (kind.subject(), kind) {
        (Subject::Objects, Kind::Objects) => KEPT_OBJECTS,
        (Subject::Jobs, _) => JOBS,
        (Subject::Handles, _) => HANDLES,
        (Subject::Names, _) => NAMES,
        (Subject::Directory, Kind::DataFound | Kind::DataListed) => DIRECTORY | NAMES,
        (Subject::Directory, _) => DIRECTORY,
        (Subject::Reservations, _) => RESERVATIONS,
        _ => 0,
    }
}

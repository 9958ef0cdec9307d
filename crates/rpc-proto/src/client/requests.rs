//! The client's requests that send no data stream, and the answers to all requests. It writes and
//! reads the messages; it does not wait for an answer. An answer of a kind that the request does
//! not expect ends the connection.

use super::{Answer, Connection, Core, Event, Request};
use crate::call::Call;
use crate::call_status::{AskCallMessage, CallName};
use crate::frame::append_control;
use crate::functions::{DescribeRequest, ListRequest, RegisterRequest};
use crate::handles::{ArrayPart, HANDLES, HandleMessage, ListHandlesMessage, Pull, WRITES, Write};
use crate::hello::DIRECTORY;
use crate::ids::{HandleId, JobId};
use crate::jobs::{CancelJobMessage, DurableDescription, JOBS, JobMessage, ListJobsMessage};
use crate::kind::Subject;
use crate::memory::MemoryMessage;
use crate::message;
use crate::names::{AskNameMessage, DataName, ListNamesMessage, NAMES, Name};
use crate::objects::{KEPT_OBJECTS, NewRequest, ObjectRequest};
use crate::operation::{AskSnapshot, DrainingMessage, StatusMessage};
use crate::reservations::{RESERVATIONS, ReservationRequest};
use crate::{CallId, Kind, ProtocolError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use minicbor::Encode;

impl Connection {
    /// A request that is complete in one message.
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

    /// A request that the server counts as it counts calls, or that must not overtake calls that
    /// use an array.
    fn in_turn(
        &mut self,
        request: Request,
        kind: Kind,
        message: &impl Encode<()>,
        array: Option<HandleId>,
    ) -> Result<CallId, ProtocolError> {
        let id = self.open(request)?;
        let mut frame = Vec::new();
        message::append(&mut frame, kind, id, message);
        self.core.start_plain(id, frame, array);
        Ok(id)
    }

    /// A request whose answer is a data stream. It ends like a call.
    fn ask_for_data(
        &mut self,
        kind: Kind,
        message: &impl Encode<()>,
        result_bytes: u64,
        array: Option<HandleId>,
    ) -> Result<CallId, ProtocolError> {
        let request = Request::Computing {
            result_bytes,
            calls_back: false,
        };
        self.in_turn(request, kind, message, array)
    }

    /// Asks for the functions served, from index `from` on.
    pub fn list(&mut self, from: u32) -> Result<CallId, ProtocolError> {
        self.ask(Kind::List, &ListRequest { from })
    }

    /// Asks for the interface of `name`.
    pub fn describe(&mut self, name: &str) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Describe, &DescribeRequest { name: name.into() })
    }

    /// Asks a server with the feature [`REGISTER`](crate::REGISTER) to serve the functions of an
    /// interface file. [`Answer::Listing`] names them.
    pub fn register(&mut self, path: &str, text: &str) -> Result<CallId, ProtocolError> {
        let (path, text) = (path.into(), text.into());
        self.ask(Kind::Register, &RegisterRequest { path, text })
    }

    /// Asks a server with the feature [`ESTIMATES`](crate::ESTIMATES) for the estimate of a call.
    /// Only the scalars of the call are sent.
    pub fn estimate(&mut self, call: &Call) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Estimate, id, |out| call.encode(out));
        Ok(id)
    }

    /// Asks a server with the feature [`OPERATION`](crate::OPERATION) for its status.
    pub fn status(&mut self) -> Result<CallId, ProtocolError> {
        self.ask_plainly(Kind::Status)
    }

    /// Asks a server with the feature [`SNAPSHOTS`](crate::SNAPSHOTS) for a snapshot.
    pub fn ask_snapshot(&mut self, asked: &AskSnapshot) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskSnapshot, asked)
    }

    /// Asks a server with the feature [`OPERATION`](crate::OPERATION) to drain: to take no more
    /// calls and to end.
    pub fn drain(&mut self) -> Result<CallId, ProtocolError> {
        self.ask_plainly(Kind::Drain)
    }

    /// A request without further contents.
    fn ask_plainly(&mut self, kind: Kind) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        append_control(&mut self.core.sender.control, kind, id, |_| {});
        Ok(id)
    }

    /// Asks for shared memory of `bytes` bytes, if both sides have the feature.
    pub fn share(&mut self, bytes: u64) -> Result<CallId, ProtocolError> {
        self.request(
            Request::Memory { bytes },
            Kind::Share,
            &MemoryMessage { bytes },
        )
    }

    /// Gives shared memory back. Calls that use it continue.
    pub fn unshare(&mut self, memory: CallId) {
        append_control(&mut self.core.sender.control, Kind::Unshare, memory, |_| ());
    }

    /// Asks a server with the feature [`OBJECTS`](crate::OBJECTS) for an object of a class. The
    /// number of the request names the object.
    pub fn create(&mut self, class: &str) -> Result<CallId, ProtocolError> {
        let class = class.into();
        self.request(Request::Object, Kind::New, &NewRequest { class })
    }

    /// Destroys an object. Later calls of its methods fail.
    pub fn delete(&mut self, object: CallId) {
        append_control(&mut self.core.sender.control, Kind::Delete, object, |_| ());
    }

    /// Asks a server with the feature [`KEPT_OBJECTS`] about persistent objects.
    pub fn objects(&mut self, request: ObjectRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        request.append(&mut self.core.sender.control, id);
        Ok(id)
    }

    /// Asks about a durable call.
    pub fn ask_job(&mut self, job: JobId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskJob, &JobMessage { id: job })
    }

    /// Asks for the results of a durable call, a stream of `result_bytes` bytes. The request ends
    /// like a call.
    pub fn fetch(&mut self, job: JobId, result_bytes: u64) -> Result<CallId, ProtocolError> {
        self.ask_for_data(Kind::Fetch, &JobMessage { id: job }, result_bytes, None)
    }

    /// Cancels a durable call. With `forget`, the server forgets it.
    pub fn cancel_job(&mut self, job: JobId, forget: bool) -> Result<CallId, ProtocolError> {
        let message = CancelJobMessage { id: job, forget };
        self.in_turn(Request::Query, Kind::CancelJob, &message, None)
    }

    /// Asks for the durable calls with numbers greater than `after`.
    pub fn list_jobs(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        self.ask(Kind::ListJobs, &ListJobsMessage { after })
    }

    /// Asks a server with the feature [`CALL_STATUS`](crate::CALL_STATUS) for the status of a call.
    pub fn ask_call(&mut self, name: CallName) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskCall, &AskCallMessage::new(name))
    }

    /// Asks for a part of a stored array. The request ends like a call.
    pub fn get_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        self.ask_for_data(Kind::GetPart, part, part.bytes, Some(part.id))
    }

    /// Asks for a stored array of `bytes` bytes. The request ends like a call.
    pub fn get(&mut self, handle: HandleId, bytes: u64) -> Result<CallId, ProtocolError> {
        let message = HandleMessage { id: handle };
        self.ask_for_data(Kind::Get, &message, bytes, Some(handle))
    }

    /// Asks about a stored array.
    pub fn ask_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.ask(Kind::AskHandle, &HandleMessage { id: handle })
    }

    /// Drops a stored array.
    pub fn drop_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        let message = HandleMessage { id: handle };
        self.in_turn(Request::Query, Kind::Drop, &message, Some(handle))
    }

    /// Asks a server with the feature [`LOANS`](crate::LOANS) to lend an array: for a name under
    /// which another server may read it once.
    pub fn lend(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        let message = HandleMessage { id: handle };
        self.in_turn(Request::Query, Kind::Lend, &message, Some(handle))
    }

    /// Asks a server with the feature [`LOANS`](crate::LOANS) to read an array from another server.
    pub fn pull(&mut self, pull: &Pull) -> Result<CallId, ProtocolError> {
        self.in_turn(Request::Query, Kind::Pull, pull, None)
    }

    /// Asks a server with the feature [`WRITES`] to write an array to an address.
    pub fn write(&mut self, write: &Write) -> Result<CallId, ProtocolError> {
        self.in_turn(Request::Query, Kind::Write, write, Some(write.id))
    }

    /// Asks for the stored arrays with numbers above `after`.
    pub fn list_handles(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        self.ask(Kind::ListHandles, &ListHandlesMessage { after })
    }

    /// Gives an array a name at a server with the feature [`NAMES`].
    pub fn name(&mut self, name: &Name) -> Result<CallId, ProtocolError> {
        self.in_turn(Request::Query, Kind::Name, name, Some(name.id))
    }

    /// Asks a server with the feature [`NAMES`] for data by name.
    pub fn ask_name(&mut self, name: &DataName) -> Result<CallId, ProtocolError> {
        let name = name.clone();
        self.ask(Kind::AskName, &AskNameMessage { name })
    }

    /// Asks a server with the feature [`NAMES`] for the named data after this name.
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

    /// Asks the directory of a metaserver, which has the feature [`DIRECTORY`]. The message is of
    /// this kind and is not read here.
    pub fn ask_directory(&mut self, kind: Kind, message: &[u8]) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        append_control(out, kind, id, |out| out.extend_from_slice(message));
        Ok(id)
    }

    /// Reports the outcome of a call to the directory of a metaserver. There is no answer.
    pub fn observe(&mut self, message: &[u8]) {
        let out = &mut self.core.sender.control;
        append_control(out, Kind::Observe, 0, |out| out.extend_from_slice(message));
    }
}

impl Core {
    /// Handles the answer to a request, which ends it.
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
            Kind::CallStatus => Answer::CallStatus(message::parse(kind, payload)?),
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
            Kind::Receipt => Answer::Receipt(message::parse(kind, payload)?),
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

    /// Whether the request expects an answer of this kind. A request that stores something expects
    /// it only after all its data were sent.
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

/// The features that both sides need for such an answer.
fn needed_for(kind: Kind) -> u64 {
    match (kind.subject(), kind) {
        (Subject::Objects, Kind::Objects) => KEPT_OBJECTS,
        (Subject::Jobs, _) => JOBS,
        (Subject::Handles, Kind::Receipt) => WRITES,
        (Subject::Handles, _) => HANDLES,
        (Subject::Names, _) => NAMES,
        (Subject::Directory, Kind::DataFound | Kind::DataListed) => DIRECTORY | NAMES,
        (Subject::Directory, _) => DIRECTORY,
        (Subject::Reservations, _) => RESERVATIONS,
        _ => 0,
    }
}

//! The calling end of a connection.

use crate::frame::{BIG_ENDIAN, Header, append_control, append_flagged};
use crate::handles::{
    ArrayPart, HANDLES, HandleMessage, HandlePage, HandleRecord, ListHandlesMessage, Pull, Put,
};
use crate::ids::{HandleId, JobId};
use crate::jobs::{
    CancelJobMessage, JOBS, JobDescription, JobMessage, JobPage, ListJobsMessage, Submission,
};
use crate::message::{
    self, CALLBACKS, CREDIT, Call, Callback, CallbackAnswer, DIRECTORY, DescribeRequest,
    DrainingMessage, Estimate, Failure, GoodbyeMessage, Hello, InterfaceMessage, ListRequest,
    Listing, MemoryMessage, NewRequest, OUTPUT, OutputMessage, RegisterRequest, ResultMessage,
    StandingMessage, Times,
};
use crate::names::{AskNameMessage, DataName, ListNamesMessage, NAMES, Name, NamePage, NameRecord};
use crate::objects::{KEPT_OBJECTS, ObjectPage, ObjectRequest};
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::{RESERVATIONS, ReservationPage, ReservationRequest};
use crate::sender::{Sender, Transmit};
use crate::{CallId, Kind, Limits, ProtocolError};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

/// What the server has said.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server greets: the connection may be used.
    Connected(Hello),
    /// A page of the functions served.
    Listing(CallId, Listing),
    /// An interface in canonical IDL, and the number under which to call it.
    Interface {
        /// The describe request.
        request: CallId,
        /// For [`Call::function`].
        function: u64,
        /// Canonical IDL of one function.
        text: String,
        /// The library behind it, for people.
        library: Option<String>,
    },
    /// What a call would take.
    Estimated(CallId, Estimate),
    /// How the server stands, as a JSON object.
    Standing(CallId, String),
    /// The server ends when so many calls have ended.
    Draining(CallId, u64),
    /// The directory of a metaserver answers with a message of this kind.
    Directory(CallId, Kind, Vec<u8>),
    /// Shared memory of this many bytes; the memory itself came beside the bytes. Until
    /// [`Connection::unshare`] calls name it by the number of the request.
    Shared(CallId, u64),
    /// The submitted call is kept and will be run.
    Submitted(CallId, JobId),
    /// What is known of a submitted call.
    Job(CallId, JobDescription),
    /// A page of submitted calls.
    Jobs(CallId, JobPage),
    /// What is known of an array at the server.
    Handle(CallId, HandleRecord),
    /// A page of arrays at the server.
    Handles(CallId, HandlePage),
    /// What is known of data with a name.
    Named(CallId, NameRecord),
    /// A page of data with names.
    Names(CallId, NamePage),
    /// What is known of objects that stay. One that was attached is known by the number of the
    /// request until [`Connection::delete`].
    Objects(CallId, ObjectPage),
    /// What is known of reservations.
    Reservations(CallId, ReservationPage),
    /// The object is there: until [`Connection::delete`] calls name it by the number of the
    /// request.
    Created(CallId),
    /// The function of a running call has printed this.
    Output(CallId, Vec<u8>),
    /// The running call calls a function of the client: answer with [`Connection::answer`].
    Callback(CallId, Callback),
    /// The call is complete: its whole result stream has been taken.
    Done(CallId, Times),
    /// The request failed.
    Failed(CallId, Failure),
}

enum Request {
    /// A list, describe or estimate request.
    Query,
    /// An object was asked for.
    Object,
    /// Memory of this many bytes was asked for.
    Memory {
        bytes: u64,
    },
    /// A call whose result has not begun.
    Computing {
        result_bytes: u64,
        /// A callback waits for its answer.
        calls_back: bool,
    },
    /// A call that is to outlive the connection, or an array that is to stay at the server.
    Submitting,
    Receiving(Stream),
    /// Cancelled here, not yet answered there.
    Cancelled(Option<Stream>),
}

/// State of one connection to a server. See the crate documentation for how to drive it.
pub struct Connection {
    limits: Limits,
    receiver: Receiver,
    core: Core,
}

struct Core {
    connected: bool,
    /// The features that this side offered.
    features: u64,
    last_id: CallId,
    sender: Sender,
    requests: BTreeMap<CallId, Request>,
    /// The server grants room for long data streams.
    grants: bool,
    /// Requests that the server lets be open at once.
    most_open: usize,
    /// Requests with data streams that wait until others have ended.
    waiting: VecDeque<Opening>,
}

/// A request to be opened.
struct Opening {
    call: CallId,
    frame: Vec<u8>,
    /// Bytes of its data stream.
    total: u64,
    /// Whether they are for memory that is there.
    has_room: bool,
}

impl Connection {
    /// Starts with the greeting in the outgoing queue. Requests may follow at once.
    pub fn new(limits: Limits, hello: &Hello) -> Connection {
        let mut sender = Sender::new(&limits);
        message::append(&mut sender.control, Kind::Hello, 0, hello);
        let core = Core {
            connected: false,
            features: hello.features,
            last_id: 0,
            sender,
            requests: BTreeMap::new(),
            grants: false,
            most_open: usize::MAX,
            waiting: VecDeque::new(),
        };
        Connection {
            receiver: Receiver::new(limits.clone()),
            limits,
            core,
        }
    }

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

    /// Asks how a server with the feature [`OPERATION`](crate::OPERATION) stands.
    pub fn status(&mut self) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Status)
    }

    /// Asks a server with the feature [`OPERATION`](crate::OPERATION) to take no more calls and to
    /// end.
    pub fn drain(&mut self) -> Result<CallId, ProtocolError> {
        self.ask(Kind::Drain)
    }

    /// Asks the directory of a metaserver, which has the feature [`DIRECTORY`], with a message of
    /// this kind.
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

    /// A request that says nothing more.
    fn ask(&mut self, kind: Kind) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        append_control(&mut self.core.sender.control, kind, id, |_| {});
        Ok(id)
    }

    /// Asks for shared memory of `bytes` bytes, where both sides have the feature.
    pub fn share(&mut self, bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Memory { bytes })?;
        let request = MemoryMessage { bytes };
        message::append(&mut self.core.sender.control, Kind::Share, id, &request);
        Ok(id)
    }

    /// Asks for an object of a class, of a server with the feature [`OBJECTS`](crate::OBJECTS). The
    /// number of the request is that of the object.
    pub fn create(&mut self, class: &str) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Object)?;
        let class = class.into();
        let request = NewRequest { class };
        message::append(&mut self.core.sender.control, Kind::New, id, &request);
        Ok(id)
    }

    /// Asks about objects that stay, at a server with the feature [`KEPT_OBJECTS`].
    pub fn objects(&mut self, request: ObjectRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        request.append(&mut self.core.sender.control, id);
        Ok(id)
    }

    /// Asks about reservations, at a server with the feature [`RESERVATIONS`].
    pub fn reservations(&mut self, asked: ReservationRequest) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        asked.append(&mut self.core.sender.control, id);
        Ok(id)
    }

    /// Gives an object up; calls of its methods fail.
    pub fn delete(&mut self, object: CallId) {
        append_control(&mut self.core.sender.control, Kind::Delete, object, |_| ());
    }

    /// Gives shared memory back. Calls that use it go on.
    pub fn unshare(&mut self, memory: CallId) {
        append_control(&mut self.core.sender.control, Kind::Unshare, memory, |_| ());
    }

    /// Opens a call whose result stream will have `result_bytes` bytes.
    pub fn call(&mut self, call: &Call, result_bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes,
            calls_back: false,
        })?;
        let mut opening = Vec::new();
        append_control(&mut opening, Kind::Call, id, |out| call.encode(out));
        self.core.start(id, opening, call.data_bytes, false);
        Ok(id)
    }

    /// Submits a call, to a server with the feature [`JOBS`].
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

    /// Puts an array at a server with the feature [`HANDLES`].
    pub fn put(&mut self, put: &Put) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut opening = Vec::new();
        message::append(&mut opening, Kind::Put, id, put);
        self.core.start(id, opening, put.data_bytes, false);
        Ok(id)
    }

    /// Fills a part of an array at a server with the feature [`PARTS`](crate::PARTS).
    pub fn put_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Submitting)?;
        let mut frame = Vec::new();
        message::append(&mut frame, Kind::PutPart, id, part);
        self.core.start(id, frame, part.bytes, true);
        Ok(id)
    }

    /// Asks for a part of an array at the server. Its end is told as that of a call.
    pub fn get_part(&mut self, part: &ArrayPart) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes: part.bytes,
            calls_back: false,
        })?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::GetPart, id, part);
        Ok(id)
    }

    /// Asks for an array of `bytes` bytes at the server. Its end is told as that of a call.
    pub fn get(&mut self, handle: HandleId, bytes: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Computing {
            result_bytes: bytes,
            calls_back: false,
        })?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Get, id, &HandleMessage { id: handle });
        Ok(id)
    }

    /// Asks about an array at the server.
    pub fn ask_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.about_handle(Kind::AskHandle, handle)
    }

    /// Gives an array at the server up.
    pub fn drop_handle(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.about_handle(Kind::Drop, handle)
    }

    /// Asks a server with the feature [`LOANS`](crate::LOANS) for a name of an array that another
    /// server may read it by, once.
    pub fn lend(&mut self, handle: HandleId) -> Result<CallId, ProtocolError> {
        self.about_handle(Kind::Lend, handle)
    }

    /// Has a server with the feature [`LOANS`](crate::LOANS) read an array from another.
    pub fn pull(&mut self, pull: &Pull) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        message::append(&mut self.core.sender.control, Kind::Pull, id, pull);
        Ok(id)
    }

    /// Gives an array a name, at a server with the feature [`NAMES`].
    pub fn name(&mut self, name: &Name) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        message::append(&mut self.core.sender.control, Kind::Name, id, name);
        Ok(id)
    }

    /// Asks a server with the feature [`NAMES`] for data by name.
    pub fn ask_name(&mut self, name: &DataName) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let name = name.clone();
        let out = &mut self.core.sender.control;
        message::append(out, Kind::AskName, id, &AskNameMessage { name });
        Ok(id)
    }

    /// Asks a server with the feature [`NAMES`] for the data whose names come after this one.
    pub fn list_names(&mut self, after: Option<&DataName>) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let after = after.cloned();
        let out = &mut self.core.sender.control;
        message::append(out, Kind::ListNames, id, &ListNamesMessage { after });
        Ok(id)
    }

    fn about_handle(&mut self, kind: Kind, handle: HandleId) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, kind, id, &HandleMessage { id: handle });
        Ok(id)
    }

    /// Asks for the arrays at the server with numbers above `after`.
    pub fn list_handles(&mut self, after: u64) -> Result<CallId, ProtocolError> {
        let id = self.open(Request::Query)?;
        let out = &mut self.core.sender.control;
        message::append(out, Kind::ListHandles, id, &ListHandlesMessage { after });
        Ok(id)
    }

    /// Answers the callback of a call; nothing is sent where none waits for it any more.
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

    /// Gives up a call; list and describe requests are left to be answered. Its end is reported as
    /// [`Event::Done`] or [`Event::Failed`] all the same, whichever comes; result bytes that arrive
    /// until then are marked to be thrown away.
    ///
    /// Returns `false` where the call was not opened yet: it has ended with this, without a word.
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

    fn open(&mut self, request: Request) -> Result<CallId, ProtocolError> {
        if self.core.requests.len() >= self.limits.calls {
            return Err(ProtocolError::TooManyCalls(self.limits.calls));
        }
        self.core.last_id += 1;
        self.core.requests.insert(self.core.last_id, request);
        Ok(self.core.last_id)
    }

    /// Takes bytes from the server; returns how many, and an event if one is complete.
    pub fn handle_input(&mut self, input: &[u8]) -> Result<(usize, Option<Event>), ProtocolError> {
        let mut taken = 0;
        while taken < input.len() {
            let (count, frame) = match self.receiver.next(&input[taken..]) {
                Err(_) if !self.core.connected => return Err(ProtocolError::NotFarcall),
                other => other?,
            };
            taken += count;
            let event = match frame {
                None => break,
                Some(Frame::Control(header, payload)) => self.core.control(header, payload)?,
                Some(Frame::Data(header)) => {
                    self.receiver.incoming = Some(self.core.data(&header)?);
                    break;
                }
            };
            if event.is_some() {
                return Ok((taken, event));
            }
        }
        Ok((taken, None))
    }

    /// The array data that comes next on the wire, if any.
    pub fn incoming(&self) -> Option<Chunk> {
        self.receiver.incoming
    }

    /// `count` bytes of [`Connection::incoming`] have been taken.
    ///
    /// # Panics
    /// If that many were not incoming.
    pub fn handle_data(&mut self, count: u64) {
        self.receiver.data_taken(count);
    }

    /// Puts out the next frames; see [`Transmit`].
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Transmit {
        self.core.open_next();
        self.core.sender.poll(out).0
    }

    /// Whether no request is open and nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.core.requests.is_empty() && self.core.sender.is_idle()
    }
}

impl Core {
    fn control(&mut self, header: Header, payload: &[u8]) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        if kind == Kind::Goodbye {
            let message: GoodbyeMessage = message::parse(kind, payload)?;
            return Err(ProtocolError::Goodbye(message.reason));
        }
        if self.connected == (kind == Kind::Hello) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        match kind {
            Kind::Hello => {
                let hello: Hello =
                    message::parse(kind, payload).map_err(|_| ProtocolError::NotFarcall)?;
                hello.agree()?;
                self.connected = true;
                self.grants = self.features & hello.features & CREDIT != 0;
                if let Some(calls) = hello.calls {
                    // Some are left for requests without data streams, which do not wait.
                    self.most_open = (calls - (calls / 2).min(32)).max(1) as usize;
                }
                self.open_next();
                Ok(Some(Event::Connected(hello)))
            }
            Kind::Listing => {
                self.close_query(id, kind)?;
                Ok(Some(Event::Listing(id, message::parse(kind, payload)?)))
            }
            Kind::Interface => {
                self.close_query(id, kind)?;
                let InterfaceMessage {
                    function,
                    text,
                    library,
                } = message::parse(kind, payload)?;
                Ok(Some(Event::Interface {
                    request: id,
                    function,
                    text,
                    library,
                }))
            }
            Kind::Estimated => {
                self.close_query(id, kind)?;
                Ok(Some(Event::Estimated(id, message::parse(kind, payload)?)))
            }
            Kind::Standing | Kind::Draining => {
                self.close_query(id, kind)?;
                operation(id, kind, payload).map(Some)
            }
            Kind::Named | Kind::Names if self.features & NAMES != 0 => {
                self.close_query(id, kind)?;
                about_names(id, kind, payload).map(Some)
            }
            Kind::DataFound | Kind::DataListed if self.features & NAMES == 0 => {
                Err(ProtocolError::OutOfPlace(kind))
            }
            Kind::Noted | Kind::Found | Kind::Chosen | Kind::DataFound | Kind::DataListed
                if self.features & DIRECTORY != 0 =>
            {
                self.close_query(id, kind)?;
                Ok(Some(Event::Directory(id, kind, payload.to_vec())))
            }
            Kind::Shared => {
                let MemoryMessage { bytes } = message::parse(kind, payload)?;
                match self.requests.remove(&id) {
                    Some(Request::Memory { bytes: asked }) if bytes >= asked => {
                        Ok(Some(Event::Shared(id, bytes)))
                    }
                    _ => Err(ProtocolError::OutOfPlace(kind)),
                }
            }
            Kind::Submitted | Kind::Job | Kind::Jobs if self.features & JOBS != 0 => {
                self.about_jobs(kind, id, payload).map(Some)
            }
            Kind::Handle | Kind::Handles if self.features & HANDLES != 0 => {
                self.about_handles(kind, id, payload).map(Some)
            }
            Kind::Objects if self.features & KEPT_OBJECTS != 0 => {
                self.close_query(id, kind)?;
                Ok(Some(Event::Objects(id, message::parse(kind, payload)?)))
            }
            Kind::Reservations if self.features & RESERVATIONS != 0 => {
                self.close_query(id, kind)?;
                let page = message::parse(kind, payload)?;
                Ok(Some(Event::Reservations(id, page)))
            }
            Kind::Created => match self.requests.remove(&id) {
                Some(Request::Object) => Ok(Some(Event::Created(id))),
                _ => Err(ProtocolError::OutOfPlace(kind)),
            },
            Kind::Output if self.features & OUTPUT != 0 => self.output(id, payload),
            Kind::Callback if self.features & CALLBACKS != 0 => self.callback(&header, payload),
            Kind::Grant if self.grants => self.granted(id).map(|()| None),
            Kind::Result => self
                .result(id, message::parse(kind, payload)?)
                .map(|()| None),
            Kind::Done => {
                let times = message::parse(kind, payload)?;
                self.done(id).map(|()| Some(Event::Done(id, times)))
            }
            Kind::Failure => {
                let failure: Failure = message::parse(kind, payload)?;
                Ok(self.failed(id).then_some(Event::Failed(id, failure)))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Opens a request with a data stream, now or when others have ended.
    fn start(&mut self, call: CallId, frame: Vec<u8>, total: u64, has_room: bool) {
        self.waiting.push_back(Opening {
            call,
            frame,
            total,
            has_room,
        });
        self.open_next();
    }

    /// Opens as many requests as the server allows; none before it is known whether it grants.
    fn open_next(&mut self) {
        if self.features & CREDIT != 0 && !self.connected {
            return;
        }
        while self.requests.len() - self.waiting.len() < self.most_open
            && let Some(next) = self.waiting.pop_front()
        {
            let Opening {
                call,
                frame,
                total,
                has_room,
            } = next;
            let granted = has_room || !self.grants;
            self.sender.start_call(call, frame, total, granted);
        }
    }

    /// Forgets a request that was given up before it was opened; `false` if it is open.
    fn forget_unopened(&mut self, call: CallId) -> bool {
        let count = self.waiting.len();
        self.waiting.retain(|opening| opening.call != call);
        let was_waiting = self.waiting.len() < count;
        if was_waiting {
            self.requests.remove(&call);
        }
        was_waiting
    }

    /// The server has room for a data stream, perhaps of a call that was given up.
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

    fn about_handles(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        if kind == Kind::Handles {
            self.close_query(id, kind)?;
            return Ok(Event::Handles(id, message::parse(kind, payload)?));
        }
        let record = message::parse(kind, payload)?;
        self.close_handle(id)?;
        Ok(Event::Handle(id, record))
    }

    /// The answer about an array has come, one that was put at the server too.
    fn close_handle(&mut self, id: CallId) -> Result<(), ProtocolError> {
        if self.sender.has_stream(id) {
            return Err(ProtocolError::OutOfPlace(Kind::Handle));
        }
        match self.requests.remove(&id) {
            Some(Request::Submitting | Request::Query | Request::Cancelled(None)) => Ok(()),
            _ => Err(ProtocolError::OutOfPlace(Kind::Handle)),
        }
    }

    fn about_jobs(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
    ) -> Result<Event, ProtocolError> {
        if kind != Kind::Submitted {
            self.close_query(id, kind)?;
            return Ok(match kind {
                Kind::Job => Event::Job(id, JobDescription::parse(payload)?),
                _ => Event::Jobs(id, message::parse(kind, payload)?),
            });
        }
        let JobMessage { id: job } = message::parse(kind, payload)?;
        // What has not come whole cannot be kept.
        if self.sender.has_stream(id) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        match self.requests.remove(&id) {
            Some(Request::Submitting | Request::Cancelled(None)) => Ok(Event::Submitted(id, job)),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    fn close_query(&mut self, id: CallId, kind: Kind) -> Result<(), ProtocolError> {
        match self.requests.remove(&id) {
            Some(Request::Query) => Ok(()),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// What a function prints; that of a call that was given up is thrown away.
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

    /// Whether the callback is to be answered; that of a call that was given up is not.
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

    fn result(&mut self, id: CallId, message: ResultMessage) -> Result<(), ProtocolError> {
        // What has not got all its arguments cannot have been computed.
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

    /// Closes a failed request; what of its data stream is not yet out is withdrawn.
    fn failed(&mut self, id: CallId) -> bool {
        let known = self.requests.remove(&id).is_some();
        if self.sender.drop_stream(id) {
            append_control(&mut self.sender.control, Kind::Cancel, id, |_| ());
        }
        known
    }

    fn data(&mut self, header: &Header) -> Result<Chunk, ProtocolError> {
        match self.requests.get_mut(&header.call) {
            Some(Request::Receiving(stream)) => stream.admit(header, false),
            Some(Request::Cancelled(Some(stream))) => stream.admit(header, true),
            _ => Err(ProtocolError::StrayData),
        }
    }
}

/// The answer of a server about data with names.
fn about_names(id: CallId, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
    Ok(match kind {
        Kind::Named => Event::Named(id, message::parse(kind, payload)?),
        _ => Event::Names(id, message::parse(kind, payload)?),
    })
}

/// The answer of the server to its operator.
fn operation(id: CallId, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
    Ok(match kind {
        Kind::Standing => {
            let StandingMessage { text } = message::parse(kind, payload)?;
            Event::Standing(id, text)
        }
        _ => {
            let DrainingMessage { calls } = message::parse(kind, payload)?;
            Event::Draining(id, calls)
        }
    })
}

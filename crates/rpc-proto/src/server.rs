//! The serving end of a connection.

use crate::frame::{BIG_ENDIAN, Header, append_control, append_flagged};
use crate::handles::{
    ArrayPart, HANDLES, HandleMessage, HandlePage, HandleRecord, LOANS, ListHandlesMessage, PARTS,
    Pull, Put,
};
use crate::ids::{HandleId, JobId};
use crate::jobs::{
    CancelJobMessage, JOBS, JobDescription, JobMessage, JobPage, ListJobsMessage, Submission,
};
use crate::message::{
    self, CALLBACKS, CREDIT, Call, Callback, CallbackAnswer, DIRECTORY, DescribeRequest,
    DrainingMessage, ESTIMATES, Estimate, FILES, Failure, FailureKind, GoodbyeMessage, Hello,
    InterfaceMessage, ListRequest, Listing, MemoryMessage, NewRequest, OBJECTS, OPERATION, OUTPUT,
    OutputMessage, REGISTER, RegisterRequest, ResultMessage, SHARED_MEMORY, StandingMessage, Times,
};
use crate::names::{AskNameMessage, DataName, ListNamesMessage, NAMES, Name, NamePage, NameRecord};
use crate::objects::{KEPT_OBJECTS, ObjectPage, ObjectRequest};
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::{RESERVATIONS, ReservationPage, ReservationRequest};
use crate::sender::{Sender, Transmit};
use crate::{CallId, Kind, Limits, Nanos, ProtocolError};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What the client wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The client greets. Answered already, unless [`Connection::refuse`] takes the answer back
    /// before it is put out; later requests are served.
    Connected(Hello),
    /// Wants the functions from this index on: answer with [`Connection::listing`].
    List(CallId, u32),
    /// Wants the functions of an interface file served, by its path and its text: answer with
    /// [`Connection::listing`] or `fail`.
    Register(CallId, String, String),
    /// Wants an interface by name: answer with [`Connection::interface`] or `fail`.
    Describe(CallId, String),
    /// Wants to know what a call would take: answer with [`Connection::estimated`] or `fail`.
    Estimate(CallId, Call),
    /// Wants to know how the server stands: answer with [`Connection::standing`] or `fail`.
    Status(CallId),
    /// Wants the server to end: answer with [`Connection::draining`] or `fail`.
    Drain(CallId),
    /// Wants shared memory of this many bytes: answer with [`Connection::shared`] or `fail`.
    Share(CallId, u64),
    /// Gives shared memory back, by the number of the request that asked for it.
    Unshare(CallId),
    /// Wants an object of the class of that name: answer with [`Connection::created`] or `fail`.
    /// The number of the request is that of the object.
    New(CallId, String),
    /// Does not want the object any more.
    Delete(CallId),
    /// Asks about objects that stay: answer with [`Connection::objects`] or `fail`. One that is
    /// attached has the number of the request.
    Objects(CallId, ObjectRequest),
    /// Asks about reservations: answer with [`Connection::reservations`] or `fail`.
    Reservations(CallId, ReservationRequest),
    /// Opens a call. Answer with [`Connection::accept`] or [`Connection::fail`] before more
    /// input is handled: until then nobody knows where its data are to go.
    Call(CallId, Call),
    /// Opens a call that outlives its connection: as with a call, answer with
    /// [`Connection::accept`] or [`Connection::fail`]; once it is kept, with
    /// [`Connection::submitted`].
    Submit(CallId, Submission),
    /// Asks about a submitted call: answer with [`Connection::job`] or `fail`.
    AskJob(CallId, JobId),
    /// Wants the results of a submitted call: answer with [`Connection::deliver`] or `fail` once
    /// it has ended.
    Fetch(CallId, JobId),
    /// Ends a submitted call, and with `true` has it forgotten: answer with [`Connection::job`] or
    /// `fail`.
    CancelJob(CallId, JobId, bool),
    /// Wants the submitted calls after this number: answer with [`Connection::jobs`] or `fail`.
    ListJobs(CallId, u64),
    /// Puts an array here: as with a call, answer with [`Connection::accept`] or
    /// [`Connection::fail`]; once it is there, with [`Connection::handle`].
    Put(CallId, Put),
    /// Fills a part of an array that is here: as with a call, answer with [`Connection::accept`] or
    /// [`Connection::fail`]; once it is there, with [`Connection::handle`].
    PutPart(CallId, ArrayPart),
    /// Wants a part of an array: answer with [`Connection::deliver`] or `fail`.
    GetPart(CallId, ArrayPart),
    /// Wants an array that is here: answer with [`Connection::deliver`] or `fail`.
    Get(CallId, HandleId),
    /// Asks about an array: answer with [`Connection::handle`] or `fail`.
    AskHandle(CallId, HandleId),
    /// No longer wants an array: answer with [`Connection::handle`] or `fail`.
    Drop(CallId, HandleId),
    /// Wants a name of an array that is good for one reading by another server: answer with
    /// [`Connection::handle`] or `fail`.
    Lend(CallId, HandleId),
    /// Wants an array to be read from another server: answer with [`Connection::handle`] or `fail`.
    Pull(CallId, Pull),
    /// Wants the arrays with numbers above this one: answer with [`Connection::handles`].
    ListHandles(CallId, u64),
    /// Gives an array a name: answer with [`Connection::named`] or `fail`.
    Name(CallId, Name),
    /// Wants data by name: answer with [`Connection::named`] or `fail`.
    AskName(CallId, DataName),
    /// Wants the data with names that come after this one: answer with [`Connection::names`].
    ListNames(CallId, Option<DataName>),
    /// Something for the directory of a metaserver: a message of this kind, as it came. Answer with
    /// [`Connection::directory`] or `fail`; nothing answers [`Kind::Observe`].
    Directory(CallId, Kind, Vec<u8>),
    /// The data stream of an accepted call is complete.
    Ready(CallId),
    /// Answers a callback of a running call.
    Answer(CallId, CallbackAnswer),
    /// The client gave up a call that was accepted. It is answered and closed already.
    Cancelled(CallId),
}

enum State {
    Offered {
        bytes: u64,
        since: Nanos,
        /// Its data stream comes without a grant.
        has_room: bool,
    },
    Receiving {
        stream: Stream,
        since: Nanos,
    },
    Running {
        received: Nanos,
        send: u64,
        /// A callback waits for its answer.
        calls_back: bool,
    },
    Sending {
        since: Nanos,
        times: Times,
        bytes: u64,
    },
    /// A question that takes a while.
    Asking,
    /// Failed while its data were on their way.
    Discarding(Stream),
}

impl State {
    fn offered(bytes: u64, now: Nanos) -> State {
        State::Offered {
            bytes,
            since: now,
            has_room: false,
        }
    }

    /// Of a request without data that is answered with some.
    fn waiting(now: Nanos) -> State {
        State::Running {
            received: now,
            send: 0,
            calls_back: false,
        }
    }
}

/// Whether a frame is a request about parts of arrays that stay at the server.
fn is_about_parts(kind: Kind) -> bool {
    matches!(kind, Kind::PutPart | Kind::GetPart)
}

/// Whether a frame is a request about arrays that stay at the server.
fn is_about_handles(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Put | Kind::Get | Kind::AskHandle | Kind::Drop | Kind::ListHandles
    )
}

/// Whether a frame is a request about data with names at a server.
fn is_about_names(kind: Kind) -> bool {
    matches!(kind, Kind::Name | Kind::AskName | Kind::ListNames)
}

/// Whether a frame opens a request, under a number of its own.
fn is_request(kind: Kind) -> bool {
    let plain = matches!(
        kind,
        Kind::List
            | Kind::Describe
            | Kind::Estimate
            | Kind::Register
            | Kind::Status
            | Kind::Drain
            | Kind::Share
            | Kind::New
            | Kind::Call
            | Kind::Lend
            | Kind::Pull
    );
    let joins = is_for_directory(kind) && kind != Kind::Observe;
    let about_objects = ObjectRequest::is_kind(kind) || ReservationRequest::is_kind(kind);
    let about_arrays = is_about_handles(kind) || is_about_parts(kind) || is_about_names(kind);
    plain || joins || is_about_jobs(kind) || about_arrays || about_objects
}

/// Whether a frame is for the directory of a metaserver.
fn is_for_directory(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Join | Kind::Report | Kind::Leave | Kind::Find | Kind::Choose | Kind::Observe
    ) || is_about_data(kind)
}

/// Whether it is about named data, for a directory that knows of such.
fn is_about_data(kind: Kind) -> bool {
    matches!(kind, Kind::Hold | Kind::FindData | Kind::ListData)
}

/// Whether a frame is a request about submitted calls.
fn is_about_jobs(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Submit | Kind::AskJob | Kind::Fetch | Kind::CancelJob | Kind::ListJobs
    )
}

/// State of one connection from a client. See the crate documentation for how to drive it.
pub struct Connection {
    receiver: Receiver,
    core: Core,
}

struct Core {
    limits: Limits,
    hello: Hello,
    connected: bool,
    /// The features that both sides have.
    features: u64,
    sender: Sender,
    calls: BTreeMap<CallId, State>,
    /// The call whose last chunk was put out with the latest poll.
    sent: Option<CallId>,
    moved: Moved,
}

/// Streams that have ended: bytes, and the nanoseconds that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The latest argument stream.
    pub up: Option<(u64, Nanos)>,
    /// The latest result stream.
    pub down: Option<(u64, Nanos)>,
}

impl Connection {
    /// Waits for the client's greeting, to be answered with `hello`.
    pub fn new(limits: Limits, hello: Hello) -> Connection {
        let sender = Sender::new(&limits);
        let receiver = Receiver::new(limits.clone());
        let core = Core {
            limits,
            hello,
            connected: false,
            features: 0,
            sender,
            calls: BTreeMap::new(),
            sent: None,
            moved: Moved::default(),
        };
        Connection { receiver, core }
    }

    /// Takes bytes from the client; returns how many, and an event if one is complete. Takes none
    /// while [`Connection::is_congested`].
    pub fn handle_input(
        &mut self,
        input: &[u8],
        now: Nanos,
    ) -> Result<(usize, Option<Event>), ProtocolError> {
        let mut taken = 0;
        while taken < input.len() && !self.is_congested() {
            let (count, frame) = match self.receiver.next(&input[taken..]) {
                Err(_) if !self.core.connected => return Err(ProtocolError::NotFarcall),
                other => other?,
            };
            taken += count;
            let event = match frame {
                None => break,
                Some(Frame::Control(header, payload)) => self.core.control(header, payload, now)?,
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
    pub fn handle_data(&mut self, count: u64, now: Nanos) -> Option<Event> {
        let call = self.receiver.data_taken(count).call;
        if self.receiver.incoming.is_some() {
            return None;
        }
        self.core.stream_progress(call, now)
    }

    /// Takes an offered call. Returns whether it is ready at once, having no data stream.
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

    /// Whether the client sends a data stream of that length only when its request was accepted, so
    /// that the answer may take as long as it likes.
    pub fn waits_for_grant(&self, bytes: u64) -> bool {
        self.core.features & CREDIT != 0 && self.core.sender.is_long(bytes)
    }

    /// Answers a list request.
    pub fn listing(&mut self, request: CallId, listing: &Listing) {
        message::append(
            &mut self.core.sender.control,
            Kind::Listing,
            request,
            listing,
        );
    }

    /// Answers a describe request with canonical IDL, the number for [`Call::function`], and the
    /// library behind the function.
    pub fn interface(
        &mut self,
        request: CallId,
        function: u64,
        text: String,
        library: Option<String>,
    ) {
        let message = InterfaceMessage {
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

    /// Answers a status request with a JSON object.
    pub fn standing(&mut self, request: CallId, text: String) {
        let message = StandingMessage { text };
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Standing, request, &message);
    }

    /// Answers what was for the directory with a message of this kind.
    pub fn directory(&mut self, request: CallId, kind: Kind, message: &[u8]) {
        let out = &mut self.core.sender.control;
        append_control(out, kind, request, |out| out.extend_from_slice(message));
    }

    /// Answers a drain request: so many calls are to end before the server does.
    pub fn draining(&mut self, request: CallId, calls: u64) {
        let message = DrainingMessage { calls };
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Draining, request, &message);
    }

    /// Answers a submission: the call is kept. One that was given up meanwhile is left alone.
    pub fn submitted(&mut self, call: CallId, id: JobId) {
        if let Some(State::Running { .. }) = self.core.calls.get(&call) {
            self.core.calls.remove(&call);
            let control = &mut self.core.sender.control;
            message::append(control, Kind::Submitted, call, &JobMessage { id });
        }
    }

    /// Answers a question about a submitted call.
    pub fn job(&mut self, request: CallId, job: &JobDescription) {
        self.core.calls.remove(&request);
        job.append(&mut self.core.sender.control, request);
    }

    /// Answers a request for submitted calls.
    pub fn jobs(&mut self, request: CallId, page: &JobPage) {
        message::append(&mut self.core.sender.control, Kind::Jobs, request, page);
    }

    /// Answers about an array, one that was put here too.
    pub fn handle(&mut self, request: CallId, record: &HandleRecord) {
        self.core.calls.remove(&request);
        message::append(&mut self.core.sender.control, Kind::Handle, request, record);
    }

    /// Answers a request for arrays.
    pub fn handles(&mut self, request: CallId, page: &HandlePage) {
        message::append(&mut self.core.sender.control, Kind::Handles, request, page);
    }

    /// Answers about data with a name.
    pub fn named(&mut self, request: CallId, record: &NameRecord) {
        message::append(&mut self.core.sender.control, Kind::Named, request, record);
    }

    /// Answers a request for data with names.
    pub fn names(&mut self, request: CallId, page: &NamePage) {
        message::append(&mut self.core.sender.control, Kind::Names, request, page);
    }

    /// Answers a fetch: sends the result stream of `result_bytes` bytes, then `times` with the
    /// time that sending took. A fetch that is no longer open is left alone.
    pub fn deliver(&mut self, request: CallId, result_bytes: u64, times: Times, now: Nanos) {
        if let Some(State::Running { .. }) = self.core.calls.get(&request) {
            self.send_result(request, result_bytes, times, now);
        }
    }

    /// Answers a request for shared memory. The memory itself goes beside the bytes, no later than
    /// the last of this frame.
    pub fn shared(&mut self, request: CallId, bytes: u64) {
        let message = MemoryMessage { bytes };
        message::append(
            &mut self.core.sender.control,
            Kind::Shared,
            request,
            &message,
        );
    }

    /// Answers a request for an object.
    pub fn created(&mut self, request: CallId) {
        append_control(
            &mut self.core.sender.control,
            Kind::Created,
            request,
            |_| (),
        );
    }

    /// Answers a request about objects that stay.
    pub fn objects(&mut self, request: CallId, page: &ObjectPage) {
        message::append(&mut self.core.sender.control, Kind::Objects, request, page);
    }

    /// Answers a request about reservations.
    pub fn reservations(&mut self, request: CallId, page: &ReservationPage) {
        let out = &mut self.core.sender.control;
        message::append(out, Kind::Reservations, request, page);
    }

    /// The library has returned: sends the result stream of `result_bytes` bytes, then the
    /// times. `wait` and `exec` are what the caller measured, in nanoseconds. A call that is no
    /// longer open is left alone.
    pub fn complete(&mut self, call: CallId, result_bytes: u64, exec: u64, now: Nanos) {
        let Some(State::Running { received, send, .. }) = self.core.calls.get(&call) else {
            return;
        };
        let times = Times {
            send: *send,
            wait: now.saturating_sub(*received).saturating_sub(exec),
            exec,
            recv: 0,
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

    /// Whether the client answers callbacks.
    pub fn answers_callbacks(&self) -> bool {
        self.core.features & CALLBACKS != 0
    }

    /// Whether files of the client travel.
    pub fn moves_files(&self) -> bool {
        self.core.features & (FILES | CALLBACKS) == FILES | CALLBACKS
    }

    /// Whether the client takes what functions print.
    pub fn takes_output(&self) -> bool {
        self.core.features & OUTPUT != 0
    }

    /// Sends what the function of a running call has printed. A call that does not run is left
    /// alone.
    pub fn print(&mut self, call: CallId, data: Vec<u8>) {
        if let Some(State::Running { .. }) = self.core.calls.get(&call) {
            let message = OutputMessage { data };
            message::append(&mut self.core.sender.control, Kind::Output, call, &message);
        }
    }

    /// A running call calls a function of the client, which overtakes all array data on their way.
    /// One callback at a time; [`Event::Answer`] follows. A call that does not run is left alone.
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

    /// Fails a request of any kind. Data of the call that still arrive are to be thrown away.
    pub fn fail(&mut self, request: CallId, failure: &Failure) {
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

    /// Says why the connection ends; close it once this is sent.
    pub fn goodbye(&mut self, reason: impl Into<String>) {
        let message = GoodbyeMessage {
            reason: reason.into(),
        };
        message::append(&mut self.core.sender.control, Kind::Goodbye, 0, &message);
    }

    /// Refuses the client that has just greeted: takes back the answer to its greeting, which has
    /// not been put out yet, and says why instead.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.core.sender.control.clear();
        self.goodbye(reason);
    }

    /// Puts out the next frames; see [`Transmit`].
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, now: Nanos) -> Transmit {
        // The caller has sent the last chunk by now: this is the end of RECV.
        if let Some(call) = self.core.sent.take() {
            self.core.done(call, now);
        }
        let (transmit, finished) = self.core.sender.poll(out);
        if let (Transmit::Data(chunk), true) = (transmit, finished) {
            self.core.sent = Some(chunk.call);
        }
        transmit
    }

    /// Whether so many answers wait to be sent that no more requests are taken: the client sends
    /// requests and does not read. Ends as `poll_transmit` takes them.
    pub fn is_congested(&self) -> bool {
        self.core.sender.control.len() > self.core.limits.control_bytes as usize
    }

    /// What has moved since the last time it was asked.
    pub fn take_moved(&mut self) -> Moved {
        core::mem::take(&mut self.core.moved)
    }

    /// Calls that are open, in any state.
    pub fn open_calls(&self) -> usize {
        self.core.calls.len()
    }
}

/// A request about data with names.
fn about_names(kind: Kind, id: CallId, payload: &[u8]) -> Result<Event, ProtocolError> {
    Ok(match kind {
        Kind::Name => Event::Name(id, message::parse(kind, payload)?),
        Kind::AskName => {
            let AskNameMessage { name } = message::parse(kind, payload)?;
            Event::AskName(id, name)
        }
        _ => {
            let ListNamesMessage { after } = message::parse(Kind::ListNames, payload)?;
            Event::ListNames(id, after)
        }
    })
}

impl Core {
    fn control(
        &mut self,
        header: Header,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        if !self.connected {
            return self.greet(kind, payload).map(Some);
        }
        if is_request(kind) && (id == 0 || self.calls.contains_key(&id)) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        Ok(match kind {
            Kind::List => {
                let ListRequest { from } = message::parse(kind, payload)?;
                Some(Event::List(id, from))
            }
            Kind::Describe => {
                let DescribeRequest { name } = message::parse(kind, payload)?;
                Some(Event::Describe(id, name))
            }
            Kind::Call => {
                let call = message::parse_call(payload)?;
                self.open(id, State::offered(call.data_bytes, now))?;
                Some(Event::Call(id, call))
            }
            kind if is_about_jobs(kind) && self.features & JOBS != 0 => {
                self.about_jobs(kind, id, payload, now).map(Some)?
            }
            kind if is_about_handles(kind) && self.features & HANDLES != 0 => {
                self.about_handles(kind, id, payload, now).map(Some)?
            }
            kind if is_about_parts(kind)
                && self.features & (PARTS | HANDLES) == PARTS | HANDLES =>
            {
                self.about_parts(kind, id, payload, now).map(Some)?
            }
            Kind::Lend if self.features & LOANS != 0 => {
                let HandleMessage { id: handle } = message::parse(kind, payload)?;
                Some(Event::Lend(id, handle))
            }
            Kind::Pull if self.features & LOANS != 0 => {
                let pull = message::parse(kind, payload)?;
                self.open(id, State::Asking)?;
                Some(Event::Pull(id, pull))
            }
            Kind::Estimate if self.features & ESTIMATES != 0 => {
                Some(Event::Estimate(id, message::parse_call(payload)?))
            }
            Kind::Register if self.features & REGISTER != 0 => {
                let RegisterRequest { path, text } = message::parse(kind, payload)?;
                Some(Event::Register(id, path, text))
            }
            kind if is_about_names(kind)
                && self.features & (NAMES | HANDLES) == NAMES | HANDLES =>
            {
                about_names(kind, id, payload).map(Some)?
            }
            kind if is_about_data(kind) && self.features & NAMES == 0 => {
                return Err(ProtocolError::OutOfPlace(kind));
            }
            kind if is_for_directory(kind) && self.features & DIRECTORY != 0 => {
                Some(Event::Directory(id, kind, payload.to_vec()))
            }
            Kind::Status if self.features & OPERATION != 0 => Some(Event::Status(id)),
            Kind::Drain if self.features & OPERATION != 0 => Some(Event::Drain(id)),
            Kind::Share if self.features & SHARED_MEMORY != 0 => {
                let MemoryMessage { bytes } = message::parse(kind, payload)?;
                Some(Event::Share(id, bytes))
            }
            Kind::Unshare if self.features & SHARED_MEMORY != 0 => Some(Event::Unshare(id)),
            Kind::New if self.features & OBJECTS != 0 => {
                let NewRequest { class } = message::parse(kind, payload)?;
                Some(Event::New(id, class))
            }
            Kind::Delete if self.features & OBJECTS != 0 => Some(Event::Delete(id)),
            kind if ObjectRequest::is_kind(kind)
                && self.features & (OBJECTS | KEPT_OBJECTS) == OBJECTS | KEPT_OBJECTS =>
            {
                Some(Event::Objects(id, ObjectRequest::parse(kind, payload)?))
            }
            kind if ReservationRequest::is_kind(kind) && self.features & RESERVATIONS != 0 => {
                let asked = ReservationRequest::parse(kind, payload)?;
                Some(Event::Reservations(id, asked))
            }
            Kind::Answer if self.features & CALLBACKS != 0 => {
                let big_endian = header.flags & BIG_ENDIAN != 0;
                let answer = CallbackAnswer::decode(payload, big_endian);
                let answer = message::parse_with(kind, answer)?;
                self.answer(id)?.then_some(Event::Answer(id, answer))
            }
            Kind::Cancel => self.cancel(id),
            Kind::Goodbye => {
                let GoodbyeMessage { reason } = message::parse(kind, payload)?;
                return Err(ProtocolError::Goodbye(reason));
            }
            _ => return Err(ProtocolError::OutOfPlace(kind)),
        })
    }

    fn open(&mut self, id: CallId, state: State) -> Result<(), ProtocolError> {
        if self.calls.len() >= self.limits.calls {
            return Err(ProtocolError::TooManyCalls(self.limits.calls));
        }
        self.calls.insert(id, state);
        Ok(())
    }

    /// A request about submitted calls.
    fn about_jobs(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Event, ProtocolError> {
        Ok(match kind {
            Kind::Submit => {
                let submission = message::parse_with(kind, Submission::decode(payload))?;
                self.open(id, State::offered(submission.call.data_bytes, now))?;
                Event::Submit(id, submission)
            }
            Kind::Fetch => {
                let JobMessage { id: job } = message::parse(kind, payload)?;
                self.open(id, State::waiting(now))?;
                Event::Fetch(id, job)
            }
            Kind::CancelJob => {
                let CancelJobMessage { id: job, forget } = message::parse(kind, payload)?;
                self.open(id, State::Asking)?;
                Event::CancelJob(id, job, forget)
            }
            Kind::AskJob => {
                let JobMessage { id: job } = message::parse(kind, payload)?;
                Event::AskJob(id, job)
            }
            _ => {
                let ListJobsMessage { after } = message::parse(Kind::ListJobs, payload)?;
                Event::ListJobs(id, after)
            }
        })
    }

    /// A request about arrays that stay here.
    fn about_handles(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Event, ProtocolError> {
        if kind == Kind::Put {
            let put: Put = message::parse(kind, payload)?;
            self.open(id, State::offered(put.data_bytes, now))?;
            return Ok(Event::Put(id, put));
        }
        if kind == Kind::ListHandles {
            let ListHandlesMessage { after } = message::parse(kind, payload)?;
            return Ok(Event::ListHandles(id, after));
        }
        let HandleMessage { id: handle } = message::parse(kind, payload)?;
        Ok(match kind {
            Kind::Get => {
                self.open(id, State::waiting(now))?;
                Event::Get(id, handle)
            }
            Kind::Drop => Event::Drop(id, handle),
            _ => Event::AskHandle(id, handle),
        })
    }

    /// A request about a part of an array that stays here.
    fn about_parts(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Event, ProtocolError> {
        let part: ArrayPart = message::parse(kind, payload)?;
        if kind == Kind::GetPart {
            self.open(id, State::waiting(now))?;
            return Ok(Event::GetPart(id, part));
        }
        let offered = State::Offered {
            bytes: part.bytes,
            since: now,
            has_room: true,
        };
        self.open(id, offered)?;
        Ok(Event::PutPart(id, part))
    }

    fn greet(&mut self, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
        if kind != Kind::Hello {
            return Err(ProtocolError::NotFarcall);
        }
        let theirs: Hello = message::parse(kind, payload).map_err(|_| ProtocolError::NotFarcall)?;
        let version = theirs.agree()?;
        let mut ours = self.hello.clone();
        (ours.version_min, ours.version_max) = (version, version);
        message::append(&mut self.sender.control, Kind::Hello, 0, &ours);
        self.connected = true;
        self.features = theirs.features & ours.features;
        Ok(Event::Connected(theirs))
    }

    /// Whether the answer is one that a call waits for; those of calls that have ended are late.
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

    fn cancel(&mut self, call: CallId) -> Option<Event> {
        match self.calls.remove(&call)? {
            State::Discarding(_) => None,
            // It is answered all the same.
            State::Asking => {
                self.calls.insert(call, State::Asking);
                None
            }
            _ => {
                self.sender.drop_stream(call);
                let failure = Failure::new(FailureKind::Cancelled, "cancelled by the client");
                message::append(&mut self.sender.control, Kind::Failure, call, &failure);
                Some(Event::Cancelled(call))
            }
        }
    }

    fn data(&mut self, header: &Header) -> Result<Chunk, ProtocolError> {
        match self.calls.get_mut(&header.call) {
            Some(State::Receiving { stream, .. }) => stream.admit(header, false),
            Some(State::Discarding(stream)) => stream.admit(header, true),
            _ => Err(ProtocolError::StrayData),
        }
    }

    /// A chunk of the call's stream has been taken whole.
    fn stream_progress(&mut self, call: CallId, now: Nanos) -> Option<Event> {
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

    fn done(&mut self, call: CallId, now: Nanos) {
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

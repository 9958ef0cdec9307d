//! The serving end of a connection: what drives it is here, what it is asked and answers in a
//! module for each subject.

mod calls;
mod directory;
mod functions;
mod handles;
mod jobs;
mod memory;
mod names;
mod objects;
mod operation;
mod reservations;
mod streams;

use self::memory::about_memory;
use self::names::about_names;
use self::operation::about_operation;
use self::reservations::about_reservations;
use crate::call::{Call, Times};
use crate::callback::CallbackAnswer;
use crate::frame::Header;
use crate::handles::{ArrayPart, HANDLES, Pull, Put};
use crate::hello::{DIRECTORY, GoodbyeMessage, Hello};
use crate::ids::{HandleId, JobId};
use crate::jobs::{JOBS, SubmitRequest};
use crate::kind::Subject;
use crate::memory::SHARED_MEMORY;
use crate::message;
use crate::names::{DataName, NAMES, Name};
use crate::objects::{OBJECTS, ObjectRequest};
use crate::operation::OPERATION;
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::{RESERVATIONS, ReservationRequest};
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
    Submit(CallId, SubmitRequest),
    /// Asks about a durable call: answer with [`Connection::job`] or `fail`.
    AskJob(CallId, JobId),
    /// Wants the results of a durable call: answer with [`Connection::deliver`] or `fail` once
    /// it has ended.
    Fetch(CallId, JobId),
    /// Ends a durable call, and with `true` has it forgotten: answer with [`Connection::job`] or
    /// `fail`.
    CancelJob(CallId, JobId, bool),
    /// Wants the durable calls after this number: answer with [`Connection::jobs`] or `fail`.
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

    /// Whose data are for memory that is there.
    fn offered_with_room(bytes: u64, now: Nanos) -> State {
        State::Offered {
            bytes,
            since: now,
            has_room: true,
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
                Some(Frame::Control(header, payload)) => {
                    self.core.control(&header, payload, now)?
                }
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

impl Core {
    fn control(
        &mut self,
        header: &Header,
        payload: &[u8],
        now: Nanos,
    ) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        if !self.connected {
            return self.greet(kind, payload).map(Some);
        }
        if kind.opens_request() && (id == 0 || self.calls.contains_key(&id)) {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        match kind.subject() {
            Subject::Functions => self.about_functions(kind, id, payload).map(Some),
            Subject::Calls => self.about_calls(header, payload, now),
            Subject::Streams if kind == Kind::Cancel => Ok(self.cancel(id)),
            Subject::Memory if self.has(SHARED_MEMORY) => about_memory(kind, id, payload).map(Some),
            Subject::Objects if self.has(OBJECTS) => {
                self.about_objects(kind, id, payload).map(Some)
            }
            Subject::Jobs if self.has(JOBS) => self.about_jobs(kind, id, payload, now).map(Some),
            Subject::Handles => self.about_handles(kind, id, payload, now).map(Some),
            Subject::Names if self.has(NAMES | HANDLES) => about_names(kind, id, payload).map(Some),
            Subject::Directory if self.has(DIRECTORY) => {
                self.about_directory(kind, id, payload).map(Some)
            }
            Subject::Operation if self.has(OPERATION) => about_operation(kind, id).map(Some),
            Subject::Reservations if self.has(RESERVATIONS) => {
                about_reservations(kind, id, payload).map(Some)
            }
            Subject::Connection if kind == Kind::Goodbye => {
                let GoodbyeMessage { reason } = message::parse(kind, payload)?;
                Err(ProtocolError::Goodbye(reason))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// Whether both sides have all of these features.
    fn has(&self, features: u64) -> bool {
        self.features & features == features
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

    fn open(&mut self, id: CallId, state: State) -> Result<(), ProtocolError> {
        if self.calls.len() >= self.limits.calls {
            return Err(ProtocolError::TooManyCalls(self.limits.calls));
        }
        self.calls.insert(id, state);
        Ok(())
    }
}

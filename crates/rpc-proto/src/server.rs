//! The serving end of a connection. This file drives it; each subject has a module of its own for
//! its requests and answers.

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
use self::reservations::about_reservations;
use crate::call::{Call, Times};
use crate::call_status::CallName;
use crate::callback::CallbackAnswer;
use crate::frame::Header;
use crate::handles::{ArrayPart, HANDLES, Pull, Put, Write};
use crate::hello::{DIRECTORY, GoodbyeMessage, Hello, ProofMessage};
use crate::ids::{HandleId, JobId};
use crate::jobs::{JOBS, SubmitRequest};
use crate::kind::Subject;
use crate::memory::SHARED_MEMORY;
use crate::message;
use crate::names::{DataName, NAMES, Name};
use crate::objects::{OBJECTS, ObjectRequest};
use crate::operation::{AskSnapshot, OPERATION};
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::{RESERVATIONS, ReservationRequest};
use crate::sender::{Sender, Transmit};
use crate::{CallId, Kind, Limits, Nanos, ProtocolError};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// A request of the client.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The client greets. The answer is queued already, unless [`Connection::refuse`] takes it
    /// back; later requests are served. A client with a proof waits: answer with
    /// [`Connection::challenge`], [`Connection::welcome`] or [`Connection::refuse`].
    Connected(Hello),
    /// The client answers the challenge. Answer with [`Connection::welcome`] or
    /// [`Connection::refuse`].
    Proof(String),
    /// Asks for the functions from this index on. Answer with [`Connection::listing`].
    List(CallId, u32),
    /// Asks to serve the functions of an interface file, given by path and text. Answer with
    /// [`Connection::listing`] or `fail`.
    Register(CallId, String, String),
    /// Asks for an interface by name. Answer with [`Connection::interface`] or `fail`.
    Describe(CallId, String),
    /// Asks for the estimate of a call. Answer with [`Connection::estimated`] or `fail`.
    Estimate(CallId, Call),
    /// Asks for the server's status. Answer with [`Connection::status_text`] or `fail`.
    Status(CallId),
    /// Asks for a snapshot of the server. Answer with [`Connection::status_text`] or `fail`.
    AskSnapshot(CallId, AskSnapshot),
    /// Asks the server to drain. Answer with [`Connection::draining`] or `fail`.
    Drain(CallId),
    /// Asks for shared memory of this many bytes. Answer with [`Connection::shared`] or `fail`.
    Share(CallId, u64),
    /// Gives shared memory back, named by the request that asked for it.
    Unshare(CallId),
    /// Asks for an object of this class. Answer with [`Connection::created`] or `fail`. The number
    /// of the request names the object.
    New(CallId, String),
    /// Destroys an object.
    Delete(CallId),
    /// Asks about persistent objects. Answer with [`Connection::objects`] or `fail`. An attached
    /// object has the number of the request.
    Objects(CallId, ObjectRequest),
    /// Asks about reservations. Answer with [`Connection::reservations`] or `fail`.
    Reservations(CallId, ReservationRequest),
    /// Opens a call. Answer with [`Connection::accept`] or [`Connection::fail`] before more input
    /// is handled: until then nobody knows where its data go.
    Call(CallId, Call),
    /// Submits a durable call. Answer like a call with [`Connection::accept`] or
    /// [`Connection::fail`], and with [`Connection::submitted`] after it is recorded. Either ends
    /// or begins the request for the outcome, if the submission has one.
    Submit(CallId, SubmitRequest),
    /// Asks about a durable call. Answer with [`Connection::job`] or `fail`.
    AskJob(CallId, JobId),
    /// Asks for the results of a durable call. Answer with [`Connection::deliver`] or `fail` after
    /// the call has ended.
    Fetch(CallId, JobId),
    /// Cancels a durable call; `true` also forgets it. Answer with [`Connection::job`] or `fail`.
    CancelJob(CallId, JobId, bool),
    /// Asks for the durable calls after this number. Answer with [`Connection::jobs`] or `fail`.
    ListJobs(CallId, u64),
    /// Stores an array. Answer like a call with [`Connection::accept`] or [`Connection::fail`], and
    /// with [`Connection::handle`] after it has arrived.
    Put(CallId, Put),
    /// Fills a part of a stored array. Answer like a call with [`Connection::accept`] or
    /// [`Connection::fail`], and with [`Connection::handle`] after it has arrived.
    PutPart(CallId, ArrayPart),
    /// Asks for a part of an array. Answer with [`Connection::deliver`] or `fail`.
    GetPart(CallId, ArrayPart),
    /// Asks for a stored array. Answer with [`Connection::deliver`] or `fail`.
    Get(CallId, HandleId),
    /// Asks about an array. Answer with [`Connection::handle`] or `fail`.
    AskHandle(CallId, HandleId),
    /// Drops an array. Answer with [`Connection::handle`] or `fail`.
    Drop(CallId, HandleId),
    /// Lends an array to another server. Answer with [`Connection::handle`] or `fail`.
    Lend(CallId, HandleId),
    /// Asks to read an array from another server. Answer with [`Connection::handle`] or `fail`.
    Pull(CallId, Pull),
    /// Asks to write an array to an address. Answer with [`Connection::receipt`] or `fail`.
    Write(CallId, Write),
    /// Asks for the arrays after this number. Answer with [`Connection::handles`].
    ListHandles(CallId, u64),
    /// Gives an array a name. Answer with [`Connection::named`] or `fail`.
    Name(CallId, Name),
    /// Asks for data by name. Answer with [`Connection::named`] or `fail`.
    AskName(CallId, DataName),
    /// Asks for the named data after this name. Answer with [`Connection::names`].
    ListNames(CallId, Option<DataName>),
    /// A message of this kind for the directory of a metaserver, unread. Answer with
    /// [`Connection::directory`] or `fail`. [`Kind::Observe`] has no answer.
    Directory(CallId, Kind, Vec<u8>),
    /// The data stream of an accepted call is complete.
    Ready(CallId),
    /// Asks for the status of a call. Answer with [`Connection::call_status`] or `fail`.
    AskCall(CallId, CallName),
    /// Answers a callback of a running call.
    Answer(CallId, CallbackAnswer),
    /// The client gave up an accepted call. It is answered and closed already.
    Cancelled(CallId),
}

enum State {
    Offered {
        bytes: u64,
        since: Nanos,
        /// Whether its data stream arrives without a grant.
        has_room: bool,
    },
    Receiving {
        stream: Stream,
        since: Nanos,
    },
    Running {
        received: Nanos,
        send: u64,
        /// Whether a callback waits for its answer.
        calls_back: bool,
    },
    Sending {
        since: Nanos,
        times: Times,
        bytes: u64,
    },
    /// A request whose answer takes a while.
    Asking,
    /// Failed while its data were arriving.
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

    /// The state of an offered request whose memory exists already.
    fn offered_with_room(bytes: u64, now: Nanos) -> State {
        State::Offered {
            bytes,
            since: now,
            has_room: true,
        }
    }

    /// The state of a request without data whose answer has some.
    fn waiting(now: Nanos) -> State {
        State::Running {
            received: now,
            send: 0,
            calls_back: false,
        }
    }
}

/// How far a client has come that proves who it is.
enum Proving {
    Not,
    /// It has greeted.
    Greeted,
    /// It was asked for its proof.
    Challenged,
    /// It has sent its proof.
    Proved,
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
    proving: Proving,
    /// The features that both sides have.
    features: u64,
    sender: Sender,
    calls: BTreeMap<CallId, State>,
    /// Submissions whose client has asked for the outcome, too, and the requests for it.
    fetches: BTreeMap<CallId, CallId>,
    /// The call whose last chunk the latest poll has written.
    sent: Option<CallId>,
    moved: Moved,
}

/// Streams that have ended: bytes and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The latest argument stream.
    pub up: Option<(u64, Nanos)>,
    /// The latest result stream.
    pub down: Option<(u64, Nanos)>,
}

impl Connection {
    /// A connection that waits for the client's greeting and answers it with `hello`.
    pub fn new(limits: Limits, hello: Hello) -> Connection {
        let sender = Sender::new(&limits);
        let receiver = Receiver::new(limits.clone());
        let core = Core {
            limits,
            hello,
            connected: false,
            proving: Proving::Not,
            features: 0,
            sender,
            calls: BTreeMap::new(),
            fetches: BTreeMap::new(),
            sent: None,
            moved: Moved::default(),
        };
        Connection { receiver, core }
    }

    /// Takes bytes from the client. Returns how many, and an event if one is complete. Takes none
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

    /// Tells the client why the connection ends. Close it after this is sent.
    pub fn goodbye(&mut self, reason: impl Into<String>) {
        let message = GoodbyeMessage {
            reason: reason.into(),
        };
        message::append(&mut self.core.sender.control, Kind::Goodbye, 0, &message);
    }

    /// Asks a client that has greeted with a first message for its proof.
    pub fn challenge(&mut self, text: String) {
        if let Proving::Greeted = self.core.proving {
            self.core.proving = Proving::Challenged;
            let message = ProofMessage { text };
            message::append(&mut self.core.sender.control, Kind::Challenge, 0, &message);
        }
    }

    /// Greets a client that waits for it, with the signature of the server if there is one. Later
    /// requests are served.
    pub fn welcome(&mut self, signature: Option<String>) {
        if let Proving::Greeted | Proving::Proved = self.core.proving {
            self.core.proving = Proving::Not;
            self.core.hello.proof = signature;
            self.core.answer_greeting();
        }
    }

    /// Refuses a client that has just greeted. The reason replaces the answer to its greeting.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.core.sender.control.clear();
        self.goodbye(reason);
    }

    /// Writes the next frames; see [`Transmit`].
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, now: Nanos) -> Transmit {
        // The caller has sent the last chunk by now, so RECV ends here.
        if let Some(call) = self.core.sent.take() {
            self.core.done(call, now);
        }
        let (transmit, finished) = self.core.sender.poll(out);
        if let (Transmit::Data(chunk), true) = (transmit, finished) {
            self.core.sent = Some(chunk.call);
        }
        transmit
    }

    /// Whether so many answers wait to be sent that the server takes no more requests: the client
    /// sends requests and does not read. It ends as `poll_transmit` takes the answers.
    pub fn is_congested(&self) -> bool {
        self.core.sender.control.len() > self.core.limits.control_bytes as usize
    }

    /// The streams that have ended since the last question.
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
            return self.before_greeting(kind, payload).map(Some);
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
            Subject::Operation if self.has(OPERATION) => {
                self.about_operation(kind, id, payload).map(Some)
            }
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

    fn before_greeting(&mut self, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
        match (&self.proving, kind) {
            (Proving::Not, _) => self.greet(kind, payload),
            (_, Kind::Goodbye) => {
                let GoodbyeMessage { reason } = message::parse(kind, payload)?;
                Err(ProtocolError::Goodbye(reason))
            }
            (Proving::Challenged, Kind::Proof) => {
                let ProofMessage { text } = message::parse(kind, payload)?;
                self.proving = Proving::Proved;
                Ok(Event::Proof(text))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    fn greet(&mut self, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
        if kind != Kind::Hello {
            return Err(ProtocolError::NotFarcall);
        }
        let theirs: Hello = message::parse(kind, payload).map_err(|_| ProtocolError::NotFarcall)?;
        let version = theirs.agree()?;
        (self.hello.version_min, self.hello.version_max) = (version, version);
        self.features = theirs.features & self.hello.features;
        match theirs.proof {
            Some(_) => self.proving = Proving::Greeted,
            None => self.answer_greeting(),
        }
        Ok(Event::Connected(theirs))
    }

    fn answer_greeting(&mut self) {
        message::append(&mut self.sender.control, Kind::Hello, 0, &self.hello);
        self.connected = true;
    }

    fn open(&mut self, id: CallId, state: State) -> Result<(), ProtocolError> {
        if self.calls.len() >= self.limits.calls {
            return Err(ProtocolError::TooManyCalls(self.limits.calls));
        }
        self.calls.insert(id, state);
        Ok(())
    }
}

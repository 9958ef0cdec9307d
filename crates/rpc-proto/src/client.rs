//! The client's end of a connection. This module has its state and drives it; the modules below
//! have what the client asks and what it is told. The number of open requests is bounded by what
//! the server allows. An input that breaks the protocol ends the connection with an error.

mod calls;
mod requests;
mod streams;

use crate::call::Times;
use crate::call_status::CallStatus;
use crate::callback::Callback;
use crate::failure::Failure;
use crate::frame::Header;
use crate::functions::{Estimate, FunctionInterface, Listing};
use crate::handles::{HandlePage, HandleRecord, Receipt};
use crate::hello::{GoodbyeMessage, Hello, ProofMessage};
use crate::ids::{HandleId, JobId};
use crate::jobs::{DurableDescription, DurablePage};
use crate::kind::Subject;
use crate::message;
use crate::names::{NamePage, NameRecord};
use crate::objects::ObjectPage;
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::ReservationPage;
use crate::sender::{CREDIT, Sender, Transmit};
use crate::{CallId, Kind, Limits, ProtocolError};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

/// A message of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server greets: the connection may be used.
    Connected(Hello),
    /// The server asks for a proof before it greets: answer with [`Connection::prove`].
    Challenge(String),
    /// The request has ended with this answer.
    Answered(CallId, Answer),
    /// Output of the function of a running call.
    Output(CallId, Vec<u8>),
    /// The running call calls a function of the client: answer with [`Connection::answer`].
    Callback(CallId, Callback),
    /// The request failed.
    Failed(CallId, Failure),
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A page of the functions served.
    Listing(Listing),
    /// An interface in canonical IDL, and the number under which to call it.
    Interface(FunctionInterface),
    /// The estimate of a call.
    Estimated(Estimate),
    /// The status of a call.
    CallStatus(CallStatus),
    /// The status of the server, as a JSON object.
    StatusText(String),
    /// The server drains, and ends when this many calls have ended.
    Draining(u64),
    /// The directory of a metaserver answers with a message of this kind.
    Directory(Kind, Vec<u8>),
    /// Shared memory of this many bytes. The shell has received the memory itself. Calls name it by
    /// the number of the request, until [`Connection::unshare`].
    Shared(u64),
    /// The server has recorded the durable call and will run it.
    Submitted(JobId),
    /// The status of a durable call.
    Job(Box<DurableDescription>),
    /// A page of durable calls.
    Jobs(DurablePage),
    /// The status of a stored array.
    Handle(HandleRecord),
    /// A page of stored arrays.
    Handles(HandlePage),
    /// What was written to an address.
    Receipt(Receipt),
    /// The status of named data.
    Named(NameRecord),
    /// A page of named data.
    Names(NamePage),
    /// The status of persistent objects. The number of its request names an attached object, until
    /// [`Connection::delete`].
    Objects(ObjectPage),
    /// The status of reservations.
    Reservations(ReservationPage),
    /// The object exists. Calls name it by the number of the request, until
    /// [`Connection::delete`].
    Created,
    /// The call is complete: its whole result stream has been taken.
    Done(Times),
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
    /// A durable call, or a stored array, whose data are being sent.
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
    /// The greeting and the proof, which go before all requests.
    greeting: Vec<u8>,
    /// The server may ask for a proof.
    proves: bool,
    /// Requests wait until the server greets.
    waits: bool,
    /// The features that this side offered.
    features: u64,
    last_id: CallId,
    sender: Sender,
    requests: BTreeMap<CallId, Request>,
    /// The server grants room for long data streams.
    grants: bool,
    /// Requests that the server lets be open at once.
    most: usize,
    /// The same for those with data streams: they leave some to the others.
    most_open: usize,
    /// Requests that wait until others have ended.
    waiting: VecDeque<Opening>,
    /// The stored arrays of calls that the server may not have accepted: their frames go with their
    /// data, or they wait for a grant.
    unsent: Vec<(CallId, Vec<HandleId>)>,
}

/// A request to be opened.
struct Opening {
    call: CallId,
    frame: Vec<u8>,
    /// Bytes of its data stream.
    total: u64,
    /// Whether they are for memory that is there.
    has_room: bool,
    /// Whether its frame is all of it.
    is_plain: bool,
    /// The stored arrays that it uses.
    arrays: Vec<HandleId>,
}

impl Opening {
    /// A request whose data stream has so many bytes.
    fn new(call: CallId, frame: Vec<u8>, total: u64) -> Opening {
        Opening {
            call,
            frame,
            total,
            has_room: false,
            is_plain: false,
            arrays: Vec::new(),
        }
    }
}

impl Connection {
    /// Starts with the greeting in the outgoing queue. Requests may follow at once; if the greeting
    /// has a proof, they are sent after the server has greeted.
    pub fn new(limits: Limits, hello: &Hello) -> Connection {
        let mut greeting = Vec::new();
        message::append(&mut greeting, Kind::Hello, 0, hello);
        let core = Core {
            connected: false,
            greeting,
            proves: hello.proof.is_some(),
            waits: hello.proof.is_some(),
            features: hello.features,
            last_id: 0,
            sender: Sender::new(&limits),
            requests: BTreeMap::new(),
            grants: false,
            most: usize::MAX,
            most_open: usize::MAX,
            waiting: VecDeque::new(),
            unsent: Vec::new(),
        };
        Connection {
            receiver: Receiver::new(limits.clone()),
            limits,
            core,
        }
    }

    /// Answers a challenge of the server.
    pub fn prove(&mut self, text: String) {
        let message = ProofMessage { text };
        message::append(&mut self.core.greeting, Kind::Proof, 0, &message);
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
                Some(Frame::Control(header, payload)) => self.core.control(&header, payload)?,
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
        let greets = !self.core.greeting.is_empty();
        out.append(&mut self.core.greeting);
        let transmit = match self.core.waits {
            true => Transmit::Idle,
            false => {
                self.core.open_next();
                self.core.sender.poll(out).0
            }
        };
        match transmit {
            Transmit::Idle if greets => Transmit::Frames,
            other => other,
        }
    }

    /// Whether no request is open and nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.core.requests.is_empty() && self.core.greeting.is_empty() && self.core.sender.is_idle()
    }
}

impl Core {
    fn control(&mut self, header: &Header, payload: &[u8]) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        if !self.connected || kind.subject() == Subject::Connection {
            return self.about_connection(kind, payload).map(Some);
        }
        // Receivers ignore a failure of a request that is not open.
        if kind != Kind::Failure && self.waiting_at(id).is_some() {
            return Err(ProtocolError::OutOfPlace(kind));
        }
        match kind.subject() {
            Subject::Calls => self.about_calls(header, payload),
            Subject::Streams => self.about_streams(kind, id, payload),
            _ => self.answered(kind, id, payload).map(Some),
        }
    }

    /// The greeting, once and first, or the reason why the connection ends.
    fn about_connection(&mut self, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Hello if !self.connected => self.greeted(payload),
            Kind::Challenge if !self.connected && core::mem::take(&mut self.proves) => {
                let ProofMessage { text } = message::parse(kind, payload)?;
                Ok(Event::Challenge(text))
            }
            Kind::Goodbye => {
                let message: GoodbyeMessage = message::parse(kind, payload)?;
                Err(ProtocolError::Goodbye(message.reason))
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    fn greeted(&mut self, payload: &[u8]) -> Result<Event, ProtocolError> {
        let hello: Hello =
            message::parse(Kind::Hello, payload).map_err(|_| ProtocolError::NotFarcall)?;
        hello.agree()?;
        (self.connected, self.waits) = (true, false);
        self.grants = self.features & hello.features & CREDIT != 0;
        if let Some(calls) = hello.calls {
            self.most = calls.max(1) as usize;
            // Some are left for requests without data streams.
            self.most_open = (calls - (calls / 2).min(32)).max(1) as usize;
        }
        self.open_next();
        Ok(Event::Connected(hello))
    }
}

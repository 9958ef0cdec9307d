//! The calling end of a connection: what drives it is here, what it asks and is told in a module
//! for each subject.

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

use crate::call::Times;
use crate::callback::Callback;
use crate::failure::Failure;
use crate::frame::Header;
use crate::functions::{Estimate, Listing};
use crate::handles::{HANDLES, HandlePage, HandleRecord};
use crate::hello::{DIRECTORY, GoodbyeMessage, Hello};
use crate::ids::JobId;
use crate::jobs::{JOBS, JobDescription, JobPage};
use crate::kind::Subject;
use crate::message;
use crate::names::{NAMES, NamePage, NameRecord};
use crate::objects::ObjectPage;
use crate::receiver::{Chunk, Frame, Receiver, Stream};
use crate::reservations::{RESERVATIONS, ReservationPage};
use crate::sender::{CREDIT, Sender, Transmit};
use crate::{CallId, Kind, Limits, ProtocolError};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use minicbor::Decode;

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
        /// For [`Call::function`](crate::Call::function).
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
        self.core.open_next();
        self.core.sender.poll(out).0
    }

    /// Whether no request is open and nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.core.requests.is_empty() && self.core.sender.is_idle()
    }
}

impl Core {
    fn control(&mut self, header: &Header, payload: &[u8]) -> Result<Option<Event>, ProtocolError> {
        let (kind, id) = (header.kind, header.call);
        if !self.connected || kind.subject() == Subject::Connection {
            return self.about_connection(kind, payload).map(Some);
        }
        match kind.subject() {
            Subject::Functions => self.about_functions(kind, id, payload).map(Some),
            Subject::Calls => self.about_calls(header, payload),
            Subject::Streams => self.about_streams(kind, id, payload),
            Subject::Memory => self.about_memory(kind, id, payload).map(Some),
            Subject::Objects => self.about_objects(kind, id, payload).map(Some),
            Subject::Jobs if self.features & JOBS != 0 => {
                self.about_jobs(kind, id, payload).map(Some)
            }
            Subject::Handles if self.features & HANDLES != 0 => {
                self.about_handles(kind, id, payload).map(Some)
            }
            Subject::Names if self.features & NAMES != 0 => {
                self.about_names(kind, id, payload).map(Some)
            }
            Subject::Directory if self.features & DIRECTORY != 0 => {
                self.about_directory(kind, id, payload).map(Some)
            }
            Subject::Operation => self.about_operation(kind, id, payload).map(Some),
            Subject::Reservations if self.features & RESERVATIONS != 0 => {
                self.about_reservations(kind, id, payload).map(Some)
            }
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }

    /// The greeting, once and first, or the reason why the connection ends.
    fn about_connection(&mut self, kind: Kind, payload: &[u8]) -> Result<Event, ProtocolError> {
        match kind {
            Kind::Hello if !self.connected => self.greeted(payload),
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
        self.connected = true;
        self.grants = self.features & hello.features & CREDIT != 0;
        if let Some(calls) = hello.calls {
            // Some are left for requests without data streams, which do not wait.
            self.most_open = (calls - (calls / 2).min(32)).max(1) as usize;
        }
        self.open_next();
        Ok(Event::Connected(hello))
    }

    /// What a query is answered with; the query ends.
    fn answered<'a, T: Decode<'a, ()>>(
        &mut self,
        kind: Kind,
        id: CallId,
        payload: &'a [u8],
    ) -> Result<T, ProtocolError> {
        self.close_query(id, kind)?;
        message::parse(kind, payload)
    }

    fn close_query(&mut self, id: CallId, kind: Kind) -> Result<(), ProtocolError> {
        match self.requests.remove(&id) {
            Some(Request::Query) => Ok(()),
            _ => Err(ProtocolError::OutOfPlace(kind)),
        }
    }
}

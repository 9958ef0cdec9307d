//! One connection: the protocol's state, and the calls, objects and memory of its client. `clients`
//! has all connections, and `engine` handles what arrives. While a request waits for memory, no
//! more input of the connection is handled.

use crate::action::Segment;
use crate::event::Accepted;
use crate::keys::{CallKey, WorkerKey};
use crate::map::Map;
use core::net::IpAddr;
use farcall_rpc_proto::{
    Call, CallId, Failure, HandleId, Hello, Limits, Nanos, Pull, Put, SubmitRequest, User, server,
};
use std::collections::VecDeque;
use std::rc::Rc;

/// Most shared memory segments of one connection.
pub const MAX_SEGMENTS: usize = 200;

/// A request with data that a client wants to send.
#[derive(Debug)]
pub(crate) enum Offer {
    Call(Call),
    SubmitRequest(SubmitRequest),
    Put(Put),
    Pull(Pull),
}

/// An offer, and when it came.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) id: CallId,
    pub(crate) offer: Offer,
    pub(crate) asked: Nanos,
}

impl Offer {
    /// The offer with its request and the time at which it came.
    pub(crate) fn came(self, id: CallId, asked: Nanos) -> Offered {
        Offered {
            id,
            offer: self,
            asked,
        }
    }

    /// Length of its data stream in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        match self {
            Offer::Put(put) => put.data_bytes,
            _ => self.call().map_or(0, |call| call.data_bytes),
        }
    }

    /// The call, if it is one.
    pub(crate) fn call(&self) -> Option<&Call> {
        match self {
            Offer::Call(call) => Some(call),
            Offer::SubmitRequest(submission) => Some(&submission.call),
            Offer::Put(_) | Offer::Pull(_) => None,
        }
    }
}

/// An object of a client.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Index of the interface file, and of the class in it.
    pub(crate) file: usize,
    pub(crate) class: String,
    /// The worker that holds it, or the failure of later calls if the worker has ended.
    pub(crate) worker: Result<WorkerKey, Failure>,
    /// Its id, if it is persistent.
    pub(crate) persistent: Option<HandleId>,
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name in the log.
    pub(crate) name: String,
    /// The host of the client; `None` on a Unix socket.
    pub(crate) host: Option<IpAddr>,
    /// Whether its bytes cross a network link.
    pub(crate) crosses_link: bool,
    /// Whether it may drain the server and register libraries.
    pub(crate) is_operator: bool,
    /// Its program and version.
    pub(crate) agent: String,
    /// The random number of the client; 0 if it has told none.
    pub(crate) client: u64,
    /// When it connected.
    pub(crate) since: Nanos,
}

/// How fast bytes pass in one direction, over windows of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// When the window began.
    since: Nanos,
    /// The bytes that have passed since then.
    bytes: u64,
}

impl Pace {
    /// Counts bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Begins a new window.
    pub(crate) fn restart(&mut self, now: Nanos) {
        *self = Pace {
            since: now,
            bytes: 0,
        };
    }

    /// Whether the window has lasted this long.
    pub(crate) fn is_over(&self, window: Nanos, now: Nanos) -> bool {
        now.saturating_sub(self.since) >= window
    }

    /// Whether fewer than `least` bytes have passed in the window, for a transfer that began before
    /// it.
    pub(crate) fn is_slow(&self, began: Nanos, least: u64) -> bool {
        began <= self.since && self.bytes < least
    }
}

/// One client connection.
pub struct Connection {
    pub(crate) peer: Peer,
    pub(crate) user: User,
    pub(crate) proto: server::Connection,
    pub(crate) connected: bool,
    /// The only array that it can read, if it has greeted with the name of a lent array.
    pub(crate) loan: Option<HandleId>,
    /// Whether it has ended. Nothing more of it counts then.
    pub(crate) closed: bool,
    /// Open calls by call id.
    pub(crate) calls: Map<CallId, CallKey>,
    /// Memory shared with the client, by the request that asked for it.
    pub(crate) segments: Map<CallId, Rc<Segment>>,
    /// Objects, by the request that asked for them.
    pub(crate) objects: Map<CallId, Object>,
    /// A request that waits for memory. Nothing more is read until it has some.
    pub(crate) waiting: Option<Offered>,
    /// Requests that wait for a grant, in order.
    pub(crate) held: VecDeque<Offered>,
    /// Calls whose results are being written. They are released after everything is written.
    pub(crate) sending: Vec<CallKey>,
    /// When the client last received bytes.
    pub(crate) taken: Nanos,
    /// How fast it sends array data, and how fast it reads, by [`Direction`](crate::Direction).
    pub(crate) paces: [Pace; 2],
    /// Whether the shell knows that there is output.
    pub(crate) has_output: bool,
}

impl Connection {
    pub(crate) fn new(accepted: Accepted, limits: Limits, hello: Hello, now: Nanos) -> Connection {
        Connection {
            peer: Peer {
                name: accepted.peer,
                host: accepted.host,
                crosses_link: !accepted.is_unix,
                is_operator: false,
                agent: String::new(),
                client: 0,
                since: now,
            },
            user: accepted.user,
            proto: server::Connection::new(limits, hello),
            connected: false,
            loan: None,
            closed: false,
            calls: Map::default(),
            segments: Map::default(),
            objects: Map::default(),
            waiting: None,
            held: VecDeque::new(),
            sending: Vec::new(),
            taken: now,
            paces: [Pace::default(); 2],
            has_output: false,
        }
    }

    /// Whether it has greeted and has nothing under way.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = self.waiting.is_some() || !self.held.is_empty() || self.has_output;
        self.connected && self.proto.open_calls() == 0 && !waits
    }

    /// Takes the requests that wait for memory, in their order.
    pub(crate) fn take_waiting(&mut self) -> Vec<Offered> {
        let held = std::mem::take(&mut self.held);
        self.waiting.take().into_iter().chain(held).collect()
    }

    /// Whether more input can be handled now.
    pub(crate) fn takes_input(&self) -> bool {
        self.waiting.is_none() && !self.proto.is_congested() && !self.closed
    }
}

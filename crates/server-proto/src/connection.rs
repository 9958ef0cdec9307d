//! One connection, as far as the server decides about it.

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

/// Segments of one connection.
pub const MAX_SEGMENTS: usize = 200;

/// What a client offers.
#[derive(Debug)]
pub(crate) enum Offer {
    Call(Call),
    SubmitRequest(SubmitRequest),
    Put(Put),
    Pull(Pull),
}

impl Offer {
    /// Bytes of its data stream.
    pub(crate) fn data_bytes(&self) -> u64 {
        match self {
            Offer::Put(put) => put.data_bytes,
            _ => self.call().map_or(0, |call| call.data_bytes),
        }
    }

    /// The call that it is, if it is one.
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
    /// The file and the class.
    pub(crate) file: usize,
    pub(crate) class: String,
    /// The worker that holds it, or what becomes of calls because there is none any more.
    pub(crate) worker: Result<WorkerKey, Failure>,
    /// Its name, where it stays when its connections end.
    pub(crate) persistent: Option<HandleId>,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// For the log.
    pub(crate) name: String,
    /// The host it comes from; none on a Unix socket.
    pub(crate) host: Option<IpAddr>,
    /// Whether its bytes cross a link.
    pub(crate) crosses_link: bool,
    /// Whether it may end the server and register libraries.
    pub(crate) is_operator: bool,
    /// What it says of itself.
    pub(crate) agent: String,
    /// When it has connected.
    pub(crate) since: Nanos,
}

/// One client connection.
pub struct Connection {
    pub(crate) peer: Peer,
    pub(crate) user: User,
    pub(crate) proto: server::Connection,
    pub(crate) connected: bool,
    /// It ends: nothing more of it counts.
    pub(crate) closed: bool,
    /// Open calls by their numbers.
    pub(crate) calls: Map<CallId, CallKey>,
    /// Memory shared with the client, by the request that asked for it.
    pub(crate) segments: Map<CallId, Rc<Segment>>,
    /// By the request that asked for it.
    pub(crate) objects: Map<CallId, Object>,
    /// A call that waits for memory; nothing is read until it has some.
    pub(crate) waiting: Option<(CallId, Offer)>,
    /// Calls that wait for a grant, in their order.
    pub(crate) held: VecDeque<(CallId, Offer)>,
    /// Calls whose results are being written; released once all is out.
    pub(crate) sending: Vec<CallKey>,
    /// When the client has taken something last.
    pub(crate) taken: Nanos,
    /// Whether there is something to be written that the shell knows of.
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
                since: now,
            },
            user: accepted.user,
            proto: server::Connection::new(limits, hello),
            connected: false,
            closed: false,
            calls: Map::default(),
            segments: Map::default(),
            objects: Map::default(),
            waiting: None,
            held: VecDeque::new(),
            sending: Vec::new(),
            taken: now,
            has_output: false,
        }
    }

    /// Whether it has greeted, and has nothing under way.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = self.waiting.is_some() || !self.held.is_empty() || self.has_output;
        self.connected && self.proto.open_calls() == 0 && !waits
    }

    /// Whether more input can be handled now.
    pub(crate) fn takes_input(&self) -> bool {
        self.waiting.is_none() && !self.proto.is_congested() && !self.closed
    }
}

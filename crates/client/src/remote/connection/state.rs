//! Moves bytes between the socket, the protocol and the callers' arrays, for every request that
//! is open on a connection. Whoever holds the lock moves them for all.

mod events;
mod incoming;
mod outgoing;

use self::incoming::Input;
use self::outgoing::Outgoing;
use super::Connection;
use super::calls::Bulk;
use super::pace::Pace;
use super::transfer::Transfer;
use crate::output::Printed;
use crate::progress::Progress;
use crate::remote::socket::Socket;
use farcall_rpc_proto::client::{self, Answer};
use farcall_rpc_proto::{Call, CallId, Callback, Failure, Hello, Limits, ProtocolError};
use farcall_spin::Seat;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Bytes read at once besides array data.
const INPUT_BYTES: usize = 64 << 10;
/// Most buffers of one system call.
const MAX_SLICES: usize = 512;
/// Reads before another thread may have the lock: about a megabyte of array data.
const TURN_READS: usize = 16;
/// Array bytes gathered before they are written.
const GATHER_BYTES: u64 = 1 << 20;
/// The same, and bytes of a frame, on the way to another host: what a call that is given up still
/// sends.
const REMOTE_BYTES: u32 = 64 << 10;

/// Why a request came to nothing.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The server says so.
    Failed(Failure),
    Io(io::ErrorKind, String),
    Protocol(ProtocolError),
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Loss {
        Loss::Io(error.kind(), error.to_string())
    }
}

/// An open request.
#[derive(Default)]
struct Open {
    transfer: Option<Transfer>,
    /// What the called function wants of its caller.
    callback: Option<Box<Callback>>,
    /// What it prints, where its caller wants that.
    printed: Option<Arc<Printed>>,
    /// Nobody wants its end any more.
    abandoned: bool,
    /// Where its arrays are large.
    bulk: Option<Bulk>,
}

/// A connection's state.
pub(crate) struct State {
    proto: client::Connection,
    pub(crate) peer: Peer,
    /// Memory that the server handed over and did not speak of yet.
    handed_over: VecDeque<OwnedFd>,
    /// Memory that requests have asked for, until they take it.
    memories: HashMap<CallId, OwnedFd>,
    open: HashMap<CallId, Open>,
    ended: HashMap<CallId, Result<Answer, Loss>>,
    /// Calls of which results had begun to come when the connection was lost.
    returning: HashSet<CallId>,
    /// Which thread waits at the socket for all, and which are to be woken.
    pub(crate) seat: Seat<CallId, Connection>,
    /// The connection is of no more use.
    pub(crate) lost: Option<Loss>,
    input: Input,
    outgoing: Outgoing,
}

/// What the server has said of itself in its greeting.
#[derive(Default)]
pub(crate) struct Peer {
    /// It has greeted.
    has_greeted: bool,
    /// Its optional features.
    pub(crate) features: u64,
    /// Its program and version.
    pub(crate) agent: String,
    /// The Unix socket on which a server on this host listens too.
    pub(crate) local: Option<String>,
    /// Other addresses at which it listens.
    pub(crate) ways: Vec<String>,
}

impl Peer {
    fn of(hello: Hello) -> Peer {
        Peer {
            has_greeted: true,
            features: hello.features,
            agent: hello.agent,
            local: hello.local,
            ways: hello.ways.unwrap_or_default(),
        }
    }
}

/// What a thread at the socket waits for besides answers.
#[derive(Clone, Copy)]
pub(crate) struct Outlook {
    /// Room in the socket.
    pub(crate) writing: bool,
    /// A time to write on.
    pub(crate) pause: Option<Instant>,
}

impl State {
    pub(crate) fn new(hello: &Hello, is_remote: bool) -> State {
        let mut limits = Limits {
            calls: 1 << 16,
            ..Limits::default()
        };
        let mut gather_bytes = GATHER_BYTES;
        if is_remote {
            limits.chunk_bytes = REMOTE_BYTES;
            gather_bytes = REMOTE_BYTES.into();
        }
        State {
            proto: client::Connection::new(limits, hello),
            peer: Peer::default(),
            handed_over: VecDeque::new(),
            memories: HashMap::new(),
            open: HashMap::new(),
            ended: HashMap::new(),
            returning: HashSet::new(),
            seat: Seat::default(),
            lost: None,
            input: Input::new(),
            outgoing: Outgoing::new(gather_bytes),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.peer.has_greeted
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Says something that has no answer.
    pub(super) fn tell(&mut self, tell: impl FnOnce(&mut client::Connection)) {
        tell(&mut self.proto);
    }

    /// How far a call has come that has not ended.
    pub(crate) fn transfer_progress(&self, id: CallId) -> Option<Progress> {
        Some(self.open.get(&id)?.transfer.as_ref()?.progress())
    }

    pub(crate) fn call(
        &mut self,
        call: &Call,
        transfer: Transfer,
        printed: Option<Arc<Printed>>,
    ) -> Result<CallId, Loss> {
        let id = self
            .proto
            .call(call, transfer.result_bytes())
            .map_err(Loss::Protocol)?;
        self.open.insert(
            id,
            Open {
                transfer: Some(transfer),
                printed,
                ..Open::default()
            },
        );
        Ok(id)
    }

    /// Opens a request with data, either way.
    pub(crate) fn move_data(
        &mut self,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        transfer: Transfer,
    ) -> Result<CallId, Loss> {
        let id = open(&mut self.proto).map_err(Loss::Protocol)?;
        let open = Open {
            transfer: Some(transfer),
            ..Open::default()
        };
        self.open.insert(id, open);
        Ok(id)
    }

    /// Opens a request without data.
    pub(crate) fn ask(
        &mut self,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
    ) -> Result<CallId, Loss> {
        let id = open(&mut self.proto).map_err(Loss::Protocol)?;
        self.open.insert(id, Open::default());
        Ok(id)
    }

    /// The callback of a call that waits for its answer; told once.
    pub(crate) fn take_callback(&mut self, id: CallId) -> Option<Callback> {
        let callback = self.open.get_mut(&id)?.callback.take()?;
        Some(*callback)
    }

    /// Whether a callback of the call waits for its answer.
    pub(crate) fn has_callback(&self, id: CallId) -> bool {
        let open = self.open.get(&id);
        open.is_some_and(|open| open.callback.is_some())
    }

    /// Whether the caller has something to do for the call.
    pub(crate) fn has_work(&self, id: CallId) -> bool {
        let has_lines = |open: &Open| open.printed.as_ref().is_some_and(|p| p.has_lines());
        self.has_callback(id) || self.open.get(&id).is_some_and(has_lines)
    }

    /// The end of a request, if it has come; told once.
    pub(crate) fn take_end(&mut self, id: CallId) -> Option<Result<Answer, Loss>> {
        match (self.ended.remove(&id), &self.lost) {
            (None, Some(loss)) if !self.open.contains_key(&id) => Some(Err(loss.clone())),
            (end, _) => end,
        }
    }

    /// The memory that a request has asked for; told once.
    pub(crate) fn take_memory(&mut self, id: CallId) -> Option<OwnedFd> {
        self.memories.remove(&id)
    }

    /// Whether results of a call had begun to come when the connection was lost.
    pub(crate) fn was_returning(&self, id: CallId) -> bool {
        self.returning.contains(&id)
    }

    pub(crate) fn has_ended(&self, id: CallId) -> bool {
        self.open.get(&id).is_none_or(|open| open.abandoned)
    }

    /// The arrays of a call are large.
    pub(crate) fn is_bulk(&mut self, id: CallId, bulk: Bulk) {
        if let Some(open) = self.open.get_mut(&id) {
            open.bulk = Some(bulk);
        }
    }

    /// Gives a request up: its memory is not touched any more.
    pub(crate) fn abandon(&mut self, id: CallId) {
        self.ended.remove(&id);
        self.memories.remove(&id);
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        open.abandoned = true;
        open.transfer = None;
        self.seat.end(id);
        if !self.proto.cancel(id) {
            self.open.remove(&id);
        }
        self.outgoing.withdraw(id);
    }

    /// Whether something waits to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outgoing.has_unsent()
    }

    /// What is to be waited for besides answers.
    pub(crate) fn outlook(&self) -> Outlook {
        let pause = self.outgoing.pause();
        Outlook {
            writing: self.has_unsent() && pause.is_none(),
            pause,
        }
    }

    /// From now on it writes no faster than `pace` lets it.
    pub(super) fn set_pace(&mut self, pace: Option<Pace>) {
        self.outgoing.set_pace(pace);
    }

    /// Writes and reads until the socket has no more, the request `until` has ended, or it is time
    /// to let another thread have the lock; returns `true` in the last case. An error ends every
    /// open request.
    pub(crate) fn progress(&mut self, socket: &Socket, until: Option<CallId>) -> bool {
        if self.lost.is_some() {
            return false;
        }
        match self.try_progress(socket, until) {
            Ok(more) => more,
            Err(loss) => {
                self.lose(loss);
                false
            }
        }
    }

    /// Writes as much as the socket takes at once.
    pub(crate) fn send(&mut self, socket: &Socket) {
        if self.lost.is_none()
            && let Err(loss) = self.write(socket)
        {
            let loss = self.last_words(socket).unwrap_or(loss);
            self.lose(loss);
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.seat.end_all();
        for (id, open) in self.open.drain() {
            if !open.abandoned {
                let progress = open.transfer.as_ref().map(Transfer::progress);
                if progress.is_some_and(|progress| progress.received > 0) {
                    self.returning.insert(id);
                }
                self.ended.insert(id, Err(loss.clone()));
            }
        }
        self.outgoing.clear();
        self.lost = Some(loss);
    }

    fn try_progress(&mut self, socket: &Socket, until: Option<CallId>) -> Result<bool, Loss> {
        if let Err(loss) = self.write(socket) {
            return Err(self.last_words(socket).unwrap_or(loss));
        }
        for _ in 0..TURN_READS {
            if !self.read_some(socket)? || until.is_some_and(|id| self.has_ended(id)) {
                // What was read may have to be answered.
                self.write(socket)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Nothing more can be sent: what the server said before it closed tells more than the system's
    /// error does.
    fn last_words(&mut self, socket: &Socket) -> Option<Loss> {
        loop {
            match self.read_some(socket) {
                Ok(true) => {}
                Err(Loss::Protocol(said)) => return Some(Loss::Protocol(said)),
                Ok(false) | Err(_) => return None,
            }
        }
    }
}

//! The state of a connection: it moves bytes between the socket, the protocol and the callers'
//! arrays.
//!
//! One lock guards the state. The thread that holds it moves the bytes of every open request. When
//! the connection is lost, every open request ends with an error.

mod events;
mod incoming;
mod open;
mod outgoing;

use self::incoming::Input;
use self::open::{Open, OpenRequests};
use self::outgoing::Outgoing;
use super::Connection;
use super::calls::Bulk;
use super::pace::Pace;
use super::silence::{Silence, Verdict};
use super::transfer::Transfer;
use crate::output::Printed;
use crate::progress::Progress;
use crate::remote::socket::Socket;
use farcall_rpc_proto::client::{self, Answer};
use farcall_rpc_proto::{
    Call, CallId, Callback, Failure, Hello, Limits, ProtocolError, SubmitRequest,
};
use farcall_spin::Seat;
use rustix::fd::OwnedFd;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one read, besides array data.
const INPUT_BYTES: usize = 64 << 10;
/// Most buffers of one system call.
const MAX_SLICES: usize = 512;
/// Reads before another thread may take the lock: about a megabyte of array data.
const TURN_READS: usize = 16;
/// Array bytes gathered before they are written.
const GATHER_BYTES: u64 = 1 << 20;
/// The same limit for another host, and the limit on a frame there. A call that is given up still
/// sends this much.
const REMOTE_BYTES: u32 = 64 << 10;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) enum Loss {
    /// The server reports a failure.
    Failed(Failure),
    Io(io::ErrorKind, String),
    Protocol(ProtocolError),
}

impl From<io::Error> for Loss {
    fn from(error: io::Error) -> Loss {
        Loss::Io(error.kind(), error.to_string())
    }
}

/// How a request has ended, until somebody takes it.
struct Ended {
    end: Result<Answer, Loss>,
    /// As in [`Open`].
    makes_array: bool,
}

/// A connection's state.
pub(crate) struct State {
    pub(super) proto: client::Connection,
    pub(crate) peer: Peer,
    /// Descriptors that the server sent, before the answer that refers to them.
    handed_over: VecDeque<OwnedFd>,
    /// Memory for requests that asked for it, until they take it.
    memories: HashMap<CallId, OwnedFd>,
    pub(super) open: OpenRequests,
    ended: HashMap<CallId, Ended>,
    /// Calls whose results had begun to arrive when the connection was lost.
    returning: HashSet<CallId>,
    /// Which thread waits at the socket for all, and which threads it must wake.
    pub(crate) seat: Seat<CallId, Connection>,
    /// Why the connection can no longer be used.
    pub(crate) lost: Option<Loss>,
    pub(super) silence: Silence,
    input: Input,
    outgoing: Outgoing,
}

/// The server as its greeting describes it.
#[derive(Default)]
pub(crate) struct Peer {
    /// Whether the greeting has arrived.
    has_greeted: bool,
    /// The server's optional features.
    pub(crate) features: u64,
    /// The server's program and version.
    pub(crate) agent: String,
    /// The Unix socket of a server on this host.
    pub(crate) local: Option<String>,
    /// Other addresses at which the server listens.
    pub(crate) paths: Vec<String>,
    /// What the server asks for before it greets.
    pub(crate) challenge: Option<String>,
    /// The server's signature: it knows the token of the client.
    pub(crate) signature: Option<String>,
}

impl Peer {
    fn of(hello: Hello) -> Peer {
        Peer {
            has_greeted: true,
            features: hello.features,
            agent: hello.agent,
            local: hello.local,
            paths: hello.ways.unwrap_or_default(),
            challenge: None,
            signature: hello.proof,
        }
    }
}

/// What a thread at the socket waits for, besides answers.
#[derive(Clone, Copy)]
pub(crate) struct Outlook {
    /// Whether it waits for room in the socket.
    pub(crate) writing: bool,
    /// When sending may go on.
    pause: Option<Instant>,
    /// When it must look whether the server is still there.
    look: Option<Instant>,
}

impl Outlook {
    /// The time that is left until it must stop waiting, whatever happens; `None` if there is no
    /// such time.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = |time: Instant| time.saturating_duration_since(Instant::now());
        [self.pause, self.look]
            .into_iter()
            .flatten()
            .map(until)
            .min()
    }
}

impl State {
    pub(crate) fn new(hello: &Hello, is_remote: bool, silence: Silence) -> State {
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
            open: OpenRequests::default(),
            ended: HashMap::new(),
            returning: HashSet::new(),
            seat: Seat::default(),
            lost: None,
            silence,
            input: Input::new(),
            outgoing: Outgoing::new(gather_bytes),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.peer.has_greeted
    }

    /// Answers the challenge of the server.
    pub(super) fn prove(&mut self, text: String, socket: &Socket) {
        self.proto.prove(text);
        self.send(socket);
    }

    /// How many bytes of a running call's arrays have travelled.
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

    /// Opens a request with data in either direction.
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

    /// Opens a submission. With it, it asks for the results of the call, if they have a place and
    /// not too many others are under way.
    pub(crate) fn submit(
        &mut self,
        submission: &SubmitRequest,
        transfer: Transfer,
        results: Option<Transfer>,
    ) -> Result<(CallId, Option<CallId>), Loss> {
        let results = results.filter(|_| self.open.takes_early());
        let opened = match &results {
            Some(results) => {
                let bytes = results.result_bytes();
                self.proto.submit_and_fetch(submission, bytes)
            }
            None => self.proto.submit(submission).map(|id| (id, None)),
        };
        let (id, fetch) = opened.map_err(Loss::Protocol)?;
        let carries = |transfer| Open {
            transfer,
            ..Open::default()
        };
        self.open.insert(id, carries(Some(transfer)));
        if let Some(fetch) = fetch {
            self.open.insert_early(fetch, carries(results));
        }
        Ok((id, fetch))
    }

    /// From now on, the caller waits for an early request. Returns `false` if it has failed.
    pub(super) fn claim(&mut self, id: CallId) -> bool {
        self.await_answer();
        self.open.claim(id);
        let is_done = |ended: &Ended| ended.end.is_ok();
        self.open.contains_key(&id) || self.ended.get(&id).is_some_and(is_done)
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

    /// Marks a request whose answer is an array that the server makes for it.
    pub(crate) fn makes_array(&mut self, id: CallId) {
        if let Some(open) = self.open.get_mut(id) {
            open.makes_array = true;
        }
        // Another thread at the socket may have read the answer already.
        if let Some(ended) = self.ended.get_mut(&id) {
            ended.makes_array = true;
        }
    }

    /// Takes the callback that a call waits for, once.
    pub(crate) fn take_callback(&mut self, id: CallId) -> Option<Callback> {
        let callback = self.open.get_mut(id)?.callback.take()?;
        Some(*callback)
    }

    /// Whether the call waits for the answer of a callback.
    pub(crate) fn has_callback(&self, id: CallId) -> bool {
        let open = self.open.get(&id);
        open.is_some_and(|open| open.callback.is_some())
    }

    /// Whether the running function has asked its caller for work.
    pub(crate) fn has_work(&self, id: CallId) -> bool {
        let has_lines = |open: &Open| open.printed.as_ref().is_some_and(|p| p.has_lines());
        self.has_callback(id) || self.open.get(&id).is_some_and(has_lines)
    }

    /// Takes the end of a request if it has arrived, once.
    pub(crate) fn take_end(&mut self, id: CallId) -> Option<Result<Answer, Loss>> {
        let ended = self.ended.remove(&id).map(|ended| ended.end);
        match (ended, &self.lost) {
            (None, Some(loss)) if !self.open.contains_key(&id) => Some(Err(loss.clone())),
            (end, _) => end,
        }
    }

    /// Takes the memory that a request asked for, once.
    pub(crate) fn take_memory(&mut self, id: CallId) -> Option<OwnedFd> {
        self.memories.remove(&id)
    }

    /// Whether results of a call had begun to arrive when the connection was lost.
    pub(crate) fn was_returning(&self, id: CallId) -> bool {
        self.returning.contains(&id)
    }

    pub(crate) fn has_ended(&self, id: CallId) -> bool {
        self.open.get(&id).is_none_or(|open| open.abandoned)
    }

    /// Marks a call whose arrays are large.
    pub(crate) fn is_bulk(&mut self, id: CallId, bulk: Bulk) {
        if let Some(open) = self.open.get_mut(id) {
            open.bulk = Some(bulk);
        }
    }

    /// Gives a request up. Its memory is no longer touched.
    pub(crate) fn abandon(&mut self, id: CallId) {
        if let Some(Ended { end, makes_array }) = self.ended.remove(&id)
            && self.lost.is_none()
        {
            self.give_back(id, end, makes_array);
        }
        self.memories.remove(&id);
        let Some(open) = self.open.get_mut(id) else {
            return;
        };
        open.abandoned = true;
        self.outgoing.withdraw(id, open.transfer.as_ref());
        open.transfer = None;
        self.seat.end(id);
        if !self.proto.cancel(id) {
            self.open.close(id);
        }
    }

    /// Whether bytes wait to be written.
    pub(crate) fn has_unsent(&self) -> bool {
        self.outgoing.has_unsent()
    }

    /// What a thread at the socket must wait for, besides answers.
    pub(crate) fn outlook(&self) -> Outlook {
        let pause = self.outgoing.pause();
        Outlook {
            writing: self.has_unsent() && pause.is_none(),
            pause,
            look: self.silence.next(),
        }
    }

    /// Limits the sending rate from now on.
    pub(super) fn set_pace(&mut self, pace: Option<Pace>) {
        self.outgoing.set_pace(pace);
    }

    /// Writes and reads until the socket has no more, the request `until` has ended, or another
    /// thread's turn has come; returns `true` in the last case. An error ends every open request.
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

    /// Writes as much as the socket accepts at once.
    pub(crate) fn send(&mut self, socket: &Socket) {
        if self.lost.is_none()
            && let Err(loss) = self.write(socket)
        {
            let loss = self.last_words(socket).unwrap_or(loss);
            self.lose(loss);
        }
    }

    /// Notes that a request begins. A server owes no sign of life before that.
    pub(super) fn await_answer(&mut self) {
        if self.open.awaited() == 0 {
            self.silence.hear();
        }
    }

    /// Looks whether the server is still there, and asks it for a sign of life if it is quiet.
    /// Returns whether it has just been lost, which ends every open request.
    pub(crate) fn lose_if_silent(&mut self, socket: &Socket) -> bool {
        if self.lost.is_some() || self.open.is_empty() {
            return false;
        }
        match self.silence.look(Instant::now(), || socket.unsent()) {
            Verdict::Fine => return false,
            Verdict::Ask => {
                // No server has so many functions, so that the answer is short.
                if let Ok(id) = self.ask(|proto| proto.list(u32::MAX)) {
                    self.open.abandon(id);
                    self.send(socket);
                }
                return self.lost.is_some();
            }
            Verdict::Lost => {}
        }
        let text = format!(
            "the server has been silent for {:.0} s, although it was asked for an answer; it has \
             stopped, or the network has failed",
            self.silence.limit().as_secs_f64()
        );
        self.lose(Loss::Io(io::ErrorKind::TimedOut, text));
        true
    }

    /// Ends all requests: the connection can no longer be used.
    pub(super) fn lose(&mut self, loss: Loss) {
        self.seat.end_all();
        for (id, open) in self.open.close_all() {
            if !open.abandoned {
                let progress = open.transfer.as_ref().map(Transfer::progress);
                if progress.is_some_and(|progress| progress.received > 0) {
                    self.returning.insert(id);
                }
                let ended = Ended {
                    end: Err(loss.clone()),
                    makes_array: false,
                };
                self.ended.insert(id, ended);
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
                // The bytes that were read may need an answer.
                self.write(socket)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads what the server said before it closed, after a write has failed. It tells more than
    /// the system's error.
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

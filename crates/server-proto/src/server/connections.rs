//! Connections: who comes, what they send and are sent, and how they end.

use super::Server;
use crate::action::{Action, Way};
use crate::connection::Connection;
use crate::event::{Accepted, Identity};
use crate::job::State;
use crate::keys::{CallKey, ConnectionKey, Key, MemoryKey};
use crate::settings::nanos;
use farcall_rpc_proto::{
    self as proto, Chunk, Failure, FailureKind, Hello, Piece, ProtocolError, Transmit,
};

/// Array bytes of a frame to another host: what a small answer waits for.
const REMOTE_BYTES: u32 = 64 << 10;

impl Server {
    /// A client has connected: it has a key, or is told why not.
    pub fn accept(&mut self, accepted: Accepted) -> Result<ConnectionKey, Vec<u8>> {
        let mut limits = proto::Limits {
            calls: self.settings.limits.calls_per_connection,
            ..proto::Limits::default()
        };
        if !accepted.is_local {
            limits.chunk_bytes = REMOTE_BYTES;
        }
        let mut hello = Hello::new(self.settings.agent);
        hello.features |= proto::ESTIMATES | proto::CALLBACKS | proto::OUTPUT | proto::FILES;
        hello.features |= proto::OBJECTS | proto::OPERATION | proto::REGISTER | proto::HANDLES;
        hello.features |= proto::PARTS | proto::CREDIT | proto::KEPT_OBJECTS;
        hello.calls = u32::try_from(limits.calls).ok();
        hello.features |= proto::LOANS | proto::NAMES | proto::RESERVATIONS;
        if self.settings.has_state {
            hello.features |= proto::JOBS;
        }
        if accepted.is_unix {
            hello.features |= proto::SHARED_MEMORY;
        }
        hello.local.clone_from(&accepted.local);
        hello.ways.clone_from(&accepted.ways);
        let mut connection = Connection::new(accepted, limits, hello, self.now());
        let most = self.settings.limits.connections;
        if self.connections.len() >= most {
            let peer = &connection.peer.name;
            tracing::warn!("{peer}: refused, {most} connections are open");
            let text = format!("the server is full ({most} connections)");
            connection.proto.goodbye(text);
            let mut farewell = Vec::new();
            connection.proto.poll_transmit(&mut farewell, self.now());
            return Err(farewell);
        }
        let crosses_link = connection.peer.crosses_link;
        let key = self.connections.insert(connection);
        if let Some(ahead) = self.lanes.ahead().filter(|_| crosses_link) {
            self.out.push(Action::BoundAhead(key, Some(ahead)));
        }
        Ok(key)
    }

    /// Whether a connection is open.
    pub fn is_open(&self, key: ConnectionKey) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|connection| !connection.closed)
    }

    /// Whether more input of a connection can be handled now.
    pub fn takes_input(&self, key: ConnectionKey) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(Connection::takes_input)
    }

    /// Whether so many answers wait to be written that no more requests are taken.
    pub fn is_congested(&self, key: ConnectionKey) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|connection| connection.proto.is_congested())
    }

    /// Takes bytes from a client; returns how many. The actions that follow are to be done before
    /// more bytes of the connection are taken.
    pub fn handle_input(&mut self, key: ConnectionKey, input: &[u8]) -> usize {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(key) else {
            return input.len();
        };
        connection.has_output = true;
        match connection.proto.handle_input(input, now) {
            Ok((taken, event)) => {
                if let Some(event) = event {
                    self.on_event(key, event);
                }
                taken
            }
            Err(error) => {
                self.break_off(key, &error);
                input.len()
            }
        }
    }

    /// The array data that comes next from a client, if any.
    pub fn incoming(&self, key: ConnectionKey) -> Option<Chunk> {
        self.connections.get(key)?.proto.incoming()
    }

    /// Where the next of the incoming data go, at most `most` bytes; none where they are to be
    /// thrown away.
    pub fn place(&mut self, key: ConnectionKey, chunk: &Chunk) -> Option<Landed<'_>> {
        let now = self.now();
        let call = *self.connections.get(key)?.calls.get(&chunk.call)?;
        let job = self.calls.get_mut(call).filter(|_| !chunk.discard)?;
        job.moved = now;
        job.swap = chunk.big_endian != cfg!(target_endian = "big");
        let memory = job.memory()?;
        Some(Landed { memory, job })
    }

    /// So many bytes of the incoming data have been taken.
    pub fn handle_data(&mut self, key: ConnectionKey, count: u64) {
        let now = self.now();
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        if let Some(event) = connection.proto.handle_data(count, now) {
            connection.has_output = true;
            self.on_event(key, event);
        }
    }

    /// Puts out the next frames for a client.
    pub fn poll_transmit(
        &mut self,
        key: ConnectionKey,
        out: &mut Vec<u8>,
        now: proto::Nanos,
    ) -> Transmit {
        match self.connections.get_mut(key) {
            Some(connection) => connection.proto.poll_transmit(out, now),
            None => Transmit::Idle,
        }
    }

    /// Where the next data of a chunk lie that is to be sent, at most `most` bytes.
    pub fn next_outgoing(
        &mut self,
        key: ConnectionKey,
        chunk: &Chunk,
        most: u64,
    ) -> Option<(MemoryKey, Piece)> {
        let call = *self.connections.get(key)?.calls.get(&chunk.call)?;
        let job = self.calls.get_mut(call)?;
        let memory = job.memory()?;
        Some((memory, job.next_outgoing(most)?))
    }

    /// A client has taken some bytes.
    pub fn taken(&mut self, key: ConnectionKey, now: proto::Nanos) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.taken = now;
        }
    }

    /// All that there was for a client is written: calls whose results are out are over.
    pub fn flushed(&mut self, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else {
            return;
        };
        connection.has_output = false;
        if connection.sending.is_empty() {
            return;
        }
        let mut sent = std::mem::take(&mut connection.sending);
        for call in sent.drain(..) {
            self.account(call);
            self.release(call);
        }
        // The memory of the list serves the next results.
        if let Some(connection) = self.connections.get_mut(key)
            && connection.sending.is_empty()
        {
            connection.sending = sent;
        }
    }

    /// A client has greeted: the shell finds out who it is.
    pub(super) fn greeted(&mut self, key: ConnectionKey, hello: Hello) {
        self.connections[key].peer.agent = hello.agent;
        self.out.push(Action::Authenticate {
            connection: key,
            token: hello.token,
        });
    }

    /// It is known who a client is: it becomes a user, or is refused.
    pub(super) fn authenticated(&mut self, key: ConnectionKey, found: Result<Identity, String>) {
        if !self.is_open(key) {
            return;
        }
        let found = found.and_then(|found| match self.too_many_connections(&found.user) {
            None => Ok(found),
            Some(text) => Err(text),
        });
        let connection = &mut self.connections[key];
        let (peer, agent) = (&connection.peer.name, &connection.peer.agent);
        match found {
            Ok(Identity { user, is_operator }) => {
                tracing::debug!("{peer}: connected, {agent}, user {user}");
                connection.user = user;
                connection.peer.is_operator = is_operator;
                connection.connected = true;
            }
            Err(refusal) => {
                tracing::warn!("{peer}: refused: {refusal}");
                connection.proto.refuse(refusal.as_str());
                self.audit_refusal(key, &refusal);
                self.close(key, None);
            }
        }
    }

    /// There is something to be written, with other answers of this turn.
    pub(super) fn answered(&mut self, key: ConnectionKey) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.has_output, true)
            && !connection.closed
        {
            self.out.push(Action::Flush(key));
        }
    }

    /// A client breaks the protocol: it is told so once.
    fn break_off(&mut self, key: ConnectionKey, error: &ProtocolError) {
        if !matches!(error, ProtocolError::NotFarcall | ProtocolError::Goodbye(_)) {
            self.connections[key].proto.goodbye(error.to_string());
        }
        self.close(key, Some(error.to_string()));
    }

    /// Ends a connection with all its calls.
    pub(super) fn close(&mut self, key: ConnectionKey, error: Option<String>) {
        if !self.is_open(key) {
            return;
        }
        let connection = &mut self.connections[key];
        connection.closed = true;
        let peer = &connection.peer.name;
        match (&error, connection.calls.len()) {
            (Some(error), _) => tracing::warn!("{peer}: connection closed: {error}"),
            (None, 0) => tracing::debug!("{peer}: connection closed"),
            (None, calls) => {
                tracing::warn!("{peer}: the client has gone in the middle of {calls} calls");
            }
        }
        connection.waiting = None;
        connection.held.clear();
        self.out.push(Action::Close(key));
        self.closed.push(key);
        self.stop_fetching(key, None);
        self.pulls.forget(key);
        let sending = std::mem::take(&mut self.connections[key].sending);
        let mut calls = std::mem::take(&mut self.connections[key].calls);
        calls.retain(|_, call| !sending.contains(call));
        for call in sending {
            self.release(call);
        }
        for (_, call) in calls {
            self.abandon(call);
        }
        for (_, object) in std::mem::take(&mut self.connections[key].objects) {
            self.delete_object(object);
        }
        self.end_arrays_of(key);
        for (_, segment) in std::mem::take(&mut self.connections[key].segments) {
            self.give_up(segment);
        }
    }

    pub(super) fn remove_closed(&mut self) {
        for key in std::mem::take(&mut self.closed) {
            self.connections.remove(key);
            self.starved.retain(|starved| *starved != key);
            self.holding.retain(|holding| *holding != key);
            self.lanes.forget(key);
        }
    }

    /// Closes connections that never greeted.
    pub(super) fn end_silent(&mut self) {
        let patience = nanos(self.settings.limits.greeting_s);
        let latest = self.now().saturating_sub(patience);
        let connections = self.connections.iter();
        let silent = connections.filter(|(_, known)| !known.connected && known.peer.since < latest);
        let silent: Vec<ConnectionKey> = silent.map(|(key, _)| key).collect();
        for key in silent {
            tracing::warn!("{}: no greeting", self.connections[key].peer.name);
            self.close(key, None);
        }
    }

    /// Ends transfers that stand still: they hold memory. What the server itself does not take does
    /// not count.
    pub(super) fn end_stalled(&mut self) {
        let Some(bound) = self.settings.limits.stalled(!self.starved.is_empty()) else {
            return;
        };
        let latest = self.now().saturating_sub(nanos(bound));
        let mut silent = Vec::new();
        let mut deaf = Vec::new();
        for (key, job) in self.calls.iter() {
            let moved = job.moved.max(job.times.accepted);
            let Some(connection) = job.connection.filter(|_| (1..latest).contains(&moved)) else {
                continue;
            };
            // Who waits for his turn is not to blame.
            let way = match job.state {
                State::Receiving => Way::Up,
                _ => Way::Down,
            };
            let known = &self.connections[connection];
            if known.waits(way) {
                continue;
            }
            match job.state {
                State::Receiving if known.takes_input() => silent.push(key),
                State::Sending if known.taken < latest => deaf.push(connection),
                _ => {}
            }
        }
        for call in silent {
            let text = format!(
                "got no more of its arguments for {bound} s (limits.stalled_s and \
                 limits.stalled_busy_s in the server's configuration)"
            );
            self.fail_job(call, FailureKind::Stalled, &text);
        }
        deaf.sort_unstable();
        deaf.dedup();
        for connection in deaf {
            let text = format!(
                "it has not read results for {bound} s (limits.stalled_s and \
                 limits.stalled_busy_s in the configuration)"
            );
            self.close(connection, Some(text));
        }
    }

    /// Begins to stop: running and waiting calls fail, results that are on their way leave.
    pub(super) fn stop(&mut self) {
        /// How long a stopping server waits for its last words to be taken.
        const LAST_WORDS: proto::Nanos = 2_000_000_000;
        if self.stopping.is_some() {
            return;
        }
        tracing::info!("stopping");
        self.stopping = Some(self.now() + LAST_WORDS);
        self.out.push(Action::StopListening);
        let keys: Vec<ConnectionKey> = self.connections.keys().collect();
        for key in keys {
            if !self.is_open(key) {
                continue;
            }
            let connection = &mut self.connections[key];
            let open = connection.calls.iter();
            let open = open.filter(|(_, call)| !connection.sending.contains(call));
            let open: Vec<_> = open.map(|(id, _)| *id).collect();
            let waiting = connection.waiting.take().map(|(call, _)| call);
            let held = std::mem::take(&mut connection.held);
            let held = held.into_iter().map(|(call, _)| call);
            for call in open.into_iter().chain(waiting).chain(held) {
                let text = "the server is stopping; the call did not complete";
                let failure = Failure::new(FailureKind::ServerStopping, text);
                connection.proto.fail(call, &failure);
            }
            connection.proto.goodbye("the server is stopping");
            self.answered(key);
        }
    }
}

/// Where incoming data go.
pub struct Landed<'a> {
    /// The memory.
    pub memory: MemoryKey,
    job: &'a mut crate::job::Job,
}

impl Landed<'_> {
    /// The next part of the memory, at most `most` bytes.
    pub fn next(&mut self, most: u64) -> Option<Piece> {
        self.job.next_incoming(most)
    }
}

/// The call that the queue knows by this number.
pub(super) fn call_of(number: u64) -> CallKey {
    CallKey::of_number(number)
}

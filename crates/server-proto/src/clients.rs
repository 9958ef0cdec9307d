//! All connections: who is connected, which of them wait for memory, and which have output.
//! `connection` has the state of one. A connection that has ended is removed at the end of the
//! turn, so its key is valid until then. Of those that wait for memory, users who hold less of it
//! go first.

use crate::action::Direction;
use crate::call::{ActiveCall, State};
use crate::connection::Connection;
use crate::keys::{CallKey, ConnectionKey, Table};
use crate::memory::Memory;
use crate::settings::nanos;
use farcall_rpc_proto::{Chunk, Nanos, Transmit, User};
use std::ops::{Index, IndexMut};

/// Argument streams that may arrive at once on a connection. While one arrives, the next is
/// announced; more would only hold memory.
const STREAMS: usize = 2;

/// Bytes per second with which a waiting request is reckoned: it goes before requests that are
/// larger, until they have waited for longer by the time that the difference takes.
const RECKONED_RATE: u64 = 10_000_000;

/// A connection that waits for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Starved {
    pub(crate) connection: ConnectionKey,
    /// When its request would have arrived at the reckoned rate. The earliest goes first.
    pub(crate) due: Nanos,
    /// Bytes of the buffer that it wants; 0 for an array.
    buffer: u64,
}

impl Starved {
    /// A connection with a request that sends this many bytes, for a buffer of this size.
    pub(crate) fn new(
        connection: ConnectionKey,
        (bytes, buffer): (u64, u64),
        now: Nanos,
    ) -> Starved {
        Starved {
            connection,
            due: due(bytes, now),
            buffer,
        }
    }
}

/// When a request of this many bytes would have arrived at the reckoned rate.
pub(crate) fn due(bytes: u64, asked: Nanos) -> Nanos {
    let takes = bytes.saturating_mul(1_000_000_000 / RECKONED_RATE);
    asked.saturating_add(takes)
}

/// The place of a request in the line for memory: the bytes that its user holds, and when it is
/// due. The lowest goes first.
pub(crate) type Rank = (u64, Nanos);

/// All connections.
#[derive(Default)]
pub struct Clients {
    connections: Table<ConnectionKey, Connection>,
    /// Connections to remove at the end of the turn.
    closed: Vec<ConnectionKey>,
    /// Connections that wait for memory.
    starved: Vec<Starved>,
    /// Connections with calls that wait for a grant.
    pub(crate) holding: Vec<ConnectionKey>,
    /// Whether a connection was refused since the last one that was accepted, for lack of a place.
    pub(crate) is_full: bool,
}

impl Clients {
    /// Whether a connection is open.
    pub fn is_open(&self, key: ConnectionKey) -> bool {
        self.get(key).is_some_and(|connection| !connection.closed)
    }

    /// Whether more input of a connection can be handled now.
    pub fn takes_input(&self, key: ConnectionKey) -> bool {
        self.get(key).is_some_and(Connection::takes_input)
    }

    /// Whether so many answers wait to be written that the server takes no more requests.
    pub fn is_congested(&self, key: ConnectionKey) -> bool {
        self.get(key)
            .is_some_and(|connection| connection.proto.is_congested())
    }

    /// The array data that arrive next from a client, if any.
    pub fn incoming(&self, key: ConnectionKey) -> Option<Chunk> {
        self.get(key)?.proto.incoming()
    }

    /// Writes the next frames for a client into `out`.
    pub fn poll_transmit(&mut self, key: ConnectionKey, out: &mut Vec<u8>, now: Nanos) -> Transmit {
        match self.get_mut(key) {
            Some(connection) => connection.proto.poll_transmit(out, now),
            None => Transmit::Idle,
        }
    }

    /// Records that a client has received bytes.
    pub fn taken(&mut self, key: ConnectionKey, bytes: u64, now: Nanos) {
        if let Some(connection) = self.get_mut(key) {
            connection.taken = now;
            connection.paces[Direction::Down as usize].add(bytes);
        }
    }

    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionKey {
        self.connections.insert(connection)
    }

    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        self.connections.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.connections.get_mut(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Number of open connections.
    pub(crate) fn count_open(&self) -> usize {
        self.connections.len() - self.closed.len()
    }

    /// Whether all connections are closed.
    pub(crate) fn all_have_gone(&self) -> bool {
        self.count_open() == 0
    }

    /// The open connections.
    pub(crate) fn open(&self) -> Vec<ConnectionKey> {
        let connections = self.connections.iter();
        let open = connections.filter(|(_, connection)| !connection.closed);
        open.map(|(key, _)| key).collect()
    }

    /// Marks a connection with output. Returns whether the shell must be told.
    pub(crate) fn has_output(&mut self, key: ConnectionKey) -> bool {
        self.get_mut(key).is_some_and(|connection| {
            !std::mem::replace(&mut connection.has_output, true) && !connection.closed
        })
    }

    /// Ends a connection. It is removed at the end of the turn.
    pub(crate) fn close(&mut self, key: ConnectionKey) {
        let connection = &mut self.connections[key];
        connection.closed = true;
        connection.waiting = None;
        connection.held.clear();
        self.closed.push(key);
    }

    /// Removes closed connections and returns them.
    pub(crate) fn remove_closed(&mut self) -> Vec<ConnectionKey> {
        let closed = std::mem::take(&mut self.closed);
        for key in &closed {
            self.connections.remove(*key);
            self.starved.retain(|starved| starved.connection != *key);
            self.holding.retain(|holding| holding != key);
        }
        closed
    }

    /// Why a user may not have another connection, if the operator's limit is reached.
    pub(crate) fn too_many(&self, user: &User, most: usize) -> Option<String> {
        let known = self.connections.values();
        let open = known.filter(|known| !known.closed && known.connected && known.user == *user);
        (most > 0 && open.count() >= most).then(|| {
            format!(
                "{user} has {most} connections, which is the limit for one user \
                 (limits.connections_per_user in the server's configuration)"
            )
        })
    }

    /// Bytes that clients of some users hold as shared memory.
    pub(crate) fn shared_bytes(&self, is_one: &dyn Fn(&User) -> bool) -> u64 {
        let theirs = self.connections.values().filter(|one| is_one(&one.user));
        let segments = theirs.flat_map(|one| one.segments.values());
        segments.map(|segment| segment.bytes).sum()
    }

    /// Connections that have not greeted within this many seconds.
    pub(crate) fn silent(&self, patience_s: f64, now: Nanos) -> Vec<ConnectionKey> {
        let latest = now.saturating_sub(nanos(patience_s));
        let connections = self.connections.iter();
        let silent = connections.filter(|(_, known)| !known.connected && known.peer.since < latest);
        silent.map(|(key, _)| key).collect()
    }

    /// Whether some connection has not greeted yet.
    pub(crate) fn awaits_greeting(&self) -> bool {
        self.connections.values().any(|known| !known.connected)
    }

    /// The connections from which nothing is read until a request has what it waits for.
    pub(crate) fn blocked(&self) -> Vec<ConnectionKey> {
        let connections = self.connections.iter();
        let blocked = connections.filter(|(_, one)| one.waiting.is_some() && !one.closed);
        blocked.map(|(key, _)| key).collect()
    }

    /// Whether arguments of a call are arriving on a connection.
    pub(crate) fn is_receiving(
        &self,
        key: ConnectionKey,
        calls: &Table<CallKey, ActiveCall>,
    ) -> bool {
        let mut keys = self[key].calls.values();
        keys.any(|key| calls[*key].state == State::Receiving)
    }

    /// Whether another argument stream may arrive on a connection.
    pub(crate) fn takes_stream(
        &self,
        key: ConnectionKey,
        calls: &Table<CallKey, ActiveCall>,
    ) -> bool {
        let connection = &self[key];
        let calls = connection.calls.values().map(|call| &calls[*call]);
        let receiving = calls.filter(|call| call.state == State::Receiving);
        let long = |call: &&ActiveCall| connection.proto.waits_for_grant(call.layout.sent_bytes());
        receiving.filter(long).count() < STREAMS
    }

    /// The connection to which the results of a call leave that its client has given up.
    pub(crate) fn who_reads(&self, call: CallKey) -> Option<ConnectionKey> {
        let mut connections = self.connections.iter();
        let reads = |(_, known): &(_, &Connection)| known.sending.contains(&call);
        connections.find(reads).map(|(key, _)| key)
    }

    /// Notes that a connection has calls that wait for a grant.
    pub(crate) fn note_holding(&mut self, key: ConnectionKey) {
        if !self.holding.contains(&key) {
            self.holding.push(key);
        }
    }

    /// Notes that a connection waits for memory.
    pub(crate) fn note_starved(&mut self, starved: Starved) {
        if !self.is_starved(starved.connection) {
            self.starved.push(starved);
        }
    }

    /// Whether any connection waits for memory.
    pub(crate) fn someone_starves(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether a connection waits for memory.
    pub(crate) fn is_starved(&self, key: ConnectionKey) -> bool {
        let mut starved = self.starved.iter();
        starved.any(|starved| starved.connection == key)
    }

    /// The rank of a waiting connection. The lowest goes first: users who hold less memory go
    /// before others.
    pub(crate) fn rank(&self, starved: &Starved, memory: &Memory) -> Rank {
        let known = self.get(starved.connection);
        let held = known.map_or(0, |known| memory.held_by(&known.user));
        (held, starved.due)
    }

    /// Whether a waiting request gets no memory before its own user gives some back. It is in
    /// nobody's way then.
    fn awaits_own(&self, starved: &Starved, memory: &Memory) -> bool {
        let known = self.get(starved.connection);
        known.is_some_and(|known| memory.awaits_own(starved.buffer, &known.user))
    }

    /// Whether a request of this user waits until the user gives memory back.
    pub(crate) fn user_awaits_own(&self, user: &User, memory: &Memory) -> bool {
        let mut starved = self.starved.iter();
        starved.any(|one| {
            let is_own = self
                .get(one.connection)
                .is_some_and(|known| known.user == *user);
            is_own && self.awaits_own(one, memory)
        })
    }

    /// The connection that is next to get memory, if any waits for others, and its rank.
    pub(crate) fn next_starved(&self, memory: &Memory) -> Option<(Starved, Rank)> {
        let ranked = self
            .starved
            .iter()
            .filter(|one| !self.awaits_own(one, memory));
        let ranked = ranked.map(|starved| (self.rank(starved, memory), starved));
        let (rank, starved) = ranked.min_by_key(|(rank, _)| *rank)?;
        Some((*starved, rank))
    }

    /// Whether other connections that wait for memory go before this one.
    pub(crate) fn is_behind_starved(&self, own: &Starved, memory: &Memory) -> bool {
        let rank = self.rank(own, memory);
        let others = self.starved.iter();
        let mut others = others.filter(|other| other.connection != own.connection);
        others.any(|other| self.rank(other, memory) <= rank && !self.awaits_own(other, memory))
    }

    /// Takes a connection from those that wait for memory.
    pub(crate) fn forget_starved(&mut self, key: ConnectionKey) {
        self.starved.retain(|starved| starved.connection != key);
    }

    /// Takes all connections from those that wait for memory.
    pub(crate) fn take_starved(&mut self) -> Vec<Starved> {
        std::mem::take(&mut self.starved)
    }

    /// Adds connections again.
    pub(crate) fn return_starved(&mut self, starved: Vec<Starved>) {
        self.starved.extend(starved);
    }
}

impl Index<ConnectionKey> for Clients {
    type Output = Connection;

    fn index(&self, key: ConnectionKey) -> &Connection {
        &self.connections[key]
    }
}

impl IndexMut<ConnectionKey> for Clients {
    fn index_mut(&mut self, key: ConnectionKey) -> &mut Connection {
        &mut self.connections[key]
    }
}

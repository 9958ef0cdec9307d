//! Memory shared with a server on the same host. Arrays in it do not travel.
//!
//! The server makes the memory; this module maps it, finds arrays in it and gives it back. A child
//! process that was forked never gives it back.

use super::Connection;
use crate::error::Error;
use farcall_memory::{Mapping, is_sealed};
use farcall_rpc_proto::{CallId, SHARED_MEMORY};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

/// Most idle segments that are kept for later arrays.
const MOST_IDLE: usize = 4;

/// A shared memory segment of the server, mapped here.
#[derive(Debug)]
pub(crate) struct Segment {
    id: CallId,
    mapping: Mapping,
    connection: Weak<Connection>,
}

impl Segment {
    /// Maps a segment from the server. With `present`, all pages are made at once.
    fn map(
        connection: &Arc<Connection>,
        id: CallId,
        bytes: u64,
        fd: &OwnedFd,
        present: bool,
    ) -> io::Result<Segment> {
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        if !is_sealed(fd.as_fd(), bytes)? {
            return Err(io::Error::other("shared memory that is not sealed"));
        }
        Ok(Segment {
            id,
            mapping: Mapping::new(fd.as_fd(), bytes, present)?,
            connection: Arc::downgrade(connection),
        })
    }

    pub(crate) fn id(&self) -> CallId {
        self.id
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.mapping.start().as_ptr()
    }

    fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.upgrade() {
            connection.unshare(self.id);
        }
    }
}

/// The shared memory of one connection.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    /// Segments in which the caller makes arrays, by address: length and number.
    born: BTreeMap<usize, (usize, CallId)>,
    /// Idle segments for copies of other arrays.
    idle: Vec<Segment>,
}

impl Pool {
    /// The segment number and offset of a memory range, if the caller made it in shared memory.
    pub(crate) fn find(&self, start: *const u8, bytes: usize) -> Option<(CallId, u64)> {
        let (base, (length, id)) = self.born.range(..=start.addr()).next_back()?;
        let offset = start.addr() - base;
        (bytes <= length.checked_sub(offset)?).then_some((*id, offset as u64))
    }

    /// An idle segment of at least this size and not much more.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Segment> {
        let fits = |segment: &Segment| (bytes..=2 * bytes).contains(&segment.bytes());
        let best = (0..self.idle.len())
            .filter(|&index| fits(&self.idle[index]))
            .min_by_key(|&index| self.idle[index].bytes())?;
        Some(self.idle.remove(best))
    }

    /// Keeps a segment. Returns it if there are too many; the caller drops it without the lock.
    pub(crate) fn give_back(&mut self, segment: Segment) -> Option<Segment> {
        self.idle.push(segment);
        (self.idle.len() > MOST_IDLE).then(|| self.idle.remove(0))
    }
}

/// Memory that this process shares with a server on the same host. Arrays in it are not copied when
/// they are arguments of calls to that server: the library works on them in place. While a call is
/// under way, they belong to it. After a call that was given up, their contents are undefined until
/// the server has ended it.
///
/// The memory is zero at first. After the connection has ended, it remains as memory of this
/// process alone.
#[derive(Debug)]
pub struct SharedMemory {
    segment: Segment,
}

impl SharedMemory {
    pub(crate) fn new(segment: Segment) -> SharedMemory {
        if let Some(connection) = segment.connection.upgrade() {
            let range = (segment.bytes(), segment.id);
            connection.pool().born.insert(segment.start().addr(), range);
        }
        SharedMemory { segment }
    }

    /// Its first byte, at the start of a page.
    pub fn start(&self) -> *mut u8 {
        self.segment.start()
    }

    /// Its length in bytes, at least what was asked for.
    pub fn bytes(&self) -> usize {
        self.segment.bytes()
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(connection) = self.segment.connection.upgrade() {
            connection.pool().born.remove(&self.segment.start().addr());
        }
    }
}

impl Connection {
    /// Whether arrays may lie in memory shared with the server.
    pub(crate) fn shares(&self) -> bool {
        self.is_unix() && self.has(SHARED_MEMORY)
    }

    /// Whether memory of the server arrives here. It does not over a forwarded socket, behind which
    /// the server is on another host.
    pub(crate) fn has_shared_memory(self: &Arc<Self>) -> bool {
        let segment = self.shares().then(|| self.staging_segment(1)).flatten();
        let arrives = segment.is_some();
        let excess = segment.and_then(|segment| self.pool().give_back(segment));
        drop(excess);
        arrives
    }

    /// The shared memory of the connection. Drop no segment while you hold this lock.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for shared memory; `present` has all its pages made at once.
    pub(crate) fn share(self: &Arc<Self>, bytes: u64, present: bool) -> Result<Segment, Error> {
        let request = self.begin(|proto| proto.share(bytes))?;
        let id = request.id();
        let bytes = request.answer(answered!(Shared))?;
        let memory = self.lock().take_memory(id);
        let memory = memory.ok_or_else(|| self.unexpected())?;
        let mapped = Segment::map(self, id, bytes, &memory, present);
        mapped.map_err(|error| {
            self.unshare(id);
            self.error(error.into())
        })
    }

    /// Shared memory for copies of arrays, an idle segment if one fits. `None` if the server has
    /// none to give.
    pub(crate) fn staging_segment(self: &Arc<Self>, bytes: u64) -> Option<Segment> {
        let idle = self.pool().take(usize::try_from(bytes).ok()?);
        idle.or_else(|| self.share(bytes + bytes / 8, true).ok())
    }

    /// Gives shared memory back to the server. A forked child does not, because memory and
    /// connection belong to its parent.
    fn unshare(&self, memory: CallId) {
        if self.is_ours() {
            self.tell(|proto| proto.unshare(memory));
        }
    }
}

//! Memory that client and server share.

use super::Connection;
use super::state::Answer;
use crate::Error;
use crate::memory::{Pool, Segment};
use farcall_rpc_proto::{CallId, SHARED_MEMORY};
use std::sync::{Arc, MutexGuard, PoisonError};

impl Connection {
    /// Whether arrays may lie in memory shared with the server.
    pub(crate) fn shares(&self) -> bool {
        self.socket.is_unix() && self.features & SHARED_MEMORY != 0
    }

    /// The memory shared with the server. No segment may be dropped with the lock held.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for shared memory; `present` has all its pages made at once.
    pub(crate) fn share(self: &Arc<Self>, bytes: u64, present: bool) -> Result<Segment, Error> {
        match self
            .start(|state| state.ask(|proto| proto.share(bytes)))?
            .finish()?
        {
            Answer::Shared(id, bytes, fd) => Segment::map(self, id, bytes, &fd, present)
                .map_err(|error| self.error(error.into())),
            _ => Err(self.unexpected()),
        }
    }

    /// Shared memory for copies of arrays, an idle one where one fits; none where the server has
    /// none to give.
    pub(crate) fn staging_segment(self: &Arc<Self>, bytes: u64) -> Option<Segment> {
        let idle = self.pool().take(usize::try_from(bytes).ok()?);
        idle.or_else(|| self.share(bytes + bytes / 8, true).ok())
    }

    /// Gives shared memory back to the server. A child that this process forked leaves it alone:
    /// memory and connection are the parent's.
    pub(crate) fn unshare(&self, memory: CallId) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.lock();
        state.unshare(memory);
        self.send_soon(&mut state);
    }
}

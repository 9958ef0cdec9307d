//! Memory that the server shares with clients.

use super::Reactor;
use crate::buffer::Segment;
use crate::connection::MAX_SEGMENTS;
use farcall_rpc_proto::{CallId, Failure, FailureKind};
use std::rc::Rc;

impl Reactor {
    /// A client asks for memory that both can reach.
    pub(super) fn share(&mut self, key: usize, request: CallId, bytes: u64) {
        let connection = &self.connections[key];
        let shared = if connection.segments.len() >= MAX_SEGMENTS {
            let text = format!("at most {MAX_SEGMENTS} pieces of memory on one connection");
            Err(Failure::new(FailureKind::Busy, text))
        } else if connection.segments.contains_key(&request) {
            let text = "the request number was used before";
            Err(Failure::new(FailureKind::BadArgument, text))
        } else {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let segment = self.pool.share(bytes);
            self.unmap_retired();
            segment.map_err(|refusal| self.refusal(bytes, refusal))
        };
        let proto = match shared {
            Ok(segment) => self.connections[key].share(request, segment),
            Err(failure) => {
                self.connections[key].proto.fail(request, &failure);
                Ok(())
            }
        };
        if let Err(error) = proto {
            self.close(key, Some(error.into()));
        }
    }

    /// A client gives memory back.
    pub(super) fn unshare(&mut self, key: usize, request: CallId) {
        if let Some(segment) = self.connections[key].segments.remove(&request) {
            self.give_up(segment);
        }
    }

    /// One user of a segment is done with it.
    pub(super) fn give_up(&mut self, segment: Rc<Segment>) {
        if let Some(segment) = Rc::into_inner(segment) {
            self.pool.end(segment);
            self.unmap_retired();
            self.wake_starved();
        }
    }

    /// Lets the workers unmap what is no longer used.
    pub(super) fn unmap_retired(&mut self) {
        for id in self.pool.take_retired() {
            for (_, worker) in &mut self.workers {
                worker.forget(id);
            }
        }
    }
}

//! Memory that the server shares with clients.

use super::Server;
use crate::action::{Action, Segment};
use crate::connection::MAX_SEGMENTS;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use farcall_rpc_proto::{CallId, Failure, FailureKind};
use std::rc::Rc;

impl Server {
    /// A client asks for memory that both can reach.
    pub(super) fn share(&mut self, key: ConnectionKey, request: CallId, bytes: u64) {
        let connection = &self.connections[key];
        let shared = if connection.segments.len() >= MAX_SEGMENTS {
            let text = format!("at most {MAX_SEGMENTS} pieces of memory on one connection");
            Err(Failure::new(FailureKind::Busy, text))
        } else if connection.segments.contains_key(&request) {
            let text = "the request number was used before";
            Err(Failure::new(FailureKind::BadArgument, text))
        } else {
            let shared = self.memory.share(bytes, &mut self.out);
            shared.map_err(|refusal| self.refusal(bytes, refusal))
        };
        let connection = &mut self.connections[key];
        match shared {
            Ok((memory, bytes)) => {
                self.out.push(Action::ShareMemory {
                    memory,
                    bytes,
                    connection: key,
                });
                connection.proto.shared(request, bytes);
                let segment = Rc::new(Segment { memory, bytes });
                connection.segments.insert(request, segment);
            }
            Err(failure) => connection.proto.fail(request, &failure),
        }
    }

    /// A client gives memory back.
    pub(super) fn unshare(&mut self, key: ConnectionKey, request: CallId) {
        if let Some(segment) = self.connections[key].segments.remove(&request) {
            self.give_up(segment);
        }
    }

    /// One user of a segment is done with it.
    pub(super) fn give_up(&mut self, segment: Rc<Segment>) {
        let memory = segment.memory;
        if Rc::into_inner(segment).is_some() || has(Flaw::FreesSegments) {
            self.memory.free(memory, &mut self.out);
            self.wake_starved();
        }
    }
}

//! Arrays that come from other servers.

use super::Server;
use crate::action::Action;
use crate::connection::Offer;
use crate::keys::{ConnectionKey, MemoryKey};
use crate::map::Map;
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Pull, Put, User};

/// Arrays that come at the same time.
const MOST: usize = 32;

/// Arrays on their way.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    last: u64,
    under_way: Map<u64, Waiting>,
}

/// Who waits for an array.
#[derive(Debug)]
struct Waiting {
    /// None where the client has gone.
    connection: Option<ConnectionKey>,
    request: CallId,
    put: Put,
    user: User,
    memory: MemoryKey,
}

impl Pulls {
    /// A connection has ended: nobody waits for its arrays.
    pub(super) fn forget(&mut self, connection: ConnectionKey) {
        for waiting in self.under_way.values_mut() {
            waiting.connection = waiting.connection.filter(|key| *key != connection);
        }
    }
}

impl Server {
    /// A client has an array read from another server.
    pub(super) fn offer_pull(&mut self, key: ConnectionKey, id: CallId, pull: Pull) {
        let user = self.connections[key].user.clone();
        let failure = match self.prepare_pull(&pull, &user) {
            Ok((put, Some(memory))) => {
                let waiting = Waiting {
                    connection: Some(key),
                    request: id,
                    put,
                    user,
                    memory,
                };
                return self.start_pull(waiting, pull.address, pull.loan);
            }
            Ok((_, None)) => {
                self.connections[key].waiting = Some((id, Offer::Pull(pull)));
                return self.starved.push_back(key);
            }
            Err(failure) => failure,
        };
        self.connections[key].proto.fail(id, &failure);
    }

    fn prepare_pull(
        &mut self,
        pull: &Pull,
        user: &User,
    ) -> Result<(Put, Option<MemoryKey>), Failure> {
        if self.draining || self.stopping.is_some() {
            let text = "the server is draining; connect anew";
            return Err(Failure::new(FailureKind::Draining, text));
        }
        if self.pulls.under_way.len() >= MOST {
            let text = format!("{MOST} arrays come from other servers already; try again");
            return Err(Failure::new(FailureKind::Busy, text));
        }
        let put = Put {
            form: pull.form.clone(),
            data_bytes: 0,
            stays: pull.stays,
        };
        let bytes = self.arrays.check(&put, user)?;
        Ok((put, self.memory_for_array(bytes, user)?))
    }

    fn start_pull(&mut self, waiting: Waiting, address: String, loan: HandleId) {
        let bytes = waiting.put.form.bytes().unwrap_or(0);
        self.arrays.reserve(&waiting.user, bytes);
        self.pulls.last += 1;
        self.out.push(Action::Pull {
            number: self.pulls.last,
            address,
            loan,
            memory: waiting.memory,
            bytes,
        });
        self.pulls.under_way.insert(self.pulls.last, waiting);
    }

    /// An array has come from another server, or could not.
    pub(super) fn pulled(&mut self, number: u64, read: Result<(), Failure>) {
        let Some(waiting) = self.pulls.under_way.remove(&number) else {
            return;
        };
        let (Some(key), Ok(())) = (waiting.connection, &read) else {
            self.forget_put(&waiting.put, &waiting.user, waiting.memory);
            if let (Some(key), Err(failure)) = (waiting.connection, read) {
                self.refuse(key, waiting.request, &failure);
            }
            return;
        };
        let id = HandleId(self.ids.next());
        let Waiting {
            put, user, memory, ..
        } = waiting;
        self.arrays.insert(id, &put, user, key, memory);
        if let Some(record) = self.arrays.record(id) {
            self.connections[key].proto.handle(waiting.request, &record);
            self.answered(key);
        }
    }
}

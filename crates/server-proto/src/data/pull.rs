//! Reads stored arrays from other servers at the request of clients. This module gets the memory,
//! limits how many arrays are read at once, and stores each array that has arrived. The shell opens
//! the connection and moves the bytes. If a read fails or its client has left, the module gives the
//! memory back.

use super::Data;
use crate::action::Action;
use crate::connection::Offer;
use crate::context::Context;
use crate::keys::{ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::memory::MemoryGrant;
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Pull, Put, User};

/// Most arrays that are read at once.
const MOST: usize = 32;

/// Arrays that are being read.
#[derive(Debug, Default)]
pub(crate) struct Pulls {
    last: u64,
    under_way: Map<u64, Waiting>,
}

/// A client that waits for an array.
#[derive(Debug)]
struct Waiting {
    /// `None` after the client has disconnected.
    connection: Option<ConnectionKey>,
    request: CallId,
    put: Put,
    user: User,
    memory: MemoryKey,
}

impl Pulls {
    /// Forgets a client that has disconnected.
    pub(crate) fn forget(&mut self, connection: ConnectionKey) {
        for waiting in self.under_way.values_mut() {
            waiting.connection = waiting.connection.filter(|key| *key != connection);
        }
    }
}

impl Data {
    /// Starts to read an array from another server for a client.
    pub(crate) fn offer_pull(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        id: CallId,
        pull: Pull,
    ) {
        if self.pulls.under_way.len() >= MOST {
            let text = format!(
                "{MOST} arrays are already on their way from other servers; try \
             again"
            );
            return cx.refuse(key, id, &Failure::new(FailureKind::Busy, text));
        }
        let user = cx.clients[key].user.clone();
        let put = Put {
            form: pull.form.clone(),
            data_bytes: 0,
            stays: pull.stays,
        };
        match self.room_for(cx, &put, &user) {
            MemoryGrant::Here((_, memory)) => {
                let waiting = Waiting {
                    connection: Some(key),
                    request: id,
                    put,
                    user,
                    memory,
                };
                self.start_pull(cx, waiting, pull.address, pull.loan);
            }
            MemoryGrant::Later => cx.await_room(key, id, Offer::Pull(pull)),
            MemoryGrant::Never(failure) => cx.refuse(key, id, &failure),
        }
    }

    fn start_pull(&mut self, cx: &mut Context, waiting: Waiting, address: String, loan: HandleId) {
        let bytes = waiting.put.form.bytes().unwrap_or(0);
        self.arrays.reserve(&waiting.user, bytes);
        self.pulls.last += 1;
        cx.out.push(Action::Pull {
            number: self.pulls.last,
            address,
            loan,
            memory: waiting.memory,
            bytes,
        });
        self.pulls.under_way.insert(self.pulls.last, waiting);
    }

    /// Handles the arrival of an array from another server, or the error that prevented it.
    pub(crate) fn pulled(&mut self, cx: &mut Context, number: u64, read: Result<(), Failure>) {
        let Some(waiting) = self.pulls.under_way.remove(&number) else {
            return;
        };
        let (Some(key), Ok(())) = (waiting.connection, &read) else {
            self.forget_put(cx, &waiting.put, &waiting.user, waiting.memory);
            if let (Some(key), Err(failure)) = (waiting.connection, read) {
                cx.refuse(key, waiting.request, &failure);
            }
            return;
        };
        let id = HandleId(cx.ids.next());
        let Waiting {
            put, user, memory, ..
        } = waiting;
        self.arrays.insert(id, &put, user, key, memory);
        if let Some(record) = self.arrays.record(id) {
            cx.clients[key].proto.handle(waiting.request, &record);
            cx.answered(key);
        }
    }
}

//! Reads stored arrays from other servers at the request of clients. This module gets the memory,
//! limits how many arrays are read at once, and stores each array that has arrived, also those that
//! `source` has found. The shell opens the connection and moves the bytes. If a read fails or its
//! client has left, the module gives the memory back.

use super::{Data, source};
use crate::action::Action;
use crate::connection::Offer;
use crate::context::Context;
use crate::keys::{ConnectionKey, MemoryKey};
use crate::map::Map;
use crate::memory::MemoryGrant;
use crate::source::SourceRequest;
use farcall_rpc_proto::{CallId, Failure, FailureKind, HandleId, Pull, Put, User};

/// Most arrays that are read at once.
pub(super) const MOST: usize = 32;

/// Arrays that are being read.
#[derive(Debug, Default)]
pub(crate) struct Pulls {
    last: u64,
    under_way: Map<u64, Waiting>,
}

/// A client that waits for an array.
#[derive(Debug)]
pub(super) struct Waiting {
    /// `None` after the client has disconnected.
    pub(super) connection: Option<ConnectionKey>,
    pub(super) request: CallId,
    pub(super) put: Put,
    pub(super) user: User,
    pub(super) memory: MemoryKey,
    /// The source that the array comes from, with its version.
    pub(super) source: Option<SourceRequest>,
}

impl Pulls {
    /// The number of the next read.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a read that is under way.
    pub(super) fn insert(&mut self, number: u64, waiting: Waiting) {
        self.under_way.insert(number, waiting);
    }

    /// Number of reads that are under way.
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Number of sources that are being read for a user.
    pub(super) fn sources_of(&self, user: &User) -> usize {
        let under_way = self.under_way.values();
        let sources = under_way.filter(|one| one.source.is_some() && one.user == *user);
        sources.count()
    }

    /// The source that a request of a connection reads.
    pub(super) fn source_of(&self, key: ConnectionKey, id: CallId) -> Option<&SourceRequest> {
        let mut under_way = self.under_way.values();
        let found = under_way.find(|one| one.connection == Some(key) && one.request == id);
        found?.source.as_ref()
    }

    /// Forgets a client that has disconnected.
    pub(super) fn forget(&mut self, connection: ConnectionKey) {
        for waiting in self.under_way.values_mut() {
            waiting.connection = waiting.connection.filter(|key| *key != connection);
        }
    }
}

impl Data {
    /// Starts to read an array from another server or from a source for a client.
    pub(crate) fn offer_pull(
        &mut self,
        cx: &mut Context,
        key: ConnectionKey,
        id: CallId,
        pull: Pull,
    ) {
        if pull.source.is_some() {
            return source::offer(self, cx, key, id, pull);
        }
        if source::arriving(self) >= MOST {
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
                    source: None,
                };
                self.start_pull(cx, waiting, pull.address, pull.loan);
            }
            MemoryGrant::Later => cx.await_room(key, Offer::Pull(pull).came(id, cx.now()), 0),
            MemoryGrant::Never(failure) => cx.refuse(key, id, &failure),
        }
    }

    fn start_pull(&mut self, cx: &mut Context, waiting: Waiting, address: String, loan: HandleId) {
        let bytes = waiting.put.form.bytes().unwrap_or(0);
        self.arrays.reserve(&waiting.user, bytes);
        let number = self.pulls.next();
        cx.out.push(Action::Pull {
            number,
            address,
            loan,
            memory: waiting.memory,
            bytes,
        });
        self.pulls.insert(number, waiting);
    }

    /// Handles the arrival of an array from elsewhere, or the error that prevented it.
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
            put,
            user,
            memory,
            source: from,
            ..
        } = waiting;
        self.arrays.insert(id, &put, user.clone(), key, memory);
        // It may go to the disk now.
        cx.has_room = true;
        if let Some(from) = from {
            source::cache(self, cx, id, &user, from);
        }
        if let Some(record) = self.arrays.record(id) {
            cx.clients[key].proto.handle(waiting.request, &record);
            cx.answered(key);
        }
    }
}

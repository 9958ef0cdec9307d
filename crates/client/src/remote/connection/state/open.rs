//! The requests of a connection that have no answer yet. Early ones are for results that the caller
//! does not wait for yet. They do not count where it matters whether anybody waits.

use crate::output::Printed;
use crate::remote::connection::calls::Bulk;
use crate::remote::connection::transfer::Transfer;
use farcall_rpc_proto::{CallId, Callback};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

/// Most early requests at a time. Their results fit into the system's buffers, because nobody reads
/// them for a while.
const MOST_EARLY: usize = 16;

/// An open request.
#[derive(Default)]
pub(crate) struct Open {
    pub(super) transfer: Option<Transfer>,
    /// A callback that the called function waits for.
    pub(super) callback: Option<Box<Callback>>,
    /// Output of the function, if the caller wants it.
    pub(super) printed: Option<Arc<Printed>>,
    /// The caller has given the request up.
    pub(super) abandoned: bool,
    /// The answer is an array that the server has made for this request.
    pub(super) makes_array: bool,
    /// Set if the arrays of the request are large.
    pub(super) bulk: Option<Bulk>,
}

/// All open requests, by number. Nothing but [`OpenRequests::close`] and its like takes one out, so
/// that the early ones are counted right.
#[derive(Default)]
pub(crate) struct OpenRequests {
    all: HashMap<CallId, Open>,
    early: HashSet<CallId>,
}

impl OpenRequests {
    /// Number of requests without an answer, those that were given up included. Early ones do not
    /// count.
    pub(crate) fn awaited(&self) -> usize {
        self.all.len() - self.early.len()
    }

    /// Whether only early requests are open, for which nobody reads.
    pub(crate) fn has_only_early(&self) -> bool {
        !self.early.is_empty() && self.awaited() == 0
    }

    /// Whether another request may be early.
    pub(super) fn takes_early(&self) -> bool {
        self.early.len() < MOST_EARLY
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Open> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: CallId, open: Open) {
        self.all.insert(id, open);
    }

    /// Nobody takes the answer of this request.
    pub(super) fn abandon(&mut self, id: CallId) {
        if let Some(open) = self.all.get_mut(&id) {
            open.abandoned = true;
        }
    }

    pub(super) fn insert_early(&mut self, id: CallId, open: Open) {
        self.all.insert(id, open);
        self.early.insert(id);
    }

    /// From now on, the caller waits for an early request.
    pub(super) fn claim(&mut self, id: CallId) {
        self.early.remove(&id);
    }

    /// Takes a request out.
    pub(super) fn close(&mut self, id: CallId) -> Option<Open> {
        self.early.remove(&id);
        self.all.remove(&id)
    }

    /// Takes all requests out.
    pub(super) fn close_all(&mut self) -> HashMap<CallId, Open> {
        self.early.clear();
        std::mem::take(&mut self.all)
    }
}

impl Deref for OpenRequests {
    type Target = HashMap<CallId, Open>;

    fn deref(&self) -> &HashMap<CallId, Open> {
        &self.all
    }
}

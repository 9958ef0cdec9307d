//! Who may send its arguments: a client holds those of large calls back until there is memory for
//! them, so that its connection is free for others meanwhile.

use super::Server;
use crate::action::Action;
use crate::connection::Offer;
use crate::flaw::{Flaw, has};
use crate::job;
use crate::keys::ConnectionKey;
use farcall_rpc_proto::CallId;

/// Argument streams of a connection that may be on their way: one comes while the next is about to,
/// and more would only hold memory.
const STREAMS: usize = 2;

impl Server {
    /// A client offers a call, which takes its turn behind others that wait for a grant.
    pub(super) fn offer_in_turn(&mut self, key: ConnectionKey, id: CallId, offer: Offer) {
        let connection = &self.connections[key];
        let waits = connection.proto.waits_for_grant(offer.data_bytes());
        if !waits || (connection.held.is_empty() && self.streams_in(key) < STREAMS) {
            return self.offer(key, id, offer);
        }
        self.connections[key].held.push_back((id, offer));
        self.note_holding(key);
    }

    /// A call waits until there is memory for its arguments.
    pub(super) fn hold(&mut self, key: ConnectionKey, id: CallId, offer: Offer) {
        self.connections[key].held.push_front((id, offer));
        self.note_holding(key);
        if !self.starved.contains(&key) {
            self.starved.push_back(key);
        }
    }

    /// A call is not wanted any more that may wait for a grant.
    pub(super) fn forget_held(&mut self, key: ConnectionKey, id: CallId) {
        let connection = &mut self.connections[key];
        let count = connection.held.len();
        connection.held.retain(|(held, _)| *held != id);
        let was_held = connection.held.len() < count;
        let is_starved = connection.waiting.is_some() || !connection.held.is_empty();
        if was_held && !is_starved && self.starved.contains(&key) {
            self.starved.retain(|starved| *starved != key);
            self.wake_starved();
        }
    }

    fn note_holding(&mut self, key: ConnectionKey) {
        if !self.holding.contains(&key) {
            self.holding.push(key);
        }
    }

    /// Argument streams of a connection that were granted and have not come whole.
    fn streams_in(&self, key: ConnectionKey) -> usize {
        let connection = &self.connections[key];
        let jobs = connection.calls.values().map(|job| &self.calls[*job]);
        let receiving = jobs.filter(|job| job.state == job::State::Receiving);
        let long = |job: &&job::Job| connection.proto.waits_for_grant(job.layout.sent_bytes());
        receiving.filter(long).count()
    }

    /// Goes on with calls that have waited behind others of their connection.
    pub(super) fn grant_held(&mut self) {
        for key in std::mem::take(&mut self.holding) {
            while self.is_open(key)
                && !self.starved.contains(&key)
                && self.streams_in(key) < STREAMS
                && let Some((id, offer)) = self.connections[key].held.pop_front()
            {
                self.offer(key, id, offer);
                self.answered(key);
            }
            if self.is_open(key) && !self.connections[key].held.is_empty() {
                self.note_holding(key);
            }
        }
    }

    /// Memory has become free: calls that wait for some go on, in their order.
    pub(super) fn wake_starved(&mut self) {
        self.has_room = true;
        if has(Flaw::ForgetsStarved) {
            return;
        }
        while let Some(key) = self.starved.pop_front() {
            if !self.is_open(key) {
                continue;
            }
            let connection = &mut self.connections[key];
            let waiting = connection.waiting.take();
            let blocked = waiting.is_some();
            let Some((id, offer)) = waiting.or_else(|| connection.held.pop_front()) else {
                continue;
            };
            let others = std::mem::take(&mut self.starved);
            self.offer(key, id, offer);
            self.answered(key);
            let still_starved = !self.starved.is_empty();
            self.starved.extend(others);
            if still_starved {
                return;
            }
            if blocked {
                self.out.push(Action::Resume(key));
            }
        }
    }
}

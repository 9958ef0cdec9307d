//! Ids of other users, which a client tries. Each attempt must fail.

use super::{Client, Purpose, Scene};
use crate::checker::Secret;
use farcall_rpc_proto::{CallName, ObjectRequest, ReservationRequest};

impl Client {
    /// Tries an id of another user.
    pub(super) fn trespass(&mut self, scene: &mut Scene<'_>) {
        let who = (self.life, self.user);
        let Some(secret) = scene.checker.secrets.pick(who, scene.random) else {
            return;
        };
        let is_gentle = scene.random.chance(0.5);
        let Some(connection) = &mut self.connection else {
            return;
        };
        let made = match (secret, is_gentle) {
            (Secret::Array(id), true) => connection.get(id, 1),
            (Secret::Array(id), false) => connection.drop_handle(id),
            (Secret::Object(id), true) => connection.objects(ObjectRequest::Attach(id)),
            (Secret::Object(id), false) => connection.objects(ObjectRequest::Drop(id)),
            (Secret::QueuedCall(id), true) if scene.now.is_multiple_of(2) => {
                connection.ask_call(CallName::Durable(id))
            }
            (Secret::QueuedCall(id), true) => connection.ask_job(id),
            (Secret::QueuedCall(id), false) => connection.cancel_job(id, true),
            (Secret::Reservation(id), true) => {
                connection.reservations(ReservationRequest::Attach(id))
            }
            (Secret::Reservation(id), false) => {
                connection.reservations(ReservationRequest::Release(id))
            }
        };
        self.asked(made, Purpose::Trespass, Vec::new(), scene.now);
    }

    /// The server answered a request for another user's id.
    pub(super) fn trespassed(&self, scene: &mut Scene<'_>) {
        let text = format!("user {} reaches something of another user", self.user);
        scene.checker.fail(text);
    }
}

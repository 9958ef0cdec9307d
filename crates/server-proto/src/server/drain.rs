//! The graceful end: no new calls, those that were taken end, then the server does.

use super::Server;
use crate::action::Action;
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use farcall_rpc_proto::{CallId, Failure, FailureKind};

impl Server {
    /// A client asks for the end.
    pub(super) fn drain_for(&mut self, key: ConnectionKey, request: CallId) {
        let connection = &self.connections[key];
        let user = connection.user.clone();
        if !connection.peer.is_operator {
            let text = format!(
                "{user} may not end this server: only root, the user it runs as, and those whom \
                 access.operators in its configuration names"
            );
            let failure = Failure::new(FailureKind::NotAllowed, text);
            return self.connections[key].proto.fail(request, &failure);
        }
        tracing::info!("{user} asks the server to end");
        self.drain();
        let calls = self.calls.len() as u64;
        self.connections[key].proto.draining(request, calls);
    }

    /// Takes no more connections and calls from now on.
    pub(super) fn drain(&mut self) {
        if self.draining {
            return;
        }
        tracing::info!("draining: {} calls are to end", self.calls.len());
        self.out.push(Action::StopListening);
        self.draining = true;
        self.refuse_stranded();
    }

    /// While draining: lets connections without calls go, and ends when all have gone.
    pub(super) fn let_go(&mut self) {
        if !self.draining || self.stopping.is_some() {
            return;
        }
        let idle: Vec<ConnectionKey> = self
            .connections
            .iter()
            .filter(|(key, connection)| {
                connection.connected
                    && connection.proto.open_calls() == 0
                    && connection.waiting.is_none()
                    && connection.held.is_empty()
                    && !connection.has_output
                    && self.is_open(*key)
            })
            .map(|(key, _)| key)
            .collect();
        for key in idle {
            let proto = &mut self.connections[key].proto;
            if !has(Flaw::ForgetsGoodbye) {
                proto.goodbye("the server is draining; connect anew");
            }
            self.close(key, None);
        }
        if self.calls.is_empty() && self.connections.len() == self.closed.len() {
            self.stop();
        }
    }
}

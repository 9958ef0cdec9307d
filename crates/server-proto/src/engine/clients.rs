//! How connections begin and end, one by one or all together with the server.

use super::Engine;
use crate::action::{Action, Direction};
use crate::call::State;
use crate::context::Context;
use crate::event::{Identity, Refused};
use crate::flaw::{Flaw, has};
use crate::keys::ConnectionKey;
use crate::objects::Objects;
use crate::segments;
use crate::settings::nanos;
use farcall_rpc_proto::{CallId, Failure, FailureKind, Nanos, ProtocolError};

/// Asks a client for the proof of who it is.
pub(super) fn challenge(cx: &mut Context, key: ConnectionKey, text: String) {
    if let Some(connection) = cx.clients.get_mut(key) {
        connection.proto.challenge(text);
        cx.answered(key);
    }
}

impl Engine {
    /// Handles the result of authentication: the client becomes a user, or is refused.
    pub(super) fn authenticated(&mut self, key: ConnectionKey, found: Result<Identity, Refused>) {
        let clients = &mut self.cx.clients;
        if !clients.is_open(key) {
            return;
        }
        let most = self.cx.settings.limits.connections_per_user;
        // Readings of lent arrays belong to no user.
        let is_user = clients[key].loan.is_none();
        let found = found.and_then(|found| match clients.too_many(&found.user, most) {
            Some(text) if is_user => Err(Refused::from(text)),
            _ => Ok(found),
        });
        let connection = &mut clients[key];
        let (peer, agent) = (&connection.peer.name, &connection.peer.agent);
        match found {
            Ok(Identity {
                user,
                is_operator,
                signature,
            }) => {
                tracing::debug!("{peer}: connected, {agent}, user {user}");
                connection.user = user;
                connection.peer.is_operator = is_operator;
                connection.connected = true;
                connection.proto.welcome(signature);
                self.cx.answered(key);
            }
            Err(refusal) => {
                connection.proto.refuse(refusal.text);
                if let Some(text) = refusal.logged {
                    tracing::warn!("{peer}: refused: {text}");
                    self.cx.audit_refusal(key, &text);
                }
                self.close(key, None);
            }
        }
    }

    /// Ends the connection of a client that violates the protocol, and tells it why.
    pub(crate) fn break_off(&mut self, key: ConnectionKey, error: &ProtocolError) {
        if !matches!(error, ProtocolError::NotFarcall | ProtocolError::Goodbye(_)) {
            self.cx.clients[key].proto.goodbye(error.to_string());
        }
        self.close(key, Some(error.to_string()));
    }

    /// Ends a connection with all its calls.
    pub(super) fn close(&mut self, key: ConnectionKey, error: Option<String>) {
        let cx = &mut self.cx;
        if !cx.clients.is_open(key) {
            return;
        }
        cx.clients.close(key);
        let connection = &mut cx.clients[key];
        let peer = &connection.peer.name;
        match (&error, connection.calls.len()) {
            (Some(error), _) => tracing::warn!("{peer}: connection closed: {error}"),
            (None, 0) => tracing::debug!("{peer}: connection closed"),
            (None, calls) => {
                tracing::warn!("{peer}: the client disconnected during {calls} calls");
            }
        }
        let sending = std::mem::take(&mut connection.sending);
        let mut calls = std::mem::take(&mut connection.calls);
        let objects = std::mem::take(&mut connection.objects);
        let segments = std::mem::take(&mut connection.segments);
        cx.out.push(Action::Close(key));
        self.lanes.close(key);
        self.durable_calls.stop_fetching(cx, key, None);
        self.data.pulls.forget(key);
        calls.retain(|_, call| !sending.contains(call));
        for call in sending {
            self.release(call);
        }
        for (_, call) in calls {
            self.abandon(call);
        }
        let cx = &mut self.cx;
        for (_, object) in objects {
            Objects::give_up(cx, &mut self.elements, &object);
        }
        self.data.end_arrays_of(cx, key);
        for (_, segment) in segments {
            segments::give_up(cx, segment);
        }
    }

    /// Closes connections that never greeted.
    pub(super) fn end_silent(&mut self) {
        let patience_s = self.cx.settings.limits.greeting_s;
        for key in self.cx.clients.silent(patience_s, self.cx.now()) {
            tracing::warn!(
                "{}: the client sent no greeting",
                self.cx.clients[key].peer.name
            );
            self.close(key, None);
        }
    }

    /// Ends transfers that make no progress, because they hold memory. Time in which the server
    /// itself does not read does not count.
    pub(super) fn end_stalled(&mut self) {
        let cx = &self.cx;
        let is_busy = !cx.clients.starved.is_empty();
        let Some(bound) = cx.settings.limits.stalled(is_busy) else {
            return;
        };
        let latest = cx.now().saturating_sub(nanos(bound));
        let mut silent = Vec::new();
        let mut deaf = Vec::new();
        for (key, call) in cx.calls.iter() {
            let moved = call.streams.moved.max(call.times.accepted);
            let Some(connection) = call.connection.filter(|_| (1..latest).contains(&moved)) else {
                continue;
            };
            // A client that waits for its turn is not at fault.
            let direction = match call.state {
                State::Receiving => Direction::Up,
                _ => Direction::Down,
            };
            if self.lanes.waits(connection, direction) {
                continue;
            }
            let known = &cx.clients[connection];
            match call.state {
                State::Receiving if known.takes_input() => silent.push(key),
                State::Sending if known.taken < latest => deaf.push(connection),
                _ => {}
            }
        }
        for call in silent {
            let text = format!(
                "received no more of its arguments for {bound} s (limits.stalled_s and \
                 limits.stalled_busy_s in the server's configuration)"
            );
            self.fail(call, FailureKind::Stalled, &text);
        }
        deaf.sort_unstable();
        deaf.dedup();
        for connection in deaf {
            let text = format!(
                "the client has not read results for {bound} s (limits.stalled_s and \
                 limits.stalled_busy_s in the configuration)"
            );
            self.close(connection, Some(text));
        }
    }

    /// Begins to stop: running and waiting calls fail, and results that are being sent still leave.
    pub(super) fn stop(&mut self) {
        /// How long a stopping server waits for clients to read its last output.
        const LAST_WORDS: Nanos = 2_000_000_000;
        let cx = &mut self.cx;
        if cx.stopping.is_some() {
            return;
        }
        tracing::info!("stopping");
        cx.stopping = Some(cx.now() + LAST_WORDS);
        cx.out.push(Action::StopListening);
        for key in cx.clients.open() {
            let connection = &mut cx.clients[key];
            let open = connection.calls.iter();
            let open = open.filter(|(_, call)| !connection.sending.contains(call));
            let open: Vec<_> = open.map(|(id, _)| *id).collect();
            let waiting = connection.waiting.take().map(|(call, _)| call);
            let held = std::mem::take(&mut connection.held);
            let held = held.into_iter().map(|(call, _)| call);
            for call in open.into_iter().chain(waiting).chain(held) {
                let text = "the server is stopping; the call did not complete";
                let failure = Failure::new(FailureKind::ServerStopping, text);
                connection.proto.fail(call, &failure);
            }
            // A client takes a goodbye as a sign that nothing of what it waits for has begun.
            if connection.sending.is_empty() {
                connection.proto.goodbye("the server is stopping");
            }
            cx.answered(key);
        }
    }

    /// Begins to drain for a client: the server takes no new calls, ends the ones it has, and then
    /// ends itself.
    pub(super) fn drain_for(&mut self, key: ConnectionKey, request: CallId) {
        let connection = &self.cx.clients[key];
        let user = connection.user.clone();
        if !connection.peer.is_operator {
            let text = format!(
                "{user} is not allowed to stop this server; its own user, root, and the users in \
                 access.operators of its configuration are"
            );
            let failure = Failure::new(FailureKind::NotAllowed, text);
            return self.cx.refuse(key, request, &failure);
        }
        tracing::info!("{user} asks the server to end");
        self.drain();
        let calls = self.cx.calls.len() as u64;
        self.cx.clients[key].proto.draining(request, calls);
    }

    /// Takes no more connections and calls from now on.
    pub(super) fn drain(&mut self) {
        let cx = &mut self.cx;
        if cx.draining {
            return;
        }
        tracing::info!("draining: waiting for {} calls to end", cx.calls.len());
        cx.out.push(Action::StopListening);
        cx.draining = true;
        self.durable_calls.refuse_stranded(cx);
        self.takeover.refuse_all(cx);
    }

    /// While draining: releases connections without calls, and ends when all have left.
    pub(super) fn let_go(&mut self) {
        if !self.cx.draining || self.cx.stopping.is_some() {
            return;
        }
        for key in self.cx.clients.open() {
            let connection = &mut self.cx.clients[key];
            if connection.is_idle() {
                let text = "the server is draining; connect again";
                if !has(Flaw::ForgetsGoodbye) {
                    connection.proto.goodbye(text);
                }
                self.close(key, None);
            }
        }
        if self.cx.calls.is_empty() && self.cx.clients.all_have_gone() {
            self.stop();
        }
    }
}

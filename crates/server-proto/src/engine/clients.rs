//! Ends connections, and admits a client after the shell has authenticated it. It also ends
//! transfers that do not move, and stops or drains the whole server. `requests` handles what
//! clients ask for. While the server drains, it closes a connection only when the connection has no
//! call left.

use super::Engine;
use crate::action::{Action, Direction};
use crate::call::{ActiveCall, State};
use crate::connection::Connection;
use crate::context::Context;
use crate::data::source;
use crate::event::{Identity, Refused};
use crate::flaw::{Flaw, has};
use crate::keys::{CallKey, ConnectionKey};
use crate::objects::Objects;
use crate::segments;
use crate::settings::nanos;
use farcall_quantity::counted;
use farcall_rpc_proto::{CallId, Failure, FailureKind, Nanos, ProtocolError};
use std::collections::BTreeSet;

/// How long a draining server keeps an idle connection after the last use of an array that ends
/// with it, in milliseconds.
const FETCH_MS: u64 = 5_000;

/// No request has this number.
const NO_REQUEST: CallId = 0;

/// Why a transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stall {
    /// It does not move.
    Still,
    /// It is slow while somebody waits for its memory.
    Slow,
}

/// Asks a client for the proof of who it is.
pub(super) fn challenge(cx: &mut Context, key: ConnectionKey, text: String) {
    if let Some(connection) = cx.clients.get_mut(key) {
        connection.proto.challenge(text);
        cx.answered(key);
    }
}

/// Shows clients that the server is there while it reads nothing from them, so that it cannot
/// answer when they ask. A client ignores a failure of a request that it has not made.
pub(super) fn show_life(cx: &mut Context) {
    let waits = Failure::new(FailureKind::Busy, "the request waits for its turn");
    for key in cx.clients.blocked() {
        cx.refuse(key, NO_REQUEST, &waits);
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

    /// Ends the connection of a client that violates the protocol, and tells it why. Its calls fail
    /// first: a client takes a goodbye alone as a sign that none of them has begun.
    pub(crate) fn break_off(&mut self, key: ConnectionKey, error: &ProtocolError) {
        if !matches!(error, ProtocolError::NotFarcall | ProtocolError::Goodbye(_)) {
            let connection = &mut self.cx.clients[key];
            let text = format!("the connection was closed before the call was over: {error}");
            let failure = Failure::new(FailureKind::Internal, text);
            for call in connection.calls.keys() {
                connection.proto.fail(*call, &failure);
            }
            connection.proto.goodbye(error.to_string());
        }
        self.close(key, Some(error.to_string()));
    }

    /// Ends a connection with all its calls.
    pub(super) fn close(&mut self, key: ConnectionKey, error: Option<String>) {
        let cx = &mut self.cx;
        if !cx.clients.is_open(key) {
            return;
        }
        // The ones behind it may want less memory.
        cx.has_room |= cx.clients.is_starved(key);
        cx.clients.close(key);
        let connection = &mut cx.clients[key];
        let peer = &connection.peer.name;
        match (&error, connection.calls.len()) {
            (Some(error), _) => tracing::warn!("{peer}: connection closed: {error}"),
            (None, 0) => tracing::debug!("{peer}: connection closed"),
            (None, calls) => {
                let calls = counted(calls, "call");
                tracing::warn!("{peer}: the client disconnected during {calls}");
            }
        }
        let sending = std::mem::take(&mut connection.sending);
        let mut calls = std::mem::take(&mut connection.calls);
        let objects = std::mem::take(&mut connection.objects);
        let segments = std::mem::take(&mut connection.segments);
        cx.out.push(Action::Close(key));
        self.lanes.close(key);
        self.durable_calls.stop_fetching(cx, key, None);
        self.takeover.leave(key);
        source::forget(&mut self.data, key);
        calls.retain(|_, call| !sending.contains(call));
        for call in sending {
            self.abandon(call);
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

    /// Ends transfers that make no progress, because they hold memory, and transfers that are slow
    /// while somebody waits for that memory. If the server itself has not run, it judges nobody.
    pub(super) fn end_stalled(&mut self, has_run: bool) {
        let limits = &self.cx.settings.limits;
        let (stalled_s, busy_s) = (limits.stalled_s, limits.stalled_busy_s);
        let slower = format!(
            "slower than {} bytes/s over {busy_s} s while others wait for memory \
             (limits.stalled_busy_rate and limits.stalled_busy_s",
            limits.least_busy() as f64 / busy_s
        );
        let (mut silent, mut deaf) = (Vec::new(), Vec::new());
        for (call, connection, why) in stalled(self, has_run) {
            match (self.cx.calls[call].state, why) {
                (State::Receiving, why) => silent.push((call, why)),
                (_, why) => deaf.push((connection, why)),
            }
        }
        for (call, why) in silent {
            let what = match why {
                Stall::Still => {
                    format!("received no more of its arguments for {stalled_s} s (limits.stalled_s")
                }
                Stall::Slow => format!("received its arguments {slower}"),
            };
            let text = format!("{what} in the server's configuration); try again");
            self.fail(call, FailureKind::Stalled, &text);
        }
        for (connection, why) in deaf {
            let what = match why {
                Stall::Still => {
                    format!("has not read results for {stalled_s} s (limits.stalled_s")
                }
                Stall::Slow => format!("reads results {slower}"),
            };
            let text = format!("the client {what} in the configuration)");
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
        let unconfirmed = self.durable_calls.unconfirmed();
        let recording: BTreeSet<CallKey> = unconfirmed.iter().flat_map(|all| all.calls()).collect();
        for key in self.cx.clients.open() {
            let cx = &mut self.cx;
            let connection = &cx.clients[key];
            let open = connection.calls.iter();
            // The journal says what becomes of a call whose record is on its way.
            let goes_on = |call| connection.sending.contains(call) || recording.contains(call);
            let open = open.filter(|(_, call)| !goes_on(call));
            let (open, calls): (Vec<_>, Vec<_>) = open.map(|(id, call)| (*id, *call)).unzip();
            for call in calls {
                let outcome = FailureKind::ServerStopping.name();
                cx.audit_call(call, outcome);
                cx.note_call(call, outcome);
                // Whatever becomes of it, its client has this answer.
                cx.calls[call].connection = None;
            }
            let connection = &mut cx.clients[key];
            for call in &open {
                connection.calls.remove(call);
            }
            let waiting = connection.take_waiting();
            let text = "the server is stopping; the call did not complete";
            let failure = Failure::new(FailureKind::ServerStopping, text);
            for call in open {
                connection.proto.fail(call, &failure);
            }
            for offered in &waiting {
                cx.refuse_offered(key, offered, &failure);
            }
            say_goodbye(self, key);
            self.cx.answered(key);
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
        let calls = counted(cx.calls.len(), "call");
        tracing::info!("draining: waiting for {calls} to end");
        cx.out.push(Action::StopListening);
        cx.draining = true;
        self.durable_calls.refuse_stranded(cx);
        self.takeover.refuse_all(cx);
        refuse_starved(cx);
        // Sources whose arrays wait for memory are refused when they are looked at again.
        cx.has_room = true;
    }

    /// While draining: releases connections without calls, and ends when all have left.
    pub(super) fn let_go(&mut self) {
        if !self.cx.draining || self.cx.stopping.is_some() {
            return;
        }
        // Their clients may be about to fetch what their last call has written.
        let kept = self.data.arrays.just_used(FETCH_MS);
        for key in self.cx.clients.open() {
            let connection = &mut self.cx.clients[key];
            if connection.is_idle() && !kept.contains(&key) {
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

/// Refuses the requests that wait for memory, because the server itself ends. Its successor may
/// have memory for them at once.
fn refuse_starved(cx: &mut Context) {
    let Some(failure) = cx.is_ending() else {
        return;
    };
    for starved in cx.clients.take_starved() {
        let key = starved.connection;
        if !cx.clients.is_open(key) {
            continue;
        }
        let connection = &mut cx.clients[key];
        if connection.waiting.is_some() {
            cx.out.push(Action::Resume(key));
        }
        for offered in connection.take_waiting() {
            cx.refuse_offered(key, &offered, &failure);
        }
    }
}

/// Takes leave of a client if the server is stopping. A client takes this as a sign that nothing of
/// what it waits for has begun, so its results leave first, and so do the outcomes of calls that
/// are being recorded.
pub(crate) fn say_goodbye(engine: &mut Engine, key: ConnectionKey) {
    let cx = &mut engine.cx;
    if cx.stopping.is_none() {
        return;
    }
    let unconfirmed = engine.durable_calls.unconfirmed();
    let awaits_record = unconfirmed.is_some_and(|all| all.is_awaited(cx, Some(key)));
    let connection = &mut cx.clients[key];
    if connection.sending.is_empty() && !awaits_record {
        connection.proto.goodbye("the server is stopping");
    }
}

/// The transfers that are stalled. Time in which the server itself does not read does not
/// count, nor does the time in which a client waits for its turn.
fn stalled(engine: &mut Engine, has_run: bool) -> Vec<(CallKey, ConnectionKey, Stall)> {
    let Engine {
        cx,
        lanes,
        durable_calls,
        data,
        ..
    } = engine;
    let now = cx.now();
    let limits = &cx.settings.limits;
    let (window, least) = (nanos(limits.stalled_busy_s), limits.least_busy());
    let latest = limits
        .stalled()
        .map_or(0, |bound| now.saturating_sub(bound));
    let next = match durable_calls.await_memory() || data.turns.starves() {
        true => Some(0),
        false => {
            let next = cx.clients.next_starved(&cx.memory);
            next.map(|(_, (held, _))| held)
        }
    };
    // Who holds less memory than the user who waits does not stand in its way.
    let is_wanted = |user| {
        let held = next.filter(|_| window > 0 && !has(Flaw::AwaitsSlowClients));
        held.is_some_and(|held| cx.memory.held_by(user) >= held)
            || window > 0 && cx.clients.user_awaits_own(user, &cx.memory)
    };
    let (mut stalled, mut over) = (Vec::new(), Vec::new());
    for (key, call) in cx.calls.iter() {
        let direction = match call.state {
            State::Receiving => Direction::Up,
            State::Sending => Direction::Down,
            _ => continue,
        };
        // Results that were given up hold memory until their last pieces are written.
        let connection = match direction {
            Direction::Up => call.connection,
            Direction::Down => call.connection.or_else(|| cx.clients.who_reads(key)),
        };
        let Some(connection) = connection else {
            continue;
        };
        let known = &cx.clients[connection];
        let (began, moved) = moments(call, known, direction);
        let reads = has_run && (direction == Direction::Down || known.takes_input());
        let pace = &known.paces[direction as usize];
        if !reads || lanes.waits(connection, direction) {
            over.push((connection, direction));
            continue;
        }
        let is_over = pace.is_over(window, now);
        if moved < latest {
            stalled.push((key, connection, Stall::Still));
        } else if is_over && pace.is_slow(began, least) && is_wanted(&call.user) {
            stalled.push((key, connection, Stall::Slow));
        }
        if is_over {
            over.push((connection, direction));
        }
    }
    for (connection, direction) in over {
        cx.clients[connection].paces[direction as usize].restart(now);
    }
    stalled
}

/// When a transfer began, and when its bytes last moved.
fn moments(call: &ActiveCall, known: &Connection, direction: Direction) -> (Nanos, Nanos) {
    match direction {
        Direction::Up => {
            let accepted = call.times.accepted;
            (accepted, call.streams.moved.max(accepted))
        }
        Direction::Down => {
            let began = call.streams.moved;
            (began, began.max(known.taken))
        }
    }
}

#[cfg(test)]
mod tests;

//! What happens on sockets, pipes and timers.

use super::{KEEP, LAST_WORDS, Reactor, SWEEP, Source, Way};
use crate::connection::{Broken, Connection, Step, TURN_BYTES};
use crate::job;
use crate::listen::{Accepted, Listener};
use crate::worker::State;
use farcall_rpc_proto::{self as proto, Failure, FailureKind, Hello, ProtocolError};
use rustix::event::epoll::{self, EventFlags};
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// Addresses of its own that a client is told.
const MOST_WAYS: usize = 16;
/// Array bytes of a frame to another host: what a small answer waits for.
const REMOTE_BYTES: u32 = 64 << 10;
/// Connections accepted in one go.
const ACCEPTS: usize = 64;

impl Reactor {
    pub(super) fn handle(&mut self, source: Source, flags: EventFlags) {
        match source {
            Source::Listener(index) => self.accept(index),
            Source::Connection(key) if self.is_open(key) => self.connection_event(key, flags),
            Source::WorkerSocket(key) if self.workers.contains(key) => self.worker_event(key),
            Source::WorkerOutput(key) if self.workers.contains(key) => self.worker_output(key),
            Source::Connection(_) | Source::WorkerSocket(_) | Source::WorkerOutput(_) => {}
            Source::Doorbell => {
                let _ = rustix::io::read(&self.doorbell, &mut [0u8; 8]);
                self.answer_readers();
            }
            Source::Signal => {
                let _ = self.signals.read(&mut [0; 64]);
                self.stop();
            }
            Source::Drain => {
                let _ = self.drains.read(&mut [0; 64]);
                self.drain();
            }
        }
    }

    pub(super) fn is_open(&self, key: usize) -> bool {
        self.connections.contains(key) && !self.closed.contains(&key)
    }

    pub(super) fn accept(&mut self, index: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            match listener.accept() {
                Ok(accepted) => self.admit(accepted),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    // Mostly for lack of descriptors, which does not pass by trying again.
                    self.listen_for(EventFlags::empty());
                    self.accepts = false;
                    return;
                }
            }
        }
    }

    fn listen_for(&self, flags: EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = Source::Listener(index).data();
            if let Err(error) = epoll::modify(&self.epoll, listener.fd(), data, flags) {
                tracing::error!("a listening socket cannot be watched: {error}");
            }
        }
    }

    fn admit(&mut self, accepted: Accepted) {
        let mut limits = proto::Limits {
            calls: self.config.limits.calls_per_connection,
            ..proto::Limits::default()
        };
        if !accepted.is_local {
            limits.chunk_bytes = REMOTE_BYTES;
        }
        let mut hello = Hello::new(concat!("farcall-server ", env!("CARGO_PKG_VERSION")));
        hello.features |= proto::ESTIMATES | proto::CALLBACKS | proto::OUTPUT | proto::FILES;
        hello.features |= proto::OBJECTS | proto::OPERATION | proto::REGISTER | proto::HANDLES;
        hello.features |= proto::PARTS | proto::CREDIT | proto::KEPT_OBJECTS;
        hello.calls = u32::try_from(limits.calls).ok();
        hello.features |= proto::LOANS | proto::NAMES | proto::RESERVATIONS;
        if self.config.state.is_some() {
            hello.features |= proto::JOBS;
        }
        if accepted.is_unix {
            hello.features |= proto::SHARED_MEMORY;
        } else if accepted.is_local && accepted.session.is_none() {
            hello.local = self
                .listeners
                .iter()
                .find_map(Listener::local_name)
                .map(str::to_owned);
        }
        if !accepted.is_local {
            let tls = accepted.session.is_some();
            let ways = self
                .listeners
                .iter()
                .flat_map(|listener| listener.ways(tls));
            let ways: Vec<String> = ways.take(MOST_WAYS).map(|way| way.to_string()).collect();
            hello.ways = (ways.len() > 1).then_some(ways);
        }
        let mut connection = Connection::new(accepted, limits, hello, self.nanos());
        let most = self.config.limits.connections;
        if self.connections.len() >= most {
            tracing::warn!("{}: refused, {most} connections are open", connection.peer);
            connection
                .proto
                .goodbye(format!("the server is full ({most} connections)"));
            // One try: a fresh socket has room for it.
            let _ = connection.flush(&mut self.jobs, || 0);
            return;
        }
        let key = self.connections.vacant_key();
        let registered = self.watch(
            connection.fd(),
            Source::Connection(key),
            connection.interest,
        );
        match registered {
            Ok(()) => {
                self.lanes.take_in(&connection);
                self.connections.insert(connection);
            }
            Err(error) => tracing::warn!("{}: {error}", connection.peer),
        }
    }

    /// A client has greeted: it becomes a user, or is refused.
    pub(super) fn welcome(&mut self, key: usize, hello: &Hello) {
        let connection = &self.connections[key];
        let user = match connection.lacks_tls() {
            true => Err("this address speaks TLS; connect to farcalls://".to_string()),
            false => {
                let evidence = connection.evidence(hello.token.as_deref());
                self.access.user(&evidence)
            }
        };
        let user = user.and_then(|user| match self.too_many_connections(&user) {
            None => Ok(user),
            Some(text) => Err(text),
        });
        let connection = &mut self.connections[key];
        let peer = &connection.peer;
        match user {
            Ok(user) => {
                tracing::debug!("{peer}: connected, {}, user {user}", hello.agent);
                connection.user = user;
                connection.connected = true;
            }
            Err(refusal) => {
                tracing::warn!("{peer}: refused: {refusal}");
                connection.proto.refuse(refusal.as_str());
                // One try: a fresh socket has room for it.
                let _ = connection.flush(&mut self.jobs, || 0);
                self.audit_refusal(key, &refusal);
                self.close(key, None);
            }
        }
    }

    fn connection_event(&mut self, key: usize, flags: EventFlags) {
        if flags.intersects(EventFlags::RDHUP | EventFlags::ERR) {
            return self.close(key, None);
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(key);
        }
        // Answers that have left may have made room for more requests. One that has input to go on
        // with has its turn with the others.
        if self.is_open(key) && !self.connections[key].is_ready {
            self.serve(key);
        }
    }

    /// A connection has input to go on with: once, however often it is found out, so that none has
    /// more than one turn before all others have had theirs.
    pub(super) fn make_ready(&mut self, key: usize) {
        if !std::mem::replace(&mut self.connections[key].is_ready, true) {
            self.ready.push_back(key);
        }
    }

    /// Goes on with connections that had more input than their turn allowed.
    pub(super) fn serve_ready(&mut self) -> bool {
        let count = self.ready.len();
        for _ in 0..count {
            if let Some(key) = self.ready.pop_front()
                && self.is_open(key)
            {
                self.connections[key].is_ready = false;
                self.serve(key);
            }
        }
        count > 0
    }

    /// Takes input from a connection, for one turn.
    pub(super) fn serve(&mut self, key: usize) {
        let granted = self.grant(key, Way::Up);
        self.take_input(key);
        self.settle(key, Way::Up, granted);
        if self.is_open(key) {
            self.flush(key);
        }
    }

    fn take_input(&mut self, key: usize) {
        let mut moved = 0;
        while self.is_open(key) && self.connections[key].takes_input() {
            let now = self.nanos();
            match self.connections[key].advance(&mut self.jobs, now) {
                Ok(Step::Event(event)) => self.on_event(key, event),
                Ok(Step::Progress(count)) => moved += count,
                Ok(Step::Blocked | Step::UsedUp) => break,
                Ok(Step::Closed) => return self.close(key, None),
                Err(error) => return self.close(key, Some(error)),
            }
            if moved >= TURN_BYTES {
                self.make_ready(key);
                break;
            }
            if self.connections[key].proto.is_congested() {
                self.flush(key);
            }
        }
    }

    /// Writes the answers that have come up.
    pub(super) fn flush_answers(&mut self) {
        while let Some(key) = self.unflushed.pop() {
            if self.is_open(key) {
                self.flush(key);
            }
        }
    }

    /// Writes what there is to write; jobs whose results are out are released.
    pub(super) fn flush(&mut self, key: usize) {
        let clock = self.clock();
        let granted = self.grant(key, Way::Down);
        let flushed = self.connections[key].flush(&mut self.jobs, clock);
        self.settle(key, Way::Down, granted);
        match flushed {
            Ok(true) => {
                for job in std::mem::take(&mut self.connections[key].sending) {
                    self.account(job);
                    self.release(job);
                }
            }
            Ok(false) => {}
            Err(error) => return self.close(key, Some(Broken::Io(error))),
        }
        self.learn_link(key);
        self.update_interest(key);
    }

    pub(super) fn update_interest(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        let [reads, writes] = [Way::Up, Way::Down].map(|way| !connection.waits(way));
        let mut interest = match connection.takes_input() && reads {
            true => EventFlags::IN,
            false => EventFlags::RDHUP,
        };
        interest.set(EventFlags::OUT, !connection.is_flushed() && writes);
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        let data = Source::Connection(key).data();
        if let Err(error) = epoll::modify(&self.epoll, connection.fd(), data, interest) {
            self.close(key, Some(Broken::Io(error.into())));
        }
    }

    /// Ends a connection with all its jobs.
    pub(super) fn close(&mut self, key: usize, error: Option<Broken>) {
        let clock = self.clock();
        let connection = &mut self.connections[key];
        if let Some(Broken::Protocol(error)) = &error
            && !matches!(error, ProtocolError::NotFarcall | ProtocolError::Goodbye(_))
        {
            connection.proto.goodbye(error.to_string());
            // One try: who breaks the protocol is not waited for.
            let _ = connection.flush(&mut self.jobs, clock);
        }
        let peer = &connection.peer;
        match (&error, connection.jobs.len()) {
            (Some(error), _) => tracing::warn!("{peer}: connection closed: {error}"),
            (None, 0) => tracing::debug!("{peer}: connection closed"),
            (None, calls) => {
                tracing::warn!("{peer}: the client has gone in the middle of {calls} calls");
            }
        }
        let _ = epoll::delete(&self.epoll, connection.fd());
        connection.waiting = None;
        connection.held.clear();
        self.closed.push(key);
        self.stop_fetching(key, None);
        self.pulls.forget(key);
        let sending = std::mem::take(&mut self.connections[key].sending);
        let mut jobs = std::mem::take(&mut self.connections[key].jobs);
        jobs.retain(|_, job| !sending.contains(job));
        for job in sending {
            self.release(job);
        }
        for (_, job) in jobs {
            self.abandon(job);
        }
        for (_, object) in std::mem::take(&mut self.connections[key].objects) {
            self.delete_object(object);
        }
        self.end_arrays_of(key);
        for (_, segment) in std::mem::take(&mut self.connections[key].segments) {
            self.give_up(segment);
        }
    }

    pub(super) fn remove_closed(&mut self) {
        for key in std::mem::take(&mut self.closed) {
            self.connections.remove(key);
            self.starved.retain(|starved| *starved != key);
            self.holding.retain(|holding| *holding != key);
            self.ready.retain(|ready| *ready != key);
            self.lanes.forget(key);
            self.accept_again();
        }
    }

    fn accept_again(&mut self) {
        if !self.accepts {
            self.accepts = true;
            self.listen_for(EventFlags::IN);
        }
    }

    fn worker_event(&mut self, key: usize) {
        if self.workers[key].is_awaited() {
            match self.admit_first_process(key) {
                Ok(()) => return,
                Err(error) => self.workers[key].end(FailureKind::Internal, error.to_string()),
            }
        }
        let worker = &mut self.workers[key];
        if worker.state == State::Starting {
            match worker.read_greeting() {
                Some(Ok(ready)) => return self.worker_is_ready(key, ready),
                Some(Err(error)) => worker.end(FailureKind::Internal, error),
                None => {}
            }
        } else if let Some(word) = worker.read_word() {
            return self.worker_says(key, word);
        }
        self.worker_died(key);
    }

    pub(super) fn handle_deadlines(&mut self) {
        let now = Instant::now();
        self.take_back_late(now);
        self.serve_lanes();
        let limit = self.config.workers.time_limit_s;
        let callbacks = self.config.limits.callback();
        for (_, worker) in &mut self.workers {
            if worker.deadline(callbacks).is_none_or(|end| end > now) {
                continue;
            }
            if worker.waits_since().is_some() {
                let limit = self.config.limits.callback_s;
                let text = format!(
                    "was ended because the client did not answer its callback within {limit} s \
                     (limits.callback_s in the server's configuration)"
                );
                worker.end(FailureKind::NoAnswer, text);
            } else {
                let text = format!("ran past its time limit of {limit} s");
                worker.end(FailureKind::TimeLimit, text);
            }
        }
        self.expire();
        self.expire_arrays();
        self.expire_objects();
        if self.learned_since.is_some_and(|since| now >= since + KEEP) {
            self.keep_learned();
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep();
        }
    }

    /// Closes connections that never greeted, and listens again where that was given up.
    fn sweep(&mut self) {
        self.accept_again();
        self.look_for_spool();
        self.end_stalled();
        let patience = Duration::from_secs_f64(self.config.limits.greeting_s.clamp(0.0, 1e6));
        let latest = self.nanos().saturating_sub(patience.as_nanos() as u64);
        let silent: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| !connection.connected && connection.opened < latest)
            .map(|(key, _)| key)
            .collect();
        for key in silent {
            tracing::warn!("{}: no greeting", self.connections[key].peer);
            self.close(key, None);
        }
    }

    /// Ends transfers that stand still: they hold memory. What the server itself does not take does
    /// not count.
    fn end_stalled(&mut self) {
        let Some(bound) = self.config.limits.stalled(!self.starved.is_empty()) else {
            return;
        };
        let latest = self.nanos().saturating_sub((bound.min(1e9) * 1e9) as u64);
        let mut silent = Vec::new();
        let mut deaf = Vec::new();
        for (key, job) in &self.jobs {
            let moved = job.moved.max(job.times.accepted);
            let Some(connection) = job.connection.filter(|_| (1..latest).contains(&moved)) else {
                continue;
            };
            // Who waits for his turn is not to blame.
            let way = match job.state {
                job::State::Receiving => Way::Up,
                _ => Way::Down,
            };
            if self.connections[connection].waits(way) {
                continue;
            }
            match job.state {
                job::State::Receiving if self.connections[connection].takes_input() => {
                    silent.push(key);
                }
                job::State::Sending if self.connections[connection].taken < latest => {
                    deaf.push(connection);
                }
                _ => {}
            }
        }
        for job in silent {
            let text = format!(
                "got no more of its arguments for {bound} s (limits.stalled_s and \
                 limits.stalled_busy_s in the server's configuration)"
            );
            self.fail_job(job, FailureKind::Stalled, &text);
        }
        deaf.sort_unstable();
        deaf.dedup();
        for connection in deaf {
            self.close(connection, Some(Broken::Stalled(bound)));
        }
    }

    /// Begins to stop: running and waiting calls fail, results that are on their way leave.
    pub(super) fn stop(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        tracing::info!("stopping");
        self.stopping = Some(Instant::now() + LAST_WORDS);
        self.listeners.clear();
        let keys: Vec<usize> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            if !self.is_open(key) {
                continue;
            }
            let connection = &mut self.connections[key];
            let mut open: Vec<_> = connection
                .jobs
                .iter()
                .map(|(call, job)| (*call, *job))
                .collect();
            open.retain(|(_, job)| !connection.sending.contains(job));
            let waiting = connection.waiting.take().map(|(call, _)| call);
            let held = std::mem::take(&mut connection.held);
            let waiting = waiting
                .into_iter()
                .chain(held.into_iter().map(|(call, _)| call));
            for call in open.into_iter().map(|(call, _)| call).chain(waiting) {
                let text = "the server is stopping; the call did not complete";
                connection
                    .proto
                    .fail(call, &Failure::new(FailureKind::ServerStopping, text));
            }
            connection.proto.goodbye("the server is stopping");
            self.flush(key);
        }
    }
}

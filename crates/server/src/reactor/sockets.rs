//! Events on sockets: clients connect, send, read and disconnect. `socket` moves the bytes. In one
//! turn each connection moves a bounded number of bytes, so that no client holds up the others.

use super::{Reactor, SWEEP};
use crate::crew::is_gone;
use crate::listen::{Accepted, Listener};
use crate::poll::Source;
use crate::socket::{Socket, Step, TURN_BYTES};
use farcall_otlp::Exporter;
use farcall_server_proto as proto;
use farcall_server_proto::{ConnectionKey, Direction, Event};
use rustix::event::epoll::EventFlags;
use std::io::{self, Read};
use std::time::Instant;

/// Most addresses of the server that a client is told.
const MOST_WAYS: usize = 16;
/// Connections accepted in one go.
const ACCEPTS: usize = 64;

/// The end of a connection by an error of its socket. That the client has gone is none.
fn lost(key: ConnectionKey, error: &io::Error) -> Event {
    Event::Lost(key, (!is_gone(error)).then(|| error.to_string()))
}

impl Reactor {
    pub(super) fn handle(&mut self, source: Source, flags: EventFlags) {
        match source {
            Source::Listener(index) => {
                self.accept(index);
            }
            Source::Connection(key) => self.connection_event(key, flags),
            Source::WorkerSocket(key) => self.worker_event(key),
            Source::WorkerOutput(key) => self.worker_output(key),
            Source::Doorbell => {
                let _ = rustix::io::read(&self.bells.doorbell, &mut [0u8; 8]);
                let disk = || self.state.unready();
                let spans = self.operator.logs.spans.as_ref().map(Exporter::counts);
                self.readers
                    .metrics
                    .answer(self.server.overview(), spans, disk);
            }
            Source::Signal => {
                let _ = self.bells.signals.read(&mut [0; 64]);
                self.tell(Event::Stop);
            }
            Source::Reload => {
                let _ = (&self.bells.reloads).read(&mut [0; 64]);
                let mut listeners = self.listeners.open.iter();
                let identity = listeners.find_map(Listener::identity);
                self.operator.reload(identity);
                let mut replaced = self.crew.hide(self.operator.config.secrets());
                replaced.extend(self.crew.changed());
                for library in replaced {
                    self.tell(Event::Replaced(library));
                }
            }
            Source::Drain => {
                let _ = self.bells.drains.read(&mut [0; 64]);
                self.tell(Event::Drain);
            }
        }
    }

    /// Accepts clients. Returns whether more may wait.
    fn accept(&mut self, index: usize) -> bool {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.open.get(index) else {
                return false;
            };
            let error = match listener.accept() {
                Ok(accepted) => {
                    self.admit(accepted);
                    continue;
                }
                Err(error) => error,
            };
            if let Some(text) = self.listeners.accepting.news(&error) {
                tracing::warn!("{text}");
            }
            if error.kind() != io::ErrorKind::WouldBlock {
                // Mostly for lack of descriptors, which does not pass by trying again.
                self.listeners.watch(&self.poll, EventFlags::empty());
                self.listeners.deaf_until = Some(Instant::now() + SWEEP);
            }
            return false;
        }
        true
    }

    /// Accepts who has connected already, so that they are told and not left alone, and nobody
    /// from then on.
    pub(super) fn stop_listening(&mut self) {
        for index in 0..self.listeners.open.len() {
            while self.accept(index) {}
        }
        self.listeners.open.clear();
    }

    fn admit(&mut self, accepted: Accepted) {
        let is_tls = accepted.session.is_some();
        let mut names = self.listeners.open.iter();
        let is_far = !accepted.is_local;
        let local = match accepted.is_local && !accepted.is_unix && !is_tls {
            true => names.find_map(Listener::local_name).map(str::to_owned),
            false => None,
        };
        let ways = is_far.then(|| {
            let listeners = self.listeners.open.iter();
            let ways = listeners.flat_map(|listener| listener.ways(is_tls));
            let ways = ways.take(MOST_WAYS).map(|direction| direction.to_string());
            ways.collect::<Vec<String>>()
        });
        let known = proto::Accepted {
            peer: accepted.peer.clone(),
            user: accepted.user.clone(),
            host: accepted.host,
            is_local: accepted.is_local,
            is_unix: accepted.is_unix,
            local,
            ways: ways.filter(|ways| ways.len() > 1),
        };
        self.server.set_time(self.clock.now());
        let key = match self.server.accept(known) {
            Ok(key) => key,
            Err(farewell) => {
                // One try: a fresh socket has room for it. Under TLS there is no session yet, and
                // clear text would look like a broken one: the log says why.
                if !is_tls {
                    let _ = rustix::io::write(&accepted.socket, &farewell);
                }
                return;
            }
        };
        let socket = Socket::new(key, accepted);
        let watched = self
            .poll
            .watch(socket.fd(), Source::Connection(key), socket.interest);
        self.sockets.open.insert(key, socket);
        match watched {
            Ok(()) => self.act(),
            Err(error) => self.tell(lost(key, &error)),
        }
    }

    fn connection_event(&mut self, key: ConnectionKey, flags: EventFlags) {
        let Some(socket) = self.sockets.open.get(key) else {
            return;
        };
        let is_ready = socket.is_ready;
        if flags.intersects(EventFlags::RDHUP | EventFlags::ERR) {
            return self.tell(Event::Lost(key, None));
        }
        if flags.contains(EventFlags::OUT) {
            self.flush(key);
        }
        // Answers that have left may have made room for more requests. One that has input to go on
        // with has its turn with the others.
        if !is_ready {
            self.serve(key);
        }
    }

    /// Goes on with connections that had more input than their turn allowed.
    pub(super) fn serve_ready(&mut self) -> bool {
        let count = self.sockets.ready.len();
        for _ in 0..count {
            if let Some(key) = self.sockets.ready.pop_front()
                && let Some(socket) = self.sockets.open.get_mut(key)
            {
                socket.is_ready = false;
                self.serve(key);
            }
        }
        count > 0
    }

    /// Takes input from a connection, for one turn.
    fn serve(&mut self, key: ConnectionKey) {
        let granted = self
            .server
            .lanes()
            .grant(key, Direction::Up, self.clock.nanos());
        self.take_input(key);
        self.server.settle(key, Direction::Up, granted);
        self.act();
        self.flush(key);
    }

    /// It is a connection's turn to move bytes at a reserved rate.
    pub(super) fn serve_way(&mut self, key: ConnectionKey, direction: Direction) {
        match direction {
            Direction::Up => self.serve(key),
            Direction::Down => {
                self.flush(key);
                self.sockets.make_ready(key);
            }
        }
    }

    fn take_input(&mut self, key: ConnectionKey) {
        let mut moved = 0;
        while self.server.clients().takes_input(key) {
            self.server.set_time(self.clock.now());
            let Some(socket) = self.sockets.open.get_mut(key) else {
                return;
            };
            let step = socket.advance(&mut self.server, &self.memories);
            self.act();
            match step {
                Ok(Step::Progress(count)) => moved += count,
                Ok(Step::Blocked | Step::UsedUp) => return,
                Ok(Step::Closed) => return self.tell(Event::Lost(key, None)),
                Err(error) => return self.tell(lost(key, &error)),
            }
            if moved >= TURN_BYTES {
                return self.sockets.make_ready(key);
            }
            if self.server.clients().is_congested(key) {
                self.flush(key);
            }
        }
    }

    /// Writes the answers that have come up.
    pub(super) fn flush_answers(&mut self) {
        while let Some(key) = self.sockets.unflushed.pop() {
            self.flush(key);
        }
    }

    /// Writes what there is to write.
    pub(super) fn flush(&mut self, key: ConnectionKey) {
        let Some(socket) = self.sockets.open.get_mut(key) else {
            return;
        };
        let clock = self.clock;
        let granted = self
            .server
            .lanes()
            .grant(key, Direction::Down, clock.nanos());
        let clock = move || clock.nanos();
        let flushed = socket.flush(&mut self.server, &self.memories, clock);
        self.server.settle(key, Direction::Down, granted);
        match flushed {
            Ok(true) => {
                self.server.set_time(self.clock.now());
                self.server.flushed(key);
            }
            Ok(false) => {}
            Err(error) => return self.tell(lost(key, &error)),
        }
        self.server.learn_link(key);
        self.act();
        self.update_interest(key);
    }

    fn update_interest(&mut self, key: ConnectionKey) {
        let Some(socket) = self.sockets.open.get_mut(key) else {
            return;
        };
        let reads = self.server.clients().takes_input(key)
            && !self.server.lanes().waits(key, Direction::Up);
        let mut interest = match reads {
            true => EventFlags::IN,
            false => EventFlags::RDHUP,
        };
        let writes = !socket.is_flushed() && !self.server.lanes().waits(key, Direction::Down);
        interest.set(EventFlags::OUT, writes);
        if interest == socket.interest {
            return;
        }
        socket.interest = interest;
        let changed = self
            .poll
            .change(socket.fd(), Source::Connection(key), interest);
        if let Err(error) = changed {
            self.tell(lost(key, &error));
        }
    }

    /// Ends a connection, with its last words if they can be said.
    pub(super) fn close(&mut self, key: ConnectionKey) {
        if let Some(socket) = self.sockets.open.remove(key) {
            self.operator.forget(key);
            self.poll.forget(socket.fd());
            socket.farewell(&mut self.server, &self.memories, self.clock.nanos());
            self.listeners.listen_again(&self.poll);
        }
    }
}

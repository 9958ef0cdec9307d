//! The server as one state machine: the interface for its shell. It passes events to the engine,
//! and bytes to the connections. `engine` and the parts below it make the decisions.

use crate::action::Action;
use crate::action::Direction;
use crate::call::ActiveCall;
use crate::clients::Clients;
use crate::connection::Connection;
use crate::durable_calls;
use crate::engine::{self, Engine, Overview, Reports, ServerStatus};
use crate::event::{Accepted, Event, Now};
use crate::functions::Functions;
use crate::keys::{ConnectionKey, MemoryKey, WorkerKey};
use crate::lanes::Lanes;
use crate::links::Links;
use crate::names::DataFile;
use crate::settings::Settings;
use farcall_idl::Document;
use farcall_rpc_proto::{self as proto, Chunk, Hello, Nanos, Piece};

/// Array bytes in one frame to another host. Small answers wait no longer than one frame.
const REMOTE_BYTES: u32 = 64 << 10;

/// A computational server, without its sockets, processes, disks and clocks.
///
/// The shell sets the time with [`Server::set_time`] and passes events to [`Server::handle`] and to
/// the methods that move bytes. Then it performs the actions of [`Server::poll_action`], in order
/// and until there are none left. It calls [`Server::turn`] after each batch of events, and at
/// [`Server::next_deadline`] at the latest.
pub struct Server {
    engine: Engine,
    reports: Reports,
}

impl Server {
    /// A server of these interface files, with the files of its data folder.
    pub fn new<'d>(
        settings: Settings,
        documents: impl IntoIterator<Item = &'d Document>,
        data: Vec<DataFile>,
        now: Now,
    ) -> Server {
        Server {
            engine: Engine::new(settings, documents, data, now),
            reports: Reports::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    #[cfg(test)]
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Sets the time.
    pub fn set_time(&mut self, now: Now) {
        if let Some(jump) = self.engine.cx.clock.set(now) {
            let direction = if jump > 0 { "ahead" } else { "back" };
            let seconds = jump.abs() / 1000;
            tracing::warn!(
                "the clock of this machine jumped {seconds} s {direction}; retention counts the \
                 time that the server serves, so no result, array or object expires earlier"
            );
        }
        let Engine {
            cx,
            data,
            elements,
            lanes,
            ..
        } = &mut self.engine;
        data.arrays.now = cx.steady_ms();
        // Before anything is read: a server that stood still may be late.
        lanes.change(&elements.queue, cx);
    }

    /// Handles an event.
    pub fn handle(&mut self, event: Event) {
        self.engine.handle(event);
    }

    /// The next action of the shell.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.engine.cx.out.pop()
    }

    /// Continues with everything that the events of a batch have made possible.
    pub fn turn(&mut self) {
        self.engine.turn();
    }

    /// Begins the record of calls: the server has started.
    pub fn begin_record(&mut self) {
        let Engine { cx, links, .. } = &mut self.engine;
        cx.note_server("started", links);
    }

    /// Ends the record of calls: the server stops, and nothing is left to be noted.
    pub fn end_record(&mut self) {
        let Engine { cx, links, .. } = &mut self.engine;
        cx.note_server("stopped", links);
    }

    /// Whether a turn would do something even without a new event.
    pub fn has_work(&self) -> bool {
        self.engine.data.turns.has_candidates() || self.engine.cx.has_room
    }

    /// When to call [`Server::turn`] again at the latest, in nanoseconds since the start.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let report = self.reports.next(self.overview());
        self.engine.next_deadline().into_iter().chain(report).min()
    }

    /// When the server must have ended, if it is stopping.
    pub fn stops(&self) -> Option<Nanos> {
        self.engine.cx.stopping
    }

    /// Whether the disk has finished everything that an ending server must wait for.
    pub fn is_settled(&self) -> bool {
        durable_calls::is_settled(&self.engine.durable_calls, &self.engine.cx)
    }

    /// Whether a client waits until a call that it has submitted is recorded. A server that stops
    /// answers it first.
    pub fn awaits_records(&self) -> bool {
        let Engine {
            cx, durable_calls, ..
        } = &self.engine;
        let unconfirmed = durable_calls.unconfirmed();
        unconfirmed.is_some_and(|all| all.is_awaited(cx, None))
    }

    /// Starts one worker for each library. A library that cannot be bound is then known before the
    /// first call.
    pub fn start_workers(&mut self) -> Vec<WorkerKey> {
        let Engine {
            cx,
            elements,
            libraries,
            ..
        } = &mut self.engine;
        let libraries = 0..libraries.len();
        libraries
            .map(|library| elements.workers.start(cx, library))
            .collect()
    }

    /// A read-only view of the server.
    pub fn overview(&self) -> Overview<'_> {
        Overview(&self.engine)
    }

    /// The functions and links, to restore what an earlier server has learned.
    pub fn learned(&mut self) -> (&mut Functions, &mut Links) {
        (&mut self.engine.cx.functions, &mut self.engine.links)
    }

    /// Makes status reports from now on.
    pub fn subscribe(&mut self) {
        self.reports.subscribe();
    }

    /// The status, if a report is due. The caller must say [what happened to it](Server::reported).
    pub fn poll_report(&mut self) -> Option<ServerStatus> {
        self.reports.poll(Overview(&self.engine))
    }

    /// Records whether all subscribers have taken the last report.
    pub fn reported(&mut self, status: &ServerStatus, all: bool) {
        self.reports.reported(Overview(&self.engine), status, all);
    }

    /// The connections.
    pub fn clients(&self) -> &Clients {
        &self.engine.cx.clients
    }

    /// The connections, for writing.
    pub fn clients_mut(&mut self) -> &mut Clients {
        &mut self.engine.cx.clients
    }

    /// The lanes, which limit the rates of connections.
    pub fn lanes(&mut self) -> &mut Lanes {
        &mut self.engine.lanes
    }

    /// Settles a [grant](Lanes::grant) of a connection.
    pub fn settle(&mut self, key: ConnectionKey, direction: Direction, granted: Option<u64>) {
        let Engine { cx, lanes, .. } = &mut self.engine;
        lanes.settle((key, direction), granted, cx.now(), &mut cx.out);
    }

    /// Accepts a client. Returns its key, or the bytes that tell it why not.
    pub fn accept(&mut self, accepted: Accepted) -> Result<ConnectionKey, Vec<u8>> {
        let Engine { cx, lanes, .. } = &mut self.engine;
        let now = cx.now();
        let mut limits = proto::Limits {
            calls: cx.settings.limits.calls_of_connection(),
            ..proto::Limits::default()
        };
        if !accepted.is_local {
            limits.chunk_bytes = REMOTE_BYTES;
        }
        let mut hello = Hello::new(cx.settings.agent);
        hello.features |= proto::ESTIMATES | proto::CALLBACKS | proto::OUTPUT | proto::FILES;
        hello.features |= proto::OBJECTS | proto::OPERATION | proto::REGISTER | proto::HANDLES;
        hello.features |= proto::PARTS | proto::CREDIT | proto::KEPT_OBJECTS;
        hello.calls = u32::try_from(limits.calls).ok();
        hello.features |= proto::LOANS | proto::NAMES | proto::RESERVATIONS;
        hello.features |= proto::SOURCES | proto::CALL_STATUS | proto::WRITES | proto::ROWS;
        hello.features |= proto::SNAPSHOTS | proto::DEADLINES | proto::TRACES;
        if cx.settings.has_state {
            hello.features |= proto::JOBS | proto::OUTCOMES;
        }
        if accepted.is_unix {
            hello.features |= proto::SHARED_MEMORY;
        }
        hello.local.clone_from(&accepted.local);
        hello.ways.clone_from(&accepted.ways);
        let mut connection = Connection::new(accepted, limits, hello, now);
        let most = cx.settings.limits.connections;
        let refusal = match cx.is_ending() {
            // It came together with the end.
            Some(ending) => Some(ending.message),
            None if cx.clients.count_open() >= most => {
                let peer = &connection.peer.name;
                // Clients that try again and again would fill the log.
                if !std::mem::replace(&mut cx.clients.is_full, true) {
                    tracing::warn!(
                        "{peer}: refused, {most} connections are open (limits.connections); others \
                         are refused without a line until one is accepted"
                    );
                }
                Some(format!("the server is full ({most} connections)"))
            }
            None => {
                cx.clients.is_full = false;
                None
            }
        };
        if let Some(text) = refusal {
            connection.proto.goodbye(text);
            let mut farewell = Vec::new();
            connection.proto.poll_transmit(&mut farewell, now);
            return Err(farewell);
        }
        let crosses_link = connection.peer.crosses_link;
        let key = cx.clients.insert(connection);
        lanes.join(key, crosses_link, &mut cx.out);
        Ok(key)
    }

    /// Takes bytes from a client and returns how many. The shell must perform the actions that
    /// follow before it passes more bytes of the connection.
    pub fn handle_input(&mut self, key: ConnectionKey, input: &[u8]) -> usize {
        let now = self.engine.cx.now();
        let Some(connection) = self.engine.cx.clients.get_mut(key) else {
            return input.len();
        };
        connection.has_output = true;
        match connection.proto.handle_input(input, now) {
            Ok((taken, event)) => {
                if let Some(event) = event {
                    self.engine.on_event(key, event);
                }
                taken
            }
            Err(error) => {
                self.engine.break_off(key, &error);
                self.engine.settle();
                input.len()
            }
        }
    }

    /// Where the next array data go; `None` if they must be discarded.
    pub fn place(&mut self, key: ConnectionKey, chunk: &Chunk) -> Option<Landed<'_>> {
        let cx = &mut self.engine.cx;
        let now = cx.now();
        let call = *cx.clients.get(key)?.calls.get(&chunk.call)?;
        let call = cx.calls.get_mut(call).filter(|_| !chunk.discard)?;
        call.streams.moved = now;
        call.streams.swap = chunk.big_endian != cfg!(target_endian = "big");
        let memory = call.memory()?;
        Some(Landed { memory, call })
    }

    /// Records that array data have arrived.
    pub fn handle_data(&mut self, key: ConnectionKey, count: u64) {
        let now = self.engine.cx.now();
        let Some(connection) = self.engine.cx.clients.get_mut(key) else {
            return;
        };
        connection.paces[Direction::Up as usize].add(count);
        if let Some(event) = connection.proto.handle_data(count, now) {
            connection.has_output = true;
            self.engine.on_event(key, event);
        }
    }

    /// The next array data of a chunk to send, at most `most` bytes.
    pub fn next_outgoing(
        &mut self,
        key: ConnectionKey,
        chunk: &Chunk,
        most: u64,
    ) -> Option<(MemoryKey, Piece)> {
        let cx = &mut self.engine.cx;
        let call = *cx.clients.get(key)?.calls.get(&chunk.call)?;
        let call = cx.calls.get_mut(call)?;
        let memory = call.memory()?;
        Some((memory, call.next_outgoing(most)?))
    }

    /// Records that all output of a client is written. Calls whose results have left end.
    pub fn flushed(&mut self, key: ConnectionKey) {
        let Some(connection) = self.engine.cx.clients.get_mut(key) else {
            return;
        };
        connection.has_output = false;
        if connection.sending.is_empty() {
            return;
        }
        let mut sent = std::mem::take(&mut connection.sending);
        for call in sent.drain(..) {
            self.engine.cx.account(call);
            self.engine.release(call);
        }
        // The emptied list is reused for the next results.
        let cx = &mut self.engine.cx;
        if let Some(connection) = cx.clients.get_mut(key)
            && connection.sending.is_empty()
        {
            connection.sending = sent;
            if cx.stopping.is_some() {
                engine::clients::say_goodbye(&mut self.engine, key);
                self.engine.cx.answered(key);
            }
        }
        self.engine.settle();
    }

    /// Learns the rates of a link from the streams that have ended on a connection, except those
    /// whose rate was limited.
    pub fn learn_link(&mut self, key: ConnectionKey) {
        let Engine {
            cx, lanes, links, ..
        } = &mut self.engine;
        let Some(connection) = cx.clients.get_mut(key) else {
            return;
        };
        let moved = connection.proto.take_moved();
        let Some(host) = connection.peer.host else {
            return;
        };
        let up = moved.up.filter(|_| !lanes.is_paced(key, Direction::Up));
        let down = moved.down.filter(|_| !lanes.is_paced(key, Direction::Down));
        links.learn(host, up, down);
    }
}

/// The destination of incoming array data.
pub struct Landed<'a> {
    /// The memory.
    pub memory: MemoryKey,
    call: &'a mut ActiveCall,
}

impl Landed<'_> {
    /// The next part of the memory, at most `most` bytes.
    pub fn next(&mut self, most: u64) -> Option<Piece> {
        self.call.next_incoming(most)
    }
}

//! The server as one state machine. Its parts are in files of their own; this drives them.

mod account;
mod ahead;
mod audited;
mod callbacks;
mod calls;
mod connections;
mod credit;
mod dispatch;
mod drain;
mod estimate;
mod kept;
mod lanes;
mod limits;
mod membership;
mod named;
mod objects;
mod output;
mod parts;
mod pull;
mod register;
mod report;
mod requests;
mod reservations;
mod segments;
mod stored;
mod submitted;
mod workers;

pub use account::{Totals, UserTotals};
pub use connections::Landed;
pub use estimate::Links;
pub use membership::Standing;
pub use report::{Figures, STATES};

use crate::action::{Action, Actions};
use crate::arrays::Store;
use crate::connection::Connection;
use crate::durable::Durable;
use crate::event::{Event, Now};
use crate::flaw::{Flaw, has};
use crate::functions::Functions;
use crate::ids::Ids;
use crate::job::Job;
use crate::keys::{CallKey, ConnectionKey, MemoryKey, Table, WorkerKey};
use crate::map::Map;
use crate::memory::Memory;
use crate::names::{DataFile, Names};
use crate::settings::Settings;
use crate::worker::Worker;
use farcall_directory::message::MOST_DATA;
use farcall_idl::Document;
use farcall_rpc_proto::{FailureKind, HandleId, Nanos};
use farcall_schedule::Queue;
use std::collections::VecDeque;

/// What is learned is kept after this time at the latest.
const KEEP: Nanos = 60_000_000_000;
/// How often connections are looked through for some that never greeted.
const SWEEP: Nanos = 1_000_000_000;

/// A computational server, without its sockets, processes, disks and clocks.
///
/// The shell tells it the time with [`Server::set_time`], what has happened with
/// [`Server::handle`] and the methods that move bytes, does what [`Server::poll_action`] says, in
/// that order and until there is no more, and calls [`Server::turn`] after each batch and at
/// [`Server::next_deadline`] at the latest.
pub struct Server {
    settings: Settings,
    clock: Now,
    out: Actions,
    ids: Ids,
    functions: Functions,
    libraries: register::Libraries,
    connections: Table<ConnectionKey, Connection>,
    /// Connections to be removed at the end of the turn.
    closed: Vec<ConnectionKey>,
    /// Connections that wait for memory, first come first served.
    starved: VecDeque<ConnectionKey>,
    /// Connections with calls that wait for a grant.
    holding: Vec<ConnectionKey>,
    workers: Table<WorkerKey, Worker>,
    calls: Table<CallKey, Job>,
    /// Who computes, and who waits for processor elements.
    queue: Queue,
    reservations: reservations::Reservations,
    lanes: lanes::Lanes,
    /// Calls that have processor elements and wait for a worker.
    admitted: VecDeque<CallKey>,
    /// When a brief call that waits for a certain worker is to have another one.
    held_until: Option<Nanos>,
    memory: Memory,
    links: Links,
    /// Since when something was learned that is not kept yet.
    learned_since: Option<Nanos>,
    /// Submitted calls; none without a folder to keep them in.
    durable: Option<Durable>,
    /// Another server has them, whose place this one takes.
    awaits_durable: bool,
    /// Arrays that stay.
    arrays: Store,
    /// Objects that stay.
    kept: kept::KeptObjects,
    /// Arrays that come from other servers.
    pulls: pull::Pulls,
    names: Names,
    /// Files of the data folder on their way to memory.
    data_reads: Vec<(HandleId, MemoryKey)>,
    /// Calls whose turn it may be to use arrays.
    candidates: VecDeque<CallKey>,
    /// Memory has become free that submitted calls may wait for.
    has_room: bool,
    next_sweep: Nanos,
    /// Whether it takes no more connections and calls.
    draining: bool,
    stopping: Option<Nanos>,
    /// Names of users, by the number of their share.
    user_names: Map<u64, String>,
    totals: Totals,
    reports: membership::Reports,
}

impl Server {
    /// A server of these interface files, with the files that its data folder has.
    pub fn new<'d>(
        settings: Settings,
        documents: impl IntoIterator<Item = &'d Document>,
        data: Vec<DataFile>,
        now: Now,
    ) -> Server {
        let mut settings = settings;
        if has(Flaw::ForgetsPatience) {
            settings.queue.patience.time = Nanos::MAX;
        }
        let mut ids = Ids::new(settings.seed);
        let base = ids.next();
        let base = base.iter().take(6);
        let base = base.fold(0, |base, byte| base << 8 | u64::from(*byte)) << 16;
        let mut functions = Functions::new(base, settings.priorities.clone());
        let mut libraries = register::Libraries::default();
        for document in documents {
            functions.add(document);
            libraries.add();
        }
        let mut names = Names::new(settings.arrays.names.min(MOST_DATA));
        names.set_files(data);
        Server {
            memory: Memory::new(settings.limits.memory),
            arrays: Store::new(settings.arrays.clone(), settings.limits.memory),
            queue: Queue::new(settings.queue.clone()),
            settings,
            clock: now,
            out: Actions::default(),
            ids,
            functions,
            libraries,
            connections: Table::default(),
            closed: Vec::new(),
            starved: VecDeque::new(),
            holding: Vec::new(),
            workers: Table::default(),
            calls: Table::default(),
            reservations: reservations::Reservations::default(),
            lanes: lanes::Lanes::default(),
            admitted: VecDeque::new(),
            held_until: None,
            links: Links::default(),
            learned_since: None,
            durable: None,
            awaits_durable: false,
            kept: kept::KeptObjects::default(),
            pulls: pull::Pulls::default(),
            names,
            data_reads: Vec::new(),
            candidates: VecDeque::new(),
            has_room: true,
            next_sweep: now.nanos + SWEEP,
            draining: false,
            stopping: None,
            user_names: Map::default(),
            totals: Totals::default(),
            reports: membership::Reports::default(),
        }
    }

    /// Tells what time it is.
    pub fn set_time(&mut self, now: Now) {
        self.clock.nanos = self.clock.nanos.max(now.nanos);
        self.clock.unix_ms = now.unix_ms;
        self.arrays.now = now.unix_ms;
    }

    fn now(&self) -> Nanos {
        self.clock.nanos
    }

    /// Takes note of something that has happened.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Authenticated(connection, found) => self.authenticated(connection, found),
            Event::Lost(connection, why) => self.close(connection, why),
            Event::NoMemory(memory, why) => self.no_memory(memory, &why),
            Event::NotShared(connection, why) => self.close(connection, Some(why)),
            Event::Ready(worker, ready) => self.worker_is_ready(worker, ready),
            Event::Finished(worker, call, outcome) => {
                self.finish_printing(call);
                self.goes_on(worker);
                self.finished(call, outcome);
            }
            Event::Passed(worker) => self.goes_on(worker),
            Event::Withdrawn(worker, call, withdrawal) => self.withdrawn(worker, call, withdrawal),
            Event::NotRun(worker, call, why) => self.not_run(call, worker, &why),
            Event::Said(worker, said) => self.worker_says(worker, said),
            Event::Printed(worker, printed) => self.printed(worker, printed),
            Event::Died(worker, death) => self.worker_died(worker, death),
            Event::DurableOpened(records) => self.durable_opened(records),
            Event::DurableAwaited => self.awaits_durable = true,
            Event::Written(ticket, stored) => self.written(ticket, stored),
            Event::Fetched(ticket, read) => self.fetched(ticket, read),
            Event::Inserted(id, number) => self.inserted(id, number),
            Event::Changed(id, changed) => self.call_changed(id, changed.as_ref()),
            Event::Forgotten(id) => self.forgotten(id),
            Event::Pulled(number, read) => self.pulled(number, read),
            Event::DataRead(id, read) => self.data_read(id, read),
            Event::Folder(files) => self.folder_changed(files),
            Event::Library(checked) => self.library_checked(checked),
            Event::Drain => self.drain(),
            Event::Stop => self.stop(),
        }
    }

    /// What the shell is to do next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.pop()
    }

    /// Goes on with what the events of a batch have made possible.
    pub fn turn(&mut self) {
        // Not those that are closed from here on: the shell is yet to write their last words.
        self.remove_closed();
        self.use_room();
        self.serve_candidates();
        self.dispatch();
        self.grant_held();
        self.dispatch();
        self.handle_deadlines();
        self.let_go();
    }

    /// Whether a turn would go on with something, though nothing has happened.
    pub fn has_work(&self) -> bool {
        !self.candidates.is_empty() || self.has_room
    }

    fn handle_deadlines(&mut self) {
        let now = self.now();
        self.take_back_late();
        self.serve_lanes();
        let callbacks = self.settings.limits.callback();
        let late = self.workers.iter().filter(|(_, worker)| {
            let deadline = worker.deadline(callbacks);
            deadline.is_some_and(|end| end <= now)
        });
        let late: Vec<_> = late
            .map(|(key, worker)| (key, worker.waits_since().is_some()))
            .collect();
        for (worker, waits) in late {
            self.end_late(worker, waits);
        }
        self.expire();
        self.expire_arrays();
        self.expire_objects();
        let is_due = |since: &mut Nanos| now >= *since + KEEP;
        if self.learned_since.take_if(is_due).is_some() {
            self.out.push(Action::KeepLearned);
        }
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.end_stalled();
            self.end_silent();
        }
    }

    /// A worker has run for too long, or its client does not answer its callback.
    fn end_late(&mut self, worker: WorkerKey, waits: bool) {
        if waits {
            let limit = self.settings.limits.callback_s;
            let text = format!(
                "was ended because the client did not answer its callback within {limit} s \
                 (limits.callback_s in the server's configuration)"
            );
            return self.end_worker(worker, FailureKind::NoAnswer, &text);
        }
        let limit = self.settings.time_limit_s;
        let text = format!("ran past its time limit of {limit} s");
        self.end_worker(worker, FailureKind::TimeLimit, &text);
    }

    /// When to call [`Server::turn`] again at the latest, in nanoseconds since the start.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let callbacks = self.settings.limits.callback();
        let workers = self.workers.values();
        let running = workers.clone().filter_map(|w| w.deadline(callbacks));
        let patience = workers.filter_map(Worker::patience);
        let mut connections = self.connections.values();
        let greeting = connections.any(|connection| !connection.connected);
        let sweeps = greeting || !self.calls.is_empty();
        let sweep = sweeps.then_some(self.next_sweep);
        let keep = self.learned_since.map(|since| since + KEEP);
        let nanos = self.now();
        let change = self.queue.next_change(nanos).into_iter();
        let change = change.chain(self.lanes.next_change(nanos)).min();
        running
            .chain(patience)
            .chain(sweep)
            .chain(keep)
            .chain(self.stopping)
            .chain(self.held_until)
            .chain(self.next_expiry())
            .chain(change)
            .chain(self.next_report())
            .min()
    }

    /// When the server is to have ended at the latest, once it stops.
    pub fn stops(&self) -> Option<Nanos> {
        self.stopping
    }

    /// The functions served.
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The functions served, and the links, to go on with what was learned of them before.
    pub fn learned(&mut self) -> (&mut Functions, &mut Links) {
        (&mut self.functions, &mut self.links)
    }

    /// What was learned of links.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Times of all calls.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// How many functions are served.
    pub fn functions_served(&self) -> usize {
        self.functions.len()
    }
}

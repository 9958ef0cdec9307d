//! The engine: it hands each event to the part whose subject it is, and performs the steps that
//! parts ask of each other.
//!
//! A part has its own state and knows no other part. A request from one part to another is a
//! [`Step`], and steps are performed here and nowhere else.

mod call_status;
mod calls;
pub(crate) mod clients;
mod idle;
mod offer;
mod overview;
mod requests;
mod snapshot;
mod status;
mod takeover;

pub use overview::{Figures, Overview, STATES};
pub use status::{Reports, ServerStatus};

use self::takeover::Takeover;
use crate::account::Totals;
use crate::action::{Action, Actions};
use crate::clients::{Clients, Rank};
use crate::context::{Clock, Context, Step};
use crate::data::{Data, destination, room, source};
use crate::disk::{Disk, Purpose};
use crate::durable_calls::{self, DurableCalls};
use crate::elements::{Elements, Loss};
use crate::event::{Death, Event, Now};
use crate::flaw::{Flaw, has};
use crate::functions::Functions;
use crate::ids::Ids;
use crate::keys::{Table, WorkerKey};
use crate::lanes::Lanes;
use crate::libraries::Libraries;
use crate::links::Links;
use crate::memory::Memory;
use crate::names::DataFile;
use crate::notes::Notes;
use crate::objects::Objects;
use crate::output;
use crate::record::{DiskError, Stored};
use crate::reservations::Reservations;
use crate::segments;
use crate::settings::Settings;
use crate::worker::Worker;
use farcall_idl::Document;
use farcall_rpc_proto::Nanos;
use std::collections::VecDeque;

/// Learned times and rates are saved after this time at the latest.
const KEEP: Nanos = 60_000_000_000;
/// Time between two searches for connections that never greeted, and between two signs of life to
/// clients that wait.
const SWEEP: Nanos = 1_000_000_000;

/// All parts of the server.
pub(crate) struct Engine {
    pub(crate) cx: Context,
    pub(crate) elements: Elements,
    pub(crate) data: Data,
    pub(crate) durable_calls: DurableCalls,
    pub(crate) objects: Objects,
    pub(crate) reservations: Reservations,
    pub(crate) lanes: Lanes,
    pub(crate) libraries: Libraries,
    pub(crate) links: Links,
    takeover: Takeover,
    board: snapshot::Board,
    next_sweep: Nanos,
    /// Since when nobody has used the server.
    idle_since: Option<Nanos>,
}

/// Continues with calls whose turn to use stored arrays has come.
fn serve_candidates(engine: &mut Engine) {
    while engine.data.turns.has_candidates() {
        engine.data.serve_candidates(&mut engine.cx);
        engine.settle();
    }
}

impl Engine {
    pub(crate) fn new<'d>(
        settings: Settings,
        documents: impl IntoIterator<Item = &'d Document>,
        files: Vec<DataFile>,
        now: Now,
    ) -> Engine {
        let mut settings = settings;
        if has(Flaw::ForgetsPatience) {
            settings.queue.patience.time = Nanos::MAX;
        }
        let mut ids = Ids::new(settings.seed);
        let base = ids.next();
        let base = base.iter().take(6);
        let base = base.fold(0, |base, byte| base << 8 | u64::from(*byte)) << 16;
        let mut functions = Functions::new(base, settings.priorities.clone());
        let mut libraries = Libraries::default();
        for document in documents {
            functions.add(document);
            libraries.add();
        }
        Engine {
            elements: Elements::new(settings.queue.clone()),
            data: Data::new(&settings, files),
            durable_calls: DurableCalls::default(),
            takeover: Takeover::default(),
            board: snapshot::Board::default(),
            objects: Objects::default(),
            reservations: Reservations::default(),
            lanes: Lanes::default(),
            libraries,
            links: Links::default(),
            next_sweep: now.nanos + SWEEP,
            idle_since: Some(now.nanos),
            cx: Context {
                memory: Memory::new(settings.limits.memory),
                clock: Clock::starting(now),
                out: Actions::default(),
                steps: VecDeque::new(),
                ids,
                functions,
                clients: Clients::default(),
                calls: Table::default(),
                disk: Disk::new(!settings.has_state),
                totals: Totals::new(Notes::wanted(&settings)),
                settings,
                has_room: true,
                learned_since: None,
                draining: false,
                stopping: None,
            },
        }
    }

    /// Handles an event.
    pub(crate) fn handle(&mut self, event: Event) {
        let cx = &mut self.cx;
        match event {
            Event::Authenticated(connection, found) => self.authenticated(connection, found),
            Event::Challenged(connection, text) => clients::challenge(cx, connection, text),
            Event::Lost(connection, why) => self.close(connection, why),
            Event::NoMemory(memory, why) => self.no_memory(memory, &why),
            Event::Shared(connection, request, made) => {
                segments::shared(cx, connection, request, made);
            }
            Event::Ready(worker, ready) => {
                if let Some(library) = self.elements.workers.ready(cx, worker) {
                    let found = self.libraries.bound(cx, library, ready);
                    self.elements.has_old |= self.elements.workers.found(worker, found);
                }
            }
            Event::Finished(worker, call, mut outcome) => {
                output::finish(cx, call);
                self.libraries
                    .note_maker(cx, self.elements.workers.get(worker), call);
                self.elements.workers.returned(cx, worker, &mut outcome);
                self.finished(call, outcome);
            }
            Event::Passed(worker) => self.elements.workers.goes_on(cx, worker),
            Event::Withdrawn(worker, call, withdrawal) => {
                self.elements.withdrawn(cx, worker, call, withdrawal);
            }
            Event::NotRun(worker, why) => self.elements.not_run(cx, worker, &why),
            Event::WorkerReport(worker, said) => self.elements.worker_says(cx, worker, said),
            Event::Printed(worker, printed) => {
                let worker = self.elements.workers.get(worker);
                if let Some(call) = worker.and_then(Worker::call) {
                    output::printed(cx, call, printed);
                }
            }
            Event::Leaves(worker) => self.elements.workers.leaves(worker),
            Event::Died(worker, death) => self.worker_died(worker, &death),
            Event::DurableOpened(records, served) => {
                self.durable_calls.opened(cx, records, served);
                takeover::end(self);
            }
            Event::DurableAwaited => self.takeover.begin(),
            Event::Written(ticket, stored) => self.written(ticket, stored),
            Event::Fetched(ticket, read) => self.fetched(ticket, read),
            Event::Inserted(id, number) => {
                let elements = &self.elements;
                let told = self.durable_calls.inserted(cx, elements, id, number);
                if let Some(connection) = told {
                    clients::say_goodbye(self, connection);
                }
            }
            Event::Changed(id, changed) => self.durable_calls.changed(cx, id, changed.as_ref()),
            Event::Forgotten(id) => self.durable_calls.forgotten(cx, id),
            Event::Pulled(number, read) => self.data.pulled(cx, number, read),
            Event::SourceFound(number, found) => source::found(&mut self.data, cx, number, found),
            Event::SourceWritten(call, written) => destination::written(cx, call, written),
            Event::DataRead(id, read) => self.data.data_read(cx, id, read),
            Event::Folder(files) => self.data.folder_changed(cx, files),
            Event::Library(checked) => {
                if let Some(library) = self.libraries.checked(cx, checked) {
                    self.elements.workers.start(cx, library);
                }
            }
            Event::Replaced(library) => self.elements.workers.try_again(cx, library),
            Event::Drain => self.drain(),
            Event::Stop => self.stop(),
        }
        self.settle();
    }

    /// Performs the steps that parts have asked for.
    pub(crate) fn settle(&mut self) {
        if self.elements.has_old {
            self.elements.has_old = self.elements.workers.end_old(&mut self.cx);
        }
        while let Some(step) = self.cx.steps.pop_front() {
            let cx = &mut self.cx;
            match step {
                Step::Enqueue(call) if cx.calls.contains(call) => self.elements.enqueue(cx, call),
                Step::Begin(call) if cx.calls.contains(call) => self.elements.begin(cx, call),
                Step::TearDown(call, reason) if cx.calls.contains(call) => {
                    self.elements.tear_down(cx, call, &reason);
                }
                Step::RunAgain(call, failure) if cx.calls.contains(call) => {
                    self.durable_calls.run_again(cx, call, &failure);
                }
                Step::Enqueue(_) | Step::Begin(_) | Step::TearDown(..) | Step::RunAgain(..) => {}
                Step::SeekRoom => {
                    durable_calls::requests::seek_room(&mut self.durable_calls, cx, &mut self.data)
                }
                Step::LookForFunctions => {
                    durable_calls::look_for_functions(&mut self.durable_calls, cx);
                }
                Step::Release(call) => self.release(call),
                Step::Fail(call, kind, cause) => self.fail(call, kind, &cause),
                Step::Record(id, change, outcome) => {
                    self.durable_calls.record(cx, id, change, outcome);
                }
            }
        }
    }

    /// Continues with everything that the events of a batch have made possible.
    pub(crate) fn turn(&mut self) {
        // Connections that are closed from here on stay: the shell must still write their last
        // output.
        for key in self.cx.clients.remove_closed() {
            self.lanes.forget(key);
        }
        self.use_room();
        source::begin_queued(&mut self.data, &mut self.cx);
        takeover::go_on(self);
        serve_candidates(self);
        self.elements.dispatch(&mut self.cx);
        self.grant_held();
        self.elements.dispatch(&mut self.cx);
        self.settle();
        self.handle_deadlines();
        self.let_go();
        self.settle();
    }

    /// Continues with calls that have waited for memory.
    fn use_room(&mut self) {
        if !std::mem::take(&mut self.cx.has_room) || self.cx.stopping.is_some() {
            return;
        }
        // Calls that were accepted before come first.
        if self.data.turns.look_again() {
            serve_candidates(self);
            if self.data.turns.starves() {
                return;
            }
        }
        let (durable, connection) = first_in_line(self);
        let is_first = durable.is_some_and(|own| connection.is_none_or(|other| own < other));
        if is_first {
            serve_durable(self);
        }
        self.serve_starved();
        source::serve(&mut self.data, &mut self.cx);
        if !is_first {
            serve_durable(self);
        }
        // Others may have waited behind what has gone on.
        let (durable_now, connection_now) = first_in_line(self);
        let goes_on = durable != durable_now || is_first && connection != connection_now;
        let waits = self.cx.clients.someone_starves() || self.durable_calls.await_memory();
        self.cx.has_room |= goes_on && waits;
        self.settle();
    }

    fn handle_deadlines(&mut self) {
        let cx = &mut self.cx;
        let now = cx.now();
        self.elements.take_back_late(cx);
        let Elements {
            queue, expected, ..
        } = &mut self.elements;
        expected.look_ahead(queue, now, |id, pes| cx.predict(id, pes));
        self.lanes.serve_lanes(cx);
        self.elements.workers.end_late(cx);
        self.durable_calls.expire(cx);
        self.data.expire_arrays(cx);
        room::try_disk_again(&mut self.data, cx);
        let keep_ms = self.data.arrays.keep_ms();
        self.objects.expire(cx, &mut self.elements, keep_ms);
        let is_due = |since: &mut Nanos| now >= *since + KEEP;
        if cx.learned_since.take_if(is_due).is_some() {
            cx.out.push(Action::KeepLearned);
        }
        self.takeover.expire(cx);
        cx.note_counts(&self.links);
        if now >= self.next_sweep {
            // A server that did not run has not read what clients have sent meanwhile.
            let has_run = now < self.next_sweep + SWEEP;
            self.next_sweep = now + SWEEP;
            self.end_stalled(has_run);
            if has_run {
                self.end_silent();
            }
            clients::show_life(&mut self.cx);
        }
        idle::end(self, now);
    }

    /// When to call [`Engine::turn`] again at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let cx = &self.cx;
        let now = cx.now();
        let callbacks = cx.settings.limits.callback();
        let elements = self.elements.next_deadline(callbacks, now);
        // A draining server lets go of connections that it has kept for a while.
        let lets_go = cx.draining && cx.stopping.is_none();
        let takeover = self.takeover.next_deadline();
        let may_block = cx.clients.someone_starves() || takeover.is_some();
        let has_calls = !cx.calls.is_empty();
        let sweeps = cx.clients.awaits_greeting() || has_calls || may_block || lets_go;
        let sweep = sweeps.then_some(self.next_sweep);
        let keep = cx.learned_since.map(|since| since + KEEP);
        let idle = self.idle_since.zip(cx.settings.limits.idle());
        let idle = idle.map(|(since, limit)| since + limit);
        let objects = self.objects.next_expiry(self.data.arrays.keep_ms());
        let left = |at: u64| at.saturating_sub(cx.steady_ms());
        let expiries = [
            self.durable_calls.next_expiry(now),
            self.data.arrays.next_expiry().map(left),
            objects.map(left),
        ];
        let expiry = expiries.into_iter().flatten().min();
        let expiry = expiry.map(|left| now.saturating_add(left.saturating_mul(1_000_000)));
        let lanes = self.lanes.next_change(now);
        let notes = cx.totals.notes.as_ref().and_then(Notes::deadline);
        let all = [
            elements,
            sweep,
            keep,
            expiry,
            lanes,
            takeover,
            notes,
            idle,
            room::disk_deadline(&self.data),
            cx.stopping,
        ];
        all.into_iter().flatten().min()
    }

    /// Handles the end of a worker, and the loss of what it held.
    fn worker_died(&mut self, worker: WorkerKey, death: &Death) {
        let cx = &mut self.cx;
        match self.elements.worker_died(cx, worker, death) {
            Loss::Worker => {}
            Loss::Object(held, failure) => self.objects.died(cx, &held, failure),
            Loss::Library(library) => self.libraries.not_bound(cx, library, &death.cause),
        }
    }

    /// Handles the end of a write, or its error.
    fn written(&mut self, ticket: u64, stored: Result<Stored, DiskError>) {
        let cx = &mut self.cx;
        let Some((purpose, memory)) = cx.disk.ended(ticket) else {
            return;
        };
        match purpose {
            Purpose::Submit(call) => {
                cx.calls[call].memory.buffer = Some(memory);
                self.durable_calls.arguments_written(cx, call, stored);
            }
            Purpose::Finish(call, exec) => {
                cx.calls[call].memory.buffer = Some(memory);
                self.durable_calls.result_written(cx, call, exec, stored);
            }
            Purpose::Spill(id) => self.data.spilled(cx, id, memory, stored),
            Purpose::Load(_) | Purpose::Deliver(_) | Purpose::Unspill(..) => {}
        }
    }

    /// Handles the end of a read, or its error.
    fn fetched(&mut self, ticket: u64, read: Result<(), DiskError>) {
        let cx = &mut self.cx;
        let Some((purpose, memory)) = cx.disk.ended(ticket) else {
            return;
        };
        match purpose {
            Purpose::Load(call) => {
                cx.calls[call].memory.buffer = Some(memory);
                self.durable_calls.arguments_read(cx, call, read);
            }
            Purpose::Deliver(Some(fetch)) => {
                self.durable_calls.result_read(cx, fetch, memory, read)
            }
            Purpose::Deliver(None) => {
                cx.memory.give_back(memory);
                cx.has_room = true;
            }
            Purpose::Unspill(id, stored) => self.data.unspilled(cx, id, (memory, stored), read),
            Purpose::Submit(_) | Purpose::Finish(..) | Purpose::Spill(_) => {}
        }
    }
}

/// Continues with results and calls on the disk that have waited for memory.
fn serve_durable(engine: &mut Engine) {
    engine.durable_calls.serve_starved(&mut engine.cx);
    // The next server takes what this one has not begun.
    if !engine.cx.draining {
        engine.durable_calls.load_backlog(&mut engine.cx);
    }
}

/// The first that waits for memory: of results and calls on the disk, and of connections.
fn first_in_line(engine: &Engine) -> (Option<Rank>, Option<Rank>) {
    let durable = durable_calls::next_starved(&engine.durable_calls, &engine.cx);
    let connection = engine.cx.clients.next_starved(&engine.cx.memory);
    (durable, connection.map(|(_, rank)| rank))
}

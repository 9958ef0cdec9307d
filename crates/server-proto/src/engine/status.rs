//! Status reports to metaservers: the functions, the named data and the load, whenever they have
//! changed. `member` decides what each metaserver is sent. Reports follow each other after 20 ms at
//! the earliest. A report that was not taken is repeated in full.

use super::Overview;
use crate::call::{ActiveCall, State};
use crate::map::Map;
use farcall_directory::message::{
    self, Booked, Datum, Function, MOST_BOOKED, MOST_JOBS, MOST_LEARNED, Phase, Report, Times,
};
use farcall_rpc_proto::Nanos;
use farcall_schedule::Profile;

/// Shortest time between two reports.
const PAUSE: Nanos = 20_000_000;
/// Assumed seconds of a call about which nothing is known.
const UNKNOWN_S: f64 = 0.1;

/// The status of a server, for metaservers.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// Processor elements.
    pub pes: u32,
    /// Bytes for calls.
    pub memory: u64,
    /// All functions, if they have changed since the last report.
    pub functions: Option<Vec<Function>>,
    /// All named data, if they have changed since the last report.
    pub data: Option<Vec<Datum>>,
    /// The report for a directory, without the server's number.
    pub report: Report,
}

/// The state that a report depends on. If it changes, a new report is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signature {
    calls: usize,
    running: usize,
    waiting: usize,
    pes: u32,
    draining: bool,
    functions: usize,
    ended: u64,
    names: u64,
    booked: u64,
}

/// What was reported so far.
#[derive(Debug, Default)]
pub struct Reports {
    /// Whether anybody has subscribed.
    is_wanted: bool,
    said: Option<Signature>,
    functions: usize,
    /// Number of changes of the named data that were reported.
    names: u64,
    /// The earliest time of the next report.
    next: Nanos,
    /// Reported observations of each function.
    told: Map<String, u64>,
}

impl Reports {
    /// Makes reports from now on.
    pub fn subscribe(&mut self) {
        self.is_wanted = true;
    }

    /// When the next report is due, if anything has changed.
    pub(crate) fn next(&self, server: Overview<'_>) -> Option<Nanos> {
        let is_due = self.is_wanted && self.said != Some(server.signature());
        is_due.then_some(self.next)
    }

    /// The status, if a report is due. The caller must say [what happened to
    /// it](Reports::reported).
    pub(crate) fn poll(&mut self, server: Overview<'_>) -> Option<ServerStatus> {
        let now = server.0.cx.now();
        if self.next(server).is_none_or(|next| now < next) {
            return None;
        }
        let signature = server.signature();
        let is_new = self.functions != signature.functions;
        self.next = now + PAUSE;
        Some(ServerStatus {
            pes: server.0.elements.queue.settings().pes,
            memory: server.0.cx.memory.limit(),
            data: (self.names != signature.names).then(|| server.0.data.names.all()),
            functions: is_new.then(|| server.all_functions()),
            report: server.report_of_jobs(&mut self.told),
        })
    }

    /// Records whether all subscribers have taken the last report.
    pub(crate) fn reported(&mut self, server: Overview<'_>, status: &ServerStatus, all: bool) {
        let signature = server.signature();
        if all {
            // What does not fit into one report follows with the next.
            let is_complete = status.report.learned.len() < MOST_LEARNED;
            self.said = is_complete.then_some(signature);
            self.functions = signature.functions;
            self.names = signature.names;
        } else {
            // The next report repeats everything, including times.
            self.told.clear();
        }
    }
}

impl Overview<'_> {
    fn signature(&self) -> Signature {
        Signature {
            calls: self.0.cx.calls.len(),
            running: self
                .0
                .elements
                .workers
                .values()
                .filter(|worker| worker.call().is_some())
                .count(),
            waiting: self.0.elements.queue.waiting().count(),
            pes: self.0.elements.queue.used(),
            draining: self.0.cx.draining,
            functions: self.0.cx.functions.count(),
            ended: self.0.cx.totals.ended(),
            names: self.0.data.names.changes(),
            booked: self.0.reservations.changes(),
        }
    }

    fn all_functions(&self) -> Vec<Function> {
        let functions = self.0.cx.functions.iter().take(message::MOST_FUNCTIONS);
        let short = |text: String| text.chars().take(120).collect();
        let function = functions.map(|function| {
            let entry = function.entry;
            Function {
                name: function.interface.qualified_name().into_owned(),
                title: short(function.title()),
                digest: farcall_directory::digest(function.text()),
                repeatable: function.interface.repeatable,
                library: self.0.libraries.identity(entry).map(short),
            }
        });
        function.collect()
    }

    fn report_of_jobs(&self, told: &mut Map<String, u64>) -> Report {
        let calls = self
            .0
            .cx
            .calls
            .values()
            .filter_map(|call| self.tell_of(call));
        let calls: Vec<message::QueuedCall> = calls.take(MOST_JOBS).collect();
        let held: u64 = self.0.cx.calls.values().map(|call| call.layout.bytes).sum();
        let changed = self
            .0
            .cx
            .functions
            .learned()
            .filter_map(|(name, _, profile)| {
                let seen = observations(profile);
                (told.get(&*name) != Some(&seen)).then(|| (name.into_owned(), seen, profile))
            });
        let learned = changed.take(MOST_LEARNED).collect::<Vec<_>>();
        let learned = learned.into_iter().map(|(name, seen, profile)| {
            let times = Times::of(&name, profile);
            told.insert(name, seen);
            times
        });
        Report {
            server: 0,
            accepts: !self.0.cx.draining && self.0.cx.stopping.is_none(),
            memory: self.0.cx.memory.limit().saturating_sub(held),
            calls: u32::try_from(self.0.cx.calls.len()).unwrap_or(u32::MAX),
            learned: learned.collect(),
            queued: calls,
            booked: self.booked(),
        }
    }

    /// The reservations, the next to begin first; `None` if there are none.
    fn booked(&self) -> Option<Vec<Booked>> {
        let now = self.0.cx.now();
        let seconds = |time: u64| time.saturating_sub(now) as f64 * 1e-9;
        let mut bookings: Vec<_> = self
            .0
            .elements
            .queue
            .bookings()
            .map(|(_, booking)| *booking)
            .collect();
        bookings.retain(|booking| booking.until > now && booking.pes > 0);
        bookings.sort_by_key(|booking| booking.from);
        let booked = bookings.into_iter().take(MOST_BOOKED);
        let booked = booked.map(|booking| Booked {
            pes: booking.pes,
            from_s: seconds(booking.from).min(1e9),
            until_s: seconds(booking.until).min(1e9),
        });
        let booked: Vec<Booked> = booked.collect();
        (!booked.is_empty()).then_some(booked)
    }

    fn tell_of(&self, call: &ActiveCall) -> Option<message::QueuedCall> {
        let phase = match call.state {
            State::Receiving => Phase::Coming,
            State::Waiting | State::Queued => Phase::Waiting,
            State::Running { .. } => Phase::Running,
            State::Sending => Phase::Returning,
            State::OnDisk => return None,
        };
        let most = call.layout.processor_elements;
        let most = most.map_or(self.0.cx.settings.elements, |most| {
            u32::try_from(most).unwrap_or(u32::MAX)
        });
        let pes = match call.run.pes {
            0 => most.clamp(1, self.0.elements.queue.settings().pes),
            pes => pes,
        };
        let function = self.0.cx.functions.get(call.function).ok();
        let predicted = function.and_then(|function| function.predict(&call.layout, pes));
        let seconds = predicted.map_or(UNKNOWN_S, |known| known.seconds);
        let done = match call.state {
            State::Running { worker } => {
                self.0.elements.workers.get(worker).map_or(0.0, |worker| {
                    worker.running_for(self.0.cx.now()) as f64 * 1e-9
                })
            }
            _ => 0.0,
        };
        Some(message::QueuedCall {
            phase,
            pes,
            // A call that takes longer than predicted is assumed to need a while yet.
            seconds: match phase {
                Phase::Returning => 0.0,
                _ => (seconds - done).max(0.1 * seconds).min(1e9),
            },
            up: if phase == Phase::Coming {
                call.layout
                    .sent_bytes()
                    .saturating_sub(call.streams.arrived)
            } else {
                0
            },
            down: call.layout.returned_bytes(),
            reserved: self
                .0
                .elements
                .is_reserved(call, self.0.cx.now())
                .then_some(true),
        })
    }
}

/// How often a function was observed.
fn observations(profile: &Profile) -> u64 {
    let predictors = profile.predictors().iter();
    let rates = predictors.flat_map(|(_, predictor)| predictor.learned());
    rates.map(|rate| u64::from(rate.calls)).sum()
}

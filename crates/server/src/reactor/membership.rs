//! What metaservers are told: the functions, and how the server stands, whenever it has changed.

use super::Reactor;
use crate::job::{Job, State};
use farcall_directory::message::{
    self, Booked, Datum, Function, MOST_BOOKED, MOST_JOBS, MOST_LEARNED, Phase, Report, Times,
};
use farcall_schedule::Profile;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Time between two reports, at least.
const PAUSE: Duration = Duration::from_millis(20);
/// Seconds that a job is taken to compute of which nothing is known.
const UNKNOWN_S: f64 = 0.1;

/// How a server stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// When it stood so.
    pub at: Instant,
    /// Processor elements.
    pub pes: u32,
    /// Bytes for calls.
    pub memory: u64,
    /// All functions, where they are others than last time.
    pub functions: Option<Vec<Function>>,
    /// All data with names, where they are others than last time.
    pub data: Option<Vec<Datum>>,
    /// For a directory, but for the server's number.
    pub report: Report,
}

/// What of the server's state a report tells; another one calls for another report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Signature {
    jobs: usize,
    running: usize,
    waiting: usize,
    pes: u32,
    draining: bool,
    functions: usize,
    ended: u64,
    names: u64,
    booked: u64,
}

/// The way to those who pass reports on.
pub(crate) struct Reports {
    to: Vec<SyncSender<Standing>>,
    said: Option<Signature>,
    functions: usize,
    /// Changes of the named data that were told of.
    names: u64,
    /// The next report is not made before.
    next: Instant,
    /// Observations of each function that were told of.
    told: HashMap<String, u64>,
}

impl Reports {
    pub(crate) fn new() -> Reports {
        Reports {
            to: Vec::new(),
            said: None,
            functions: 0,
            names: 0,
            next: Instant::now(),
            told: HashMap::new(),
        }
    }

    /// One more who is told.
    pub(crate) fn subscribe(&mut self) -> Receiver<Standing> {
        // One that waits is enough: whoever takes it late gets the next at once.
        let (to, from) = sync_channel(1);
        self.to.push(to);
        from
    }
}

impl Reactor {
    fn signature(&self) -> Signature {
        Signature {
            jobs: self.jobs.len(),
            running: self
                .workers
                .iter()
                .filter(|(_, worker)| worker.job().is_some())
                .count(),
            waiting: self.queue.waiting().count(),
            pes: self.queue.used(),
            draining: self.draining,
            functions: self.functions.len(),
            ended: self.totals.ended(),
            names: self.named.names.changes(),
            booked: self.reservations.changes(),
        }
    }

    /// When the next report is due, if anything has changed.
    pub(super) fn next_report(&self) -> Option<Instant> {
        let reports = self.reports.as_ref()?;
        (reports.said != Some(self.signature())).then_some(reports.next)
    }

    /// Tells how the server stands, if that is due.
    pub(super) fn report_standing(&mut self) {
        let Some(mut reports) = self.reports.take() else {
            return;
        };
        let now = Instant::now();
        let signature = self.signature();
        if now >= reports.next && reports.said != Some(signature) {
            let is_new = reports.functions != signature.functions;
            let standing = Standing {
                at: now,
                pes: self.queue.settings().pes,
                memory: self.pool.limit() as u64,
                data: (reports.names != signature.names).then(|| self.named.names.all()),
                functions: is_new.then(|| self.all_functions()),
                report: self.report_of_jobs(&mut reports.told),
            };
            reports.next = now + PAUSE;
            let mut all = true;
            reports.to.retain(|to| match to.try_send(standing.clone()) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    all = false;
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            });
            if all {
                // More than one report can tell of is told with the next.
                let is_complete = standing.report.learned.len() < MOST_LEARNED;
                reports.said = is_complete.then_some(signature);
                reports.functions = signature.functions;
                reports.names = signature.names;
            } else {
                // It is told again as a whole: times that were in it too.
                reports.told.clear();
            }
        }
        self.reports = Some(reports);
    }

    fn all_functions(&self) -> Vec<Function> {
        let functions = self.functions.iter().take(message::MOST_FUNCTIONS);
        let short = |text: String| text.chars().take(120).collect();
        let function = functions.map(|function| {
            let entry = function.entry;
            Function {
                name: function.interface.qualified_name().into_owned(),
                title: short(function.title()),
                digest: farcall_directory::digest(function.text()),
                repeatable: function.interface.repeatable,
                library: self.libraries[entry.file]
                    .identity(entry.function)
                    .map(short),
            }
        });
        function.collect()
    }

    fn report_of_jobs(&self, told: &mut HashMap<String, u64>) -> Report {
        let jobs = self.jobs.iter().filter_map(|(_, job)| self.tell_of(job));
        let jobs: Vec<message::Job> = jobs.take(MOST_JOBS).collect();
        let held: u64 = self.jobs.iter().map(|(_, job)| job.layout.bytes).sum();
        let changed = self.functions.learned().filter_map(|(name, _, profile)| {
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
            accepts: !self.draining && self.stopping.is_none(),
            memory: (self.pool.limit() as u64).saturating_sub(held),
            calls: u32::try_from(self.jobs.len()).unwrap_or(u32::MAX),
            learned: learned.collect(),
            jobs,
            booked: self.booked(),
        }
    }

    /// What is reserved, the next to begin first; none where that is nothing.
    fn booked(&self) -> Option<Vec<Booked>> {
        let now = self.nanos();
        let seconds = |time: u64| time.saturating_sub(now) as f64 * 1e-9;
        let mut bookings: Vec<_> = self.queue.bookings().map(|(_, booking)| *booking).collect();
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

    fn tell_of(&self, job: &Job) -> Option<message::Job> {
        let phase = match job.state {
            State::Receiving => Phase::Coming,
            State::Waiting | State::Queued => Phase::Waiting,
            State::Running { .. } => Phase::Running,
            State::Sending => Phase::Returning,
            State::OnDisk => return None,
        };
        let most = job.layout.processor_elements;
        let most = most.map_or(self.config.workers.elements(), |most| {
            u32::try_from(most).unwrap_or(u32::MAX)
        });
        let pes = match job.pes {
            0 => most.clamp(1, self.queue.settings().pes),
            pes => pes,
        };
        let function = self.functions.get(job.function).ok();
        let predicted = function.and_then(|function| function.predict(&job.layout, pes));
        let seconds = predicted.map_or(UNKNOWN_S, |known| known.seconds);
        let done = match job.state {
            State::Running { worker } => self
                .workers
                .get(worker)
                .map_or(0.0, |worker| worker.running_for().as_secs_f64()),
            _ => 0.0,
        };
        Some(message::Job {
            phase,
            pes,
            // What takes longer than predicted takes a while yet.
            seconds: match phase {
                Phase::Returning => 0.0,
                _ => (seconds - done).max(0.1 * seconds).min(1e9),
            },
            up: if phase == Phase::Coming {
                job.layout.sent_bytes().saturating_sub(job.arrived)
            } else {
                0
            },
            down: job.layout.returned_bytes(),
            reserved: self.is_reserved(job).then_some(true),
        })
    }
}

/// How often a function was observed.
fn observations(profile: &Profile) -> u64 {
    let predictors = profile.predictors().iter();
    let rates = predictors.flat_map(|(_, predictor)| predictor.learned());
    rates.map(|rate| u64::from(rate.calls)).sum()
}

//! One server in the directory: its record, its last report, and the load that placement reckons
//! with. `servers` has all of them. A call that was placed counts once: until the report of the
//! server includes it, and then as part of the report.

use crate::calls::Placed;
use crate::flaw::{self, Flaw};
use crate::message::record::ServerRecord;
use crate::message::{Booked, Function, Join, MOST_JOBS, Phase, Report, Times};
use farcall_schedule::Profile;
use farcall_schedule::placement::{BusyElements, Call, Link, Server, TimeParts};
use std::collections::BTreeMap;

/// The status of a server, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerStatus<'d> {
    /// Its description. Its functions are in [`ServerStatus::functions`].
    pub join: &'d Join,
    /// Its functions, by name.
    pub functions: &'d BTreeMap<String, Function>,
    /// Whether it takes calls, as far as is known.
    pub accepts: bool,
    /// Whether it was lost and has not reported since.
    pub lost: bool,
    /// Its last report.
    pub report: Option<&'d Report>,
    /// Seconds since the last report.
    pub reported_s: f64,
    /// Seconds until its lease ends.
    pub lease_s: f64,
    /// Seconds until all its processor elements are free.
    pub backlog_s: f64,
    /// Processor elements that are reserved now.
    pub booked: u32,
    /// Number of functions with learned times.
    pub learned: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The description, without functions.
    pub(crate) join: Join,
    pub(crate) functions: BTreeMap<String, Function>,
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// The last report, without learned times.
    pub(crate) report: Option<Report>,
    pub(crate) reported_at: f64,
    /// When this metaserver received it from the server itself.
    pub(crate) heard_at: f64,
    pub(crate) expires: f64,
    /// Until when another metaserver has vouched for the server, in milliseconds since 1970; 0 if
    /// none has.
    pub(crate) claimed_ms: u64,
    /// Whether it could not be reached and has not reported since.
    pub(crate) lost: bool,
    /// Bytes per second of the fastest path to it and from it; 0 if none is known.
    pub(crate) rates: [f64; 2],
    /// Its load at the time of the last update.
    pub(crate) state: Server,
    /// Whether `state` must be updated.
    pub(crate) stale: bool,
}

impl Entry {
    pub(crate) fn new(mut join: Join, now: f64, expires: f64) -> Entry {
        let functions = std::mem::take(&mut join.functions);
        let named = |function: Function| (function.name.clone(), function);
        Entry {
            state: Server::idle(join.pes, join.memory, Link::unlimited(), Link::unlimited()),
            functions: functions.into_iter().map(named).collect(),
            profiles: BTreeMap::new(),
            report: None,
            reported_at: now,
            heard_at: f64::NEG_INFINITY,
            expires,
            claimed_ms: 0,
            lost: false,
            rates: [0.0; 2],
            stale: true,
            join,
        }
    }

    /// Takes a report. Returns the functions about which the server has learned something.
    pub(crate) fn take(&mut self, mut report: Report, now: f64) -> Vec<String> {
        let learned = std::mem::take(&mut report.learned);
        self.learn(&learned);
        self.report = Some(report);
        self.reported_at = now;
        self.lost &= flaw::has(Flaw::StaysLost);
        learned.into_iter().map(|times| times.function).collect()
    }

    pub(crate) fn learn(&mut self, learned: &[Times]) {
        for times in learned {
            if self.functions.contains_key(&times.function) {
                self.profiles
                    .insert(times.function.clone(), times.profile());
            }
        }
    }

    /// Whether the server itself reports to this metaserver, so that it knows more than others.
    pub(crate) fn is_heard(&self, now: f64, lease_s: f64) -> bool {
        !self.lost && now - self.heard_at < lease_s
    }

    /// Seconds since the last update of its state.
    pub(crate) fn since(&self, now: f64) -> f64 {
        (now - self.state.at_s).max(0.0)
    }

    /// Counts a call that is placed there.
    pub(crate) fn assign(&mut self, now: f64, call: &Call<'_>, terms: &TimeParts) {
        self.state.elapse(self.since(now));
        self.state.assign(call, terms);
        self.state.arrivals.arrive(now);
    }

    /// Updates the state. `placed` are the calls that were placed here.
    pub(crate) fn refresh<'c>(&mut self, now: f64, placed: impl Iterator<Item = &'c Placed>) {
        let unseen = self.unseen(placed);
        self.rebuild(now, &unseen);
        self.state.at_s = now;
        self.stale = false;
    }

    /// The placed calls that the report does not include yet, the oldest first. A call in the
    /// report counts as one of the placed calls if it returns the same number of bytes.
    fn unseen<'c>(&self, placed: impl Iterator<Item = &'c Placed>) -> Vec<Placed> {
        let Some(report) = &self.report else {
            return placed.cloned().collect();
        };
        let mut told: BTreeMap<u64, u32> = BTreeMap::new();
        for call in report.queued.iter().filter(|call| !call.is_reserved()) {
            *told.entry(call.down).or_default() += 1;
        }
        let mut is_told = |one: &Placed| match told.get_mut(&one.down) {
            Some(calls) if *calls > 0 => {
                *calls -= 1;
                true
            }
            _ => false,
        };
        let reported_at = self.reported_at;
        let is_unseen = |one: &&Placed| {
            one.at > reported_at || (!is_told(one) && one.seen_after() >= reported_at)
        };
        placed.filter(is_unseen).cloned().collect()
    }

    fn rebuild(&mut self, now: f64, unseen: &[Placed]) {
        let report = self.report.as_ref();
        let calls = report.map_or(&[][..], |report| &report.queued);
        let age = (now - self.reported_at).max(0.0);
        let ups = calls.iter().filter(|call| call.phase == Phase::Coming);
        let ups = ups.map(|call| call.up as f64);
        let ups = ups.chain(unseen.iter().map(|one| one.up_left(now)));
        let downs = calls.iter().map(|call| call.down as f64);
        let downs = downs.chain(unseen.iter().map(|one| one.down as f64));
        let [up, down] = self.rates.map(Link::new);
        let (mut up, mut down) = (up.with(ups), down.with(downs));
        up.elapse(age);
        down.elapse(if unseen.is_empty() { age } else { 0.0 });
        let mut state = Server::idle(self.join.pes, self.join.memory, up, down);
        state.accepts = !self.lost && report.is_none_or(|report| report.accepts);
        state.memory = report.map_or(self.join.memory, |report| report.memory);
        let others = || calls.iter().filter(|call| !call.is_reserved());
        let reserved = (calls.len() - others().count()) as u32;
        let calls = report.map_or(0, |report| report.calls);
        let calls = calls.saturating_sub(reserved);
        state.calls = calls.saturating_add(unseen.len() as u32);
        for call in others().filter(|call| call.phase == Phase::Running) {
            state.backlog.take(0.0, call.pes, call.left_after(age));
        }
        for booked in report.into_iter().flat_map(Report::booked) {
            state.backlog.keep(booked.after(age));
        }
        for call in others().filter(|call| call.phase == Phase::Waiting) {
            state.backlog.take(0.0, call.pes, call.seconds);
        }
        let rest = report.map_or(0.0, seconds_of_rest);
        state.backlog.delay(rest / f64::from(state.backlog.pes()));
        for call in others().filter(|call| call.phase == Phase::Coming) {
            let ready_s = state.up.seconds(call.up as f64, 0.0);
            state.backlog.take(ready_s, call.pes, call.seconds);
        }
        for one in unseen {
            state.memory = state.memory.saturating_sub(one.memory);
            state.backlog.take(one.ready_s(now), one.pes, one.compute_s);
        }
        state.holds = std::mem::take(&mut self.state.holds);
        state.arrivals = self.state.arrivals;
        self.state = state;
    }

    /// The record for others. With `only`, it has just that function.
    pub(crate) fn record(&self, now: f64, only: Option<&str>) -> ServerRecord {
        let age = (now - self.reported_at).max(0.0);
        let is_told = |name: &str| only.is_none_or(|only| only == name);
        let functions = self.functions.values();
        let functions = functions.filter(|function| is_told(&function.name));
        let learned = self.profiles.iter().filter(|(name, _)| is_told(name));
        ServerRecord {
            join: Join {
                functions: functions.cloned().collect(),
                ..self.join.clone()
            },
            report: self.report.clone().map(|report| report.after(age)),
            learned: learned.map(|(name, one)| Times::of(name, one)).collect(),
            expires_ms: milliseconds(self.expires),
        }
    }

    /// The record for others, without functions.
    pub(crate) fn record_without_functions(&self, now: f64) -> ServerRecord {
        self.record(now, Some(""))
    }

    /// Whether it takes calls, as far as is known.
    pub(crate) fn accepts(&self) -> bool {
        !self.lost && self.report.as_ref().is_none_or(|report| report.accepts)
    }

    /// Free memory for calls in its last report, in bytes.
    pub(crate) fn memory_free(&self) -> u64 {
        self.report
            .as_ref()
            .map_or(self.join.memory, |report| report.memory)
    }

    pub(crate) fn status(&self, now: f64) -> ServerStatus<'_> {
        let (pes, since_s) = (self.join.pes.max(1), self.since(now));
        ServerStatus {
            join: &self.join,
            functions: &self.functions,
            accepts: self.state.accepts && !self.lost,
            lost: self.lost,
            report: self.report.as_ref(),
            reported_s: (now - self.reported_at).max(0.0),
            lease_s: (self.expires - now).max(0.0),
            backlog_s: self
                .state
                .backlog
                .slot(since_s, (pes, pes), |_| 0.0)
                .start_s
                - since_s,
            booked: self.state.backlog.kept(since_s),
            learned: self.profiles.len(),
        }
    }
}

/// The seconds on one processor element of the calls that a full report counts and does not
/// describe. They are assumed to be like those that it describes.
fn seconds_of_rest(report: &Report) -> f64 {
    let described = report.queued.len();
    if described < MOST_JOBS {
        return 0.0;
    }
    let others = report.queued.iter().filter(|call| !call.is_reserved());
    let seconds: f64 = others.map(|call| call.seconds * f64::from(call.pes)).sum();
    let rest = (report.calls as usize).saturating_sub(described);
    seconds / described as f64 * rest as f64
}

impl Booked {
    /// The reservation as it would be this many seconds later.
    fn after(&self, seconds: f64) -> BusyElements {
        BusyElements {
            pes: self.pes,
            from_s: self.from_s - seconds,
            until_s: self.until_s - seconds,
        }
    }
}

pub(crate) fn milliseconds(seconds: f64) -> u64 {
    // Limited to the greatest integer of every store.
    ((seconds * 1e3) as u64).min(i64::MAX as u64)
}

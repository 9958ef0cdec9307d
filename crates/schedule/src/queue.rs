//! The queue: which call starts next, and on how many processor elements.
//!
//! A "job" here is a call that waits or computes. The queue is fair between users, and no call
//! waits for ever. See [`Queue`].

mod bookings;
mod deadlines;
mod expected;
mod starts;
mod users;

use crate::reservation::{Bandwidth, Calendar};
use bookings::Claim;
use std::collections::{BTreeMap, BTreeSet};
use strum::{EnumString, IntoStaticStr};
use users::{QueuePosition, Users};

pub use crate::Nanos;
pub use deadlines::Promises;
pub use expected::{Expected, Reason};
pub use starts::ExpectedStarts;

/// The order in which calls start. The last four policies are those of the first Ninf paper
/// (sections 5.2 and 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Every call starts when it arrives, on all processor elements, even if others compute. The
    /// first Ninf servers did this. It oversubscribes the machine and serves for comparison.
    AtOnce,
    /// First come, first served: a job that does not fit holds up those behind it.
    #[default]
    Fcfs,
    /// Shortest job first, by the predicted time. A call without a prediction comes first, so that
    /// its time becomes known. A call that does not fit holds up those behind it.
    Sjf,
    /// Fit processors, first served: the first call that fits.
    Fpfs,
    /// Fit processors, most processors first served: of the calls that fit, the one that wants most
    /// elements; of these, the first.
    Fmpfs,
}

impl Policy {
    /// The name of each on the command line and in configuration files.
    pub const NAMES: [(&'static str, Policy); 5] = [
        ("at-once", Policy::AtOnce),
        ("fcfs", Policy::Fcfs),
        ("sjf", Policy::Sjf),
        ("fpfs", Policy::Fpfs),
        ("fmpfs", Policy::Fmpfs),
    ];

    /// The policy with this name.
    pub fn named(name: &str) -> Option<Policy> {
        name.parse().ok()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether calls that fit may pass one that does not.
    fn fits(self) -> bool {
        matches!(self, Policy::Fpfs | Policy::Fmpfs)
    }
}

/// Settings of a [`Queue`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The order of calls.
    pub policy: Policy,
    /// Number of processor elements, at least 1.
    pub pes: u32,
    /// Number of GPUs.
    pub gpus: u32,
    /// Most calls that compute at once. Calls with a reservation start even beyond it.
    pub most_running: usize,
    /// Seconds after which a user's past use counts half. With `None`, all users count as one.
    pub half_life_s: Option<f64>,
    /// How long a call lets others pass.
    pub patience: Patience,
    /// Processor elements that cannot be booked ahead of time.
    pub unreservable: u32,
    /// Bandwidth that can be booked.
    pub bandwidth: Bandwidth,
    /// The number of the first booking. Each later one is one more.
    pub first_booking: u64,
}

impl Settings {
    /// First come, first served on `pes` processor elements, with fair shares by the hour.
    pub fn new(pes: u32) -> Settings {
        Settings {
            policy: Policy::default(),
            pes: pes.max(1),
            gpus: 0,
            most_running: usize::MAX,
            half_life_s: Some(3600.0),
            patience: Patience::default(),
            unreservable: 0,
            bandwidth: Bandwidth::default(),
            first_booking: 1,
        }
    }
}

/// How long a user's oldest call lets others pass. After either bound it is next: nothing else
/// starts until it has its processor elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time since it became its user's oldest call.
    pub time: Nanos,
    /// Starts of others since then.
    pub passes: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            time: 600_000_000_000,
            passes: 10_000,
        }
    }
}

/// A call that wants to compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// A number that no other job in the queue has, running ones included.
    pub id: u64,
    /// Whose share it counts towards.
    pub user: u64,
    /// Fewest processor elements it can compute on. More than the server has means all.
    pub fewest: u32,
    /// Most processor elements that it can use.
    pub most: u32,
    /// GPUs that it has for itself while it computes. One that wants more than the server has
    /// waits for ever.
    pub gpus: u32,
    /// Predicted seconds; `None` if nothing is known yet.
    pub seconds: Option<f64>,
    /// Calls of a higher priority go first, of any user.
    pub priority: i32,
    /// The booking whose elements it uses. It has no effect after the booking has ended. If the
    /// booking was made for a [deadline](Queue::book_before), the call waits like all others until
    /// the booking begins.
    pub reservation: Option<u64>,
}

/// The decision that a call starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub id: u64,
    /// Processor elements that it has until it is removed.
    pub pes: u32,
}

/// The share of a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserShare {
    /// The user, as in [`Request::user`]; 0 for all if there are no shares.
    pub user: u64,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that compute.
    pub running: usize,
    /// Seconds on one processor element. Old ones count less.
    pub usage: f64,
}

/// The calls that wait for processor elements, and those that have some.
///
/// How to drive it: [`push`](Queue::push) a call when it arrives, and [`remove`](Queue::remove) it
/// when it has ended or is not wanted any more. After either, and after a [`pause`](Queue::pause),
/// take starts from [`next`](Queue::next) until there are none. The caller passes the time, which
/// never goes back. A decision costs a logarithm of the number of calls and users; policies that
/// look for a call that fits may look at each user.
///
/// The order is: first a call whose user has lost [`Patience`]; then the highest priority; then the
/// user with the least recent use; then the policy's choice among that user's calls. A call gets an
/// equal part of the free elements among all that wait, between its fewest and its most.
///
/// A call can want GPUs, too. It starts when as many are free, and keeps them to its end. The
/// policies treat a call without free GPUs as one that does not fit.
///
/// Processor elements can be booked ahead of time ([`reserve`](Queue::reserve)). A call with a
/// booking starts as soon as the booking has begun, on at most its elements. The calls of one
/// booking go by priority, then in the order of arrival. No other call starts if it would probably
/// still hold booked elements when the booking begins; a call without a prediction is assumed to be
/// short. A call that runs longer than predicted keeps its elements: the booking's calls then wait,
/// and are next. If only bookings hold back the call whose turn it is, other calls may go first if
/// they will have ended by the time it can start.
#[derive(Clone, Debug)]
pub struct Queue {
    settings: Settings,
    users: Users,
    waiting: BTreeMap<u64, Waiting>,
    running: BTreeMap<u64, Running>,
    /// Number of running calls that are paused.
    paused: usize,
    /// Processor elements of running calls.
    used: u32,
    /// GPUs of running calls. A paused call keeps its own.
    used_gpus: u32,
    arrivals: u64,
    starts: u64,
    calendar: Calendar,
    /// Calls that wait for the elements of their bookings, by booking. No entry is empty.
    claims: BTreeMap<u64, BTreeSet<Claim>>,
    /// Bookings for deadlines, and the call that waits outside of each.
    deadlines: BTreeMap<u64, Option<u64>>,
}

/// A job that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    place: QueuePosition,
    /// Whether it waits among the claims on a booking.
    is_claim: bool,
}

/// A job that computes.
#[derive(Clone, Copy, Debug)]
struct Running {
    user: u64,
    pes: u32,
    gpus: u32,
    since: Nanos,
    /// When it was paused, if it is.
    paused: Option<Nanos>,
    /// Total time in which it was paused.
    away: Nanos,
    /// Seconds on one processor element that its user was charged for in advance.
    paid: f64,
    /// When it will probably end, without pauses.
    until: Nanos,
    reservation: Option<u64>,
}

impl Running {
    /// When it will probably end. A late call is assumed to need as long again.
    fn expected(&self, now: Nanos) -> Nanos {
        let pause = self.paused.map_or(0, |since| now.saturating_sub(since));
        let end = self.until.saturating_add(self.away).saturating_add(pause);
        end.max(now.saturating_add(now.saturating_sub(end)))
    }
}

/// Seconds charged in advance for a call without a prediction.
const UNKNOWN_S: f64 = 1e-3;

/// When a call that starts now will probably end.
fn predicted_end(seconds: Option<f64>, now: Nanos) -> Nanos {
    let nanos = seconds.unwrap_or(UNKNOWN_S).max(0.0) * 1e9;
    now.saturating_add(nanos as u64)
}

impl Queue {
    /// An empty queue.
    pub fn new(settings: Settings) -> Queue {
        let settings = Settings {
            pes: settings.pes.max(1),
            most_running: settings.most_running.max(1),
            ..settings
        };
        Queue {
            users: Users::new(settings.half_life_s),
            calendar: Calendar::new(
                settings.pes.saturating_sub(settings.unreservable),
                settings.bandwidth,
            )
            .numbered_from(settings.first_booking),
            claims: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            settings,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            paused: 0,
            used: 0,
            used_gpus: 0,
            arrivals: 0,
            starts: 0,
        }
    }

    /// Adds a call. If nobody waits and there is room, it starts at once; otherwise it waits for
    /// [`next`](Queue::next).
    pub fn push(&mut self, request: Request, now: Nanos) -> Option<Start> {
        self.expire(now);
        let pes = self.settings.pes;
        let fewest = request.fewest.clamp(1, pes);
        let request = Request {
            user: self.settings.half_life_s.map_or(0, |_| request.user),
            fewest,
            most: request.most.clamp(fewest, pes),
            ..request
        };
        let reservation = self.within_booking(&request).reservation;
        let request = Request {
            reservation,
            ..request
        };
        self.arrivals += 1;
        if self.waiting.is_empty() && self.has_room(&request, now) {
            return Some(self.start(&request, now));
        }
        let place = QueuePosition {
            priority: request.priority,
            width: if self.settings.policy.fits() {
                request.fewest
            } else {
                0
            },
            nanos: match (self.settings.policy, request.seconds) {
                (Policy::Sjf, Some(seconds)) => (seconds.max(0.0) * 1e9) as u64,
                _ => 0,
            },
            arrival: self.arrivals,
        };
        let booking = self.claimed(&request, now);
        let waiting = Waiting {
            request,
            place,
            is_claim: booking.is_some(),
        };
        self.waiting.insert(request.id, waiting);
        let Some(booking) = booking else {
            self.users
                .enter(request.user, request.id, place, now, self.starts);
            self.waits_outside(&request);
            return None;
        };
        let claims = self.claims.entry(booking).or_default();
        claims.insert(Claim::of(&waiting));
        let is_next = self.first_claim(now) == Some(request.id);
        is_next.then(|| self.next(now)).flatten()
    }

    /// Removes a call that has ended or is not wanted, waiting or running. Its processor elements
    /// are free again. Returns the seconds for which it had them, without pauses, times their
    /// number. Unknown calls are ignored.
    pub fn remove(&mut self, id: u64, now: Nanos) -> f64 {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.leave(&waiting, now);
            self.end_deadline(waiting.request.reservation, now);
            return 0.0;
        }
        self.resume(id, now);
        let Some(running) = self.running.remove(&id) else {
            return 0.0;
        };
        self.used -= running.pes;
        self.used_gpus -= running.gpus;
        let computed = now
            .saturating_sub(running.since)
            .saturating_sub(running.away);
        let seconds = computed as f64 * 1e-9;
        let used = seconds * f64::from(running.pes);
        let paid = (running.paid, running.since);
        self.users.settle(running.user, used, paid, now);
        self.end_deadline(running.reservation, now);
        used
    }

    /// Pauses a running call that waits for something else. Others may use its processor elements.
    pub fn pause(&mut self, id: u64, now: Nanos) {
        if let Some(running) = self.running.get_mut(&id)
            && running.paused.is_none()
        {
            running.paused = Some(now);
            self.paused += 1;
            self.used -= running.pes;
        }
    }

    /// Resumes a call with as many processor elements as before, even if they are not free. More
    /// are then in use than there are, until enough others have ended.
    pub fn resume(&mut self, id: u64, now: Nanos) {
        if let Some(running) = self.running.get_mut(&id)
            && let Some(paused) = running.paused.take()
        {
            self.paused -= 1;
            running.away += now.saturating_sub(paused);
            self.used += running.pes;
        }
    }

    /// The next call that can start now.
    pub fn next(&mut self, now: Nanos) -> Option<Start> {
        self.expire(now);
        let id = self.choose(now)?;
        let waiting = self.waiting[&id];
        if !self.has_room(&waiting.request, now) {
            return None;
        }
        self.waiting.remove(&id);
        self.leave(&waiting, now);
        Some(self.start(&waiting.request, now))
    }

    /// Removes a waiting call.
    fn leave(&mut self, waiting: &Waiting, now: Nanos) {
        let Waiting { request, place, .. } = waiting;
        let Some(reservation) = request.reservation.filter(|_| waiting.is_claim) else {
            return self.users.leave(request.user, place, now, self.starts);
        };
        if let Some(claims) = self.claims.get_mut(&reservation) {
            claims.remove(&Claim::of(waiting));
            if claims.is_empty() {
                self.claims.remove(&reservation);
            }
        }
    }

    /// The call whose turn it is, even if there is no room for it.
    pub fn choose(&self, now: Nanos) -> Option<u64> {
        if let Some(id) = self.first_claim(now) {
            return Some(id);
        }
        let mut held_back = None;
        let Patience { time, passes } = self.settings.patience;
        if let Some((since, starts, id)) = self.users.longest_waiting()
            && (now.saturating_sub(since) > time || self.starts - starts > passes)
        {
            if !self.is_held_back(id, now) {
                return Some(id);
            }
            held_back = Some(id);
        }
        let policy = self.settings.policy;
        if !policy.fits() {
            let first = self.users.first();
            let goes = |id| held_back.is_none() && !self.is_held_back(id, now);
            if policy == Policy::AtOnce || first.is_none_or(goes) {
                return first;
            }
            held_back = held_back.or(first);
        }
        let limit = held_back.map_or(Nanos::MAX, |id| self.could_start(id, now));
        let fits = |id| {
            let ends = predicted_end(self.waiting[&id].request.seconds, now);
            let has_gpus = self.waiting[&id].request.gpus <= self.free_gpus();
            has_gpus && ends <= limit && !self.is_held_back(id, now)
        };
        match policy {
            Policy::AtOnce | Policy::Fcfs | Policy::Sjf => {
                self.users.first_that_fits(u32::MAX, fits)
            }
            Policy::Fpfs => self.users.first_that_fits(self.free(), fits),
            Policy::Fmpfs => self.users.widest_that_fits(self.free(), fits),
        }
    }

    fn has_room(&self, request: &Request, now: Nanos) -> bool {
        let request = self.within_booking(request);
        let at_once = self.settings.policy == Policy::AtOnce;
        let fits = at_once || request.fewest <= self.room(&request, now);
        let fits = fits && request.gpus <= self.free_gpus();
        let is_booked = self.claimed(&request, now).is_some();
        fits && (is_booked || self.computing() < self.settings.most_running)
    }

    fn start(&mut self, request: &Request, now: Nanos) -> Start {
        let request = &self.within_booking(request);
        let reservation = self.claimed(request, now);
        let pes = match self.settings.policy {
            Policy::AtOnce => self.settings.pes,
            _ => self.part(request, now),
        };
        self.starts += 1;
        self.used += pes;
        self.used_gpus += request.gpus;
        let paid = request.seconds.unwrap_or(UNKNOWN_S).max(0.0) * f64::from(pes);
        self.users.charge(request.user, paid, now);
        let running = Running {
            user: request.user,
            pes,
            gpus: request.gpus,
            since: now,
            paused: None,
            away: 0,
            paid,
            until: predicted_end(request.seconds, now),
            reservation,
        };
        self.running.insert(request.id, running);
        if reservation.is_none() {
            self.end_deadline(request.reservation, now);
        }
        Start {
            id: request.id,
            pes,
        }
    }

    /// Processor elements for a call: an equal part of the free ones among all that wait for them.
    fn part(&self, request: &Request, now: Nanos) -> u32 {
        let free = self.room(request, now);
        let (others, room) = match self.claimed(request, now) {
            Some(reservation) => (self.claims_on(reservation), usize::MAX),
            None => {
                let claims: usize = self.claims.values().map(BTreeSet::len).sum();
                let others = self.waiting.len() - claims;
                (others, self.settings.most_running - self.computing())
            }
        };
        let claimants = (others + 1).min(room).max(1);
        let part = free / u32::try_from(claimants).unwrap_or(u32::MAX);
        part.clamp(request.fewest, request.most).min(free)
    }

    /// Running jobs that are not paused.
    fn computing(&self) -> usize {
        self.running.len() - self.paused
    }

    /// Processor elements without a call.
    pub fn free(&self) -> u32 {
        self.settings.pes.saturating_sub(self.used)
    }

    /// Processor elements in use. With [`Policy::AtOnce`], more than there are.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// GPUs without a call.
    fn free_gpus(&self) -> u32 {
        self.settings.gpus - self.used_gpus
    }

    /// GPUs of calls that compute.
    pub fn used_gpus(&self) -> u32 {
        self.used_gpus
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a call waits or runs.
    pub(crate) fn has(&self, id: u64) -> bool {
        self.waiting.contains_key(&id) || self.running.contains_key(&id)
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The jobs that wait, by number.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = u64> {
        self.waiting.keys().copied()
    }

    /// The jobs that compute, by number, with their processor elements.
    pub fn running(&self) -> impl ExactSizeIterator<Item = Start> {
        let starts = self.running.iter();
        starts.map(|(id, running)| Start {
            id: *id,
            pes: running.pes,
        })
    }

    /// The shares of users that have calls, or had some recently.
    pub fn users(&self, now: Nanos) -> impl Iterator<Item = UserShare> {
        self.users.standings(now)
    }
}

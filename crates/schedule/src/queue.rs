//! Which job starts next, and on how many processor elements.

mod bookings;
mod users;

use crate::reservation::{Bandwidth, Calendar};
use bookings::Claim;
use std::collections::{BTreeMap, BTreeSet};
use strum::{EnumString, IntoStaticStr};
use users::{QueuePosition, Users};

pub use crate::Nanos;

/// The order in which jobs start. The last four are those of the first Ninf paper (sections 5.2 and
/// 5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Policy {
    /// Every job starts when it comes, on all processor elements, whoever else computes: what the
    /// first Ninf servers did. It oversubscribes the machine and is there to compare with.
    AtOnce,
    /// First come, first served: a job that does not fit holds up those behind it.
    #[default]
    Fcfs,
    /// Shortest job first, by the predicted time; what is not predicted yet comes before, so that
    /// it becomes known. A job that does not fit holds up those behind it.
    Sjf,
    /// Fit processors, first served: the first to come of those that fit.
    Fpfs,
    /// Fit processors, most processors first served: of those that fit the one that wants most, and
    /// of these the first to come.
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

    /// The policy of that name.
    pub fn named(name: &str) -> Option<Policy> {
        name.parse().ok()
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether jobs that fit go past one that does not.
    fn fits(self) -> bool {
        matches!(self, Policy::Fpfs | Policy::Fmpfs)
    }
}

/// Settings of a [`Queue`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The order.
    pub policy: Policy,
    /// Processor elements there are, at least 1.
    pub pes: u32,
    /// Jobs that compute at the same time, at most; those that have processor elements of a booking
    /// start all the same.
    pub most_running: usize,
    /// Seconds after which what a user has computed counts half. None: all users are one.
    pub half_life_s: Option<f64>,
    /// How long others may go before.
    pub patience: Patience,
    /// Processor elements that cannot be booked ahead of time.
    pub unreservable: u32,
    /// Bandwidth that can be booked.
    pub bandwidth: Bandwidth,
}

impl Settings {
    /// First come, first served on so many processor elements, with fair shares by the hour.
    pub fn new(pes: u32) -> Settings {
        Settings {
            policy: Policy::default(),
            pes: pes.max(1),
            most_running: usize::MAX,
            half_life_s: Some(3600.0),
            patience: Patience::default(),
            unreservable: 0,
            bandwidth: Bandwidth::default(),
        }
    }
}

/// How long a user's oldest job lets others go before. After either bound it is next: nothing else
/// starts until it has its processor elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time since it became its user's oldest.
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

/// A job that wants to compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// A number that no other job in the queue has, running ones included.
    pub id: u64,
    /// Whose share it counts towards.
    pub user: u64,
    /// Fewest processor elements it can compute on; more than there are means all.
    pub fewest: u32,
    /// Most processor elements of which it makes use.
    pub most: u32,
    /// Predicted seconds; none where nothing is known yet.
    pub seconds: Option<f64>,
    /// Jobs of a higher priority go first, whosever they are.
    pub priority: i32,
    /// The booking whose processor elements it has; as if there were none where that is over.
    pub reservation: Option<u64>,
}

/// The decision that a job starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub id: u64,
    /// Processor elements it has until it is removed.
    pub pes: u32,
}

/// How a user stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UserShare {
    /// Who, as in [`Request::user`]; 0 for all where there are no shares.
    pub user: u64,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that compute.
    pub running: usize,
    /// Seconds on one processor element, the older the less they count.
    pub usage: f64,
}

/// Jobs that wait for processor elements, and those that have some.
///
/// Driving it: [`push`](Queue::push) a job when it comes, then [`remove`](Queue::remove) it when it
/// has ended or is not wanted any more; after either, and after a [`pause`](Queue::pause), take
/// starts from [`next`](Queue::next) until there is none. Time comes from the caller and never goes
/// back. A decision costs a logarithm of the jobs and users, but that policies which look for a job
/// that fits may look at each user.
///
/// What goes first: the job of a user that has lost its [`Patience`]; then the highest priority; of
/// that, the user who has used the processors least of late; and of that user's jobs, the policy's
/// choice. How many processor elements it gets, between its fewest and its most, is its equal part
/// of those that are free among all that wait.
///
/// Processor elements may be booked ahead of time ([`reserve`](Queue::reserve)). A job of a booking
/// starts as soon as that has begun, and has its processor elements at most; those of one booking
/// go by priority, then in the order in which they came. No job starts where it would probably
/// still have processor elements of another booking when that begins; one of which nothing is known
/// is taken for a short one. Nothing is taken from a job that runs for longer than predicted: the
/// booking's jobs then wait, and are next. Where bookings alone hold back the job whose turn it is,
/// others go before that will have ended when it can start.
#[derive(Clone, Debug)]
pub struct Queue {
    settings: Settings,
    users: Users,
    waiting: BTreeMap<u64, Waiting>,
    running: BTreeMap<u64, Running>,
    /// Of these, those that are paused.
    paused: usize,
    /// Processor elements of running jobs.
    used: u32,
    arrivals: u64,
    starts: u64,
    calendar: Calendar,
    /// Jobs that wait for processor elements of their bookings, by booking; none is without.
    claims: BTreeMap<u64, BTreeSet<Claim>>,
}

/// A job that waits.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    request: Request,
    place: QueuePosition,
}

/// A job that computes.
#[derive(Clone, Copy, Debug)]
struct Running {
    user: u64,
    pes: u32,
    since: Nanos,
    /// Since when it waits for something else.
    paused: Option<Nanos>,
    /// How long it has waited so.
    away: Nanos,
    /// Seconds on one processor element for which its user has paid in advance.
    paid: f64,
    /// When it will probably have ended, if it does not pause.
    until: Nanos,
    reservation: Option<u64>,
}

impl Running {
    /// When it will probably have ended. What is late goes on for as long again.
    fn expected(&self, now: Nanos) -> Nanos {
        let pause = self.paused.map_or(0, |since| now.saturating_sub(since));
        let end = self.until.saturating_add(self.away).saturating_add(pause);
        end.max(now.saturating_add(now.saturating_sub(end)))
    }
}

/// Seconds that a job is charged for in advance where nothing is known of it.
const UNKNOWN_S: f64 = 1e-3;

/// When a job that starts now will probably have ended.
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
            ),
            claims: BTreeMap::new(),
            settings,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            paused: 0,
            used: 0,
            arrivals: 0,
            starts: 0,
        }
    }

    /// A job comes. Where nobody waits and there is room it starts at once, else it waits for
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
        let waiting = Waiting { request, place };
        self.waiting.insert(request.id, waiting);
        let Some(reservation) = request.reservation else {
            self.users
                .enter(request.user, request.id, place, now, self.starts);
            return None;
        };
        let claims = self.claims.entry(reservation).or_default();
        claims.insert(Claim::of(&waiting));
        let is_next = self.first_claim(now) == Some(request.id);
        is_next.then(|| self.next(now)).flatten()
    }

    /// A job has ended, or will not be wanted: takes it out, whether it waits or computes. Its
    /// processor elements are free again. Unknown jobs are ignored.
    pub fn remove(&mut self, id: u64, now: Nanos) {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.leave(&waiting, now);
        } else if self.running.contains_key(&id) {
            self.resume(id, now);
            let Some(running) = self.running.remove(&id) else {
                return;
            };
            self.used -= running.pes;
            let computed = now
                .saturating_sub(running.since)
                .saturating_sub(running.away);
            let seconds = computed as f64 * 1e-9;
            let used = seconds * f64::from(running.pes);
            let paid = (running.paid, running.since);
            self.users.settle(running.user, used, paid, now);
        }
    }

    /// A running job waits for something else: others may have its processor elements.
    pub fn pause(&mut self, id: u64, now: Nanos) {
        if let Some(running) = self.running.get_mut(&id)
            && running.paused.is_none()
        {
            running.paused = Some(now);
            self.paused += 1;
            self.used -= running.pes;
        }
    }

    /// It goes on, with as many processor elements as before, whether they are free or not. Until
    /// enough others have ended, more are then in use than there are.
    pub fn resume(&mut self, id: u64, now: Nanos) {
        if let Some(running) = self.running.get_mut(&id)
            && let Some(paused) = running.paused.take()
        {
            self.paused -= 1;
            running.away += now.saturating_sub(paused);
            self.used += running.pes;
        }
    }

    /// The next job to start, if one can start now.
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

    /// A job waits no longer.
    fn leave(&mut self, waiting: &Waiting, now: Nanos) {
        let Waiting { request, place } = waiting;
        let Some(reservation) = request.reservation else {
            return self.users.leave(request.user, place, now, self.starts);
        };
        if let Some(claims) = self.claims.get_mut(&reservation) {
            claims.remove(&Claim::of(waiting));
            if claims.is_empty() {
                self.claims.remove(&reservation);
            }
        }
    }

    /// The job whose turn it is, whether there is room for it or not.
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
            ends <= limit && !self.is_held_back(id, now)
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
        let is_booked = request.reservation.is_some();
        fits && (is_booked || self.computing() < self.settings.most_running)
    }

    fn start(&mut self, request: &Request, now: Nanos) -> Start {
        let request = &self.within_booking(request);
        let pes = match self.settings.policy {
            Policy::AtOnce => self.settings.pes,
            _ => self.part(request, now),
        };
        self.starts += 1;
        self.used += pes;
        let paid = request.seconds.unwrap_or(UNKNOWN_S).max(0.0) * f64::from(pes);
        self.users.charge(request.user, paid, now);
        let running = Running {
            user: request.user,
            pes,
            since: now,
            paused: None,
            away: 0,
            paid,
            until: predicted_end(request.seconds, now),
            reservation: request.reservation,
        };
        self.running.insert(request.id, running);
        Start {
            id: request.id,
            pes,
        }
    }

    /// Processor elements for a job: an equal part of the free ones among those that wait for them.
    fn part(&self, request: &Request, now: Nanos) -> u32 {
        let free = self.room(request, now);
        let (others, room) = match request.reservation {
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

    /// Processor elements that no job has.
    pub fn free(&self) -> u32 {
        self.settings.pes.saturating_sub(self.used)
    }

    /// Processor elements that jobs have; with [`Policy::AtOnce`] more than there are.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether nothing waits.
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

    /// How the users stand who have jobs, or have had some of late.
    pub fn users(&self, now: Nanos) -> impl Iterator<Item = UserShare> {
        self.users.standings(now)
    }
}

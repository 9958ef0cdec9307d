//! A machine whose processor elements are booked, in virtual time. It plays a random load against
//! the queue. It checks that no more processor elements are used or booked than there are, and that
//! the first job of a booking waits only for a good reason.

use farcall_random::SplitMix64;
use farcall_schedule::Policy;
use farcall_schedule::queue::{Nanos, Patience, Queue, Request, Settings, Start};
use farcall_schedule::reservation::{Booking, Refusal};
use std::collections::{BTreeMap, BTreeSet};

pub const SECOND: Nanos = 1_000_000_000;

/// How well the predictions of the jobs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No job takes longer than predicted.
    Right,
    /// Some jobs take longer, and some have no prediction.
    Wrong,
    /// The same, and some jobs pause.
    Paused,
}

#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub seed: u64,
    pub pes: u32,
    pub policy: Policy,
    pub most_running: usize,
    pub kind: Kind,
}

impl Load {
    pub fn settings(&self) -> Settings {
        Settings {
            policy: self.policy,
            most_running: self.most_running,
            patience: Patience {
                time: 20 * SECOND,
                passes: 50,
            },
            ..Settings::new(self.pes)
        }
    }
}

/// The events in the order of their times. At the same time, jobs end before others arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Ends(u64),
    Pauses(u64),
    GoesOn(u64),
    Releases(u64),
    Comes(u64),
    Books,
    Begins(u64),
    IsOver,
}

/// A job, as its user knows it.
#[derive(Clone, Copy)]
struct Job {
    request: Request,
    /// How long it takes.
    length: Nanos,
}

/// A job that was started.
#[derive(Clone, Copy)]
struct Running {
    pes: u32,
    until: Nanos,
    predicted: Nanos,
    has_paused: bool,
    is_paused: bool,
}

pub struct Machine {
    queue: Queue,
    random: SplitMix64,
    load: Load,
    events: BTreeSet<(Nanos, Happens)>,
    jobs: BTreeMap<u64, Job>,
    waiting: BTreeSet<u64>,
    running: BTreeMap<u64, Running>,
    bookings: BTreeMap<u64, Booking>,
    /// Paused jobs have resumed, so more elements may be in use than the machine has.
    crowded: bool,
    ids: u64,
    /// The jobs that started when their booking began, and those that did not.
    pub in_time: usize,
    pub late: usize,
}

impl Machine {
    pub fn new(load: Load) -> Machine {
        let mut random = SplitMix64::new(load.seed);
        let mut events = BTreeSet::new();
        for id in 0..150 {
            events.insert((random.below(150 * SECOND), Happens::Comes(id)));
        }
        for _ in 0..30 {
            events.insert((random.below(150 * SECOND), Happens::Books));
        }
        Machine {
            queue: Queue::new(load.settings()),
            random,
            load,
            events,
            jobs: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: BTreeMap::new(),
            bookings: BTreeMap::new(),
            crowded: false,
            ids: 1000,
            in_time: 0,
            late: 0,
        }
    }

    pub fn run(mut self) -> Machine {
        while let Some((now, event)) = self.events.pop_first() {
            let start = self.happens(event, now);
            let mut starts: Vec<Start> = start.into_iter().collect();
            // Jobs that end at this moment end before any other job starts.
            if self.events.first().is_none_or(|(next, _)| *next > now) {
                while let Some(start) = self.queue.next(now) {
                    starts.push(start);
                }
            }
            starts.into_iter().for_each(|start| self.start(start, now));
            if self.events.first().is_none_or(|(next, _)| *next > now) {
                self.check_claims(now);
            }
        }
        let left = (&self.waiting, self.running.len());
        assert!(
            self.queue.is_empty() && left.1 == 0,
            "{left:?}, {:?}",
            self.load
        );
        self
    }

    fn happens(&mut self, event: Happens, now: Nanos) -> Option<Start> {
        match event {
            Happens::Ends(id) => self.end(id, now),
            Happens::Pauses(id) => {
                let running = self.running.get_mut(&id)?;
                (running.is_paused, running.has_paused) = (true, true);
                self.queue.pause(id, now);
            }
            Happens::GoesOn(id) => {
                self.running.get_mut(&id)?.is_paused = false;
                self.crowded |= self.used() > self.load.pes;
                self.queue.resume(id, now);
            }
            Happens::Releases(id) => {
                self.queue.release(id, now);
                self.bookings.remove(&id);
            }
            Happens::Comes(id) => return self.come(id, now),
            Happens::Books => self.book(now),
            Happens::Begins(_) | Happens::IsOver => {}
        }
        None
    }

    fn end(&mut self, id: u64, now: Nanos) {
        let running = self.running.remove(&id).expect("it runs");
        assert!(!running.is_paused && running.until <= now);
        self.queue.remove(id, now);
        self.crowded &= self.used() > self.load.pes;
    }

    fn come(&mut self, id: u64, now: Nanos) -> Option<Start> {
        let job = match self.jobs.get(&id) {
            Some(job) => *job,
            None => self.job(id, 4 * SECOND, None),
        };
        self.jobs.insert(id, job);
        self.waiting.insert(id);
        self.queue.push(job.request, now)
    }

    fn job(&mut self, id: u64, longest: Nanos, reservation: Option<u64>) -> Job {
        let most = 1 + self.random.below(self.load.pes.into()) as u32;
        let fewest = match self.random.below(2) {
            0 => most,
            _ => 1 + self.random.below(most.into()) as u32,
        };
        let predicted = 1 + self.random.below(longest);
        let is_right = self.load.kind == Kind::Right || self.random.below(3) > 0;
        let is_known = is_right || self.random.below(2) > 0;
        let longer = match is_right {
            true => 1,
            false => 1 + self.random.below(4),
        };
        let request = Request {
            id,
            user: id % 3,
            fewest,
            most,
            gpus: 0,
            seconds: is_known.then_some(predicted as f64 * 1e-9),
            priority: self.random.below(3) as i32 - 1,
            reservation,
        };
        Job {
            request,
            length: predicted * longer,
        }
    }

    /// Books processor elements, at the earliest time if they are not free. Some jobs arrive that
    /// use the booking, before it begins or while it lasts.
    fn book(&mut self, now: Nanos) {
        let wanted = Booking {
            pes: 1 + self.random.below(self.load.pes.into()) as u32,
            from: now + self.random.below(15 * SECOND),
            until: 0,
            ..Booking::default()
        };
        let length = SECOND + self.random.below(8 * SECOND);
        let until = wanted.from + length;
        let mut booking = Booking { until, ..wanted };
        let id = self.queue.reserve(booking, now).unwrap_or_else(|refusal| {
            let Refusal::NotBefore(earliest) = refusal else {
                panic!("{refusal:?}");
            };
            assert!(earliest > booking.from);
            booking = booking.beginning(earliest);
            self.queue.reserve(booking, now).expect("it was told so")
        });
        self.bookings.insert(id, booking);
        self.check_calendar();
        self.events.insert((booking.from, Happens::Begins(id)));
        self.events.insert((booking.until, Happens::IsOver));
        if self.random.below(4) == 0 {
            let at = now + self.random.below(booking.until - now);
            self.events.insert((at, Happens::Releases(id)));
        }
        for _ in 0..1 + self.random.below(3) {
            self.ids += 1;
            // Some of these jobs run beyond the end of their booking.
            let longest = length + length / 4;
            let job = self.job(self.ids, longest, Some(id));
            self.jobs.insert(self.ids, job);
            let at = now + self.random.below(booking.until - now);
            self.events.insert((at, Happens::Comes(self.ids)));
        }
    }

    fn check_calendar(&self) {
        for one in self.bookings.values() {
            let then = self
                .bookings
                .values()
                .filter(|other| other.covers(one.from));
            let booked: u32 = then.map(|other| other.pes).sum();
            assert!(booked <= self.load.pes, "{booked} are booked");
        }
    }

    fn used(&self) -> u32 {
        let running = self.running.values().filter(|one| !one.is_paused);
        running.map(|one| one.pes).sum()
    }

    fn used_of(&self, booking: u64) -> u32 {
        let running = self.running.iter().filter(|(_, one)| !one.is_paused);
        let inside = running.filter(|(id, _)| self.jobs[id].request.reservation == Some(booking));
        inside.map(|(_, one)| one.pes).sum()
    }

    fn start(&mut self, Start { id, pes }: Start, now: Nanos) {
        let Job { request, length } = self.jobs[&id];
        assert!(self.waiting.remove(&id), "started twice");
        let predicted = request
            .seconds
            .map_or(0, |seconds| (seconds * 1e9) as Nanos);
        let mut running = Running {
            pes,
            until: now + length,
            predicted: now + predicted,
            has_paused: false,
            is_paused: false,
        };
        if self.load.kind == Kind::Paused && self.random.below(4) == 0 {
            let at = now + self.random.below(length);
            let pause = 1 + self.random.below(3 * SECOND);
            self.events.insert((at, Happens::Pauses(id)));
            self.events.insert((at + pause, Happens::GoesOn(id)));
            running.until += pause;
        }
        self.events.insert((running.until, Happens::Ends(id)));
        self.running.insert(id, running);
        assert!(self.used() <= self.load.pes, "{} at {now}", self.used());
        let booking = request.reservation.and_then(|id| self.bookings.get(&id));
        if let Some(booking) = booking.filter(|booking| booking.until > now) {
            assert!(booking.covers(now), "before its booking");
            let used = self.used_of(request.reservation.expect("it has one"));
            assert!(used <= booking.pes, "{used} of {}", booking.pes);
        } else {
            assert!(pes >= request.fewest && pes <= request.most);
            let unbooked = self.running.len() <= self.load.most_running;
            let computing = self.running.values().filter(|one| !one.is_paused).count();
            assert!(unbooked || computing <= self.load.most_running);
        }
    }

    /// The first job of each booking computes, or has a reason to wait.
    fn check_claims(&mut self, now: Nanos) {
        let active = self.bookings.iter().filter(|(_, one)| one.covers(now));
        let active: Vec<(u64, Booking)> = active.map(|(id, one)| (*id, *one)).collect();
        for (id, booking) in active {
            let claims = self.waiting.iter().map(|job| self.jobs[job].request);
            let claims = claims.filter(|one| one.reservation == Some(id));
            // A job that runs for longer can delay another booking.
            let short = claims.clone().all(|one| {
                let seconds = one.seconds.unwrap_or(1e-3);
                now + (seconds * 1e9) as Nanos <= booking.until
            });
            let widest = claims.map(|one| one.fewest.min(booking.pes)).max();
            let Some(widest) = widest.filter(|_| short) else {
                self.in_time += usize::from(booking.from == now && self.used_of(id) > 0);
                continue;
            };
            if self.used_of(id) + widest > booking.pes {
                continue;
            }
            self.late += 1;
            let running = self.running.values();
            let late = running.filter(|one| one.has_paused || one.predicted <= now);
            let late: u32 = late.map(|one| one.pes).sum();
            let free = self.load.pes.saturating_sub(self.used());
            assert!(
                free < widest && late > 0,
                "{free} are free at {now}: {:?}",
                self.load
            );
        }
    }
}

//! Queues with booked processor elements in virtual time, under random loads with seeds.

use farcall_schedule::Policy;
use farcall_schedule::queue::{Nanos, Queue, Request, Settings, Start};
use farcall_schedule::reservation::{Booking, Refusal};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 60;
const SECOND: Nanos = 1_000_000_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }
}

/// What happens, the earliest first; at the same time ends go before what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Ends(u64),
    Comes(u64),
    Books,
    Changes,
}

struct Load {
    pes: u32,
    policy: Policy,
    /// How many times longer jobs take than predicted, at most.
    worst: u64,
    /// Jobs of which nothing is predicted.
    unknown: bool,
}

/// A machine with its queue. Jobs of bookings come before these begin.
struct Machine {
    queue: Queue,
    random: Random,
    load: Load,
    events: BTreeSet<(Nanos, Happens)>,
    lengths: BTreeMap<u64, (Request, Nanos)>,
    held: BTreeMap<u64, u32>,
    /// When the booking of a job begins.
    due: BTreeMap<u64, Nanos>,
    started: BTreeMap<u64, Nanos>,
    refused: usize,
}

impl Machine {
    fn new(load: Load, seed: u64) -> Machine {
        let settings = Settings {
            policy: load.policy,
            half_life_s: None,
            ..Settings::new(load.pes)
        };
        let mut random = Random(seed);
        let mut events = BTreeSet::new();
        for id in 0..300 {
            events.insert((random.below(300 * SECOND), Happens::Comes(id)));
        }
        for _ in 0..40 {
            events.insert((random.below(300 * SECOND), Happens::Books));
        }
        Machine {
            queue: Queue::new(settings),
            random,
            load,
            events,
            lengths: BTreeMap::new(),
            held: BTreeMap::new(),
            due: BTreeMap::new(),
            started: BTreeMap::new(),
            refused: 0,
        }
    }

    fn request(&mut self, id: u64, pes: u32, nanos: Nanos, reservation: Option<u64>) -> Request {
        let known = !self.load.unknown || self.random.below(3) > 0;
        let request = Request {
            id,
            user: id % 3,
            fewest: pes,
            most: pes,
            seconds: known.then_some(nanos as f64 * 1e-9),
            priority: 0,
            reservation,
        };
        let longer = 1 + self.random.below(self.load.worst);
        self.lengths.insert(id, (request, nanos * longer));
        request
    }

    /// Books processor elements, where it is refused for the earliest time; then a job comes for
    /// all of them.
    fn book(&mut self, now: Nanos) -> Option<Start> {
        let pes = 1 + self.random.below(self.load.pes.into()) as u32;
        let length = SECOND + self.random.below(10 * SECOND);
        let from = now + self.random.below(20 * SECOND);
        let at = |from| Booking {
            pes,
            from,
            until: from + length,
            ..Booking::default()
        };
        let mut booking = at(from);
        let id = match self.queue.reserve(booking, now) {
            Ok(id) => id,
            Err(Refusal::NotBefore(earliest)) => {
                self.refused += 1;
                assert!(earliest > from);
                booking = at(earliest);
                self.queue.reserve(booking, now).expect("it was told so")
            }
            Err(Refusal::TooMany(_) | Refusal::TooFast(_)) => panic!("there are so many"),
        };
        self.check_calendar();
        for time in [booking.from, booking.until] {
            self.events.insert((time, Happens::Changes));
        }
        assert!(self.queue.next_change(now).is_some());
        let job = 1000 + id;
        let request = self.request(job, pes, length, Some(id));
        self.due.insert(job, booking.from);
        self.queue.push(request, now)
    }

    fn check_calendar(&self) {
        let bookings: Vec<Booking> = self.queue.bookings().map(|(_, booking)| *booking).collect();
        for one in &bookings {
            let then = bookings.iter().filter(|other| other.covers(one.from));
            let booked: u32 = then.map(|other| other.pes).sum();
            assert!(booked <= self.load.pes, "{booked} are booked");
        }
    }

    fn run(mut self) -> Machine {
        while let Some((now, event)) = self.events.pop_first() {
            let mut start = match event {
                Happens::Ends(id) => {
                    self.held.remove(&id).expect("it runs");
                    self.queue.remove(id, now);
                    None
                }
                Happens::Comes(id) => {
                    let pes = 1 + self.random.below(self.load.pes.into()) as u32;
                    let nanos = 1 + self.random.below(4 * SECOND / u64::from(pes));
                    let request = self.request(id, pes, nanos, None);
                    self.queue.push(request, now)
                }
                Happens::Books => self.book(now),
                Happens::Changes => None,
            };
            // What ends in this moment ends before anything starts in it.
            let is_last = self.events.first().is_none_or(|(next, _)| *next > now);
            loop {
                if start.is_none() && is_last {
                    start = self.queue.next(now);
                }
                let Some(decision) = start.take() else { break };
                self.start(decision, now);
            }
        }
        assert!(self.queue.is_empty() && self.held.is_empty());
        self
    }

    fn start(&mut self, Start { id, pes }: Start, now: Nanos) {
        assert!(self.held.insert(id, pes).is_none(), "started twice");
        let held: u32 = self.held.values().sum();
        assert!(held <= self.load.pes, "{held} processor elements at {now}");
        let (request, nanos) = self.lengths[&id];
        assert_eq!(pes, request.fewest.min(self.load.pes));
        self.events.insert((now + nanos, Happens::Ends(id)));
        self.started.insert(id, now);
    }
}

fn load(policy: Policy, seed: u64) -> Load {
    Load {
        pes: 1 + (seed % 9) as u32,
        policy,
        worst: 1,
        unknown: false,
    }
}

#[test]
fn a_job_starts_at_its_booking_when_predictions_are_right() {
    let mut refused = 0;
    for seed in 0..SEEDS {
        for (name, policy) in Policy::NAMES.into_iter().skip(1) {
            let done = Machine::new(load(policy, seed), seed).run();
            refused += done.refused;
            for (job, from) in &done.due {
                let started = done.started[job];
                assert_eq!(started, *from, "{name}, seed {seed}: job {job}");
            }
            assert_eq!(done.started.len(), 300 + done.due.len());
        }
    }
    assert!(refused > 0, "no booking was in the way of another");
}

#[test]
fn every_job_ends_and_has_its_own_elements_when_predictions_are_wrong() {
    for seed in 0..SEEDS {
        for (_, policy) in Policy::NAMES.into_iter().skip(1) {
            let wrong = Load {
                worst: 4,
                unknown: true,
                ..load(policy, seed)
            };
            // The run panics where two jobs have one processor element.
            let done = Machine::new(wrong, seed).run();
            assert_eq!(done.started.len(), 300 + done.due.len());
        }
    }
}

fn request(id: u64, pes: u32, seconds: f64, reservation: Option<u64>) -> Request {
    Request {
        id,
        user: 1,
        fewest: pes,
        most: pes,
        seconds: Some(seconds),
        priority: 0,
        reservation,
    }
}

#[test]
fn short_jobs_compute_before_a_booking_and_long_ones_wait() {
    let mut queue = Queue::new(settings(Policy::Fpfs, 2));
    let booking = Booking {
        pes: 2,
        from: 10 * SECOND,
        until: 20 * SECOND,
        ..Booking::default()
    };
    let id = queue.reserve(booking, 0).unwrap();
    assert_eq!(queue.push(request(1, 1, 15.0, None), 0), None);
    assert_eq!(queue.next(0), None);
    assert_eq!(queue.push(request(2, 1, 9.0, None), 0), None);
    assert_eq!(queue.next(0), Some(Start { id: 2, pes: 1 }));
    assert_eq!(queue.push(request(3, 2, 5.0, Some(id)), 0), None);
    assert_eq!(queue.next_change(0), Some(10 * SECOND));
    queue.remove(2, 9 * SECOND);
    assert_eq!(queue.next(9 * SECOND), None);
    assert_eq!(queue.next(10 * SECOND), Some(Start { id: 3, pes: 2 }));
    queue.remove(3, 12 * SECOND);
    assert_eq!(queue.next(12 * SECOND), None, "the booking is not over");
    assert!(queue.release(id, 12 * SECOND).is_some());
    assert_eq!(queue.next(12 * SECOND), Some(Start { id: 1, pes: 1 }));
}

#[test]
fn a_job_whose_booking_is_over_waits_as_any_other() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    assert!(queue.push(request(1, 2, 1.0, None), 0).is_some());
    let booking = Booking {
        pes: 1,
        from: SECOND,
        until: 2 * SECOND,
        ..Booking::default()
    };
    let id = queue.reserve(booking, 0).unwrap();
    // It wants more than is booked, and has that.
    assert_eq!(queue.push(request(2, 2, 1.0, Some(id)), 0), None);
    assert_eq!(queue.push(request(3, 1, 1.0, None), 0), None);
    assert_eq!(queue.next(SECOND), None, "the first takes longer");
    queue.remove(1, 3 * SECOND);
    assert_eq!(queue.next(3 * SECOND), Some(Start { id: 2, pes: 1 }));
    assert_eq!(queue.next(3 * SECOND), Some(Start { id: 3, pes: 1 }));
    assert_eq!(queue.next(3 * SECOND), None);
}

#[test]
fn nothing_is_booked_where_everything_starts_at_once() {
    let mut queue = Queue::new(settings(Policy::AtOnce, 2));
    let booking = Booking {
        pes: 1,
        from: 0,
        until: SECOND,
        ..Booking::default()
    };
    assert_eq!(queue.reserve(booking, 0), Err(Refusal::TooMany(0)));
}

fn settings(policy: Policy, pes: u32) -> Settings {
    Settings {
        policy,
        half_life_s: None,
        ..Settings::new(pes)
    }
}

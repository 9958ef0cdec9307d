//! Tests of queues with booked processor elements in virtual time, under random loads with fixed
//! seeds. If predictions are right, a job starts when its booking begins. If they are wrong, every
//! job still ends and has its own processor elements.

use farcall_random::SplitMix64;
use farcall_schedule::Policy;
use farcall_schedule::queue::{Nanos, Queue, Request, Settings, Start};
use farcall_schedule::reservation::{Booking, Refusal};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 60;
const SECOND: Nanos = 1_000_000_000;

/// The events in the order of their times. At the same time, jobs end before others arrive.
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
    /// The largest ratio of a job's time to its prediction.
    worst: u64,
    /// Whether some jobs have no prediction.
    unknown: bool,
}

/// A machine with its queue. The jobs of a booking arrive before the booking begins.
struct Machine {
    queue: Queue,
    random: SplitMix64,
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
        let mut random = SplitMix64::new(seed);
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
            gpus: 0,
            seconds: known.then_some(nanos as f64 * 1e-9),
            priority: 0,
            reservation,
        };
        let longer = 1 + self.random.below(self.load.worst);
        self.lengths.insert(id, (request, nanos * longer));
        request
    }

    /// Books processor elements, if necessary at the earliest time that a refusal names. Then a job
    /// arrives that uses all of them.
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
            // Jobs that end at this moment end before any other job starts.
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
            // The run panics if two jobs have the same processor element.
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
        gpus: 0,
        seconds: Some(seconds),
        priority: 0,
        reservation,
    }
}

/// Processor elements from one second to another.
fn booking(pes: u32, from: u64, until: u64) -> Booking {
    Booking {
        pes,
        from: from * SECOND,
        until: until * SECOND,
        ..Booking::default()
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
fn a_job_whose_booking_has_ended_waits_like_all_others() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    assert!(queue.push(request(1, 2, 1.0, None), 0).is_some());
    let booking = Booking {
        pes: 1,
        from: SECOND,
        until: 2 * SECOND,
        ..Booking::default()
    };
    let id = queue.reserve(booking, 0).unwrap();
    // The job wants more than is booked, and gets it.
    assert_eq!(queue.push(request(2, 2, 1.0, Some(id)), 0), None);
    assert_eq!(queue.push(request(3, 1, 1.0, None), 0), None);
    assert_eq!(queue.next(SECOND), None, "the first takes longer");
    queue.remove(1, 3 * SECOND);
    // Within a booking, a job gets at most what is booked. Now the booking is over.
    assert_eq!(queue.next(3 * SECOND), Some(Start { id: 2, pes: 2 }));
    assert_eq!(queue.next(3 * SECOND), None);
    queue.remove(2, 4 * SECOND);
    assert_eq!(queue.next(4 * SECOND), Some(Start { id: 3, pes: 1 }));
}

#[test]
fn short_jobs_start_before_a_job_that_a_booking_holds_back() {
    for policy in [Policy::Fcfs, Policy::Sjf] {
        let mut queue = Queue::new(settings(policy, 2));
        queue.reserve(booking(2, 10, 20), 0).unwrap();
        for (id, seconds) in [(1, 15.0), (2, 9.0), (3, 12.0), (4, 10.0)] {
            queue.push(request(id, 1, seconds, None), 0);
        }
        let mut starts: Vec<u64> = std::iter::from_fn(|| queue.next(0)).map(|s| s.id).collect();
        // If the first job is not held back, `push` has started it already.
        starts.extend(queue.running().map(|start| start.id));
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts, [2, 4], "{policy:?}");
        for id in starts {
            queue.remove(id, 10 * SECOND);
        }
        assert_eq!(queue.next(19 * SECOND), None);
        assert!(queue.next(20 * SECOND).is_some());
    }
}

#[test]
fn jobs_of_a_booking_go_in_order_and_share_it_among_themselves() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 4));
    let id = queue.reserve(booking(3, 0, 100), 0).unwrap();
    let moldable = |number| Request {
        fewest: 1,
        ..request(number, 4, 1.0, Some(id))
    };
    // Jobs that wait for other processor elements get none of the booked ones.
    for number in 1..9 {
        queue.push(request(number, 4, 1.0, None), 0);
    }
    assert_eq!(queue.push(moldable(10), 0), Some(Start { id: 10, pes: 3 }));
    assert_eq!(queue.push(request(11, 3, 1.0, Some(id)), 0), None);
    assert_eq!(queue.push(request(12, 1, 1.0, Some(id)), 0), None);
    let urgent = Request {
        priority: 1,
        ..request(13, 2, 1.0, Some(id))
    };
    assert_eq!(queue.push(urgent, 0), None);
    queue.remove(10, SECOND);
    assert_eq!(queue.next(SECOND), Some(Start { id: 13, pes: 2 }));
    assert_eq!(queue.next(SECOND), None, "the next wants all three");
    queue.remove(13, 2 * SECOND);
    assert_eq!(queue.next(2 * SECOND), Some(Start { id: 11, pes: 3 }));
}

#[test]
fn a_job_that_would_outlast_its_booking_does_not_delay_the_next_booking() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    let first = queue.reserve(booking(2, 0, 10), 0).unwrap();
    let second = queue.reserve(booking(1, 10, 20), 0).unwrap();
    assert_eq!(queue.push(request(1, 2, 11.0, Some(first)), 0), None);
    // It fits beside the second booking.
    let beside = queue.push(request(2, 1, 12.0, Some(first)), 0);
    assert_eq!(beside, Some(Start { id: 2, pes: 1 }));
    let refused = queue.reserve(booking(1, 10, 15), 0);
    assert_eq!(refused, Err(Refusal::NotBefore(12 * SECOND)));
    queue.push(request(3, 1, 5.0, Some(second)), 0);
    assert_eq!(queue.next(10 * SECOND), Some(Start { id: 3, pes: 1 }));
}

#[test]
fn a_late_job_is_expected_to_run_for_as_long_again() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    let unknown = Request {
        seconds: None,
        ..request(1, 2, 0.0, None)
    };
    assert!(queue.push(unknown, 0).is_some());
    let refused = queue.reserve(booking(1, 30, 31), 30 * SECOND);
    let Err(Refusal::NotBefore(earliest)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        (59 * SECOND..=60 * SECOND).contains(&earliest),
        "{earliest}"
    );
    queue.pause(1, 30 * SECOND);
    assert!(queue.reserve(booking(1, 40, 41), 40 * SECOND).is_err());
}

#[test]
fn bookings_are_numbered_from_where_the_settings_say() {
    let mut queue = Queue::new(Settings {
        first_booking: 482_613,
        ..settings(Policy::Fcfs, 2)
    });
    assert_eq!(queue.reserve(booking(1, 0, 10), 0), Ok(482_613));
    assert_eq!(queue.reserve(booking(1, 0, 10), 0), Ok(482_614));
}

#[test]
fn the_policy_at_once_refuses_bookings() {
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

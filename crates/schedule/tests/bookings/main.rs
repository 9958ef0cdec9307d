//! Tests of queues with bookings in virtual time, under random loads with seeds. Jobs can do with
//! fewer processor elements, pause, take longer than predicted, or are not predicted at all.
//! Bookings can have several jobs and can be released before their time.

mod machine;

use farcall_random::SplitMix64;
use farcall_schedule::Policy;
use farcall_schedule::placement::{Backlog, BusyElements};
use farcall_schedule::queue::{Nanos, Patience, Queue, Request, Settings, Start};
use farcall_schedule::reservation::Booking;
use machine::{Kind, Load, Machine, SECOND};
use std::collections::BTreeMap;

const SEEDS: u64 = 40;

fn loads(kind: Kind) -> impl Iterator<Item = Load> {
    let policies = Policy::NAMES.into_iter().skip(1);
    policies.flat_map(move |(_, policy)| {
        (0..SEEDS).map(move |seed| Load {
            seed,
            pes: 2 + (seed % 7) as u32,
            policy,
            most_running: if seed % 3 == 0 { 2 } else { usize::MAX },
            kind,
        })
    })
}

#[test]
fn jobs_of_bookings_start_in_time_when_predictions_are_right() {
    let mut in_time = 0;
    for load in loads(Kind::Right) {
        let done = Machine::new(load).run();
        assert_eq!(done.late, 0, "{load:?}");
        in_time += done.in_time;
    }
    assert!(in_time > 1000, "{in_time}");
}

#[test]
fn jobs_of_bookings_wait_only_for_jobs_that_are_late() {
    let (mut in_time, mut late) = (0, 0);
    for load in loads(Kind::Wrong) {
        // The machine panics if a job waits for another reason.
        let done = Machine::new(load).run();
        in_time += done.in_time;
        late += done.late;
    }
    assert!(in_time > 1000 && late > 100, "{in_time} and {late}");
}

#[test]
fn only_resumed_jobs_can_use_more_elements_than_there_are() {
    for load in loads(Kind::Paused) {
        Machine::new(load).run();
    }
}

fn request(id: u64, pes: u32, seconds: f64) -> Request {
    Request {
        id,
        user: id % 3,
        fewest: pes,
        most: pes,
        gpus: 0,
        seconds: Some(seconds),
        priority: 0,
        reservation: None,
    }
}

/// A job for the whole machine fits only between bookings. New bookings are made and short jobs
/// arrive all the time. Returns when the wide job starts, in seconds.
fn wide_job_between_bookings(policy: Policy, seed: u64) -> f64 {
    let mut random = SplitMix64::new(seed);
    let mut queue = Queue::new(Settings {
        policy,
        patience: Patience {
            time: 20 * SECOND,
            passes: 10_000,
        },
        ..Settings::new(4)
    });
    let mut ends: Vec<(Nanos, u64)> = Vec::new();
    let mut lengths = BTreeMap::new();
    for tick in 0..6000u64 {
        let now = tick * SECOND / 10;
        if tick % 200 == 0 {
            // Each booking takes the last 10 s of a period of 20 s, so 10 s are free in between.
            let booking = Booking {
                pes: 2,
                from: now + 10 * SECOND,
                until: now + 20 * SECOND,
                ..Booking::default()
            };
            queue.reserve(booking, now).expect("one after the other");
        }
        let (over, left) = ends.into_iter().partition(|(end, _)| *end <= now);
        ends = left;
        for (_, id) in over {
            queue.remove(id, now);
        }
        let mut starts: Vec<Start> = Vec::new();
        if tick == 50 {
            let wide = Request {
                user: 7,
                ..request(u64::MAX, 4, 9.5)
            };
            starts.extend(queue.push(wide, now));
        }
        let (pes, seconds) = (
            1 + random.below(2) as u32,
            1.0 + random.below(80) as f64 / 10.0,
        );
        lengths.insert(tick, seconds);
        starts.extend(queue.push(request(tick, pes, seconds), now));
        starts.extend(std::iter::from_fn(|| queue.next(now)));
        for Start { id, .. } in starts {
            if id == u64::MAX {
                return now as f64 * 1e-9;
            }
            ends.push((now + (lengths[&id] * 1e9) as Nanos, id));
        }
    }
    f64::INFINITY
}

#[test]
fn a_job_that_fits_only_between_bookings_starts() {
    for seed in 0..SEEDS {
        for (name, policy) in Policy::NAMES.into_iter().skip(1) {
            let start = wide_job_between_bookings(policy, seed);
            // The job arrived at 5 s and is patient for 20 s. After that, one gap can go to another
            // user who has waited for longer.
            assert!(start < 61.0, "{name}, seed {seed}: after {start} s");
        }
    }
}

/// A machine with running jobs and bookings, and what a placement knows about it.
struct Busy {
    queue: Queue,
    backlog: Backlog,
    /// The times at which jobs end, followed by those at which bookings begin or end.
    ends: Vec<(Nanos, u64)>,
    changes: Vec<Nanos>,
}

fn busy_machine(random: &mut SplitMix64, pes: u32) -> Busy {
    let mut queue = Queue::new(Settings::new(pes));
    let mut backlog = Backlog::new(pes);
    let (mut ends, mut changes) = (Vec::new(), Vec::new());
    for id in 0..1 + random.below(4) {
        let (wide, nanos) = (
            1 + random.below(pes.into()) as u32,
            random.below(8 * SECOND),
        );
        let job = request(id, wide, nanos as f64 * 1e-9);
        if queue.push(job, 0).is_none() {
            queue.remove(id, 0);
            continue;
        }
        backlog.take(0.0, wide, nanos as f64 * 1e-9);
        ends.push((nanos, id));
        changes.push(nanos);
    }
    for _ in 0..random.below(6) {
        let from = random.below(20 * SECOND);
        let booking = Booking {
            pes: 1 + random.below(pes.into()) as u32,
            from,
            until: from + SECOND + random.below(8 * SECOND),
            ..Booking::default()
        };
        if queue.reserve(booking, 0).is_ok() {
            backlog.keep(BusyElements {
                pes: booking.pes,
                from_s: booking.from as f64 * 1e-9,
                until_s: booking.until as f64 * 1e-9,
            });
            changes.extend([booking.from, booking.until]);
        }
    }
    changes.sort_unstable();
    Busy {
        queue,
        backlog,
        ends,
        changes,
    }
}

#[test]
fn a_placement_knows_when_the_queue_will_start_a_job() {
    let mut later = 0;
    for seed in 0..2000 {
        let mut random = SplitMix64::new(seed);
        let pes = 1 + random.below(6) as u32;
        let mut busy = busy_machine(&mut random, pes);
        let wide = 1 + random.below(pes.into()) as u32;
        let seconds = 0.1 + random.below(90) as f64 / 10.0;
        let slot = busy.backlog.slot(0.0, (wide, wide), |_| seconds);
        let mut start = busy.queue.push(request(99, wide, seconds), 0).map(|_| 0);
        for now in busy.changes {
            for (_, id) in busy.ends.iter().filter(|(end, _)| *end == now) {
                busy.queue.remove(*id, now);
            }
            start = start.or_else(|| busy.queue.next(now).map(|_| now));
        }
        let start_s = start.expect("it starts") as f64 * 1e-9;
        assert!(
            (start_s - slot.start_s).abs() < 1e-6,
            "seed {seed}: {start_s}, {slot:?}"
        );
        later += usize::from(start_s > 8.0);
    }
    assert!(later > 200, "{later}");
}

/// The jobs that start, with their times. Bookings are released at once, or none are made.
fn starts(load: &Load, books: bool) -> Vec<(Nanos, Start)> {
    let mut random = SplitMix64::new(load.seed);
    let mut queue = Queue::new(load.settings());
    let mut started = Vec::new();
    let mut ends: Vec<(Nanos, u64)> = Vec::new();
    for tick in 0..400u64 {
        let now = tick * SECOND / 10;
        let (over, left) = ends.into_iter().partition(|(end, _)| *end <= now);
        ends = left;
        for (_, id) in over {
            queue.remove(id, now);
        }
        let most = 1 + random.below(load.pes.into()) as u32;
        let wanted = Request {
            fewest: 1 + random.below(most.into()) as u32,
            priority: random.below(3) as i32,
            ..request(tick, most, 0.1 + random.below(30) as f64 / 10.0)
        };
        let (length, ahead) = (1 + random.below(SECOND), random.below(SECOND));
        if books {
            let booking = Booking {
                pes: 1,
                from: now + ahead,
                until: now + ahead + length,
                ..Booking::default()
            };
            if let Ok(id) = queue.reserve(booking, now) {
                assert!(queue.release(id, now).is_some());
            }
        }
        let first = queue.push(wanted, now);
        let all = first
            .into_iter()
            .chain(std::iter::from_fn(|| queue.next(now)));
        let all: Vec<Start> = all.collect();
        for start in all {
            ends.push((now + 1 + random.below(3 * SECOND), start.id));
            started.push((now, start));
        }
    }
    started
}

#[test]
fn bookings_that_have_ended_leave_no_trace() {
    for load in loads(Kind::Right) {
        assert_eq!(starts(&load, true), starts(&load, false), "{load:?}");
    }
}

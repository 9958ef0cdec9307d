//! Tests of expected starts: if calls take the predicted time, they start then, under
//! every policy, and the reasons are those of the queue's decisions.

use super::simulation::Load;
use super::{SEEDS, loads, settings};
use farcall_random::SplitMix64;
use farcall_schedule::queue::{Expected, Patience, Queue, Reason, Request, Settings, Start};
use farcall_schedule::reservation::Booking;
use farcall_schedule::{Nanos, Policy};
use std::collections::BTreeMap;

const SECOND: Nanos = 1_000_000_000;

fn request(id: u64, user: u64, fewest: u32) -> Request {
    Request {
        id,
        user,
        fewest,
        most: fewest,
        seconds: Some(1.0),
        priority: 0,
        reservation: None,
    }
}

/// Fills a queue with random calls of several users that have all arrived.
fn filled(queue: &mut Queue, load: &Load) -> BTreeMap<u64, f64> {
    let mut random = SplitMix64::new(load.seed);
    let calls = (0..200).map(|id| {
        let seconds = 0.1 + random.unit();
        let pes = 1 + (random.unit() * f64::from(load.pes)) as u32;
        let request = Request {
            seconds: Some(seconds),
            most: if load.moldable { load.pes } else { pes },
            ..request(id, random.next_u64() % load.users, pes.min(load.pes))
        };
        queue.push(request, 0);
        (id, seconds)
    });
    calls.collect()
}

/// Runs the queue itself until all calls have started, if each takes the predicted time.
fn starts(mut queue: Queue, seconds: &BTreeMap<u64, f64>) -> Vec<(u64, Nanos, u32)> {
    let nanos = |id: u64| (seconds[&id] * 1e9) as Nanos;
    let mut ends: Vec<(Nanos, u64)> = queue.running().map(|one| (nanos(one.id), one.id)).collect();
    let (mut started, mut now) = (Vec::new(), 0);
    loop {
        while let Some(Start { id, pes }) = queue.next(now) {
            started.push((id, now, pes));
            ends.push((now + nanos(id), id));
        }
        ends.sort();
        if ends.is_empty() {
            return started;
        }
        now = ends[0].0;
        while ends.first().is_some_and(|(end, _)| *end <= now) {
            queue.remove(ends.remove(0).1, now);
        }
    }
}

#[test]
fn calls_start_when_expected() {
    for seed in 0..SEEDS {
        for (name, policy) in Policy::NAMES.into_iter().skip(1) {
            let load = loads(seed);
            let mut queue = Queue::new(Settings {
                half_life_s: (seed % 2 == 0).then_some(10.0),
                patience: Patience {
                    time: 5 * SECOND,
                    passes: 20,
                },
                ..settings(policy, load.pes)
            });
            let seconds = filled(&mut queue, &load);
            let expected = queue.expected_starts(0, usize::MAX, |id, _| seconds.get(&id).copied());
            let told = |one: &Expected| (one.id, one.start, one.pes);
            let told: Vec<_> = expected.iter().map(told).collect();
            assert_eq!(told, starts(queue.clone(), &seconds), "{name}, seed {seed}");
            let first = queue.expected_starts(0, 7, |id, _| seconds.get(&id).copied());
            assert_eq!(first[..], expected[..first.len()]);
            let places: Vec<u32> = expected.iter().map(|one| one.before).collect();
            assert!(places.into_iter().eq(0..expected.len() as u32));
        }
    }
}

#[test]
fn calls_before_a_call_are_counted_by_user() {
    let mut queue = Queue::new(Settings::new(1));
    for (id, user) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 2)] {
        queue.push(request(id, user, 1), 0);
    }
    // Call 1 runs. User 2 has used less.
    let expected = queue.expected_starts(0, usize::MAX, |_, _| Some(1.0));
    let told = |one: &Expected| (one.id, one.start / SECOND, one.own_before, one.before);
    let told: Vec<_> = expected.iter().map(told).collect();
    assert_eq!(
        told,
        [(3, 1, 0, 0), (2, 2, 0, 1), (5, 3, 1, 2), (4, 4, 1, 3)]
    );
}

#[test]
fn the_reason_is_that_of_the_decision() {
    let mut queue = Queue::new(Settings {
        most_running: 2,
        ..settings(Policy::Fcfs, 4)
    });
    queue.push(request(1, 0, 3), 0);
    queue.push(request(2, 0, 2), 0);
    queue.push(request(3, 0, 1), 0);
    assert_eq!(queue.reason(1, 0), None);
    let reason = Reason::Elements { wanted: 2, free: 1 };
    assert_eq!(queue.reason(2, 0), Some(reason));
    assert_eq!(queue.reason(3, 0), Some(Reason::Turn));
    queue.remove(2, 0);
    assert!(queue.next(0).is_some_and(|start| start.id == 3));
    queue.remove(1, 0);
    queue.push(request(4, 0, 1), 0);
    queue.push(request(5, 0, 1), 0);
    assert_eq!(queue.reason(5, 0), Some(Reason::Running(2)));
}

#[test]
fn bookings_are_reasons_too() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    let booking = Booking {
        pes: 2,
        from: 10 * SECOND,
        until: 20 * SECOND,
        ..Booking::default()
    };
    let own = queue.reserve(booking, 0).expect("it is free");
    let with = |id, reservation, seconds| Request {
        reservation,
        seconds: Some(seconds),
        ..request(id, 0, 2)
    };
    queue.push(with(1, Some(own), 1.0), 0);
    queue.push(with(2, None, 30.0), 0);
    let from = 10 * SECOND;
    assert_eq!(queue.reason(1, 0), Some(Reason::Booking { from }));
    assert_eq!(queue.reason(2, 0), Some(Reason::Booked));
    let expected = queue.expected_starts(0, usize::MAX, |id, _| {
        Some(if id == 1 { 1.0 } else { 30.0 })
    });
    let starts: Vec<_> = expected
        .iter()
        .map(|one| (one.id, one.start / SECOND))
        .collect();
    assert_eq!(starts, [(1, 10), (2, 20)]);
}

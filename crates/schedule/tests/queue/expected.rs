//! Tests of expected starts. If calls take the predicted time, they start when they are expected
//! to, under every policy. The reasons are those of the queue's decisions.

use super::simulation::Load;
use super::{SEEDS, loads, settings};
use farcall_random::SplitMix64;
use farcall_schedule::queue::{
    Expected, ExpectedStarts, Patience, Queue, Reason, Request, Settings, Start,
};
use farcall_schedule::reservation::Booking;
use farcall_schedule::{Nanos, Policy};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: Nanos = 1_000_000_000;

fn request(id: u64, user: u64, fewest: u32) -> Request {
    Request {
        id,
        user,
        fewest,
        most: fewest,
        gpus: 0,
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
            gpus: 0,
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

/// Calls of users whose shares differ.
fn arriving(id: u64, random: &mut SplitMix64) -> Request {
    Request {
        user: random.below(5).min(random.below(5)),
        seconds: Some(0.1 * (50f64.ln() * random.unit()).exp()),
        ..request(id, 0, 1 + random.below(2) as u32)
    }
}

/// Nanoseconds to the next call. The load changes between a half and five quarters of the capacity.
fn pause(id: u64, random: &mut SplitMix64) -> Nanos {
    let pressure = 0.88 + 0.38 * (id as f64 / 150.0).sin();
    let mean = 1.25 * 1.5 / 4.0 / pressure;
    (-mean * (1.0 - random.unit()).ln() * 1e9) as Nanos
}

/// How many intervals were told for calls that waited on a machine with four elements, and how many
/// of these calls started within theirs. Calls err in their times.
fn told(seed: u64, policy: Policy) -> (u32, u32) {
    const CALLS: u64 = 16_000;
    let mut random = SplitMix64::new(seed);
    let mut queue = Queue::new(Settings {
        half_life_s: Some(600.0),
        ..settings(policy, 4)
    });
    let mut starts = ExpectedStarts::default();
    let mut predicted: BTreeMap<u64, f64> = BTreeMap::new();
    let mut quoted: BTreeMap<u64, Vec<(Nanos, Nanos)>> = BTreeMap::new();
    let mut ends: BTreeSet<(Nanos, u64)> = BTreeSet::new();
    let (mut now, mut arrives, mut next_id) = (0, 0, 0);
    let (mut asked, mut inside) = (0, 0);
    while next_id < CALLS || !ends.is_empty() {
        let end = ends.first().map(|(end, _)| *end);
        let comes = (next_id < CALLS).then_some(arrives);
        let ahead = starts.next(&queue).filter(|at| *at > now);
        now = end
            .into_iter()
            .chain(comes)
            .chain(ahead)
            .min()
            .unwrap_or(now);
        while let Some((end, id)) = ends.first().copied()
            && end <= now
        {
            ends.pop_first();
            queue.remove(id, now);
        }
        let mut started = Vec::new();
        if comes.is_some_and(|at| at <= now) {
            let request = arriving(next_id, &mut random);
            predicted.insert(next_id, request.seconds.unwrap_or_default());
            started.extend(queue.push(request, now));
            arrives = now + pause(next_id, &mut random);
            next_id += 1;
        }
        started.extend(std::iter::from_fn(|| queue.next(now)));
        for Start { id, .. } in started {
            starts.started(id, now);
            for (low, high) in quoted.remove(&id).unwrap_or_default() {
                asked += 1;
                inside += u32::from((low..=high).contains(&now));
            }
            let noise = (0..6).map(|_| random.unit()).sum::<f64>() - 3.0;
            let seconds = predicted[&id] * (0.6 * noise).exp();
            ends.insert((now + (seconds * 1e9) as Nanos, id));
        }
        let seconds = |id: u64, _| predicted.get(&id).copied();
        starts.look_ahead(&queue, now, seconds);
        if next_id < 3000 || !random.chance(0.01) {
            continue;
        }
        for id in queue.waiting().filter(|id| id.is_multiple_of(3)) {
            if let Some((_, wait)) = starts.of(&queue, id, now, seconds) {
                let at = |seconds: f64| now + (seconds * 1e9) as Nanos;
                let all = quoted.entry(id).or_default();
                all.push((at(wait.low), at(wait.high)));
            }
        }
    }
    (asked, inside)
}

#[test]
fn four_of_five_starts_lie_within_their_intervals_while_the_load_changes() {
    for (seed, policy) in [(1, Policy::Fcfs), (2, Policy::Sjf), (3, Policy::Fpfs)] {
        let (asked, inside) = told(seed, policy);
        let share = f64::from(inside) / f64::from(asked);
        assert!(asked > 3_000, "{asked} of {policy:?}");
        assert!(
            (0.75..=0.85).contains(&share),
            "{share:.3} of {asked}, {policy:?}"
        );
    }
}

//! Tests of deadlines. A call that was promised to end in time does so, as often as was stated. A
//! call that cannot is refused with a time that can be promised.

use super::settings;
use farcall_random::SplitMix64;
use farcall_schedule::queue::{Promises, Queue, Request, Settings, Start};
use farcall_schedule::reservation::{Booking, Refusal};
use farcall_schedule::{Calibration, Nanos, Policy};
use std::collections::{BTreeMap, BTreeSet};

const SECOND: Nanos = 1_000_000_000;

fn request(id: u64, pes: u32, seconds: f64, reservation: Option<u64>) -> Request {
    Request {
        id,
        user: 0,
        fewest: pes,
        most: pes,
        gpus: 0,
        seconds: Some(seconds),
        priority: 0,
        reservation,
    }
}

fn started(queue: &mut Queue, now: Nanos) -> Vec<u64> {
    std::iter::from_fn(|| queue.next(now))
        .map(|start| start.id)
        .collect()
}

#[test]
fn a_promised_call_overtakes_only_when_it_must() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 1));
    queue.push(request(1, 1, 2.0, None), 0);
    let promised = queue.book_before(1, 2.0, 9 * SECOND, 0);
    let promised = promised.expect("7 s are left");
    assert_eq!(queue.push(request(2, 1, 2.0, None), 0), None);
    assert_eq!(queue.push(request(3, 1, 2.0, None), 0), None);
    assert_eq!(queue.push(request(4, 1, 2.0, Some(promised)), 0), None);
    queue.remove(1, 2 * SECOND);
    assert_eq!(started(&mut queue, 2 * SECOND), [2]);
    queue.remove(2, 4 * SECOND);
    assert_eq!(started(&mut queue, 4 * SECOND), [3], "it ends at 6 s");
    // A late call delays the others. The promised one goes first when its time has come.
    queue.push(request(5, 1, 2.0, None), 4 * SECOND);
    queue.remove(3, 7 * SECOND);
    assert_eq!(started(&mut queue, 7 * SECOND), [4]);
    assert_eq!(queue.bookings().count(), 1);
    queue.remove(4, 9 * SECOND);
    assert_eq!(queue.bookings().count(), 0, "the promise has ended");
    assert_eq!(started(&mut queue, 9 * SECOND), [5]);
}

#[test]
fn a_call_whose_turn_comes_early_starts_and_frees_its_booking() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 2));
    let promised = queue.book_before(2, 1.0, 100 * SECOND, 0);
    let promised = promised.expect("it is free");
    let start = queue.push(request(1, 2, 1.0, Some(promised)), 0);
    assert_eq!(start, Some(Start { id: 1, pes: 2 }));
    assert_eq!(queue.bookings().count(), 0);
    queue.remove(1, SECOND);
    // A call that is given up leaves no booking behind.
    queue.push(request(2, 2, 1.0, None), SECOND);
    let promised = queue.book_before(1, 1.0, 10 * SECOND, SECOND);
    let promised = promised.expect("it is free then");
    queue.push(request(3, 1, 1.0, Some(promised)), SECOND);
    queue.remove(3, SECOND);
    assert_eq!(queue.bookings().count(), 0);
}

#[test]
fn a_refusal_tells_what_can_be_promised() {
    let mut queue = Queue::new(settings(Policy::Fcfs, 1));
    assert_eq!(
        queue.book_before(1, 2.0, SECOND, 0),
        Err(Refusal::NotBefore(0)),
        "it takes 2 s"
    );
    queue.push(request(1, 1, 3.0, None), 0);
    let refused = queue.book_before(1, 2.0, 4 * SECOND, 0);
    assert_eq!(refused, Err(Refusal::NotBefore(3 * SECOND)));
    let fits = queue.book_before(1, 2.0, 5 * SECOND, 0);
    let fits = fits.expect("from 3 s on");
    assert_eq!(queue.booking(fits).map(|one| one.from), Some(3 * SECOND));
    // The elements are booked at the last moment, so the next call finds room before.
    let long = queue.reserve(
        Booking {
            pes: 1,
            from: 8 * SECOND,
            until: 20 * SECOND,
            ..Booking::default()
        },
        0,
    );
    long.expect("it is free");
    let early = queue
        .book_before(1, 2.0, 15 * SECOND, 0)
        .expect("5 s to 8 s");
    assert_eq!(queue.booking(early).map(|one| one.from), Some(5 * SECOND));
}

/// A load of mixed calls on a machine with four elements, that grows and shrinks. Some calls must
/// end in time. Times err, by a bias that wanders too.
struct Play {
    random: SplitMix64,
    queue: Queue,
    errors: Calibration,
    promises: Promises,
    /// The predicted seconds of each call, and its booking and deadline.
    known: BTreeMap<u64, (f64, Option<(u64, Nanos)>)>,
    promised: u32,
    kept: u32,
    refused: u32,
}

impl Play {
    fn new(seed: u64, policy: Policy) -> Play {
        Play {
            random: SplitMix64::new(seed),
            queue: Queue::new(Settings {
                half_life_s: Some(600.0),
                ..settings(policy, 4)
            }),
            errors: Calibration::default(),
            promises: Promises::default(),
            known: BTreeMap::new(),
            promised: 0,
            kept: 0,
            refused: 0,
        }
    }

    fn arrives(&mut self, id: u64, now: Nanos) -> Option<Start> {
        let random = &mut self.random;
        let predicted = 0.1 * (50f64.ln() * random.unit()).exp();
        let pes = 1 + random.below(2) as u32;
        let mut call = Request {
            user: random.below(5).min(random.below(5)),
            ..request(id, pes, predicted, None)
        };
        let mut deadline = None;
        if id >= 1000 && random.chance(0.3) {
            let long = self.errors.interval(predicted, 1.5, 1e-3).high;
            let wanted = now + (long * (1.0 + 5.0 * random.unit()) * 1e9) as Nanos;
            match (self.promises).make(&mut self.queue, (pes, long), wanted, now) {
                Ok(booking) => deadline = Some((booking, wanted)),
                Err(Refusal::NotBefore(end)) => {
                    assert!(end > wanted);
                    self.refused += 1;
                }
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
        call.reservation = deadline.map(|(booking, _)| booking);
        self.known.insert(id, (predicted, deadline));
        self.queue.push(call, now)
    }

    fn ended(&mut self, id: u64, since: Nanos, now: Nanos) {
        self.queue.remove(id, now);
        let (predicted, deadline) = self.known[&id];
        self.errors
            .observe(predicted, (now - since) as f64 * 1e-9, 1e-3);
        if let Some((booking, wanted)) = deadline {
            self.promises.ended(booking, now);
            self.promised += 1;
            self.kept += u32::from(now <= wanted);
        }
    }

    fn played(mut self) -> Play {
        const CALLS: u64 = 13_000;
        let mut ends: BTreeSet<(Nanos, u64, Nanos)> = BTreeSet::new();
        let (mut now, mut arrives, mut next_id) = (0, 0, 0);
        while next_id < CALLS || !ends.is_empty() {
            let end = ends.first().map(|(end, ..)| *end);
            let comes = (next_id < CALLS).then_some(arrives);
            let change = self.queue.next_change(now);
            let times = end.into_iter().chain(comes).chain(change);
            now = times.min().unwrap_or(now).max(now);
            while let Some((end, id, since)) = ends.first().copied()
                && end <= now
            {
                ends.pop_first();
                self.ended(id, since, now);
            }
            let mut started = Vec::new();
            if comes.is_some_and(|at| at <= now) {
                started.extend(self.arrives(next_id, now));
                let pressure = 0.88 + 0.38 * (next_id as f64 / 150.0).sin();
                let mean = 1.25 * 1.5 / 4.0 / pressure;
                arrives = now + (-mean * (1.0 - self.random.unit()).ln() * 1e9) as Nanos;
                next_id += 1;
            }
            started.extend(std::iter::from_fn(|| self.queue.next(now)));
            for Start { id, .. } in started {
                let noise = (0..6).map(|_| self.random.unit()).sum::<f64>() - 3.0;
                let bias = 0.3 * (now as f64 * 1e-9 / 700.0).sin();
                let seconds = self.known[&id].0 * (0.6 * noise + bias).exp();
                ends.insert((now + (seconds * 1e9) as Nanos, id, now));
            }
        }
        assert_eq!(
            (self.queue.bookings().count(), self.promises.open()),
            (0, 0)
        );
        self
    }
}

#[test]
fn deadlines_that_were_promised_hold() {
    for (seed, policy) in [(1, Policy::Fcfs), (2, Policy::Sjf), (3, Policy::Fpfs)] {
        let Play {
            promised,
            kept,
            refused,
            ..
        } = Play::new(seed, policy).played();
        let share = f64::from(kept) / f64::from(promised);
        assert!(promised > 1000 && refused > 100, "{promised}, {refused}");
        assert!(share >= 0.88, "{share:.3} of {promised}, {policy:?}");
    }
}

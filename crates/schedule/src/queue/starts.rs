//! Predicts when waiting calls will start, with intervals that hold: how far such predictions are
//! off is learned from the calls that start. It changes nothing in the order of calls. Its work is
//! bounded in proportion to the time that passes, however often somebody asks.

use super::expected::Expected;
use super::{Nanos, Queue};
use crate::{Calibration, Interval};
use std::collections::BTreeMap;

/// Most starts that are predicted at a time.
const MOST: usize = 10_000;
/// Least time between two predictions for each call that waits, if somebody asks.
const ASKED: Nanos = 50_000;
/// The same if nobody asks.
const UNASKED: Nanos = 1_000_000;
/// Least time between two predictions if nobody asks.
const PAUSE: Nanos = 1_000_000_000;
/// Predictions are judged by their horizon: each octave of seconds, from 2^-4 on, for itself.
const HORIZONS: usize = 20;
/// Judged predictions that are remembered at each horizon. The queue of a load that grows and
/// shrinks must fit in.
const JUDGED: usize = 1024;
const SHORTEST: i32 = -4;
/// Times below this many seconds count alike where predictions are judged.
const LEAST_S: f64 = 0.01;
/// The spread that is assumed before anything is known.
const FACTOR: f64 = 1.5;

/// The predicted starts of the calls in a queue.
///
/// How to drive it: [`started`](ExpectedStarts::started) when a call begins to compute, and
/// [`look_ahead`](ExpectedStarts::look_ahead) when [`next`](ExpectedStarts::next) says so, that it
/// learns even if nobody [asks](ExpectedStarts::of).
#[derive(Clone, Debug)]
pub struct ExpectedStarts {
    /// When they were predicted.
    at: Nanos,
    /// How often.
    rounds: u64,
    known: BTreeMap<u64, Expected>,
    /// Predictions that will be judged, by call.
    open: BTreeMap<u64, Vec<Open>>,
    /// How far predictions were off, by horizon.
    errors: [Calibration; HORIZONS],
}

/// Predictions of one call at one horizon that will be judged. One of them stands for all, drawn at
/// random. It counts as often as there are of them, because people ask at any time of a wait.
#[derive(Clone, Copy, Debug)]
struct Open {
    horizon: usize,
    count: u32,
    at: Nanos,
    start: Nanos,
    /// After this time, the start is late.
    late: Nanos,
}

impl Default for ExpectedStarts {
    fn default() -> ExpectedStarts {
        ExpectedStarts {
            at: 0,
            rounds: 0,
            known: BTreeMap::new(),
            open: BTreeMap::new(),
            errors: std::array::from_fn(|_| Calibration::of_last(JUDGED)),
        }
    }
}

impl ExpectedStarts {
    /// When to look ahead again though nobody asks; `None` if no call waits.
    pub fn next(&self, queue: &Queue) -> Option<Nanos> {
        let waiting = queue.waiting().len() as u64;
        let pause = waiting.saturating_mul(UNASKED).max(PAUSE);
        (waiting > 0).then(|| self.at.saturating_add(pause))
    }

    /// Judges the prediction for a call that starts.
    pub fn started(&mut self, call: u64, now: Nanos) {
        if self.open.is_empty() {
            return;
        }
        for open in self.open.remove(&call).unwrap_or_default() {
            let seconds = |until: Nanos| until.saturating_sub(open.at) as f64 * 1e-9;
            let wait = (seconds(open.start), seconds(now));
            self.errors[open.horizon].observe_all(wait, LEAST_S, open.count);
        }
    }

    /// Predicts the starts again, if the last time is long enough ago. `seconds` is as in
    /// [`Queue::expected_starts`].
    pub fn look_ahead(
        &mut self,
        queue: &Queue,
        now: Nanos,
        seconds: impl Fn(u64, u32) -> Option<f64>,
    ) {
        if self.next(queue).is_some_and(|at| at <= now) {
            self.predict(queue, now, seconds);
        }
    }

    /// Whether starts were ever predicted.
    pub fn has_predicted(&self) -> bool {
        self.rounds > 0
    }

    /// How many calls will start before this one by the last prediction; `None` if this was too far
    /// ahead.
    pub fn place(&self, call: u64) -> Option<u32> {
        self.known.get(&call).map(|expected| expected.before)
    }

    /// When a call that waits will probably start, in seconds from now; `None` if this is too far
    /// ahead, or if the call has just come and many wait.
    pub fn of(
        &mut self,
        queue: &Queue,
        call: u64,
        now: Nanos,
        seconds: impl Fn(u64, u32) -> Option<f64>,
    ) -> Option<(Expected, Interval)> {
        let pause = (queue.waiting().len() as u64).saturating_mul(ASKED);
        if now >= self.at.saturating_add(pause) {
            self.predict(queue, now, seconds);
        }
        self.last(call, now)
    }

    /// The same by the last prediction, which costs next to nothing.
    pub fn last(&self, call: u64, now: Nanos) -> Option<(Expected, Interval)> {
        let known = *self.known.get(&call)?;
        let passed = now.saturating_sub(self.at) as f64 * 1e-9;
        let wait = known.start.saturating_sub(self.at) as f64 * 1e-9;
        let interval = self.errors(wait).interval(wait, FACTOR, LEAST_S);
        let left = |seconds: f64| (seconds - passed).max(0.0);
        let interval = Interval {
            low: left(interval.low),
            likely: left(interval.likely),
            high: left(interval.high),
        };
        Some((known, interval))
    }

    fn predict(&mut self, queue: &Queue, now: Nanos, seconds: impl Fn(u64, u32) -> Option<f64>) {
        let starts = queue.expected_starts(now, MOST, seconds);
        self.at = now;
        self.rounds += 1;
        self.known.clear();
        self.open.retain(|call, _| queue.has(*call));
        self.judge_late();
        for start in starts {
            self.known.insert(start.id, start);
            self.note(&start);
        }
    }

    /// Judges predictions whose calls are late already. If it waited for their starts, intervals
    /// would be too narrow while the load grows. A late call is assumed to take as long again.
    fn judge_late(&mut self) {
        let now = self.at;
        for open in self.open.values_mut() {
            open.retain(|open| {
                let is_late = open.late < now;
                if is_late {
                    let seconds = |until: Nanos| until.saturating_sub(open.at) as f64 * 1e-9;
                    let wait = (seconds(open.start), 2.0 * seconds(now));
                    self.errors[open.horizon].observe_all(wait, LEAST_S, open.count);
                }
                !is_late
            });
        }
    }

    /// Notes a prediction that was made now, to be judged.
    fn note(&mut self, expected: &Expected) {
        let (at, start) = (self.at, expected.start);
        let wait = start.saturating_sub(at) as f64 * 1e-9;
        let horizon = horizon(wait);
        let stated = self.errors(wait).interval(wait, FACTOR, LEAST_S);
        let late = at.saturating_add((stated.high * 1e9) as Nanos);
        let open = self.open.entry(expected.id).or_default();
        match open.iter_mut().find(|open| open.horizon == horizon) {
            None => open.push(Open {
                horizon,
                count: 1,
                at,
                start,
                late,
            }),
            Some(known) => {
                known.count = known.count.saturating_add(1);
                if mixed(expected.id ^ self.rounds << 32).is_multiple_of(known.count.into()) {
                    (known.at, known.start, known.late) = (at, start, late);
                }
            }
        }
    }

    /// The errors of predictions at about this horizon.
    fn errors(&self, wait_s: f64) -> &Calibration {
        let wanted = horizon(wait_s);
        let known = (0..HORIZONS).filter(|horizon| self.errors[*horizon].is_known());
        let nearest = known.min_by_key(|horizon| horizon.abs_diff(wanted));
        &self.errors[nearest.unwrap_or(wanted)]
    }
}

fn horizon(seconds: f64) -> usize {
    let octave = seconds.max(1e-9).log2().floor() as i32 - SHORTEST;
    octave.clamp(0, HORIZONS as i32 - 1) as usize
}

/// Spreads the bits of a number (the last step of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 31
}

//! Which calls get a line of their own.
//!
//! Lines cost bytes, of which a record has a bounded number, and processor time. A [`Budget`] says
//! how many lines a second may take in the long run, how many can be saved up while there are few
//! calls, and how many a second may take at most. As long as the calls are within it, every call
//! has a line. Beyond it, one call of `stride` of each kind has a line, and the sampler counts the
//! others in a [`Tally`] for their kind. Every call is in exactly one of both, so that sums over a
//! record are exact.

use crate::spread::Spread;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::hash::Hash;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Longest time for which calls are counted together.
const LONGEST: f64 = 60.0;
/// Most calls of which one has a line.
const MOST_STRIDE: u64 = 1 << 24;
/// Rare calls of a kind that have lines before the stride holds for them too.
const FIRST_RARE: u64 = 10;
/// How much the stride grows when the lines of a second are used up.
const STEP: u64 = 4;

/// How many lines there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Lines a second in the long run.
    pub lasting: f64,
    /// Lines that can be saved up.
    pub saved: f64,
    /// Lines of single calls a second at most, about.
    pub peak: f64,
    /// Kinds of calls that are counted apart at a time.
    pub kinds: usize,
}

impl Budget {
    /// Bytes of one line in a file, about.
    const LINE: f64 = 64.0;
    /// Seconds that a record must hold.
    const DAY: f64 = 86_400.0;

    /// The lines with which a record of so many bytes holds a busy day.
    pub fn of_day(bytes: u64) -> Budget {
        let lasting = (bytes as f64 / Budget::LINE / Budget::DAY).max(0.01);
        Budget {
            lasting,
            saved: lasting * 3600.0,
            peak: 500.0,
            kinds: 256,
        }
    }
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// It has a line of its own, as this share of the calls of its kind.
    Alone {
        /// The share.
        share: f64,
    },
    /// It is counted together with others.
    Together,
}

/// What a call has cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Operations.
    pub operations: f64,
    /// Bytes of arrays, in each direction.
    pub bytes: [u64; 2],
    /// Bytes of arrays that did not travel.
    pub placed: u64,
    /// Nanoseconds from the last argument to the start.
    pub wait: u64,
    /// Nanoseconds in the library.
    pub exec: u64,
    /// Processor elements.
    pub pes: u32,
}

/// Calls of one kind that were counted together.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls of the kind.
    seen: u64,
    /// Those of them that have lines of their own.
    pub alone: u64,
    /// Those of them that are counted here.
    pub calls: u64,
    /// When the first of these ended, and the last.
    pub span: [u64; 2],
    /// Their operations.
    pub operations: f64,
    /// Their bytes, in each direction.
    pub bytes: [u64; 2],
    /// Their bytes that did not travel.
    pub placed: u64,
    /// Their seconds in the library, times processor elements.
    pub pe_s: f64,
    /// Waits and times in the library.
    pub times: Option<[Spread; 2]>,
}

impl Tally {
    fn add(&mut self, now: u64, measured: &Measured) {
        if self.calls == 0 {
            self.span[0] = now;
        }
        self.calls += 1;
        self.span[1] = now;
        // JSON has no infinite number: a reader would refuse the line, and all that follow it.
        self.operations = (self.operations + measured.operations).min(f64::MAX);
        for (sum, bytes) in self.bytes.iter_mut().zip(measured.bytes) {
            *sum = sum.saturating_add(bytes);
        }
        self.placed = self.placed.saturating_add(measured.placed);
        self.pe_s += measured.exec as f64 * 1e-9 * f64::from(measured.pes);
        let [waits, execs] = self.times.get_or_insert_default();
        waits.add(measured.wait);
        execs.add(measured.exec);
    }
}

/// Decides which calls get lines, and counts the others by their kind.
#[derive(Clone, Debug)]
pub struct Sampler<K> {
    budget: Budget,
    /// Lines that may still be written.
    left: f64,
    filled: u64,
    /// One call of so many has a line.
    stride: u64,
    /// When the present second began, with its calls and lines.
    second: u64,
    calls: u64,
    lines: f64,
    /// Counts by kind; `None` is for kinds beyond their number.
    tallies: HashMap<Option<K>, Tally, FixedState>,
    /// When the counting began, if anything was counted.
    since: Option<u64>,
}

impl<K: Eq + Hash> Sampler<K> {
    /// Nothing has been written yet, and all that can be saved up is there.
    pub fn new(budget: Budget) -> Sampler<K> {
        Sampler {
            budget,
            left: budget.saved,
            filled: 0,
            stride: 1,
            second: 0,
            calls: 0,
            lines: 0.0,
            tallies: HashMap::default(),
            since: None,
        }
    }

    /// Decides about a call that has ended now. The first `rare` ones of a kind, such as
    /// failures, have lines whatever the stride is.
    pub fn count(&mut self, now: u64, kind: K, rare: bool, measured: &Measured) -> Fate {
        self.begin_second(now);
        self.calls += 1;
        let kind = Some(kind);
        let is_known = self.tallies.len() < self.budget.kinds || self.tallies.contains_key(&kind);
        let tally = self.tallies.entry(kind.filter(|_| is_known)).or_default();
        let stride = match rare && tally.seen < FIRST_RARE {
            true => 1,
            false => self.stride,
        };
        let is_due = tally.seen.is_multiple_of(stride);
        tally.seen += 1;
        if !is_due || self.left < 1.0 {
            self.since.get_or_insert(now);
            tally.add(now, measured);
            return Fate::Together;
        }
        tally.alone += 1;
        self.left -= 1.0;
        self.lines += 1.0;
        // The share holds for this call. The next ones may have another.
        if self.lines >= self.target() {
            self.lines = 0.0;
            self.stride = (self.stride * STEP).min(MOST_STRIDE);
        }
        Fate::Alone {
            share: 1.0 / stride as f64,
        }
    }

    /// When to [take](Sampler::take) the counts, if there are any.
    pub fn deadline(&self) -> Option<u64> {
        // Half of the lines are for counts.
        let kinds = self.tallies.len() as f64;
        let interval = (kinds / (self.budget.lasting / 2.0)).clamp(1.0, LONGEST);
        let interval = (interval * SECOND as f64) as u64;
        self.since.map(|since| since.saturating_add(interval))
    }

    /// Takes the counts, and begins anew. The kind is `None` for calls of kinds beyond their
    /// number.
    pub fn take(&mut self) -> Vec<(Option<K>, Tally)> {
        self.since = None;
        let all = self.tallies.drain();
        let counted: Vec<_> = all.filter(|(_, tally)| tally.calls > 0).collect();
        // A debt is possible: it delays lines of single calls.
        self.left -= counted.len() as f64;
        counted
    }

    /// Adds the lines that have become available. Once a second, it sets the stride, and forgets
    /// the kinds of a time in which all calls had lines.
    fn begin_second(&mut self, now: u64) {
        let passed = now.saturating_sub(self.filled) as f64 / SECOND as f64;
        self.filled = self.filled.max(now);
        self.left = (self.left + passed * self.budget.lasting).min(self.budget.saved);
        let passed = now.saturating_sub(self.second);
        if passed < SECOND {
            return;
        }
        if self.since.is_none() {
            self.tallies.clear();
        }
        let rate = self.calls as f64 / (passed as f64 / SECOND as f64);
        let stride = (rate / self.target()).ceil() as u64;
        self.stride = stride.clamp(1, MOST_STRIDE);
        (self.second, self.calls, self.lines) = (now, 0, 0.0);
    }

    /// Lines of single calls in a second: many as long as many are saved up.
    fn target(&self) -> f64 {
        let lasting = self.budget.lasting / 2.0;
        let saved = (self.left / self.budget.saved.max(1.0)).clamp(0.0, 1.0);
        (lasting + (self.budget.peak - lasting).max(0.0) * saved).max(1.0)
    }
}

#[cfg(test)]
mod tests;

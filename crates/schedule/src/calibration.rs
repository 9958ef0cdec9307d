//! Intervals that hold: how far predictions were off, learned from what came.
//!
//! This is conformal prediction over a sliding window (Vovk and others, Algorithmic Learning in a
//! Random World, 2005). The errors of the last predictions, as ratios of the true time to the
//! predicted one, are kept. The interval of a new prediction reaches from a low to a high one of
//! them. It needs no assumption about the distribution of the errors. Because old errors leave the
//! window, it follows a load that changes. The memory is bounded.

/// Errors that are remembered unless the user says otherwise.
const WINDOW: usize = 128;
/// Fewest errors from which intervals are taken.
const LEAST: usize = 20;
/// The interval changes when one error of so many has changed.
const RENEWED: usize = 32;
/// An interval of this share reaches to so many standard deviations of a normal distribution.
const DEVIATIONS_OF_80: f64 = 1.2816;

/// A time with an interval, in seconds. `low <= likely <= high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// One time in ten is below.
    pub low: f64,
    /// As many are below as above.
    pub likely: f64,
    /// One time in ten is above.
    pub high: f64,
}

impl Interval {
    /// The sum of times that err together.
    #[must_use]
    pub fn plus(self, other: Interval) -> Interval {
        Interval {
            low: self.low + other.low,
            likely: self.likely + other.likely,
            high: self.high + other.high,
        }
    }
}

/// Learns how far predictions of one kind are off.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    window: usize,
    /// The logarithms of the last ratios of a true time to the predicted one, in a ring, and how
    /// many predictions each stands for.
    errors: Vec<(f32, u32)>,
    /// The same in order of size. Sorting them anew would cost more than the rest of a null call.
    sorted: Vec<(f32, u32)>,
    next: usize,
    /// The ratios at the ends and in the middle of an interval, if enough is known.
    ratios: Option<[f64; 3]>,
}

impl Default for Calibration {
    fn default() -> Calibration {
        Calibration::of_last(WINDOW)
    }
}

impl Calibration {
    /// Remembers this many errors. With more, intervals are steadier and follow changes later.
    pub fn of_last(window: usize) -> Calibration {
        Calibration {
            window: window.max(RENEWED),
            errors: Vec::new(),
            sorted: Vec::new(),
            next: 0,
            ratios: None,
        }
    }

    /// Records that a time was predicted, and what came, in seconds. Both have at least `least`
    /// seconds added, so that the errors of very short times do not count like those of long ones.
    /// Ignores impossible values.
    pub fn observe(&mut self, predicted: f64, seconds: f64, least: f64) {
        self.observe_all((predicted, seconds), least, 1);
    }

    /// Records what came of `count` predictions that were made together.
    pub fn observe_all(&mut self, (predicted, seconds): (f64, f64), least: f64, count: u32) {
        let error = ((seconds.max(0.0) + least) / (predicted.max(0.0) + least)).ln();
        if !error.is_finite() || count == 0 {
            return;
        }
        let entry = (error as f32, count);
        match self.errors.get_mut(self.next) {
            Some(oldest) => {
                let oldest = std::mem::replace(oldest, entry);
                if let Ok(place) = self.place(oldest) {
                    self.sorted.remove(place);
                }
            }
            None => self.errors.push(entry),
        }
        let (Ok(place) | Err(place)) = self.place(entry);
        self.sorted.insert(place, entry);
        self.next = (self.next + 1) % self.window;
        if self.errors.len() >= LEAST && self.next.is_multiple_of(self.window / RENEWED) {
            self.ratios = Some(self.quantiles([0.1, 0.5, 0.9]).map(f64::exp));
        }
    }

    /// Where an error is in the order, or belongs.
    fn place(&self, (error, count): (f32, u32)) -> Result<usize, usize> {
        self.sorted
            .binary_search_by(|known| known.0.total_cmp(&error).then(known.1.cmp(&count)))
    }

    /// Whether intervals follow from errors, and not from an assumed spread.
    pub fn is_known(&self) -> bool {
        self.ratios.is_some()
    }

    /// The interval of a prediction. `factor` is the spread that the predictor assumes: two thirds
    /// of the times lie within the prediction divided and multiplied by it. It counts until enough
    /// is known. `least` is as in [`Calibration::observe`].
    pub fn interval(&self, predicted: f64, factor: f64, least: f64) -> Interval {
        let [low, likely, high] = self.ratios.unwrap_or_else(|| {
            let off = factor.max(1.0).powf(DEVIATIONS_OF_80);
            [1.0 / off, 1.0, off]
        });
        let time = |ratio: f64| ((predicted.max(0.0) + least) * ratio - least).max(0.0);
        Interval {
            low: time(low),
            likely: time(likely),
            high: time(high),
        }
    }

    /// Errors at these levels. The next error is at most the one of level `p` with a probability of
    /// at least `p`, if it is drawn like those in the window.
    fn quantiles<const N: usize>(&self, levels: [f64; N]) -> [f64; N] {
        let sorted = &self.sorted;
        let all: f64 = sorted.iter().map(|(_, count)| f64::from(*count)).sum();
        // The next error may lie beyond all known ones.
        let one = all / sorted.len() as f64;
        levels.map(|level| {
            let wanted = match level < 0.5 {
                true => (all + one) * level - one,
                false => (all + one) * level,
            };
            let mut below = 0.0;
            let reaches = |(_, count): &&(f32, u32)| {
                below += f64::from(*count);
                below >= wanted
            };
            let found = sorted.iter().find(reaches).or(sorted.last());
            found.map_or(0.0, |(error, _)| f64::from(*error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_random::SplitMix64;

    /// A factor around 1, with heavy tails.
    fn noise(random: &mut SplitMix64) -> f64 {
        let bits: f64 = (0..12).map(|_| random.unit()).sum();
        let tail = if random.unit() < 0.05 { 3.0 } else { 1.0 };
        (0.4 * (bits - 6.0)).exp() * tail
    }

    #[test]
    fn four_of_five_times_lie_within_the_interval_while_the_load_changes() {
        for seed in 0..20 {
            let mut random = SplitMix64::new(seed);
            let mut calibration = Calibration::default();
            let mut inside = 0;
            for round in 0..5000 {
                // The predictions become wrong by a factor that wanders from 1 to 4 and back.
                let bias = 1.0 + 1.5 * (1.0 - (f64::from(round) / 800.0).cos());
                let predicted = 0.01 * (1.0 + 100.0 * random.unit());
                let seconds = predicted * bias * noise(&mut random);
                let interval = calibration.interval(predicted, 1.5, 1e-6);
                assert!(interval.low <= interval.likely && interval.likely <= interval.high);
                inside += i32::from((interval.low..=interval.high).contains(&seconds));
                calibration.observe(predicted, seconds, 1e-6);
            }
            assert!(
                (3750..=4250).contains(&inside),
                "{inside} of 5000, seed {seed}"
            );
        }
    }

    #[test]
    fn the_assumed_spread_counts_until_enough_is_known() {
        let mut calibration = Calibration::default();
        let before = calibration.interval(1.0, 2.0, 0.0);
        assert_eq!(before.likely, 1.0);
        assert!((before.high - 2f64.powf(DEVIATIONS_OF_80)).abs() < 1e-9);
        (0..LEAST).for_each(|_| calibration.observe(1.0, 3.0, 0.0));
        let after = calibration.interval(1.0, 2.0, 0.0);
        for seconds in [after.low, after.likely, after.high] {
            assert!((seconds - 3.0).abs() < 1e-6, "{after:?}");
        }
    }

    #[test]
    fn impossible_values_do_no_harm() {
        let mut calibration = Calibration::default();
        for (predicted, seconds) in [
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
            (-1.0, -1.0),
            (0.0, 0.0),
        ] {
            calibration.observe(predicted, seconds, 0.01);
        }
        (0..1000).for_each(|_| calibration.observe(1.0, 1.0, 0.0));
        assert_eq!(calibration.errors.len(), WINDOW);
        let interval = calibration.interval(0.0, f64::NAN, 0.0);
        assert!(interval.high.is_finite());
    }
}

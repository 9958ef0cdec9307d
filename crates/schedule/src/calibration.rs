//! Intervals that hold: how far predictions were off, learned from what came.
//!
//! This is conformal prediction over a sliding window (Vovk and others, Algorithmic Learning in a
//! Random World, 2005). The errors of the last predictions, as ratios of the true time to the
//! predicted one, are kept. The interval of a new prediction reaches from a low to a high one of
//! them. It needs no assumption about the distribution of the errors. Because old errors leave the
//! window, it follows a load that changes. The memory is bounded.

/// Errors that are remembered. With more, an interval is steadier and follows changes later.
const WINDOW: usize = 128;
/// Fewest errors from which intervals are taken.
const LEAST: usize = 20;
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// The logarithms of the last ratios of a true time to the predicted one, in a ring.
    errors: Vec<f32>,
    next: usize,
}

impl Calibration {
    /// Records that a time was predicted, and what came, in seconds. Both have at least `least`
    /// seconds added, so that the errors of very short times do not count like those of long ones.
    /// Ignores impossible values.
    pub fn observe(&mut self, predicted: f64, seconds: f64, least: f64) {
        let error = ((seconds.max(0.0) + least) / (predicted.max(0.0) + least)).ln();
        if !error.is_finite() {
            return;
        }
        match self.errors.get_mut(self.next) {
            Some(oldest) => *oldest = error as f32,
            None => self.errors.push(error as f32),
        }
        self.next = (self.next + 1) % WINDOW;
    }

    /// The interval of a prediction. `factor` is the spread that the predictor assumes: two thirds
    /// of the times lie within the prediction divided and multiplied by it. It counts until enough
    /// is known. `least` is as in [`Calibration::observe`].
    pub fn interval(&self, predicted: f64, factor: f64, least: f64) -> Interval {
        let [low, likely, high] = match self.quantiles([0.1, 0.5, 0.9]) {
            Some(errors) => errors.map(f64::exp),
            None => {
                let off = factor.max(1.0).powf(DEVIATIONS_OF_80);
                [1.0 / off, 1.0, off]
            }
        };
        let time = |ratio: f64| ((predicted.max(0.0) + least) * ratio - least).max(0.0);
        Interval {
            low: time(low),
            likely: time(likely),
            high: time(high),
        }
    }

    /// Errors at these levels. The next error is at most the one of level `p` with a probability of
    /// at least `p`, if it is drawn like those in the window.
    fn quantiles<const N: usize>(&self, levels: [f64; N]) -> Option<[f64; N]> {
        if self.errors.len() < LEAST {
            return None;
        }
        let mut sorted = self.errors.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        let count = sorted.len() as f64;
        Some(levels.map(|level| {
            let rank = match level < 0.5 {
                true => ((count + 1.0) * level).floor(),
                false => ((count + 1.0) * level).ceil(),
            };
            f64::from(sorted[(rank.max(1.0) as usize - 1).min(sorted.len() - 1)])
        }))
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

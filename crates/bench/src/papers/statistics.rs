//! The statistics of the papers' tables, and random figures with such statistics. The random
//! figures stay between the least and the greatest figure of the table. The same seed gives the
//! same figures.

use serde_json::{Value, json};

/// Minimum, maximum, mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
    /// Sample deviation, with n - 1 in the denominator; 0 for one figure.
    pub(super) deviation: f64,
}

impl Spread {
    /// The statistics of some figures. They are NaN if there is no figure.
    pub(super) fn of(figures: &[f64]) -> Spread {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<f64>() / count;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let fold = |pick: fn(f64, f64) -> f64| figures.iter().copied().fold(f64::NAN, pick);
        Spread {
            min: fold(f64::min),
            max: fold(f64::max),
            mean,
            deviation: (squares / (count - 1.0).max(1.0)).sqrt(),
        }
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "min": self.min, "max": self.max, "mean": self.mean, "sd": self.deviation,
        })
    }
}

/// Random numbers from a seed (SplitMix64).
pub(super) struct Chance(pub(super) u64);

impl Chance {
    /// A number between 0 and 1, never 0.
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ z >> 31) >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number from a beta distribution between the least and the greatest figure, with their mean
    /// and deviation. If all figures are equal, the mean itself.
    pub(super) fn draw(&mut self, spread: Spread) -> f64 {
        let width = spread.max - spread.min;
        if width <= 0.0 || spread.deviation <= 0.0 {
            return spread.mean;
        }
        let mean = (spread.mean - spread.min) / width;
        let strength = mean * (1.0 - mean) / (spread.deviation / width).powi(2) - 1.0;
        let [a, b] = [mean * strength, (1.0 - mean) * strength];
        spread.min + width * self.beta(a, b)
    }

    /// M. D. Jöhnk's method for a beta distribution (1964). It accepts few pairs if a and b are
    /// large, which they are not here.
    fn beta(&mut self, a: f64, b: f64) -> f64 {
        loop {
            let x = self.uniform().powf(1.0 / a);
            let y = self.uniform().powf(1.0 / b);
            if x + y <= 1.0 {
                return x / (x + y);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_sample_deviation() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!((spread.min, spread.max, spread.mean), (2.0, 9.0, 5.0));
        assert!((spread.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of(&[3.0]).deviation, 0.0);
        assert!(Spread::of(&[]).mean.is_nan());
    }

    #[test]
    fn drawn_figures_have_the_requested_spread() {
        let [up, down] = crate::papers::links::WORLD_KB_S;
        for asked in [up, down] {
            let mut chance = Chance(7);
            let drawn: Vec<f64> = (0..100_000).map(|_| chance.draw(asked)).collect();
            let got = Spread::of(&drawn);
            assert!(got.min >= asked.min && got.max <= asked.max, "{got:?}");
            assert!((got.mean / asked.mean - 1.0).abs() < 0.01, "{got:?}");
            assert!(
                (got.deviation / asked.deviation - 1.0).abs() < 0.02,
                "{got:?}"
            );
        }
    }
}

//! Predicts the time of a function's calls from its earlier calls. It knows only the work of a call
//! and its time; `profile` adds the number of processor elements. Old observations lose weight, so
//! that a machine that becomes slower is noticed. Impossible values are ignored.

/// Each octave of work, 2^k to 2^(k+1), has a rate of its own: small problems fit a cache, and
/// large ones keep every unit of the processor busy.
const OCTAVES: usize = 64;

/// Least weight of a new observation, so that old ones are forgotten.
const WEIGHT: f64 = 1.0 / 8.0;

/// Learns how long the calls of one function take, depending on their work: operations by
/// `CalcOrder`, or bytes if the interface states none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictor {
    /// A bit for each observed octave of work.
    observed: u64,
    /// The rates of these octaves, in order.
    rates: Vec<Rate>,
}

/// Seconds per unit of work, as a logarithm because run times err by factors.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    mean: f64,
    /// The exponential of the mean. It is asked for far more often than it changes.
    unit_s: f64,
    variance: f64,
    calls: u32,
}

/// What a predictor has learned about calls with 2^octave to 2^(octave + 1) units of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learned {
    /// Below 64.
    pub octave: u8,
    /// Mean logarithm of the seconds for a unit of work.
    pub mean: f64,
    /// Its variance.
    pub variance: f64,
    /// Number of observed calls.
    pub calls: u32,
}

/// A predicted time of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Time in seconds.
    pub seconds: f64,
    /// Two thirds of the calls lie within `seconds / factor` and `seconds * factor`; at least 1.
    pub factor: f64,
}

impl Predictor {
    /// Records that a call with this much work took this many seconds. Ignores impossible values.
    pub fn observe(&mut self, work: f64, seconds: f64) {
        let (work, seconds) = (at_least_one(work), seconds.max(1e-9));
        if !seconds.is_finite() {
            return;
        }
        let value = (seconds / work).ln();
        let octave = octave(work);
        let place = self.below(octave);
        if self.knows(octave) {
            return self.rates[place].observe(value);
        }
        self.observed |= 1 << octave;
        self.rates.insert(place, Rate::new(value));
    }

    /// What was learned, for storage.
    pub fn learned(&self) -> impl Iterator<Item = Learned> {
        let octaves = (0..OCTAVES as u8).filter(|octave| self.knows(*octave));
        octaves.zip(&self.rates).map(|(octave, rate)| Learned {
            octave,
            mean: rate.mean,
            variance: rate.variance,
            calls: rate.calls,
        })
    }

    /// A predictor restored from stored values. `None` if they are impossible.
    pub fn resume(learned: impl IntoIterator<Item = Learned>) -> Option<Predictor> {
        let mut predictor = Predictor::default();
        for Learned {
            octave,
            mean,
            variance,
            calls,
        } in learned
        {
            // From an attosecond for a unit of work to some centuries.
            let sound = (-64.0..=23.0).contains(&mean)
                && (0.0..=1e4).contains(&variance)
                && usize::from(octave) < OCTAVES
                && calls > 0;
            if !sound || predictor.observed >> octave > 0 {
                return None;
            }
            let rate = Rate {
                mean,
                unit_s: mean.exp(),
                variance,
                calls,
            };
            predictor.observed |= 1 << octave;
            predictor.rates.push(rate);
        }
        Some(predictor)
    }

    /// Predicted time of a call with this much work; `None` before the first call of the function.
    ///
    /// Between two observed octaves, the logarithm of the rate is interpolated. Outside of all
    /// observed octaves, the nearest rate is used, and each octave of distance adds a tenth to the
    /// factor.
    pub fn predict(&self, work: f64) -> Option<Prediction> {
        let work = at_least_one(work);
        let (rate, octaves) = self.rate(octave(work))?;
        Some(rate.prediction(work, octaves))
    }

    /// The seconds of [`Predictor::predict`], at a lower cost.
    pub fn seconds(&self, work: f64) -> Option<f64> {
        let work = at_least_one(work);
        let octave = octave(work);
        let unit_s = match self.knows(octave) {
            true => self.rates[self.below(octave)].unit_s,
            false => self.rate(octave)?.0.unit_s,
        };
        Some(unit_s * work)
    }

    /// The rate of an octave, and the distance in octaves to the observation.
    fn rate(&self, octave: u8) -> Option<(Rate, u8)> {
        let below = self.below(octave);
        if self.knows(octave) {
            return Some((self.rates[below], 0));
        }
        let low = self.lower(octave).checked_ilog2();
        let low = low.map(|low| (self.rates[below - 1], octave - low as u8));
        let high = self.rates.get(below).copied();
        let high = high.map(|rate| (rate, (self.observed >> octave).trailing_zeros() as u8));
        let ((low, from_low), (high, from_high)) = match (low, high) {
            (Some(low), Some(high)) => (low, high),
            (one, other) => return one.or(other),
        };
        let share = f64::from(from_low) / f64::from(from_low + from_high);
        let mean = low.mean + (high.mean - low.mean) * share;
        let rate = Rate {
            mean,
            unit_s: mean.exp(),
            variance: low.variance.max(high.variance),
            calls: low.calls.min(high.calls),
        };
        Some((rate, from_low.min(from_high)))
    }

    fn knows(&self, octave: u8) -> bool {
        self.observed >> octave & 1 == 1
    }

    /// Number of observed octaves below this one.
    fn below(&self, octave: u8) -> usize {
        self.lower(octave).count_ones() as usize
    }

    fn lower(&self, octave: u8) -> u64 {
        self.observed & !(!0 << octave)
    }
}

/// At least 1, also for "not a number".
fn at_least_one(work: f64) -> f64 {
    work.max(1.0).min(2f64.powi(OCTAVES as i32 - 1))
}

/// The exponent of a number that is at least 1.
fn octave(work: f64) -> u8 {
    ((work.to_bits() >> 52) as i32 - 1023).clamp(0, OCTAVES as i32 - 1) as u8
}

impl Rate {
    fn new(value: f64) -> Rate {
        Rate {
            mean: value,
            unit_s: value.exp(),
            variance: 0.0,
            calls: 1,
        }
    }

    fn observe(&mut self, value: f64) {
        self.calls = self.calls.saturating_add(1);
        let weight = (1.0 / f64::from(self.calls)).max(WEIGHT);
        let off = value - self.mean;
        self.mean += weight * off;
        self.unit_s = self.mean.exp();
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }

    fn prediction(&self, work: f64, octaves: u8) -> Prediction {
        // A single call says nothing about the spread.
        let spread = match self.calls {
            1 => 0.5,
            _ => self.variance.sqrt(),
        };
        Prediction {
            seconds: self.unit_s * work,
            factor: (spread + 0.1 * f64::from(octaves)).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(prediction: Option<Prediction>, seconds: f64, tolerance: f64) {
        let got = prediction.expect("a prediction").seconds;
        assert!(
            (got / seconds).ln().abs() < tolerance.ln_1p(),
            "{got} instead of {seconds}"
        );
    }

    #[test]
    fn nothing_is_known_before_the_first_call() {
        assert_eq!(Predictor::default().predict(1e6), None);
    }

    #[test]
    fn a_rate_that_changes_with_the_size_is_followed() {
        // 1 GFLOP/s below a million operations, 10 GFLOP/s above a billion, and values
        // in between for sizes in between.
        let mut predictor = Predictor::default();
        for _ in 0..20 {
            predictor.observe(1e6, 1e-3);
            predictor.observe(1e9, 0.1);
        }
        close(predictor.predict(1e6), 1e-3, 0.01);
        close(predictor.predict(1.04e6), 1.04e-3, 0.01);
        close(predictor.predict(1e9), 0.1, 0.01);
        close(predictor.predict(3.2e7), 1e-2, 0.15);
        close(predictor.predict(1e11), 10.0, 0.01);
        close(predictor.predict(1e3), 1e-6, 0.01);
        let far = predictor.predict(1e11).expect("known").factor;
        assert!(far > predictor.predict(1e9).expect("known").factor);
    }

    #[test]
    fn a_machine_that_becomes_slower_is_noticed() {
        let mut predictor = Predictor::default();
        (0..1000).for_each(|_| predictor.observe(1e6, 1e-3));
        (0..30).for_each(|_| predictor.observe(1e6, 4e-3));
        close(predictor.predict(1e6), 4e-3, 0.05);
    }

    #[test]
    fn the_factor_covers_two_thirds_of_noisy_calls() {
        let mut predictor = Predictor::default();
        let mut random = farcall_random::SplitMix64::new(1);
        let mut noise = || {
            let bits = (0..12).map(|_| random.unit());
            (0.3 * (bits.sum::<f64>() - 6.0)).exp()
        };
        (0..100).for_each(|_| predictor.observe(1e6, 1e-3 * noise()));
        let Prediction { seconds, factor } = predictor.predict(1e6).expect("known");
        let within = (0..300)
            .map(|_| 1e-3 * noise())
            .filter(|time| (seconds / factor..seconds * factor).contains(time))
            .count();
        assert!(
            (140..=270).contains(&within),
            "{within} of 300 within {factor}"
        );
    }

    #[test]
    fn learned_times_can_be_stored_and_restored() {
        let mut predictor = Predictor::default();
        for work in [1.0, 1e3, 1e6, 1e12] {
            (0..5).for_each(|round| predictor.observe(work, work * 1e-9 * f64::from(1 + round)));
        }
        let learned: Vec<Learned> = predictor.learned().collect();
        assert_eq!(Predictor::resume(learned.clone()), Some(predictor));
        let twice = learned.iter().chain(&learned).copied();
        assert_eq!(Predictor::resume(twice), None);
        let [mut wrong, ..] = learned[..] else {
            panic!("nothing was learned")
        };
        wrong.mean = f64::NAN;
        assert_eq!(Predictor::resume([wrong]), None);
        wrong = Learned {
            octave: 64,
            ..learned[0]
        };
        assert_eq!(Predictor::resume([wrong]), None);
    }

    #[test]
    fn impossible_values_do_no_harm() {
        let mut predictor = Predictor::default();
        for (work, seconds) in [
            (f64::NAN, 1.0),
            (-1.0, 1.0),
            (f64::INFINITY, 1.0),
            (1.0, f64::INFINITY),
            (1.0, f64::NAN),
            (1.0, -1.0),
        ] {
            predictor.observe(work, seconds);
        }
        for work in [f64::NAN, 0.0, 1e300] {
            let prediction = predictor.predict(work).expect("known");
            assert!(prediction.seconds.is_finite() && prediction.factor >= 1.0);
        }
    }
}

//! A series of measurements of one quantity, and the methods that forecast its next value. Every
//! method forecasts each value, and the one with the smallest recent error gives the answer. `path`
//! combines series into forecasts for a path. The memory of a series is bounded.

use crate::median;
use std::collections::VecDeque;

/// Number of stored values: the length of the longest window.
const WINDOW: usize = 21;
/// Length of the short windows.
const SHORT: usize = 5;
/// Weights of the latest value in the exponential means.
const GAINS: [f64; 3] = [0.05, 0.2, 0.5];
/// Weights of the level and of the slope in [`Method::Trend`] (Holt's linear method).
const TREND: (f64, f64) = (0.5, 0.2);
/// Least weight of the latest error. A predictor is judged by about this many of its last
/// forecasts.
const JUDGED: f64 = 1.0 / 32.0;
/// Ratio of the standard deviation to the mean absolute deviation in a normal distribution.
const DEVIATION: f64 = 1.2533;

/// A method to forecast the next value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The last value.
    Last,
    /// The mean of all values.
    Mean,
    /// The mean of a short window.
    ShortMean,
    /// The mean of the long window.
    WindowMean,
    /// An exponential mean over about 20 values.
    SlowExponential,
    /// An exponential mean over about 5 values.
    Exponential,
    /// An exponential mean over about 2 values.
    FastExponential,
    /// The median of a short window.
    ShortMedian,
    /// The median of the long window.
    WindowMedian,
    /// The mean of the middle half of the long window.
    TrimmedMean,
    /// Level and slope, both exponential means.
    Trend,
}

impl Method {
    /// All methods. The first one wins a tie.
    pub const ALL: [Method; 11] = [
        Method::WindowMedian,
        Method::Exponential,
        Method::Last,
        Method::Mean,
        Method::ShortMean,
        Method::WindowMean,
        Method::SlowExponential,
        Method::FastExponential,
        Method::ShortMedian,
        Method::TrimmedMean,
        Method::Trend,
    ];
}

/// A forecast of the next value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// In the unit of the values observed.
    pub value: f64,
    /// Two thirds of the values lie within `value / factor` and `value * factor`; at least 1.
    pub factor: f64,
}

/// Positive values of one quantity, in the order of measurement. Memory is bounded, and an
/// observation takes less than a microsecond.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    seen: u32,
    /// Logarithms of the last values, the oldest first.
    window: VecDeque<f64>,
    mean: f64,
    exponential: [f64; GAINS.len()],
    level: f64,
    slope: f64,
    /// The forecast of each of [`Method::ALL`].
    next: [f64; Method::ALL.len()],
    /// The recent error of each method.
    errors: [f64; Method::ALL.len()],
}

impl Series {
    /// Records a measured value. Ignores values that are not positive and finite.
    pub fn observe(&mut self, value: f64) {
        let value = value.ln();
        if !value.is_finite() {
            return;
        }
        self.judge(value);
        self.seen = self.seen.saturating_add(1);
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(value);
        self.learn(value);
        let mut window: Vec<f64> = self.window.iter().copied().collect();
        let mut short = window[window.len().saturating_sub(SHORT)..].to_vec();
        window.sort_by(f64::total_cmp);
        short.sort_by(f64::total_cmp);
        let quarter = window.len() / 4;
        self.next = Method::ALL.map(|method| match method {
            Method::Last => value,
            Method::Mean => self.mean,
            Method::ShortMean => mean(&short),
            Method::WindowMean => mean(&window),
            Method::SlowExponential => self.exponential[0],
            Method::Exponential => self.exponential[1],
            Method::FastExponential => self.exponential[2],
            Method::ShortMedian => median(&short).unwrap_or(value),
            Method::WindowMedian => median(&window).unwrap_or(value),
            Method::TrimmedMean => mean(&window[quarter..window.len() - quarter]),
            Method::Trend => self.level + self.slope,
        });
    }

    /// The forecast of the next value; `None` before the first measurement.
    pub fn forecast(&self) -> Option<Forecast> {
        let best = self.best()?;
        // A few values say little about their spread.
        let spread = DEVIATION * self.errors[best] + 0.5 / f64::from(self.seen);
        Some(Forecast {
            value: self.next[best].exp(),
            factor: spread.exp(),
        })
    }

    /// The forecast of one method, even if it is not the best.
    pub fn forecast_by(&self, method: Method) -> Option<f64> {
        let place = Method::ALL.iter().position(|known| *known == method)?;
        (self.seen > 0).then(|| self.next[place].exp())
    }

    /// The last values, the oldest first, for storage. A series that observes them again gives the
    /// same forecasts.
    pub fn recent(&self) -> impl ExactSizeIterator<Item = f64> {
        self.window.iter().map(|value| value.exp())
    }

    fn best(&self) -> Option<usize> {
        let errors = self.errors.iter().enumerate();
        let best = errors.min_by(|(_, one), (_, other)| one.total_cmp(other));
        best.filter(|_| self.seen > 0).map(|(place, _)| place)
    }

    /// Compares a value with the forecast of every method.
    fn judge(&mut self, value: f64) {
        if self.seen == 0 {
            return;
        }
        let weight = (1.0 / f64::from(self.seen)).max(JUDGED);
        for (error, said) in self.errors.iter_mut().zip(&self.next) {
            *error += weight * ((value - said).abs() - *error);
        }
    }

    fn learn(&mut self, value: f64) {
        if self.seen == 1 {
            (self.mean, self.level) = (value, value);
            self.exponential = [value; GAINS.len()];
            return;
        }
        self.mean += (value - self.mean) / f64::from(self.seen);
        for (mean, gain) in self.exponential.iter_mut().zip(GAINS) {
            *mean += gain * (value - *mean);
        }
        let before = self.level;
        let expected = self.level + self.slope;
        self.level = expected + TREND.0 * (value - expected);
        self.slope += TREND.1 * (self.level - before - self.slope);
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

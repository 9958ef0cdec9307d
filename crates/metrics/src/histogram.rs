//! A histogram of call durations with four bounds a decade. Histograms can be merged.

use prometheus_client::encoding::MetricEncoder;
use prometheus_client::encoding::NoLabelSet;
use std::fmt;

/// Upper bounds in seconds, four per decade.
const BOUNDS: [f64; 38] = [
    1e-5,
    1.8e-5,
    3.2e-5,
    5.6e-5, //
    1e-4,
    1.8e-4,
    3.2e-4,
    5.6e-4, //
    1e-3,
    1.8e-3,
    3.2e-3,
    5.6e-3, //
    0.01,
    0.018,
    0.032,
    0.056, //
    0.1,
    0.18,
    0.32,
    0.56, //
    1.0,
    1.8,
    3.2,
    5.6, //
    10.0,
    18.0,
    32.0,
    56.0, //
    100.0,
    180.0,
    320.0,
    560.0, //
    1e3,
    1.8e3,
    3.2e3,
    5.6e3, //
    1e4,
    f64::INFINITY,
];

/// A histogram of call durations, with at least four bounds per decade from 10 us to 3 h.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS.len()],
    nanos: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; BOUNDS.len()],
            nanos: 0,
        }
    }
}

impl Histogram {
    /// Adds a call that took `nanos` nanoseconds.
    pub fn add(&mut self, nanos: u64) {
        let seconds = nanos as f64 * 1e-9;
        let index = BOUNDS.partition_point(|bound| seconds > *bound);
        self.counts[index] += 1;
        self.nanos = self.nanos.saturating_add(nanos);
    }

    /// Adds the calls of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        let counts = self.counts.iter_mut().zip(other.counts);
        counts.for_each(|(count, more)| *count += more);
        self.nanos = self.nanos.saturating_add(other.nanos);
    }

    /// Number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let buckets: Vec<(f64, u64)> = BOUNDS.into_iter().zip(self.counts).collect();
        let seconds = self.nanos as f64 * 1e-9;
        encoder.encode_histogram::<NoLabelSet>(seconds, self.count(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_four_a_decade_in_order() {
        assert!(BOUNDS.is_sorted());
        for (one, next) in BOUNDS.iter().zip(&BOUNDS[4..]).take(33) {
            assert!((next / one - 10.0).abs() < 1e-9, "{one} {next}");
        }
    }

    #[test]
    fn every_time_belongs_to_one_count() {
        let mut histogram = Histogram::default();
        for nanos in [0, 10_000, 10_001, 1_000_000_000, u64::MAX] {
            histogram.add(nanos);
        }
        let used = histogram.counts.iter().enumerate();
        let used: Vec<(usize, u64)> = used
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (index, *count))
            .collect();
        assert_eq!(used, [(0, 2), (1, 1), (20, 1), (37, 1)]);
        assert_eq!(histogram.count(), 5);
    }
}

//! The rate of one direction of a link, learned from ordinary transfers. Transfers of less than 1
//! MiB are ignored, because they measure the buffers of the path. `forecast` predicts a path more
//! exactly, from many measurements.

/// Weight of the latest transfer.
const WEIGHT: f64 = 1.0 / 4.0;

/// Learns a rate from ordinary transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Throughput {
    /// Logarithm of bytes per second.
    mean: Option<f64>,
}

impl Throughput {
    /// A shorter transfer says more about the buffers of the path than about the link.
    pub const LEAST_BYTES: u64 = 1 << 20;

    /// Records that this many bytes took this many seconds. Short transfers are ignored.
    pub fn observe(&mut self, bytes: u64, seconds: f64) {
        let value = (bytes as f64 / seconds).ln();
        if bytes < Throughput::LEAST_BYTES || !value.is_finite() {
            return;
        }
        let mean = self.mean.unwrap_or(value);
        self.mean = Some(mean + (value - mean) * WEIGHT);
    }

    /// A throughput with this rate in bytes per second; `None` if the rate is impossible.
    pub fn of_rate(rate: f64) -> Option<Throughput> {
        (rate.is_finite() && rate > 0.0).then(|| Throughput {
            mean: Some(rate.ln()),
        })
    }

    /// Bytes per second; `None` before the first transfer that counts.
    pub fn rate(&self) -> Option<f64> {
        self.mean.map(f64::exp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_transfers_count() {
        let mut throughput = Throughput::default();
        throughput.observe(1000, 1e-9);
        throughput.observe(1 << 24, 0.0);
        assert_eq!(throughput.rate(), None);
        throughput.observe(10_000_000, 0.1);
        assert!((throughput.rate().expect("known") / 1e8 - 1.0).abs() < 1e-9);
        (0..30).for_each(|_| throughput.observe(10_000_000, 1.0));
        assert!((throughput.rate().expect("known") / 1e7 - 1.0).abs() < 0.01);
    }
}

//! How times are spread: counts by size, eight to a factor of two. Quantiles are right to 5 %.

/// The quantiles of a [`Together`](crate::Together) line.
pub const QUANTILES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// Parts of a factor of two, as a power of two.
const PARTS: u32 = 3;
/// Number of counts: enough for every number of 64 bits.
const COUNTS: usize = (62 << PARTS) as usize;

/// Times in nanoseconds, counted by their size.
#[derive(Clone, Debug)]
pub struct Spread {
    counts: Box<[u64; COUNTS]>,
    sum: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            counts: Box::new([0; COUNTS]),
            sum: 0,
        }
    }
}

impl Spread {
    /// Counts a time.
    pub fn add(&mut self, nanos: u64) {
        self.add_times(nanos, 1);
    }

    /// Counts a time as often as this.
    pub fn add_times(&mut self, nanos: u64, times: u64) {
        let count = &mut self.counts[place(nanos)];
        *count = count.saturating_add(times);
        self.sum = self.sum.saturating_add(nanos.saturating_mul(times));
    }

    /// The sum in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// The times in seconds below which these parts of all lie; 0 if there are none.
    pub fn quantiles_s(&self) -> [f64; QUANTILES.len()] {
        let all = self
            .counts
            .iter()
            .fold(0, |sum: u64, count| sum.saturating_add(*count));
        QUANTILES.map(|part| {
            let wanted = ((all as f64 * part).ceil() as u64).max(1);
            let mut seen = 0_u64;
            let place = self.counts.iter().position(|count| {
                seen = seen.saturating_add(*count);
                seen >= wanted
            });
            place.map_or(0.0, |place| middle(place).round() / 1e9)
        })
    }
}

/// The count to which a time belongs.
fn place(nanos: u64) -> usize {
    let most = 1 << PARTS;
    if nanos < most {
        return nanos as usize;
    }
    let exponent = nanos.ilog2();
    let part = (nanos >> (exponent - PARTS)) & (most - 1);
    ((exponent - PARTS + 1) << PARTS) as usize + part as usize
}

/// The middle of the times that belong to a count.
fn middle(place: usize) -> f64 {
    let (octave, part) = (place >> PARTS, place & ((1 << PARTS) - 1));
    match octave {
        0 => part as f64,
        octave => {
            let width = 2f64.powi(octave as i32 - 1);
            ((1 << PARTS) + part) as f64 * width + (width - 1.0) / 2.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_five_percent() {
        let mut spread = Spread::default();
        assert_eq!(spread.quantiles_s(), [0.0; 5]);
        for nanos in 1..=100_000_u64 {
            spread.add(nanos * 1000);
        }
        for (found, part) in spread.quantiles_s().into_iter().zip(QUANTILES) {
            let expected = part * 0.1;
            assert!((found / expected - 1.0).abs() < 0.05, "{found} {expected}");
        }
        assert!((spread.sum_s() - 5000.05).abs() < 1e-6);
    }

    #[test]
    fn every_time_has_a_count_near_it() {
        let mut before = 0;
        for nanos in (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3]) {
            let place = place(nanos);
            assert!(place >= before, "{nanos}");
            before = place;
            let error = (middle(place) - nanos as f64).abs() / nanos as f64;
            assert!(error <= 0.065, "{nanos} {}", middle(place));
        }
        assert!(place(u64::MAX) < COUNTS);
        assert_eq!(place(0), 0);
    }
}

//! How long an answer takes that no processor computes, such as that of a disk. It says how long to
//! spin for the next one, and does not spin itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nobody spins for an answer that takes longer: the time to wake up is then a small part of it.
const MOST: u64 = 500_000;

/// How long the last answers took.
///
/// While they come quickly, it is worth to spin until the next one has come. The processors have
/// nothing else to do then, and would fall asleep.
///
/// ```
/// use std::time::Duration;
/// let latency = farcall_spin::Latency::default();
/// assert_eq!(latency.patience(), Duration::ZERO);
/// latency.took(Duration::from_micros(200));
/// assert_eq!(latency.patience(), Duration::from_micros(400));
/// ```
#[derive(Debug, Default)]
pub struct Latency {
    /// In nanoseconds, with half the weight for the last one. 0 before the first one.
    usual: AtomicU64,
}

impl Latency {
    /// Notes that an answer took so long.
    pub fn took(&self, time: Duration) {
        let last = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2);
        let usual = match self.usual.load(Ordering::Relaxed) {
            0 => last,
            usual => usual / 2 + last / 2,
        };
        self.usual.store(usual, Ordering::Relaxed);
    }

    /// How long to spin for the next one: twice as long as it usually takes, or not at all.
    pub fn patience(&self) -> Duration {
        match self.usual.load(Ordering::Relaxed) {
            usual if usual <= MOST => Duration::from_nanos(2 * usual),
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_spins_for_slow_answers_and_one_slow_answer_is_forgotten() {
        let latency = Latency::default();
        latency.took(Duration::from_millis(10));
        assert_eq!(latency.patience(), Duration::ZERO);
        for _ in 0..10 {
            latency.took(Duration::from_micros(150));
        }
        let patience = latency.patience().as_micros();
        assert!((300..330).contains(&patience), "{patience}");
        latency.took(Duration::MAX);
        assert_eq!(latency.patience(), Duration::ZERO);
    }
}

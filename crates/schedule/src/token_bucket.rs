//! A token bucket: limits bytes to a rate, with bursts. It reads no clock and moves no byte. In any
//! time `t`, at most `rate * t + burst` bytes may pass.

use crate::queue::Nanos;

/// How much idle time a flow can make up for.
const BURST: Nanos = 20_000_000;
/// Least size of a burst in bytes.
const LEAST_BURST: u64 = 16 << 10;
/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// Limits bytes to a rate, with a burst after idle time: in any time `t`, at most `rate * t +
/// burst` bytes. The caller passes the time.
///
/// How to drive it: [`room`](TokenBucket::room) says how many bytes may pass now. Take the bytes
/// that passed out with [`spend`](TokenBucket::spend). If too few may pass,
/// [`when`](TokenBucket::when) says how long to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u64,
    burst: u64,
    /// Level in billionths of a byte.
    level: u128,
    /// Time of this level.
    at: Nanos,
}

impl TokenBucket {
    /// A full bucket with a rate in bytes per second and a burst in bytes, both at least 1.
    pub fn new(rate: u64, burst: u64, now: Nanos) -> TokenBucket {
        let burst = burst.max(1);
        TokenBucket {
            rate: rate.max(1),
            burst,
            level: u128::from(burst) * SECOND,
            at: now,
        }
    }

    /// A full bucket for a connection: a burst is what passes in 20 ms, and at least 16 KiB.
    pub fn of_rate(rate: u64, now: Nanos) -> TokenBucket {
        TokenBucket::new(rate, burst_of(rate), now)
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Size of a burst in bytes.
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Changes the rate, and the burst as in [`of_rate`](TokenBucket::of_rate). Bytes that have
    /// passed still count.
    pub fn set_rate(&mut self, rate: u64, now: Nanos) {
        self.fill(now);
        self.rate = rate.max(1);
        self.burst = burst_of(rate);
        self.level = self.level.min(u128::from(self.burst) * SECOND);
    }

    /// Bytes that may pass now.
    pub fn room(&mut self, now: Nanos) -> u64 {
        self.fill(now);
        u64::try_from(self.level / SECOND).unwrap_or(u64::MAX)
    }

    /// Records that bytes have passed.
    pub fn spend(&mut self, bytes: u64) {
        self.level = self.level.saturating_sub(u128::from(bytes) * SECOND);
    }

    /// When this many bytes may pass, or a burst if that is less.
    pub fn when(&self, now: Nanos, bytes: u64) -> Nanos {
        let wanted = u128::from(bytes.min(self.burst)) * SECOND;
        let missing = wanted.saturating_sub(self.level);
        let wait = u64::try_from(missing.div_ceil(self.rate.into())).unwrap_or(Nanos::MAX);
        self.at.saturating_add(wait).max(now)
    }

    fn fill(&mut self, now: Nanos) {
        let passed = u128::from(now.saturating_sub(self.at));
        let most = u128::from(self.burst) * SECOND;
        self.level = most.min(self.level.saturating_add(passed * u128::from(self.rate)));
        self.at = self.at.max(now);
    }
}

fn burst_of(rate: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(BURST) / SECOND;
    u64::try_from(bytes).unwrap_or(u64::MAX).max(LEAST_BURST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = 1_000_000;

    #[test]
    fn bytes_pass_at_the_rate_after_the_first_burst() {
        let mut bucket = TokenBucket::new(1000, 100, 5);
        assert_eq!(bucket.room(5), 100);
        bucket.spend(100);
        assert_eq!(bucket.room(5), 0);
        assert_eq!(bucket.when(5, 10), 5 + 10 * MILLI);
        assert_eq!(bucket.room(5 + 10 * MILLI), 10);
        assert_eq!(bucket.when(5 + 20 * MILLI, 10), 5 + 20 * MILLI);
        assert_eq!(bucket.room(5 + 1000 * MILLI), 100, "no more than a burst");
    }

    #[test]
    fn a_wait_for_more_than_a_burst_is_a_wait_for_a_burst() {
        let mut bucket = TokenBucket::new(1000, 100, 0);
        bucket.spend(50);
        assert_eq!(bucket.when(0, 1_000_000), 50 * MILLI);
    }

    #[test]
    fn another_rate_does_not_fill_it() {
        let mut bucket = TokenBucket::of_rate(1_000_000, 0);
        assert_eq!(bucket.burst(), 20_000);
        bucket.spend(20_000);
        bucket.set_rate(10_000_000, 0);
        assert_eq!((bucket.room(0), bucket.burst()), (0, 200_000));
        assert_eq!(bucket.room(MILLI), 10_000);
        bucket.set_rate(1, 100 * MILLI);
        assert_eq!((bucket.room(100 * MILLI), bucket.rate()), (LEAST_BURST, 1));
    }

    #[test]
    fn time_that_goes_back_gives_nothing() {
        let mut bucket = TokenBucket::new(1000, 100, 50 * MILLI);
        bucket.spend(100);
        assert_eq!(bucket.room(20 * MILLI), 0);
        assert_eq!(bucket.room(60 * MILLI), 10);
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let mut bucket = TokenBucket::of_rate(u64::MAX, 0);
        bucket.spend(u64::MAX);
        let _ = bucket.room(Nanos::MAX);
        bucket.spend(u64::MAX);
        assert!(bucket.when(Nanos::MAX, u64::MAX) == Nanos::MAX);
        let mut slow = TokenBucket::new(0, u64::MAX, 0);
        slow.spend(u64::MAX);
        assert_eq!(slow.when(0, u64::MAX), Nanos::MAX);
    }
}

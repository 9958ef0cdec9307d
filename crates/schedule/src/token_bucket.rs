//! A token bucket: limits bytes to a rate, with bursts. It reads no clock and moves no byte. In any
//! time `t`, at most `rate * t + burst` bytes may pass. A flow that had to wait, and whose process
//! then comes late, may catch up.

use crate::queue::Nanos;

/// How much idle time a flow can make up for.
const BURST: Nanos = 20_000_000;
/// How much more time a waiting flow can make up for, if its process comes late. A busy machine
/// lets a process wait for tens of milliseconds.
const LATE: Nanos = 100_000_000;
/// Least size of a burst in bytes.
const LEAST_BURST: u64 = 16 << 10;
/// Nanoseconds in a second.
const SECOND: u128 = 1_000_000_000;

/// Limits bytes to a rate, with a burst after idle time: in any time `t`, at most `rate * t +
/// burst` bytes. The caller passes the time.
///
/// How to drive it: [`room`](TokenBucket::room) says how many bytes may pass now. Take the bytes
/// that passed out with [`spend`](TokenBucket::spend). If too few may pass,
/// [`when`](TokenBucket::when) says how long to wait. After such a wait, ask
/// [`room_after_wait`](TokenBucket::room_after_wait).
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
        self.fill(now, 0);
        self.rate = rate.max(1);
        self.burst = burst_of(rate);
        self.level = self.level.min(u128::from(self.burst) * SECOND);
    }

    /// Bytes that may pass now.
    pub fn room(&mut self, now: Nanos) -> u64 {
        self.fill(now, 0)
    }

    /// Bytes that may pass now, for a flow that has waited since bytes last passed: also those
    /// that it missed because its process comes late, for up to 100 ms.
    pub fn room_after_wait(&mut self, now: Nanos) -> u64 {
        self.fill(now, LATE)
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

    /// Fills the bucket for the time that has passed: up to a burst, and what passes in `late`.
    /// Returns its bytes.
    fn fill(&mut self, now: Nanos, late: Nanos) -> u64 {
        let bytes = |time: Nanos| u128::from(time) * u128::from(self.rate);
        let passed = bytes(now.saturating_sub(self.at));
        let most = (u128::from(self.burst) * SECOND).saturating_add(bytes(late));
        let filled = most.min(self.level.saturating_add(passed));
        self.level = self.level.max(filled);
        self.at = self.at.max(now);
        u64::try_from(self.level / SECOND).unwrap_or(u64::MAX)
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
    fn a_flow_that_waited_catches_up_and_an_idle_one_does_not() {
        let late = |room: fn(&mut TokenBucket, Nanos) -> u64, millis| {
            let mut bucket = TokenBucket::new(1_000_000, 20_000, 0);
            bucket.spend(20_000);
            room(&mut bucket, millis * MILLI)
        };
        assert_eq!(late(TokenBucket::room, 50), 20_000);
        assert_eq!(late(TokenBucket::room_after_wait, 50), 50_000);
        assert_eq!(late(TokenBucket::room_after_wait, 10_000), 120_000);
        let mut bucket = TokenBucket::new(1_000_000, 20_000, 0);
        bucket.spend(20_000);
        bucket.room_after_wait(50 * MILLI);
        assert_eq!(bucket.room(60 * MILLI), 50_000, "it keeps what it has");
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

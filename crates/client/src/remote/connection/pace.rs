//! What a connection may write while it has reserved bandwidth.

use farcall_schedule::TokenBucket;
use std::time::{Duration, Instant};

/// Writes no faster than reserved, from when a reservation begins until it ends.
pub(crate) struct Pace {
    bucket: TokenBucket,
    /// Since when the bucket's time runs.
    start: Instant,
    begins: Instant,
    ends: Instant,
    /// When what waits may go on.
    pause: Option<Instant>,
}

impl Pace {
    /// At `rate` bytes per second. The bucket is full when it begins.
    pub(crate) fn new(rate: u64, begins: Duration, ends: Duration) -> Pace {
        let now = Instant::now();
        // A time beyond what the clock can tell is as good as none.
        let later = |time: Duration| now.checked_add(time).unwrap_or(now);
        Pace {
            bucket: TokenBucket::of_rate(rate, 0),
            start: now,
            begins: later(begins),
            ends: later(ends),
            pause: None,
        }
    }

    /// How many of so many pending bytes may be written now. None of them, where few may: then it
    /// pauses until more may.
    pub(super) fn room(&mut self, pending: usize) -> usize {
        let now = Instant::now();
        self.pause = None;
        if !(self.begins..self.ends).contains(&now) {
            return usize::MAX;
        }
        let nanos = (now - self.start).as_nanos() as u64;
        let room = self.bucket.room(nanos);
        let least = (self.bucket.burst() / 8).min(pending as u64);
        if room < least {
            let due = self.bucket.when(nanos, least);
            let due = self.start + Duration::from_nanos(due);
            self.pause = Some(due.min(self.ends));
            return 0;
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// So many bytes were written.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.bucket.spend(bytes as u64);
    }

    /// Until when nothing is to be written.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.pause
    }

    /// Of what is gathered at once, the most.
    pub(super) fn burst(&self) -> u64 {
        self.bucket.burst()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn after_a_burst_it_pauses() {
        let mut pace = Pace::new(1000, Duration::ZERO, HOUR);
        let burst = pace.room(1 << 20);
        assert!((16 << 10..17 << 10).contains(&burst), "{burst}");
        assert_eq!(pace.pause(), None);
        pace.spend(burst);
        assert_eq!(pace.room(1 << 20), 0);
        let pause = pace.pause().expect("it is to be told") - Instant::now();
        assert!(pause > Duration::from_secs(1) && pause < Duration::from_secs(3));
    }

    #[test]
    fn before_it_begins_and_after_its_end_there_is_no_bound() {
        for (begins, ends) in [(HOUR, 2 * HOUR), (Duration::ZERO, Duration::ZERO)] {
            let mut pace = Pace::new(1000, begins, ends);
            assert_eq!((pace.room(1 << 20), pace.pause()), (usize::MAX, None));
        }
    }
}

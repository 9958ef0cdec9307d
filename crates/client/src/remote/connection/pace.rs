//! Limits the sending rate of a connection to the bandwidth that it has reserved. It decides how
//! many bytes may be sent and when; the connection sends them. Before and after the reservation
//! there is no limit. The server limits the other direction.

use farcall_schedule::TokenBucket;
use std::time::{Duration, Instant};

/// Limits sending to the reserved rate while a reservation lasts.
pub(crate) struct Pace {
    bucket: TokenBucket,
    /// Start of the token bucket's time.
    start: Instant,
    begins: Instant,
    ends: Instant,
    /// When pending bytes may be sent again.
    pause: Option<Instant>,
}

impl Pace {
    /// A limit of `rate` bytes per second. The bucket is full at the beginning.
    pub(crate) fn new(rate: u64, begins: Duration, ends: Duration) -> Pace {
        let now = Instant::now();
        // A time that the clock cannot represent counts as now.
        let later = |time: Duration| now.checked_add(time).unwrap_or(now);
        Pace {
            bucket: TokenBucket::of_rate(rate, 0),
            start: now,
            begins: later(begins),
            ends: later(ends),
            pause: None,
        }
    }

    /// How many of the pending bytes may be sent now. If only few may, the connection pauses until
    /// more may.
    pub(super) fn room(&mut self, pending: usize) -> usize {
        let now = Instant::now();
        let has_waited = self.pause.take().is_some();
        if !(self.begins..self.ends).contains(&now) {
            return usize::MAX;
        }
        let nanos = (now - self.start).as_nanos() as u64;
        let room = match has_waited {
            true => self.bucket.room_after_wait(nanos),
            false => self.bucket.room(nanos),
        };
        let least = (self.bucket.burst() / 8).min(pending as u64);
        if room < least {
            let due = self.bucket.when(nanos, least);
            let due = self.start + Duration::from_nanos(due);
            self.pause = Some(due.min(self.ends));
            return 0;
        }
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Records that these bytes were sent.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.bucket.spend(bytes as u64);
    }

    /// The time until which nothing is sent.
    pub(super) fn pause(&self) -> Option<Instant> {
        self.pause
    }

    /// Most bytes to gather for one write.
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
        let pause = pace.pause().expect("the pace wants a pause") - Instant::now();
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

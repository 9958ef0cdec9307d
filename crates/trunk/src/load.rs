//! How busy the daemon is. It decides when the daemon wakes, and whether it runs before ordinary
//! threads. Times come from the caller.

use farcall_trunk_proto::Nanos;

const MILLISECOND: u64 = 1_000_000;
/// While there is much traffic, what came within a pause is handled at once: each time that the
/// daemon wakes, and wakes the program that receives, costs more than a frame. A pause is long
/// enough for so many bytes at the rate of a link, half of what a sender saves as credit, but it
/// has these bounds.
const PAUSE_BYTES: f64 = 16.0 * 1024.0;
const PAUSE_LEAST: Nanos = 250_000;
const PAUSE_MOST: Nanos = 500_000;
/// It is much traffic if so many bytes come in a millisecond.
const MUCH: u64 = 12_000;

/// How much traffic there is.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// None if all traffic is handled at once.
    pause: Option<Nanos>,
    /// When counting began, and the bytes that have come since then.
    since: Nanos,
    bytes: u64,
    is_much: bool,
}

impl Traffic {
    /// `rate` is that of the fastest link in bytes a second. Without one, no traffic is too much to
    /// be handled at once.
    pub(crate) fn new(rate: Option<f64>) -> Traffic {
        let pause = |rate: f64| (PAUSE_BYTES * 1e9 / rate.max(1.0)) as Nanos;
        Traffic {
            pause: rate.map(|rate| pause(rate).clamp(PAUSE_LEAST, PAUSE_MOST)),
            since: 0,
            bytes: 0,
            is_much: false,
        }
    }

    /// Counts bytes that have come.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The time at which to look for frames again: now, unless there is much traffic.
    pub(crate) fn next(&mut self, now: Nanos) -> Nanos {
        let Some(pause) = self.pause else {
            return now;
        };
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= pause {
            self.is_much = self.bytes.saturating_mul(MILLISECOND) >= MUCH.saturating_mul(elapsed);
            (self.since, self.bytes) = (now, 0);
        }
        match self.is_much {
            true => self.since + pause,
            false => now,
        }
    }
}

/// Time over which the use of the processor counts.
const SPAN: Nanos = 100_000_000;
/// Above the first share of a core, the daemon would take the core from the programs whose bytes it
/// moves. Below the second it does not.
const GREEDY: f64 = 0.6;
const MODEST: f64 = 0.3;

/// How much of a core the daemon uses.
#[derive(Debug, Default)]
pub(crate) struct Use {
    /// When the span began, and the processor time of the daemon then.
    since: Nanos,
    used: Nanos,
    comes_first: bool,
}

impl Use {
    /// Whether the daemon should run before ordinary threads from now on; none if nothing changes.
    /// `used` is its processor time.
    pub(crate) fn judge(&mut self, now: Nanos, used: impl FnOnce() -> Nanos) -> Option<bool> {
        let elapsed = now.saturating_sub(self.since);
        if elapsed < SPAN {
            return None;
        }
        let used = used();
        let share = used.saturating_sub(self.used) as f64 / elapsed as f64;
        (self.since, self.used) = (now, used);
        let limit = if self.comes_first { GREEDY } else { MODEST };
        let before = std::mem::replace(&mut self.comes_first, share < limit);
        (before != self.comes_first).then_some(self.comes_first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_traffic_is_handled_together() {
        let mut traffic = Traffic::new(Some(125e6));
        let mut now = 1_000_000_000;
        // A frame of full length in each millisecond is handled at once.
        for _ in 0..10 {
            assert_eq!(traffic.next(now), now);
            traffic.count(1500);
            now += 1_000_000;
        }
        // One in each 100 us is not, after the first quarter of a millisecond.
        for frame in 0..20 {
            let next = traffic.next(now);
            assert_eq!(next > now, frame >= 3, "{frame}");
            traffic.count(1500);
            now += 100_000;
        }
        assert!(traffic.next(now) <= now + PAUSE_LEAST);
        now += 10 * PAUSE_LEAST;
        assert_eq!(traffic.next(now), now);
    }

    #[test]
    fn a_pause_is_longer_on_slow_links_and_none_without_a_rate() {
        let pause = |rate| {
            let mut traffic = Traffic::new(rate);
            traffic.count(1_000_000);
            traffic.next(MILLISECOND) - MILLISECOND
        };
        assert_eq!(pause(Some(12.5e6)), 500_000);
        assert_eq!(pause(Some(40e6)), 409_600);
        assert_eq!(pause(Some(125e6)), 250_000);
        assert_eq!(pause(None), 0);
    }

    #[test]
    fn small_frames_are_not_delayed() {
        let mut traffic = Traffic::new(Some(125e6));
        for frame in 0..1000 {
            let now = 1_000_000_000 + frame * 50_000;
            assert_eq!(traffic.next(now), now);
            traffic.count(100);
        }
    }

    #[test]
    fn a_daemon_that_needs_a_core_does_not_come_first() {
        let mut load = Use::default();
        let (mut now, mut used) = (1_000_000_000, 0);
        let mut run = |load: &mut Use, percent: u64| {
            now += SPAN;
            used += SPAN / 100 * percent;
            load.judge(now, || used)
        };
        assert_eq!(run(&mut load, 5), Some(true));
        assert_eq!(run(&mut load, 50), None);
        assert_eq!(run(&mut load, 90), Some(false));
        assert_eq!(run(&mut load, 50), None);
        assert_eq!(run(&mut load, 20), Some(true));
        assert_eq!(load.judge(now + SPAN - 1, || panic!("too early")), None);
    }
}

//! How busy the daemon is. It decides when the daemon wakes, and whether it runs before ordinary
//! threads. Times come from the caller.

use farcall_trunk_proto::Nanos;

/// While there is much traffic, what came in this time is handled at once: each time that the
/// daemon wakes costs as much as a frame.
const PAUSE: Nanos = 250_000;
/// It is much traffic if so many bytes come in that time.
const MUCH: u64 = 3000;

/// How much traffic there is.
#[derive(Debug)]
pub(crate) struct Traffic {
    may_pause: bool,
    /// When counting began, and the bytes that have come since then.
    since: Nanos,
    bytes: u64,
    is_much: bool,
}

impl Traffic {
    /// Without `may_pause`, no traffic is too much to be handled at once.
    pub(crate) fn new(may_pause: bool) -> Traffic {
        Traffic {
            may_pause,
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
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= PAUSE {
            self.is_much = self.bytes.saturating_mul(PAUSE) >= MUCH.saturating_mul(elapsed);
            (self.since, self.bytes) = (now, 0);
        }
        match self.is_much && self.may_pause {
            true => self.since + PAUSE,
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
        let mut traffic = Traffic::new(true);
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
        assert!(traffic.next(now) <= now + PAUSE);
        traffic.may_pause = false;
        assert_eq!(traffic.next(now), now);
        traffic.may_pause = true;
        now += 10 * PAUSE;
        assert_eq!(traffic.next(now), now);
    }

    #[test]
    fn small_frames_are_not_delayed() {
        let mut traffic = Traffic::new(true);
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

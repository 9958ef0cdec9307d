//! Measures how long the frames of a peer wait on a link, from the stamps of its heartbeats.
//!
//! The clocks of the two nodes are independent, so only differences count. The smallest difference
//! between arrival and stamp belongs to an empty path. It is measured anew from time to time,
//! because clocks drift and paths change. The caller lets the queues drain during that measurement.

use crate::{MICROSECOND, MILLISECOND, Nanos, SECOND};

/// A path counts as empty if its difference is within this of the smallest.
const NEAR: i64 = 200 * MICROSECOND as i64;
/// How long the smallest difference is valid without being observed again.
const HOLDS: Nanos = 3 * SECOND;
/// How long a new measurement of the smallest difference takes.
pub(crate) const RENEWAL: Nanos = 80 * MILLISECOND;
/// A change larger than this means that a clock was set.
const JUMP: i64 = SECOND as i64;

/// The waiting time of frames from a peer on a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delay {
    /// The smallest difference, and when it was last observed.
    base: Option<(i64, Nanos)>,
    /// The smallest difference in the current tick.
    tick: Option<i64>,
    /// The smallest difference since the new measurement began, during one.
    renewed: Option<i64>,
}

impl Delay {
    /// Records a heartbeat: `stamp` is the peer's clock, `arrived` this node's.
    pub(crate) fn sample(&mut self, arrived: Nanos, stamp: Nanos) {
        let difference = arrived.wrapping_sub(stamp).cast_signed();
        self.base = match self.base {
            Some((base, met)) if difference.wrapping_sub(base).unsigned_abs() < JUMP as u64 => {
                let near = difference < base.saturating_add(NEAR);
                Some((base.min(difference), if near { arrived } else { met }))
            }
            _ => Some((difference, arrived)),
        };
        let least = |old: Option<i64>| Some(old.map_or(difference, |old| old.min(difference)));
        self.tick = least(self.tick);
        self.renewed = self.renewed.and(least(self.renewed));
    }

    /// Returns the shortest waiting time since the last call, or none if no heartbeat came.
    pub(crate) fn take(&mut self) -> Option<Nanos> {
        let (base, _) = self.base?;
        Some(
            self.tick
                .take()?
                .saturating_sub(base)
                .max(0)
                .cast_unsigned(),
        )
    }

    /// Whether the smallest difference was not observed for so long that it may be out of date.
    pub(crate) fn is_stale(&self, now: Nanos) -> bool {
        self.base
            .is_some_and(|(_, met)| now.saturating_sub(met) > HOLDS)
    }

    pub(crate) fn begin_renewal(&mut self) {
        self.renewed = Some(i64::MAX);
    }

    pub(crate) fn end_renewal(&mut self, now: Nanos) {
        if let Some(least) = self.renewed.take().filter(|least| *least != i64::MAX) {
            self.base = Some((least, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_differences_count() {
        for offset in [0, 5 * SECOND, Nanos::MAX - 50 * SECOND] {
            let mut delay = Delay::default();
            assert_eq!(delay.take(), None);
            for (sent, came) in [(100, 101), (110, 115), (120, 123)] {
                let (sent, came) = (sent * MILLISECOND, came * MILLISECOND);
                delay.sample(came, sent.wrapping_add(offset));
                if sent == 100 * MILLISECOND {
                    assert_eq!(delay.take(), Some(0));
                }
            }
            assert_eq!(delay.take(), Some(2 * MILLISECOND));
            assert_eq!(delay.take(), None);
        }
    }

    #[test]
    fn a_drifting_clock_is_followed() {
        let mut delay = Delay::default();
        delay.sample(SECOND, 0);
        delay.sample(5 * SECOND, 4 * SECOND - 300 * MICROSECOND);
        assert!(delay.is_stale(5 * SECOND));
        delay.take();
        delay.begin_renewal();
        delay.sample(6 * SECOND, 5 * SECOND - 400 * MICROSECOND);
        delay.end_renewal(6 * SECOND);
        assert!(!delay.is_stale(6 * SECOND));
        assert_eq!(delay.take(), Some(0));
        // If a clock was set, the new difference replaces the old one.
        delay.sample(7 * SECOND, 90 * SECOND);
        assert_eq!(delay.take(), Some(0));
    }
}

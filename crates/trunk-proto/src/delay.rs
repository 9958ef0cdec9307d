//! How long frames of a peer wait on a link, from the stamps of its heartbeats.
//!
//! The two clocks have nothing in common, so only differences count: the least difference between
//! arrival and stamp is that of an empty way. It is renewed from time to time, since clocks drift
//! apart and ways change; the caller lets queues drain meanwhile.

use crate::{MICROSECOND, MILLISECOND, Nanos, SECOND};

/// Within this of the least, a way counts as empty.
const NEAR: i64 = 200 * MICROSECOND as i64;
/// The least difference holds so long without being met again.
const HOLDS: Nanos = 3 * SECOND;
/// How long it is looked for anew.
pub(crate) const RENEWAL: Nanos = 80 * MILLISECOND;
/// A clock that was set.
const JUMP: i64 = SECOND as i64;

/// The waiting time on a link from a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delay {
    /// The least difference, and when it was last met.
    base: Option<(i64, Nanos)>,
    /// The least of the present tick.
    tick: Option<i64>,
    /// The least since it is looked for anew.
    renewed: Option<i64>,
}

impl Delay {
    /// A heartbeat stamped by the peer's clock came at `arrived` by this node's.
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

    /// The least waiting time since this was last asked; none where no heartbeat came.
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

    /// The least difference has not been met for so long that it may no longer be true.
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
        // A clock that was set is taken as it is.
        delay.sample(7 * SECOND, 90 * SECOND);
        assert_eq!(delay.take(), Some(0));
    }
}

//! Whether to look for new work again and again, or to sleep until it comes.
//!
//! Waking a sleeping thread on an idle core costs tens of microseconds, more than a short call.
//! On a busy machine it is the other way round: the thread that looks keeps the one that would
//! bring the work from running. Neither the number of cores nor the load says which is the case,
//! so both ways are tried and the one with the shorter waits is used.

use std::time::Duration;

/// Every so many waits the other way is tried.
const TRIAL: u32 = 32;
/// Weight of the latest wait in the mean.
const WEIGHT: f64 = 1.0 / 8.0;
/// Spinning must shorten waits to this part, or the processor time is saved.
const WORTH: f64 = 0.9;

/// How one thread waits.
#[derive(Debug)]
pub(crate) struct Spin {
    /// How long to spin at most.
    most: Duration,
    /// Mean waits in seconds: asleep, spinning.
    means: [f64; 2],
    waits: u32,
    spinning: bool,
}

impl Spin {
    /// `most` bounds each spin; zero never spins.
    pub(crate) fn new(most: Duration) -> Spin {
        let start = most.as_secs_f64();
        Spin {
            most,
            means: [start, 0.0],
            waits: 0,
            spinning: !most.is_zero(),
        }
    }

    /// How long to spin in the wait that begins now, before sleeping.
    pub(crate) fn budget(&self) -> Duration {
        if self.spinning {
            self.most
        } else {
            Duration::ZERO
        }
    }

    /// A wait has ended, after this long. Chooses how the next one goes.
    pub(crate) fn waited(&mut self, time: Duration) {
        if self.most.is_zero() {
            return;
        }
        // A long wait is idleness, which says nothing about the cost of waking up.
        let time = time.min(4 * self.most).as_secs_f64();
        let mean = &mut self.means[usize::from(self.spinning)];
        *mean += (time - *mean) * WEIGHT;
        self.waits = self.waits.wrapping_add(1);
        let better = self.means[1] < WORTH * self.means[0];
        self.spinning = better != self.waits.is_multiple_of(TRIAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits a thousand times; returns how often it spun in the last hundred.
    fn spins(asleep: u64, spinning: u64) -> usize {
        let mut spin = Spin::new(Duration::from_micros(50));
        let mut spun = 0;
        for wait in 0..1000 {
            let time = if spin.budget().is_zero() {
                asleep
            } else {
                spinning
            };
            spun += usize::from(wait >= 900 && !spin.budget().is_zero());
            spin.waited(Duration::from_micros(time));
        }
        spun
    }

    #[test]
    fn the_shorter_waits_win() {
        assert!(spins(60, 10) > 90);
        assert!(spins(10, 60) < 10);
    }

    #[test]
    fn idleness_is_slept_through() {
        assert!(spins(5000, 5000) < 10);
    }

    #[test]
    fn zero_never_spins() {
        let mut spin = Spin::new(Duration::ZERO);
        (0..100).for_each(|_| spin.waited(Duration::from_micros(100)));
        assert!(spin.budget().is_zero());
    }
}

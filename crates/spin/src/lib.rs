//! Adaptive spinning: whether a waiting thread checks again or sleeps until another thread wakes
//! it.
//!
//! Waking a thread on an idle core takes tens of microseconds, which is more than a short call
//! takes. A thread that checks again and again keeps its core awake. Between two checks it yields
//! the core to any other thread that wants it. If the other threads are the ends of the same call,
//! they give the core back within microseconds. A thread that keeps the core has work of its own.
//! There are then more threads than cores, and spinning stops for a while.

mod latency;
mod seat;

pub use latency::Latency;
pub use seat::{Bell, Seat, Waiter};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time in nanoseconds. A thread that keeps the core for longer has work of its own.
const LATE: u64 = 500_000;
/// First pause of spinning, in nanoseconds. It doubles each time that spinning fails again soon
/// after.
const PAUSE: u64 = 10_000_000;
/// Longest pause. A try on a busy core costs a few milliseconds.
const LONGEST_PAUSE: u64 = 100_000_000;

/// The spinning state that the threads of one kind share.
///
/// ```
/// let spin = farcall_spin::Spin::new(std::time::Duration::from_micros(100));
/// let news = || true;
/// let mut wait = spin.begin();
/// while !news() {
///     if !wait.look_again() {
///         // Sleep until another thread signals news.
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Spin {
    most: u64,
    /// Start of the times, which are in nanoseconds.
    origin: Instant,
    paused_until: AtomicU64,
    pause: AtomicU64,
}

/// One wait. [`Spin::begin`] starts it.
#[derive(Debug)]
pub struct Wait<'s> {
    spin: &'s Spin,
    /// Time at which the wait stops spinning; 0 while spinning is paused.
    until: u64,
}

impl Spin {
    /// A state whose waits spin for at most `most`. With zero they never spin.
    pub fn new(most: Duration) -> Spin {
        Spin {
            most: u64::try_from(most.as_nanos()).unwrap_or(u64::MAX),
            origin: Instant::now(),
            paused_until: AtomicU64::new(0),
            pause: AtomicU64::new(PAUSE),
        }
    }

    /// Starts a wait.
    pub fn begin(&self) -> Wait<'_> {
        self.begin_for(Duration::ZERO)
    }

    /// Starts a wait that spins for at least `least`, unless waits never spin.
    pub fn begin_for(&self, least: Duration) -> Wait<'_> {
        let until = self.deadline(self.now(), least);
        Wait { spin: self, until }
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn deadline(&self, now: u64, least: Duration) -> u64 {
        if self.most == 0 || now < self.paused_until.load(Ordering::Relaxed) {
            return 0;
        }
        let least = u64::try_from(least.as_nanos()).unwrap_or(u64::MAX);
        now.saturating_add(self.most.max(least))
    }

    /// Records that this thread yielded the core from `start` to `end`. Returns whether it got the
    /// core back at once. If not, spinning pauses.
    fn let_run(&self, start: u64, end: u64) -> bool {
        if end - start <= LATE {
            return true;
        }
        let pause = self.pause.load(Ordering::Relaxed);
        // If the last pause ended long ago, start again with the first pause.
        let since = start.saturating_sub(self.paused_until.load(Ordering::Relaxed));
        let pause = match since > 4 * pause {
            true => PAUSE,
            false => (2 * pause).min(LONGEST_PAUSE),
        };
        self.pause.store(pause, Ordering::Relaxed);
        self.paused_until.store(end + pause, Ordering::Relaxed);
        false
    }
}

impl Wait<'_> {
    /// Whether this wait spins at all.
    pub fn spins(&self) -> bool {
        self.until > 0
    }

    /// Yields the core after a check without news. Returns whether to check again; if not, the
    /// thread should sleep.
    pub fn look_again(&mut self) -> bool {
        if !self.spins() {
            return false;
        }
        let start = self.spin.now();
        if start >= self.until {
            return false;
        }
        std::thread::yield_now();
        let in_time = self.spin.let_run(start, self.spin.now());
        if !in_time {
            self.until = 0;
        }
        in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin() -> Spin {
        Spin::new(Duration::from_micros(100))
    }

    #[test]
    fn a_wait_spins_for_its_time() {
        let spin = spin();
        assert_eq!(spin.deadline(7, Duration::ZERO), 100_007);
        assert!(spin.let_run(7, 50_000));
        assert_eq!(spin.deadline(50_000, Duration::ZERO), 150_000);
    }

    #[test]
    fn a_busy_core_is_left_alone_and_tried_again() {
        let spin = spin();
        assert!(!spin.let_run(0, 4_000_000));
        assert_eq!(spin.deadline(5_000_000, Duration::ZERO), 0);
        assert_ne!(spin.deadline(4_000_000 + 2 * PAUSE, Duration::ZERO), 0);
    }

    #[test]
    fn pauses_grow_while_the_core_stays_busy() {
        let spin = spin();
        let mut now = 0;
        let mut spun = 0;
        while now < 60_000_000_000 {
            if spin.deadline(now, Duration::ZERO) == 0 {
                now = spin.paused_until.load(Ordering::Relaxed);
            }
            spin.let_run(now, now + 4_000_000);
            now += 4_000_000;
            spun += 1;
        }
        assert!((550..650).contains(&spun), "{spun}");
    }

    #[test]
    fn after_a_quiet_time_the_first_pause_is_short_again() {
        let spin = spin();
        (0..10).for_each(|_| assert!(!spin.let_run(0, LATE + 1)));
        let later = 100 * LONGEST_PAUSE;
        assert!(!spin.let_run(later, later + LATE + 1));
        assert_ne!(spin.deadline(later + LATE + 1 + PAUSE, Duration::ZERO), 0);
    }

    #[test]
    fn zero_never_spins() {
        let spin = Spin::new(Duration::ZERO);
        assert!(!spin.begin().look_again());
        assert!(!spin.begin_for(Duration::from_secs(1)).look_again());
    }

    #[test]
    fn a_wait_for_something_slower_spins_for_longer() {
        let spin = spin();
        assert_eq!(spin.deadline(7, Duration::from_micros(300)), 300_007);
        assert_eq!(spin.deadline(7, Duration::from_micros(30)), 100_007);
    }

    #[test]
    fn a_wait_ends() {
        let spin = spin();
        let mut wait = spin.begin();
        let start = Instant::now();
        while wait.look_again() {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }
}

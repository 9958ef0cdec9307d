//! Other work on the machine, beside which a benchmark measures. It ends with the measurement, also
//! if that fails.

use crate::failure::Failure;
use farcall_trunk_device::set_priority;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a thread with a high priority takes from each core: so much of each period.
const BURST: Duration = Duration::from_millis(5);
const PERIOD: Duration = Duration::from_millis(25);
const HIGH: u8 = 50;

/// Ends the threads when it is dropped, also by a panic: the scope waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What else happens on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    None,
    /// Threads that never wait.
    Loops,
    /// A thread on each core that takes a fifth of its time in bursts, before all others.
    Bursts,
}

impl Disturbance {
    pub(crate) const ALL: [Disturbance; 3] =
        [Disturbance::None, Disturbance::Loops, Disturbance::Bursts];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Disturbance::None => "undisturbed",
            Disturbance::Loops => "beside busy loops",
            Disturbance::Bursts => "beside bursts",
        }
    }

    /// Measures while it lasts, with a thread or more for each core.
    pub(crate) fn during<T>(
        self,
        for_each: usize,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let over = AtomicBool::new(false);
        let cores = std::thread::available_parallelism()?.get();
        std::thread::scope(|scope| {
            let over = &over;
            let threads: Vec<_> = (0..for_each * cores)
                .filter(|_| self != Disturbance::None)
                .map(|thread| scope.spawn(move || self.disturb(thread % cores, over)))
                .collect();
            let ends = Ends(over);
            let measured = measure();
            drop(ends);
            for thread in threads {
                let panicked = |_| Err(Failure::failed("a thread panicked"));
                thread.join().unwrap_or_else(panicked)?;
            }
            measured
        })
    }

    /// Whether this process may make it: bursts need a right of root.
    pub(crate) fn is_allowed(self) -> bool {
        let try_it = || set_priority(Some(HIGH)).is_ok();
        self != Disturbance::Bursts || std::thread::spawn(try_it).join().unwrap_or(false)
    }

    fn disturb(self, core: usize, over: &AtomicBool) -> Result<(), Failure> {
        if self == Disturbance::Bursts {
            let mut only = CpuSet::new();
            only.set(core);
            sched_setaffinity(None, &only).map_err(std::io::Error::from)?;
            set_priority(Some(HIGH))?;
        }
        while !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            while begun.elapsed() < BURST {
                std::hint::spin_loop();
            }
            if self == Disturbance::Bursts {
                std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the threads would use all processors for ever.
    #[test]
    fn other_work_ends_with_a_measurement_that_panics() {
        let measure = || Disturbance::Loops.during::<()>(1, || panic!("a measurement"));
        assert!(std::panic::catch_unwind(measure).is_err());
        assert_eq!(Disturbance::Loops.during(1, || Ok(7)).unwrap(), 7);
    }
}

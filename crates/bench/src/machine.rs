//! Measures how busy the machine is, from the counters of its kernel. The counters are those of the
//! whole machine, so other programs count too. The measuring thread does not count itself.
//!
//! Busy is all time in which the processors were not idle. The kernel measures idle time exactly.
//! What it counts as busy can be samples, one for each tick, which miss work that ends before the
//! next tick: most of the work for packets of a slow network does.

use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two samples of the running threads.
const PERIOD: Duration = Duration::from_millis(50);

/// A thread that takes samples.
pub(crate) struct Machine {
    over: Arc<AtomicBool>,
    looker: JoinHandle<(f64, u32)>,
    since: Instant,
    before: Times,
}

/// Time since the machine started, of all cores together, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    idle: f64,
    stolen: f64,
    cores: usize,
}

/// The use of the machine during a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    /// Share of the time of all cores in which they were not idle, in percent.
    pub(crate) cpu_percent: f64,
    /// Share of that time that the host of a virtual machine took for others, in percent.
    pub(crate) stolen_percent: f64,
    /// Mean number of threads that were running or ready to run.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn watch() -> Machine {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let looker = std::thread::spawn(move || {
            let (mut sum, mut count) = (0.0, 0);
            while !ends.load(Ordering::Relaxed) {
                // Do not count this thread.
                sum += running().map_or(0.0, |running| running - 1.0);
                count += 1;
                std::thread::park_timeout(PERIOD);
            }
            (sum, count)
        });
        Machine {
            over,
            looker,
            since: Instant::now(),
            before: times().unwrap_or_default(),
        }
    }

    pub(crate) fn end(self) -> Use {
        let now = times().unwrap_or_default();
        let all = self.since.elapsed().as_secs_f64() * now.cores.max(1) as f64;
        self.over.store(true, Ordering::Relaxed);
        self.looker.thread().unpark();
        let (sum, count) = self.looker.join().unwrap_or_default();
        let percent = |time: f64| (100.0 * time / all).clamp(0.0, 100.0);
        Use {
            cpu_percent: percent(all - (now.idle - self.before.idle)),
            stolen_percent: percent(now.stolen - self.before.stolen),
            load: sum / f64::from(count.max(1)),
        }
    }
}

impl Use {
    /// Adds it to the JSON object of a benchmark.
    pub(crate) fn add_to(&self, told: &mut Value) {
        told["load"] = json!(self.load);
        told["stolen_percent"] = json!(self.stolen_percent);
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Use {
            load,
            stolen_percent,
            ..
        } = self;
        write!(
            f,
            "(load of the machine {load:.1}, {stolen_percent:.1} % of its time stolen)"
        )
    }
}

/// Seconds that the threads of a process have been on processors. Threads that have ended do not
/// count.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, Failure> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // The first number is the time on a processor. A thread can end meanwhile.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let first = text.split_whitespace().next();
        nanoseconds += first.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(nanoseconds as f64 / 1e9)
}

/// Number of threads that run or are ready to run. It begins the fourth word of /proc/loadavg.
fn running() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace()
        .nth(3)?
        .split('/')
        .next()?
        .parse()
        .ok()
}

fn times() -> Option<Times> {
    times_in(&fs::read_to_string("/proc/stat").ok()?)
}

/// Reads the text of /proc/stat (proc(5)), whose unit is a hundredth of a second.
fn times_in(text: &str) -> Option<Times> {
    let cores = text.lines().filter(|line| {
        let number = line.strip_prefix("cpu");
        number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    });
    let fields = text.lines().next()?.split_whitespace().skip(1);
    let fields: Vec<f64> = fields.map_while(|word| word.parse().ok()).collect();
    // The fourth and fifth fields are idle time, and idle time that waits for a disk; the eighth is
    // stolen time.
    Some(Times {
        idle: (fields.get(3)? + fields.get(4)?) / 100.0,
        stolen: fields.get(7).unwrap_or(&0.0) / 100.0,
        cores: cores.count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_of_all_cores() {
        let text = "cpu  10 0 20 300 50 0 7 4 0 0\ncpu0 5 0 10 150 25 0 7 2 0 0\n\
                    cpu1 5 0 10 150 25 0 0 2 0 0\nintr 12 0\nctxt 7\n";
        let found = Times {
            idle: 3.5,
            stolen: 0.04,
            cores: 2,
        };
        assert_eq!(times_in(text), Some(found));
        assert_eq!(times_in("cpu  10 0"), None);
    }

    #[test]
    fn a_thread_that_computes_is_seen() {
        let machine = Machine::watch();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(300) {
            std::hint::black_box(start);
        }
        let used = machine.end();
        let least = 90.0 / std::thread::available_parallelism().unwrap().get() as f64;
        assert!(used.cpu_percent >= least, "{used:?}");
    }
}

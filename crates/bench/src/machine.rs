//! Measures how busy the machine is, from the counters of its kernel. The counters are those of the
//! whole machine, so other programs count too. The measuring thread does not count itself.

use crate::failure::Failure;
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two samples of the running threads.
const PERIOD: Duration = Duration::from_millis(50);

/// A thread that takes samples.
pub(crate) struct Machine {
    over: Arc<AtomicBool>,
    looker: JoinHandle<(f64, u32)>,
    before: Ticks,
}

/// Time of all cores since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    busy: u64,
    stolen: u64,
    all: u64,
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
            before: cpu_time().unwrap_or_default(),
        }
    }

    pub(crate) fn end(self) -> Use {
        let now = cpu_time().unwrap_or_default();
        self.over.store(true, Ordering::Relaxed);
        self.looker.thread().unpark();
        let (sum, count) = self.looker.join().unwrap_or_default();
        let all = now.all.saturating_sub(self.before.all).max(1) as f64;
        let percent = |now: u64, before: u64| 100.0 * now.saturating_sub(before) as f64 / all;
        Use {
            cpu_percent: percent(now.busy, self.before.busy),
            stolen_percent: percent(now.stolen, self.before.stolen),
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

fn cpu_time() -> Option<Ticks> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    let all = ticks.iter().sum::<u64>();
    // The fourth and fifth fields are idle time, and idle time that waits for a disk; the eighth is
    // stolen time.
    Some(Ticks {
        busy: all - ticks.get(3)? - ticks.get(4)?,
        stolen: ticks.get(7).copied().unwrap_or(0),
        all,
    })
}

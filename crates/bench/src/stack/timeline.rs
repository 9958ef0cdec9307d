//! What happened when, as a folder of files: faults, calls and what the trunks of the first nodes
//! say about their links; and the traces of the gangs. benches/stack/timeline.py draws them.

use super::calls::{Fate, Made};
use crate::failure::Failure;
use farcall_lab::stack::{NODES, SITES, Stack, head, name_of, node_name};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The faults so far, and the beginning of all times.
pub(super) struct Timeline {
    start: Instant,
    /// The same moment by the clock of the gang's traces.
    start_ns: u128,
    /// The same moment by the clock of the trunks, in seconds since 1970.
    start_unix: f64,
    /// The addresses of the nodes' trunks, by the names of the nodes.
    trunks: Map<String, Value>,
    faults: Mutex<Vec<(f64, String)>>,
    /// What the trunk of each site's first node has said so far about its links.
    links: Mutex<[Vec<Value>; SITES]>,
}

impl Timeline {
    pub(super) fn begin(
        stack: &Stack,
        farcall: &Path,
        start: Instant,
    ) -> Result<Timeline, Failure> {
        let trunks = (0..SITES * NODES).map(|host| {
            let told: Value =
                serde_json::from_str(&trunk(stack, farcall, host)?).map_err(Failure::failed)?;
            Ok((node_name(host), told["address"].clone()))
        });
        let trunks = trunks.collect::<Result<_, Failure>>()?;
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = start.elapsed();
        Ok(Timeline {
            start,
            start_ns: now.saturating_sub(since).as_nanos(),
            start_unix: (unix.map_err(Failure::failed)? - since).as_secs_f64(),
            trunks,
            faults: Mutex::default(),
            links: Mutex::default(),
        })
    }

    /// Seconds since the beginning.
    pub(super) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Waits until so many seconds after the beginning.
    pub(super) fn wait(&self, seconds: f64) {
        let at = self.start + Duration::from_secs_f64(seconds);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
    }

    pub(super) fn fault(&self, what: String) {
        taken(&self.faults).push((self.now(), what));
    }

    /// Asks the trunks what has happened to their links, before they forget it.
    pub(super) fn look(&self, stack: &Stack, farcall: &Path) -> Result<(), Failure> {
        for (site, known) in taken(&self.links).iter_mut().enumerate() {
            let told: Value = serde_json::from_str(&trunk(stack, farcall, head(site))?)
                .map_err(Failure::failed)?;
            let events = told["events"].as_array().cloned().unwrap_or_default();
            let new = events.into_iter().filter(|event| !known.contains(event));
            let new: Vec<Value> = new.collect();
            known.extend(new);
        }
        Ok(())
    }

    /// Writes the files to a folder.
    pub(super) fn write(
        &self,
        folder: &Path,
        stack: &Stack,
        farcall: &Path,
        made: &[Made],
    ) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)?;
        for site in 0..SITES {
            let name = name_of(site);
            std::fs::copy(stack.trace(site), folder.join(format!("gang-{name}.csv")))?;
        }
        self.look(stack, farcall)?;
        let told = json!({
            "schema": 1,
            "start_ns": self.start_ns as u64,
            "start_unix": self.start_unix,
            "trunks": self.trunks,
            "faults": *taken(&self.faults),
            "links": *taken(&self.links),
            "calls": made.iter().map(Made::to_json).collect::<Vec<Value>>(),
        });
        std::fs::write(folder.join("calls.json"), format!("{told}\n"))?;
        Ok(())
    }
}

fn taken<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the trunk of a node says.
fn trunk(stack: &Stack, farcall: &Path, host: usize) -> Result<String, Failure> {
    let words = ["trunk", "status", "--json"];
    let output = stack.lab().output(host, &farcall.to_string_lossy(), &words);
    output.map_err(Failure::failed)
}

impl Made {
    fn to_json(&self) -> Value {
        let (fate, error) = match &self.fate {
            Fate::Right => ("right", None),
            Fate::Wrong => ("wrong", None),
            Fate::Told(error) => ("told", Some(error)),
        };
        json!({
            "pes": self.pes,
            "at_s": self.at_s,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "server": self.server.map(|server| format!("{server:x}")),
            "fate": fate,
            "error": error,
        })
    }
}

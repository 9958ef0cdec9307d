//! Limits the processor time of processes on a host, with groups of Linux's `cpu` controller of
//! either version. A group is removed when it is dropped.

use crate::LabError;
use crate::owner::Owner;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The period of a quota in microseconds. It is short compared with a call.
const PERIOD: f64 = 20_000.0;
/// The greatest weights of a group, of either version.
const MOST_SHARES: u32 = 262_144;
const MOST_WEIGHT: u32 = 10_000;
/// How long to wait until killed processes are gone.
const PATIENCE: Duration = Duration::from_secs(2);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A group of processes that together can use a share of the processors. Needs root.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
}

/// The folder in which groups are created, by the controller's version.
enum Controller {
    One(PathBuf),
    Two(PathBuf),
}

impl Quota {
    /// Creates a group with this many processors; 0.5 is half of one. Beside other work on the
    /// machine, the kernel serves the group first.
    ///
    /// # Errors
    /// Returns the reason if the machine has no usable `cpu` controller.
    pub fn new(processors: f64) -> Result<Quota, LabError> {
        let controller = controller()?;
        let (Controller::One(place) | Controller::Two(place)) = &controller;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = place.join(Owner::own().name(number));
        let refused =
            |error: std::io::Error| LabError::NoQuota(format!("{}: {error}", folder.display()));
        fs::create_dir(&folder).map_err(refused)?;
        let quota = Quota {
            folder: folder.clone(),
        };
        let (part, period) = ((processors * PERIOD) as u64, PERIOD as u64);
        let write = |name: &str, text: String| fs::write(folder.join(name), text);
        match controller {
            Controller::One(_) => write("cpu.cfs_period_us", period.to_string())
                .and_then(|()| write("cpu.cfs_quota_us", part.to_string()))
                .and_then(|()| write("cpu.shares", MOST_SHARES.to_string())),
            Controller::Two(_) => write("cpu.max", format!("{part} {period}"))
                .and_then(|()| write("cpu.weight", MOST_WEIGHT.to_string())),
        }
        .map_err(refused)?;
        Ok(quota)
    }

    /// A process that writes its process id into this file joins the group, with all processes that
    /// it starts.
    pub(crate) fn processes(&self) -> PathBuf {
        processes(&self.folder)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        remove_group(&self.folder);
    }
}

fn processes(folder: &Path) -> PathBuf {
    folder.join("cgroup.procs")
}

fn controller() -> Result<Controller, LabError> {
    let mounts = fs::read_to_string("/proc/mounts")?;
    let mounts = || mounts.lines().filter_map(mount);
    let one = mounts().find(|(_, kind, options)| {
        *kind == "cgroup" && options.split(',').any(|option| option == "cpu")
    });
    if let Some((place, ..)) = one {
        return Ok(Controller::One(place));
    }
    let two = mounts().map(|(place, kind, _)| (place, kind));
    let has_cpu = |place: &Path| {
        let known = fs::read_to_string(place.join("cgroup.subtree_control"));
        known.is_ok_and(|known| known.split_whitespace().any(|one| one == "cpu"))
    };
    let mut two = two.filter(|(place, kind)| *kind == "cgroup2" && has_cpu(place));
    let (place, _) = two.next().ok_or_else(|| {
        LabError::NoQuota("no `cpu` controller of control groups is mounted and enabled".into())
    })?;
    Ok(Controller::Two(place))
}

/// Parses a line of the mount table: the mount point, the type, and the options.
fn mount(line: &str) -> Option<(PathBuf, &str, &str)> {
    let mut words = line.split(' ').skip(1);
    Some((words.next()?.into(), words.next()?, words.next()?))
}

/// Removes the groups of some processes. The next lab removes those that cannot be removed now.
pub(crate) fn remove(is_one: impl Fn(Owner) -> bool) {
    let Ok(Controller::One(place) | Controller::Two(place)) = controller() else {
        return;
    };
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(Owner::of);
        if owner.is_some_and(&is_one) {
            remove_group(&entry.path());
        }
    }
}

/// Kills the processes of a group, which were all started for the lab, and removes it.
fn remove_group(folder: &Path) {
    let end = Instant::now() + PATIENCE;
    while fs::remove_dir(folder).is_err() && folder.exists() && Instant::now() < end {
        let left = fs::read_to_string(processes(folder)).unwrap_or_default();
        let left = left.lines().filter_map(|line| line.parse().ok());
        for process in left.filter_map(Pid::from_raw) {
            // The process may have ended by itself.
            let _ = kill_process(process, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_line_gives_place_type_and_options() {
        let (place, kind, options) = mount("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0").unwrap();
        assert_eq!(place, Path::new("/sys/fs/cgroup/cpu"));
        assert_eq!((kind, options), ("cgroup", "rw,cpu"));
        assert!(mount("cgroup").is_none());
    }
}

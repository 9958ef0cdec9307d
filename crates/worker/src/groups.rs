//! A control group for each worker, which bounds the memory and the number of all its processes.
//!
//! The server makes the groups below its own group, or below the parent of its own group, as
//! systemd arranges it with `DelegateSubgroup`. It can use both versions of control groups. Memory
//! that the server maps for calls does not count: the bound grows with it.

use rustix::fd::OwnedFd;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// First part of the names of workers' groups. The server's process id follows.
const PREFIX: &str = "farcall-";

/// Where the groups of workers are made, by what they bound.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    memory: Option<Place>,
    processes: Option<Place>,
}

/// A folder in which groups can be made.
#[derive(Clone, Debug)]
struct Place {
    folder: PathBuf,
    /// The file with the limit.
    limit: &'static str,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// How a new process becomes a member of control groups. A write to `cgroup.procs` takes 10 ms: the
/// kernel then lets no process start another before it has moved this one.
#[derive(Debug, Default)]
pub(crate) struct Join {
    /// Version 1: files to which it writes `0`, to move its only thread.
    pub(crate) tasks: Vec<OwnedFd>,
    /// Version 2, where a thread cannot leave its process: the group in which it is made.
    pub(crate) made_in: Option<MadeIn>,
}

/// A group of version 2 for a new process.
#[derive(Debug)]
pub(crate) struct MadeIn {
    pub(crate) folder: OwnedFd,
    /// Its `cgroup.procs`, for a system that cannot make a process in a group.
    pub(crate) processes: OwnedFd,
}

/// The groups of one worker. They are removed with this value, after the worker has ended.
#[derive(Debug, Default)]
pub(crate) struct Group {
    folders: Vec<PathBuf>,
    /// The file with the limit on memory, and the limit without mapped memory.
    memory: Option<(PathBuf, u64)>,
}

impl Groups {
    /// The groups that this process may make, and why others are missing.
    pub fn available() -> (Groups, Vec<String>) {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        // Other file systems can be in folders whose names are no text.
        let mounts = fs::read("/proc/self/mounts").unwrap_or_default();
        let mounts = String::from_utf8_lossy(&mounts).into_owned();
        let mut refused = Vec::new();
        let mut find = |controller, what, limits| match find(&own, &mounts, controller, limits) {
            Ok(place) => Some(place),
            Err(error) => {
                refused.push(format!(
                    "no control group bounds {what} of a worker: {error}"
                ));
                None
            }
        };
        let memory = ["memory.limit_in_bytes", "memory.max"];
        let groups = Groups {
            memory: find("memory", "the memory of all processes", memory),
            processes: find("pids", "the number of processes", ["pids.max", "pids.max"]),
        };
        groups.remove_left_over();
        (groups, refused)
    }

    /// Whether they bound the number of processes.
    pub fn bound_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Whether they bound memory.
    pub fn bound_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Makes the groups of a worker. A limit of 0 means none.
    pub(crate) fn make(&self, memory: u64, processes: u64) -> io::Result<(Group, Join)> {
        let (mut group, mut join, name) = (Group::default(), Join::default(), new_name());
        for (place, limit) in [(&self.memory, memory), (&self.processes, processes)] {
            let Some(place) = place.as_ref().filter(|_| limit > 0) else {
                continue;
            };
            let folder = place.folder.join(&name);
            if !group.folders.contains(&folder) {
                fs::create_dir(&folder)?;
                group.folders.push(folder.clone());
                join.add(&folder, place.version)?;
            }
            let bound = folder.join(place.limit);
            fs::write(&bound, limit.to_string())?;
            if place.limit.starts_with("memory") {
                group.memory = Some((bound, limit));
            }
        }
        Ok((group, join))
    }

    /// Removes groups of servers that were killed.
    fn remove_left_over(&self) {
        for place in [&self.memory, &self.processes].into_iter().flatten() {
            for entry in fs::read_dir(&place.folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
                let server = rest.and_then(|rest| rest.split('-').next());
                let server = server.and_then(|server| server.parse::<u32>().ok());
                if server.is_some_and(|server| !Path::new(&format!("/proc/{server}")).exists()) {
                    // A group with processes stays.
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }
}

impl Join {
    fn add(&mut self, folder: &Path, version: Version) -> io::Result<()> {
        let write = |name| fs::OpenOptions::new().write(true).open(folder.join(name));
        match version {
            Version::One => self.tasks.push(write("tasks")?.into()),
            Version::Two => {
                self.made_in = Some(MadeIn {
                    folder: fs::File::open(folder)?.into(),
                    processes: write("cgroup.procs")?.into(),
                });
            }
        }
        Ok(())
    }
}

impl Group {
    /// Lets the worker have this much memory of the server mapped.
    pub(crate) fn allow_mapped(&self, bytes: u64) {
        if let Some((file, limit)) = &self.memory {
            // If the group is gone, so is the worker.
            let _ = fs::write(file, limit.saturating_add(bytes).to_string());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in &self.folders {
            // If a process is still ending, the next server removes it.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn new_name() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{number}", std::process::id())
}

/// Where groups with a controller can be made: below the process's own group, or below its parent.
fn find(
    own: &str,
    mounts: &str,
    controller: &str,
    [first, second]: [&'static str; 2],
) -> io::Result<Place> {
    let mut lines = own.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        rest.split_once(':')
    });
    let of_first = lines
        .clone()
        .find(|(list, _)| list.split(',').any(|one| one == controller));
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the system has none for it");
    if let Some((_, path)) = of_first {
        let root = mounted(mounts, "cgroup", Some(controller)).ok_or_else(missing)?;
        let folder = below(&root, path);
        try_place(&folder)?;
        return Ok(Place {
            folder,
            limit: first,
            version: Version::One,
        });
    }
    let (_, path) = lines
        .find(|(list, _)| list.is_empty())
        .ok_or_else(missing)?;
    let root = mounted(mounts, "cgroup2", None).ok_or_else(missing)?;
    let own = below(&root, path);
    let parent = own.parent().filter(|parent| parent.starts_with(&root));
    let mut last = missing();
    for folder in [Some(own.as_path()), parent].into_iter().flatten() {
        let known = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        if !known.split_whitespace().any(|one| one == controller) {
            continue;
        }
        let control = folder.join("cgroup.subtree_control");
        let before = fs::read_to_string(&control).unwrap_or_default();
        let enabled = fs::write(&control, format!("+{controller}"));
        let tried = enabled.and_then(|()| try_place(folder));
        if tried.is_err() && !before.split_whitespace().any(|one| one == controller) {
            let _ = fs::write(&control, format!("-{controller}"));
        }
        match tried {
            Ok(()) => {
                let folder = folder.to_path_buf();
                return Ok(Place {
                    folder,
                    limit: second,
                    version: Version::Two,
                });
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Makes a group, to see whether it can be made and have processes. Below a group that has
/// processes itself, some controllers can be enabled, but no group can have any.
fn try_place(folder: &Path) -> io::Result<()> {
    let group = folder.join(new_name());
    fs::create_dir(&group)?;
    let kind = fs::read_to_string(group.join("cgroup.type")).unwrap_or_default();
    fs::remove_dir(group)?;
    match kind.trim() {
        "domain invalid" => Err(io::Error::other(format!(
            "the group {} has processes itself",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Where a file system of control groups is mounted.
fn mounted(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    let found = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, of_kind, options) = (words.next()?, words.next()?, words.next()?);
        let has_option = option.is_none_or(|option| options.split(',').any(|one| one == option));
        (of_kind == kind && has_option).then_some(place)
    });
    found.map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions_are_found() {
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let memory = mounted(mounts, "cgroup", Some("memory"));
        assert_eq!(memory, Some(PathBuf::from("/sys/fs/cgroup/memory")));
        assert_eq!(mounted(mounts, "cgroup", Some("pids")), None);
        let unified = mounted(mounts, "cgroup2", None);
        assert_eq!(unified, Some(PathBuf::from("/sys/fs/cgroup/unified")));
    }

    /// A folder as version 2 shows it; the kernel's checks are missing.
    #[test]
    fn groups_of_version_2_are_below_the_servers_group_or_its_parent() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("unit.service/server");
        fs::create_dir_all(&own).unwrap();
        let mounts = format!("cgroup2 {} cgroup2 rw 0 0\n", root.path().display());
        let limits = ["memory.limit_in_bytes", "memory.max"];
        let place = || find("0::/unit.service/server\n", &mounts, "memory", limits);
        assert!(place().is_err());
        fs::write(
            root.path().join("unit.service/cgroup.controllers"),
            "cpu memory\n",
        )
        .unwrap();
        fs::write(root.path().join("unit.service/cgroup.subtree_control"), "").unwrap();
        let place = place().unwrap();
        assert_eq!(place.folder, root.path().join("unit.service"));
        assert_eq!(place.limit, "memory.max");
    }

    /// The controllers of version 2 may be missing on this system, but not its groups.
    #[test]
    fn a_process_can_be_made_in_a_group_of_version_2() {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let Some(root) = mounted(&mounts, "cgroup2", None) else {
            eprintln!("SKIPPED: this system has no control groups of version 2");
            return;
        };
        let (name, mut join) = (new_name(), Join::default());
        let folder = root.join(&name);
        if let Err(error) = fs::create_dir(&folder) {
            eprintln!("SKIPPED: {}: {error}", folder.display());
            return;
        }
        let group = Group {
            folders: vec![folder.clone()],
            memory: None,
        };
        join.add(&folder, Version::Two).unwrap();
        let text = crate::namespaces::tests::printed("cat /proc/self/cgroup", join);
        assert!(text.contains(&format!("0::/{name}")), "{text}");
        drop(group);
        assert!(!folder.exists(), "the group is removed");
    }
}

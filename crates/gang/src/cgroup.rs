//! The control group (version 2) of a gang job on a node. All its processes can be frozen and
//! killed together.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the end of a process may take to reach its group.
const REMOVAL: Duration = Duration::from_secs(1);
/// Bytes of a group's events that are read. They are two lines today.
const MOST_EVENTS: usize = 256;

/// The folder that contains the groups of gang jobs.
#[derive(Debug)]
pub(crate) struct Groups {
    folder: PathBuf,
    /// The guard waits as long as this is open.
    guarded: Option<ChildStdin>,
}

/// The guard cleans up after a daemon that was killed: it kills all processes in the daemon's
/// groups and removes the groups. It is a process without a parent, so that the daemon does not
/// have to wait for it. The end of its input does not tell the end of the daemon: processes that
/// are born frozen hold the other end until they run. It serves only where `tail` cannot watch a
/// process.
const GUARD: &str = r#"
exec 3<&0
(
    tail --pid="$1" -s 0.2 -f /dev/null || read -r _ <&3
    cd "$0" || exit
    echo 1 > cgroup.kill || kill -9 $(cat */cgroup.procs)
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        for group in */*/*/ */*/ */; do rmdir "$group"; done
        cd .. && rmdir "$0" && exit
        sleep 0.1
        cd "$0" || exit
    done
) > /dev/null 2>&1 &
"#;

/// Starts the guard of a folder.
fn guard(folder: &Path) -> Option<ChildStdin> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", GUARD]).arg(folder);
    shell.arg(std::process::id().to_string());
    shell.stdin(Stdio::piped()).stdout(Stdio::null());
    shell.stderr(Stdio::null()).process_group(0);
    let mut started = shell.spawn().ok()?;
    let input = started.stdin.take();
    started.wait().ok()?;
    input
}

/// The group of a gang job. Files that each switch needs stay open: to find them again takes longer
/// than to use them.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    /// The open folder, into which processes are born.
    entrance: Arc<OwnedFd>,
    freezer: File,
    events: File,
}

/// Whether a daemon of this user can keep jobs in control groups (version 2).
pub fn control_groups_work() -> bool {
    Groups::unguarded().is_some()
}

impl Groups {
    /// Creates a folder of this daemon, or returns none if the system has no version 2 or does not
    /// permit it.
    pub(crate) fn new() -> Option<Groups> {
        let mut groups = Groups::unguarded()?;
        groups.guarded = guard(&groups.folder);
        Some(groups)
    }

    fn unguarded() -> Option<Groups> {
        // Other file systems can be in folders whose names are no text.
        let mounts = fs::read("/proc/self/mounts").ok()?;
        let mounts = String::from_utf8_lossy(&mounts).into_owned();
        let mount = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let (_, path, kind) = (fields.next()?, fields.next()?, fields.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(path))
        })?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let folder = mount
            .join(own)
            .join(format!("farcall-gang-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let groups = Groups {
            folder,
            guarded: None,
        };
        // Some systems permit to create a group but not to start a process in it.
        let probe = groups.make("probe").ok()?;
        let works = crate::start::is_born_into(&probe.entrance());
        probe.wait("populated 0", Instant::now() + REMOVAL);
        probe.remove();
        works.then_some(groups)
    }

    pub(crate) fn make(&self, name: &str) -> io::Result<Group> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        Group::open(&folder).inspect_err(|_| {
            // Nobody else knows of it.
            let _ = fs::remove_dir(&folder);
        })
    }

    /// Makes a group that freezes its processes when they are born.
    pub(crate) fn make_frozen(&self, name: &str) -> io::Result<Group> {
        let group = self.make(name)?;
        group.freeze().inspect_err(|_| {
            group.remove();
        })?;
        Ok(group)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Group {
    fn open(folder: &Path) -> io::Result<Group> {
        let events = File::open(folder.join("cgroup.events"))?;
        let freezer = File::options()
            .write(true)
            .open(folder.join("cgroup.freeze"))?;
        Ok(Group {
            folder: folder.to_path_buf(),
            entrance: Arc::new(File::open(folder)?.into()),
            freezer,
            events,
        })
    }

    /// The folder into which processes are born.
    pub(crate) fn entrance(&self) -> Arc<OwnedFd> {
        self.entrance.clone()
    }

    /// Begins to freeze all processes.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        self.freezer.write_all_at(b"1", 0)
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.freezer.write_all_at(b"0", 0)
    }

    /// Waits until all processes are frozen. Returns false if they are not at `end`.
    pub(crate) fn wait_frozen(&self, end: Instant) -> bool {
        self.wait("frozen 1", end)
    }

    /// Waits for a line in the group's events.
    fn wait(&self, line: &str, end: Instant) -> bool {
        loop {
            let mut text = [0; MOST_EVENTS];
            let read = self.events.read_at(&mut text, 0);
            let mut lines = text.split(|byte| *byte == b'\n');
            if read.is_ok() && lines.any(|other| other == line.as_bytes()) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if read.is_err() || left.is_zero() {
                return false;
            }
            let mut events = [PollFd::from_borrowed_fd(
                self.events.as_fd(),
                PollFlags::PRI,
            )];
            let left = left.min(Duration::from_millis(20));
            let _ = poll(&mut events, Timespec::try_from(left).ok().as_ref());
        }
    }

    /// Removes the group, whose processes were killed. Returns false if it still has some.
    pub(crate) fn remove(&self) -> bool {
        remove_all(&self.folder).is_ok()
    }

    /// Kills all processes in the group.
    pub(crate) fn kill(&self) {
        if fs::write(self.folder.join("cgroup.kill"), "1").is_err() {
            // Kernels before 5.14 have no such file.
            kill_each(&self.folder);
        }
    }
}

fn kill_each(folder: &Path) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let processes = text.lines().filter_map(|line| line.parse().ok());
    for process in processes.filter_map(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    }
}

/// Removes a group and those that its processes have made in it, as a container or a daemon within
/// a gang job does. An empty group in it would keep it for ever.
fn remove_all(folder: &Path) -> io::Result<()> {
    let remove = || match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    if remove().is_ok() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_all(&entry.path())?;
        }
    }
    remove()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For the folders of the file system of control groups the same calls are enough.
    #[test]
    fn a_group_is_removed_with_those_that_its_processes_have_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let group = folder.path().join("job-1");
        fs::create_dir_all(group.join("inner/job-1")).expect("room");
        fs::create_dir(group.join("other")).expect("room");
        remove_all(&group).expect("all are empty");
        assert!(!group.exists());
        remove_all(&group).expect("it is gone");
        // What is not empty stays, as a group with processes does.
        fs::create_dir_all(group.join("inner")).expect("room");
        fs::write(group.join("inner/file"), "").expect("room");
        assert!(remove_all(&group).is_err() && group.exists());
    }

    /// The daemon may have no descriptors left. An ordinary folder lacks the files of a group.
    #[test]
    fn a_group_that_cannot_be_used_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let groups = Groups {
            folder: folder.path().join("groups"),
            guarded: None,
        };
        fs::create_dir(&groups.folder).expect("room");
        assert!(groups.make_frozen("job-1").is_err());
        assert!(!groups.folder.join("job-1").exists());
    }
}

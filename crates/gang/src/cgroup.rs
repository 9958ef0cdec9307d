//! The control group (version 2) of a gang job on a node. All its processes can be frozen and
//! killed together.

use rustix::event::{PollFd, PollFlags, poll};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time that freezing a group may take.
const BOUND: Duration = Duration::from_secs(1);

/// The folder that contains the groups of gang jobs.
#[derive(Debug)]
pub(crate) struct Groups {
    folder: PathBuf,
    /// The guard waits as long as this is open.
    guarded: Option<ChildStdin>,
}

/// The guard cleans up after a daemon that was killed: it kills all processes in the daemon's
/// groups and removes the groups. It is a process without a parent, so that the daemon does not
/// have to wait for it.
const GUARD: &str = r#"
exec 3<&0
(
    read -r _ <&3
    cd "$0" || exit
    echo 1 > cgroup.kill || kill -9 $(cat */cgroup.procs)
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        for group in */; do rmdir "$group"; done
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
    shell.stdin(Stdio::piped()).stdout(Stdio::null());
    shell.stderr(Stdio::null()).process_group(0);
    let mut started = shell.spawn().ok()?;
    let input = started.stdin.take();
    started.wait().ok()?;
    input
}

/// The group of a gang job. Dropping it kills its processes and removes it.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    events: File,
}

impl Groups {
    /// Creates a folder of this daemon, or returns none if the system has no version 2 or does not
    /// permit it.
    pub(crate) fn new() -> Option<Groups> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
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
        let mut groups = Groups {
            folder,
            guarded: None,
        };
        // Some systems permit to create a group but not to put a process into it.
        groups.make("probe").ok()?;
        groups.guarded = guard(&groups.folder);
        Some(groups)
    }

    pub(crate) fn make(&self, name: &str) -> io::Result<Group> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder)?;
        let events = File::open(folder.join("cgroup.events"))?;
        fs::metadata(folder.join("cgroup.freeze"))?;
        Ok(Group { folder, events })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

impl Group {
    /// The file into which a process writes `0` to enter the group.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        let file = File::options()
            .write(true)
            .open(self.folder.join("cgroup.procs"))?;
        Ok(file.into())
    }

    /// Freezes all processes and returns when they are frozen. Returns false if some are not frozen
    /// in time.
    pub(crate) fn freeze(&self) -> io::Result<bool> {
        fs::write(self.folder.join("cgroup.freeze"), "1")?;
        self.wait("frozen 1")
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.freeze"), "0")
    }

    /// Waits for a line in the group's events.
    fn wait(&self, line: &str) -> io::Result<bool> {
        let end = Instant::now() + BOUND;
        loop {
            let mut text = String::new();
            (&self.events).seek(SeekFrom::Start(0))?;
            (&self.events).read_to_string(&mut text)?;
            if text.lines().any(|other| other == line) {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            let mut events = [PollFd::from_borrowed_fd(
                self.events.as_fd(),
                PollFlags::PRI,
            )];
            let timeout = rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 20_000_000,
            };
            let _ = poll(&mut events, Some(&timeout));
        }
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

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        let _ = self.wait("populated 0");
        let _ = fs::remove_dir(&self.folder);
    }
}

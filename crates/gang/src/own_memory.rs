//! The shared memory of a gang job: a `/dev/shm` and segments of System V that only its processes
//! see. MPI keeps its files there, so they vanish with the last process, however it ends, and no
//! file of another program is ever touched. It needs the right to make namespaces, which root has.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Once, OnceLock};

/// The folder of POSIX shared memory.
pub(crate) const FOLDER: &str = "/dev/shm";

/// The namespaces of a gang job, which are made when its first process starts.
#[derive(Debug, Default)]
pub(crate) struct OwnMemory(OnceLock<Option<Namespaces>>);

/// What a process enters before its program.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// That of mounts and that of System V.
    pub(crate) all: [OwnedFd; 2],
    /// The root folder of the daemon among those mounts. A process that enters them leaves it.
    pub(crate) root: OwnedFd,
}

impl OwnMemory {
    /// The namespaces; none if the system does not permit any.
    pub(crate) fn namespaces(&self) -> Option<&Namespaces> {
        static TOLD: Once = Once::new();
        let made = self.0.get_or_init(|| {
            let made = make();
            let tell = |error: &io::Error| {
                tracing::warn!(
                    "no shared memory for each gang job alone ({error}): a killed program can \
                     leave files of its MPI in {FOLDER}"
                );
            };
            made.inspect_err(|error| TOLD.call_once(|| tell(error)))
                .ok()
        });
        made.as_ref()
    }
}

/// Makes the namespaces in a thread, which ends: the daemon stays in its own.
fn make() -> io::Result<Namespaces> {
    let made = std::thread::Builder::new().spawn(|| -> io::Result<Namespaces> {
        unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)?;
        let nothing = None::<&str>;
        // What the machine mounts later is visible, and what is mounted here is not.
        mount(
            nothing,
            "/",
            nothing,
            MsFlags::MS_REC | MsFlags::MS_SLAVE,
            nothing,
        )?;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(
            Some("farcall"),
            FOLDER,
            Some("tmpfs"),
            flags,
            Some("mode=1777"),
        )?;
        let open = |name: &str| File::open(format!("/proc/thread-self/ns/{name}"));
        Ok(Namespaces {
            all: [open("mnt")?.into(), open("ipc")?.into()],
            root: File::open("/")?.into(),
        })
    });
    made?
        .join()
        .unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

/// Removes a folder in the shared memory of the machine with its files, if it belongs to this user.
pub(crate) fn remove(folder: &Path, owner: u32) {
    let found = std::fs::symlink_metadata(folder);
    if found.is_ok_and(|found| found.is_dir() && found.uid() == owner) {
        let _ = std::fs::remove_dir_all(folder);
    }
}

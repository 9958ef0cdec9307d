//! The files that a worker sees, in a mount namespace of its own.
//!
//! The worker's folder, `/tmp` and `/var/tmp` are one file system in memory of bounded size, which
//! nobody else sees and which ends with the worker. `/dev/shm` is another one, `/dev/pts` and
//! `/dev/mqueue` have only what the worker makes, and `/proc` shows only the worker's own
//! processes. Files of the server that no function may read are covered.
//!
//! Landlock forbids mounts, and it binds a worker before the worker loads its library. So a thread
//! that Landlock does not bind, the [`Coverer`], waits for the folders that the library needs and
//! then covers the rest.

use rustix::fd::OwnedFd;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// Folders for temporary files of everybody. A worker has its own.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// The file in a worker's folder that covers secret files.
const NOTHING: &str = ".nothing";
/// Where the kernel shows what processes have made: terminals, and message queues. In a worker they
/// are empty at first. By kind, place and options.
const EMPTY: [(&str, &str, &CStr); 2] = [
    ("devpts", "/dev/pts", c"newinstance,ptmxmode=0666,mode=0600"),
    ("mqueue", "/dev/mqueue", c""),
];
/// Bytes for the folders that lead to a needed folder inside a covered one.
const LEADING_BYTES: u64 = 1 << 20;

/// Bounds and owner of a worker's own file systems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Bytes of all files together; 0 means no bound.
    pub(crate) files: u64,
    /// Whether the worker's folder is on the disk, as the operator wants it. Only the folders for
    /// temporary files are in memory then.
    pub(crate) on_disk: bool,
    /// Bytes of shared memory; 0 means no bound.
    pub(crate) memory: u64,
    /// User and group of the functions, if the worker is root.
    pub(crate) user: Option<(u32, u32)>,
}

/// Why a file system of a worker's own is missing.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be mounted: {source}")]
pub struct MountError {
    what: String,
    source: io::Error,
}

fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> MountError {
    |source| MountError {
        what: what.into(),
        source: source.into(),
    }
}

/// The folder for temporary files within a worker's folder.
pub(crate) fn temporary(folder: &Path) -> PathBuf {
    folder.join("tmp")
}

/// Mounts a worker's own folder, shared memory and processes, and hides what others have made in
/// `/dev`. Returns what cannot be mounted.
pub(crate) fn mount_own(folder: &Path, own: Own) -> Vec<MountError> {
    let shared = Path::new("/dev/shm");
    let temporary = temporary(folder);
    let make = || make_folder(&temporary, own.user);
    let mount_at = |place: &Path| mount_memory(place, own.files, own.user, 0o700);
    let work = match own.on_disk {
        true => make().and_then(|()| mount_at(&temporary)),
        false => mount_at(folder).and_then(|()| make()),
    };
    let memory = match shared.is_dir() {
        true => mount_memory(shared, own.memory, own.user, 0o700),
        false => Ok(()),
    };
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let processes = mount("proc", "/proc", "proc", flags, None).map_err(failed("/proc"));
    let all = [work, memory, processes].into_iter();
    let all = all.chain(EMPTY.map(mount_empty));
    all.filter_map(Result::err).collect()
}

/// Mounts a file system of [`EMPTY`], where there is one.
fn mount_empty((kind, at, options): (&str, &str, &CStr)) -> Result<(), MountError> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    match Path::new(at).is_dir() {
        true => mount(kind, at, kind, flags, options).map_err(failed(at)),
        false => Ok(()),
    }
}

/// Makes a folder for the user of the functions.
fn make_folder(path: &Path, user: Option<(u32, u32)>) -> Result<(), MountError> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.mode(0o700).create(path);
    let made = made.and_then(|()| match user {
        Some((user, group)) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    });
    made.map_err(failed(path.display().to_string()))
}

/// Mounts an empty file system in memory.
fn mount_memory(
    at: &Path,
    bytes: u64,
    user: Option<(u32, u32)>,
    mode: u32,
) -> Result<(), MountError> {
    let mut options = format!("mode={mode:o}");
    if bytes > 0 {
        options += &format!(",size={bytes}");
    }
    if let Some((user, group)) = user {
        options += &format!(",uid={user},gid={group}");
    }
    let options = CString::new(options).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let mounted = mount("tmpfs", at, "tmpfs", flags, options.as_c_str());
    mounted.map_err(failed(at.display().to_string()))
}

/// What is covered, and what remains visible.
#[derive(Debug, Default)]
pub(crate) struct Cover {
    /// The worker's folder.
    pub(crate) folder: PathBuf,
    /// Folders and files that remain visible where they are.
    pub(crate) needed: Vec<PathBuf>,
    /// Folders that the operator lets functions write.
    pub(crate) writable: Vec<PathBuf>,
    /// Folders that the operator lets functions share with others.
    pub(crate) shared: Vec<PathBuf>,
    /// Files and folders that nobody may read.
    pub(crate) secrets: Vec<PathBuf>,
    /// Folders that are not for the functions, with needed folders inside. None is in another one.
    pub(crate) closed: Vec<PathBuf>,
}

impl Cover {
    /// Whether functions may write to a path: to the worker's folder, and where the operator lets
    /// them.
    fn may_write(&self, path: &Path) -> bool {
        let mut open = self.writable.iter().chain([&self.folder]);
        open.any(|folder| fs::canonicalize(folder).is_ok_and(|folder| path.starts_with(folder)))
    }

    /// Covers the folders for temporary files, the closed folders and the secrets. All threads of
    /// the process see the same.
    fn mount(&self) -> Result<(), MountError> {
        let current = std::env::current_dir();
        let shared = self
            .shared
            .iter()
            .filter_map(|path| path.canonicalize().ok());
        let shared: Vec<PathBuf> = shared.collect();
        let is_own = |path: &PathBuf| path.is_dir() && !shared.contains(path);
        let temporary = TEMPORARY.map(Path::new).into_iter();
        let temporary = temporary.filter_map(|path| path.canonicalize().ok());
        let mut temporary: Vec<PathBuf> = temporary.filter(is_own).collect();
        // One of them may be a link to the other.
        temporary.dedup();
        // A folder for temporary files opens the way to what lies in it.
        let is_within = |path: &&PathBuf| temporary.iter().any(|outer| path.starts_with(outer));
        let closed: Vec<&PathBuf> = self.closed.iter().filter(|path| !is_within(path)).collect();
        let covered: Vec<&PathBuf> = temporary.iter().chain(closed.iter().copied()).collect();
        let is_covered = |path: &Path| covered.iter().any(|folder| path.starts_with(folder));
        let mut kept = Vec::new();
        for path in self.needed.iter().chain(&self.shared).chain([&self.folder]) {
            let Ok(path) = fs::canonicalize(path) else {
                continue;
            };
            if is_covered(&path) && !covered.contains(&&path) {
                let tree = tree(&path).map_err(failed(path.display().to_string()))?;
                // Landlock would let functions write to it, as to all in their own folders.
                if !self.may_write(&path) {
                    make_read_only(&tree).map_err(failed(path.display().to_string()))?;
                }
                let is_folder = path.is_dir();
                kept.push((path, is_folder, tree));
            }
        }
        // An outer folder before one that lies in it.
        kept.sort_by_key(|(path, ..)| path.components().count());
        let own = self::temporary(&self.folder);
        let own = [(); TEMPORARY.len()].map(|()| tree(&own));
        for (path, own) in temporary.iter().zip(own) {
            let what = || path.display().to_string();
            attach(&own.map_err(failed(what()))?, path).map_err(failed(what()))?;
        }
        for path in closed {
            mount_memory(path, LEADING_BYTES, None, 0o755)?;
        }
        for (path, is_folder, tree) in kept {
            lead_to(&path, is_folder)
                .and_then(|()| Ok(attach(&tree, &path)?))
                .map_err(failed(path.display().to_string()))?;
        }
        let nothing = self.folder.join(NOTHING);
        for path in &self.secrets {
            hide(path, &nothing).map_err(failed(path.display().to_string()))?;
        }
        // The current folder may be behind a cover now.
        let entered = current.and_then(std::env::set_current_dir);
        let entered = entered.or_else(|_| std::env::set_current_dir(&self.folder));
        entered.map_err(failed("the current folder"))
    }
}

/// Makes what is mounted at the root of a tree and below read-only.
fn make_read_only(tree: &OwnedFd) -> io::Result<()> {
    let read_only = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: a system call on memory of this frame, with its size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &read_only,
            size_of_val(&read_only),
        )
    };
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Covers a folder with an empty one, or a file with `nothing`, which nobody can read.
fn hide(path: &Path, nothing: &Path) -> io::Result<()> {
    let Ok(kind) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    match kind.is_dir() {
        true => {
            let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
            mount("tmpfs", path, "tmpfs", flags, c"size=4096,mode=000")?;
        }
        false => {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o000);
            if !nothing.exists() {
                drop(options.open(nothing)?);
            }
            attach(&tree(nothing)?, path)?;
        }
    }
    Ok(())
}

/// A copy of what is mounted at a path and below.
fn tree(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
}

fn attach(tree: &OwnedFd, at: &Path) -> Result<(), Errno> {
    move_mount(tree, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Makes the folders that lead to a path, and a place there to mount it.
fn lead_to(path: &Path, is_folder: bool) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    if is_folder {
        return builder.create(path);
    }
    path.parent()
        .map_or(Ok(()), |parent| builder.create(parent))?;
    let mut options = fs::OpenOptions::new();
    drop(
        options
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(path)?,
    );
    Ok(())
}

/// A thread with the right to mount, which waits until the library is loaded.
pub(crate) struct Coverer {
    order: Sender<Cover>,
    thread: JoinHandle<Result<(), MountError>>,
}

impl Coverer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for another thread.
    pub(crate) fn start() -> io::Result<Coverer> {
        let (order, orders) = channel::<Cover>();
        let work = move || orders.recv().map_or(Ok(()), |cover| cover.mount());
        let thread = std::thread::Builder::new().name("mounts".into());
        Ok(Coverer {
            order,
            thread: thread.spawn(work)?,
        })
    }

    /// Covers what functions must not see, and ends the thread.
    pub(crate) fn cover(self, cover: Cover) -> Result<(), MountError> {
        let gone = || io::Error::other("the thread that mounts has ended");
        let ordered = self.order.send(cover).map_err(|_| gone());
        ordered.map_err(failed("private folders"))?;
        let covered = self.thread.join().map_err(|_| gone());
        covered.map_err(failed("private folders"))?
    }
}

impl Cover {
    /// Covers at once, for a process that Landlock does not bind yet.
    pub(crate) fn now(&self) -> Result<(), MountError> {
        self.mount()
    }
}

//! The sandbox of a worker: it can reach its library, the memory of its user's calls, and a folder
//! of its own.
//!
//! Clients call compiled code with numbers and sizes of their choice, and an attacker who takes it
//! over has the rights of the process. So the worker gives these rights up before the first call:
//!
//! - Namespaces: it has processes, shared memory, mounts and a network of its own.
//! - Landlock: it can write no files outside of its folder, read no private folders and none of the
//!   server's own files, and trace or signal no process outside.
//! - seccomp: it can open no sockets, and make no system calls that undo the rest or that only
//!   attacks need.
//! - If the server is root: the worker is another user.
//!
//! Processes that compute together on one node have these walls around all of them, and sockets
//! inside. Processes on several nodes cannot have namespaces, because a launcher of the cluster
//! starts them.

mod system_calls;

use crate::limits;
use crate::mounts::{self, Cover, Coverer, MountError, Own};
use crate::namespaces::{Namespaces, drop_rights};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Resource;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders that are private by convention, or that hold files of other programs.
const PRIVATE: [&str; 8] = [
    "/home",
    "/root",
    "/run",
    "/tmp",
    "/var",
    "/dev/shm",
    "/dev/pts",
    "/dev/mqueue",
];
/// The folders of the sessions of users, where programs of each user listen at sockets.
const SESSIONS: &str = "/run/user";
/// Most entries of one folder that get rules of their own.
const MOST_ENTRIES: usize = 4096;
/// The version of Landlock that is requested; older kernels have fewer features.
const LANDLOCK: ABI = ABI::V6;

/// What a worker may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sandbox {
    /// Files and folders in private folders that it may read.
    pub read: Vec<PathBuf>,
    /// Folders that it may write, in addition to its own.
    pub write: Vec<PathBuf>,
    /// The server's own files, which it can never read.
    pub secrets: Vec<PathBuf>,
    /// The sockets at which the server listens, to which it can never connect.
    #[serde(default)]
    pub sockets: Vec<PathBuf>,
    /// Whether it may have sockets.
    pub network: bool,
    /// Whether it computes on GPUs. CUDA names the threads that it starts, and makes a socket by
    /// which processes could give each other memory of a GPU.
    pub gpus: bool,
    /// User and group of the worker.
    pub user: Option<(u32, u32)>,
    /// The namespaces that the system allows.
    pub namespaces: Namespaces,
    /// Whether a control group bounds all memory of a worker.
    pub bounds_memory: bool,
    /// Processes and threads of a worker in a user namespace; 0 means any number.
    pub processes: u64,
    /// Which processes share the walls.
    pub reach: Reach,
}

/// Which processes share the walls of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// One process.
    #[default]
    Alone,
    /// Processes on one node that compute together.
    Node,
    /// Processes on several nodes that compute together.
    Nodes,
}

/// Why a protection is not available.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("landlock: {0}")]
    Path(#[from] PathFdError),
    #[error("seccomp: {0}")]
    Seccomp(String),
    #[error("this kernel has no Landlock: workers can reach files and other processes")]
    NoLandlock,
    #[error("cannot become user {user}: {source}")]
    User { user: u32, source: io::Error },
    #[error("processes: no limit can be set: {0}")]
    Limit(io::Error),
    #[error("mounts: {0}")]
    Mount(#[from] MountError),
    #[error(
        "mounts: no thread can be started: {0}; raise workers.processes in the configuration, or \
         the limit of the system (`ulimit -u`)"
    )]
    Thread(io::Error),
    #[error("shared memory of System V has no bound for functions of several processes: {0}")]
    SystemV(io::Error),
    #[error("a network without its loopback: {0}")]
    Loopback(Errno),
}

impl Sandbox {
    /// The namespaces of its workers.
    pub(crate) fn namespaces(&self) -> Namespaces {
        match self.reach {
            Reach::Nodes => Namespaces::default(),
            _ => Namespaces {
                network: self.namespaces.network && !self.network,
                ..self.namespaces
            },
        }
    }

    /// Whether the worker is one process.
    pub(crate) fn is_alone(&self) -> bool {
        self.reach == Reach::Alone
    }

    /// Whether a launcher of several processes is within walls.
    pub(crate) fn walls_launcher(&self) -> bool {
        self.reach == Reach::Node
    }

    /// Mounts the worker's own folders, and starts the thread that covers others later. Returns the
    /// protections that are not available.
    pub(crate) fn mount_own(
        &self,
        folder: &Path,
        own: Own,
    ) -> (Option<Coverer>, Vec<SandboxError>) {
        let mut missing = self.limit_processes();
        let mut coverer = None;
        if self.namespaces().mounts {
            let mounted = mounts::mount_own(folder, own);
            missing.extend(mounted.into_iter().map(SandboxError::from));
            match Coverer::start() {
                Ok(started) => coverer = Some(started),
                Err(error) => missing.push(SandboxError::Thread(error)),
            }
        }
        // Also where only the mounts are refused: a user namespace has given it these rights.
        if self.user.is_none() {
            drop_rights();
        }
        (coverer, missing)
    }

    /// Builds the walls around processes on one node that compute together, from inside the process
    /// that becomes their launcher. Returns the protections that are not available.
    pub(crate) fn surround(
        &self,
        folder: &Path,
        own: Own,
        needed: Vec<PathBuf>,
    ) -> Vec<SandboxError> {
        let mut missing = self.limit_processes();
        let namespaces = self.namespaces();
        if namespaces.mounts {
            let mounted = mounts::mount_own(folder, own);
            missing.extend(mounted.into_iter().map(SandboxError::from));
            let covered = self.cover(folder, needed).now();
            missing.extend(covered.err().map(SandboxError::from));
        }
        if namespaces.ipc && !self.bounds_memory && own.memory > 0 {
            let pages = own.memory / rustix::param::page_size() as u64;
            let bound = fs::write("/proc/sys/kernel/shmall", pages.max(1).to_string());
            missing.extend(bound.err().map(SandboxError::SystemV));
        }
        if namespaces.network {
            missing.extend(raise_loopback().err().map(SandboxError::Loopback));
        }
        missing.extend(self.become_user().err());
        drop_rights();
        // All processes inherit one domain of Landlock, and so may read each other's memory.
        missing.extend(self.hide_secrets(folder).err());
        missing.extend(self.filter_system_calls().err());
        missing
    }

    /// In a user namespace the limit counts the processes of this namespace only. Elsewhere a
    /// control group bounds them.
    fn limit_processes(&self) -> Vec<SandboxError> {
        if self.processes > 0 && self.namespaces().user {
            let set = limits::lower(Resource::Nproc, self.processes);
            let failed = |error: Errno| SandboxError::Limit(error.into());
            return set.err().map(failed).into_iter().collect();
        }
        Vec::new()
    }

    /// What functions must not see, once the folders are known that they need.
    fn cover(&self, folder: &Path, needed: Vec<PathBuf>) -> Cover {
        let mut closed: Vec<PathBuf> = Vec::new();
        if let Some(user) = self.user {
            let named = self.read.iter().chain(&self.write);
            for path in needed.iter().chain(named) {
                closed.extend(first_closed(path, user));
            }
        }
        closed.extend(self.beside(folder));
        let mut secrets = self.secrets.clone();
        // A socket with a path is in no namespace. Who listens there may take a function for the
        // user that it runs as, who can start programs and end the server.
        if self.network || !self.is_alone() {
            let sessions = fs::canonicalize(SESSIONS).ok();
            closed.extend(sessions.filter(|path| path.is_dir()));
            secrets.extend(self.sockets.iter().cloned());
        }
        Cover {
            folder: folder.to_path_buf(),
            needed,
            writable: self.write.clone(),
            shared: self.read.iter().chain(&self.write).cloned().collect(),
            secrets,
            closed: outermost(closed),
        }
    }

    /// The folder in which each worker has one of its own: what others have there is not for this
    /// worker.
    fn beside(&self, folder: &Path) -> Option<PathBuf> {
        let levels = match self.reach {
            Reach::Alone => 1,
            // They work in a folder within that of the worker.
            Reach::Node => 2,
            Reach::Nodes => return None,
        };
        let beside = fs::canonicalize(folder.ancestors().nth(levels)?).ok()?;
        // A file system has needed files at its root.
        beside.parent().is_some().then_some(beside)
    }

    /// Confines the process while it loads the library, with every thread that the library starts:
    /// it can read everything, but write nothing outside of `folder` and reach no other process.
    pub(crate) fn close_outside(&self, folder: &Path) -> Result<(), SandboxError> {
        let mut rules = self.rules()?;
        rules = rules.add_rule(rule(Path::new("/"), reading())?)?;
        for path in self.writable(folder) {
            if let Ok(rule) = rule(&path, AccessFs::from_all(LANDLOCK)) {
                rules = rules.add_rule(rule)?;
            }
        }
        match rules.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
            _ => Ok(()),
        }
    }

    /// Confines the process for calls. Root becomes another user. Private files cannot be read,
    /// except those in `needed`, those `beside` the library, and the folders that the operator
    /// names. There are no sockets. Returns the protections that are not available; all others
    /// hold.
    pub(crate) fn close_inside(
        &self,
        folder: &Path,
        needed: &[PathBuf],
        beside: &[PathBuf],
        coverer: Option<Coverer>,
    ) -> Vec<SandboxError> {
        match self.reach {
            Reach::Alone => {}
            // The process that became the launcher has done it for all.
            Reach::Node => return Vec::new(),
            // Landlock would keep processes that a launcher started from each other's memory.
            Reach::Nodes => return self.filter_system_calls().err().into_iter().collect(),
        }
        let needed = [needed, beside].concat();
        let covered = coverer.map(|coverer| coverer.cover(self.cover(folder, needed.clone())));
        let covered = covered.transpose().map(drop).map_err(SandboxError::from);
        let user = self.become_user();
        let files = self.hide_private_files(folder, &needed);
        // SAFETY: plain system calls. A change of user clears the request to end with the server,
        // so it is made again.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
        }
        let calls = self.filter_system_calls();
        [covered, user, files, calls]
            .into_iter()
            .filter_map(Result::err)
            .collect()
    }

    fn hide_private_files(&self, folder: &Path, needed: &[PathBuf]) -> Result<(), SandboxError> {
        let secrets: Vec<&Path> = self.secrets.iter().map(PathBuf::as_path).collect();
        let private = PRIVATE.map(Path::new);
        // One rule opens all of `/dev` where its shared memory is the worker's own.
        let devices = self.namespaces().mounts.then_some(Path::new("/dev"));
        let private = private.iter().chain(&secrets).copied();
        let beside = self.beside(folder);
        let hidden = private.chain(devices).chain(beside.as_deref());
        let hidden: Vec<&Path> = hidden.collect();
        let mut readable = Vec::new();
        open_all_but(Path::new("/"), &hidden, &mut readable);
        for path in self.read.iter().chain(needed) {
            let outer = beside.as_deref().filter(|beside| !path.starts_with(beside));
            let hidden: Vec<&Path> = secrets.iter().copied().chain(outer).collect();
            open_all_but(path, &hidden, &mut readable);
        }
        self.restrict_files(readable, folder)
    }

    /// Lets processes that compute together read everything but the server's secrets. Their
    /// libraries are not known before they are loaded.
    fn hide_secrets(&self, folder: &Path) -> Result<(), SandboxError> {
        let secrets = self.secrets.iter().map(PathBuf::as_path);
        let beside = self.beside(folder);
        let hidden: Vec<&Path> = secrets.chain(beside.as_deref()).collect();
        let mut readable = Vec::new();
        open_all_but(Path::new("/"), &hidden, &mut readable);
        // The worker's own folder has what its processes are told at their start.
        readable.extend(folder.parent().map(Path::to_path_buf));
        self.restrict_files(readable, folder)
    }

    fn restrict_files(&self, readable: Vec<PathBuf>, folder: &Path) -> Result<(), SandboxError> {
        let all = AccessFs::from_all(LANDLOCK);
        let readable = readable.into_iter().map(|path| (path, reading()));
        let writable = self.writable(folder).into_iter().map(|path| (path, all));
        let mut rules = self.rules()?;
        for (path, access) in readable.chain(writable) {
            // A file that has disappeared needs no rule.
            if let Ok(rule) = rule(&path, access) {
                rules = rules.add_rule(rule)?;
            }
        }
        match rules.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
            _ => Ok(()),
        }
    }

    /// Paths that it may write. Devices are guarded by their own modes. What others have made in
    /// `/dev` is closed.
    fn writable(&self, folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.write.clone();
        paths.push(folder.to_path_buf());
        paths.extend(self.gpus.then(|| "/proc/self/task".into()));
        match self.namespaces().mounts {
            true => paths.extend([mounts::temporary(folder), "/dev".into()]),
            false => {
                let closed = ["/dev/shm", "/dev/pts", "/dev/mqueue"].map(Path::new);
                open_all_but(Path::new("/dev"), &closed, &mut paths);
            }
        }
        paths
    }

    /// The rights that the rules cover. Rights that an older kernel does not know are left out.
    fn rules(&self) -> Result<RulesetCreated, RulesetError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))?;
        // Processes that compute together signal and connect to each other.
        if !self.is_alone() {
            return rules.create();
        }
        let rules = rules.scope(Scope::from_all(LANDLOCK))?;
        match self.network {
            true => rules.create(),
            false => rules.handle_access(AccessNet::from_all(LANDLOCK))?.create(),
        }
    }

    /// Root becomes an unprivileged user, with all threads.
    fn become_user(&self) -> Result<(), SandboxError> {
        let Some((user, group)) = self.user else {
            return Ok(());
        };
        // The C library does this for all threads.
        // SAFETY: plain system calls on values of this frame.
        unsafe {
            if libc::setgroups(0, std::ptr::null()) < 0
                || libc::setresgid(group, group, group) < 0
                || libc::setresuid(user, user, user) < 0
            {
                let source = io::Error::last_os_error();
                return Err(SandboxError::User { user, source });
            }
        }
        Ok(())
    }
}

/// The folders that lie in none of the others. What lies in a covered folder is not there any more.
fn outermost(mut folders: Vec<PathBuf>) -> Vec<PathBuf> {
    folders.sort();
    // An outer folder comes before those that lie in it.
    folders.dedup_by(|inner, outer| inner.starts_with(outer));
    folders
}

/// The first folder on the way to a path that a user cannot enter.
fn first_closed(path: &Path, (user, group): (u32, u32)) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    let mut ways: Vec<&Path> = path.ancestors().skip(1).collect();
    ways.reverse();
    let closed = ways.into_iter().find(|way| {
        let mode = fs::metadata(way).map(|way| match (way.uid() == user, way.gid() == group) {
            (true, _) => way.mode() & 0o100,
            (false, true) => way.mode() & 0o010,
            (false, false) => way.mode() & 0o001,
        });
        mode.is_ok_and(|mode| mode == 0)
    });
    closed.map(Path::to_path_buf)
}

/// Brings up the loopback of a network namespace.
fn raise_loopback() -> Result<(), Errno> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: a zeroed request is valid, and the system reads no further than the request.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request)
    };
    match result {
        0.. => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(LANDLOCK)
}

/// A rule for a file, or for a folder with all its contents.
fn rule(path: &Path, access: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, PathFdError> {
    let access = match path.is_dir() {
        true => access,
        false => access & AccessFs::from_file(LANDLOCK),
    };
    Ok(PathBeneath::new(PathFd::new(path)?, access))
}

/// Collects the paths to open so that all of `path` except the hidden parts is open: a folder
/// without hidden parts as a whole, any other folder by its entries.
fn open_all_but(path: &Path, hidden: &[&Path], open: &mut Vec<PathBuf>) {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return;
    }
    if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
        return open.push(path);
    }
    let entries = fs::read_dir(&path).into_iter().flatten().flatten();
    for entry in entries.take(MOST_ENTRIES) {
        // A link is not followed: access depends on where its target lies.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            open_all_but(&entry.path(), hidden, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_within_a_covered_one_is_not_covered_again() {
        let folders = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let all = ["/b/c", "/a", "/a.b", "/b", "/a/b/c", "/b/c/d", "/a"];
        assert_eq!(outermost(folders(&all)), folders(&["/a", "/a.b", "/b"]));
    }

    #[test]
    fn functions_with_sockets_do_not_see_those_of_the_servers_user() {
        let Ok(sessions) = fs::canonicalize(SESSIONS) else {
            return eprintln!("SKIPPED: there is no {SESSIONS}");
        };
        let folder = tempfile::tempdir().unwrap();
        let socket = PathBuf::from("/run/farcall.sock");
        let hides = |reach, network| {
            let sandbox = Sandbox {
                sockets: vec![socket.clone()],
                network,
                reach,
                ..Sandbox::default()
            };
            let cover = sandbox.cover(folder.path(), Vec::new());
            (
                cover.closed.contains(&sessions),
                cover.secrets.contains(&socket),
            )
        };
        assert_eq!(hides(Reach::Alone, false), (false, false));
        assert_eq!(hides(Reach::Alone, true), (true, true));
        assert_eq!(hides(Reach::Node, false), (true, true));
    }

    #[test]
    fn all_but_the_hidden_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for path in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("a/b/secret"), "").unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        std::os::unix::fs::symlink("a/b/secret", root.join("link")).unwrap();
        let (secret, outside) = (root.join("a/b/secret"), Path::new("/nowhere"));
        let mut open = Vec::new();
        open_all_but(&root, &[&secret, outside, &root.join("e")], &mut open);
        open.sort();
        let expected = ["a/b/c", "a/b/file", "a/d"].map(|path| root.join(path));
        assert_eq!(open, expected);
    }
}

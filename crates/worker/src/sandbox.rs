//! The sandbox of a worker: it can reach its library, the memory of its user's calls, and a folder
//! of its own.
//!
//! Clients call compiled code with numbers and sizes of their choice, and an attacker who takes it
//! over has the rights of the process. So the worker gives these rights up before the first call:
//!
//! - Landlock: it can write no files outside of its folder, read no private folders and none of the
//!   server's own files, and trace or signal no process outside.
//! - seccomp: it can open no sockets, and make no system calls that undo the rest or that only
//!   attacks need.
//! - If the server is root: the worker is another user, or at least has none of root's
//!   capabilities.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    PathFdError, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that are private by convention, or that hold files of other programs.
const PRIVATE: [&str; 6] = ["/home", "/root", "/run", "/tmp", "/var", "/dev/shm"];
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
    /// Whether it may have sockets.
    pub network: bool,
    /// User and group of the worker.
    pub user: Option<(u32, u32)>,
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
    #[error(
        "they run as root without capabilities, because user {user} cannot reach {}; set another \
         user or folder (workers.user, workers.folder)", path.display()
    )]
    Unreachable { user: u32, path: PathBuf },
}

impl Sandbox {
    /// Confines the process while it loads the library, with every thread that the library starts:
    /// it can read everything, but write nothing outside of `folder` and reach no other process.
    pub(crate) fn close_outside(&self, folder: &Path) -> Result<(), SandboxError> {
        let mut rules = self.rules()?;
        rules = rules.add_rule(rule(Path::new("/"), reading())?)?;
        for path in self.writable(folder) {
            rules = rules.add_rule(rule(path, AccessFs::from_all(LANDLOCK))?)?;
        }
        match rules.restrict_self()?.ruleset {
            RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
            _ => Ok(()),
        }
    }

    /// Confines the process for calls. Root becomes another user who can reach what is needed.
    /// Private files cannot be read, except those in `needed`, those `beside` the library, and the
    /// folders that the operator names. There are no sockets. Returns the protections that are not
    /// available; all others hold.
    pub(crate) fn close_inside(
        &self,
        folder: &Path,
        needed: &[PathBuf],
        beside: &[PathBuf],
    ) -> Vec<SandboxError> {
        let paths: Vec<&Path> = needed.iter().map(PathBuf::as_path).collect();
        let user = self.become_user(folder, &paths);
        let files = self.hide_private_files(folder, &[needed, beside].concat());
        // SAFETY: plain system calls. A change of user clears the request to end with the server,
        // so it is made again.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
        }
        let calls = self.filter_system_calls();
        [user, files, calls]
            .into_iter()
            .filter_map(Result::err)
            .collect()
    }

    fn hide_private_files(&self, folder: &Path, needed: &[PathBuf]) -> Result<(), SandboxError> {
        let secrets: Vec<&Path> = self.secrets.iter().map(PathBuf::as_path).collect();
        let private = PRIVATE.map(Path::new);
        let hidden: Vec<&Path> = private.iter().chain(&secrets).copied().collect();
        let mut readable = Vec::new();
        open_all_but(Path::new("/"), &hidden, &mut readable);
        for path in self.read.iter().chain(needed) {
            open_all_but(path, &secrets, &mut readable);
        }
        let readable = readable.iter().map(|path| (path.as_path(), reading()));
        let all = AccessFs::from_all(LANDLOCK);
        let writable = self.writable(folder).map(|path| (path, all));
        let mut rules = self.rules()?;
        for (path, access) in readable.chain(writable) {
            // A file that has disappeared needs no rule.
            if let Ok(rule) = rule(path, access) {
                rules = rules.add_rule(rule)?;
            }
        }
        rules.restrict_self()?;
        Ok(())
    }

    /// Paths that it may write. Devices are guarded by their own modes.
    fn writable<'s>(&'s self, folder: &'s Path) -> impl Iterator<Item = &'s Path> {
        let named = self.write.iter().map(PathBuf::as_path);
        named.chain([folder, Path::new("/dev")])
    }

    /// The rights that the rules cover. Rights that an older kernel does not know are left out.
    fn rules(&self) -> Result<RulesetCreated, RulesetError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(LANDLOCK))?
            .scope(Scope::from_all(LANDLOCK))?;
        match self.network {
            true => rules.create(),
            false => rules.handle_access(AccessNet::from_all(LANDLOCK))?.create(),
        }
    }

    /// Becomes an unprivileged user, if that user can reach the folders that functions need.
    fn become_user(&self, folder: &Path, needed: &[&Path]) -> Result<(), SandboxError> {
        let Some((user, group)) = self.user else {
            return Ok(());
        };
        let failed = || SandboxError::User {
            user,
            source: io::Error::last_os_error(),
        };
        // The C library does this for all threads.
        // SAFETY: plain system calls.
        if unsafe { libc::seteuid(user) } < 0 {
            return Err(failed());
        }
        let mut all = needed.iter().chain([&folder]);
        let unreachable = all.find(|path| !is_reachable(path));
        // SAFETY: plain system calls on values of this frame.
        unsafe {
            libc::seteuid(0);
            if let Some(path) = unreachable {
                // Without capabilities, root cannot write to another user's files.
                let _ = std::os::unix::fs::chown(folder, Some(0), Some(0));
                drop_capabilities();
                let path = path.to_path_buf();
                return Err(SandboxError::Unreachable { user, path });
            }
            if libc::setgroups(0, std::ptr::null()) < 0
                || libc::setresgid(group, group, group) < 0
                || libc::setresuid(user, user, user) < 0
            {
                return Err(failed());
            }
        }
        Ok(())
    }

    /// Filters the system calls of all threads, including those that the library has started.
    fn filter_system_calls(&self) -> Result<(), SandboxError> {
        let failed = |error: &dyn std::fmt::Display| SandboxError::Seccomp(error.to_string());
        let architecture = std::env::consts::ARCH.try_into();
        let filter = SeccompFilter::new(
            self.system_calls(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EPERM as u32),
            architecture.map_err(|error| failed(&error))?,
        );
        let program: BpfProgram = filter
            .and_then(TryInto::try_into)
            .map_err(|error| failed(&error))?;
        seccompiler::apply_filter_all_threads(&program).map_err(|error| failed(&error))
    }

    /// The refused system calls. An empty list of rules refuses every use.
    fn system_calls(&self) -> BTreeMap<i64, Vec<SeccompRule>> {
        let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED
            .into_iter()
            .map(|number| (number, Vec::new()))
            .collect();
        if !self.network {
            refused.insert(libc::SYS_socket, Vec::new());
        }
        refused
    }
}

/// System calls that every worker is refused: they reach other processes, circumvent the other
/// protections, or change the machine.
const REFUSED: [i64; 36] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
];

/// Whether the current user can list a folder or read a file. A missing file counts as reachable.
fn is_reachable(path: &Path) -> bool {
    let error = fs::File::open(path).err();
    error.is_none_or(|error| error.kind() != io::ErrorKind::PermissionDenied)
}

/// Drops root's capabilities, so that it can use only the files that it owns.
fn drop_capabilities() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Dropping capabilities is always allowed.
    let _ = set_capabilities(None, none);
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

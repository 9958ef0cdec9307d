//! What a worker can reach: its library, the memory of its user's calls, and a folder of its own.
//!
//! Clients call compiled code with numbers and sizes of their choice; whoever makes it run astray
//! has the rights of the process. So these are taken away before the first call:
//!
//! - Landlock: no file can be written but in the worker's folder; private folders and the server's
//!   own files cannot be read; no process outside can be traced, read or sent a signal.
//! - seccomp: no sockets, and no system calls that undo the rest or that only attacks need.
//! - Where the server is root: the worker is another user, or at least has none of root's
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

/// Folders that are private by custom, or where other programs leave what is theirs.
const PRIVATE: [&str; 6] = ["/home", "/root", "/run", "/tmp", "/var", "/dev/shm"];
/// Entries of one folder that are looked at one by one, at most.
const MOST_ENTRIES: usize = 4096;
/// Landlock's features that are asked for; older kernels have fewer.
const LANDLOCK: ABI = ABI::V6;

/// What a worker may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sandbox {
    /// Readable, though in a private folder.
    pub read: Vec<PathBuf>,
    /// Writable besides the worker's folder.
    pub write: Vec<PathBuf>,
    /// The server's own: not readable wherever they are.
    pub secrets: Vec<PathBuf>,
    /// Whether it may have sockets.
    pub network: bool,
    /// User and group that it becomes.
    pub user: Option<(u32, u32)>,
}

/// Why a protection cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("landlock: {0}")]
    Path(#[from] PathFdError),
    #[error("seccomp: {0}")]
    Seccomp(String),
    #[error("landlock is not in this kernel: files and other processes can be reached")]
    NoLandlock,
    #[error("cannot become user {user}: {source}")]
    User { user: u32, source: io::Error },
    #[error(
        "they are root, without its capabilities, because user {user} cannot reach {}; name \
         another user or folder (workers.user, workers.folder)", path.display()
    )]
    Unreachable { user: u32, path: PathBuf },
}

impl Sandbox {
    /// What holds already while the library is loaded, for every thread that it starts: all can be
    /// read, but nothing written outside of `folder`, and no other process be reached.
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

    /// What holds for calls: root is another user, who reaches what is needed; private files cannot
    /// be read, but for those of `needed`, those `beside` the library, and the folders that the
    /// operator names; there are no sockets. Returns what cannot be had; the rest holds all the
    /// same.
    pub(crate) fn close_inside(
        &self,
        folder: &Path,
        needed: &[PathBuf],
        beside: &[PathBuf],
    ) -> Vec<SandboxError> {
        let paths: Vec<&Path> = needed.iter().map(PathBuf::as_path).collect();
        let user = self.become_user(folder, &paths);
        let files = self.hide_private_files(folder, &[needed, beside].concat());
        // SAFETY: plain system calls. With its user the process has lost the wish to end with its
        // server.
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
            // What is gone meanwhile needs no rule.
            if let Ok(rule) = rule(path, access) {
                rules = rules.add_rule(rule)?;
            }
        }
        rules.restrict_self()?;
        Ok(())
    }

    /// Devices are guarded by their own modes.
    fn writable<'s>(&'s self, folder: &'s Path) -> impl Iterator<Item = &'s Path> {
        let named = self.write.iter().map(PathBuf::as_path);
        named.chain([folder, Path::new("/dev")])
    }

    /// The rights that rules are about; those that an older kernel does not know are left out.
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

    /// Becomes the user that is not root, if that one reaches the folders that functions need.
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
                // Without its capabilities root cannot write to what is another user's.
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

    /// For all threads, also those that the library has started.
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

    /// The system calls that are refused; an empty list of rules refuses every use.
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

/// Refused in every worker: what reaches other processes, what goes round the other protections,
/// and what changes the machine.
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

/// Whether the present user can list a folder, or read a file; what is not there is no matter.
fn is_reachable(path: &Path) -> bool {
    let error = fs::File::open(path).err();
    error.is_none_or(|error| error.kind() != io::ErrorKind::PermissionDenied)
}

/// Leaves root nothing but the files that it owns.
fn drop_capabilities() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Fewer than one has are always granted.
    let _ = set_capabilities(None, none);
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::from_read(LANDLOCK)
}

/// A rule for a file, or for a folder with all that it holds.
fn rule(path: &Path, access: BitFlags<AccessFs>) -> Result<PathBeneath<PathFd>, PathFdError> {
    let access = match path.is_dir() {
        true => access,
        false => access & AccessFs::from_file(LANDLOCK),
    };
    Ok(PathBeneath::new(PathFd::new(path)?, access))
}

/// Collects what is to be opened so that all of `path` is, but for what is hidden: a folder that
/// holds nothing hidden as a whole, another one by its entries.
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
        // A link leads to what is opened, or not, where it lies.
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

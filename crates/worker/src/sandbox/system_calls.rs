//! The system calls that a worker may make, as a seccomp filter of all its threads. What a worker
//! may do with files and other processes is decided in `sandbox`; this module only refuses calls.

use super::{Sandbox, SandboxError};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, sock_filter,
};
use std::collections::BTreeMap;

impl Sandbox {
    /// Filters the system calls of all threads, including those that the library has started.
    pub(super) fn filter_system_calls(&self) -> Result<(), SandboxError> {
        let failed = |error: &dyn std::fmt::Display| SandboxError::Seccomp(error.to_string());
        let architecture = std::env::consts::ARCH.try_into();
        let architecture: TargetArch = architecture.map_err(|error| failed(&error))?;
        let refused = self.refused_calls().map_err(|error| failed(&error))?;
        // The flags of `clone3` cannot be seen by a filter. The C library then uses `clone`.
        let unknown = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        for (calls, error) in [(refused, libc::EPERM), (unknown, libc::ENOSYS)] {
            let action = SeccompAction::Errno(error as u32);
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, action, architecture);
            let program: BpfProgram = filter
                .and_then(TryInto::try_into)
                .map_err(|error| failed(&error))?;
            let applied = seccompiler::apply_filter_all_threads(&program);
            applied.map_err(|error| failed(&error))?;
        }
        if cfg!(target_arch = "x86_64") {
            let applied = seccompiler::apply_filter_all_threads(&OTHER_NUMBERS);
            applied.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// The refused system calls. An empty list of rules refuses every use.
    fn refused_calls(&self) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
        let calls = REFUSED
            .iter()
            .chain(REFUSED_ALONE.iter().filter(|_| self.is_alone()));
        let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
            calls.map(|number| (*number, Vec::new())).collect();
        if !self.network && self.is_alone() {
            refused.insert(libc::SYS_socket, self.refused_sockets()?);
        }
        let namespaces = NAMESPACES.iter().map(|flag| with_flags(0, *flag));
        refused.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
        // Memory that several processes share and that no file system bounds.
        if !self.bounds_memory {
            let shared = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            refused.insert(libc::SYS_mmap, vec![with_flags(3, shared)?]);
            refused.insert(libc::SYS_memfd_create, Vec::new());
        }
        Ok(refused)
    }

    /// The sockets that are refused where the network is: all of them, or all but those of CUDA. An
    /// empty list of rules refuses every use.
    fn refused_sockets(&self) -> Result<Vec<SeccompRule>, BackendError> {
        if !self.gpus {
            return Ok(Vec::new());
        }
        let family = where_argument(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64);
        let types = (0..=SOCKET_TYPE).filter(|kind| *kind != libc::SOCK_SEQPACKET as u64);
        let types = types.map(|kind| where_argument(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind));
        [family].into_iter().chain(types).collect()
    }
}

/// Refuses a system call where the lower 32 bits of an argument compare in this way.
fn where_argument(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)?;
    SeccompRule::new(vec![condition])
}

/// Refuses a system call where an argument has all these flags.
fn with_flags(argument: u8, flags: libc::c_int) -> Result<SeccompRule, BackendError> {
    let flags = u64::from(flags.unsigned_abs());
    where_argument(argument, SeccompCmpOp::MaskedEq(flags), flags)
}

/// Refuses the system calls of the x32 interface of x86-64. Some kernels have it, and it has other
/// numbers for all system calls, from this bit on, and the same architecture.
const OTHER_NUMBERS: [sock_filter; 4] = {
    const BIT: u32 = 0x4000_0000;
    const fn step(code: u32, jf: u8, k: u32) -> sock_filter {
        let (code, jt) = (code as u16, 0);
        sock_filter { code, jt, jf, k }
    }
    [
        // The number of the system call comes first in what a filter reads.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, BIT),
        step(
            libc::BPF_RET,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW),
    ]
};

/// The bits of a socket's type that are not flags.
const SOCKET_TYPE: u64 = 0xf;

/// Flags of `clone` that make namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// System calls that are refused unless processes compute together. Shared memory of System V
/// belongs to no file system, whose size would bound it. Where a worker has no IPC namespace of its
/// own, it could also use that of others, whose numbers everybody can read.
const REFUSED_ALONE: [i64; 5] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
];

/// System calls that every worker is refused: they reach other processes, circumvent the other
/// protections, or change the machine.
const REFUSED: [i64; 45] = [
    libc::SYS_ptrace,
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
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_memfd_secret,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn system_calls_with_other_numbers_are_refused() {
        const X32_GETPID: libc::c_long = 0x4000_0000 + libc::SYS_getpid;
        let refused = std::thread::spawn(|| {
            seccompiler::apply_filter(&OTHER_NUMBERS).unwrap();
            // SAFETY: it only asks.
            let result = unsafe { libc::syscall(X32_GETPID) };
            (result, io::Error::last_os_error().raw_os_error())
        });
        // A kernel without x32 says ENOSYS.
        assert_eq!(refused.join().unwrap(), (-1, Some(libc::EPERM)));
    }
}

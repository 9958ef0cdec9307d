//! The rights of root that a process keeps or gives up. A worker keeps the rights over mounts and
//! the network until its namespaces are ready, and has none of them when it calls a function.

use super::{check, last_error};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Gives up all rights of root, so that this thread can use only the files of its user.
pub(crate) fn drop_rights() {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // To give up rights is always allowed.
    let _ = set_capabilities(None, none);
}

/// Keeps the rights over mounts and the network of the new namespaces in the program. The worker
/// gives them up before it calls a function.
///
/// # Safety
/// As [`Namespaces::enter`](super::Namespaces::enter).
pub(super) unsafe fn keep_mount_rights() -> Result<(), Errno> {
    const NET_ADMIN: u32 = 12;
    const SYS_ADMIN: u32 = 21;
    const AMBIENT: libc::c_int = 47;
    const RAISE: libc::c_ulong = 2;
    let kept = 1u32 << NET_ADMIN | 1 << SYS_ADMIN;
    // SAFETY: the caller's promise.
    unsafe {
        set_rights(kept)?;
        for right in [NET_ADMIN, SYS_ADMIN] {
            check(libc::prctl(
                AMBIENT,
                RAISE,
                libc::c_ulong::from(right),
                0,
                0,
            ))?;
        }
    }
    Ok(())
}

/// Sets the rights of the calling thread, of the first 32, to these.
///
/// # Safety
/// As [`Namespaces::enter`](super::Namespaces::enter).
unsafe fn set_rights(rights: u32) -> Result<(), Errno> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable, for the first 32 rights and for the others.
    let sets = [rights, rights, rights, 0, 0, 0];
    // SAFETY: a system call on memory of this frame, laid out as capset(2) says.
    match unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) } {
        0.. => Ok(()),
        _ => Err(last_error()),
    }
}

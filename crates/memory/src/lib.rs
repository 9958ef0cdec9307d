//! Memory objects that processes share, and their mappings.
//!
//! Memory that could shrink would end the process that touches it: an object is sealed by who makes
//! it, and looked at by who is handed it.

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared mapping of a whole memory object, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; whoever dereferences `start` answers for synchronisation.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself never changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` for reading and writing; its pages come as they are touched, or
    /// all at once where they are to be `present`.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn new(fd: BorrowedFd<'_>, bytes: usize, present: bool) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = match present {
            true => MapFlags::SHARED | MapFlags::POPULATE,
            false => MapFlags::SHARED,
        };
        let anywhere = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap(anywhere, bytes, protection, flags, fd, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of a live mapping that nobody else unmaps.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A memory object whose size can no longer change, so that no side can make the other fault. Its
/// pages are taken when they are first touched.
///
/// # Errors
/// The system has no room for it.
pub fn sealed_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Whether an object that was handed over has so many bytes, and keeps them.
///
/// # Errors
/// It is no memory object.
pub fn is_sealed(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<bool> {
    let size = usize::try_from(fstat(fd)?.st_size).unwrap_or(0);
    Ok(size >= bytes && fcntl_get_seals(fd)?.contains(SealFlags::SHRINK))
}

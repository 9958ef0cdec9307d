//! Memory objects that processes share, and their mappings.
//!
//! If a memory object shrinks, every process that touches the missing part ends with a signal. The
//! process that creates an object therefore seals its size, and a process that receives one checks
//! the seal.

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

// SAFETY: a mapping is plain memory; the code that dereferences `start` must synchronise.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself never changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` for reading and writing. The system allocates all pages at once
    /// if `present` is true, else each page at its first use.
    ///
    /// # Errors
    /// The system has not enough memory or address space.
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

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
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

/// Creates a memory object whose size can no longer change, so that no process can make another one
/// fault. The system allocates each page at its first use.
///
/// # Errors
/// The system has not enough memory.
pub fn sealed_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Whether a memory object of another process has `bytes` bytes and a sealed size.
///
/// # Errors
/// The descriptor is not a memory object.
pub fn is_sealed(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<bool> {
    let size = usize::try_from(fstat(fd)?.st_size).unwrap_or(0);
    Ok(size >= bytes && fcntl_get_seals(fd)?.contains(SealFlags::SHRINK))
}

//! Memory objects that processes share, and their mappings.
//!
//! If a memory object shrinks, every process that touches the missing part ends with a signal. The
//! process that creates an object therefore seals its size, and a process that receives one checks
//! the seal.
//!
//! Only Linux has seals. On other systems this crate makes no memory object and trusts none.

#[cfg(target_os = "linux")]
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use std::io;
use std::os::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

/// A shared mapping of a whole memory object, unmapped on drop.
///
/// A private page of zeros follows it. Libraries read past the end of arrays when they load whole
/// vectors, and the last array of an object may end with the object.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The pages of the object and the page behind them.
    reserved: usize,
}

// SAFETY: a mapping is plain memory; the code that dereferences `start` must synchronise.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself never changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` for reading and writing. Linux allocates all pages at once if
    /// `present` is true, else each page at its first use.
    ///
    /// # Errors
    /// The system has not enough memory or address space.
    pub fn new(fd: BorrowedFd<'_>, bytes: usize, present: bool) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = match present {
            #[cfg(target_os = "linux")]
            true => MapFlags::SHARED | MapFlags::POPULATE,
            _ => MapFlags::SHARED,
        };
        let page = page_size();
        let pages = bytes
            .checked_next_multiple_of(page)
            .filter(|pages| *pages <= isize::MAX as usize - page)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let reserved = pages + page;
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let anywhere = std::ptr::null_mut();
        // Memory without access does not count as private memory of the process, which is limited.
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(anywhere, reserved, ProtFlags::empty(), private)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping {
            start,
            bytes,
            reserved,
        };
        // SAFETY: both replace parts of the mapping above, which nobody else knows yet.
        unsafe {
            let object = start.as_ptr().cast();
            mmap(object, bytes, protection, flags | MapFlags::FIXED, fd, 0)?;
            let behind = start.as_ptr().add(pages).cast();
            mmap_anonymous(behind, page, protection, private | MapFlags::FIXED)?;
        }
        Ok(mapping)
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
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

/// Creates a memory object whose size can no longer change, so that no process can make another one
/// fault. The system allocates each page at its first use.
///
/// # Errors
/// The system has not enough memory.
#[cfg(target_os = "linux")]
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
#[cfg(target_os = "linux")]
pub fn is_sealed(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<bool> {
    let size = usize::try_from(fstat(fd)?.st_size).unwrap_or(0);
    Ok(size >= bytes && fcntl_get_seals(fd)?.contains(SealFlags::SHRINK))
}

/// Whether a memory object of another process has a sealed size: this system cannot seal it.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn is_sealed(_: BorrowedFd<'_>, _: usize) -> io::Result<bool> {
    Ok(false)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn zeros_follow_a_mapping() {
        for bytes in [1, 100, page_size(), 16 * page_size()] {
            let object = sealed_memory("farcall-test", bytes).unwrap();
            let mapping = Mapping::new(object.as_fd(), bytes, true).unwrap();
            let again = Mapping::new(object.as_fd(), bytes, false).unwrap();
            let start = mapping.start().as_ptr();
            // SAFETY: the mapping and the page behind it are readable and writable.
            unsafe {
                start.write_bytes(1, bytes);
                assert_eq!(again.start().add(bytes - 1).read(), 1);
                let end = bytes.next_multiple_of(page_size());
                let behind = std::slice::from_raw_parts(start.add(end), page_size());
                assert!(behind.iter().all(|byte| *byte == 0));
                start.add(end).write(2);
                assert_eq!(again.start().add(end).read(), 0, "private");
            }
        }
        let none = sealed_memory("farcall-test", 1).unwrap();
        assert!(Mapping::new(none.as_fd(), usize::MAX, false).is_err());
    }
}

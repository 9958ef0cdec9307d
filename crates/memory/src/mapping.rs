//! Mappings on Unix. Who makes one answers for the object behind it, whose size must not change.

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use std::io;
use std::ptr::NonNull;

/// A shared mapping of a whole memory object, unmapped on drop.
///
/// A private page of zeros follows it. Libraries read past the end of arrays when they load whole
/// vectors, and the last array of an object may end with the object. Before it is a page of zeros
/// that can only be read. Some functions of LAPACK read element 0 of an empty array, whose indices
/// begin at 1.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The page before the object, its pages and the page behind them.
    reserved: NonNull<u8>,
    reserved_bytes: usize,
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
            .filter(|pages| *pages <= isize::MAX as usize - 2 * page)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let reserved_bytes = page + pages + page;
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let anywhere = std::ptr::null_mut();
        // Memory that cannot be written does not count as private memory of the process, which is
        // limited.
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let reserved =
            unsafe { mmap_anonymous(anywhere, reserved_bytes, ProtFlags::READ, private)? };
        let reserved = NonNull::new(reserved.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the object's pages follow the first one.
        let start = unsafe { reserved.add(page) };
        let mapping = Mapping {
            start,
            bytes,
            reserved,
            reserved_bytes,
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
        // SAFETY: address and length are those of a live mapping that nobody else unmaps.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}

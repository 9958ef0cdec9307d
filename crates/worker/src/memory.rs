//! Memory for arrays. Job buffers hold those of one call, from the socket to the library and back,
//! mapped by the server and by the worker that runs the call. Segments are mapped by a client on
//! this host and by the workers, and not by the server.

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared mapping of a whole memory object, unmapped on drop.
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; whoever dereferences `start` answers for synchronisation.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` for reading and writing, with all pages present at once.
    pub fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        Mapping::with(fd, bytes, MapFlags::SHARED | MapFlags::POPULATE)
    }

    /// The same in little time: where there is much memory, its pages come as they are touched.
    fn soon(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        match bytes < LARGE {
            true => Mapping::new(fd, bytes),
            false => Mapping::with(fd, bytes, MapFlags::SHARED),
        }
    }

    fn with(fd: BorrowedFd<'_>, bytes: usize, flags: MapFlags) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                fd,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    /// Its first byte.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
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

/// A memory object whose size can no longer change, so that no side can make the other fault.
pub fn sealed_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// A memory object for arrays.
pub struct MemoryObject {
    /// Never used twice, so that a worker can keep mappings by it.
    number: u64,
    fd: OwnedFd,
    bytes: usize,
    /// None where only a client and the workers map it.
    mapping: Option<Mapping>,
}

impl MemoryObject {
    /// Memory that the server maps, all zero.
    pub fn mapped(number: u64, bytes: usize) -> io::Result<MemoryObject> {
        let fd = sealed_memory("farcall-job", bytes)?;
        let mapping = Mapping::soon(fd.as_fd(), bytes)?;
        Ok(MemoryObject {
            number,
            fd,
            bytes,
            mapping: Some(mapping),
        })
    }

    /// Memory for a client and the workers, all zero.
    pub fn shared(number: u64, bytes: usize) -> io::Result<MemoryObject> {
        Ok(MemoryObject {
            number,
            fd: sealed_memory("farcall-shared", bytes)?,
            bytes,
            mapping: None,
        })
    }

    /// Its number, never that of another one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the part is not within the memory, or the server does not map it.
    pub fn range(&self, offset: u64, length: u64) -> *mut [u8] {
        let mapping = self.mapping.as_ref().expect("memory that the server maps");
        let (offset, length) = (offset as usize, length as usize);
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "within the memory"
        );
        // SAFETY: checked above.
        std::ptr::slice_from_raw_parts_mut(unsafe { mapping.start().add(offset) }, length)
    }

    /// A part of it, to be read and written.
    ///
    /// # Panics
    /// As [`MemoryObject::range`].
    ///
    /// # Safety
    /// No other reference to the part is in use, and no worker uses it.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, offset: u64, length: u64) -> &mut [u8] {
        // SAFETY: the part lies within the mapping; the caller answers for who else uses it.
        unsafe { &mut *self.range(offset, length) }
    }
}

/// From here on the pages of so many bytes take milliseconds to make or to free.
const LARGE: usize = 8 << 20;

/// Drops memory. To free much of it takes long, so that a thread does it.
pub fn free<M: Send + 'static>(bytes: usize, memory: M) {
    if bytes >= LARGE {
        // Where there is no thread to be had, the closure is dropped here.
        let thread = std::thread::Builder::new().name("farcall-free".into());
        let _ = thread.spawn(move || drop(memory));
    }
}

//! Memory for arrays. Job buffers hold those of one call, from the socket to the library and back,
//! mapped by the server and by the worker that runs the call. Segments are mapped by a client on
//! this host and by the workers, and not by the server.

use farcall_memory::{Mapping, sealed_memory};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
        // Where there is much memory, its pages come as they are touched.
        let mapping = Mapping::new(fd.as_fd(), bytes, bytes < LARGE)?;
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
        let start = mapping.start().as_ptr();
        let (offset, length) = (offset as usize, length as usize);
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "within the memory"
        );
        // SAFETY: checked above.
        std::ptr::slice_from_raw_parts_mut(unsafe { start.add(offset) }, length)
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

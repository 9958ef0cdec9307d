//! Memory for arrays.
//!
//! A call buffer holds the arrays of one call, from the socket to the library and back; the server
//! and the worker of the call map it. A segment is mapped by a client on this host and by the
//! workers, but not by the server.

use farcall_memory::{Mapping, sealed_memory};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A memory object for arrays.
pub struct MemoryObject {
    /// A number that is never reused, so that a worker can keep mappings by it.
    number: u64,
    fd: OwnedFd,
    bytes: usize,
    /// `None` if only a client and the workers map it.
    mapping: Option<Mapping>,
}

impl MemoryObject {
    /// Zeroed memory that the server maps.
    pub fn mapped(number: u64, bytes: usize) -> io::Result<MemoryObject> {
        let fd = sealed_memory("farcall-job", bytes)?;
        // The pages of large memory are made when they are touched.
        let mapping = Mapping::new(fd.as_fd(), bytes, bytes < LARGE)?;
        Ok(MemoryObject {
            number,
            fd,
            bytes,
            mapping: Some(mapping),
        })
    }

    /// Zeroed memory for a client and the workers.
    pub fn shared(number: u64, bytes: usize) -> io::Result<MemoryObject> {
        Ok(MemoryObject {
            number,
            fd: sealed_memory("farcall-shared", bytes)?,
            bytes,
            mapping: None,
        })
    }

    /// Its number, which is never reused.
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

    /// A part of it, to read and write.
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

/// Size in bytes from which making or freeing the pages takes milliseconds.
const LARGE: usize = 8 << 20;

/// Drops memory. A thread frees large memory, because that takes long.
pub fn free<M: Send + 'static>(bytes: usize, memory: M) {
    if bytes >= LARGE {
        // If no thread can be started, the closure is dropped here.
        let thread = std::thread::Builder::new().name("farcall-free".into());
        let _ = thread.spawn(move || drop(memory));
    }
}

//! Mappings on Windows: there are none. The client offers no shared memory there, so that it asks
//! for none.

use rustix::fd::BorrowedFd;
use std::convert::Infallible;
use std::io;
use std::ptr::NonNull;

/// A shared mapping of a whole memory object. None can be made on this system.
#[derive(Debug)]
pub struct Mapping(Infallible);

impl Mapping {
    /// Maps no object.
    ///
    /// # Errors
    /// Always: this system has no such objects.
    pub fn new(_: BorrowedFd<'_>, _bytes: usize, _present: bool) -> io::Result<Mapping> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        match self.0 {}
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        match self.0 {}
    }
}

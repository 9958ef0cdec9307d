//! Memory objects that processes share, and their mappings.
//!
//! If a memory object shrinks, every process that touches the missing part ends with a signal. The
//! process that creates an object therefore seals its size, and a process that receives one checks
//! the seal.
//!
//! Only Linux has seals. On other systems this crate makes no memory object and trusts none, and on
//! Windows it maps none either.

#[cfg(unix)]
mod mapping;
#[cfg(windows)]
mod no_mapping;

#[cfg(unix)]
pub use mapping::Mapping;
#[cfg(windows)]
pub use no_mapping::Mapping;

use rustix::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use rustix::fd::OwnedFd;
#[cfg(target_os = "linux")]
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use std::io;

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
    use rustix::fd::AsFd;
    use rustix::param::page_size;

    #[test]
    fn zeros_surround_a_mapping() {
        for bytes in [1, 100, page_size(), 16 * page_size()] {
            let object = sealed_memory("farcall-test", bytes).unwrap();
            let mapping = Mapping::new(object.as_fd(), bytes, true).unwrap();
            let again = Mapping::new(object.as_fd(), bytes, false).unwrap();
            let start = mapping.start().as_ptr();
            // SAFETY: the mapping and the page behind it are readable and writable, and the page
            // before it is readable.
            unsafe {
                let before = std::slice::from_raw_parts(start.sub(page_size()), page_size());
                assert!(before.iter().all(|byte| *byte == 0));
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

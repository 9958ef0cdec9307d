//! Memory for arrays. Job buffers hold those of one call, from the socket to the library and back,
//! mapped by the server and by the worker that runs the call. Segments are mapped by a client on
//! this host and by the workers, and the server only counts them.

use crate::user::User;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// A shared mapping of a whole memory object, unmapped on drop.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is plain memory; whoever dereferences `start` answers for synchronisation.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of `fd` for reading and writing, with all pages present at once.
    pub(crate) fn new(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
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

    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
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
pub(crate) fn sealed_memory(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Memory for the arrays of one call.
pub(crate) struct JobBuffer {
    /// Whose arrays it has held. It never holds another user's: workers keep it mapped.
    user: User,
    /// Never used twice, so that a worker can keep mappings by it.
    pub(crate) id: u64,
    fd: OwnedFd,
    mapping: Mapping,
}

impl JobBuffer {
    pub(crate) fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A part of the memory.
    ///
    /// # Panics
    /// If it is not within the buffer.
    ///
    /// # Safety
    /// No other reference to the part is in use, and no worker uses it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part(&self, offset: u64, length: u64) -> &mut [u8] {
        let (offset, length) = (offset as usize, length as usize);
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.bytes()),
            "within the buffer"
        );
        // SAFETY: checked above; the caller answers for who else uses it.
        unsafe { std::slice::from_raw_parts_mut(self.start().add(offset), length) }
    }
}

/// Memory shared with a client.
pub(crate) struct Segment {
    /// Never that of another segment or a job buffer.
    pub(crate) id: u64,
    pub(crate) fd: OwnedFd,
    pub(crate) bytes: usize,
}

/// Why there is no buffer.
#[derive(Debug)]
pub(crate) enum NoBuffer {
    /// The request alone is above the limit.
    TooLarge,
    /// Others hold the memory now.
    Wait,
    /// The system refused.
    System(io::Error),
}

/// Job buffers, kept for reuse because fresh pages are slow: filling a fresh 64 MiB takes twenty
/// times as long as a warm one.
pub(crate) struct BufferPool {
    /// Most bytes in all buffers, in use and idle.
    limit: usize,
    total: usize,
    /// Bytes of `total` that clients hold as segments.
    shared: usize,
    idle: Vec<JobBuffer>,
    last_id: u64,
    /// Buffers that are gone, for the workers to unmap.
    retired: Vec<u64>,
}

/// From here on the pages of so many bytes take milliseconds to make or to free.
const LARGE: usize = 8 << 20;
/// Buffers are made in steps of an eighth of their size, at least this.
const GRAIN: usize = 64 << 10;
/// Segments are made in steps of this.
const PAGE: usize = 4096;

impl BufferPool {
    pub(crate) fn new(limit: usize) -> BufferPool {
        BufferPool {
            limit,
            total: 0,
            shared: 0,
            idle: Vec::new(),
            last_id: 0,
            retired: Vec::new(),
        }
    }

    /// Calls of so many bytes have a part of the memory that larger ones leave.
    pub(crate) const SMALL: usize = 256 << 10;

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes of all buffers and segments, idle ones too.
    pub(crate) fn used(&self) -> usize {
        self.total
    }

    /// A buffer of at least `bytes` bytes, a warm one of the user's where one fits without much
    /// waste.
    pub(crate) fn take(&mut self, bytes: usize, user: &User) -> Result<JobBuffer, NoBuffer> {
        if bytes > self.limit {
            return Err(NoBuffer::TooLarge);
        }
        let wanted = rounded(bytes).min(self.limit);
        let fits = |buffer: &JobBuffer| {
            (wanted..=2 * wanted).contains(&buffer.bytes()) && buffer.user == *user
        };
        let best = (0..self.idle.len())
            .filter(|&index| fits(&self.idle[index]))
            .min_by_key(|&index| self.idle[index].bytes());
        if let Some(index) = best {
            return Ok(self.idle.remove(index));
        }
        // One that is nearly as large as the memory has all of it.
        let limit = match bytes <= BufferPool::SMALL {
            true => self.limit,
            false => wanted.max(self.limit - self.limit / 16),
        };
        self.make_room_within(wanted, limit)?;
        let buffer = self.create(wanted, user).map_err(NoBuffer::System)?;
        self.total += wanted;
        Ok(buffer)
    }

    /// A segment of at least `bytes` bytes, all zero. Clients hold segments for as long as they
    /// like, so half of the memory is kept for job buffers.
    pub(crate) fn share(&mut self, bytes: usize) -> Result<Segment, NoBuffer> {
        if bytes > self.limit / 2 {
            return Err(NoBuffer::TooLarge);
        }
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        if self.shared + bytes > self.limit / 2 {
            return Err(NoBuffer::Wait);
        }
        self.make_room(bytes)?;
        let fd = sealed_memory("farcall-shared", bytes).map_err(NoBuffer::System)?;
        self.total += bytes;
        self.shared += bytes;
        self.last_id += 1;
        let id = self.last_id;
        Ok(Segment { id, fd, bytes })
    }

    /// Memory for an array that stays, all zero.
    pub(crate) fn hold(&mut self, bytes: usize, user: &User) -> Result<JobBuffer, NoBuffer> {
        if bytes > self.limit {
            return Err(NoBuffer::TooLarge);
        }
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        self.make_room(bytes)?;
        let buffer = self.create(bytes, user).map_err(NoBuffer::System)?;
        self.total += bytes;
        Ok(buffer)
    }

    /// Ends a segment. Its client may keep the mapping, so its memory serves nobody else.
    pub(crate) fn end(&mut self, segment: Segment) {
        self.total -= segment.bytes;
        self.shared -= segment.bytes;
        self.retired.push(segment.id);
        free(segment.bytes, segment);
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), NoBuffer> {
        self.make_room_within(bytes, self.limit)
    }

    /// Idle buffers are given up as far as it takes to have `bytes` more within a limit.
    fn make_room_within(&mut self, bytes: usize, limit: usize) -> Result<(), NoBuffer> {
        while self.total + bytes > limit && !self.idle.is_empty() {
            let oldest = self.idle.remove(0);
            self.retire(oldest);
        }
        match self.total + bytes > limit {
            true => Err(NoBuffer::Wait),
            false => Ok(()),
        }
    }

    fn create(&mut self, bytes: usize, user: &User) -> io::Result<JobBuffer> {
        let fd = sealed_memory("farcall-job", bytes)?;
        let mapping = Mapping::soon(fd.as_fd(), bytes)?;
        self.last_id += 1;
        Ok(JobBuffer {
            user: user.clone(),
            id: self.last_id,
            fd,
            mapping,
        })
    }

    /// Takes a buffer back; it serves the next call of about its size.
    pub(crate) fn give_back(&mut self, buffer: JobBuffer) {
        self.idle.push(buffer);
    }

    /// Ends a buffer that a crashed worker may have left in any state.
    pub(crate) fn retire(&mut self, buffer: JobBuffer) {
        self.total -= buffer.bytes();
        self.retired.push(buffer.id);
        free(buffer.bytes(), buffer);
    }

    /// The buffers retired since the last call.
    pub(crate) fn take_retired(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.retired)
    }
}

/// Drops memory. To free much of it takes long, so that a thread does it.
pub(crate) fn free<M: Send + 'static>(bytes: usize, memory: M) {
    if bytes >= LARGE {
        // Where there is no thread to be had, the closure is dropped here.
        let thread = std::thread::Builder::new().name("farcall-free".into());
        let _ = thread.spawn(move || drop(memory));
    }
}

fn rounded(bytes: usize) -> usize {
    let step = (bytes / 8).next_power_of_two().max(GRAIN);
    bytes.max(1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused() {
        let mut pool = BufferPool::new(1 << 24);
        let user = User::anonymous();
        let buffer = pool.take(100_000, &user).unwrap();
        let id = buffer.id;
        pool.give_back(buffer);
        assert_eq!(pool.take(90_000, &user).unwrap().id, id);
    }

    #[test]
    fn a_buffer_never_changes_its_user() {
        let mut pool = BufferPool::new(1 << 20);
        let buffer = pool.take(1 << 19, &User::named("alice")).unwrap();
        let id = buffer.id;
        pool.give_back(buffer);
        let other = pool.take(1 << 19, &User::named("bob")).unwrap();
        assert_ne!(other.id, id);
        assert!(matches!(
            pool.take(1 << 20, &User::named("bob")),
            Err(NoBuffer::Wait)
        ));
        assert_eq!(pool.take_retired(), [id]);
    }

    #[test]
    fn the_limit_holds_and_idle_memory_makes_room() {
        let mut pool = BufferPool::new(1 << 20);
        let user = User::anonymous();
        assert!(matches!(
            pool.take((1 << 20) + 1, &user),
            Err(NoBuffer::TooLarge)
        ));
        let small = pool.take(1 << 19, &user).unwrap();
        assert!(matches!(pool.take(1 << 20, &user), Err(NoBuffer::Wait)));
        let id = small.id;
        pool.give_back(small);
        assert_eq!(pool.take((1 << 20) - 1, &user).unwrap().bytes(), 1 << 20);
        assert_eq!(pool.take_retired(), [id]);
    }

    #[test]
    fn segments_leave_room_for_buffers() {
        let mut pool = BufferPool::new(1 << 20);
        let user = User::anonymous();
        assert!(matches!(pool.share((1 << 19) + 1), Err(NoBuffer::TooLarge)));
        let segment = pool.share(300_000).unwrap();
        assert!(matches!(pool.share(300_000), Err(NoBuffer::Wait)));
        let buffer = pool.take(1 << 19, &user).unwrap();
        let id = segment.id;
        assert_ne!(id, buffer.id);
        pool.end(segment);
        assert_eq!(pool.take_retired(), [id]);
        pool.share(300_000).unwrap();
    }

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        for bytes in [1, 4096, 65_537, 1 << 20, (64 << 20) + 1] {
            let rounded = rounded(bytes);
            assert!(rounded >= bytes && rounded <= bytes + bytes / 4 + GRAIN);
        }
    }
}

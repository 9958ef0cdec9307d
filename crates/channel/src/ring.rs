//! A ring of records with one writer and one reader, in memory that neither trusts.
//!
//! Indices count bytes since the ring was created and only grow. The writer owns `tail` and the
//! reader owns `head`. Each side keeps its own index in private memory, and checks the other index
//! whenever it reads it. A record is a header of eight bytes followed by its data, padded to eight
//! bytes.

use std::ptr::NonNull;

use crate::error::Corrupt;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) type Byte = u8;
/// A byte of a ring. Loom checks every byte for races.
#[cfg(loom)]
pub(crate) type Byte = loom::cell::UnsafeCell<u8>;

/// Bytes of a record's header.
pub(crate) const RECORD_HEADER: u64 = 8;

/// Bytes of a record that counts as short: it is in one cache line or two.
#[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
const SHORT_RECORD: u64 = 48;

/// Bytes of a ring's control block.
pub const CONTROL_BYTES: usize = size_of::<Control>();

/// The shared indices of a ring. A block of zeros is an empty ring.
#[repr(C, align(64))]
pub(crate) struct Control {
    tail: WriterLine,
    head: ReaderLine,
}

#[repr(C, align(64))]
struct WriterLine {
    tail: AtomicU64,
    /// Nonzero when the writer sleeps until there is space.
    wants_room: AtomicU32,
}

#[repr(C, align(64))]
struct ReaderLine {
    head: AtomicU64,
}

/// The header of a record: a part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Bytes of this part.
    pub bytes: u32,
    /// Bytes of the message that follow in later records.
    pub rest: u32,
}

impl Record {
    /// Bytes that a record occupies in the ring.
    pub(crate) fn span(bytes: u32) -> u64 {
        RECORD_HEADER + u64::from(bytes).next_multiple_of(8)
    }

    pub(crate) fn encode(self) -> [u8; 8] {
        (u64::from(self.rest) << 32 | u64::from(self.bytes)).to_le_bytes()
    }

    pub(crate) fn decode(bytes: [u8; 8]) -> Record {
        let word = u64::from_le_bytes(bytes);
        Record {
            bytes: word as u32,
            rest: (word >> 32) as u32,
        }
    }
}

/// The memory of a ring.
#[derive(Clone, Copy)]
struct Ring {
    control: NonNull<Control>,
    data: NonNull<Byte>,
    capacity: u64,
}

impl Ring {
    fn control(&self) -> &Control {
        // SAFETY: the maker of the ring promised that it lives as long as the ring's ends.
        unsafe { self.control.as_ref() }
    }

    /// The number of bytes in the ring, or an error if the two indices are impossible.
    fn used(&self, tail: u64, head: u64) -> Result<u64, Corrupt> {
        let used = tail.wrapping_sub(head);
        let aligned = (tail | head) & 7 == 0;
        (used <= self.capacity && aligned)
            .then_some(used)
            .ok_or(Corrupt)
    }

    /// Copies into the ring at an index. The caller must own `[index, index + source.len())`.
    #[inline]
    fn copy_in(&self, index: u64, source: &[u8]) {
        let start = (index & (self.capacity - 1)) as usize;
        let first = source.len().min(self.capacity as usize - start);
        // SAFETY: both runs lie within the ring's `capacity` bytes, and the caller owns them.
        unsafe {
            copy_to(self.data.add(start), &source[..first]);
            if first < source.len() {
                copy_to(self.data, &source[first..]);
            }
        }
    }

    /// Copies out of the ring at an index. The caller must own `[index, index + target.len())`.
    #[inline]
    fn copy_out(&self, index: u64, target: &mut [u8]) {
        let start = (index & (self.capacity - 1)) as usize;
        let first = target.len().min(self.capacity as usize - start);
        let (one, other) = target.split_at_mut(first);
        // SAFETY: both runs lie within the ring's `capacity` bytes, and the caller owns them.
        unsafe {
            copy_from(self.data.add(start), one);
            if !other.is_empty() {
                copy_from(self.data, other);
            }
        }
    }

    /// The place of the eight bytes at an index that is a multiple of eight, such as a record's
    /// header. They are in one piece.
    #[inline]
    fn word(&self, index: u64) -> NonNull<Byte> {
        debug_assert_eq!(index % 8, 0);
        // SAFETY: the offset is less than the ring's `capacity` bytes.
        unsafe { self.data.add((index & (self.capacity - 1)) as usize) }
    }
}

#[cfg(not(loom))]
#[inline]
unsafe fn copy_to(target: NonNull<Byte>, source: &[u8]) {
    // SAFETY: the caller's promise; the source is private memory, so that they do not overlap.
    unsafe { target.copy_from_nonoverlapping(NonNull::from(source).cast(), source.len()) };
}

#[cfg(not(loom))]
#[inline]
unsafe fn copy_from(source: NonNull<Byte>, target: &mut [u8]) {
    let count = target.len();
    // SAFETY: the caller's promise; the target is private memory, so that they do not overlap.
    unsafe { source.copy_to_nonoverlapping(NonNull::from(target).cast(), count) };
}

#[cfg(loom)]
unsafe fn copy_to(target: NonNull<Byte>, source: &[u8]) {
    for (index, byte) in source.iter().enumerate() {
        // SAFETY: the caller's promise; loom checks it.
        unsafe { target.add(index).as_ref().with_mut(|place| *place = *byte) };
    }
}

#[cfg(loom)]
unsafe fn copy_from(source: NonNull<Byte>, target: &mut [u8]) {
    for (index, byte) in target.iter_mut().enumerate() {
        // SAFETY: the caller's promise; loom checks it.
        *byte = unsafe { source.add(index).as_ref().with(|place| *place) };
    }
}

/// The writing end.
pub struct Producer {
    ring: Ring,
    /// The index after the last byte written; [`Producer::publish`] shows it to the reader.
    tail: u64,
    /// The reader's index, as last seen.
    head: u64,
}

// SAFETY: the memory is shared between processes anyway; a producer is its only writer.
unsafe impl Send for Producer {}

impl Producer {
    /// Creates the writing end of the ring with this control block and this data.
    ///
    /// # Safety
    /// Both must stay mapped as long as the producer lives; `capacity` must be a power of two and
    /// the length of the data; nothing else in this process may write to the ring.
    pub unsafe fn new(control: NonNull<u8>, data: NonNull<u8>, capacity: usize) -> Producer {
        let ring = Ring {
            control: control.cast(),
            data: data.cast(),
            capacity: capacity as u64,
        };
        let tail = ring.control().tail.tail.load(Ordering::Relaxed) & !7;
        Producer {
            ring,
            tail,
            head: tail,
        }
    }

    /// Whether a record of `bytes` bytes fits now.
    pub fn fits(&mut self, bytes: u32) -> Result<bool, Corrupt> {
        self.has_space(Record::span(bytes))
    }

    /// Whether records that occupy `span` bytes fit now.
    #[inline]
    pub(crate) fn has_space(&mut self, span: u64) -> Result<bool, Corrupt> {
        let free = |used: u64| self.ring.capacity - used;
        let known = self.ring.used(self.tail, self.head).unwrap_or(u64::MAX);
        if known <= self.ring.capacity && free(known) >= span {
            return Ok(true);
        }
        let head = self.ring.control().head.head.load(Ordering::Acquire);
        let used = self.ring.used(self.tail, head)?;
        self.head = head;
        Ok(free(used) >= span)
    }

    /// Whether the reader has read and released everything.
    pub(crate) fn is_empty(&mut self) -> Result<bool, Corrupt> {
        let head = self.ring.control().head.head.load(Ordering::Acquire);
        Ok(self.ring.used(self.tail, head)? == 0)
    }

    /// Writes a record for which [`Producer::fits`] returned true. The reader sees it after
    /// [`Producer::publish`].
    pub fn write(&mut self, record: Record, bytes: &[u8]) {
        self.write_parts(record, &[], bytes);
    }

    /// The same for bytes in two places.
    #[inline]
    pub(crate) fn write_parts(&mut self, record: Record, head: &[u8], bytes: &[u8]) {
        debug_assert_eq!(record.bytes as usize, head.len() + bytes.len());
        // SAFETY: a header has eight bytes, and the writer owns them.
        unsafe { copy_to(self.ring.word(self.tail), &record.encode()) };
        let start = self.tail + RECORD_HEADER;
        self.ring.copy_in(start, head);
        self.ring.copy_in(start + head.len() as u64, bytes);
        self.tail += Record::span(record.bytes);
    }

    /// Copies whole records from another ring.
    pub(crate) fn write_records(&mut self, records: &[u8]) {
        debug_assert_eq!(records.len() % 8, 0);
        self.ring.copy_in(self.tail, records);
        self.tail += records.len() as u64;
    }

    /// Makes the written records visible to the reader.
    #[inline]
    pub fn publish(&mut self) {
        let line = &self.ring.control().tail;
        line.tail.store(self.tail, Ordering::Release);
    }

    /// Announces whether the writer sleeps until there is space.
    pub(crate) fn set_wants_room(&self, wants: bool) {
        let line = &self.ring.control().tail;
        line.wants_room.store(u32::from(wants), Ordering::Relaxed);
    }
}

/// The reading end.
pub struct Consumer {
    ring: Ring,
    /// The index after the last byte read. `released` is the part that the writer can use again.
    head: u64,
    released: u64,
    /// The writer's index, as last seen.
    tail: u64,
}

// SAFETY: the memory is shared between processes anyway; a consumer is its only reader.
unsafe impl Send for Consumer {}

impl Consumer {
    /// Creates the reading end of the ring with this control block and this data.
    ///
    /// # Safety
    /// As for [`Producer::new`]; nothing else in this process may read from the ring.
    pub unsafe fn new(control: NonNull<u8>, data: NonNull<u8>, capacity: usize) -> Consumer {
        let ring = Ring {
            control: control.cast(),
            data: data.cast(),
            capacity: capacity as u64,
        };
        let head = ring.control().head.head.load(Ordering::Relaxed) & !7;
        Consumer {
            ring,
            head,
            released: head,
            tail: head,
        }
    }

    /// Begins to load the place of the next record, if it is short. Then its bytes come at the same
    /// time as the writer's index that announces them, and not after it.
    #[inline]
    pub(crate) fn expect(&self) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        for offset in [0, SHORT_RECORD - RECORD_HEADER] {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = self.ring.word(self.head + offset);
            // SAFETY: the place is within the ring, and a program does not see what a cache loads.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(place.as_ptr().cast()) };
        }
    }

    /// The next record, if one is published. It stays in the ring until it is read.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record>, Corrupt> {
        if self.tail == self.head {
            let tail = self.ring.control().tail.tail.load(Ordering::Acquire);
            self.ring.used(tail, self.released)?;
            if tail.wrapping_sub(self.head) > self.ring.capacity {
                return Err(Corrupt);
            }
            self.tail = tail;
        }
        if self.tail == self.head {
            return Ok(None);
        }
        let mut header = [0; 8];
        // SAFETY: a header has eight bytes, and the reader owns them.
        unsafe { copy_from(self.ring.word(self.head), &mut header) };
        let record = Record::decode(header);
        let fits = Record::span(record.bytes) <= self.tail.wrapping_sub(self.head);
        fits.then_some(Some(record)).ok_or(Corrupt)
    }

    /// Copies the record that [`Consumer::peek`] returned into a buffer of its length. It uses the
    /// header that `peek` returned, because the memory may have changed.
    pub fn read(&mut self, record: Record, target: &mut [u8]) {
        self.read_parts(record, &mut [], target);
    }

    /// The same into two places.
    #[inline]
    pub(crate) fn read_parts(&mut self, record: Record, head: &mut [u8], target: &mut [u8]) {
        debug_assert_eq!(record.bytes as usize, head.len() + target.len());
        self.look(head);
        let start = self.head + RECORD_HEADER + head.len() as u64;
        self.ring.copy_out(start, target);
        self.head += Record::span(record.bytes);
    }

    /// Copies the beginning of the record that [`Consumer::peek`] returned, which stays in the
    /// ring. `target` is not longer than the record.
    #[inline]
    pub(crate) fn look(&self, target: &mut [u8]) {
        self.ring.copy_out(self.head + RECORD_HEADER, target);
    }

    /// Bytes that were read but not released.
    pub fn unreleased(&self) -> u64 {
        self.head - self.released
    }

    /// Releases the space of everything that was read.
    #[inline]
    pub fn release(&mut self) {
        self.release_bytes(self.head - self.released);
    }

    /// Releases the space of the first `bytes` bytes that were read but not released.
    #[inline]
    pub(crate) fn release_bytes(&mut self, bytes: u64) {
        self.released += bytes;
        let line = &self.ring.control().head;
        line.head.store(self.released, Ordering::Release);
    }

    /// Whether the writer sleeps until there is space.
    pub(crate) fn wants_room(&self) -> bool {
        let line = &self.ring.control().tail;
        line.wants_room.load(Ordering::Relaxed) != 0
    }

    /// Marks the record that [`Consumer::peek`] returned as read, without copying it. Its bytes
    /// stay until they are released.
    pub(crate) fn skip(&mut self, record: Record) {
        self.head += Record::span(record.bytes);
    }

    /// The addresses of bytes that were read but not released, from `offset` bytes after the first
    /// of them: one run, or two around the end of the ring. They stay until they are released, but
    /// the writer's process may still change them.
    pub(crate) fn unreleased_parts(&self, offset: u64, bytes: usize) -> [(*const u8, usize); 2] {
        debug_assert!(offset + bytes as u64 <= self.unreleased());
        let start = ((self.released + offset) & (self.ring.capacity - 1)) as usize;
        let first = bytes.min(self.ring.capacity as usize - start);
        let data = self.ring.data.cast::<u8>().as_ptr().cast_const();
        [(data.wrapping_add(start), first), (data, bytes - first)]
    }
}

/// The indices of a ring in memory: the reader's, then the writer's.
pub(crate) fn indices(control: &Control) -> (u64, u64) {
    let head = control.head.head.load(Ordering::Acquire);
    let tail = control.tail.tail.load(Ordering::Acquire);
    (head, tail)
}

/// Sets the indices of a ring whose ends are at rest.
pub(crate) fn set_indices(control: &Control, head: u64, tail: u64) {
    control.head.head.store(head, Ordering::Release);
    control.tail.tail.store(tail, Ordering::Release);
}

#[cfg(test)]
mod tests;

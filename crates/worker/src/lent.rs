//! Arrays that a call only reads, in memory that others use too: arrays of the caller in shared
//! memory, and stored arrays.
//!
//! Some routines write there all the same. LAPACK's `dsyevr` destroys its matrix, FFTW's inverse
//! real transforms destroy their input, and `dormqr` changes its factors for a moment. So functions
//! get a view of such memory that cannot be written. When one writes, the handler of the signal
//! puts a private copy of the array in its place, and the function continues. Nobody else sees what
//! it writes, and the next call gets a new view. For functions that only read, the view of a
//! segment is made once.

use farcall_memory::Mapping;
use rustix::mm::{Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags};
use rustix::mm::{madvise, mmap_anonymous, mprotect, mremap_fixed, munmap};
use rustix::param::page_size;
use std::collections::HashMap;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Shared memory, and the view of it for arrays that are only read.
pub(crate) struct Segment {
    mapping: Mapping,
    /// Made for the first such array.
    view: Option<View>,
}

impl Segment {
    pub(crate) fn new(mapping: Mapping) -> Segment {
        let view = None;
        Segment { mapping, view }
    }

    /// Where calls can read and write it.
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

/// A second mapping of a whole memory object, which cannot be written. A page of zeros follows it.
struct View {
    start: NonNull<u8>,
    reserved: usize,
}

// SAFETY: a view is plain memory, and only the thread of calls uses its address.
unsafe impl Send for View {}

impl View {
    fn of(mapping: &Mapping) -> io::Result<View> {
        let page = page_size();
        let pages = mapping.bytes().next_multiple_of(page);
        let reserved = pages + page;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing. The second
        // call replaces a part of it, which nobody else knows yet, by the same pages as those of
        // the shared mapping: the kernel copies a mapping that it moves by its size of 0.
        unsafe {
            let start = mmap_anonymous(null_mut(), reserved, ProtFlags::READ, flags)?;
            let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            let view = View { start, reserved };
            let (from, to) = (mapping.start().as_ptr().cast(), start.as_ptr().cast());
            mremap_fixed(from, 0, pages, MremapFlags::MAYMOVE, to)?;
            mprotect(to, pages, MprotectFlags::READ)?;
            // Otherwise each page is found at its first use.
            let _ = madvise(to, pages, Advice::LinuxPopulateRead);
            Ok(view)
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: start and length are those of a live mapping that nobody else unmaps.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.reserved) };
    }
}

/// The pages of one or more arrays.
struct Range {
    segment: u64,
    first: usize,
    end: usize,
    /// Whether the function has written there.
    is_private: AtomicBool,
    /// Faults there since then.
    late: AtomicUsize,
}

/// Most faults in a private copy: one for each thread that wrote while another one made the copy.
/// More are no writes: code was sought in the array, and no copy helps.
const MOST_LATE: usize = 1 << 16;

/// The pages of the present call that it must not change, for the handler.
static RANGES: AtomicPtr<Range> = AtomicPtr::new(null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while the handler copies: several threads of a library can write at once.
static COPIES: AtomicBool = AtomicBool::new(false);

/// The arrays of a call that it only reads.
#[derive(Default)]
pub(crate) struct Lent {
    ranges: Vec<Range>,
    copies: Vec<Vec<Block>>,
}

/// Memory that is aligned like a call buffer.
#[repr(align(64))]
struct Block(#[expect(dead_code, reason = "a copy fills it")] [u8; 64]);

impl Lent {
    /// The address of an array that the next call only reads, in this segment.
    pub(crate) fn add(
        &mut self,
        number: u64,
        segment: &mut Segment,
        offset: usize,
        bytes: usize,
    ) -> io::Result<*mut u8> {
        let view = match &mut segment.view {
            Some(view) => view,
            view => view.insert(View::of(&segment.mapping)?),
        };
        let array = view.start.as_ptr().wrapping_add(offset);
        let page = page_size();
        let address = array.expose_provenance();
        let mut first = address / page * page;
        // Some functions write to the first element of an empty array. A page follows the last one.
        let mut end = (address + bytes.max(1)).next_multiple_of(page);
        // Arrays on one page are copied together.
        self.ranges.retain(|range| {
            let overlaps = range.first < end && first < range.end;
            if overlaps {
                first = first.min(range.first);
                end = end.max(range.end);
            }
            !overlaps
        });
        self.ranges.push(Range {
            segment: number,
            first,
            end,
            is_private: AtomicBool::new(false),
            late: AtomicUsize::new(0),
        });
        Ok(array)
    }

    /// The address of a copy of an array that the next call only reads. MPI may write to memory by
    /// other means than a process, and keeps what it knows of memory that it has not freed itself.
    pub(crate) fn copy(
        &mut self,
        segment: &Segment,
        offset: usize,
        bytes: usize,
    ) -> io::Result<*mut u8> {
        let mut blocks: Vec<Block> = Vec::new();
        blocks
            .try_reserve_exact(bytes / size_of::<Block>() + 1)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        let to = blocks.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller has checked the range, and the blocks are at least as long.
        unsafe { to.copy_from_nonoverlapping(segment.mapping.start().as_ptr().add(offset), bytes) };
        self.copies.push(blocks);
        Ok(to)
    }

    /// The call begins.
    pub(crate) fn begin(&mut self) {
        RANGES.store(self.ranges.as_mut_ptr(), Ordering::Release);
        COUNT.store(self.ranges.len(), Ordering::Release);
    }

    /// The call has ended. Segments in which it wrote to such an array get new views.
    pub(crate) fn end(&mut self, segments: &mut HashMap<u64, Segment>) {
        COUNT.store(0, Ordering::Release);
        self.copies.clear();
        for range in self.ranges.drain(..) {
            if range.is_private.into_inner()
                && let Some(segment) = segments.get_mut(&range.segment)
            {
                segment.view = None;
            }
        }
    }
}

/// What the handler has done about a write.
pub(crate) enum Write {
    /// The function can continue: it has a private copy of the array.
    Allowed,
    /// There is no memory for a private copy.
    NoMemory,
    /// It was not in an array that the present call only reads.
    Elsewhere,
}

/// Lets the function write at an address, if it is in an array that the present call only reads:
/// puts a private copy of the array there.
///
/// This is for the handler of SIGSEGV: it makes only system calls and atomic accesses.
pub(crate) fn allow_write(address: usize) -> Write {
    let count = COUNT.load(Ordering::Acquire);
    if count == 0 {
        return Write::Elsewhere;
    }
    // SAFETY: `begin` has stored both for the present call, whose ranges do not change.
    let ranges = unsafe { std::slice::from_raw_parts(RANGES.load(Ordering::Acquire), count) };
    let mut ranges = ranges.iter();
    let Some(range) = ranges.find(|range| (range.first..range.end).contains(&address)) else {
        return Write::Elsewhere;
    };
    while COPIES.swap(true, Ordering::Acquire) {
        std::hint::spin_loop();
    }
    // Another thread may have been first.
    let was_private = range.is_private.load(Ordering::Relaxed);
    let is_private = was_private || copy(range.first, range.end).is_ok();
    range.is_private.store(is_private, Ordering::Relaxed);
    COPIES.store(false, Ordering::Release);
    if was_private && range.late.fetch_add(1, Ordering::Relaxed) >= MOST_LATE {
        return Write::Elsewhere;
    }
    match is_private {
        true => Write::Allowed,
        false => Write::NoMemory,
    }
}

/// Replaces pages by a private copy, at once for all threads. `rustix` makes plain system calls:
/// MPI libraries replace those of the C library.
fn copy(first: usize, end: usize) -> rustix::io::Result<()> {
    let bytes = end - first;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let to = std::ptr::with_exposed_provenance_mut::<u8>(first);
    // SAFETY: the pages are a part of a view, which can be read and which nobody unmaps meanwhile.
    // The new pages alias nothing, and take their place.
    unsafe {
        let copy = mmap_anonymous(null_mut(), bytes, protection, MapFlags::PRIVATE)?;
        std::ptr::copy_nonoverlapping(to, copy.cast(), bytes);
        mremap_fixed(copy, bytes, bytes, MremapFlags::MAYMOVE, to.cast())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_memory::sealed_memory;
    use std::os::fd::AsFd;

    #[test]
    fn what_a_call_writes_leaves_the_segment_alone() {
        let bytes = 2 * page_size();
        let fd = sealed_memory("farcall-test", bytes).unwrap();
        let mapping = Mapping::new(fd.as_fd(), bytes, true).unwrap();
        let shared = mapping.start().as_ptr();
        // SAFETY: the mapping is as long, and nobody else has it.
        unsafe { shared.write_bytes(7, bytes) };
        let mut segments = HashMap::from([(1, Segment::new(mapping))]);
        let mut lent = Lent::default();
        for round in 0..2 {
            let segment = segments.get_mut(&1).unwrap();
            let array = lent.add(1, segment, 8, 100).unwrap();
            // At the end of the segment.
            let empty = lent.add(1, segment, bytes, 0).unwrap();
            let copy = lent.copy(segment, bytes - 1, 1).unwrap();
            assert!(copy.addr().is_multiple_of(64));
            for range in &lent.ranges {
                copy_range(range);
            }
            // SAFETY: all are private now.
            unsafe {
                assert_eq!(
                    (array.read(), empty.read(), copy.read()),
                    (7, 0, 7),
                    "{round}"
                );
                array.write(1);
                empty.write(1);
                copy.write(1);
                assert_eq!((shared.add(8).read(), shared.add(bytes - 1).read()), (7, 7));
            }
            lent.end(&mut segments);
        }
    }

    #[test]
    fn faults_that_a_private_copy_does_not_end_are_fatal() {
        let bytes = page_size();
        let fd = sealed_memory("farcall-test", bytes).unwrap();
        let mapping = Mapping::new(fd.as_fd(), bytes, true).unwrap();
        let mut segments = HashMap::from([(1, Segment::new(mapping))]);
        let mut lent = Lent::default();
        let segment = segments.get_mut(&1).unwrap();
        let array = lent.add(1, segment, 0, bytes).unwrap();
        lent.begin();
        let writes = (0..2 * MOST_LATE).map(|_| allow_write(array.addr()));
        let allowed = writes.take_while(|write| matches!(write, Write::Allowed));
        assert_eq!(allowed.count(), 1 + MOST_LATE);
        lent.end(&mut segments);
    }

    fn copy_range(range: &Range) {
        copy(range.first, range.end).unwrap();
        range.is_private.store(true, Ordering::Relaxed);
    }
}

//! The memory segment of a gang job on one node: its header, its bells, its credits and its rings.
//! `layout` computes the offsets. Each side reads the header once and uses only its copy, so a
//! process that changes it cannot mislead others.

use crate::error::Corrupt;
use crate::futex;
use crate::layout::{ELEMENT_BYTES, Fifo, HEADER_BYTES, Layout, Shape, ShapeError};
use crate::polling::Said;
use crate::ring::{Consumer, Control, Producer};
use farcall_memory::{Mapping, sealed_memory};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

const MAGIC: u64 = 0x6661_7263_616c_6c32;

/// The header of a segment. Each side copies it once and uses only its copy.
#[repr(C)]
struct Header {
    magic: u64,
    job: u64,
    size: u32,
    locals: u32,
    channels: u32,
    spin: u32,
    fifos: [u32; 4],
    is_restored: u32,
    _pad: [u32; 17],
    /// Nonzero when the engine sleeps and wants its bell rung.
    engine_asleep: AtomicU32,
    /// Nonzero when the processes shall rest between two steps.
    asked: AtomicU32,
}

const _: () = assert!(size_of::<Header>() <= HEADER_BYTES);

/// The shared state of one process on one channel.
#[repr(C, align(64))]
pub(crate) struct Element {
    /// Credit of all rings into the process.
    pub(crate) inbound: Credit,
    /// Credit of its rings to other nodes.
    pub(crate) outbound: Credit,
    pub(crate) bell: Line<Bell>,
    /// What the process waits for, for an observer: see [`Element::waits_for`].
    wait: AtomicU64,
    /// Where the process stands among its steps; on the first channel alone.
    pub(crate) standing: Standing,
    /// What the process says of itself if it never sleeps.
    pub(crate) said: Said,
}

const _: () = assert!(size_of::<Element>() <= ELEMENT_BYTES);

impl Element {
    /// Records what the process waits for, after it has found nothing and before it sleeps. `seen`
    /// is the value that [`Bell::prepare`] returned.
    pub(crate) fn say_waiting(&self, wait: u64, seen: u32) {
        let word = wait | u64::from(seen as u16) << 48;
        self.wait.store(word, Ordering::Release);
    }

    pub(crate) fn say_running(&self) {
        self.wait.store(0, Ordering::Release);
    }

    /// What the process waits for, or 0 if its bell was rung since it last checked.
    pub(crate) fn waits_for(&self) -> u64 {
        let word = self.wait.load(Ordering::Acquire);
        let is_rung = (word >> 48) as u16 != self.bell.0.count.load(Ordering::Acquire) as u16;
        if is_rung { 0 } else { word & 0xffff_ffff_ffff }
    }
}

/// Where a process stands among its steps, and what the daemon tells it while it rests between two
/// of them. `steps` has the meaning of the numbers.
#[repr(C)]
pub(crate) struct Standing {
    pub(crate) phase: AtomicU32,
    /// What the daemon last said: see `Command`. A resting process sleeps on it.
    pub(crate) command: AtomicU32,
    /// Number of steps that are done.
    pub(crate) steps: AtomicU64,
    /// Bytes of the state that the process has last written.
    pub(crate) bytes: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// The contents of a set of rings: what was put in, less what was taken out. Each word counts
/// records in its upper half and bytes in its lower half, both modulo 2^32. The writers share one
/// word. The reader has the cache line of the other word to itself, so it can publish what it took
/// with a plain store.
#[repr(C)]
pub(crate) struct Credit {
    put: Line<AtomicU64>,
    taken: Line<AtomicU64>,
}

/// Attempts to change a word that others change too. Only a malicious process that changes the word
/// on purpose can exhaust them.
const TRIES: u32 = 1 << 16;

impl Credit {
    /// Takes credit for `records` records of `bytes` bytes in all, if the FIFO has space. `seen` is
    /// the count of what was taken out that the caller last saw. As long as that suffices, the
    /// reader's cache line is not touched. If the counts wrap around to the same value in the
    /// meantime, one message too many may enter; the rings bound it.
    pub(crate) fn reserve(&self, seen: &mut u64, fifo: Fifo, records: u64, bytes: u64) -> bool {
        let fits = |(standing_records, standing_bytes): (i32, i32)| {
            i64::from(standing_records) + records as i64 <= i64::from(fifo.messages)
                && i64::from(standing_bytes) + bytes as i64 <= i64::from(fifo.bytes)
        };
        let mut put = self.put.0.load(Ordering::Acquire);
        for _ in 0..TRIES {
            let known = difference(put, *seen);
            if known.0 < 0 || known.1 < 0 || !fits(known) {
                *seen = self.taken.0.load(Ordering::Acquire);
                if !fits(difference(put, *seen)) {
                    return false;
                }
            }
            match self.add(put, records, bytes) {
                Ok(()) => return true,
                Err(now) => put = now,
            }
        }
        false
    }

    /// Takes credit even if the FIFO is full: for the first records of an empty ring. Otherwise
    /// messages that nobody wants yet could keep out the awaited one.
    pub(crate) fn force(&self, records: u64, bytes: u64) -> bool {
        let mut put = self.put.0.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            match self.add(put, records, bytes) {
                Ok(()) => return true,
                Err(now) => put = now,
            }
        }
        false
    }

    fn add(&self, put: u64, records: u64, bytes: u64) -> Result<(), u64> {
        let (old, new) = (put, sum(put, records, bytes));
        let done = self
            .put
            .0
            .compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire);
        done.map(drop)
    }

    /// Records that this much was taken out. Only the reader may call it.
    pub(crate) fn give_back(&self, records: u64, bytes: u64) {
        let taken = self.taken.0.load(Ordering::Relaxed);
        self.taken
            .0
            .store(sum(taken, records, bytes), Ordering::Release);
    }

    /// Records and bytes in the rings.
    pub(crate) fn standing(&self) -> (u32, u32) {
        let (put, taken) = self.raw();
        let (records, bytes) = difference(put, taken);
        (records.max(0) as u32, bytes.max(0) as u32)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.0.load(Ordering::Acquire)
    }

    pub(crate) fn raw(&self) -> (u64, u64) {
        let put = self.put.0.load(Ordering::Relaxed);
        (put, self.taken.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set_raw(&self, (put, taken): (u64, u64)) {
        self.put.0.store(put, Ordering::Relaxed);
        self.taken.0.store(taken, Ordering::Relaxed);
    }
}

fn sum(word: u64, records: u64, bytes: u64) -> u64 {
    let all = ((word >> 32) as u32).wrapping_add(records as u32);
    u64::from(all) << 32 | u64::from((word as u32).wrapping_add(bytes as u32))
}

/// The difference in records and bytes. It is negative if more was taken out than the older value
/// of the other word shows as put in.
fn difference(put: u64, taken: u64) -> (i32, i32) {
    let records = ((put >> 32) as u32).wrapping_sub((taken >> 32) as u32);
    let bytes = (put as u32).wrapping_sub(taken as u32);
    (records as i32, bytes as i32)
}

/// The part through which a process sleeps and is woken.
#[repr(C)]
pub(crate) struct Bell {
    count: AtomicU32,
    is_waiting: AtomicU32,
    /// Number of processes of this node that wait until this one consumes something.
    pub(crate) room_waiters: AtomicU32,
}

impl Bell {
    /// Wakes the process if it sleeps. Store everything that it must see before this call.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.is_waiting.load(Ordering::Relaxed) != 0 {
            self.count.fetch_add(1, Ordering::Relaxed);
            futex::wake(&self.count);
        }
    }

    /// Announces a sleep. A change after this call wakes the process, so check again before
    /// sleeping.
    pub(crate) fn prepare(&self) -> u32 {
        let seen = self.count.load(Ordering::Relaxed);
        self.is_waiting.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        seen
    }

    pub(crate) fn sleep(&self, seen: u32, most: Option<Duration>) {
        futex::wait(&self.count, seen, most);
    }

    pub(crate) fn finish(&self) {
        self.is_waiting.store(0, Ordering::Relaxed);
    }
}

/// The mapped memory segment of a gang job on one node.
pub struct Segment {
    mapping: Mapping,
    pub(crate) layout: Layout,
    fd: Option<OwnedFd>,
    bell: Option<OwnedFd>,
    state: Option<File>,
}

impl Segment {
    /// Creates a segment. Its processes receive it through [`Segment::fd`].
    pub fn create(shape: Shape) -> io::Result<Segment> {
        let layout = Layout::new(shape).map_err(invalid)?;
        let fd = sealed_memory("farcall-job", layout.bytes())?;
        let mapping = Mapping::new(fd.as_fd(), layout.bytes(), false)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = memfd_create("farcall-state", MemfdFlags::CLOEXEC)?;
        let segment = Segment {
            mapping,
            layout,
            fd: Some(fd),
            bell: Some(bell),
            state: Some(File::from(state)),
        };
        segment.write_header();
        Ok(segment)
    }

    /// Maps a segment that another process created.
    pub fn open(fd: BorrowedFd<'_>) -> io::Result<Segment> {
        let bytes = rustix::fs::fstat(fd)?.st_size as usize;
        if bytes < HEADER_BYTES {
            return Err(invalid(Corrupt));
        }
        let mapping = Mapping::new(fd, bytes, false)?;
        let shape = read_header(&mapping)?;
        let layout = Layout::new(shape).map_err(invalid)?;
        if layout.bytes() != bytes {
            return Err(invalid(Corrupt));
        }
        Ok(Segment {
            mapping,
            layout,
            fd: None,
            bell: None,
            state: None,
        })
    }

    /// The memory object, in the process that created it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The bell that its processes ring after they have filled a ring for another node, in the
    /// process that created the segment. Each gang job has its own, because a process can also
    /// silence it.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(AsFd::as_fd)
    }

    /// The memory into which its processes write their state, in the process that created the
    /// segment. Its size is not sealed, so nobody maps it.
    pub fn state(&self) -> Option<&File> {
        self.state.as_ref()
    }

    /// The shape for which the segment was created.
    pub fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    /// Size of the whole segment in bytes: see [`Layout::bytes`].
    pub fn bytes(&self) -> usize {
        self.layout.bytes()
    }

    fn write_header(&self) {
        let shape = &self.layout.shape;
        let header = Header {
            magic: MAGIC,
            job: shape.job,
            size: shape.size.into(),
            locals: shape.locals.len() as u32,
            channels: shape.channels.into(),
            spin: shape.spin.into(),
            fifos: [
                shape.send.bytes,
                shape.send.messages,
                shape.receive.bytes,
                shape.receive.messages,
            ],
            is_restored: shape.is_restored.into(),
            _pad: [0; 17],
            engine_asleep: AtomicU32::new(0),
            asked: AtomicU32::new(0),
        };
        let tables = self.at::<u16>(HEADER_BYTES);
        // SAFETY: the header and two tables of `size` numbers lie within the mapping, and nobody
        // else has it yet.
        unsafe {
            self.at::<Header>(0).write(header);
            for (rank, place) in self.layout.place.iter().enumerate() {
                tables.add(rank).write(*place);
                let partition = shape.partitions[rank];
                tables.add(shape.partitions.len() + rank).write(partition);
            }
        }
    }

    fn at<T>(&self, offset: usize) -> NonNull<T> {
        debug_assert!(offset + size_of::<T>() <= self.mapping.bytes());
        // SAFETY: offsets come from the layout, whose total is the mapping's length.
        unsafe { self.mapping.start().add(offset).cast() }
    }

    fn header(&self) -> &Header {
        // SAFETY: the header lies at the start of the mapping; after creation only its atomic
        // field is used through this reference.
        unsafe { self.at::<Header>(0).as_ref() }
    }

    /// Returns true once each time the engine went to sleep; the caller must then ring its bell.
    pub(crate) fn take_engine_asleep(&self) -> bool {
        fence(Ordering::SeqCst);
        let flag = &self.header().engine_asleep;
        flag.load(Ordering::Relaxed) != 0 && flag.swap(0, Ordering::Relaxed) != 0
    }

    pub(crate) fn set_engine_asleep(&self, asleep: bool) {
        let flag = &self.header().engine_asleep;
        flag.store(u32::from(asleep), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the processes shall rest between two steps.
    pub(crate) fn is_asked(&self) -> bool {
        self.header().asked.load(Ordering::Acquire) != 0
    }

    pub(crate) fn set_asked(&self, is_asked: bool) {
        let flag = &self.header().asked;
        flag.store(u32::from(is_asked), Ordering::Release);
    }

    pub(crate) fn element(&self, channel: usize, place: usize) -> &Element {
        let offset = self.layout.element(channel, place);
        // SAFETY: the block lies within the mapping and consists of atomics alone.
        unsafe { self.at::<Element>(offset).as_ref() }
    }

    /// The writing end of the ring at the offsets that the layout returns.
    ///
    /// # Safety
    /// The segment must outlive it, and it must be the only one of its ring in this process.
    pub(crate) unsafe fn producer(&self, ring: (usize, usize)) -> Producer {
        let (control, data) = (self.at(ring.0), self.at(ring.1));
        // SAFETY: the caller's promise; the layout keeps rings apart.
        unsafe { Producer::new(control, data, self.layout.ring_bytes) }
    }

    /// The reading end of a ring.
    ///
    /// # Safety
    /// As for [`Segment::producer`].
    pub(crate) unsafe fn consumer(&self, ring: (usize, usize)) -> Consumer {
        let (control, data) = (self.at(ring.0), self.at(ring.1));
        // SAFETY: the caller's promise; the layout keeps rings apart.
        unsafe { Consumer::new(control, data, self.layout.ring_bytes) }
    }

    pub(crate) fn control(&self, ring: (usize, usize)) -> &Control {
        // SAFETY: the block lies within the mapping and consists of atomics alone.
        unsafe { self.at::<Control>(ring.0).as_ref() }
    }

    /// Copies out of a ring's data.
    pub(crate) fn copy_out(&self, ring: (usize, usize), index: u64, target: &mut [u8]) {
        let start = (index % self.layout.ring_bytes as u64) as usize;
        let first = target.len().min(self.layout.ring_bytes - start);
        let (one, other) = target.split_at_mut(first);
        for (offset, part) in [(ring.1 + start, one), (ring.1, other)] {
            let place = self.at::<u8>(offset);
            let count = part.len();
            // SAFETY: the part lies within the ring's data; what a running process writes
            // meanwhile may be seen torn, and is judged as any foreign bytes.
            unsafe { place.copy_to_nonoverlapping(NonNull::from(part).cast(), count) };
        }
    }

    /// Copies into a ring's data. The processes of the ring must be stopped.
    pub(crate) fn copy_in(&self, ring: (usize, usize), index: u64, source: &[u8]) {
        let start = (index % self.layout.ring_bytes as u64) as usize;
        let first = source.len().min(self.layout.ring_bytes - start);
        for (offset, part) in [
            (ring.1 + start, &source[..first]),
            (ring.1, &source[first..]),
        ] {
            let place = self.at::<u8>(offset);
            // SAFETY: the part lies within the ring's data.
            unsafe { place.copy_from_nonoverlapping(NonNull::from(part).cast(), part.len()) };
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl From<ShapeError> for io::Error {
    fn from(error: ShapeError) -> io::Error {
        invalid(error)
    }
}

fn read_header(mapping: &Mapping) -> io::Result<Shape> {
    // SAFETY: the mapping is at least as long as a header; its fields may hold anything.
    let header = unsafe { mapping.start().cast::<Header>().read() };
    let size = header.size as usize;
    let end = HEADER_BYTES + 4 * size;
    if header.magic != MAGIC || size > usize::from(u16::MAX) || end > mapping.bytes() {
        return Err(invalid(Corrupt));
    }
    let mut table = vec![0u16; 2 * size];
    // SAFETY: both tables lie within the mapping.
    unsafe {
        let place = mapping.start().add(HEADER_BYTES).cast::<u16>();
        place.copy_to_nonoverlapping(NonNull::from(&mut table[..]).cast(), 2 * size);
    }
    let (places, partitions) = table.split_at(size);
    let mut locals: Vec<u16> = (0..size as u16).collect();
    locals.retain(|rank| places[usize::from(*rank)] != crate::layout::REMOTE);
    let [send_bytes, send_messages, receive_bytes, receive_messages] = header.fifos;
    Ok(Shape {
        job: header.job,
        size: header.size as u16,
        locals,
        channels: header.channels.try_into().map_err(invalid)?,
        partitions: partitions.to_vec(),
        send: Fifo {
            bytes: send_bytes,
            messages: send_messages,
        },
        receive: Fifo {
            bytes: receive_bytes,
            messages: receive_messages,
        },
        spin: header.spin != 0,
        is_restored: header.is_restored != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credit() -> Credit {
        let word = || Line(AtomicU64::new(u64::from(u32::MAX - 20) << 32 | 0xffff_fff0));
        Credit {
            put: word(),
            taken: word(),
        }
    }

    /// The counts wrap around during this test.
    #[test]
    fn returned_credit_can_be_taken_again() {
        let credit = credit();
        let fifo = Fifo {
            bytes: 100,
            messages: 3,
        };
        let mut seen = 0;
        for _ in 0..40 {
            assert!(credit.reserve(&mut seen, fifo, 2, 90));
            assert!(!credit.reserve(&mut seen, fifo, 1, 11));
            assert!(!credit.reserve(&mut seen, fifo, 2, 1));
            assert!(credit.force(1, 50));
            assert_eq!(credit.standing(), (3, 140));
            credit.give_back(3, 140);
            assert_eq!(credit.standing(), (0, 0));
        }
    }

    /// A sender that asks for too much credit takes none from a sender that asks for what is free.
    #[test]
    fn a_refused_sender_does_not_block_others() {
        let credit = credit();
        let fifo = Fifo {
            bytes: 1000,
            messages: 100,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seen = 0;
                for _ in 0..200_000 {
                    assert!(!credit.reserve(&mut seen, fifo, 1, 2000));
                }
            });
            let mut seen = 0;
            for _ in 0..200_000 {
                assert!(credit.reserve(&mut seen, fifo, 1, 900));
                credit.give_back(1, 900);
            }
        });
    }
}

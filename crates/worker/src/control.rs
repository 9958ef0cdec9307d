//! The control page that a server and one of its workers share: a ring of requests, passed on by
//! two counters. Each side polls the other's counter for a while before it sleeps.
//!
//! A short request may be posted behind others. The worker takes requests in order. The server may
//! withdraw a request until the worker has taken it; an atomic word decides which of the two was
//! first.

use farcall_memory::{Mapping, sealed_memory};
use farcall_rpc_proto::{Failure, FailureKind};
use farcall_spin::Spin;
use rustix::thread::futex;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Size of the field for a request's scalars or an error's text.
pub const TEXT_BYTES: usize = 1 << 20;
/// The same size for a request that shares the ring with others.
pub const SLOT_TEXT_BYTES: usize = 2048;
/// Most bytes of an error's text. It must fit into a message to the client, and into the record of
/// a durable call.
const FAILURE_BYTES: usize = 16 << 10;
/// Most requests that are posted at once.
pub const SLOTS: usize = 16;

/// State of a request: the server may withdraw it.
const POSTED: u32 = 0;
/// State of a request: the worker has taken it.
const TAKEN: u32 = 1;
/// State of a request: the server has withdrawn it.
const WITHDRAWN: u32 = 2;

#[repr(C, align(64))]
struct Line<T>(T);

/// Each counter has its own cache line, with the flag of the side that sleeps on it.
#[repr(C)]
struct Page {
    posted: Line<Counter>,
    finished: Line<Counter>,
    last_words: Line<LastWords>,
    slots: [Line<Slot>; SLOTS],
    text: [u8; TEXT_BYTES],
}

#[repr(C)]
struct Counter {
    count: AtomicU32,
    /// Whether the side that waits for the counter sleeps, or is about to.
    sleeping: AtomicU32,
}

/// One request, and its outcome.
#[repr(C)]
struct Slot {
    state: AtomicU32,
    alone: AtomicU32,
    function: AtomicU64,
    buffer: AtomicU64,
    swap: AtomicU32,
    memory_messages: AtomicU32,
    message_bytes: AtomicU32,
    pes: AtomicU32,
    exec_nanos: AtomicU64,
    status: AtomicU32,
    text_bytes: AtomicU32,
    text: [u8; SLOT_TEXT_BYTES],
}

/// Written by the worker's signal handler.
#[repr(C)]
struct LastWords {
    /// The signal that ends the worker.
    signal: AtomicU32,
    /// Whether memory had run out.
    out_of_memory: AtomicU32,
}

/// A request to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index of the function in the library's catalog.
    pub function: u64,
    /// The call buffer; 0 for a call without arrays.
    pub buffer: u64,
    /// Whether the arrays arrived in the other byte order.
    pub swap: bool,
    /// Number of messages about buffers to read from the socket first.
    pub memory_messages: u32,
    /// Processor elements of the call; 0 if they do not matter.
    pub pes: u32,
    /// Whether no other request is posted meanwhile, so that its texts may be long.
    pub alone: bool,
}

impl Request {
    /// The index of no function.
    const NONE: u64 = u64::MAX;

    /// A request that only reads messages about memory.
    pub fn unmap(memory_messages: u32) -> Request {
        Request {
            function: Request::NONE,
            buffer: 0,
            swap: false,
            memory_messages,
            pes: 0,
            alone: true,
        }
    }

    /// Whether the request calls nothing.
    pub fn is_unmap(&self) -> bool {
        self.function == Request::NONE
    }
}

/// How a request ended, if the worker survived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Nanoseconds in the library.
    pub exec_nanos: u64,
    /// Why there are no results.
    pub failure: Option<Failure>,
}

impl Outcome {
    /// The outcome of a request that called nothing.
    pub const NONE: Outcome = Outcome {
        exec_nanos: 0,
        failure: None,
    };
}

/// One side's view of the page. This side keeps its own counts, because the library may have
/// written anywhere in the page.
pub struct Control {
    fd: OwnedFd,
    mapping: Mapping,
    /// Server: requests posted so far.
    posted: Cell<u32>,
    /// Server: outcomes taken so far. Worker: requests seen so far.
    done: Cell<u32>,
}

impl Control {
    pub fn create() -> io::Result<Control> {
        Control::open(sealed_memory("farcall-control", size_of::<Page>())?)
    }

    pub fn open(fd: OwnedFd) -> io::Result<Control> {
        let mapping = Mapping::new(fd.as_fd(), size_of::<Page>(), true)?;
        Ok(Control {
            fd,
            mapping,
            posted: Cell::new(0),
            done: Cell::new(0),
        })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is as large as a page and lives as long as `self`. All fields but
        // the texts are atomics; those are only reached through raw pointers. The size is sealed.
        unsafe { &*self.mapping.start().as_ptr().cast::<Page>() }
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.page().slots[number as usize % SLOTS].0
    }

    /// Address and size of the field for a request's texts.
    fn text_of(&self, number: u32, alone: bool) -> (*mut u8, usize) {
        let page = self.mapping.start().as_ptr().cast::<Page>();
        // SAFETY: the fields lie within the mapping.
        unsafe {
            match alone {
                true => ((&raw mut (*page).text).cast(), TEXT_BYTES),
                false => {
                    let slot = &raw mut (*page).slots[number as usize % SLOTS].0.text;
                    (slot.cast(), SLOT_TEXT_BYTES)
                }
            }
        }
    }

    /// Server: posts a request. `message` is the encoded call. Up to [`SLOTS`] requests that are
    /// not `alone` may follow each other.
    pub fn post(&self, request: &Request, message: &[u8]) {
        let number = self.posted.get();
        assert!(self.pending() < SLOTS, "asked before");
        let (text, room) = self.text_of(number, request.alone);
        assert!(message.len() <= room, "checked before");
        let slot = self.slot(number);
        slot.function.store(request.function, Ordering::Relaxed);
        slot.buffer.store(request.buffer, Ordering::Relaxed);
        slot.swap.store(request.swap.into(), Ordering::Relaxed);
        slot.memory_messages
            .store(request.memory_messages, Ordering::Relaxed);
        slot.message_bytes
            .store(message.len() as u32, Ordering::Relaxed);
        slot.pes.store(request.pes, Ordering::Relaxed);
        slot.alone.store(request.alone.into(), Ordering::Relaxed);
        slot.state.store(POSTED, Ordering::Relaxed);
        // SAFETY: the length is checked above; the worker reads only after the counter moved.
        unsafe { text.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
        self.posted.set(number.wrapping_add(1));
        let counter = &self.page().posted.0;
        counter.count.store(self.posted.get(), Ordering::SeqCst);
        if counter.sleeping.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&counter.count, futex::Flags::empty(), 1);
        }
    }

    /// Server: number of requests whose outcome was not taken yet.
    pub fn pending(&self) -> usize {
        self.posted.get().wrapping_sub(self.done.get()) as usize
    }

    /// Server: number of these that are finished.
    pub fn finished(&self) -> usize {
        let count = self.page().finished.0.count.load(Ordering::Acquire);
        let finished = count.wrapping_sub(self.done.get()) as usize;
        // Any other value was not written by the worker.
        if finished <= self.pending() {
            finished
        } else {
            0
        }
    }

    /// Server: asks for the doorbell when a request finishes, because the server is about to sleep.
    /// Returns `false` if one is finished already.
    pub fn ask_for_doorbell(&self) -> bool {
        self.page().finished.0.sleeping.store(1, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
        self.finished() == 0
    }

    /// Server: withdraws the request behind this many others, unless the worker has taken it. Its
    /// outcome still arrives, and is empty.
    pub fn withdraw(&self, behind: usize) -> bool {
        self.change(self.done.get().wrapping_add(behind as u32), WITHDRAWN)
    }

    /// Server: whether the worker has taken the oldest request.
    pub fn is_taken(&self) -> bool {
        self.slot(self.done.get()).state.load(Ordering::Acquire) == TAKEN
    }

    fn change(&self, number: u32, to: u32) -> bool {
        let state = &self.slot(number).state;
        state
            .compare_exchange(POSTED, to, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Server: takes the outcome of the oldest request, which is finished. Everything is checked,
    /// because the library may have written anywhere.
    pub fn take_outcome(&self) -> Outcome {
        let number = self.done.get();
        let slot = self.slot(number);
        let status = slot.status.load(Ordering::Relaxed);
        let outcome = Outcome {
            exec_nanos: slot.exec_nanos.load(Ordering::Relaxed),
            failure: (status != 0).then(|| {
                let alone = slot.alone.load(Ordering::Relaxed) != 0;
                let bytes = slot.text_bytes.load(Ordering::Relaxed);
                let text = self.text(number, alone, bytes.min(FAILURE_BYTES as u32));
                let text = String::from_utf8_lossy(&text);
                Failure::new(FailureKind::from_number(status), text)
            }),
        };
        self.done.set(number.wrapping_add(1));
        outcome
    }

    /// Server: what the signal handler of a dead worker wrote: the signal, and whether memory had
    /// run out.
    pub fn last_words(&self) -> (u32, bool) {
        let words = &self.page().last_words.0;
        let out_of_memory = words.out_of_memory.load(Ordering::Relaxed) != 0;
        (words.signal.load(Ordering::Relaxed), out_of_memory)
    }

    /// Worker: whether there is a request that it has not taken.
    pub fn has_more(&self) -> bool {
        self.page().posted.0.count.load(Ordering::Acquire) != self.done.get()
    }

    /// Worker: waits for the next request.
    pub fn wait(&self, spin: &Spin) {
        /// Polls before other threads may run.
        const LOOKS: usize = 4;
        let mut wait = spin.begin();
        while wait.spins() {
            for _ in 0..LOOKS {
                if self.has_more() {
                    return;
                }
                std::hint::spin_loop();
            }
            if !wait.look_again() {
                break;
            }
        }
        let (counter, seen) = (&self.page().posted.0, self.done.get());
        counter.sleeping.store(1, Ordering::SeqCst);
        while counter.count.load(Ordering::SeqCst) == seen {
            let _ = futex::wait(&counter.count, futex::Flags::empty(), seen, None);
        }
        counter.sleeping.store(0, Ordering::Relaxed);
    }

    /// Worker: takes the next request, and a private copy of the encoded call. Returns `false` if
    /// the server has withdrawn it.
    pub fn take(&self, message: &mut Vec<u8>) -> (Request, bool) {
        let number = self.done.get();
        self.done.set(number.wrapping_add(1));
        let taken = self.change(number, TAKEN);
        let slot = self.slot(number);
        let alone = slot.alone.load(Ordering::Relaxed) != 0;
        message.clear();
        let bytes = slot.message_bytes.load(Ordering::Relaxed);
        message.extend_from_slice(&self.text(number, alone, bytes));
        let request = Request {
            function: slot.function.load(Ordering::Relaxed),
            buffer: slot.buffer.load(Ordering::Relaxed),
            swap: slot.swap.load(Ordering::Relaxed) != 0,
            memory_messages: slot.memory_messages.load(Ordering::Relaxed),
            pes: slot.pes.load(Ordering::Relaxed),
            alone,
        };
        (request, taken)
    }

    /// Worker: finishes the request that it took last. A text that is too long is cut.
    pub fn finish(&self, outcome: &Outcome) {
        let number = self.done.get().wrapping_sub(1);
        let slot = self.slot(number);
        let failure = outcome.failure.as_ref();
        let text = failure.map_or(&[][..], |failure| failure.message.as_bytes());
        let (place, room) = self.text_of(number, slot.alone.load(Ordering::Relaxed) != 0);
        let text = &text[..text.len().min(room).min(FAILURE_BYTES)];
        let status = failure.map_or(0, |failure| failure.kind as u32);
        slot.exec_nanos.store(outcome.exec_nanos, Ordering::Relaxed);
        slot.status.store(status, Ordering::Relaxed);
        slot.text_bytes.store(text.len() as u32, Ordering::Relaxed);
        // SAFETY: the length is bounded above; the server reads only after the counter moved.
        unsafe { place.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        let finished = &self.page().finished.0.count;
        finished.store(self.done.get(), Ordering::SeqCst);
    }

    /// Worker: whether the server wants the doorbell rung. Asked once.
    pub fn wants_doorbell(&self) -> bool {
        std::sync::atomic::fence(Ordering::SeqCst);
        self.page().finished.0.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Worker, in a signal handler: records why the process ends.
    pub fn leave_last_words(&self, signal: u32, out_of_memory: bool) {
        let words = &self.page().last_words.0;
        words
            .out_of_memory
            .store(out_of_memory.into(), Ordering::Relaxed);
        words.signal.store(signal, Ordering::Relaxed);
    }

    fn text(&self, number: u32, alone: bool, bytes: u32) -> Vec<u8> {
        let (start, room) = self.text_of(number, alone);
        let bytes = (bytes as usize).min(room);
        let mut copy = vec![0; bytes];
        // SAFETY: the length is bounded by the field; both sides treat it as plain bytes.
        unsafe { start.copy_to_nonoverlapping(copy.as_mut_ptr(), bytes) };
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pair() -> (Control, Control) {
        let server = Control::create().unwrap();
        let worker = Control::open(server.fd().try_clone_to_owned().unwrap()).unwrap();
        (server, worker)
    }

    fn request(function: u64, alone: bool) -> Request {
        Request {
            function,
            buffer: 0,
            swap: false,
            memory_messages: 0,
            pes: 1,
            alone,
        }
    }

    #[test]
    fn requests_pass_and_outcomes_return() {
        let (server, worker) = pair();
        let rounds = 3000u32;
        let refused = |round: u32| Failure::new(FailureKind::BadArgument, format!("no {round}"));
        let child = std::thread::spawn(move || {
            let mut message = Vec::new();
            let spin = Spin::new(Duration::from_micros(20));
            for round in 0..rounds {
                worker.wait(&spin);
                let (request, taken) = worker.take(&mut message);
                assert!(taken);
                assert_eq!(message, round.to_le_bytes());
                worker.finish(&Outcome {
                    exec_nanos: request.function,
                    failure: (round % 2 == 0).then(|| refused(round)),
                });
            }
        });
        let (mut posted, mut taken) = (0, 0);
        while taken < rounds {
            let alone = posted % 7 == 0;
            if posted < rounds
                && server.pending() < SLOTS
                && (!alone && posted % 7 != 1 || server.pending() == 0)
            {
                server.post(
                    &request(u64::from(posted) * 3, alone),
                    &posted.to_le_bytes(),
                );
                posted += 1;
            }
            for _ in 0..server.finished() {
                let outcome = server.take_outcome();
                assert_eq!(outcome.exec_nanos, u64::from(taken) * 3);
                assert_eq!(outcome.failure, (taken % 2 == 0).then(|| refused(taken)));
                taken += 1;
            }
            std::thread::yield_now();
        }
        child.join().unwrap();
    }

    #[test]
    fn a_long_error_is_cut_so_that_it_fits_into_a_message() {
        let (server, worker) = pair();
        for (alone, most) in [(true, FAILURE_BYTES), (false, SLOT_TEXT_BYTES)] {
            server.post(&request(1, alone), b"");
            worker.take(&mut Vec::new());
            let failure = Failure::new(FailureKind::FunctionFailed, "x".repeat(TEXT_BYTES));
            worker.finish(&Outcome {
                failure: Some(failure),
                ..Outcome::NONE
            });
            // The library may have written this number, too.
            let number = server.done.get();
            let text_bytes = &server.slot(number).text_bytes;
            text_bytes.store(TEXT_BYTES as u32, Ordering::Relaxed);
            let failure = server.take_outcome().failure.unwrap();
            assert_eq!(failure.message.len(), most);
        }
    }

    #[test]
    fn a_doorbell_is_asked_for_only_while_there_is_something_to_wait_for() {
        let (server, worker) = pair();
        server.post(&request(1, true), b"");
        assert!(server.ask_for_doorbell());
        worker.take(&mut Vec::new());
        worker.finish(&Outcome::NONE);
        assert!(worker.wants_doorbell());
        assert!(!worker.wants_doorbell());
        assert!(!server.ask_for_doorbell());
    }

    #[test]
    fn either_the_server_or_the_worker_has_a_request() {
        let (server, worker) = pair();
        let mut message = Vec::new();
        for function in 0..3 {
            server.post(&request(function, false), b"call");
        }
        assert!(worker.take(&mut message).1);
        assert!(server.is_taken() && !server.withdraw(0) && server.withdraw(1));
        worker.finish(&Outcome::NONE);
        assert!(!worker.take(&mut message).1);
        worker.finish(&Outcome::NONE);
        assert!(worker.take(&mut message).1);
        assert!(!server.withdraw(2));
        assert_eq!((server.pending(), server.finished()), (3, 2));
    }

    #[test]
    fn a_count_that_nobody_should_have_written_is_no_outcome() {
        let (server, worker) = pair();
        server.post(&request(1, true), b"");
        worker.page().finished.0.count.store(77, Ordering::SeqCst);
        assert_eq!(server.finished(), 0);
    }
}

//! The page that a server and one of its workers share: one request at a time, handed over by
//! two counters. Each side looks at the other's counter for a while before it sleeps.

use crate::buffer::{Mapping, sealed_memory};
use farcall_rpc_proto::{Failure, FailureKind};
use farcall_spin::Spin;
use rustix::thread::futex;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Room for the scalars of a request, or for the text of an error.
pub(crate) const TEXT_BYTES: usize = 1 << 20;

#[repr(C, align(64))]
struct Line<T>(T);

/// Each counter has its cache line, with the flag of the side that sleeps on it.
#[repr(C)]
struct Page {
    posted: Line<Counter>,
    finished: Line<Counter>,
    request: Line<RequestFields>,
    outcome: Line<OutcomeFields>,
    text: [u8; TEXT_BYTES],
}

#[repr(C)]
struct Counter {
    count: AtomicU32,
    /// The side that waits for the counter sleeps, or is about to.
    sleeping: AtomicU32,
}

#[repr(C)]
struct RequestFields {
    function: AtomicU64,
    buffer: AtomicU64,
    swap: AtomicU32,
    memory_messages: AtomicU32,
    message_bytes: AtomicU32,
    pes: AtomicU32,
}

#[repr(C)]
struct OutcomeFields {
    exec_nanos: AtomicU64,
    status: AtomicU32,
    text_bytes: AtomicU32,
    /// Written by the worker's signal handler: the signal that ends it.
    signal: AtomicU32,
    /// Likewise: whether no more memory could be had at that moment.
    out_of_memory: AtomicU32,
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Index of the function in the library's catalog.
    pub(crate) function: u64,
    /// The job buffer; 0 for a call without arrays.
    pub(crate) buffer: u64,
    /// The arrays came in the other byte order.
    pub(crate) swap: bool,
    /// Messages about buffers to be read from the socket first.
    pub(crate) memory_messages: u32,
    /// Processor elements it has; 0 where it does not matter.
    pub(crate) pes: u32,
}

impl Request {
    /// Index of no function.
    const NONE: u64 = u64::MAX;

    /// To read messages about memory and do nothing else.
    pub(crate) fn unmap(memory_messages: u32) -> Request {
        Request {
            function: Request::NONE,
            buffer: 0,
            swap: false,
            memory_messages,
            pes: 0,
        }
    }

    /// Whether there is nothing to call.
    pub(crate) fn is_unmap(&self) -> bool {
        self.function == Request::NONE
    }
}

/// How a request ended, if the worker lived to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Nanoseconds in the library.
    pub(crate) exec_nanos: u64,
    /// Why there are no results.
    pub(crate) failure: Option<Failure>,
}

/// One side's view of the page.
pub(crate) struct Control {
    fd: OwnedFd,
    mapping: Mapping,
}

impl Control {
    pub(crate) fn create() -> io::Result<Control> {
        Control::open(sealed_memory("farcall-control", size_of::<Page>())?)
    }

    pub(crate) fn open(fd: OwnedFd) -> io::Result<Control> {
        let mapping = Mapping::new(fd.as_fd(), size_of::<Page>())?;
        Ok(Control { fd, mapping })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is as large as a page and lives as long as `self`. All fields but
        // `text` are atomics; `text` is only reached through raw pointers. The size is sealed.
        unsafe { &*self.mapping.start().cast::<Page>() }
    }

    fn text_start(&self) -> *mut u8 {
        // SAFETY: the field lies within the mapping.
        unsafe { (&raw mut (*self.mapping.start().cast::<Page>()).text).cast() }
    }

    /// Server: hands the worker a request. `message` is the encoded call.
    pub(crate) fn post(&self, request: &Request, message: &[u8]) {
        assert!(
            message.len() <= TEXT_BYTES,
            "checked before the call was accepted"
        );
        let page = self.page();
        let fields = &page.request.0;
        fields.function.store(request.function, Ordering::Relaxed);
        fields.buffer.store(request.buffer, Ordering::Relaxed);
        fields.swap.store(request.swap.into(), Ordering::Relaxed);
        fields
            .memory_messages
            .store(request.memory_messages, Ordering::Relaxed);
        fields
            .message_bytes
            .store(message.len() as u32, Ordering::Relaxed);
        fields.pes.store(request.pes, Ordering::Relaxed);
        // SAFETY: the length is checked above; the worker reads only after the counter moved.
        unsafe {
            self.text_start()
                .copy_from_nonoverlapping(message.as_ptr(), message.len())
        };
        let counter = &page.posted.0;
        counter.count.fetch_add(1, Ordering::SeqCst);
        if counter.sleeping.load(Ordering::SeqCst) != 0 {
            let _ = futex::wake(&counter.count, futex::Flags::empty(), 1);
        }
    }

    /// Server: whether the request posted last is finished.
    pub(crate) fn is_finished(&self) -> bool {
        let page = self.page();
        page.finished.0.count.load(Ordering::Acquire) == page.posted.0.count.load(Ordering::Relaxed)
    }

    /// Server: asks for the doorbell when the request finishes, because it goes to sleep. Returns
    /// `false` if the request is finished by now, so that there is nothing to wait for.
    pub(crate) fn ask_for_doorbell(&self) -> bool {
        self.page().finished.0.sleeping.store(1, Ordering::SeqCst);
        let page = self.page();
        page.finished.0.count.load(Ordering::SeqCst) != page.posted.0.count.load(Ordering::Relaxed)
    }

    /// Server: how the finished request ended. Everything is checked: the library may have
    /// written anywhere.
    pub(crate) fn outcome(&self) -> Outcome {
        let fields = &self.page().outcome.0;
        let status = fields.status.load(Ordering::Relaxed);
        let bytes = fields.text_bytes.load(Ordering::Relaxed);
        let failure = || {
            let text = self.text(bytes);
            Failure::new(
                FailureKind::from_number(status),
                String::from_utf8_lossy(&text),
            )
        };
        Outcome {
            exec_nanos: fields.exec_nanos.load(Ordering::Relaxed),
            failure: (status != 0).then(failure),
        }
    }

    /// Server: what the signal handler of a dead worker wrote: the signal, and whether memory
    /// had run out.
    pub(crate) fn last_words(&self) -> (u32, bool) {
        let fields = &self.page().outcome.0;
        let out_of_memory = fields.out_of_memory.load(Ordering::Relaxed) != 0;
        (fields.signal.load(Ordering::Relaxed), out_of_memory)
    }

    /// Worker: waits for the request after the `seen`th.
    pub(crate) fn wait(&self, seen: u32, spin: &Spin) {
        /// Looks before other threads are let run.
        const LOOKS: usize = 64;
        let counter = &self.page().posted.0;
        let mut wait = spin.begin();
        while wait.spins() {
            for _ in 0..LOOKS {
                if counter.count.load(Ordering::Acquire) != seen {
                    return;
                }
                std::hint::spin_loop();
            }
            if !wait.look_again() {
                break;
            }
        }
        counter.sleeping.store(1, Ordering::SeqCst);
        while counter.count.load(Ordering::SeqCst) == seen {
            let _ = futex::wait(&counter.count, futex::Flags::empty(), seen, None);
        }
        counter.sleeping.store(0, Ordering::Relaxed);
    }

    /// Worker: requests posted so far.
    pub(crate) fn posted(&self) -> u32 {
        self.page().posted.0.count.load(Ordering::Acquire)
    }

    /// Worker: the request, and a private copy of the encoded call.
    pub(crate) fn request(&self, message: &mut Vec<u8>) -> Request {
        let fields = &self.page().request.0;
        message.clear();
        message.extend_from_slice(&self.text(fields.message_bytes.load(Ordering::Relaxed)));
        Request {
            function: fields.function.load(Ordering::Relaxed),
            buffer: fields.buffer.load(Ordering::Relaxed),
            swap: fields.swap.load(Ordering::Relaxed) != 0,
            memory_messages: fields.memory_messages.load(Ordering::Relaxed),
            pes: fields.pes.load(Ordering::Relaxed),
        }
    }

    /// Worker: the request is finished. Returns whether the server wants the doorbell rung.
    pub(crate) fn finish(&self, outcome: &Outcome) -> bool {
        let page = self.page();
        let fields = &page.outcome.0;
        let failure = outcome.failure.as_ref();
        let text = failure.map_or(&[][..], |failure| failure.message.as_bytes());
        let text = &text[..text.len().min(TEXT_BYTES)];
        let status = failure.map_or(0, |failure| failure.kind as u32);
        fields
            .exec_nanos
            .store(outcome.exec_nanos, Ordering::Relaxed);
        fields.status.store(status, Ordering::Relaxed);
        fields
            .text_bytes
            .store(text.len() as u32, Ordering::Relaxed);
        // SAFETY: the length is bounded above; the server reads only after the counter moved.
        unsafe {
            self.text_start()
                .copy_from_nonoverlapping(text.as_ptr(), text.len())
        };
        page.finished.0.count.fetch_add(1, Ordering::SeqCst);
        page.finished.0.sleeping.swap(0, Ordering::SeqCst) != 0
    }

    /// Worker, in a signal handler: leaves word of why the process ends.
    pub(crate) fn leave_last_words(&self, signal: u32, out_of_memory: bool) {
        let fields = &self.page().outcome.0;
        fields
            .out_of_memory
            .store(out_of_memory.into(), Ordering::Relaxed);
        fields.signal.store(signal, Ordering::Relaxed);
    }

    fn text(&self, bytes: u32) -> Vec<u8> {
        let bytes = (bytes as usize).min(TEXT_BYTES);
        let mut copy = vec![0; bytes];
        // SAFETY: the length is bounded by the field; both sides treat it as plain bytes.
        unsafe {
            self.text_start()
                .copy_to_nonoverlapping(copy.as_mut_ptr(), bytes)
        };
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

    #[test]
    fn requests_pass_and_outcomes_return() {
        let (server, worker) = pair();
        let child = std::thread::spawn(move || {
            let mut message = Vec::new();
            let spin = Spin::new(Duration::from_micros(20));
            for round in 0..1000u32 {
                worker.wait(round, &spin);
                let request = worker.request(&mut message);
                assert_eq!(message, round.to_le_bytes());
                let refused = || Failure::new(FailureKind::BadArgument, format!("no {round}"));
                worker.finish(&Outcome {
                    exec_nanos: request.function,
                    failure: (round % 2 == 0).then(refused),
                });
            }
        });
        for round in 0..1000u32 {
            let function = u64::from(round) * 3;
            let request = Request {
                function,
                buffer: 0,
                swap: false,
                memory_messages: 0,
                pes: 1,
            };
            server.post(&request, &round.to_le_bytes());
            while !server.is_finished() {
                std::thread::yield_now();
            }
            let outcome = server.outcome();
            assert_eq!(outcome.exec_nanos, function);
            let refused = || Failure::new(FailureKind::BadArgument, format!("no {round}"));
            assert_eq!(outcome.failure, (round % 2 == 0).then(refused));
        }
        child.join().unwrap();
    }

    #[test]
    fn a_doorbell_is_asked_for_only_while_there_is_something_to_wait_for() {
        let (server, worker) = pair();
        server.post(
            &Request {
                function: 1,
                buffer: 0,
                swap: false,
                memory_messages: 0,
                pes: 1,
            },
            b"",
        );
        assert!(server.ask_for_doorbell());
        assert!(worker.finish(&Outcome {
            exec_nanos: 0,
            failure: None
        }));
        assert!(!server.ask_for_doorbell());
    }
}

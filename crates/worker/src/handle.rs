//! A worker process as the server sees it: its socket, its ring of requests, and its output. The
//! server decides what a worker does; this module tells it. Requests are finished in the order in
//! which they were given. What a worker sends is read as foreign bytes.

use crate::callback::{AnswerWord, Mailbox, WORD_BYTES, WorkerMessage};
use crate::control::{Control, Outcome, Request};
use crate::death::Death;
use crate::groups::Group;
use crate::launch::Ready;
use crate::memory::MemoryObject;
use crate::nursery::Process;
use crate::parallel::Welcome;
use crate::slices::Need;
use farcall_rpc_proto::{Callback, CallbackAnswer, Failure, FailureKind};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::time::Duration;
use tempfile::TempDir;

/// Descriptor of the socket in a worker.
pub(crate) const SOCKET_FD: i32 = 3;
/// Longest message of a worker that has bound its library.
pub(crate) const GREETING_BYTES: usize = 60 << 10;
/// Beginning of this message after a success; [`Ready`] follows as JSON.
pub(crate) const READY: &[u8] = b"ready";
/// Bytes of one read of a worker's output.
const READ_BYTES: usize = 16 << 10;
/// Number of reads that empty a full pipe. Others may still be writing to it.
pub const MOST_READS: usize = (64 << 10) / READ_BYTES + 1;
/// Longest line of output in the log, in bytes.
const LINE_BYTES: usize = 4096;
/// Bytes of a worker's output kept for error messages.
const TAIL_BYTES: usize = 2048;
/// Most messages about memory that a worker has not read yet, when another one tells it to unmap
/// memory. Its socket takes some 270, and the server must never wait for room there: a worker reads
/// them only when it begins with a request.
const MOST_UNREAD: u32 = 64;

/// A message about a call buffer, on the worker's socket.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) enum MemoryMessage {
    /// Map the memory object that is passed with the message.
    Map {
        id: u64,
        bytes: u64,
    },
    Unmap {
        id: u64,
    },
}

impl MemoryMessage {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let (id, bytes) = match self {
            MemoryMessage::Map { id, bytes } => (id, bytes),
            MemoryMessage::Unmap { id } => (id, 0),
        };
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&id.to_ne_bytes());
        out[8..].copy_from_slice(&bytes.to_ne_bytes());
        out
    }

    pub(crate) fn decode(bytes: [u8; Self::BYTES]) -> MemoryMessage {
        let [id, bytes] = [0, 8].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        });
        match bytes {
            0 => MemoryMessage::Unmap { id },
            bytes => MemoryMessage::Map { id, bytes },
        }
    }
}

/// A request that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    /// To run the call of this number.
    Call(u64),
    /// A call that was taken back.
    Withdrawn,
    /// To unmap memory.
    Unmap,
}

/// Something that a worker has finished.
#[derive(Debug)]
pub enum Done {
    /// A call, by its number.
    Call(u64, Outcome),
    /// A call that was taken back: the worker has skipped it.
    Withdrawn,
    /// Memory is unmapped.
    Unmapped,
}

/// The result of a withdrawal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The worker will never see the call.
    Done,
    /// The call is finished.
    Finished,
    /// The worker runs the call.
    Runs,
}

/// A worker: one process, or several that compute together.
pub struct Worker {
    /// Whether it has not bound its library yet.
    is_starting: bool,
    /// Why the server ended it, if it did.
    ended_for: Option<Failure>,
    is_parallel: bool,
    /// What the first of several processes receives when it connects.
    welcome: Option<Welcome>,
    process: Process,
    /// The socket to it, or the one at which it will connect.
    socket: OwnedFd,
    output: File,
    /// The incomplete last line of its output.
    line: Vec<u8>,
    tail: Vec<u8>,
    control: Control,
    /// Its requests, the running one first.
    posted: VecDeque<Posted>,
    mailbox: Mailbox,
    mapped: Mapped,
    /// What it tells a gang about its calls.
    need: Need,
    /// Folder for the files of its calls. It outlives the process.
    _folder: TempDir,
}

/// The memory that a worker has mapped. It does not count as the worker's own.
struct Mapped {
    /// Bytes by the number of the memory.
    sizes: HashMap<u64, u64>,
    bytes: u64,
    /// Numbers of memory that is gone, of which the worker does not know yet.
    stale: Vec<u64>,
    /// The number of messages about memory that the worker reads with each of its requests.
    unread: VecDeque<u32>,
    /// The number of those that no request tells it to read yet.
    sent: u32,
    /// The control groups of the worker. They outlive its processes.
    group: Group,
}

impl Mapped {
    /// Adds memory. Returns `false` if it was there.
    fn add(&mut self, id: u64, bytes: u64) -> bool {
        let is_new = self.sizes.insert(id, bytes).is_none();
        if is_new {
            self.bytes += bytes;
            self.group.allow_mapped(self.bytes);
        }
        is_new
    }

    /// Removes memory. Returns `false` if it was not there.
    fn remove(&mut self, id: u64) -> bool {
        let bytes = self.sizes.remove(&id);
        self.bytes -= bytes.unwrap_or(0);
        bytes.is_some()
    }
}

/// The parts of a worker.
pub(crate) struct Parts {
    pub(crate) is_parallel: bool,
    pub(crate) welcome: Option<Welcome>,
    pub(crate) process: Process,
    pub(crate) socket: OwnedFd,
    pub(crate) output: File,
    pub(crate) control: Control,
    pub(crate) mailbox: Mailbox,
    pub(crate) folder: TempDir,
    pub(crate) group: Group,
    pub(crate) need: Need,
}

impl Worker {
    pub(crate) fn new(parts: Parts) -> Worker {
        Worker {
            is_starting: true,
            ended_for: None,
            is_parallel: parts.is_parallel,
            welcome: parts.welcome,
            process: parts.process,
            socket: parts.socket,
            output: parts.output,
            line: Vec::new(),
            tail: Vec::new(),
            control: parts.control,
            posted: VecDeque::new(),
            mailbox: parts.mailbox,
            mapped: Mapped {
                sizes: HashMap::new(),
                bytes: 0,
                stale: Vec::new(),
                unread: VecDeque::new(),
                sent: 0,
                group: parts.group,
            },
            need: parts.need,
            _folder: parts.folder,
        }
    }

    /// The socket to it, or the one at which it will connect.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The pipe with its output.
    pub fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has not bound its library yet.
    pub fn is_starting(&self) -> bool {
        self.is_starting
    }

    /// Whether the first of its processes has not connected yet.
    pub fn is_awaited(&self) -> bool {
        self.welcome.is_some()
    }

    /// Accepts the first process if it has connected. The worker then has a new socket.
    pub fn admit(&mut self) -> io::Result<()> {
        let Some(welcome) = &self.welcome else {
            return Ok(());
        };
        let come = welcome.accept(&self.socket, self.control.fd(), self.mailbox.fd())?;
        if let Some(socket) = come {
            self.socket = socket;
            self.welcome = None;
        }
        Ok(())
    }

    /// Gives the worker a call, behind its others.
    ///
    /// # Panics
    /// If the ring is full.
    pub fn run<'m>(
        &mut self,
        call: u64,
        run: &Run<'_>,
        memory: impl Iterator<Item = &'m MemoryObject>,
    ) -> io::Result<()> {
        for object in memory {
            let id = object.number();
            let bytes = object.bytes() as u64;
            if self.mapped.add(id, bytes) {
                let message = MemoryMessage::Map { id, bytes };
                if let Err(error) = send(&self.socket, &message.encode(), &[object.fd()]) {
                    self.mapped.remove(id);
                    return Err(error);
                }
                self.mapped.sent += 1;
            }
        }
        self.send_stale()?;
        let memory_messages = std::mem::take(&mut self.mapped.sent);
        let request = Request {
            function: run.function as u64,
            buffer: run.buffer,
            swap: run.swap,
            memory_messages,
            pes: run.pes,
            alone: run.alone,
        };
        self.control.post(&request, run.message);
        if self.posted.is_empty() {
            self.tail.clear();
        }
        self.posted.push_back(Posted::Call(call));
        self.mapped.unread.push_back(memory_messages);
        self.tell_work();
        Ok(())
    }

    /// Tells the gang if it has calls now, or has no more. The processes of a parallel worker need
    /// slices for their start as well.
    fn tell_work(&mut self) {
        let has_calls = !self.posted.is_empty() || self.is_parallel && self.is_starting;
        self.need.set(has_calls);
    }

    /// Asks for the doorbell before the server sleeps. Returns `false` if something is finished
    /// already.
    pub fn ask_for_doorbell(&self) -> bool {
        self.posted.is_empty() || self.control.ask_for_doorbell()
    }

    /// Unmaps memory that is gone: an idle worker at once, a busy one with its next request.
    pub fn forget(&mut self, memory: u64) {
        if !self.mapped.remove(memory) {
            return;
        }
        self.mapped.stale.push(memory);
        self.unmap_if_idle();
    }

    fn unmap_if_idle(&mut self) {
        if self.mapped.stale.is_empty() || !self.posted.is_empty() {
            return;
        }
        // If this fails, the worker is dead, which is handled separately.
        if self.send_stale().is_ok() {
            let memory_messages = std::mem::take(&mut self.mapped.sent);
            self.control.post(&Request::unmap(memory_messages), &[]);
            self.posted.push_back(Posted::Unmap);
            self.mapped.unread.push_back(memory_messages);
            self.tell_work();
        }
    }

    /// Tells the worker to unmap memory that is gone, as much as its socket takes without waiting.
    /// The rest follows with its next requests.
    fn send_stale(&mut self) -> io::Result<()> {
        let unread = self.mapped.unread.iter().sum::<u32>() + self.mapped.sent;
        let room = MOST_UNREAD.saturating_sub(unread);
        let count = self.mapped.stale.len().min(room as usize);
        for id in self.mapped.stale.drain(..count) {
            send(&self.socket, &MemoryMessage::Unmap { id }.encode(), &[])?;
            self.mapped.sent += 1;
        }
        Ok(())
    }

    /// Whether it has finished something.
    pub fn is_done(&self) -> bool {
        !self.posted.is_empty() && self.control.finished() > 0
    }

    /// What it has finished, the oldest first.
    pub fn take_done(&mut self) -> Option<Done> {
        if !self.is_done() {
            return None;
        }
        let outcome = self.control.take_outcome();
        self.mapped.unread.pop_front();
        let done = match self.posted.pop_front()? {
            Posted::Call(call) => Done::Call(call, outcome),
            Posted::Withdrawn => Done::Withdrawn,
            Posted::Unmap => Done::Unmapped,
        };
        self.unmap_if_idle();
        self.tell_work();
        Some(done)
    }

    /// Takes a call back if the worker has not begun with it.
    pub fn withdraw(&mut self, call: u64) -> Withdrawal {
        let mut posted = self.posted.iter();
        let Some(index) = posted.position(|posted| *posted == Posted::Call(call)) else {
            return Withdrawal::Finished;
        };
        if self.control.withdraw(index) {
            self.posted[index] = Posted::Withdrawn;
            return Withdrawal::Done;
        }
        match index < self.control.finished() {
            true => Withdrawal::Finished,
            false => Withdrawal::Runs,
        }
    }

    /// Whether it has begun with its first call.
    pub fn has_begun(&self) -> bool {
        !self.posted.is_empty() && self.control.is_taken()
    }

    /// Reads the message of a starting worker: ready, or why not.
    pub fn read_greeting(&mut self) -> Option<Result<Ready, String>> {
        let mut text = vec![0; GREETING_BYTES];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let count = match rustix::net::recv(&self.socket, &mut text, flags) {
            Ok((0, _)) | Err(_) => return None,
            Ok((count, _)) => count,
        };
        match text[..count].strip_prefix(READY) {
            Some(ready) => {
                self.is_starting = false;
                self.tell_work();
                Some(Ok(serde_json::from_slice(ready).unwrap_or_default()))
            }
            None => Some(Err(String::from_utf8_lossy(&text[..count]).into_owned())),
        }
    }

    /// Reads a message of a running worker. `None` if it makes no sense, most likely because the
    /// worker is dead.
    pub fn read_word(&self) -> Option<WorkerMessage> {
        let mut word = [0; WORD_BYTES];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (count, _) = rustix::net::recv(&self.socket, &mut word, flags).ok()?;
        WorkerMessage::decode(&word[..count])
    }

    /// Takes the callback from the mailbox. The worker waits for the answer.
    pub fn take_callback(&self, bytes: usize) -> io::Result<Callback> {
        let message = self.mailbox.take(bytes)?;
        Callback::decode(&message, cfg!(target_endian = "big")).map_err(io::Error::other)
    }

    /// Gives it the answer of its callback.
    pub fn answer(&self, answer: &CallbackAnswer) -> io::Result<()> {
        self.mailbox.put(&answer.data)?;
        let word = AnswerWord {
            bytes: answer.data.len(),
            big_endian: answer.big_endian,
        };
        send(&self.socket, &word.encode(), &[])
    }

    /// Reads output of the library, if there is any. The last part is kept for error messages.
    /// `None` when no more can come.
    pub fn read_output(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        let count = match self.output.read(&mut bytes) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(_) => 0,
        };
        bytes.truncate(count);
        self.tail.extend_from_slice(&bytes);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
        Some(bytes)
    }

    /// The lines that `printed` completes, for the log; with an empty `printed`, the incomplete
    /// line. Very long lines are cut.
    pub fn lines(&mut self, printed: &[u8]) -> Vec<String> {
        self.line.extend_from_slice(printed);
        let complete = match self.line.iter().rposition(|byte| *byte == b'\n') {
            _ if printed.is_empty() => self.line.len(),
            Some(last) => last + 1,
            None if self.line.len() > LINE_BYTES => self.line.len(),
            None => 0,
        };
        let rest = self.line.split_off(complete);
        let text = std::mem::replace(&mut self.line, rest);
        let text = String::from_utf8_lossy(&text);
        text.lines()
            .map(|line| line.trim_end().to_string())
            .collect()
    }

    /// Ends the process. `reason` becomes the failure of the running call.
    pub fn end(&mut self, kind: FailureKind, reason: impl Into<String>) {
        self.ended_for
            .get_or_insert_with(|| Failure::new(kind, reason));
        if self.is_parallel {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
        self.process.kill();
    }

    /// Whether the process goes on after it has closed its connection. It then has a moment to end
    /// by itself, and [`Worker::end_of_process`] tells when it has ended.
    pub fn lingers(&mut self) -> bool {
        self.process.lingers()
    }

    /// A descriptor that is readable when a lingering process has ended.
    pub fn end_of_process(&self) -> Option<BorrowedFd<'_>> {
        self.process.end()
    }

    /// Kills a lingering process that had its time. Returns how much time it has until then.
    pub fn hurry(&mut self) -> Option<Duration> {
        self.process.hurry()
    }

    /// Waits for a process that is dead or about to die. Returns how it ended.
    pub fn bury(mut self) -> Death {
        // The status tells why the worker has ended, unless the server has ended it.
        let was_silent = self.ended_for.is_none() && !self.process.ends();
        self.process.kill();
        let status = self.process.wait();
        for _ in 0..MOST_READS {
            if self.read_output().is_none_or(|bytes| bytes.is_empty()) {
                break;
            }
        }
        let (signal, out_of_memory) = self.control.last_words();
        let printed = String::from_utf8_lossy(&self.tail).trim().to_string();
        let death = Death {
            status,
            signal,
            out_of_memory,
            printed,
            ended_for: self.ended_for,
            was_silent: false,
        };
        match was_silent {
            true => death.after_silence(),
            false => death,
        }
    }
}

/// A call for a worker.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Index of the function in its library.
    pub function: usize,
    /// Number of its call buffer; 0 if it has none.
    pub buffer: u64,
    /// Whether the arguments arrived in the other byte order.
    pub swap: bool,
    /// Its processor elements.
    pub pes: u32,
    /// Whether no other call may share its worker.
    pub alone: bool,
    /// The encoded call.
    pub message: &'a [u8],
}

/// Sends one message with descriptors. It never waits: a function that has taken its worker over
/// may read nothing more.
pub(crate) fn send(
    socket: &OwnedFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let text = "it does not read its messages";
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Join;
    use crate::namespaces::{Namespaces, Start};
    use crate::nursery::Nursery;
    use crate::process::receive;
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    /// A worker whose process does nothing, and its end of the socket and of the ring.
    fn worker() -> (Worker, OwnedFd, Control) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // A server that would wait for room in the socket fails instead.
        set_socket_timeout(&socket, Timeout::Send, Some(Duration::from_secs(1))).unwrap();
        let control = Control::create().unwrap();
        let ring = Control::open(control.fd().try_clone_to_owned().unwrap()).unwrap();
        let (output, printed) = rustix::pipe::pipe().unwrap();
        let start = Start {
            words: vec!["true".into()],
            environment: Vec::new(),
            output: printed,
            socket: None,
            namespaces: Namespaces::default(),
            groups: Join::default(),
            keeper: Vec::new(),
        };
        let worker = Worker::new(Parts {
            is_parallel: false,
            welcome: None,
            process: Nursery::open().unwrap().order(start),
            socket,
            output: output.into(),
            control,
            mailbox: Mailbox::create().unwrap(),
            folder: tempfile::tempdir().unwrap(),
            group: Group::default(),
            need: Need::default(),
        });
        (worker, theirs, ring)
    }

    /// The worker finishes its next request. Returns the memory that it unmaps.
    fn finish(theirs: &OwnedFd, ring: &Control) -> Vec<u64> {
        let (request, _) = ring.take(&mut Vec::new());
        let unmapped = (0..request.memory_messages).map(|_| {
            let (bytes, _) = receive(theirs).unwrap();
            match MemoryMessage::decode(bytes.try_into().unwrap()) {
                MemoryMessage::Unmap { id } => id,
                MemoryMessage::Map { id, .. } => panic!("{id}"),
            }
        });
        let unmapped = unmapped.collect();
        ring.finish(&Outcome::NONE);
        unmapped
    }

    /// As when a user with many stored arrays leaves. A worker that computes reads nothing, and the
    /// server must go on for everybody else.
    #[test]
    fn no_amount_of_memory_that_is_gone_makes_the_server_wait() {
        const COUNT: u64 = 1000;
        let (mut worker, theirs, ring) = worker();
        let run = Run {
            function: 0,
            buffer: 0,
            swap: false,
            pes: 1,
            alone: false,
            message: b"call",
        };
        let nothing = || std::iter::empty::<&MemoryObject>();
        (1..=COUNT).for_each(|id| assert!(worker.mapped.add(id, 4096)));
        worker.run(1, &run, nothing()).unwrap();
        (1..=COUNT).for_each(|id| worker.forget(id));
        worker.run(2, &run, nothing()).unwrap();
        worker.run(3, &run, nothing()).unwrap();
        let mut unmapped = Vec::new();
        while ring.has_more() {
            unmapped.extend(finish(&theirs, &ring));
            assert!(worker.take_done().is_some());
        }
        assert_eq!(unmapped, Vec::from_iter(1..=COUNT));
        assert_eq!((worker.mapped.bytes, worker.mapped.stale.len()), (0, 0));
        worker.bury();
    }

    /// A function can make callbacks and leave the answers in the socket.
    #[test]
    fn answers_that_a_worker_does_not_read_do_not_make_the_server_wait() {
        let (worker, _theirs, _ring) = worker();
        let answer = CallbackAnswer {
            data: Vec::new(),
            big_endian: false,
        };
        let refused = (0..100_000).find_map(|_| worker.answer(&answer).err());
        let refused = refused.expect("the socket is full").to_string();
        assert_eq!(refused, "it does not read its messages");
        worker.bury();
    }

    /// As when the first of some calls with stored arrays takes longer than the others.
    #[test]
    fn the_memory_of_all_posted_calls_fits_into_the_socket() {
        /// As `farcall-server-proto` bounds them, with a buffer for each call.
        const CALLS: u64 = 15;
        const OBJECTS: u64 = 13;
        let (mut worker, theirs, ring) = worker();
        let run = Run {
            function: 0,
            buffer: 0,
            swap: false,
            pes: 1,
            alone: false,
            message: b"call",
        };
        let gone = u64::from(MOST_UNREAD);
        (1..=gone).for_each(|id| assert!(worker.mapped.add(id, 4096)));
        (1..=gone).for_each(|id| worker.forget(id));
        for call in 1..=CALLS {
            let numbers = gone + call * OBJECTS..gone + (call + 1) * OBJECTS;
            let objects = numbers.map(|number| MemoryObject::shared(number, 4096).unwrap());
            let objects: Vec<MemoryObject> = objects.collect();
            worker.run(call, &run, objects.iter()).unwrap();
        }
        let mut messages = 0;
        while ring.has_more() {
            let (request, _) = ring.take(&mut Vec::new());
            for _ in 0..request.memory_messages {
                receive(&theirs).unwrap();
                messages += 1;
            }
            ring.finish(&Outcome::NONE);
            assert!(worker.take_done().is_some());
        }
        assert_eq!(messages, gone + CALLS * OBJECTS);
        worker.bury();
    }
}

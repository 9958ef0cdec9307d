//! A worker process as the server sees it.

mod ahead;
mod callback;
mod control;
mod death;
pub(crate) mod files;
mod launch;
mod nursery;
mod parallel;
pub(crate) mod process;
pub(crate) mod sandbox;

use crate::buffer::{JobBuffer, Segment};
use crate::user::User;
use ahead::Posted;
pub(crate) use ahead::Withdrawal;
pub(crate) use callback::Word;
use callback::{AnswerWord, Mailbox, WORD_BYTES};
use control::{Control, Request};
pub(crate) use control::{Outcome, TEXT_BYTES};
pub(crate) use death::Death;
use farcall_rpc_proto::{CallId, Callback, CallbackAnswer, Failure, FailureKind, HandleId};
use launch::Start;
pub(crate) use launch::{Identities, Launcher, LibrarySource, Ready, is_parallel};
pub(crate) use nursery::Nursery;
use nursery::Process;
use parallel::Welcome;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Descriptor under which a worker finds its socket.
const SOCKET_FD: i32 = 3;
/// Most bytes of what a worker says when it has bound its library.
const GREETING_BYTES: usize = 60 << 10;
/// How that begins where all went well; [`Ready`] follows as JSON.
const READY: &[u8] = b"ready";
/// Bytes of one read of a worker's output.
const READ_BYTES: usize = 16 << 10;
/// So many reads take all that a pipe holds. Others may go on to write to it.
pub(crate) const MOST_READS: usize = (64 << 10) / READ_BYTES + 1;
/// Bytes of a line of output in the log.
const LINE_BYTES: usize = 4096;
/// Bytes of a worker's output kept for error messages.
const TAIL_BYTES: usize = 2048;

/// A brief call that has not ended after this time is not brief.
const SOON: Duration = Duration::from_micros(50);

/// A message about a job buffer, on the worker's socket.
#[repr(C)]
#[derive(Clone, Copy)]
enum MemoryMessage {
    /// Map the memory object that comes with the message.
    Map {
        id: u64,
        bytes: u64,
    },
    Unmap {
        id: u64,
    },
}

impl MemoryMessage {
    const BYTES: usize = 16;

    fn encode(self) -> [u8; Self::BYTES] {
        let (id, bytes) = match self {
            MemoryMessage::Map { id, bytes } => (id, bytes),
            MemoryMessage::Unmap { id } => (id, 0),
        };
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&id.to_ne_bytes());
        out[8..].copy_from_slice(&bytes.to_ne_bytes());
        out
    }

    fn decode(bytes: [u8; Self::BYTES]) -> MemoryMessage {
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

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Binding its library.
    Starting,
    Idle,
    /// Unmaps memory that is gone.
    Unmapping,
    /// Is to run this job once it is recorded that it does.
    Booked {
        job: usize,
    },
    /// Runs the job that was posted first, until the deadline at most. A brief one is probably over
    /// `soon`.
    Running {
        since: Instant,
        deadline: Option<Instant>,
        soon: Option<Instant>,
    },
}

/// What a call needs of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need<'n> {
    /// Index of the library.
    pub(crate) library: usize,
    pub(crate) user: &'n User,
    pub(crate) processes: u32,
}

/// What a worker knows of the object that it holds.
#[derive(Default)]
pub(crate) struct Held {
    /// Connection and request of the object, while somebody wants it.
    pub(crate) owner: Option<(usize, CallId)>,
    /// Its name, where it stays.
    pub(crate) kept: Option<HandleId>,
    /// The job whose turn it is: it waits for processor elements, or runs.
    pub(crate) turn: Option<usize>,
    /// Jobs behind it.
    pub(crate) behind: VecDeque<usize>,
}

/// A worker process, or several that compute together.
pub(crate) struct Worker {
    /// Index of the library it is bound to.
    pub(crate) library: usize,
    /// Whose calls it runs, from the first one on: what they leave in its memory is nobody else's.
    pub(crate) user: Option<User>,
    pub(crate) state: State,
    /// Since when it is idle, or has run something.
    rested: Instant,
    /// The object that it holds, whose methods alone it runs.
    pub(crate) object: Option<Held>,
    /// Why the server ended it, if it did.
    ended_for: Option<Failure>,
    /// Number of the function it ran last.
    pub(crate) function: Option<u64>,
    processes: u32,
    is_parallel: bool,
    /// For the first of several processes, while it is awaited.
    welcome: Option<Welcome>,
    process: Process,
    /// The way to it, or where it is awaited.
    socket: OwnedFd,
    output: File,
    /// The begun line of its output.
    line: Vec<u8>,
    tail: Vec<u8>,
    control: Control,
    /// What it has, the one that it runs first.
    posted: VecDeque<Posted>,
    /// No other call may be posted behind the one that it runs.
    alone: bool,
    /// For each call.
    time_limit: Option<Duration>,
    mailbox: Mailbox,
    /// Since when it waits for the answer of a callback.
    waiting: Option<Instant>,
    mapped: HashSet<u64>,
    stale: Vec<u64>,
    /// Where the files of its calls lie; it outlives the process.
    _folder: TempDir,
}

impl Worker {
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Whether it can take a job. One that was told to end may still finish what it had.
    pub(crate) fn is_idle(&self) -> bool {
        self.state == State::Idle && self.ended_for.is_none()
    }

    /// Whether the server has told it to end.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended_for.is_some()
    }

    /// Whether it can run such calls, now or when it is idle.
    pub(crate) fn serves(&self, need: &Need<'_>) -> bool {
        let Need {
            library,
            user,
            processes,
        } = *need;
        let for_user = self.user.as_ref().is_none_or(|bound| bound == user);
        let fits = (self.library, self.processes) == (library, processes);
        fits && for_user && self.object.is_none()
    }

    /// Whether the first of its processes is still to come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.welcome.is_some()
    }

    /// Lets the first process in, if it is there; from then on its socket is another one.
    pub(crate) fn admit(&mut self) -> io::Result<()> {
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

    /// For how long nobody has needed it.
    pub(crate) fn idle_for(&self) -> Option<Duration> {
        self.is_idle().then(|| self.rested.elapsed())
    }

    /// When it will probably be idle again, if that is worth waiting for.
    pub(crate) fn idle_soon(&self) -> Option<Instant> {
        match self.state {
            State::Running { soon, .. } => soon,
            _ => None,
        }
    }

    /// Since when it runs its job.
    pub(crate) fn running_for(&self) -> Duration {
        match self.state {
            State::Running { since, .. } => since.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Hands the worker a job, behind others where it [takes more](Worker::takes_more). `message`
    /// is the encoded call.
    pub(crate) fn run(
        &mut self,
        job: usize,
        call: &CallRequest<'_>,
        time_limit: Option<Duration>,
    ) -> io::Result<()> {
        let mut memory_messages = self.send_stale()?;
        let buffer = call
            .buffer
            .map(|buffer| (buffer.id, buffer.bytes(), buffer.fd()));
        let segments = call.segments.iter();
        let segments = segments.map(|segment| (segment.id, segment.bytes, segment.fd.as_fd()));
        let data = call.data.iter();
        let data = data.map(|array| (array.id, array.bytes(), array.fd()));
        for (id, bytes, fd) in buffer.into_iter().chain(segments).chain(data) {
            if self.mapped.insert(id) {
                let bytes = bytes as u64;
                send(
                    &self.socket,
                    &MemoryMessage::Map { id, bytes }.encode(),
                    &[fd],
                )?;
                memory_messages += 1;
            }
        }
        let buffer = call.buffer.map_or(0, |buffer| buffer.id);
        let function = call.function as u64;
        let request = Request {
            function,
            buffer,
            swap: call.swap,
            memory_messages,
            pes: call.pes,
            alone: call.alone,
        };
        let function = call.number;
        self.control.post(&request, call.message);
        self.posted.push_back(Posted {
            job: Some(job),
            function,
        });
        if matches!(self.state, State::Running { .. }) {
            return Ok(());
        }
        self.tail.clear();
        self.alone = call.alone;
        self.function = Some(function);
        self.time_limit = time_limit;
        let now = Instant::now();
        self.state = State::Running {
            since: now,
            deadline: time_limit.map(|limit| now + limit),
            soon: call.brief.then(|| now + SOON),
        };
        Ok(())
    }

    /// Asks for the doorbell before the server sleeps; `false` if there is an outcome by now.
    pub(crate) fn ask_for_doorbell(&self) -> bool {
        let busy = matches!(self.state, State::Running { .. } | State::Unmapping);
        !busy || self.control.ask_for_doorbell()
    }

    /// Memory is gone: an idle worker unmaps it now, another one with its next request.
    pub(crate) fn forget(&mut self, memory: u64) {
        if !self.mapped.remove(&memory) {
            return;
        }
        self.stale.push(memory);
        if self.is_idle() {
            self.rest();
        }
    }

    /// It has nothing to compute: is idle, or unmaps first what is gone.
    pub(crate) fn rest(&mut self) {
        self.state = State::Idle;
        self.rested = Instant::now();
        if !self.stale.is_empty() {
            // Its death is on its way if this fails, and will be handled as such.
            let _ = self.unmap();
        }
    }

    fn unmap(&mut self) -> io::Result<()> {
        let memory_messages = self.send_stale()?;
        self.control.post(&Request::unmap(memory_messages), &[]);
        self.state = State::Unmapping;
        Ok(())
    }

    /// Whether it has become idle by unmapping what it was told to.
    pub(crate) fn has_unmapped(&mut self) -> bool {
        let unmapped = self.state == State::Unmapping && self.control.finished() > 0;
        if unmapped {
            self.control.take_outcome();
            self.rest();
        }
        unmapped
    }

    fn send_stale(&mut self) -> io::Result<u32> {
        let stale = std::mem::take(&mut self.stale);
        for id in &stale {
            send(
                &self.socket,
                &MemoryMessage::Unmap { id: *id }.encode(),
                &[],
            )?;
        }
        Ok(stale.len() as u32)
    }

    /// Reads what has come on the socket of a starting worker: ready, or why not.
    pub(crate) fn read_greeting(&self) -> Option<Result<Ready, String>> {
        let mut text = vec![0; GREETING_BYTES];
        match rustix::net::recv(&self.socket, &mut text, rustix::net::RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => None,
            Ok((count, _)) => Some(match text[..count].strip_prefix(READY) {
                Some(ready) => Ok(serde_json::from_slice(ready).unwrap_or_default()),
                None => Err(String::from_utf8_lossy(&text[..count]).into_owned()),
            }),
        }
    }

    /// What a running worker says. `None` where it says nothing that can be understood, most
    /// likely because it is dead.
    pub(crate) fn read_word(&self) -> Option<Word> {
        let mut word = [0; WORD_BYTES];
        let flags = rustix::net::RecvFlags::DONTWAIT;
        let (count, _) = rustix::net::recv(&self.socket, &mut word, flags).ok()?;
        Word::decode(&word[..count])
    }

    /// The callback that the worker has put in the mailbox; it waits for the answer from now on.
    pub(crate) fn take_callback(&mut self, bytes: usize) -> io::Result<Callback> {
        let message = self.mailbox.take(bytes)?;
        self.waiting = Some(Instant::now());
        Callback::decode(&message, cfg!(target_endian = "big")).map_err(io::Error::other)
    }

    /// Hands it the answer of its callback. The time it has waited does not count.
    pub(crate) fn answer(&mut self, answer: &CallbackAnswer) -> io::Result<()> {
        self.mailbox.put(&answer.data)?;
        let word = AnswerWord {
            bytes: answer.data.len(),
            big_endian: answer.big_endian,
        };
        if let (Some(since), State::Running { deadline, .. }) =
            (self.waiting.take(), &mut self.state)
        {
            *deadline = deadline.map(|deadline| deadline + since.elapsed());
        }
        send(&self.socket, &word.encode(), &[])
    }

    /// Since when it waits for the answer of a callback.
    pub(crate) fn waits_since(&self) -> Option<Instant> {
        self.waiting
    }

    /// When the call it runs is to be ended, by the limit on the library or on callbacks.
    pub(crate) fn deadline(&self, callbacks: Option<Duration>) -> Option<Instant> {
        match (self.state, self.waiting) {
            (State::Running { .. }, Some(since)) => callbacks.map(|limit| since + limit),
            (State::Running { deadline, .. }, None) => deadline,
            _ => None,
        }
    }

    /// Reads what the library has printed, if there is anything; the end is kept for error
    /// messages. `None` once nothing can come any more.
    pub(crate) fn read_output(&mut self) -> Option<Vec<u8>> {
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

    /// The lines that `printed` completes, for the log; with nothing, what was begun. One that is
    /// very long is cut.
    pub(crate) fn lines(&mut self, printed: &[u8]) -> Vec<String> {
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

    /// Ends the process. `reason` is what the running call's failure will say.
    pub(crate) fn end(&mut self, kind: FailureKind, reason: impl Into<String>) {
        self.ended_for
            .get_or_insert_with(|| Failure::new(kind, reason));
        if self.is_parallel {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
        self.process.kill();
    }

    /// The process is gone or about to be: waits for it and says why it ended.
    pub(crate) fn bury(mut self) -> Death {
        self.process.kill();
        let status = self.process.wait();
        for _ in 0..MOST_READS {
            if self.read_output().is_none_or(|bytes| bytes.is_empty()) {
                break;
            }
        }
        let (signal, out_of_memory) = self.control.last_words();
        let printed = String::from_utf8_lossy(&self.tail).trim().to_string();
        Death {
            status,
            signal,
            out_of_memory,
            printed,
            ended_for: self.ended_for,
        }
    }
}

/// What a worker is to compute.
pub(crate) struct CallRequest<'a> {
    /// Index in the library's catalog.
    pub(crate) function: usize,
    /// The function's number.
    pub(crate) number: u64,
    pub(crate) buffer: Option<&'a JobBuffer>,
    /// Where the arrays lie that are not in the buffer.
    pub(crate) segments: &'a [Rc<Segment>],
    pub(crate) data: &'a [Rc<JobBuffer>],
    pub(crate) swap: bool,
    /// Processor elements it has.
    pub(crate) pes: u32,
    /// Whether such calls take little time.
    pub(crate) brief: bool,
    /// Whether no others may be posted before or behind it.
    pub(crate) alone: bool,
    pub(crate) message: &'a [u8],
}

/// Sends one message with descriptors.
fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    loop {
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

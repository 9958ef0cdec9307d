//! The worker process: binds one library and calls it until the server closes the socket.
//!
//! What it calls is a [`Callee`]: a C or Fortran library here, and Python functions in the Python
//! package.

use crate::callback::{AnswerWord, Mailbox, WorkerMessage};
use crate::children::Children;
use crate::control::{Control, Outcome, Request};
use crate::elements::Elements;
use crate::files::Files;
use crate::floats::Floats;
use crate::handle::{GREETING_BYTES, MemoryMessage, READY, SOCKET_FD};
use crate::launch::{FileStamp, Identities, Ready, Start};
use crate::lent::{Lent, Segment};
use crate::limits;
use crate::memory::free;
use crate::namespaces::{KEEPER, keep};
use crate::parallel;
use crate::signals;
use crate::surroundings::Surroundings;
use crate::trace;
use farcall_idl::{ArrayLayout, Document, Interface, Layout, Mode, Scalar, SharedRange};
use farcall_library::{
    Binding, CallbackAnswer, CallbackRequest, Caller, InvokeError, Processes, Source,
};
use farcall_memory::Mapping;
use farcall_rpc_proto::{Call, Callback, Failure, FailureKind, swap_bytes};
use farcall_spin::Spin;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The functions of a worker, by their index in the document.
pub trait Callee {
    /// Calls a function on arrays in place.
    ///
    /// # Safety
    /// `layout` is the layout of `interface`, the one with this index, for `scalars`. `starts` has
    /// an address for each of its arrays, aligned for the element type and valid for reads and
    /// writes of the array until the call returns. Callbacks go to `caller`.
    unsafe fn invoke(
        &self,
        function: usize,
        interface: &Interface,
        scalars: &[Option<Scalar>],
        layout: &Layout,
        starts: &[*mut u8],
        caller: &mut Caller<'_>,
    ) -> Result<(), Failure>;

    /// The library behind a function, for people: name, version, kernel.
    fn library(&self, function: usize) -> Option<String>;

    /// The environment variable `TRACEPARENT` has another value now, or is gone. For a language
    /// that keeps a copy of the environment.
    fn enter_trace(&self, _traceparent: Option<&str>) {}

    /// The files of its libraries.
    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Joins the processes that were started together with this one, for parallel functions.
    fn join(&self) -> Result<Processes, String> {
        Err("these functions cannot run in parallel".to_string())
    }

    /// Folders that it reads during calls, in addition to the folder of its source.
    fn folders(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

impl Callee for Binding {
    unsafe fn invoke(
        &self,
        function: usize,
        interface: &Interface,
        scalars: &[Option<Scalar>],
        layout: &Layout,
        starts: &[*mut u8],
        caller: &mut Caller<'_>,
    ) -> Result<(), Failure> {
        // SAFETY: the caller makes the same promise. The library's owner promises that it respects
        // its interface; if it does not, this process ends and the server continues.
        let called = unsafe { Binding::invoke(self, function, scalars, layout, starts, caller) };
        called.map_err(|error| {
            let name = |param: usize| &interface.params[param].name;
            let failed = |text: String| Failure::new(FailureKind::FunctionFailed, text);
            let text = match &error {
                InvokeError::WrongArgument(wrong) => wrong.text(interface),
                InvokeError::Result(problem) => return failed(format!("failed: {problem}")),
                InvokeError::Unwritten(param, problem) => {
                    return failed(format!(
                        "failed: the file of argument `{}` cannot be written: {problem} \
                         (workers.folder and limits.files in the server's configuration)",
                        name(*param)
                    ));
                }
                InvokeError::Stream(param, problem) => {
                    let name = name(*param);
                    format!("the file of argument `{name}` cannot be opened: {problem}")
                }
                other => other.to_string(),
            };
            Failure::new(FailureKind::BadArgument, format!("was refused: {text}"))
        })
    }

    fn library(&self, function: usize) -> Option<String> {
        self.identity(function).map(|identity| identity.to_string())
    }

    fn files(&self) -> Vec<PathBuf> {
        let identities = self.identities().iter();
        identities
            .filter_map(|identity| identity.path.clone())
            .collect()
    }

    fn join(&self) -> Result<Processes, String> {
        Processes::join(self)
    }
}

/// Runs a worker for a C or Fortran library in this process, which the server has started for it.
/// Returns when the server is gone.
pub fn run_worker() -> io::Result<()> {
    run_worker_for(|source, document, compiled| {
        Binding::load(document, source.folder(), compiled)
            .map_err(|error| format!("{}: {error}", source.path.display()))
    })
}

/// Runs a worker for what `load` makes of a source, its interfaces and the folder of the libraries
/// compiled from their C text. If `load` fails, its error says why the server cannot start. Returns
/// when the server is gone.
pub fn run_worker_for<C: Callee>(
    load: impl FnOnce(&Source, &Document, Option<&Path>) -> Result<C, String>,
) -> io::Result<()> {
    if std::env::var_os(KEEPER).is_some() {
        keep();
    }
    if let Some(folder) = std::env::var_os(parallel::FOLDER) {
        if std::env::var_os(parallel::LAUNCH).is_some() {
            return parallel::launch(Path::new(&folder)).map(|never| match never {});
        }
        return parallel::run(Path::new(&folder), load);
    }
    // SAFETY: the server put the worker's end of a socket pair there, and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET_FD) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let (channel, start) = Channel::open(socket)?;
    limits::of_worker(start.memory, start.files)?;
    print_lines();
    signals::install(channel.control)?;
    let source = start.source();
    let document = source.parse().document;
    let (mut unprotected, mut coverer) = (Vec::new(), None);
    if let Some(sandbox) = &start.sandbox {
        let (waiting, missing) = sandbox.mount_own(&start.folder, start.own());
        let closed = sandbox.close_outside(&start.folder);
        let missing = missing.into_iter().chain(closed.err());
        unprotected.extend(missing.map(|error| error.to_string()));
        coverer = waiting;
    }
    let callee = match load(&source, &document, start.compiled.as_deref()) {
        Ok(callee) => callee,
        Err(text) => {
            let flags = rustix::net::SendFlags::NOSIGNAL;
            rustix::net::send(&channel.socket, text.as_bytes(), flags)?;
            return Ok(());
        }
    };
    if let Some(sandbox) = &start.sandbox {
        let beside = [source.folder().to_path_buf()];
        let closed = sandbox.close_inside(&start.folder, &callee.folders(), &beside, coverer);
        unprotected.extend(closed.into_iter().map(|error| error.to_string()));
    }
    serve(channel, start, document, callee, unprotected, None)
}

/// The connection between a worker and its server.
pub(crate) struct Channel {
    socket: OwnedFd,
    control: &'static Control,
    doorbell: OwnedFd,
    mailbox: Mailbox,
}

impl Channel {
    /// Receives the first message of the server, with its memory and descriptors.
    pub(crate) fn open(socket: OwnedFd) -> io::Result<(Channel, Start)> {
        let (size, mut descriptors) = receive(&socket)?;
        let [control, doorbell, start, mailbox] = std::mem::take(&mut descriptors)
            .try_into()
            .map_err(|_| io::Error::other("run by the server only"))?;
        let start = read_start(start, u64::from_ne_bytes(first_word(size)))?;
        let channel = Channel {
            socket,
            control: Box::leak(Box::new(Control::open(control)?)),
            doorbell,
            mailbox: Mailbox::open(mailbox),
        };
        Ok((channel, start))
    }
}

/// Reports that all functions can be called, and then serves calls.
pub(crate) fn serve<C: Callee>(
    channel: Channel,
    start: Start,
    document: Document,
    callee: C,
    unprotected: Vec<String>,
    processes: Option<Processes>,
) -> io::Result<()> {
    let greeting = ready(&document, &callee, unprotected);
    let flags = rustix::net::SendFlags::NOSIGNAL;
    rustix::net::send(&channel.socket, &greeting, flags)?;
    let spin = Spin::new(Duration::from_micros(start.spin_us));
    Worker {
        channel,
        interfaces: document.into_functions(),
        callee,
        processes,
        nothing: Box::new(Nothing([0; 4096])),
        segments: HashMap::new(),
        lent: Lent::default(),
        elements: Elements::new(start.threads),
        children: start.children(),
        trace: trace::Variable::new(),
        floats: Floats::now(),
        surroundings: Surroundings::now(),
        folder: start.folder,
        files: start.files,
    }
    .serve(&spin)
}

/// The report that all functions can be called.
fn ready(document: &Document, callee: &impl Callee, unprotected: Vec<String>) -> Vec<u8> {
    let functions = 0..document.functions().count();
    let ready = Ready {
        identities: Identities::new(functions.map(|function| callee.library(function))),
        unprotected,
        files: callee
            .files()
            .iter()
            .filter_map(|path| FileStamp::of(path))
            .collect(),
    };
    let mut greeting = READY.to_vec();
    // The server would not read a longer report, so it gets no names then.
    let text = serde_json::to_vec(&ready).unwrap_or_default();
    if READY.len() + text.len() <= GREETING_BYTES {
        greeting.extend(text);
    }
    greeting
}

fn first_word(bytes: Vec<u8>) -> [u8; 8] {
    let mut word = [0; 8];
    let count = bytes.len().min(8);
    word[..count].copy_from_slice(&bytes[..count]);
    word
}

fn read_start(file: OwnedFd, bytes: u64) -> io::Result<Start> {
    let mut text = vec![0; bytes as usize];
    File::from(file).read_exact_at(&mut text, 0)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// Memory for calls without a buffer, aligned like one. Their arrays are empty, but some functions
/// touch the first element.
#[repr(align(64))]
struct Nothing([u8; 4096]);

struct Worker<C> {
    channel: Channel,
    interfaces: Vec<Interface>,
    callee: C,
    /// The processes that compute together, if this is the first of several.
    processes: Option<Processes>,
    nothing: Box<Nothing>,
    segments: HashMap<u64, Segment>,
    lent: Lent,
    elements: Elements,
    /// Folder for the files of calls.
    folder: PathBuf,
    /// Limit on the bytes of one call's files; 0 means none.
    files: u64,
    /// Processes that its functions start.
    children: Children,
    trace: trace::Variable,
    /// How numbers are computed: as the library had it when it was loaded.
    floats: Floats,
    surroundings: Surroundings,
}

impl<C: Callee> Worker<C> {
    fn serve(mut self, spin: &Spin) -> io::Result<()> {
        /// How long the outcomes of short calls are collected before the server is told.
        const TOGETHER: Duration = Duration::from_micros(30);
        /// No process starts in less time, so a shorter call has left none behind.
        const FORK_NANOS: u64 = 2_000;
        let mut message = Vec::new();
        let mut untold: Option<Instant> = None;
        loop {
            self.channel.control.wait(spin);
            let (request, taken) = self.channel.control.take(&mut message);
            for _ in 0..request.memory_messages {
                self.handle_memory_message()?;
            }
            let called = match request.is_unmap() || !taken {
                true => Ok(0),
                false => {
                    // The processor elements of a parallel worker are its processes.
                    if self.processes.is_none() {
                        // SAFETY: no library code runs between two calls.
                        unsafe { self.elements.give(request.pes) };
                    }
                    let called = self.call(&request, &message);
                    if called.as_ref().map_or(true, |nanos| *nanos >= FORK_NANOS) {
                        self.children.end();
                    }
                    called
                }
            };
            let outcome = match called {
                Ok(exec_nanos) => Outcome {
                    exec_nanos,
                    failure: None,
                },
                Err(failure) => Outcome {
                    failure: Some(failure),
                    ..Outcome::NONE
                },
            };
            let control = self.channel.control;
            control.finish(&outcome);
            let since = *untold.get_or_insert_with(Instant::now);
            if control.has_more() && since.elapsed() < TOGETHER {
                continue;
            }
            untold = None;
            if control.wants_doorbell() {
                rustix::io::write(&self.channel.doorbell, &1u64.to_ne_bytes())?;
            }
        }
    }

    fn handle_memory_message(&mut self) -> io::Result<()> {
        let (bytes, mut descriptors) = receive(&self.channel.socket)?;
        let bytes = bytes.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        match (MemoryMessage::decode(bytes), descriptors.pop()) {
            (MemoryMessage::Map { id, bytes }, Some(fd)) => {
                let mapping = Mapping::new(fd.as_fd(), bytes as usize, true)?;
                self.segments.insert(id, Segment::new(mapping));
            }
            (MemoryMessage::Unmap { id }, _) => {
                if let Some(segment) = self.segments.remove(&id) {
                    free(segment.mapping().bytes(), segment);
                }
            }
            (MemoryMessage::Map { .. }, None) => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    /// Calls the library. The server has checked all of this already; a second check costs little,
    /// and keeps a mistake there from becoming a wild write here.
    fn call(&mut self, request: &Request, message: &[u8]) -> Result<u64, Failure> {
        let refuse =
            |text: &dyn fmt::Display| Failure::new(FailureKind::BadArgument, text.to_string());
        let mut call = Call::decode(message).map_err(|error| refuse(&error))?;
        // SAFETY: no function runs.
        if let Some(value) = unsafe { self.trace.set(call.trace) } {
            self.callee.enter_trace(value.as_deref());
        }
        let function = request.function as usize;
        let interface = self
            .interfaces
            .get(function)
            .ok_or_else(|| refuse(&"is not there"))?;
        let mut layout = interface
            .layout(&call.scalars, &call.elements)
            .map_err(|error| refuse(&error))?;
        layout.place(call.places.iter().copied());
        let memory = match self.segments.get(&request.buffer).map(Segment::mapping) {
            Some(mapping) => (mapping.start().as_ptr(), mapping.bytes()),
            None => (self.nothing.0.as_mut_ptr(), 0),
        };
        if layout.bytes > memory.1 as u64 {
            return Err(refuse(&"has too small a call buffer"));
        }
        // SAFETY: the buffer is mapped for this length, and the server leaves it alone until the
        // request is finished.
        let buffer = unsafe { std::slice::from_raw_parts_mut(memory.0, memory.1) };
        if request.swap {
            swap_arguments(&layout, buffer);
        }
        interface
            .verify_elements(&call.scalars, &call.elements, &layout, buffer)
            .map_err(|error| refuse(&error))?;
        let Channel {
            socket, mailbox, ..
        } = &self.channel;
        let line = ServerLink { socket, mailbox };
        let files = match interface.moves_files() {
            false => None,
            true => {
                let (folder, scalars) = (&self.folder, &mut call.scalars);
                Some(Files::fetch(&line, folder, self.files, interface, scalars)?)
            }
        };
        // Whatever fails from here on ends the lending.
        let (start, is_parallel) = (buffer.as_mut_ptr(), interface.is_parallel());
        let (segments, lent) = (&mut self.segments, &mut self.lent);
        let starts = starts(&layout, start, segments, lent, is_parallel).map_err(|error| {
            self.lent.end(&mut self.segments);
            refuse(&format_args!("has an array that cannot be used: {error}"))
        })?;
        let processes = self.processes.as_ref().filter(|_| is_parallel);
        if let Some(processes) = processes {
            // SAFETY: as below.
            unsafe { parallel::lead(processes, function, interface, &call, &layout, &starts) };
        }
        self.lent.begin();
        // SAFETY: the layout was made for this interface, and its arrays lie within the buffer or
        // within shared memory.
        let called = unsafe { self.invoke(function, &call, &layout, &starts, &line) };
        let failed = processes.and_then(parallel::failure_of_others);
        self.lent.end(&mut self.segments);
        let exec_nanos = called.and_then(|nanos| failed.map_or(Ok(nanos), Err))?;
        if let Some(files) = files {
            files.send_back()?;
        }
        Ok(exec_nanos)
    }

    /// Runs the function. Returns its nanoseconds, without the time spent at the client.
    ///
    /// # Safety
    /// As [`Callee::invoke`].
    unsafe fn invoke(
        &self,
        function: usize,
        call: &Call,
        layout: &Layout,
        starts: &[*mut u8],
        line: &ServerLink<'_>,
    ) -> Result<u64, Failure> {
        let mut waited = Duration::ZERO;
        let mut caller = |request: Result<CallbackRequest, String>| {
            let start = Instant::now();
            let answer = request.and_then(|request| line.call_back(request));
            waited += start.elapsed();
            answer.unwrap_or_else(|problem| line.give_up(problem))
        };
        let interface = &self.interfaces[function];
        let start = Instant::now();
        // SAFETY: the caller's promise.
        let called = unsafe {
            self.callee.invoke(
                function,
                interface,
                &call.scalars,
                layout,
                starts,
                &mut caller,
            )
        };
        // What the function has changed is not for the next one.
        self.floats.restore();
        let exec_nanos = start.elapsed().saturating_sub(waited).as_nanos() as u64;
        if interface.class.is_none() {
            self.surroundings.restore();
        }
        if call.output {
            // SAFETY: flushes the open streams of the C library.
            unsafe { libc::fflush(std::ptr::null_mut()) };
        }
        called.map(|()| exec_nanos)
    }
}

/// The addresses of the arrays of a call, in its buffer and in shared memory.
fn starts(
    layout: &Layout,
    buffer: *mut u8,
    segments: &mut HashMap<u64, Segment>,
    lent: &mut Lent,
    is_parallel: bool,
) -> io::Result<Vec<*mut u8>> {
    let starts = layout.arrays.iter().map(|array| match array.place {
        None => Ok(buffer.wrapping_add(array.offset as usize)),
        Some(place) => start(array, place, segments, lent, is_parallel),
    });
    starts.collect()
}

/// The address of an array in shared memory. If the call only reads it, it is lent.
fn start(
    array: &ArrayLayout,
    place: SharedRange,
    segments: &mut HashMap<u64, Segment>,
    lent: &mut Lent,
    is_parallel: bool,
) -> io::Result<*mut u8> {
    let outside = || io::Error::other("it is outside the shared memory");
    let segment = segments.get_mut(&place.segment).ok_or_else(outside)?;
    let end = place.offset.checked_add(array.bytes);
    let length = segment.mapping().bytes() as u64;
    if end.is_none_or(|end| end > length) {
        return Err(outside());
    }
    let (offset, bytes) = (place.offset as usize, array.bytes as usize);
    match array.mode {
        Mode::In if is_parallel => lent.copy(segment, offset, bytes),
        Mode::In => lent.add(place.segment, segment, offset, bytes),
        _ => Ok(segment.mapping().start().as_ptr().wrapping_add(offset)),
    }
}

/// The connection to the server while a call runs.
pub(crate) struct ServerLink<'w> {
    socket: &'w OwnedFd,
    mailbox: &'w Mailbox,
}

impl ServerLink<'_> {
    /// Sends a callback to the client through the server, and waits for the answer.
    fn call_back(&self, request: CallbackRequest) -> Result<CallbackAnswer, String> {
        let callback = Callback {
            index: request.index as u32,
            scalars: request.scalars,
            data: request.data,
            big_endian: cfg!(target_endian = "big"),
        };
        self.exchange(&callback)
            .map_err(|error| format!("cannot call back: {error}"))
    }

    /// Sends a callback and waits for the answer.
    pub(crate) fn exchange(&self, callback: &Callback) -> io::Result<CallbackAnswer> {
        self.ask(callback, &mut Vec::new())?;
        self.answer()
    }

    /// Sends a callback. [`ServerLink::answer`] must follow. `message` is a reusable buffer.
    pub(crate) fn ask(&self, callback: &Callback, message: &mut Vec<u8>) -> io::Result<()> {
        message.clear();
        callback.encode(message);
        self.mailbox.put(message)?;
        self.say(&WorkerMessage::Callback(message.len()))
    }

    /// Waits for the answer of the last callback.
    pub(crate) fn answer(&self) -> io::Result<CallbackAnswer> {
        let (word, _) = receive(self.socket)?;
        let word = AnswerWord::decode(&word).ok_or(io::ErrorKind::InvalidData)?;
        Ok(CallbackAnswer {
            data: self.mailbox.take(word.bytes)?,
            swap: word.big_endian != cfg!(target_endian = "big"),
        })
    }

    /// Gives up in the middle of a library call, which cannot continue: the server ends the
    /// process.
    fn give_up(&self, problem: String) -> ! {
        let _ = self.say(&WorkerMessage::Problem(problem));
        while receive(self.socket).is_ok() {}
        std::process::exit(1);
    }

    fn say(&self, word: &WorkerMessage) -> io::Result<()> {
        let flags = rustix::net::SendFlags::NOSIGNAL;
        rustix::net::send(self.socket, &word.encode(), flags)?;
        Ok(())
    }
}

/// Converts arrays from the other byte order.
fn swap_arguments(layout: &Layout, buffer: &mut [u8]) {
    for array in layout.travelling().filter(|array| array.mode.is_sent()) {
        for run in array.buffer_runs() {
            let run = &mut buffer[run.offset as usize..][..run.len as usize];
            swap_bytes(run, array.element.swap_unit() as usize);
        }
    }
}

/// Receives one message with its descriptors; an error when the server is gone. A signal that the
/// library handles does not end the wait: a timer of a function may run on between its calls.
pub(crate) fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 64];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    if message.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(message.bytes);
    let mut descriptors = Vec::new();
    for ancillary in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
            descriptors.extend(received);
        }
    }
    Ok((bytes, descriptors))
}

/// Makes the C library write each line when it is complete. Its standard output is a pipe, which it
/// would otherwise fill first.
pub(crate) fn print_lines() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: nothing was written to the stream yet, and it has a buffer of its own.
    unsafe { libc::setvbuf(stdout, std::ptr::null_mut(), libc::_IOLBF, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
    use std::sync::atomic::{AtomicU32, Ordering};

    static HANDLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }

    /// Python and others install handlers that interrupt system calls.
    #[test]
    fn a_signal_that_the_library_handles_does_not_end_a_wait_for_the_server() {
        // SAFETY: the handler makes an atomic access only, and no other test uses the signal.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as extern "C" fn(_) as usize;
            assert_eq!(
                libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()),
                0
            );
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        // SAFETY: it only asks.
        let waiting = unsafe { libc::pthread_self() };
        let server = std::thread::spawn(move || {
            while HANDLED.load(Ordering::SeqCst) < 20 {
                // SAFETY: the thread waits until this one has ended.
                unsafe { libc::pthread_kill(waiting, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_millis(1));
            }
            send(&ours, b"word", SendFlags::NOSIGNAL).unwrap();
        });
        let received = receive(&theirs);
        server.join().unwrap();
        assert_eq!(received.unwrap().0, b"word");
    }
}

//! One connection, shared by every request to a server.
//!
//! There is no thread of its own. A thread that waits for its request waits at the socket, and
//! moves bytes for all while it does; the others sleep until their request has ended, or until it
//! leaves and they take its place. So a single caller reads its own reply, and many callers share
//! one stream, whose chunks take turns.

mod directory;
mod kept;
mod names;
mod pace;
mod several;
mod state;
mod transfer;
mod waiter;

use crate::callback::{self, Callbacks};
use crate::files::Files;
use crate::function::Described;
use crate::memory::{Pool, Segment};
use crate::output::Printed;
use crate::socket::{self, Socket, Waker};
use crate::{Address, Argument, Error, Options};
use farcall_idl::Layout;
use farcall_rpc_proto::{
    CALLBACKS, CREDIT, Call, CallId, DIRECTORY, ESTIMATES, Estimate, FILES, Failure, FailureKind,
    HANDLES, Hello, JOBS, KEPT_OBJECTS, LOANS, Listing, NAMES, OBJECTS, OPERATION, OUTPUT, PARTS,
    ProtocolError, REGISTER, RESERVATIONS, SHARED_MEMORY, Times,
};
use farcall_spin::Spin;
pub(crate) use state::Answered;
use state::{Answer, Loss, Outlook, State};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};
pub use transfer::Progress;
use transfer::Transfer;
use waiter::Waiter;

pub(crate) use several::wait_for_any;
use std::net::SocketAddr;

/// Array data of a call that fill the buffers on the way.
const BULK_BYTES: u64 = 1 << 20;

/// A signal that comes to a thread asleep, or just before it waits at the socket, cannot be seen
/// otherwise than by asking so often.
const NAP: Duration = Duration::from_millis(100);

/// A connection to a server.
pub(crate) struct Connection {
    /// Never given to two connections of this process.
    number: u64,
    process: u32,
    address: Address,
    options: Options,
    socket: Socket,
    waker: Waker,
    state: Mutex<State>,
    /// The server's optional features, once it has greeted.
    features: u64,
    pool: Mutex<Pool>,
    spin: Spin,
    /// Calls under way whose arrays are large and travel.
    bulk: Arc<AtomicUsize>,
    /// Threads that want the lock: whoever moves bulk data lets them in between.
    contenders: AtomicUsize,
}

/// Other addresses of a server that are looked at.
const MOST_WAYS: usize = 16;

/// What a running call has its caller do.
pub(crate) struct Reply {
    /// Whom the called function calls back.
    pub(crate) callbacks: Option<Box<Callbacks>>,
    /// What it has printed, where the caller wants it.
    pub(crate) printed: Option<Arc<Printed>>,
    /// For messages.
    pub(crate) function: Arc<Described>,
}

impl Reply {
    fn is_needed(&self) -> bool {
        self.callbacks.is_some() || self.printed.is_some()
    }

    /// The files of the call, if it has any.
    fn files(&self) -> Option<&Files> {
        let callbacks = self.callbacks.as_ref()?;
        Some(&callbacks.files).filter(|files| !files.is_empty())
    }
}

/// A request under way. Dropped before its end, it is given up.
pub(crate) struct Request {
    connection: Arc<Connection>,
    id: CallId,
    deadline: Option<Instant>,
    /// What a call has its caller do while it runs; nothing for other requests.
    reply: Option<Reply>,
    /// Why a callback failed.
    failed: Mutex<Option<Error>>,
    /// Nobody needs to give it up any more.
    over: bool,
}

impl Connection {
    /// Connects and exchanges greetings; changes to a Unix socket where the server offers one.
    pub(crate) fn open(address: &Address, options: &Options) -> Result<Arc<Connection>, Error> {
        let timeout = options.connect_timeout;
        let connection = Connection::open_by(address, options, None)?;
        let local = connection.lock().local.take();
        let Some(name) = local.filter(|_| options.same_host && !connection.socket.is_unix()) else {
            return Ok(connection);
        };
        let connect = Socket::connect_local(&name, timeout);
        Ok(Connection::over(connect, address, options).unwrap_or(connection))
    }

    /// Connects and exchanges greetings, at another address of the server where one is given.
    pub(crate) fn open_by(
        address: &Address,
        options: &Options,
        way: Option<SocketAddr>,
    ) -> Result<Arc<Connection>, Error> {
        let timeout = options.connect_timeout;
        let connect = Socket::connect(address, way, &options.credentials, timeout);
        Connection::over(connect, address, options)
    }

    fn over(
        socket: io::Result<Socket>,
        address: &Address,
        options: &Options,
    ) -> Result<Arc<Connection>, Error> {
        let failed = |source| Error::Connect {
            address: address.clone(),
            source,
        };
        let socket = socket.map_err(failed)?;
        let mut hello = Hello::new(concat!("farcall-client ", env!("CARGO_PKG_VERSION")));
        hello.features |= ESTIMATES | CALLBACKS | OUTPUT | FILES | JOBS | HANDLES | LOANS | NAMES;
        hello.features |= OBJECTS
            | OPERATION
            | REGISTER
            | DIRECTORY
            | PARTS
            | CREDIT
            | KEPT_OBJECTS
            | RESERVATIONS;
        if socket.is_unix() {
            hello.features |= SHARED_MEMORY;
        }
        if socket.is_private() {
            hello.token = options.credentials.token().map(str::to_owned);
        }
        let is_remote = !socket.is_within_host();
        static LAST: AtomicU64 = AtomicU64::new(0);
        let mut connection = Connection {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            address: address.clone(),
            options: options.clone(),
            socket,
            waker: Waker::new().map_err(failed)?,
            state: Mutex::new(State::new(&hello, is_remote)),
            features: 0,
            pool: Mutex::default(),
            spin: Spin::new(options.spin),
            bulk: Arc::default(),
            contenders: AtomicUsize::new(0),
        };
        connection.greet()?;
        let features = connection.lock().features;
        connection.features = features;
        Ok(Arc::new(connection))
    }

    fn greet(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.connect_timeout;
        loop {
            let outlook = {
                let mut state = self.lock();
                state.progress(&self.socket, None);
                if state.is_connected() {
                    return Ok(());
                }
                if let Some(loss) = &state.lost {
                    return Err(self.refusal(loss));
                }
                state.outlook()
            };
            self.wait(outlook, Some(deadline), self.options.connect_timeout)?;
        }
    }

    /// Why the server does not greet.
    fn refusal(&self, loss: &Loss) -> Error {
        let Loss::Protocol(ProtocolError::Goodbye(reason)) = loss else {
            return self.error(loss.clone());
        };
        let withheld = self.options.credentials.token().is_some() && !self.socket.is_private();
        let hint = match withheld {
            true => "; the token is not sent in clear text over a network: use farcalls://",
            false => "",
        };
        Error::Refused {
            address: self.address.clone(),
            reason: format!("{reason}{hint}"),
        }
    }

    /// Its number, never used twice in this process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether new requests should rather have another connection.
    pub(crate) fn is_stale(&self) -> bool {
        match self.state.try_lock() {
            Ok(state) => state.lost.is_some() || (state.is_idle() && self.socket.is_stale()),
            Err(TryLockError::Poisoned(_)) => true,
            // Somebody moves bytes on it.
            Err(TryLockError::WouldBlock) => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        state
    }

    /// Lets threads that want the lock have it before this one takes it again.
    fn let_others_in(&self) {
        const TURNS: usize = 1000;
        for _ in 0..TURNS {
            if self.contenders.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Asks for a page of the functions served.
    pub(crate) fn list(self: &Arc<Self>, from: u32) -> Result<Listing, Error> {
        match self.start(|state| state.list(from))?.finish()? {
            Answer::Listing(listing) => Ok(listing),
            _ => Err(self.unexpected()),
        }
    }

    /// Asks for number and canonical IDL of a function.
    pub(crate) fn describe(self: &Arc<Self>, name: &str) -> Result<Answered, Error> {
        match self.start(|state| state.describe(name))?.finish()? {
            Answer::Interface(answered) => Ok(answered),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the functions of an interface file served; returns them.
    pub(crate) fn register(self: &Arc<Self>, path: &str, text: &str) -> Result<Listing, Error> {
        self.check_one_server("libraries")?;
        if self.features & REGISTER == 0 {
            let text = "the server is too old to register libraries; update it";
            return Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)));
        }
        match self.start(|state| state.register(path, text))?.finish()? {
            Answer::Listing(listing) => Ok(listing),
            _ => Err(self.unexpected()),
        }
    }

    /// What a call would take, as far as the server knows.
    pub(crate) fn estimate(self: &Arc<Self>, call: &Call) -> Result<Estimate, Error> {
        if self.features & ESTIMATES == 0 {
            return Ok(Estimate::default());
        }
        match self.start(|state| state.estimate(call))?.finish()? {
            Answer::Estimated(estimate) => Ok(estimate),
            _ => Err(self.unexpected()),
        }
    }

    /// How the server stands, as a JSON object.
    pub(crate) fn status(self: &Arc<Self>) -> Result<String, Error> {
        self.check_operation()?;
        match self.start(|state| state.status())?.finish()? {
            Answer::Standing(text) => Ok(text),
            _ => Err(self.unexpected()),
        }
    }

    /// Has the server take no more calls and end; how many are still to end.
    pub(crate) fn drain(self: &Arc<Self>) -> Result<u64, Error> {
        self.check_operation()?;
        match self.start(|state| state.drain())?.finish()? {
            Answer::Draining(calls) => Ok(calls),
            _ => Err(self.unexpected()),
        }
    }

    fn check_operation(&self) -> Result<(), Error> {
        if self.features & OPERATION != 0 {
            return Ok(());
        }
        let text = "the server is older than these requests; update it";
        Err(Error::Failed(Failure::new(FailureKind::NotAllowed, text)))
    }

    /// The server's program and version.
    pub(crate) fn agent(&self) -> String {
        self.lock().agent.clone()
    }

    /// Whether the server sends what functions print.
    pub(crate) fn forwards_output(&self) -> bool {
        self.features & OUTPUT != 0
    }

    /// Whether the server works on files of its clients.
    pub(crate) fn moves_files(&self) -> bool {
        self.features & (FILES | CALLBACKS) == FILES | CALLBACKS
    }

    /// Whether parts of arrays may travel on their own, and it is of use: within a host one
    /// connection is as fast as memory.
    pub(crate) fn moves_parts(&self) -> bool {
        let features = PARTS | HANDLES;
        self.features & features == features && !self.socket.is_within_host()
    }

    /// Other addresses at which the server listens.
    pub(crate) fn ways(&self) -> Vec<SocketAddr> {
        let state = self.lock();
        let ways = state.ways.iter().filter_map(|way| way.parse().ok());
        let peer = self.socket.peer();
        ways.filter(|way| Some(*way) != peer)
            .take(MOST_WAYS)
            .collect()
    }

    /// When an operation ends that began then.
    pub(crate) fn deadline_from(&self, start: Instant) -> Option<Instant> {
        self.options.timeout.map(|timeout| start + timeout)
    }

    /// The time of an operation is over.
    pub(crate) fn timed_out(&self) -> Error {
        Error::Timeout {
            address: self.address.clone(),
            after: self.options.timeout.unwrap_or_default(),
        }
    }

    /// Whether arrays may lie in memory shared with the server.
    pub(crate) fn shares(&self) -> bool {
        self.socket.is_unix() && self.features & SHARED_MEMORY != 0
    }

    /// The memory shared with the server. No segment may be dropped with the lock held.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for shared memory; `present` has all its pages made at once.
    pub(crate) fn share(self: &Arc<Self>, bytes: u64, present: bool) -> Result<Segment, Error> {
        match self.start(|state| state.share(bytes))?.finish()? {
            Answer::Shared(id, bytes, fd) => Segment::map(self, id, bytes, &fd, present)
                .map_err(|error| self.error(error.into())),
            _ => Err(self.unexpected()),
        }
    }

    /// Shared memory for copies of arrays, an idle one where one fits; none where the server has
    /// none to give.
    pub(crate) fn staging_segment(self: &Arc<Self>, bytes: u64) -> Option<Segment> {
        let idle = self.pool().take(usize::try_from(bytes).ok()?);
        idle.or_else(|| self.share(bytes + bytes / 8, true).ok())
    }

    /// Asks for an object of a class; `None` where the server has no objects.
    pub(crate) fn create(self: &Arc<Self>, class: &str) -> Result<Option<CallId>, Error> {
        self.check_one_server("objects")?;
        if self.features & OBJECTS == 0 {
            return Ok(None);
        }
        match self.start(|state| state.create(class))?.finish()? {
            Answer::Created(id) => Ok(Some(id)),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives an object up. A child that this process forked leaves it alone: it is the parent's.
    pub(crate) fn delete(&self, object: CallId) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.lock();
        state.delete(object);
        self.send_soon(&mut state);
    }

    /// Gives shared memory back to the server. A child that this process forked leaves it alone:
    /// memory and connection are the parent's.
    pub(crate) fn unshare(&self, memory: CallId) {
        if self.process != std::process::id() {
            return;
        }
        let mut state = self.lock();
        state.unshare(memory);
        self.send_soon(&mut state);
    }

    /// Sends what the socket takes at once; whoever waits at it sends the rest.
    fn send_soon(&self, state: &mut State) {
        state.send(&self.socket);
        if state.has_unsent() && state.driven {
            self.waker.wake();
        }
    }

    /// Begins a call.
    ///
    /// # Safety
    /// Until the request is over or dropped, the arrays of `arguments` stay where they are; those
    /// that are written are not touched by anybody else, those that are read not written.
    pub(crate) unsafe fn call(
        self: &Arc<Self>,
        call: &Call,
        arguments: &mut [Argument<'_>],
        layout: Layout,
        reply: Reply,
    ) -> Result<Request, Error> {
        let arrays = layout.sent_bytes() + layout.returned_bytes();
        let is_bulk = arrays >= BULK_BYTES || reply.files().is_some();
        // SAFETY: the caller's promise.
        let transfer = unsafe { Transfer::new(arguments, layout) };
        let printed = reply.printed.clone();
        let mut request = self.start(|state| state.call(call, transfer, printed))?;
        request.reply = reply.is_needed().then_some(reply);
        if is_bulk {
            let bulk = Bulk::new(&self.bulk);
            self.lock().is_bulk(request.id, bulk);
        }
        Ok(request)
    }

    /// Whether large arrays travel on it, those of calls included that were given up and of which
    /// something may be on the way.
    pub(crate) fn carries_bulk(&self) -> bool {
        self.bulk.load(Ordering::Relaxed) > 0
    }

    /// Opens a request and sends of it what the socket takes at once.
    fn start(
        self: &Arc<Self>,
        open: impl FnOnce(&mut State) -> Result<CallId, Loss>,
    ) -> Result<Request, Error> {
        let mut state = self.lock();
        if let Some(loss) = &state.lost {
            return Err(self.error(loss.clone()));
        }
        let id = open(&mut state).map_err(|loss| self.error(loss))?;
        self.send_soon(&mut state);
        let deadline = self.options.timeout.map(|timeout| Instant::now() + timeout);
        Ok(Request {
            connection: self.clone(),
            id,
            deadline,
            reply: None,
            failed: Mutex::new(None),
            over: false,
        })
    }

    /// Waits at the socket, without the lock.
    fn wait(
        &self,
        outlook: Outlook,
        deadline: Option<Instant>,
        timeout: Duration,
    ) -> Result<(), Error> {
        let until = |time: Instant| time.saturating_duration_since(Instant::now());
        let left = deadline.map(until);
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::Timeout {
                address: self.address.clone(),
                after: timeout,
            });
        }
        let left = left.into_iter().chain(outlook.pause.map(until)).min();
        match socket::wait(&self.socket, &self.waker, outlook.writing, self.nap(left)) {
            Ok(true) => Ok(()),
            Ok(false) => self.interrupted(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.interrupted(),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// How long to wait before asking whether to go on, where somebody may be asked.
    fn nap(&self, left: Option<Duration>) -> Option<Duration> {
        match &self.options.on_interrupt {
            Some(_) => Some(left.unwrap_or(NAP).min(NAP)),
            None => left,
        }
    }

    fn interrupted(&self) -> Result<(), Error> {
        match &self.options.on_interrupt {
            Some(give_up) if give_up() => Err(Error::Interrupted),
            _ => Ok(()),
        }
    }

    fn error(&self, loss: Loss) -> Error {
        let address = self.address.clone();
        match loss {
            Loss::Failed(failure) => Error::Failed(failure),
            Loss::Io(kind, text) => Error::Disconnected {
                address,
                source: io::Error::new(kind, text),
            },
            Loss::Protocol(source) => Error::Protocol { address, source },
        }
    }

    pub(crate) fn unexpected(&self) -> Error {
        self.error(Loss::Io(
            io::ErrorKind::InvalidData,
            "an answer to another question".into(),
        ))
    }
}

impl Request {
    /// Waits for the end of a call.
    pub(crate) fn times(self) -> Result<Times, Error> {
        let connection = self.connection.clone();
        match self.finish()? {
            Answer::Done(times) => Ok(times),
            _ => Err(connection.unexpected()),
        }
    }

    /// Whether the end has come. Moves what can be moved at once, and does what the running
    /// function wants of its caller by now.
    pub(crate) fn is_done(&self) -> bool {
        let mut state = self.connection.lock();
        if !state.driven {
            state.progress(&self.connection.socket, Some(self.id));
        }
        if self.has_work(&state) {
            drop(state);
            self.work();
            state = self.connection.lock();
        }
        state.has_ended(self.id)
    }

    /// Whether the end has come, as far as is known.
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.lock().has_ended(self.id)
    }

    /// How far its arrays have travelled; none when it has ended.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let mut progress = self.connection.lock().transfer_progress(self.id)?;
        if let Some(files) = self.reply.as_ref().and_then(Reply::files) {
            files.add_to(&mut progress);
        }
        Some(progress)
    }

    /// When its time-out passes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives the request up: its memory is not touched any more, and every wait for it ends.
    pub(crate) fn cancel(&self) {
        let mut state = self.connection.lock();
        state.abandon(self.id);
        state.send(&self.connection.socket);
        // Whoever waits at the socket may wait for this request, and the server may be silent.
        if state.driven {
            self.connection.waker.wake();
        }
    }

    /// The times of a call that has ended; told once.
    pub(crate) fn take_times(&self) -> Option<Result<Times, Error>> {
        Some(match self.take_answer()? {
            Ok(Answer::Done(times)) => self.place_files().map(|()| times),
            Ok(_) => Err(self.connection.unexpected()),
            Err(error) => Err(error),
        })
    }

    /// Whether a request that has ended came to something; told once.
    pub(crate) fn take_end(&self) -> Option<Result<(), Error>> {
        Some(self.take_answer()?.map(drop))
    }

    /// The answer of a request that has ended; told once.
    fn take_answer(&self) -> Option<Result<Answer, Error>> {
        let mut state = self.connection.lock();
        if !state.has_ended(self.id) {
            return None;
        }
        let end = state.take_end(self.id);
        drop(state);
        if let Err(error) = self.settle() {
            return Some(Err(error));
        }
        Some(match end {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(loss)) => Err(self.connection.error(loss)),
            None => Err(Error::Failed(Failure::new(
                FailureKind::Cancelled,
                "the caller gave the call up",
            ))),
        })
    }

    /// Waits until the request has ended, for at most so long from now; leaves the end to be taken.
    pub(crate) fn wait_for(&self, timeout: Duration) -> Result<(), Error> {
        self.wait(Some(Instant::now() + timeout), timeout)
    }

    /// Waits until the request has ended, at the socket or asleep, and leaves the end to be taken.
    fn wait(&self, deadline: Option<Instant>, timeout: Duration) -> Result<(), Error> {
        let connection = &*self.connection;
        let mut spinning = connection.spin.begin();
        let mut state = connection.lock();
        loop {
            let is_open = !state.has_ended(self.id);
            let more =
                is_open && !state.driven && state.progress(&connection.socket, Some(self.id));
            if self.has_work(&state) {
                if !state.driven {
                    state.hand_over();
                }
                drop(state);
                self.work();
                state = connection.lock();
                continue;
            }
            if state.has_ended(self.id) {
                if !state.driven {
                    state.hand_over();
                }
                return Ok(());
            }
            if more {
                drop(state);
                connection.let_others_in();
                state = connection.lock();
                continue;
            }
            if state.driven {
                let waiter = Waiter::asleep();
                state.add_waiter(self.id, waiter.clone());
                drop(state);
                let slept = self.sleep(deadline, timeout);
                state = connection.lock();
                state.remove_waiter(self.id, &waiter);
                if slept.is_err() && !state.driven {
                    state.hand_over();
                }
                slept?;
                continue;
            }
            state.driven = true;
            let outlook = state.outlook();
            drop(state);
            let waited = match !outlook.writing && spinning.look_again() {
                true => Ok(()),
                false => connection.wait(outlook, deadline, timeout),
            };
            state = connection.lock();
            state.driven = false;
            if let Err(error) = waited {
                state.hand_over();
                return Err(error);
            }
        }
    }

    /// Whether the caller has something to do for the running function.
    fn has_work(&self, state: &State) -> bool {
        self.reply.as_ref().is_some_and(|reply| {
            state.has_callback(self.id) || reply.printed.as_ref().is_some_and(|p| p.has_lines())
        })
    }

    /// Writes what the function has printed, runs its callback and answers it. If that fails the
    /// call is given up, and that is its end.
    fn work(&self) {
        let Some(reply) = &self.reply else { return };
        let callback = self.connection.lock().take_callback(self.id);
        let answered = self.write(false).and_then(|()| {
            let run = |callbacks: &Callbacks| callback.map(|callback| callbacks.run(callback));
            reply.callbacks.as_deref().and_then(run).transpose()
        });
        match answered {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let mut state = self.connection.lock();
                state.answer(self.id, &answer);
                self.connection.send_soon(&mut state);
            }
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(error);
                drop(failed);
                self.cancel();
            }
        }
    }

    /// Writes what the function has printed.
    fn write(&self, is_over: bool) -> Result<(), Error> {
        let Some(reply) = &self.reply else {
            return Ok(());
        };
        let written = reply.printed.as_ref().map(|printed| printed.write(is_over));
        written
            .unwrap_or(Ok(()))
            .map_err(|error| callback::failed(&reply.function, "output", error))
    }

    /// The last of what the function has printed, and why a callback failed.
    fn settle(&self) -> Result<(), Error> {
        if self.reply.is_none() {
            return Ok(());
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        match failed.take() {
            Some(error) => Err(error),
            None => self.write(true),
        }
    }

    /// Sleeps until another thread has something to tell, or a while.
    fn sleep(&self, deadline: Option<Instant>, timeout: Duration) -> Result<(), Error> {
        let left = deadline.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Error::Timeout {
                address: self.connection.address.clone(),
                after: timeout,
            });
        }
        std::thread::park_timeout(left.min(NAP));
        self.connection.interrupted()
    }

    fn finish(mut self) -> Result<Answer, Error> {
        let timeout = self.connection.options.timeout.unwrap_or_default();
        self.wait(self.deadline, timeout)?;
        self.over = true;
        self.settle()?;
        let end = self.connection.lock().take_end(self.id);
        match end {
            Some(Ok(answer)) => self.place_files().map(|()| answer),
            Some(Err(loss)) => Err(self.connection.error(loss)),
            None => Err(self.connection.unexpected()),
        }
    }

    /// The call has succeeded: what it returned in files takes their place.
    fn place_files(&self) -> Result<(), Error> {
        let Some(reply) = &self.reply else {
            return Ok(());
        };
        let files = reply.files();
        files.map_or(Ok(()), |files| files.place(reply.function.qualified()))
    }
}

/// A call whose arrays are large, until the server has told its end.
pub(crate) struct Bulk(Arc<AtomicUsize>);

impl Bulk {
    fn new(count: &Arc<AtomicUsize>) -> Bulk {
        count.fetch_add(1, Ordering::Relaxed);
        Bulk(count.clone())
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.cancel();
    }
}

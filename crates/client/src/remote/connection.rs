//! One connection, shared by all requests to a server.
//!
//! A connection has no thread of its own. One of the threads that wait for requests waits at the
//! socket and moves the bytes of all requests. The others sleep until their request has ended, or
//! until the thread at the socket leaves and one of them takes its place. So a single caller reads
//! its own reply, and many callers share one stream, in which their data take turns.

/// Takes an answer of one kind apart, for [`Connection::ask`].
macro_rules! answered {
    ($kind:ident) => {
        |answer| match answer {
            farcall_rpc_proto::client::Answer::$kind(value) => Some(value),
            _ => None,
        }
    };
}
pub(crate) use answered;

mod calls;
mod greeting;
mod memory;
mod pace;
mod proof;
mod request;
mod several;
mod silence;
mod state;
mod transfer;
mod watch;

pub use memory::SharedMemory;
pub(crate) use memory::{Pool, Segment};
pub(crate) use pace::Pace;
pub(crate) use request::{Reply, Request};
pub(crate) use several::wait_for_any;
pub(crate) use transfer::Transfer;
pub(crate) use watch::{Key, Watch};

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::process;
use crate::remote::socket::{self, Socket, Waker};
use crate::timeout::Timeout;
use farcall_rpc_proto::{CallId, DIRECTORY, FailureKind, ProtocolError, SubmitRequest, client};
use farcall_spin::{Bell, Latency, Spin};
use state::{Loss, Outlook, State};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How often a waiting thread asks whether a signal wants it to stop. A signal that arrives just
/// before the wait, or at a sleeping thread, does not interrupt it.
const NAP: Duration = Duration::from_millis(100);

/// Open requests from which a new one reads the answers that have come. With fewer, a caller that
/// waits does so.
const MANY: usize = 1 << 10;

/// Whether a deadline has passed a while ago. A wait at a socket ends at its deadline. One that
/// finds something to do each time it looks ends then.
fn is_overdue(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|end| end.elapsed() >= NAP)
}

/// Whether a thread that does not wait asks now whether a signal wants it to stop. `asked` is when
/// it asked last.
fn asks_again(asked: &mut Option<Instant>) -> bool {
    let last = asked.get_or_insert_with(Instant::now);
    let asks = last.elapsed() >= NAP;
    if asks {
        *last = Instant::now();
    }
    asks
}

/// Fails if the caller wants to give up, like [`Connection::interrupted`], for a thread that always
/// has bytes to move. It asks at most as often as one that waits.
fn interrupted_at_times(connection: &Connection, asked: &mut Option<Instant>) -> Result<(), Error> {
    match connection.options.on_interrupt.is_some() && asks_again(asked) {
        true => connection.interrupted(),
        false => Ok(()),
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    /// A number that no other connection of this process has.
    number: u64,
    /// The process that opened it, as [`process::generation`] says.
    process: u32,
    address: Address,
    options: Options,
    socket: Socket,
    waker: Waker,
    state: Mutex<State>,
    /// The server's optional features, from its greeting.
    features: u64,
    pool: Mutex<Pool>,
    spin: Spin,
    /// How long the server takes to record a durable call.
    pub(crate) records: Latency,
    /// Number of calls under way with large arrays that travel.
    bulk: Arc<AtomicUsize>,
    /// Number of threads that want the lock. A thread that moves bulk data lets them in.
    contenders: AtomicUsize,
}

impl Bell for Connection {
    fn ring(&self) {
        self.waker.wake();
    }
}

impl Connection {
    /// The number of this connection, unique in this process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The address of the server.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the server has all of these optional features.
    pub(crate) fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// Fails if the server is too old for a feature.
    pub(crate) fn check(&self, features: u64, kind: FailureKind, what: &str) -> Result<(), Error> {
        if self.has(features) {
            return Ok(());
        }
        let who = match self.is_to_metaserver() {
            true => "metaserver",
            false => "server",
        };
        let text = format!("the {who} is too old to {what}; update it");
        Err(Error::failed(kind, text))
    }

    /// Whether the peer is a metaserver.
    pub(crate) fn is_to_metaserver(&self) -> bool {
        self.has(DIRECTORY)
    }

    /// Whether the connection is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.socket.is_unix()
    }

    /// Whether this process opened the connection. A forked child inherits it from its parent.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == process::generation()
    }

    /// Whether new requests need another connection.
    pub(crate) fn is_stale(&self) -> bool {
        if !self.is_ours() {
            return true;
        }
        match self.state.try_lock() {
            Ok(mut state) => {
                if state.open.has_only_early() {
                    state.progress(&self.socket, None);
                }
                state.lost.is_some() || (state.open.awaited() == 0 && self.socket.is_stale())
            }
            Err(TryLockError::Poisoned(_)) => true,
            // Another thread moves bytes on it.
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// The state. A forked child has lost the connection: its parent uses the socket.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        if !self.is_ours() && state.lost.is_none() {
            let text = "it belongs to the parent of this process: connect again after a fork";
            state.lose(Loss::Io(io::ErrorKind::NotConnected, text.into()));
        }
        state
    }

    /// Lets threads that want the lock take it before this thread takes it again.
    fn let_others_in(&self) {
        const TURNS: usize = 1000;
        for _ in 0..TURNS {
            if self.contenders.load(Ordering::Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Sends what the socket accepts at once. The thread at the socket sends the rest.
    fn send_soon(&self, state: &mut State) {
        state.send(&self.socket);
        if state.has_unsent() && state.seat.is_taken() {
            self.waker.wake();
        }
    }

    /// Opens a request, and sends what the socket accepts of it at once.
    fn start(
        self: &Arc<Self>,
        open: impl FnOnce(&mut State) -> Result<CallId, Loss>,
    ) -> Result<Request, Error> {
        let mut state = self.lock();
        if state.open.awaited() >= MANY && !state.seat.is_taken() {
            // Perhaps nobody waits, so that nobody reads them.
            state.progress(&self.socket, None);
        }
        if let Some(loss) = &state.lost {
            return Err(self.error(loss.clone()));
        }
        state.await_answer();
        let id = open(&mut state).map_err(|loss| self.error(loss))?;
        self.send_soon(&mut state);
        Ok(Request::new(self.clone(), id))
    }

    /// Begins a request without data.
    pub(crate) fn begin(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
    ) -> Result<Request, Error> {
        self.start(|state| state.ask(open))
    }

    /// Makes a request without data and waits for its answer, which `read` takes apart.
    pub(crate) fn ask<T>(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        read: fn(client::Answer) -> Option<T>,
    ) -> Result<T, Error> {
        self.begin(open)?.answer(read)
    }

    /// The same for a call with this time-out.
    pub(crate) fn ask_within<T>(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        read: fn(client::Answer) -> Option<T>,
        timeout: Timeout,
    ) -> Result<T, Error> {
        let mut request = self.begin(open)?;
        request.within(timeout);
        request.answer(read)
    }

    /// Begins a request with data in either direction.
    pub(crate) fn carry(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        transfer: Transfer,
    ) -> Result<Request, Error> {
        self.start(|state| state.move_data(open, transfer))
    }

    /// Submits a durable call, and asks for its results if there is a place for them.
    pub(crate) fn submit(
        self: &Arc<Self>,
        submission: &SubmitRequest,
        transfer: Transfer,
        results: Option<Transfer>,
    ) -> Result<(Request, Option<Request>), Error> {
        let mut fetch = None;
        let submitted = self.start(|state| {
            let (id, second) = state.submit(submission, transfer, results)?;
            fetch = second;
            Ok(id)
        })?;
        let fetch = fetch.map(|id| Request::new(self.clone(), id));
        Ok((submitted, fetch))
    }

    /// Sends a message that has no answer.
    pub(crate) fn tell(&self, tell: impl FnOnce(&mut client::Connection)) {
        let mut state = self.lock();
        tell(&mut state.proto);
        self.send_soon(&mut state);
    }

    /// Limits the connection's sending rate from now on.
    pub(crate) fn set_pace(&self, pace: Option<Pace>) {
        let mut state = self.lock();
        state.set_pace(pace);
        self.send_soon(&mut state);
    }

    /// Waits at the socket without holding the lock.
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
        let left = left.into_iter().chain(outlook.left()).min();
        match socket::wait(&self.socket, &self.waker, outlook.writing, self.nap(left)) {
            Ok(true) => Ok(()),
            Ok(false) => self.interrupted(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.interrupted(),
            Err(error) => Err(self.error(error.into())),
        }
    }

    /// How long to wait before `on_interrupt` is asked again.
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
            Loss::Failed(failure) => Error::Failed(failure.into()),
            Loss::Io(kind, text) => {
                let text = match self.socket.words() {
                    Some(words) => format!("{text}; ssh says: {words}"),
                    None => text,
                };
                Error::Disconnected {
                    address,
                    source: io::Error::new(kind, text),
                }
            }
            Loss::Protocol(source) => Error::Protocol { address, source },
        }
    }

    pub(crate) fn unexpected(&self) -> Error {
        self.error(Loss::Io(
            io::ErrorKind::InvalidData,
            "the answer belongs to another request".into(),
        ))
    }
}

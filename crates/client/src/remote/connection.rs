//! One connection, shared by every request to a server.
//!
//! There is no thread of its own. A thread that waits for its request waits at the socket, and
//! moves bytes for all while it does; the others sleep until their request has ended, or until it
//! leaves and they take its place. So a single caller reads its own reply, and many callers share
//! one stream, whose chunks take turns.

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
mod request;
mod several;
mod state;
mod transfer;

pub use memory::SharedMemory;
pub(crate) use memory::{Pool, Segment};
pub(crate) use pace::Pace;
pub(crate) use request::{Reply, Request};
pub(crate) use several::wait_for_any;
pub(crate) use transfer::Transfer;

use crate::address::Address;
use crate::error::Error;
use crate::options::Options;
use crate::remote::socket::{self, Socket, Waker};
use farcall_rpc_proto::{CallId, DIRECTORY, FailureKind, ProtocolError, client};
use farcall_spin::{Bell, Spin};
use state::{Loss, Outlook, State};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

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

impl Bell for Connection {
    fn ring(&self) {
        self.waker.wake();
    }
}

impl Connection {
    /// Its number, never used twice in this process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Where it leads.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Whether the other end has all of these optional features.
    pub(crate) fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// The error says that the other end is too old for something.
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

    /// Whether a metaserver is at the other end.
    pub(crate) fn is_to_metaserver(&self) -> bool {
        self.has(DIRECTORY)
    }

    /// Whether it is a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        self.socket.is_unix()
    }

    /// Whether this process has made it. A child that was forked has it from its parent.
    pub(crate) fn is_ours(&self) -> bool {
        self.process == std::process::id()
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

    /// Sends what the socket takes at once; whoever waits at it sends the rest.
    fn send_soon(&self, state: &mut State) {
        state.send(&self.socket);
        if state.has_unsent() && state.seat.is_taken() {
            self.waker.wake();
        }
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
        Ok(Request::new(self.clone(), id))
    }

    /// Begins a request without data.
    pub(crate) fn begin(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
    ) -> Result<Request, Error> {
        self.start(|state| state.ask(open))
    }

    /// Asks something without data, and waits for the answer, which `read` takes apart.
    pub(crate) fn ask<T>(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        read: fn(client::Answer) -> Option<T>,
    ) -> Result<T, Error> {
        self.begin(open)?.answer(read)
    }

    /// Begins a request with data, either way.
    pub(crate) fn carry(
        self: &Arc<Self>,
        open: impl FnOnce(&mut client::Connection) -> Result<CallId, ProtocolError>,
        transfer: Transfer,
    ) -> Result<Request, Error> {
        self.start(|state| state.move_data(open, transfer))
    }

    /// Says something that has no answer.
    pub(crate) fn tell(&self, tell: impl FnOnce(&mut client::Connection)) {
        let mut state = self.lock();
        state.tell(tell);
        self.send_soon(&mut state);
    }

    /// From now on it writes no faster than `pace` lets it.
    pub(crate) fn set_pace(&self, pace: Option<Pace>) {
        let mut state = self.lock();
        state.set_pace(pace);
        self.send_soon(&mut state);
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
            Loss::Failed(failure) => Error::Failed(failure.into()),
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

//! The engine of a node: carries the messages of gang jobs between nodes over UDP.
//!
//! One thread owns the socket. It reads the rings that local processes fill for ranks on other
//! nodes, and fills the rings of local processes. The daemon attaches gang jobs to the engine, and
//! freezes them for a gang switch.

mod faults;
mod job;
mod socket;

use crate::segment::Segment;
use farcall_channel_proto::{Freeze, Header, Kind, PairContext};
use farcall_random::SplitMix64;
pub use faults::Faults;
use job::JobPairs;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use socket::{Inbox, Packet, Socket};
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The address of the engine of a rank on another node; `None` for a rank on this node.
pub type Peer = Option<SocketAddr>;

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot open a UDP socket on {address}: {source}")]
pub struct EngineError {
    address: IpAddr,
    source: io::Error,
}

/// Counts of the packets and messages that the engine carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets sent, including those sent again.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Packets received for unknown gang jobs, from past epochs, or with a malformed header.
    pub strays: u64,
    /// Messages refused because the receive FIFO was full.
    pub refused: u64,
}

/// The engine of a node. It stops when dropped.
pub struct Engine {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Number of daemon threads that want the state. The engine lets them go first.
    wanted: AtomicU32,
    turn: Condvar,
    socket: Socket,
    /// Rung by the daemon to wake the engine. Processes ring the bells of their segments.
    bell: OwnedFd,
    /// Rung by the engine when a gang job is at rest or its segment is corrupt.
    news: OwnedFd,
    is_ending: AtomicU32,
    thread: AtomicU64,
}

#[derive(Default)]
struct State {
    jobs: HashMap<u64, JobPairs>,
    traffic: Traffic,
    /// Deliberate loss and repetition of incoming datagrams, for tests.
    faults: Option<(Faults, SplitMix64)>,
}

/// Memory for one iteration of the engine.
struct Turn {
    inbox: Inbox,
    /// Answers to the packets received, with their destinations.
    answers: Vec<(SocketAddr, Header)>,
    packets: Vec<Packet>,
    /// The segments whose bells the engine hears while it sleeps.
    segments: Vec<Arc<Segment>>,
}

impl Engine {
    /// Starts an engine whose socket is bound to a free port of this address.
    pub fn start(address: IpAddr) -> Result<Engine, EngineError> {
        let fail = |source| EngineError { address, source };
        let socket = Socket::bind(address).map_err(fail)?;
        let local = socket.address().map_err(fail)?;
        let counter = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            eventfd(0, flags).map_err(|error| fail(error.into()))
        };
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wanted: AtomicU32::new(0),
            turn: Condvar::new(),
            socket,
            bell: counter()?,
            news: counter()?,
            is_ending: AtomicU32::new(0),
            thread: AtomicU64::new(0),
        });
        let runner = shared.clone();
        let (begins, begun) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("farcall-engine".to_string())
            .spawn(move || {
                let id = rustix::thread::gettid().as_raw_nonzero().get();
                runner.thread.store(id as u64, Ordering::Release);
                drop(begins);
                runner.run();
            })
            .map_err(fail)?;
        // Ends when the thread has told its number, or has ended.
        let _ = begun.recv();
        Ok(Engine {
            shared,
            address: local,
            thread: Some(thread),
        })
    }

    /// Drops and repeats some incoming datagrams, for tests and measurements.
    #[doc(hidden)]
    pub fn set_faults(&self, faults: Faults) {
        self.with(|state| state.faults = Some((faults, SplitMix64::new(faults.seed))));
    }

    /// The address at which other engines reach this one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kernel's thread number of the engine's thread, for its priority.
    pub fn thread_id(&self) -> u64 {
        self.shared.thread.load(Ordering::Acquire)
    }

    /// Becomes readable when a gang job is at rest or its segment is corrupt.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// Resets the descriptor of [`Engine::news`].
    pub fn take_news(&self) {
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
    }

    /// Carries a gang job's messages from now on, beginning with this epoch. `peers` has an entry
    /// for each rank.
    pub fn attach(&self, segment: Arc<Segment>, peers: &[Peer], epoch: u32) {
        let job = segment.shape().job;
        let pairs = JobPairs::new(segment, peers, epoch);
        self.with(|state| state.jobs.insert(job, pairs));
        // A sleeping engine has not asked the processes of a new gang job to ring: wake it.
        self.wake();
    }

    /// Forgets a gang job. Messages that are still in the network are not delivered.
    pub fn detach(&self, job: u64) {
        self.with(|state| state.jobs.remove(&job));
        // A sleeping engine keeps the segments whose bells it hears: wake it.
        self.wake();
    }

    /// Freezes the channels of a gang job whose processes are stopped. Returns true if it is at
    /// rest already.
    pub fn freeze(&self, job: u64, how: Freeze) -> bool {
        self.with(|state| {
            state
                .jobs
                .get_mut(&job)
                .is_none_or(|pairs| pairs.freeze(how))
        })
    }

    /// Whether no message that the gang job sent from this node is in the network.
    pub fn is_at_rest(&self, job: u64) -> bool {
        self.with(|state| state.jobs.get(&job).is_none_or(JobPairs::is_at_rest))
    }

    /// Stops accepting packets for a gang job whose network is at rest.
    pub fn close(&self, job: u64) {
        self.with(|state| {
            if let Some(pairs) = state.jobs.get_mut(&job) {
                pairs.close();
            }
        });
    }

    /// Lets a gang job's messages continue in a new epoch.
    pub fn thaw(&self, job: u64, epoch: u32) {
        self.with(|state| {
            if let Some(pairs) = state.jobs.get_mut(&job) {
                pairs.thaw(epoch);
            }
        });
        self.wake();
    }

    /// The gang jobs whose segment was found corrupt since the last call.
    pub fn take_faults(&self) -> Vec<u64> {
        self.with(|state| {
            let jobs = state.jobs.iter_mut();
            jobs.filter_map(|(job, pairs)| pairs.take_fault().then_some(*job))
                .collect()
        })
    }

    /// The pairs of a gang job that begin or end here: channel, source, destination, and this
    /// node's context of the pair.
    pub fn contexts(&self, job: u64) -> Vec<(u8, u16, u16, PairContext)> {
        self.with(|state| {
            let pairs = state.jobs.get(&job);
            pairs.map(JobPairs::contexts).unwrap_or_default()
        })
    }

    /// The counts of packets and messages so far.
    pub fn traffic(&self) -> Traffic {
        self.with(|state| state.traffic)
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        self.shared.wanted.fetch_add(1, Ordering::SeqCst);
        let mut state = self.shared.lock();
        self.shared.wanted.fetch_sub(1, Ordering::SeqCst);
        let done = act(&mut state);
        drop(state);
        self.shared.turn.notify_all();
        done
    }

    fn wake(&self) {
        // The write fails only if the counter is already at its maximum.
        let _ = rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.is_ending.store(1, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let clock = Instant::now();
        let mut turn = Turn {
            inbox: Inbox::new(),
            answers: Vec::new(),
            packets: Vec::new(),
            segments: Vec::new(),
        };
        while self.is_ending.load(Ordering::Acquire) == 0 {
            let mut state = self.lock();
            while self.wanted.load(Ordering::SeqCst) > 0 {
                state = self
                    .turn
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let moved = self.step(&mut state, &mut turn, &clock);
            if moved {
                continue;
            }
            turn.segments.clear();
            turn.segments
                .extend(state.jobs.values().map(|pairs| pairs.segment().clone()));
            let deadline = self.prepare_sleep(&mut state, &clock);
            drop(state);
            self.sleep(deadline, &turn.segments, &clock);
        }
    }

    /// Moves everything that can move. Returns false if there was nothing.
    fn step(&self, state: &mut State, turn: &mut Turn, clock: &Instant) -> bool {
        self.socket.receive(&mut turn.inbox);
        let now = clock.elapsed().as_nanos() as u64;
        for index in 0..turn.inbox.len() {
            let (from, packet) = turn.inbox.get(index);
            let copies = state.faults.as_mut();
            let copies = copies.map_or(1, |(faults, random)| faults.copies(random));
            for _ in 0..copies {
                state.handle(from, packet, now, &mut turn.answers);
            }
        }
        let answers = turn.answers.drain(..).map(|(to, answer)| Packet {
            to,
            head: answer.encode(),
            body: [(std::ptr::null(), 0); 2],
        });
        turn.packets.extend(answers);
        for pairs in state.jobs.values_mut() {
            pairs.transmit(now, &mut turn.packets);
            if pairs.take_news() {
                let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
            }
        }
        // The packets point into segments, which their jobs keep while the state is locked.
        self.socket.send(&turn.packets);
        state.traffic.sent += turn.packets.len() as u64;
        let moved = turn.inbox.len() > 0 || !turn.packets.is_empty();
        turn.packets.clear();
        moved
    }

    /// Asks the processes to ring, checks once more, and returns how long to sleep.
    fn prepare_sleep(&self, state: &mut State, clock: &Instant) -> Option<u64> {
        let now = clock.elapsed().as_nanos() as u64;
        let mut deadline: Option<u64> = None;
        for pairs in state.jobs.values_mut() {
            pairs.set_asleep();
            let next = match pairs.has_more() {
                true => Some(now),
                false => pairs.poll_timeout(),
            };
            deadline = match (deadline, next) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        deadline
    }

    fn sleep(&self, deadline: Option<u64>, segments: &[Arc<Segment>], clock: &Instant) {
        let now = clock.elapsed().as_nanos() as u64;
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_sub(now);
            rustix::time::Timespec {
                tv_sec: (left / 1_000_000_000) as i64,
                tv_nsec: (left % 1_000_000_000) as i64,
            }
        });
        let bells = segments.iter().filter_map(|segment| segment.bell());
        let bells: Vec<BorrowedFd<'_>> = bells.chain([self.bell.as_fd()]).collect();
        let all = bells.iter().copied().chain([self.socket.fd()]);
        let mut sources: Vec<PollFd<'_>> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let _ = poll(&mut sources, timeout.as_ref());
        for (bell, source) in bells.iter().zip(&sources) {
            if !source.revents().is_empty() {
                silence(*bell);
            }
        }
    }
}

/// Takes what a bell says, and never waits. A process of the gang job can make the descriptor that
/// it shares with the engine one that waits, and can read it first.
fn silence(bell: BorrowedFd<'_>) {
    let (mut count, now) = ([0u8; 8], ReadWriteFlags::NOWAIT);
    let taken = preadv2(bell, &mut [IoSliceMut::new(&mut count)], u64::MAX, now);
    if matches!(taken, Err(Errno::NOSYS | Errno::OPNOTSUPP)) {
        // A system that cannot read this way.
        let _ = rustix::io::read(bell, &mut count);
    }
}

impl State {
    fn handle(
        &mut self,
        from: SocketAddr,
        packet: &[u8],
        now: u64,
        answers: &mut Vec<(SocketAddr, Header)>,
    ) {
        self.traffic.received += 1;
        let known = Header::decode(packet).ok().and_then(|(header, body)| {
            let pairs = self.jobs.get_mut(&header.address.job)?;
            pairs.handle(&header, body, from, now)
        });
        let Some(answer) = known else {
            self.traffic.strays += 1;
            return;
        };
        let Some(answer) = answer else {
            return;
        };
        self.traffic.refused += u64::from(answer.kind == Kind::Full);
        match answers.last_mut() {
            // A newer Ack contains everything that earlier ones said.
            Some((to, last)) if *to == from && is_said_by(last, &answer) => *last = answer,
            _ => answers.push((from, answer)),
        }
    }
}

fn is_said_by(last: &Header, answer: &Header) -> bool {
    let acks = last.kind == Kind::Ack && answer.kind == Kind::Ack;
    let of_one = (last.address, last.epoch) == (answer.address, answer.epoch);
    acks && of_one && last.transmission < answer.transmission
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::Timespec;

    #[test]
    fn a_bell_that_a_process_has_silenced_does_not_stop_the_engine() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        // A plain read would wait for ever.
        silence(bell.as_fd());
        rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
        silence(bell.as_fd());
        let mut sources = [PollFd::new(&bell, PollFlags::IN)];
        assert_eq!(poll(&mut sources, Some(&Timespec::default())), Ok(0));
    }
}

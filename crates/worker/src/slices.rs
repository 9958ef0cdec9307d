//! Time slices of a gang for calls. A front end of the gang (`farcall gang run --interactive`)
//! stands between the server and the gang daemon: it gets a `1` when the first of some calls begins
//! and a `0` when the last one ends. Calls do not wait for its answer.

use crate::groups::Join;
use crate::namespaces::{Namespaces, Start};
use crate::nursery::{Nursery, Process};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a server uses a gang.
#[derive(Clone, Debug)]
pub struct Gang {
    /// The control socket of the root daemon.
    pub control: String,
    /// Whether functions of several processes run as gang jobs.
    pub is_engine: bool,
    /// Processors to keep free of gang jobs while calls of one process run; 0 means none.
    pub processors: u32,
}

impl Gang {
    /// The words of a front end for this number of processes. It is told about work on `socket`.
    /// The program follows, if there is one.
    pub(crate) fn words(
        &self,
        processes: u32,
        socket: i32,
        user: Option<(u32, u32)>,
    ) -> Vec<String> {
        let mut words: Vec<String> = ["gang", "run", "--quiet", "--control"]
            .map(str::to_string)
            .into();
        words.push(self.control.clone());
        words.extend(["-n".to_string(), processes.to_string()]);
        words.extend(["--interactive".to_string(), socket.to_string()]);
        if let Some((user, group)) = user {
            words.extend(["--user".to_string(), format!("{user}:{group}")]);
        }
        words.push("--".to_string());
        words
    }
}

/// How long a front end that has ended is not started again.
const PAUSE: Duration = Duration::from_secs(1);

/// The connection to a front end, and the number of those who have calls.
pub(crate) struct Slices {
    socket: OwnedFd,
    busy: usize,
    /// The front end of a gang job without processes, which is started again if it ends.
    front: Option<Front>,
}

struct Front {
    order: FrontOrder,
    process: Process,
    started: Instant,
}

/// How a front end is started.
pub(crate) struct FrontOrder {
    pub(crate) nursery: Nursery,
    pub(crate) words: Vec<OsString>,
    /// The descriptor at which it hears about work.
    pub(crate) at: RawFd,
}

impl FrontOrder {
    fn start(&self, socket: OwnedFd) -> io::Result<Process> {
        Ok(self.nursery.order(Start {
            words: self.words.clone(),
            environment: Vec::new(),
            output: io::stderr().as_fd().try_clone_to_owned()?,
            socket: Some((socket, self.at)),
            namespaces: Namespaces::default(),
            groups: Join::default(),
            keeper: Vec::new(),
        }))
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Slices {
    /// Creates the connection of a worker whose processes are a gang job. They have work from the
    /// beginning. The other end is for the front end.
    pub(crate) fn of_worker() -> io::Result<(Slices, OwnedFd)> {
        let (socket, theirs) = pair()?;
        let slices = Slices {
            socket,
            busy: 1,
            front: None,
        };
        Ok((slices, theirs))
    }

    /// Starts a front end of a gang job without processes, for the calls of all workers.
    ///
    /// # Errors
    /// The system refuses a socket or a descriptor.
    pub(crate) fn of_server(order: FrontOrder) -> io::Result<Slices> {
        let (socket, theirs) = pair()?;
        let front = Front {
            process: order.start(theirs)?,
            order,
            started: Instant::now(),
        };
        Ok(Slices {
            socket,
            busy: 0,
            front: Some(front),
        })
    }

    /// Somebody has calls now.
    pub(crate) fn begin(&mut self) {
        self.busy += 1;
        if self.busy == 1 && !self.tell(b"1") && self.start_again() {
            self.tell(b"1");
        }
    }

    /// Somebody has no more calls.
    pub(crate) fn end(&mut self) {
        self.busy = self.busy.saturating_sub(1);
        if self.busy == 0 {
            self.tell(b"0");
        }
    }

    /// Says so. A front end that does not read gets no more. Returns false if it has ended.
    fn tell(&self, word: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(&self.socket, word, flags) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Starts the front end again: the gang daemon may be back.
    fn start_again(&mut self) -> bool {
        let Some(front) = &mut self.front else {
            return false;
        };
        if front.started.elapsed() < PAUSE {
            return false;
        }
        front.started = Instant::now();
        let started = pair().and_then(|(socket, theirs)| Ok((socket, front.order.start(theirs)?)));
        let Ok((socket, process)) = started else {
            return false;
        };
        self.socket = socket;
        let mut old = std::mem::replace(&mut front.process, process);
        old.kill();
        let _ = old.wait();
        true
    }
}

impl Drop for Slices {
    fn drop(&mut self) {
        if let Some(front) = &mut self.front {
            front.process.kill();
            let _ = front.process.wait();
        }
    }
}

/// What a worker tells a gang about its calls.
#[derive(Default)]
pub(crate) struct Need {
    slices: Option<Arc<Mutex<Slices>>>,
    is_told: bool,
}

impl Need {
    /// `is_told` says whether the gang counts this worker as one with calls already.
    pub(crate) fn new(slices: Option<Arc<Mutex<Slices>>>, is_told: bool) -> Need {
        Need { slices, is_told }
    }

    /// Tells whether the worker has calls, if that has changed.
    pub(crate) fn set(&mut self, has_calls: bool) {
        let was_told = std::mem::replace(&mut self.is_told, has_calls);
        let Some(slices) = self.slices.as_ref().filter(|_| was_told != has_calls) else {
            return;
        };
        let mut slices = slices.lock().unwrap_or_else(PoisonError::into_inner);
        match has_calls {
            true => slices.begin(),
            false => slices.end(),
        }
    }
}

impl Drop for Need {
    fn drop(&mut self) {
        self.set(false);
    }
}

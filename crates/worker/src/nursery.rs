//! The thread that starts worker processes. To fork and wait for the program takes milliseconds,
//! and more on a busy machine; meanwhile the reactor serves others.

use crate::lingering::Lingering;
use crate::namespaces::{Child, Start};
use rustix::fd::BorrowedFd;
use std::cell::OnceCell;
use std::io;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Starts processes one after the other. They end with the last copy of this value.
#[derive(Clone)]
pub struct Nursery(Sender<Order>);

struct Order {
    start: Start,
    started: Sender<io::Result<Child>>,
}

/// A process that was ordered. Most questions about it wait until it has started.
pub(crate) struct Process {
    ordered: Receiver<io::Result<Child>>,
    started: OnceCell<io::Result<Child>>,
    /// Set when it has closed its connection.
    lingering: Option<Lingering>,
}

impl Nursery {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no room for another one.
    pub fn open() -> io::Result<Nursery> {
        let (orders, ordered) = channel::<Order>();
        let serve = move || {
            for order in ordered {
                // Nobody waits for a worker that could not be started.
                let _ = order.started.send(order.start.start());
            }
        };
        thread::Builder::new().name("nursery".into()).spawn(serve)?;
        Ok(Nursery(orders))
    }

    pub(crate) fn order(&self, start: Start) -> Process {
        let (started, ordered) = channel();
        // If the thread is gone, the process reports it when it is asked.
        let _ = self.0.send(Order { start, started });
        Process {
            ordered,
            started: OnceCell::new(),
            lingering: None,
        }
    }
}

impl Process {
    fn started(&self) -> &io::Result<Child> {
        let gone = || Err(io::Error::other("the thread that starts workers is gone"));
        let wait = || self.ordered.recv().unwrap_or_else(|_| gone());
        self.started.get_or_init(wait)
    }

    /// Its process id; 0 if it could not be started.
    pub(crate) fn id(&self) -> u32 {
        self.started().as_ref().map_or(0, Child::id)
    }

    /// Ends it at once.
    pub(crate) fn kill(&self) {
        self.started();
        if let Some(Ok(child)) = self.started.get() {
            child.kill();
        }
    }

    /// Whether it goes on after it has closed its connection. Its time to end begins.
    pub(crate) fn lingers(&mut self) -> bool {
        if self.lingering.is_none() {
            let child = self.started().as_ref().ok();
            let end = child.and_then(|child| child.watch().ok());
            self.lingering = end.map(Lingering::begin);
        }
        self.lingering.as_ref().is_some_and(Lingering::goes_on)
    }

    /// A descriptor that is readable when a lingering process has ended.
    pub(crate) fn end(&self) -> Option<BorrowedFd<'_>> {
        self.lingering.as_ref().map(Lingering::end)
    }

    /// Kills a lingering process that had its time. Returns how much time it has until then.
    pub(crate) fn hurry(&mut self) -> Option<Duration> {
        let left = self.lingering.as_mut()?.left();
        if left.is_none() {
            self.kill();
        }
        left
    }

    /// Waits until it has ended or its time is over. Returns whether it has ended by itself.
    pub(crate) fn ends(&mut self) -> bool {
        self.lingers();
        let lingering = self.lingering.as_ref();
        lingering.is_some_and(Lingering::ends_in_time)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.started();
        match self.started.take() {
            Some(Ok(child)) => child.wait(),
            Some(Err(error)) => Err(error),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}

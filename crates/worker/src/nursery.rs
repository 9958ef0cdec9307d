//! The thread that starts worker processes. To fork and wait for the program takes milliseconds,
//! and more on a busy machine; meanwhile the reactor serves others.

use crate::handle::SOCKET_FD;
use rustix::fd::OwnedFd;
use std::cell::OnceCell;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Starts processes one after the other. They end with this value.
pub struct Nursery(Sender<Order>);

struct Order {
    command: Command,
    /// The socket that the process gets.
    socket: Option<OwnedFd>,
    started: Sender<io::Result<Child>>,
}

/// A process that was ordered. Most questions about it wait until it has started.
pub(crate) struct Process {
    ordered: Receiver<io::Result<Child>>,
    started: OnceCell<io::Result<Child>>,
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
                let _ = order
                    .started
                    .send(spawn(order.command, order.socket.as_ref()));
            }
        };
        thread::Builder::new().name("nursery".into()).spawn(serve)?;
        Ok(Nursery(orders))
    }

    pub(crate) fn order(&self, command: Command, socket: Option<OwnedFd>) -> Process {
        let (started, ordered) = channel();
        let order = Order {
            command,
            socket,
            started,
        };
        // If the thread is gone, the process reports it when it is asked.
        let _ = self.0.send(order);
        Process {
            ordered,
            started: OnceCell::new(),
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
    pub(crate) fn kill(&mut self) {
        self.started();
        if let Some(Ok(child)) = self.started.get_mut() {
            // It may have ended by itself.
            let _ = child.kill();
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// It could not be started.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.started();
        match self.started.take() {
            Some(Ok(mut child)) => child.wait(),
            Some(Err(error)) => Err(error),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }
}

/// Starts a process that ends with this thread, with the socket at its fixed descriptor.
fn spawn(mut command: Command, socket: Option<&OwnedFd>) -> io::Result<Child> {
    let (socket, parent) = (socket.map(AsRawFd::as_raw_fd), std::process::id());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            if socket.is_some_and(|socket| libc::dup2(socket, SOCKET_FD) < 0)
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0
            {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the death signal was set.
            if libc::getppid() as u32 != parent {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        });
    }
    command.spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        io::Error::new(error.kind(), format!("{program}: {error}"))
    })
}

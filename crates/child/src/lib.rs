//! Starts processes that get SIGTERM when this process has ended, even if this process is killed.
//! The kernel signals a child when the thread that forked it ends, so one thread, which lives as
//! long as the process, starts all of them. The caller waits for its children.

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{LazyLock, Mutex};

/// A command to start, and the channel for the resulting process.
type Order = (Command, SyncSender<io::Result<Child>>);

/// The thread that starts all processes. The kernel signals a child when the thread that forked it
/// ends, so this thread lives as long as the process.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, queue) = channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in queue {
            // The caller of `spawn` waits for the answer.
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// Starts a process that gets SIGTERM when this process has ended, even if this process was killed.
///
/// # Errors
/// The program cannot be started.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // The parent can have died before the `prctl` call.
            match getppid() == Some(parent) {
                true => Ok(()),
                false => Err(io::ErrorKind::Interrupted.into()),
            }
        });
    }
    let gone = || io::Error::other("the thread that starts processes has ended");
    let (answer, answered) = sync_channel(1);
    let orders = STARTER.lock().map_err(|_| gone())?.clone();
    orders.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

//! Processes that end with the one that started them, however this process ends.

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{LazyLock, Mutex};

/// A command to start, and whom to hand the process.
type Order = (Command, SyncSender<io::Result<Child>>);

/// The kernel sends the signal of a parent's death when the thread ends that forked: so one thread
/// starts all, and lives as long as this process.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, queue) = channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in queue {
            // Who asked waits for it.
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// Starts a process that gets SIGTERM when this one has ended, even where it was killed.
///
/// # Errors
/// Where the program cannot be started.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // It may have died before.
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

/// Runs such a process to its end, without input; returns what it printed.
///
/// # Errors
/// Where the program cannot be started.
pub fn output(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

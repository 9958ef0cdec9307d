//! Starts processes that get SIGTERM when this process has ended, even if this process is killed.
//! The kernel signals a child when the thread that forked it ends, so one thread, which lives as
//! long as the process, starts all of them. The caller waits for its children.
//!
//! [`outlives_terminal`] tells a daemon or a front end whether `nohup` has started it.
//!
//! [`keep_descriptors`] keeps what a daemon was started with away from the programs that it starts.
//!
//! A process that was killed while it started another one leaves its sockets to that one for a
//! moment. [`take_address`] waits for them.

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may have the sockets of the killed process that was starting it.
const LEFT: Duration = Duration::from_secs(2);
/// Time between two attempts to take an address.
const PAUSE: Duration = Duration::from_millis(10);

/// Added to the value of this process for its children that run programs of users.
const OOM_SCORE: i32 = 500;

/// A command to start, and the channel for the resulting process.
type Order = (Command, SyncSender<io::Result<Child>>);

/// The thread that starts all processes. The kernel signals a child when the thread that forked it
/// ends, so this thread lives as long as the process.
static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, queue) = channel::<Order>();
    thread::spawn(move || {
        for (mut command, answer) in queue {
            // The caller of `spawn` waits for the answer.
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// The value of `oom_score_adj` for a child that runs programs of users: when memory is short, the
/// kernel ends it before this process, whose own value may protect it.
pub fn oom_score() -> String {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj");
    let own = own.ok().and_then(|text| text.trim().parse::<i32>().ok());
    (own.unwrap_or(0) + OOM_SCORE).min(1000).to_string()
}

/// Whether this process was started so that it outlives its terminal, as by `nohup`: SIGHUP is
/// ignored. Ask before a handler is set.
pub fn outlives_terminal() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    status.is_ok_and(|status| ignores_hangup(&status))
}

/// Whether the text of `/proc/PID/status` has SIGHUP among the ignored signals. Signal 1 is the
/// lowest bit.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & 1 != 0)
}

/// Keeps the descriptors that are open now for this process: programs that it starts get those of
/// the three standard streams alone. Call this before there are other threads.
///
/// # Errors
/// There is no `/proc`.
pub fn keep_descriptors() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
        if let Some(number) = number.filter(|number| *number > 2) {
            // SAFETY: the call changes a flag of a descriptor that this process has. It fails for
            // one that is closed meanwhile.
            let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

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

/// Takes an address to listen at. While it is in use, this tries again for up to 2 s, because the
/// last process that listened there may have been killed while it started a process. Until that one
/// runs its own program, it has copies of the sockets.
///
/// # Errors
/// Those of `take`.
pub fn take_address<T>(mut take: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let end = Instant::now() + LEFT;
    loop {
        match take() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(PAUSE);
            }
            taken => return taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn nohup_is_read_from_the_mask_of_ignored_signals() {
        let status = |mask| format!("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup("") && !ignores_hangup(&status("?")));
    }

    #[test]
    fn descriptors_of_before_are_not_inherited() {
        let kept = std::fs::File::open("/dev/null").unwrap();
        fcntl_setfd(&kept, FdFlags::empty()).unwrap();
        keep_descriptors().unwrap();
        let flags = rustix::io::fcntl_getfd(&kept).unwrap();
        assert_eq!(flags, FdFlags::CLOEXEC);
        let standard = rustix::io::fcntl_getfd(io::stderr()).unwrap();
        assert_eq!(standard, FdFlags::empty());
    }

    #[test]
    fn an_address_that_is_free_after_a_moment_is_taken() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let holder = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(held);
        });
        assert!(take_address(|| TcpListener::bind(address)).is_ok());
        holder.join().unwrap();
    }

    #[test]
    fn an_address_that_stays_in_use_is_an_error() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = held.local_addr().unwrap();
        let taken = take_address(|| TcpListener::bind(address));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}

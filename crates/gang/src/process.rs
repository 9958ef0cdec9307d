//! The operating system's view of processes: how to stop and reap them, and other system calls of
//! the daemon. It knows nothing about gang jobs. `start` starts the processes.

use farcall_gang_proto::{Ended, Usage};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Instant;

/// The daemon's priority in the real-time class. Its engine has the next lower one.
const PRIORITY: i32 = 10;

/// A process of a gang job on this node, in a process group of its own.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) rank: u16,
    pid: libc::pid_t,
    /// Its standard output and error, until they end.
    pub(crate) streams: [Option<OwnedFd>; 2],
    pub(crate) is_running: bool,
    /// Where it asks as a process of MPI, until it says something wrong.
    pub(crate) pmi: Option<OwnedFd>,
}

impl Process {
    /// Takes a process that was just started, with its standard output and error.
    pub(crate) fn new(rank: u16, pid: libc::pid_t, streams: [OwnedFd; 2]) -> Process {
        Process {
            rank,
            pid,
            streams: streams.map(Some),
            is_running: false,
            pmi: None,
        }
    }

    /// Sends a signal to the process and to the processes in its process group.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: plain system calls; the group is ours as long as the leader is not reaped.
        unsafe {
            // A process that was just started has no group of its own yet.
            if libc::kill(-self.pid, signal) != 0 {
                libc::kill(self.pid, signal);
            }
        }
    }

    /// Waits, after SIGSTOP, until the process has stopped or ended. Returns false if it has not at
    /// `end`. The caller must hold [`Ticks`]. The wait is for this process alone, because a wait
    /// for any process would wake up once for each.
    pub(crate) fn wait_stopped(&self, end: Instant) -> bool {
        use WaitPidFlag as Flag;
        let what = Flag::WSTOPPED | Flag::WEXITED | Flag::WNOWAIT;
        loop {
            let is_over = Instant::now() >= end;
            let known = match is_over {
                true => self.is_at(what | Flag::WNOHANG),
                false => self.is_at(what),
            };
            match known {
                true => break,
                false if self.is_in_state('T') => return true,
                false if is_over => return false,
                false => {}
            }
        }
        self.is_at(Flag::WSTOPPED | Flag::WNOHANG);
        true
    }

    fn is_at(&self, what: WaitPidFlag) -> bool {
        let known = waitid(Id::Pid(Pid::from_raw(self.pid)), what);
        known.is_ok_and(|status| status != WaitStatus::StillAlive)
    }

    /// Whether the kernel reports this state. A process that had stopped itself reports no second
    /// stop.
    fn is_in_state(&self, state: char) -> bool {
        // The name of the program is before the state, and need not be a text.
        let text = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let field = text
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        field == Some(state)
    }

    /// Ends what is left in the process group, if the process has ended. Its number belongs to it
    /// until it is reaped. Returns whether it has ended.
    pub(crate) fn end_group(&self) -> bool {
        use WaitPidFlag as Flag;
        let has_ended = self.is_at(Flag::WEXITED | Flag::WNOHANG | Flag::WNOWAIT);
        if has_ended {
            // SAFETY: a plain system call on the group of a child that is not reaped.
            unsafe { libc::kill(-self.pid, libc::SIGKILL) };
        }
        has_ended
    }

    /// Reaps the process if it has ended, and returns how it ended.
    pub(crate) fn reap(&self) -> Option<Ended> {
        // SAFETY: the values are of this frame, and the call only writes to them.
        let (status, usage) = unsafe {
            let mut status = 0;
            let mut usage: libc::rusage = std::mem::zeroed();
            if libc::wait4(self.pid, &mut status, libc::WNOHANG, &mut usage) != self.pid {
                return None;
            }
            (status, usage)
        };
        let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let usage = Usage {
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            peak_bytes: usage.ru_maxrss as u64 * 1024,
        };
        let (status, cause) = if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            (
                128 + signal as u8,
                Some(format!("was ended by {}", name(signal))),
            )
        } else {
            let status = libc::WEXITSTATUS(status) as u8;
            (
                status,
                (status != 0).then(|| format!("ended with status {status}")),
            )
        };
        Some(Ended {
            status,
            cause,
            usage,
            is_missed: None,
        })
    }
}

/// The limit of open files of the daemon when it started. Its processes get this limit.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();

/// The limit of open files for the processes of gang jobs.
pub(crate) fn descriptors() -> Option<Rlimit> {
    DESCRIPTORS.get().copied()
}

/// Raises this process's limit of open files to the maximum, because every process of a gang job
/// needs two.
pub(crate) fn take_descriptors() {
    let limit = *DESCRIPTORS.get_or_init(|| getrlimit(Resource::Nofile));
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, most);
}

/// Blocks the signals that a daemon waits for, in this thread and in all that it starts. Returns a
/// descriptor that reads them. The end of the terminal is one of them, unless `nohup` has started
/// the daemon.
pub(crate) fn catch_signals() -> io::Result<SignalFd> {
    use Signal::{SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGTERM};
    let all = [SIGCHLD, SIGTERM, SIGINT, SIGALRM, SIGHUP];
    let is_ignored = farcall_child::outlives_terminal();
    catch(&all[..all.len() - usize::from(is_ignored)])
}

/// Blocks signals in this thread and in all that it starts. Returns a descriptor that reads them.
pub(crate) fn catch(signals: &[Signal]) -> io::Result<SignalFd> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block()?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    Ok(SignalFd::with_flags(&set, flags)?)
}

/// Returns the signals that have arrived.
pub(crate) fn take_signals(fd: &SignalFd) -> Vec<i32> {
    let next = || fd.read_signal().ok().flatten();
    let signals = std::iter::from_fn(next);
    signals.map(|signal| signal.ssi_signo as i32).collect()
}

/// As long as it exists, waits of this thread are interrupted every few milliseconds.
pub(crate) struct Ticks(());

impl Ticks {
    pub(crate) fn start() -> Ticks {
        Ticks::set(5_000);
        Ticks(())
    }

    fn set(micros: libc::suseconds_t) {
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: micros,
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: a plain system call on a value of this frame.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        Ticks::set(0);
    }
}

/// Lets [`Ticks`] interrupt this thread, and no other thread of the process.
pub(crate) fn take_ticks() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler = SigHandler::Handler(nothing);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGALRM, &action) }?;
    Ok(SigSet::from(Signal::SIGALRM).thread_unblock()?)
}

/// Puts a thread of this process into the real-time class, so that it preempts the processes of
/// gang jobs at once. Processes that it starts are not in that class.
pub(crate) fn set_realtime(thread: i32, below: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: PRIORITY - below,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: a plain system call on a value of this frame.
    match unsafe { libc::sched_setscheduler(thread, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Processors that this process can use.
pub(crate) fn processors() -> Vec<u16> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    let mine = (0..CpuSet::count()).filter(|processor| set.is_set(*processor) == Ok(true));
    mine.map(|processor| processor as u16).collect()
}

/// Becomes another user, without further groups.
///
/// # Errors
/// This process does not run as root.
pub fn become_user((user, group): (u32, u32)) -> io::Result<()> {
    nix::unistd::setgroups(&[])?;
    nix::unistd::setresgid(group.into(), group.into(), group.into())?;
    Ok(nix::unistd::setresuid(
        user.into(),
        user.into(),
        user.into(),
    )?)
}

/// Takes a descriptor that this process was started with.
///
/// # Errors
/// It is not open.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call, which fails for a descriptor that is not open.
    match unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the copy belongs to nobody else.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// A signal's name, with an explanation if that is useful.
pub(crate) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGSEGV => "SIGSEGV (an invalid memory access)",
        libc::SIGBUS => "SIGBUS (an invalid memory access)",
        libc::SIGABRT => "SIGABRT (it gave up)",
        libc::SIGFPE => "SIGFPE (an invalid arithmetic operation)",
        libc::SIGILL => "SIGILL (an invalid instruction)",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        libc::SIGPIPE => "SIGPIPE",
        other => return format!("signal {other}"),
    };
    known.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::io::{BufRead, BufReader};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// Waits for a condition, at most a minute.
    fn wait_until(mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < end, "it takes too long");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_process_whose_name_is_no_text_is_seen_to_have_stopped_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let shell = folder.path().join(OsStr::from_bytes(b"sh\xff"));
        std::os::unix::fs::symlink("/bin/sh", &shell).expect("a link");
        let mut command = Command::new(&shell);
        command.args(["-c", "kill -STOP $$"]).process_group(0);
        let mut child = command.spawn().expect("a shell");
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
        let process = Process::new(0, child.id() as i32, [null(), null()]);
        wait_until(|| process.is_in_state('T'));
        process.signal(libc::SIGKILL);
        assert!(child.wait().is_ok());
    }

    #[test]
    fn what_a_process_leaves_behind_ends_with_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo $!; read go"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.process_group(0).spawn().expect("a shell");
        let mut left = String::new();
        let output = child.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut left);
        read.expect("it says the number");
        let state = || {
            let text = std::fs::read_to_string(format!("/proc/{}/stat", left.trim()));
            let state = text.ok()?.rsplit_once(") ")?.1.chars().next();
            state.filter(|state| *state != 'Z')
        };
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
        let process = Process::new(0, child.id() as i32, [null(), null()]);
        assert!(!process.end_group() && process.reap().is_none());
        assert!(state().is_some(), "nothing ends before the process");
        drop(child.stdin.take());
        wait_until(|| process.end_group());
        assert!(process.reap().is_some());
        assert!(child.wait().is_err(), "it is reaped");
        wait_until(|| state().is_none());
    }
}

//! The operating system's view of processes: how to start, stop and reap them, and other system
//! calls of the daemon. It knows nothing about gang jobs. Between fork and exec it makes only calls
//! that are safe there.

use farcall_gang_proto::{Ended, JobSpec, Usage};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
use nix::sys::signal::{sigaction, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{self, Gid, Pid, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest time that a process may take to stop. A process that waits for a disk cannot stop
/// earlier.
const STOP_BOUND: Duration = Duration::from_secs(1);
/// The daemon's priority in the real-time class. Its engine has the next lower one.
const PRIORITY: i32 = 10;

/// The parameters with which a process is started.
pub(crate) struct Start<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) rank: u16,
    /// Processors that it can use.
    pub(crate) processors: &'a [u16],
    /// Segment and bell, if it is a channel program.
    pub(crate) channel: Option<(RawFd, RawFd)>,
    /// The file through which it enters its control group.
    pub(crate) entrance: Option<&'a OwnedFd>,
}

/// A process of a gang job on this node, in a process group of its own.
pub(crate) struct Process {
    pub(crate) rank: u16,
    pid: libc::pid_t,
    /// Its standard output and error, until they end.
    pub(crate) streams: [Option<OwnedFd>; 2],
    pub(crate) is_running: bool,
}

impl Process {
    /// Starts a process.
    pub(crate) fn start(start: &Start<'_>) -> io::Result<Process> {
        let spec = start.spec;
        let mut command = Command::new(&spec.command[0]);
        command
            .args(&spec.command[1..])
            .env_clear()
            .envs(
                spec.environment
                    .iter()
                    .filter_map(|pair| pair.split_once('=')),
            )
            .env("FARCALL_RANK", start.rank.to_string())
            .env("FARCALL_SIZE", spec.processes.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some((segment, bell)) = start.channel {
            let place = format!("{segment},{bell},{}", start.rank);
            command.env(farcall_channel::VARIABLE, place);
        }
        let folder = CString::new(spec.folder.as_bytes())?;
        let user = Uid::current().is_root().then(|| User::find(spec.owner));
        let mut processors = CpuSet::new();
        for processor in start.processors {
            // A processor number that no set can hold does not prevent the start.
            let _ = processors.set(usize::from(*processor));
        }
        let confined = (!start.processors.is_empty()).then_some(processors);
        let keep: Vec<RawFd> = start
            .channel
            .into_iter()
            .flat_map(|(a, b)| [a, b])
            .collect();
        let entrance = start.entrance.map(AsRawFd::as_raw_fd);
        let daemon = Pid::this();
        // SAFETY: the closure makes only async-signal-safe system calls on values that it owns.
        unsafe {
            command.pre_exec(move || {
                prepare(&keep, entrance, confined.as_ref())?;
                become_user(user.as_ref(), &folder, daemon)
            });
        };
        let mut child = command.spawn()?;
        let streams = [
            child.stdout.take().map(OwnedFd::from),
            child.stderr.take().map(OwnedFd::from),
        ];
        for stream in streams.iter().flatten() {
            rustix::io::ioctl_fionbio(stream, true)?;
        }
        Ok(Process {
            rank: start.rank,
            pid: child.id() as libc::pid_t,
            streams,
            is_running: true,
        })
    }

    /// Sends a signal to the process and to the processes in its process group.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the group is ours as long as the leader is not reaped.
        unsafe { libc::kill(-self.pid, signal) };
    }

    /// Waits, after SIGSTOP, until the process has stopped or ended. Returns false if that takes
    /// too long. The caller must hold [`Ticks`]. The wait is for this process alone, because a wait
    /// for any process would wake up once for each.
    pub(crate) fn wait_stopped(&self) -> bool {
        let end = Instant::now() + STOP_BOUND;
        use WaitPidFlag as Flag;
        while !self.is_at(Flag::WSTOPPED | Flag::WEXITED | Flag::WNOWAIT) {
            if self.is_in_state('T') {
                return true;
            }
            if Instant::now() >= end {
                return false;
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
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let text = text.unwrap_or_default();
        let field = text
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        field == Some(state)
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
        })
    }
}

/// The user that a process runs as.
struct User {
    user: Uid,
    group: Gid,
    /// All groups of the user.
    groups: Vec<Gid>,
}

impl User {
    /// Returns the user of this number, with the groups of the system's list. A user without a name
    /// there has no further groups.
    fn find((user, group): (u32, u32)) -> User {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        let groups = groups_of(user, group).unwrap_or_else(|| vec![group]);
        User {
            user,
            group,
            groups,
        }
    }
}

fn groups_of(user: Uid, group: Gid) -> Option<Vec<Gid>> {
    let known = unistd::User::from_uid(user).ok()??;
    let name = CString::new(known.name).ok()?;
    unistd::getgrouplist(&name, group).ok()
}

/// Runs in the child, between fork and exec.
fn prepare(keep: &[RawFd], entrance: Option<RawFd>, processors: Option<&CpuSet>) -> io::Result<()> {
    // The daemon blocks the signals that it reads; a process must have none blocked.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    unistd::setsid()?;
    if let Some(processors) = processors {
        // A set of processors that this machine does not have does not prevent the start.
        let _ = sched_setaffinity(Pid::from_raw(0), processors);
    }
    // SAFETY: the daemon has them open, and so has its child.
    let borrowed = |fd: RawFd| unsafe { BorrowedFd::borrow_raw(fd) };
    for fd in keep {
        rustix::io::fcntl_setfd(borrowed(*fd), rustix::io::FdFlags::empty())?;
    }
    if let Some(entrance) = entrance {
        rustix::io::write(borrowed(entrance), b"0")?;
    }
    Ok(())
}

/// Runs in the child as the last step: changes to the owner and to the gang job's working folder.
fn become_user(user: Option<&User>, folder: &CStr, daemon: Pid) -> io::Result<()> {
    if let Some(limit) = DESCRIPTORS.get() {
        setrlimit(Resource::Nofile, *limit)?;
    }
    if let Some(user) = user {
        unistd::setgroups(&user.groups)?;
        unistd::setgid(user.group)?;
        unistd::setuid(user.user)?;
    }
    unistd::chdir(folder)?;
    // A change of the user resets this setting.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    match unistd::getppid() == daemon {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// The limit of open files of the daemon when it started. Its processes get this limit.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();

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
/// descriptor that reads them.
pub(crate) fn catch_signals() -> io::Result<SignalFd> {
    use Signal::{SIGALRM, SIGCHLD, SIGINT, SIGTERM};
    catch(&[SIGCHLD, SIGTERM, SIGINT, SIGALRM])
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

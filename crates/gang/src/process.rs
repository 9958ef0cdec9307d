//! Elements as processes, and what only system calls can do.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use farcall_gang_proto::{Ended, JobSpec, Usage};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long an element may take to stop: one that waits for a disk cannot be stopped before.
const STOP_BOUND: Duration = Duration::from_secs(1);
/// The priority of the daemon in the real-time class; its engine's is one below.
const PRIORITY: i32 = 10;

/// What an element is started with.
pub(crate) struct Start<'a> {
    pub(crate) spec: &'a JobSpec,
    pub(crate) rank: u16,
    /// Processors that it may use.
    pub(crate) processors: &'a [u16],
    /// Segment and bell, where it is a channel program.
    pub(crate) channel: Option<(RawFd, RawFd)>,
    /// Where it enters its control group.
    pub(crate) entrance: Option<&'a OwnedFd>,
}

/// An element process of this node, in a process group of its own.
pub(crate) struct Process {
    pub(crate) rank: u16,
    pid: libc::pid_t,
    /// Its standard output and error, until they end.
    pub(crate) streams: [Option<OwnedFd>; 2],
    pub(crate) is_running: bool,
}

impl Process {
    /// Starts an element.
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
            .env("FARCALL_SIZE", spec.elements.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some((segment, bell)) = start.channel {
            let place = format!("{segment},{bell},{}", start.rank);
            command.env(farcall_channel::VARIABLE, place);
        }
        let folder = CString::new(spec.folder.as_bytes())?;
        let is_root = rustix::process::getuid().is_root();
        let user = is_root.then(|| User::find(spec.owner));
        let mut processors: libc::cpu_set_t = empty_set();
        for processor in start.processors {
            // SAFETY: the set is a value of this frame; numbers beyond its size are ignored.
            unsafe { libc::CPU_SET(usize::from(*processor), &mut processors) };
        }
        let keep: Vec<RawFd> = start
            .channel
            .into_iter()
            .flat_map(|(a, b)| [a, b])
            .collect();
        let entrance = start.entrance.map(AsRawFd::as_raw_fd);
        let daemon = std::process::id() as libc::pid_t;
        // SAFETY: the closure makes only async-signal-safe system calls on values that it owns.
        unsafe {
            command.pre_exec(move || {
                prepare(&keep, entrance, &processors)?;
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

    /// Sends a signal to the element and whatever it has started in its group.
    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the group is ours as long as the leader is not reaped.
        unsafe { libc::kill(-self.pid, signal) };
    }

    /// Returns when the element has stopped or ended, after SIGSTOP; false if it does not in time.
    /// The caller holds [`Ticks`]. A wait for one process is woken by that process alone; a wait
    /// for any would be woken once for each.
    pub(crate) fn wait_stopped(&self) -> bool {
        let end = Instant::now() + STOP_BOUND;
        while !self.is_at(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT) {
            if self.is_in_state('T') {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
        }
        self.is_at(libc::WSTOPPED | libc::WNOHANG);
        true
    }

    fn is_at(&self, what: libc::c_int) -> bool {
        // SAFETY: all zero is a valid siginfo_t, and the call only writes to it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let id = self.pid as libc::id_t;
            let done = libc::waitid(libc::P_PID, id, &mut info, what);
            done == 0 && info.si_pid() == self.pid
        }
    }

    /// Whether the kernel says so: an element that had stopped by itself reports no second stop.
    fn is_in_state(&self, state: char) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
        let text = text.unwrap_or_default();
        let field = text
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.chars().next());
        field == Some(state)
    }

    /// How it ended, if it has; it is gone then.
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

/// Whom an element runs as.
struct User {
    user: libc::uid_t,
    group: libc::gid_t,
    /// All groups that the user is in.
    groups: Vec<libc::gid_t>,
}

impl User {
    /// The user of that number, with the groups of the system's list; a user who has no name there
    /// is in no other group.
    fn find((user, group): (u32, u32)) -> User {
        let groups = groups_of(user, group).unwrap_or_else(|| vec![group]);
        User {
            user,
            group,
            groups,
        }
    }
}

fn groups_of(user: u32, group: u32) -> Option<Vec<libc::gid_t>> {
    let mut text = vec![0; 16 << 10];
    let mut groups = vec![0; 1024];
    // SAFETY: the values are of this frame and as long as is said; the name that the first call
    // finds lies in `text`, which outlives the second.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let size = text.len();
        let done = libc::getpwuid_r(user, &mut entry, text.as_mut_ptr(), size, &mut found);
        if done != 0 || found.is_null() {
            return None;
        }
        let mut count = groups.len() as libc::c_int;
        if libc::getgrouplist(entry.pw_name, group, groups.as_mut_ptr(), &mut count) < 0 {
            return None;
        }
        groups.truncate(count as usize);
    }
    Some(groups)
}

fn empty_set() -> libc::cpu_set_t {
    // SAFETY: a set of bits; all zero is the empty set.
    unsafe { std::mem::zeroed() }
}

fn check(done: libc::c_int) -> io::Result<()> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// In the child, between fork and exec.
fn prepare(
    keep: &[RawFd],
    entrance: Option<RawFd>,
    processors: &libc::cpu_set_t,
) -> io::Result<()> {
    // SAFETY: plain system calls on values that live long enough.
    unsafe {
        // The daemon blocks the signals that it reads; an element has all of them.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        check(libc::sigprocmask(
            libc::SIG_SETMASK,
            &none,
            std::ptr::null_mut(),
        ))?;
        check(libc::setsid())?;
        if libc::CPU_COUNT(processors) > 0 {
            // A set that this machine does not have is no reason not to run.
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), processors);
        }
        for fd in keep {
            check(libc::fcntl(*fd, libc::F_SETFD, 0))?;
        }
        if let Some(entrance) = entrance {
            check(libc::write(entrance, c"0".as_ptr().cast(), 1) as libc::c_int)?;
        }
    }
    Ok(())
}

/// In the child, last: takes the owner's place, and goes where the job was submitted.
fn become_user(user: Option<&User>, folder: &CStr, daemon: libc::pid_t) -> io::Result<()> {
    if let Some(limit) = DESCRIPTORS.get() {
        setrlimit(Resource::Nofile, *limit)?;
    }
    // SAFETY: plain system calls on values that live long enough.
    unsafe {
        if let Some(user) = user {
            check(libc::setgroups(user.groups.len(), user.groups.as_ptr()))?;
            check(libc::setgid(user.group))?;
            check(libc::setuid(user.user))?;
        }
        check(libc::chdir(folder.as_ptr()))?;
        // Who changes its user loses this.
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::getppid() != daemon {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
    }
    Ok(())
}

/// How many files the daemon might open when it began: what its elements may.
static DESCRIPTORS: OnceLock<Rlimit> = OnceLock::new();

/// Lets this process open as many files as it may: every element needs two.
pub(crate) fn take_descriptors() {
    let limit = *DESCRIPTORS.get_or_init(|| getrlimit(Resource::Nofile));
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, most);
}

/// Blocks what a daemon waits for in this thread and all that it starts, and gives a descriptor
/// that shows it.
pub(crate) fn catch_signals() -> io::Result<OwnedFd> {
    catch(&[libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGALRM])
}

/// Blocks signals in this thread and all that it starts, and gives a descriptor that shows them.
pub(crate) fn catch(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is a value of this frame, filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        match fd {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: the descriptor is new, and nobody else has it.
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The signals that have come.
pub(crate) fn take_signals(fd: &OwnedFd) -> Vec<i32> {
    let mut signals = Vec::new();
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    while rustix::io::read(fd, &mut info).is_ok_and(|count| count == info.len()) {
        let number = [info[0], info[1], info[2], info[3]];
        signals.push(i32::from_ne_bytes(number));
    }
    signals
}

/// While it lives, waits of this thread are interrupted every few milliseconds.
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

/// Lets [`Ticks`] interrupt this thread, and no other of the process.
pub(crate) fn take_ticks() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing; the values are of this frame and filled before use.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGALRM);
        let handled = libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()) == 0;
        let unblocked = libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) == 0;
        match handled && unblocked {
            true => Ok(()),
            false => Err(io::Error::last_os_error()),
        }
    }
}

/// Puts a thread of this process into the real-time class, so that it preempts elements at once;
/// what it starts is not in it.
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

/// Processors that this process may use.
pub(crate) fn processors() -> Vec<u16> {
    let mut set = empty_set();
    // SAFETY: the set is as long as is said, and the numbers asked for lie within it.
    unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        let all = 0..libc::CPU_SETSIZE as usize;
        let mine = all.filter(|processor| libc::CPU_ISSET(*processor, &set));
        mine.map(|processor| processor as u16).collect()
    }
}

/// A signal's name, with what it means where that helps.
pub(crate) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGSEGV => "SIGSEGV (a wrong memory access)",
        libc::SIGBUS => "SIGBUS (a wrong memory access)",
        libc::SIGABRT => "SIGABRT (it gave up)",
        libc::SIGFPE => "SIGFPE (a wrong arithmetic operation)",
        libc::SIGILL => "SIGILL (a wrong instruction)",
        libc::SIGKILL => "SIGKILL",
        libc::SIGTERM => "SIGTERM",
        libc::SIGINT => "SIGINT",
        libc::SIGPIPE => "SIGPIPE",
        other => return format!("signal {other}"),
    };
    known.to_string()
}

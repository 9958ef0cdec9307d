//! Starts the processes of gang jobs in a thread of its own, so that a gang switch never waits for
//! a start. A process runs its program only in the first slice of its gang job: it is born into a
//! frozen control group, or waits at a gate. Between its birth and its program it makes only system
//! calls on memory that was prepared before.

use crate::own_memory::{Namespaces, OwnMemory};
use crate::process::{self, Process};
use farcall_gang_proto::{JobId, JobSpec};
use nix::sched::CpuSet;
use nix::unistd::{self, Gid, Pid, Uid};
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// The status of a process that could not start its program.
pub(crate) const NOT_STARTED: u8 = 127;

/// Bytes of the beginning of a program that are looked at, as in the kernel.
const BEGINNING: usize = 256;
/// Bytes of a report: the number of the error, and the beginning of the program.
const REPORT: usize = size_of::<i32>() + BEGINNING;

/// The flag `CLONE_INTO_CGROUP` of the kernel.
const INTO_CGROUP: u64 = 1 << 33;

/// One process to start.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) rank: u16,
    /// Processors that it can use.
    pub(crate) processors: Vec<u16>,
    /// Environment variables of this rank, which replace others of these names.
    pub(crate) variables: Vec<(String, String)>,
}

/// The processes of a gang job to start.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) job: JobId,
    pub(crate) spec: JobSpec,
    pub(crate) births: VecDeque<Birth>,
    /// Descriptors that all of them inherit.
    pub(crate) keep: Vec<OwnedFd>,
    /// The control group into which they are born.
    pub(crate) group: Option<Arc<OwnedFd>>,
    pub(crate) gate: Arc<Gate>,
    /// The shared memory of the gang job; none if it has that of the machine.
    pub(crate) own_memory: Option<Arc<OwnMemory>>,
}

/// What the daemon and the processes that it starts share: the gate, and reports of failures.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Each process without a control group takes one from this counter before its program.
    entry: OwnedFd,
    failures: (OwnedFd, OwnedFd),
    /// Whether no more processes are to be started.
    is_closed: AtomicBool,
}

impl Gate {
    pub(crate) fn new() -> io::Result<Gate> {
        let entry = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        // One report is enough, and not all of them find room.
        rustix::io::ioctl_fionbio(&write, true)?;
        Ok(Gate {
            entry,
            failures: (read, write),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Lets this number of processes pass.
    pub(crate) fn open(&self, processes: usize) {
        let _ = rustix::io::write(&self.entry, &(processes as u64).to_ne_bytes());
    }

    /// Prevents the start of further processes.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Why a process of this gang job could not start its program, if it said so, in words.
    pub(crate) fn failure(&self, spec: &JobSpec) -> Option<String> {
        let mut report = [0; REPORT];
        let Ok(REPORT) = rustix::io::read(&self.failures.0, &mut report) else {
            return None;
        };
        let (code, beginning) = report.split_first_chunk::<4>()?;
        let code = i32::from_ne_bytes(*code);
        let error = io::Error::from_raw_os_error(code.abs());
        let program = &spec.command[0];
        Some(match code {
            ..0 => format!(
                "cannot start in the folder {}: {error}; the folder of `farcall gang run` must be \
                 there on each node, and its user must be allowed to enter it",
                spec.folder
            ),
            libc::ENOENT if beginning[0] != 0 => match interpreter(beginning) {
                Some(interpreter) => format!(
                    "cannot start `{program}`: its interpreter `{interpreter}` is not on this \
                     node; check the first line of the program"
                ),
                None => format!(
                    "cannot start `{program}`: its loader of shared libraries is not on this \
                     node; build it for this system"
                ),
            },
            libc::ENOENT if !program.contains('/') => format!(
                "cannot start `{program}` from any folder of PATH: {error}; write `./{program}` \
                 for a program in the folder of `farcall gang run`"
            ),
            _ => format!("cannot start `{program}`: {error}"),
        })
    }
}

/// The interpreter that the first line of a script names.
fn interpreter(beginning: &[u8]) -> Option<String> {
    let line = beginning.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n' || *byte == 0).next()?;
    let line = String::from_utf8_lossy(line);
    let name = line.split([' ', '\t']).find(|word| !word.is_empty())?;
    // A script from another system may have a carriage return at the end of the line.
    Some(name.escape_debug().to_string())
}

/// A process that was started, or why it was not.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) job: JobId,
    pub(crate) rank: u16,
    pub(crate) result: io::Result<Process>,
}

/// The thread that starts processes. The kernel ends a process when the thread that started it
/// ends, so the thread lives as long as the daemon.
#[derive(Debug)]
pub(crate) struct Starter {
    orders: Sender<Order>,
    begun: Receiver<Begun>,
    news: Arc<OwnedFd>,
}

impl Starter {
    /// Starts the thread. Call this before the daemon enters the real-time class.
    pub(crate) fn new() -> io::Result<Starter> {
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let news = Arc::new(news);
        let (orders, queue) = channel();
        let (answer, begun) = channel();
        let bell = news.clone();
        let null = std::fs::File::open("/dev/null")?.into();
        std::thread::Builder::new()
            .name("farcall-starter".to_string())
            .spawn(move || start_all(&queue, &answer, &bell, &null))?;
        Ok(Starter {
            orders,
            begun,
            news,
        })
    }

    pub(crate) fn start(&self, order: Order) {
        // The thread ends only with the daemon.
        let _ = self.orders.send(order);
    }

    /// Becomes readable when processes were started.
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The processes that were started since the last call.
    pub(crate) fn take(&self) -> Vec<Begun> {
        let _ = rustix::io::read(&*self.news, &mut [0; 8]);
        self.begun.try_iter().collect()
    }
}

/// Starts one process of each gang job in turn, so that a large one does not delay the others.
fn start_all(queue: &Receiver<Order>, answer: &Sender<Begun>, bell: &OwnedFd, null: &OwnedFd) {
    let mut open: VecDeque<(Order, io::Result<Template>)> = VecDeque::new();
    loop {
        let next = match open.is_empty() {
            true => queue.recv().map_err(|_| TryRecvError::Disconnected),
            false => queue.try_recv(),
        };
        match next {
            Ok(order) => {
                let template = Template::new(&order);
                open.push_back((order, template));
                continue;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        let Some((mut order, template)) = open.pop_front() else {
            continue;
        };
        if let Some(birth) = order.births.pop_front() {
            let result = match &template {
                _ if order.gate.is_closed.load(Ordering::Relaxed) => {
                    Err(io::ErrorKind::Interrupted.into())
                }
                Ok(template) => template.start(&order, &birth, null),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            };
            let (job, rank) = (order.job, birth.rank);
            let _ = answer.send(Begun { job, rank, result });
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            open.push_back((order, template));
        }
    }
}

/// What the processes of a gang job have in common, in the form of system calls.
struct Template {
    /// The files that may hold the program, in the order of the search path.
    programs: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    folder: CString,
    user: Option<User>,
    oom_score: String,
}

/// The user that a process runs as.
struct User {
    user: libc::uid_t,
    group: libc::gid_t,
    /// All groups of the user.
    groups: Vec<libc::gid_t>,
}

impl User {
    /// Returns the user of this number, with the groups of the system's list. A user without a name
    /// there has no further groups.
    fn find((user, group): (u32, u32)) -> User {
        let known = groups_of(Uid::from_raw(user), Gid::from_raw(group));
        let groups = known.map(|groups| groups.iter().map(|group| group.as_raw()).collect());
        User {
            user,
            group,
            groups: groups.unwrap_or_else(|| vec![group]),
        }
    }
}

fn groups_of(user: Uid, group: Gid) -> Option<Vec<Gid>> {
    let known = unistd::User::from_uid(user).ok()??;
    let name = CString::new(known.name).ok()?;
    unistd::getgrouplist(&name, group).ok()
}

/// A list of strings as `execve` wants it, which ends with a null pointer.
fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    let pointers = strings.iter().map(|string| string.as_ptr());
    pointers.chain([std::ptr::null()]).collect()
}

impl Template {
    fn new(order: &Order) -> io::Result<Template> {
        let spec = &order.spec;
        let own = order
            .births
            .front()
            .map_or(&[][..], |birth| &birth.variables);
        let is_own = |name: &str| own.iter().any(|(other, _)| *other == name);
        let is_outer = |name: &str| OF_PMI.contains(&name) || name.starts_with("PMIX_");
        let pairs = spec.environment.iter();
        let kept = pairs.filter(|pair| {
            let name = pair.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| !is_own(name) && !is_outer(name))
        });
        let strings = |texts: &mut dyn Iterator<Item = &String>| -> io::Result<Vec<CString>> {
            let made = texts.map(|text| CString::new(text.as_bytes()));
            Ok(made.collect::<Result<_, _>>()?)
        };
        let program = &spec.command[0];
        let path = spec.environment.iter();
        let path = path.filter_map(|pair| pair.strip_prefix("PATH=")).next();
        let programs = match program.contains('/') {
            true => vec![program.clone()],
            false => {
                let folders = path.unwrap_or("/bin:/usr/bin").split(':');
                let place = |folder: &str| match folder {
                    "" => format!("./{program}"),
                    folder => format!("{folder}/{program}"),
                };
                folders.map(place).collect()
            }
        };
        Ok(Template {
            programs: strings(&mut programs.iter())?,
            arguments: strings(&mut spec.command.iter())?,
            environment: strings(&mut kept.into_iter())?,
            folder: CString::new(spec.folder.as_bytes())?,
            user: Uid::current().is_root().then(|| User::find(spec.owner)),
            oom_score: farcall_child::oom_score(),
        })
    }

    fn start(&self, order: &Order, birth: &Birth, null: &OwnedFd) -> io::Result<Process> {
        let out = pipe_with(PipeFlags::CLOEXEC)?;
        let err = pipe_with(PipeFlags::CLOEXEC)?;
        for (read, write) in [&out, &err] {
            rustix::io::ioctl_fionbio(read, true)?;
            if self.user.is_some() {
                // Otherwise the process could not open /dev/stdout. Only processes of its user can
                // reach the pipe, through /proc, and the daemon needs no further right for this.
                rustix::fs::fchmod(write, rustix::fs::Mode::from_raw_mode(0o666))?;
            }
        }
        let mut processors = CpuSet::new();
        for processor in &birth.processors {
            // A processor number that no set can hold does not prevent the start.
            let _ = processors.set(usize::from(*processor));
        }
        let own = birth.variables.iter();
        let own = own.map(|(name, value)| CString::new(format!("{name}={value}")));
        let mut own = own.collect::<Result<Vec<_>, _>>()?;
        let mut keep: Vec<RawFd> = order.keep.iter().map(AsRawFd::as_raw_fd).collect();
        let pmi = match order.spec.mpi {
            Some(false) => None,
            _ => Some(socketpair()?),
        };
        if let Some((_, theirs)) = &pmi {
            keep.push(theirs.as_raw_fd());
            own.extend(mpi_variables(theirs, birth.rank, order.spec.processes)?);
        }
        let mut environment = pointers(&self.environment);
        environment.pop();
        environment.extend(pointers(&own));
        let arguments = pointers(&self.arguments);
        // If the file is a script without an interpreter, the shell runs it.
        let mut script = vec![c"sh".as_ptr(), std::ptr::null()];
        script.extend_from_slice(&arguments[1..]);
        let entry = order.group.is_none().then(|| order.gate.entry.as_raw_fd());
        let own_memory = order.own_memory.as_ref();
        let mut child = Child {
            stdio: [null.as_raw_fd(), out.1.as_raw_fd(), err.1.as_raw_fd()],
            keep,
            entry,
            namespaces: own_memory.and_then(|memory| memory.namespaces()),
            processors: (!birth.processors.is_empty()).then_some(processors),
            descriptors: descriptors(),
            oom_score: &self.oom_score,
            user: self.user.as_ref(),
            folder: &self.folder,
            umask: order.spec.umask,
            daemon: Pid::this().as_raw(),
            programs: &self.programs,
            arguments,
            script,
            environment,
            beginning: [0; BEGINNING],
        };
        let failures = order.gate.failures.1.as_raw_fd();
        let group = order.group.as_deref().map(AsFd::as_fd);
        let run = || {
            let report = child.report();
            // SAFETY: system calls on values of this frame.
            unsafe {
                libc::write(failures, report.as_ptr().cast(), report.len());
                libc::_exit(NOT_STARTED.into())
            }
        };
        let pid = born_into(group, run)?;
        let mut process = Process::new(birth.rank, pid, [out.0, err.0]);
        process.pmi = pmi.map(|(ours, _)| ours);
        Ok(process)
    }
}

/// The variables through which the start of MPI programs speaks to them. Those of an outer start do
/// not reach a gang job.
const OF_PMI: [&str; 5] = ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID"];

fn mpi_variables(fd: &OwnedFd, rank: u16, size: u16) -> io::Result<[CString; 3]> {
    Ok([
        CString::new(format!("PMI_FD={}", fd.as_raw_fd()))?,
        CString::new(format!("PMI_RANK={rank}"))?,
        CString::new(format!("PMI_SIZE={size}"))?,
    ])
}

/// The limit of open files, as the system call takes it.
fn descriptors() -> Option<libc::rlimit> {
    let limit = process::descriptors()?;
    let raw = |value: Option<u64>| value.unwrap_or(libc::RLIM_INFINITY);
    Some(libc::rlimit {
        rlim_cur: raw(limit.current),
        rlim_max: raw(limit.maximum),
    })
}

/// Two connected ends. Ours never blocks.
fn socketpair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Creates a process, in a control group if one is given, that calls `run`, which must not return
/// and may make only system calls.
fn born_into(group: Option<BorrowedFd<'_>>, run: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: all zeros is a value of this type of the kernel.
    let mut what: libc::clone_args = unsafe { std::mem::zeroed() };
    what.exit_signal = libc::SIGCHLD as u64;
    if let Some(group) = group {
        what.flags = INTO_CGROUP;
        what.cgroup = group.as_raw_fd() as u64;
    }
    let size = size_of_val(&what);
    // SAFETY: without a stack and shared memory the call behaves like fork(2); the child makes only
    // system calls, and none that the C library would pass on to threads.
    match unsafe { libc::syscall(libc::SYS_clone3, &mut what, size) } {
        0 => {
            run();
            // SAFETY: a plain system call.
            unsafe { libc::_exit(NOT_STARTED.into()) }
        }
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(pid as libc::pid_t),
    }
}

/// Whether processes can be born into this control group.
pub(crate) fn is_born_into(group: &OwnedFd) -> bool {
    let Ok(pid) = born_into(Some(group.as_fd()), || {}) else {
        return false;
    };
    // SAFETY: a plain system call on a child of this process.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) == pid }
}

/// What a process does before its program.
struct Child<'a> {
    stdio: [RawFd; 3],
    keep: Vec<RawFd>,
    /// The counter of the gate, if the process must wait there.
    entry: Option<RawFd>,
    namespaces: Option<&'a Namespaces>,
    processors: Option<CpuSet>,
    descriptors: Option<libc::rlimit>,
    oom_score: &'a str,
    user: Option<&'a User>,
    folder: &'a CStr,
    umask: Option<u32>,
    daemon: libc::pid_t,
    programs: &'a [CString],
    arguments: Vec<*const libc::c_char>,
    script: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    /// That of the program, if it is there and something that it names is not.
    beginning: [u8; BEGINNING],
}

/// The number of the last error of a system call.
fn last_error() -> i32 {
    // SAFETY: the C library gives each thread its own.
    unsafe { *libc::__errno_location() }
}

/// Returns from the function with the number of the error, if a system call failed.
macro_rules! must {
    ($call:expr) => {
        // SAFETY: a plain system call on values that live longer.
        if unsafe { $call } < 0 {
            return last_error();
        }
    };
}

impl Child<'_> {
    /// Becomes the program. Returns what the daemon reads if that fails.
    fn report(&mut self) -> [u8; REPORT] {
        let error = self.run();
        let mut report = [0; REPORT];
        let (code, beginning) = report.split_at_mut(size_of::<i32>());
        code.copy_from_slice(&error.to_ne_bytes());
        beginning.copy_from_slice(&self.beginning);
        report
    }

    /// Becomes the program. Returns the number of the error if that fails, which is negative if the
    /// process cannot enter its folder. The C library's calls that change the user would wait for
    /// threads that this process does not have, so the calls of the kernel are used.
    fn run(&mut self) -> i32 {
        // SAFETY: all zeros is an empty set of signals.
        let none: libc::sigset_t = unsafe { std::mem::zeroed() };
        must!(libc::sigprocmask(
            libc::SIG_SETMASK,
            &none,
            std::ptr::null_mut()
        ));
        // The job would inherit what the daemon ignores: the end of a reader, and Ctrl-C if a
        // script started the daemon in the background.
        for signal in 1..=libc::SIGRTMAX() {
            // SAFETY: a plain system call. It fails for the signals that nobody can ignore.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        must!(libc::setsid());
        for (place, fd) in (0..).zip(self.stdio) {
            must!(libc::dup2(fd, place));
        }
        for fd in &self.keep {
            must!(libc::fcntl(*fd, libc::F_SETFD, 0));
        }
        self.take_oom_score();
        if let Some(processors) = &self.processors {
            let size = size_of::<CpuSet>();
            // A set of processors that this machine does not have does not prevent the start.
            // SAFETY: a plain system call on a value that lives longer.
            unsafe { libc::sched_setaffinity(0, size, std::ptr::from_ref(processors).cast()) };
        }
        if let Some(Namespaces { all, root }) = self.namespaces {
            for namespace in all {
                must!(libc::setns(namespace.as_raw_fd(), 0));
            }
            must!(libc::fchdir(root.as_raw_fd()));
            must!(libc::chroot(c".".as_ptr()));
        }
        if let Some(limit) = &self.descriptors {
            must!(libc::setrlimit(libc::RLIMIT_NOFILE, limit));
        }
        if let Some(user) = self.user {
            let (count, groups) = (user.groups.len(), user.groups.as_ptr());
            must!(libc::syscall(libc::SYS_setgroups, count, groups));
            let group = user.group;
            must!(libc::syscall(libc::SYS_setresgid, group, group, group));
            let user = user.user;
            must!(libc::syscall(libc::SYS_setresuid, user, user, user));
        }
        if let Some(mask) = self.umask {
            // SAFETY: a plain system call, which cannot fail.
            unsafe { libc::umask(mask & 0o777) };
        }
        // SAFETY: a plain system call on a value that lives longer.
        if unsafe { libc::chdir(self.folder.as_ptr()) } < 0 {
            return -last_error();
        }
        // A change of the user resets this setting.
        must!(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL));
        // SAFETY: a plain system call.
        if unsafe { libc::getppid() } != self.daemon {
            return libc::EPIPE;
        }
        if let Some(entry) = self.entry {
            let mut turn = [0u8; 8];
            must!(libc::read(entry, turn.as_mut_ptr().cast(), turn.len()));
        }
        self.execute()
    }

    /// Takes its place among those that the kernel ends if memory is short. A process that cannot
    /// do this has the place of the daemon.
    fn take_oom_score(&self) {
        let (path, flags) = (
            c"/proc/self/oom_score_adj",
            libc::O_WRONLY | libc::O_CLOEXEC,
        );
        // SAFETY: plain system calls on values that live longer.
        unsafe {
            let file = libc::open(path.as_ptr(), flags);
            if file >= 0 {
                libc::write(file, self.oom_score.as_ptr().cast(), self.oom_score.len());
                libc::close(file);
            }
        }
    }

    /// Tries the files of the search path, as `execvp` does.
    fn execute(&mut self) -> i32 {
        let (arguments, environment) = (self.arguments.as_ptr(), self.environment.as_ptr());
        let mut failure = libc::ENOENT;
        for program in self.programs {
            // SAFETY: all lists end with a null pointer, and their strings live longer.
            unsafe { libc::execve(program.as_ptr(), arguments, environment) };
            match last_error() {
                libc::ENOENT => self.look_at(program),
                libc::ENOTDIR => {}
                libc::EACCES => failure = libc::EACCES,
                libc::ENOEXEC => {
                    self.script[1] = program.as_ptr();
                    let script = self.script.as_ptr();
                    // SAFETY: as above.
                    unsafe { libc::execve(c"/bin/sh".as_ptr(), script, environment) };
                    return last_error();
                }
                other => return other,
            }
        }
        failure
    }

    /// Reads the beginning of a file of the search path that cannot be executed, if it is there.
    fn look_at(&mut self, program: &CStr) {
        if self.beginning[0] != 0 {
            return;
        }
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let to = self.beginning.as_mut_ptr().cast();
        // SAFETY: plain system calls on values that live longer.
        unsafe {
            let file = libc::open(program.as_ptr(), flags);
            if file >= 0 {
                libc::read(file, to, BEGINNING);
                libc::close(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_in_no_folder_of_path_is_told_with_what_to_write() {
        let told_of = |program: &str, code: i32, beginning: &[u8]| {
            let gate = Gate::new().expect("descriptors");
            let mut report = [&code.to_ne_bytes()[..], beginning].concat();
            report.resize(REPORT, 0);
            rustix::io::write(&gate.failures.1, &report).expect("room");
            let spec = JobSpec {
                command: vec![program.to_string()],
                ..JobSpec::default()
            };
            gate.failure(&spec).expect("it was told")
        };
        let told = |program: &str, code: i32| told_of(program, code, b"");
        let here = told("solver", libc::ENOENT);
        assert!(here.contains("any folder of PATH: ") && here.contains("`./solver`"));
        assert!(told("./solver", libc::ENOENT).contains("No such file"));
        assert!(told("solver", libc::EACCES).contains("Permission denied"));
        assert!(told("solver", -libc::EACCES).contains("in the folder"));
        let script = |line: &str| told_of("run", libc::ENOENT, line.as_bytes());
        assert!(script("#! /opt/python3 -u\nx").contains("interpreter `/opt/python3` is not on"));
        assert!(script("#!/bin/sh\r\n").contains(r"interpreter `/bin/sh\r` is not on"));
        assert!(script("\x7fELF").contains("loader of shared libraries"));
    }
}

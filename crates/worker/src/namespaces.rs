//! Processes in namespaces of their own.
//!
//! A worker has its own processes (a PID namespace, so that all of them end with the first one),
//! shared memory and semaphores (IPC), mounts, and network. A server that is not root makes a user
//! namespace as well, which gives it the right to make the others. [`Namespaces::available`] finds
//! out what the system allows, [`Start::start`] starts a program in them.
//!
//! The first process of a PID namespace has peculiar signals, so it is not the worker. It is the
//! *keeper*: it waits for the worker, and ends with the worker's status. Its end is the end of all
//! processes of the namespace. The worker has the number that its keeper has for the server.

use crate::groups::{Join, MadeIn};
pub(crate) use keeper::{KEEPER, keep};
use keeper::{become_keeper, number_next};
pub(crate) use rights::drop_rights;
use rights::keep_mount_rights;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

mod keeper;
mod rights;

/// The namespaces that a worker has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Users: the worker has the server's user, and rights only over its own namespaces.
    pub user: bool,
    /// Processes.
    pub processes: bool,
    /// Shared memory, semaphores and queues of System V and POSIX.
    pub ipc: bool,
    /// Mounts.
    pub mounts: bool,
    /// Network.
    pub network: bool,
}

/// A namespace that the system refuses.
#[derive(Debug)]
pub struct Refused {
    /// What it is for.
    pub what: &'static str,
    /// The reason.
    pub error: io::Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { what, error } = self;
        write!(f, "the system refuses {what} of their own: {error}")
    }
}

impl Namespaces {
    /// Those that the system allows this process to make, and those that it refuses.
    pub fn available() -> (Namespaces, Vec<Refused>) {
        let user = !rustix::process::geteuid().is_root();
        let none = Namespaces {
            user,
            ..Namespaces::default()
        };
        let single = [
            (
                "processes",
                Namespaces {
                    processes: true,
                    ..none
                },
            ),
            ("shared memory", Namespaces { ipc: true, ..none }),
            (
                "mounts",
                Namespaces {
                    mounts: true,
                    ..none
                },
            ),
            (
                "a network",
                Namespaces {
                    network: true,
                    ..none
                },
            ),
        ];
        let all = single.iter().fold(none, |all, (_, one)| all.and(*one));
        if all.try_out().is_ok() {
            return (all, Vec::new());
        }
        let mut allowed = Namespaces::default();
        let mut refused = Vec::new();
        for (what, one) in single {
            match one.try_out() {
                Ok(()) => allowed = allowed.and(one),
                Err(error) => refused.push(Refused { what, error }),
            }
        }
        (allowed, refused)
    }

    fn and(self, other: Namespaces) -> Namespaces {
        Namespaces {
            user: self.user || other.user,
            processes: self.processes || other.processes,
            ipc: self.ipc || other.ipc,
            mounts: self.mounts || other.mounts,
            network: self.network || other.network,
        }
    }

    fn flags(self) -> libc::c_int {
        let flags = [
            (self.user, libc::CLONE_NEWUSER),
            (self.processes, libc::CLONE_NEWPID),
            (self.ipc, libc::CLONE_NEWIPC),
            (self.mounts, libc::CLONE_NEWNS),
            (self.network, libc::CLONE_NEWNET),
        ];
        let chosen = flags.into_iter().filter(|(is_own, _)| *is_own);
        chosen.fold(0, |all, (_, flag)| all | flag)
    }

    /// Makes them for a process that ends at once.
    fn try_out(self) -> io::Result<()> {
        let maps = Maps::new();
        let child = clone(self.flags())?;
        if child == 0 {
            // SAFETY: this is the child, which only makes system calls and ends.
            unsafe {
                let entered = self.enter(&maps).and_then(|()| self.mount_something());
                libc::_exit(entered.err().map_or(0, Errno::raw_os_error));
            }
        }
        match wait(child)?.code() {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None => Err(io::Error::other("a process was killed")),
        }
    }

    /// What a child does first: it becomes the user that it was, and its mounts become its own.
    ///
    /// # Safety
    /// This process is a child that [`clone`] has made; nothing is allocated.
    unsafe fn enter(self, maps: &Maps) -> Result<(), Errno> {
        // SAFETY: system calls on memory of the parent that this process has a copy of.
        unsafe {
            if self.user {
                write(c"/proc/self/setgroups", b"deny")?;
                write(c"/proc/self/uid_map", maps.users.as_bytes())?;
                write(c"/proc/self/gid_map", maps.groups.as_bytes())?;
            }
            if self.mounts {
                let flags = libc::MS_REC | libc::MS_PRIVATE;
                let (none, root) = (std::ptr::null(), c"/".as_ptr());
                check(libc::mount(none, root, none, flags, none.cast()))?;
            }
        }
        Ok(())
    }

    /// A system may allow the namespace, but no mounts in it.
    ///
    /// # Safety
    /// As [`Namespaces::enter`].
    unsafe fn mount_something(self) -> Result<(), Errno> {
        if self.mounts {
            let (tmpfs, place) = (c"tmpfs".as_ptr(), c"/dev/shm".as_ptr());
            let flags = libc::MS_NOSUID | libc::MS_NODEV;
            // SAFETY: a system call on constants.
            unsafe {
                check(libc::mount(
                    tmpfs,
                    place,
                    tmpfs,
                    flags,
                    c"size=4096".as_ptr().cast(),
                ))?
            };
        }
        Ok(())
    }
}

/// The user and the group of this process, as a user namespace maps them.
struct Maps {
    users: String,
    groups: String,
}

impl Maps {
    fn new() -> Maps {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Maps {
            users: format!("{user} {user} 1"),
            groups: format!("{group} {group} 1"),
        }
    }
}

/// A program to start.
pub(crate) struct Start {
    /// Program and arguments.
    pub(crate) words: Vec<OsString>,
    /// The whole environment.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// Where it prints.
    pub(crate) output: OwnedFd,
    /// A socket, which it gets at this descriptor.
    pub(crate) socket: Option<(OwnedFd, RawFd)>,
    pub(crate) namespaces: Namespaces,
    /// The control groups of which it is a member.
    pub(crate) groups: Join,
    /// Program and arguments of the keeper of a PID namespace, which runs [`keep`].
    pub(crate) keeper: Vec<OsString>,
}

/// A process that was started, and that nobody has waited for.
#[derive(Debug)]
pub(crate) struct Child {
    id: libc::pid_t,
    /// Whether it is a keeper.
    keeps: bool,
}

impl Child {
    pub(crate) fn id(&self) -> u32 {
        self.id.unsigned_abs()
    }

    /// Ends it at once, and with it all processes of its namespace.
    pub(crate) fn kill(&self) {
        // SAFETY: a system call; nobody has waited for the process, so the number is still its own.
        unsafe { libc::kill(self.id, libc::SIGKILL) };
    }

    /// A descriptor that is readable when it has ended.
    pub(crate) fn watch(&self) -> io::Result<OwnedFd> {
        let id = rustix::process::Pid::from_raw(self.id).ok_or(io::ErrorKind::NotFound)?;
        let flags = rustix::process::PidfdFlags::empty();
        Ok(rustix::process::pidfd_open(id, flags)?)
    }

    /// Waits until it has ended. The status is that of the worker.
    pub(crate) fn wait(self) -> io::Result<ExitStatus> {
        let status = wait(self.id)?;
        match self.keeps {
            true => Ok(keeper::of_worker(status)),
            false => Ok(status),
        }
    }
}

impl Start {
    /// Starts the program. It ends with the calling thread.
    ///
    /// # Errors
    /// The system refuses the process or a namespace, or the program cannot be run.
    pub(crate) fn start(self) -> io::Result<Child> {
        let text = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::other);
        let program = self.words.first().map(find);
        let program = program.ok_or_else(|| io::Error::other("there is no program"))?;
        let named = program.to_string_lossy().into_owned();
        let program = text(program)?;
        let texts = |words: Vec<OsString>| words.into_iter().map(text).collect();
        let words: io::Result<Vec<CString>> = texts(self.words);
        let keeper: io::Result<Vec<CString>> = texts(self.keeper);
        let (words, keeper) = (words?, keeper?);
        let variables = self.environment.into_iter().map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            text(name)
        });
        let variables: Vec<CString> = variables.collect::<io::Result<_>>()?;
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            let pointers = texts.iter().map(|text| text.as_ptr());
            pointers.chain([std::ptr::null()]).collect()
        };
        let (read, low) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // Not at a descriptor that the child replaces.
        let write = rustix::io::fcntl_dupfd_cloexec(&low, 10)?;
        drop(low);
        let Join { tasks, made_in } = &self.groups;
        let tasks: Vec<RawFd> = tasks.iter().map(AsRawFd::as_raw_fd).collect();
        let prepared = Prepared {
            program: &program,
            words: &pointers(&words),
            variables: &pointers(&variables),
            keeper: &pointers(&keeper),
            output: self.output.as_raw_fd(),
            socket: self
                .socket
                .as_ref()
                .map(|(socket, at)| (socket.as_raw_fd(), *at)),
            namespaces: self.namespaces,
            tasks: &tasks,
            made_in: made_in.as_ref(),
            oom_score: &farcall_child::oom_score(),
            maps: &Maps::new(),
            parent: std::process::id() as libc::pid_t,
        };
        let flags = self.namespaces.flags();
        let made = made_in.as_ref().map(|group| clone_in(flags, &group.folder));
        let (id, is_member) = match made {
            Some(Ok(id)) => (id, true),
            // An older kernel, or a filter of system calls.
            Some(Err(_)) | None => (clone(flags)?, false),
        };
        if id == 0 {
            // SAFETY: this is the child, which only makes system calls until the program runs.
            unsafe { prepared.become_it(write.as_raw_fd(), is_member) };
        }
        drop(write);
        let mut told = Vec::new();
        std::fs::File::from(read).read_to_end(&mut told)?;
        let child = Child {
            id,
            keeps: self.namespaces.processes,
        };
        let Ok(error) = <[u8; 4]>::try_from(told) else {
            return Ok(child);
        };
        child.wait()?;
        let error = io::Error::from_raw_os_error(i32::from_ne_bytes(error));
        Err(io::Error::new(error.kind(), format!("{named}: {error}")))
    }
}

/// Everything that the child needs, allocated before it is made.
struct Prepared<'p> {
    program: &'p CStr,
    words: &'p [*const libc::c_char],
    variables: &'p [*const libc::c_char],
    keeper: &'p [*const libc::c_char],
    output: RawFd,
    socket: Option<(RawFd, RawFd)>,
    namespaces: Namespaces,
    /// As in [`Join`].
    tasks: &'p [RawFd],
    /// As in [`Join`].
    made_in: Option<&'p MadeIn>,
    oom_score: &'p str,
    maps: &'p Maps,
    parent: libc::pid_t,
}

impl Prepared<'_> {
    /// Runs the program. If that fails, tells the parent why and ends. `is_member` tells whether it
    /// was made in its group.
    ///
    /// # Safety
    /// As [`Namespaces::enter`].
    unsafe fn become_it(&self, tell: RawFd, is_member: bool) -> ! {
        // SAFETY: the caller's promise.
        unsafe {
            let prepared = self.prepare(is_member);
            let error = match prepared.and_then(|()| self.keep_or_go_on(tell)) {
                Ok(()) => {
                    let (words, variables) = (self.words.as_ptr(), self.variables.as_ptr());
                    libc::execve(self.program.as_ptr(), words, variables);
                    last_error()
                }
                Err(error) => error,
            };
            let error = error.raw_os_error().to_ne_bytes();
            libc::write(tell, error.as_ptr().cast(), error.len());
            libc::_exit(1);
        }
    }

    unsafe fn prepare(&self, is_member: bool) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            // The parent may have died before. In a PID namespace it has no number; the worker then
            // finds its socket closed.
            if !self.namespaces.processes && libc::getppid() != self.parent {
                return Err(Errno::PIPE);
            }
            let group = self.made_in.filter(|_| !is_member);
            let processes = group.map(|group| group.processes.as_raw_fd());
            for file in self.tasks.iter().copied().chain(processes) {
                check_bytes(libc::write(file, c"0".as_ptr().cast(), 1))?;
            }
            // Without the right to raise it, the process has the server's value.
            let _ = write(c"/proc/self/oom_score_adj", self.oom_score.as_bytes());
            // In the session of the server, a function could read what is typed at its terminal,
            // and type there itself.
            check(libc::setsid())?;
            self.namespaces.enter(self.maps)?;
        }
        Ok(())
    }

    /// In a PID namespace, becomes the keeper and returns in the worker. Connects the worker.
    unsafe fn keep_or_go_on(&self, tell: RawFd) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe {
            if self.namespaces.processes {
                number_next();
                // The worker may cover the folder of the keeper's program before the keeper runs.
                let keeper = self.keeper[0];
                if keeper.is_null() {
                    return Err(Errno::NOENT);
                }
                let keeper = check(libc::open(keeper, libc::O_PATH | libc::O_CLOEXEC))?;
                let worker = libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0);
                if worker < 0 {
                    return Err(last_error());
                }
                if worker > 0 {
                    libc::close(tell);
                    become_keeper(self.keeper, keeper, worker as u32);
                }
            }
            if self.namespaces.user {
                keep_mount_rights()?;
            }
            let null = check(libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY))?;
            check(libc::dup2(null, 0))?;
            check(libc::dup2(self.output, 1))?;
            check(libc::dup2(self.output, 2))?;
            if let Some((socket, at)) = self.socket {
                check(libc::dup2(socket, at))?;
            }
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut signals);
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            check(libc::sigprocmask(
                libc::SIG_SETMASK,
                &signals,
                std::ptr::null_mut(),
            ))?;
        }
        Ok(())
    }
}

/// Makes a child as `fork` does, in new namespaces. In the child the result is 0.
fn clone(flags: libc::c_int) -> io::Result<libc::pid_t> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without a stack and without shared memory this is a fork. The child makes only system
    // calls, so it needs no lock that another thread of the parent may have held.
    let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match child {
        0.. => Ok(child as libc::pid_t),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As [`clone`], in a control group of version 2.
fn clone_in(flags: libc::c_int, group: &OwnedFd) -> io::Result<libc::pid_t> {
    const INTO_GROUP: u64 = 0x2_0000_0000;
    // The fields of `clone_args`, as clone3(2) has them.
    let mut arguments = [0u64; 11];
    arguments[0] = u64::from(flags.unsigned_abs()) | INTO_GROUP;
    arguments[4] = libc::SIGCHLD as u64;
    arguments[10] = group.as_raw_fd() as u64;
    let bytes = size_of_val(&arguments);
    // SAFETY: as `clone`.
    let child = unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), bytes) };
    match child {
        0.. => Ok(child as libc::pid_t),
        _ => Err(io::Error::last_os_error()),
    }
}

fn wait(id: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: a system call on memory of this frame.
        if unsafe { libc::waitpid(id, &mut status, 0) } == id {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The path of a program that is named without one.
fn find(name: &OsString) -> OsString {
    if name.as_bytes().contains(&b'/') {
        return name.clone();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    paths
        .find(|path| path.is_file())
        .map_or_else(|| name.clone(), |path| path.into_os_string())
}

/// The error of the last system call.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    match result {
        0.. => Ok(result),
        _ => Err(last_error()),
    }
}

fn check_bytes(result: isize) -> Result<(), Errno> {
    match result {
        0.. => Ok(()),
        _ => Err(last_error()),
    }
}

/// Writes a short text to a file.
///
/// # Safety
/// As [`Namespaces::enter`].
unsafe fn write(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    // SAFETY: system calls on memory that the caller lends.
    unsafe {
        let file = check(libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC))?;
        let written = check_bytes(libc::write(file, text.as_ptr().cast(), text.len()));
        libc::close(file);
        written
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::fs::File;

    /// A keeper: it waits for its only child, the worker.
    const KEEPING: &str = "while kill -0 $FARCALL_KEEPER; do sleep 0.01; done; exit 7";

    /// What a script prints that is a member of control groups.
    pub(crate) fn printed(script: &str, groups: Join) -> String {
        run_in(script, Namespaces::default(), groups).1
    }

    fn run(script: &str, namespaces: Namespaces) -> (ExitStatus, String) {
        run_in(script, namespaces, Join::default())
    }

    fn run_in(script: &str, namespaces: Namespaces, groups: Join) -> (ExitStatus, String) {
        let (read, output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let child = Start {
            words: ["sh", "-c", script].map(OsString::from).into(),
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            output,
            socket: None,
            namespaces,
            groups,
            keeper: ["/bin/sh", "-c", KEEPING].map(OsString::from).into(),
        };
        let child = child.start().unwrap();
        let mut text = String::new();
        File::from(read).read_to_string(&mut text).unwrap();
        (child.wait().unwrap(), text)
    }

    #[test]
    fn a_program_gets_its_words_and_variables() {
        let (status, text) = run(
            "echo $0 $$; echo $PATH; env | wc -l; exit 3",
            Namespaces::default(),
        );
        assert_eq!(status.code(), Some(3));
        assert!(text.contains("/usr/bin:/bin"), "{text}");
    }

    #[test]
    fn a_program_has_no_terminal_of_the_server() {
        // SAFETY: it only asks.
        let own = unsafe { libc::getsid(0) };
        let script = "cut -d ' ' -f 6 /proc/self/stat";
        let (_, session) = run(script, Namespaces::default());
        assert_ne!(session.trim(), own.to_string());
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let (_read, output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let start = Start {
            words: vec!["/no/such/program".into()],
            environment: Vec::new(),
            output,
            socket: None,
            namespaces: Namespaces::default(),
            groups: Join::default(),
            keeper: Vec::new(),
        };
        let error = start.start().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }

    #[test]
    fn the_first_process_of_a_namespace_takes_all_others_with_it() {
        let (namespaces, refused) = Namespaces::available();
        if !namespaces.processes {
            eprintln!("SKIPPED: {refused:?}");
            return;
        }
        // The pipe closes only when the last process that has it is gone.
        let (status, text) = run("(sleep 1000 &); kill -0 1; echo $?", namespaces);
        assert_eq!((status.code(), text.trim()), (Some(7), "0"));
    }
}

//! Workers of several processes: an MPI program that a launcher such as `mpiexec` starts.
//!
//! The first process has the arrays of a call and the connection to the server, like any worker; it
//! finds the server through a socket in the worker's folder. It tells the other processes what to
//! call. Between calls they wait for it.

use crate::children::Children;
use crate::floats::Floats;
use crate::handle::send;
use crate::launch::Start;
use crate::limits;
use crate::process::{self, Callee, Channel};
use crate::surroundings::Surroundings;
use crate::trace;
use farcall_idl::{ArrayLayout, Document, Interface, Layout, Library};
use farcall_library::{Caller, Processes, Source};
use farcall_memory::sealed_memory;
use farcall_rpc_proto::{Call, Failure, FailureKind};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Environment variable with the folder of a parallel worker.
pub(crate) const FOLDER: &str = "FARCALL_PARALLEL";
/// Environment variable of a worker that builds walls and then becomes a launcher.
pub(crate) const LAUNCH: &str = "FARCALL_LAUNCH";
/// Environment variable with the number of processes.
const PROCESSES: &str = "FARCALL_PROCESSES";
/// File in the folder with the parameters of the start.
const START: &str = "start";
/// Socket in the folder at which the server waits for the first process.
const SOCKET: &str = "socket";
/// Placeholder for the number of processes in a launcher's words.
const NUMBER: &str = "{processes}";
/// Launchers to look for if none is configured.
const LAUNCHERS: [&str; 3] = ["mpiexec.mpich", "mpiexec.hydra", "mpiexec"];
/// OUT arrays up to this size in bytes, such as `info`, are given to every process.
const SMALL: u64 = 64;

/// What the first process receives when it connects.
pub(crate) struct Welcome {
    start: OwnedFd,
    start_bytes: u64,
    doorbell: OwnedFd,
    /// The user of the processes, if it is not the server's.
    user: Option<u32>,
}

/// Makes the socket for the first process, and the file for all processes.
pub(crate) fn prepare(folder: &Path, start: &[u8], user: Option<u32>) -> io::Result<OwnedFd> {
    fs::write(folder.join(START), start)?;
    let name = folder.join(SOCKET);
    let address = SocketAddrUnix::new(&name).map_err(|error| {
        let text = format!(
            "{}: {error}; name a folder with a shorter path (workers.folder in the configuration)",
            name.display()
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    bind(&socket, &address)?;
    listen(&socket, 1)?;
    // The processes of another user may connect.
    chown(&name, user, None)?;
    Ok(socket)
}

/// The launcher's program and arguments, which come before the worker's own.
pub(crate) fn launcher(words: &[String], processes: u32) -> Vec<String> {
    let number = processes.to_string();
    if !words.is_empty() {
        let words = words.iter().map(|word| word.replace(NUMBER, &number));
        return words.collect();
    }
    let found = LAUNCHERS.into_iter().find(|name| is_program(name));
    let program = found.unwrap_or(LAUNCHERS[2]).to_string();
    vec![program, "-n".to_string(), number]
}

/// The variables by which the processes find each other and the server.
pub(crate) fn environment(folder: &Path, processes: u32) -> Vec<(OsString, OsString)> {
    let variables = [
        (FOLDER, folder.as_os_str().to_owned()),
        (PROCESSES, processes.to_string().into()),
        ("SLURM_KILL_BAD_EXIT", "1".into()),
        // In a container the worker may be root, and it has as many processes as the operator says.
        ("OMPI_ALLOW_RUN_AS_ROOT", "1".into()),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".into()),
        ("OMPI_MCA_rmaps_base_oversubscribe", "1".into()),
        (
            "PRTE_MCA_rmaps_default_mapping_policy",
            ":oversubscribe".into(),
        ),
    ];
    let variables = variables.into_iter();
    variables
        .map(|(name, value)| (name.into(), value))
        .collect()
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

impl Welcome {
    /// With the text of what it is told, and what it rings.
    pub(crate) fn new(
        text: &[u8],
        doorbell: BorrowedFd<'_>,
        user: Option<u32>,
    ) -> io::Result<Welcome> {
        let start = sealed_memory("farcall-start", text.len())?;
        File::from(start.try_clone()?).write_all(text)?;
        Ok(Welcome {
            start,
            start_bytes: text.len() as u64,
            doorbell: doorbell.try_clone_to_owned()?,
            user,
        })
    }

    /// Hands it over.
    pub(crate) fn hand_over(
        &self,
        socket: &OwnedFd,
        control: BorrowedFd<'_>,
        mailbox: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let descriptors = [control, self.doorbell.as_fd(), self.start.as_fd(), mailbox];
        send(socket, &self.start_bytes.to_ne_bytes(), &descriptors)
    }

    /// Accepts the first process and returns its socket. Refuses a process of another user.
    pub(crate) fn accept(
        &self,
        listener: &OwnedFd,
        control: BorrowedFd<'_>,
        mailbox: BorrowedFd<'_>,
    ) -> io::Result<Option<OwnedFd>> {
        let socket = accept_with(listener, SocketFlags::CLOEXEC)?;
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        let is_own = peer.uid == rustix::process::geteuid();
        if !is_own && self.user != Some(peer.uid.as_raw()) {
            return Ok(None);
        }
        self.hand_over(&socket, control, mailbox)?;
        Ok(Some(socket))
    }
}

fn seqpacket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, flags, None)?)
}

/// Builds the walls around all processes of a parallel worker, and becomes their launcher. Only
/// these processes share the namespaces.
pub(crate) fn launch(folder: &Path) -> io::Result<Infallible> {
    let start = read_start(folder)?;
    limits::of_worker(start.memory, start.files)?;
    if let Some(sandbox) = &start.sandbox {
        let source = start.source();
        let compiled = start.compiled.as_deref();
        let libraries = source.parse().document.libraries;
        let libraries = libraries.iter().filter_map(Library::folder).map(Path::new);
        // The launcher starts the worker's program after the walls are there.
        let programs = start.words.iter().map(Path::new);
        let programs = programs.filter(|path| path.is_absolute() && path.is_file());
        let needed = libraries.chain(compiled).chain(programs);
        let needed = needed.chain([source.folder(), folder]);
        let missing = sandbox.surround(
            &start.folder,
            start.own(),
            needed.map(Path::to_path_buf).collect(),
        );
        for problem in missing {
            eprintln!("farcall: {problem}");
        }
    }
    let (program, arguments) = start.words.split_first().ok_or(io::ErrorKind::NotFound)?;
    // MPICH's launcher tells a process that the input has ended. If the process has ended
    // meanwhile, SIGPIPE kills the launcher, and nobody learns why the process has ended. So the
    // input has no end: the launcher keeps both ends of the pipe.
    let (input, _output) = rustix::pipe::pipe()?;
    Err(Command::new(program)
        .args(arguments)
        .stdin(input)
        .env_remove(LAUNCH)
        .exec())
}

fn read_start(folder: &Path) -> io::Result<Start> {
    let start = fs::read(folder.join(START))?;
    serde_json::from_slice(&start).map_err(io::Error::other)
}

/// Runs one process of a parallel worker.
pub(crate) fn run<C: Callee>(
    folder: &Path,
    load: impl FnOnce(&Source, &Document, Option<&Path>) -> Result<C, String>,
) -> io::Result<()> {
    // The server ends the launcher, and the launcher ends its processes. SAFETY: a plain system
    // call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let start = read_start(folder)?;
    limits::of_worker(start.memory, start.files)?;
    // Functions have no input; that of the launcher has no end.
    let null = File::open("/dev/null")?;
    // SAFETY: a plain system call on two open descriptors.
    unsafe { libc::dup2(null.as_raw_fd(), 0) };
    process::print_lines();
    let source = start.source();
    let document = source.parse().document;
    let failed = |text: String| io::Error::other(text);
    let callee = load(&source, &document, start.compiled.as_deref()).map_err(failed)?;
    let processes = callee.join().map_err(failed)?;
    let expected = std::env::var(PROCESSES).unwrap_or_default();
    if processes.size().to_string() != expected {
        let size = processes.size();
        return Err(io::Error::other(format!(
            "MPI reports {size} processes, but {expected} were started: the launcher belongs to \
             another MPI than the library (parallel.launcher in the server's configuration)"
        )));
    }
    let mut unprotected = Vec::new();
    if let Some(sandbox) = &start.sandbox {
        let beside = [source.folder().to_path_buf()];
        let closed = sandbox.close_inside(&start.folder, &callee.folders(), &beside, None);
        unprotected.extend(closed.into_iter().map(|error| error.to_string()));
    }
    if !processes.is_first() {
        let children = start.children();
        return follow(&processes, &document, &callee, &children).map(|never| match never {});
    }
    let socket = seqpacket(SocketFlags::CLOEXEC)?;
    connect(&socket, &SocketAddrUnix::new(folder.join(SOCKET))?)?;
    end_with(socket.try_clone()?);
    let (channel, start) = Channel::open(socket)?;
    process::serve(
        channel,
        start,
        document,
        callee,
        unprotected,
        Some(processes),
    )
}

/// Ends the process when the server is gone or has given it up. Launchers may outlive the processes
/// that they should end.
fn end_with(socket: OwnedFd) {
    std::thread::spawn(move || {
        let hung_up = PollFlags::RDHUP;
        while rustix::event::poll(&mut [PollFd::new(&socket, hung_up)], None).is_err() {}
        // SAFETY: the process has nothing that it must clean up.
        unsafe { libc::_exit(1) };
    });
}

/// Tells the other processes about a call, and gives them the arrays that all need.
///
/// # Safety
/// `starts` are addresses of the layout's arrays.
pub(crate) unsafe fn lead(
    processes: &Processes,
    function: usize,
    interface: &Interface,
    call: &Call,
    layout: &Layout,
    starts: &[*mut u8],
) {
    let mut message = (function as u64).to_ne_bytes().to_vec();
    let places = Vec::new();
    Call {
        places,
        ..call.clone()
    }
    .encode(&mut message);
    processes.tell(&message);
    for (array, start) in layout.arrays.iter().zip(starts) {
        if interface.params[array.param].broadcast {
            // SAFETY: the caller's promise.
            unsafe { processes.broadcast(*start, array.bytes as usize) };
        }
    }
}

/// The failure of the first of the other processes that has one. The first process waits until all
/// of them have ended a call.
pub(crate) fn failure_of_others(processes: &Processes) -> Option<Failure> {
    let reports = processes.reports().into_iter().zip(1..);
    let mut failures = reports.filter_map(|(report, rank)| {
        let (kind, text) = report.split_first_chunk()?;
        let text = String::from_utf8_lossy(text);
        let kind = FailureKind::from_number(u32::from_ne_bytes(*kind));
        Some(Failure::new(kind, format!("{text} (process {rank})")))
    });
    failures.next()
}

/// What a process says to the first one after a call: nothing, or its failure.
fn report(failure: Option<Failure>) -> Vec<u8> {
    let report = failure.map(|failure| {
        let kind = (failure.kind as u32).to_ne_bytes();
        [&kind, failure.message.as_bytes()].concat()
    });
    report.unwrap_or_default()
}

/// Follows the first process: makes the same calls until the launcher ends.
fn follow(
    processes: &Processes,
    document: &Document,
    callee: &impl Callee,
    children: &Children,
) -> io::Result<Infallible> {
    let unheard = |text: &dyn std::fmt::Display| io::Error::other(text.to_string());
    let (mut variable, floats) = (trace::Variable::new(), Floats::now());
    let surroundings = Surroundings::now();
    loop {
        let message = processes.hear();
        let (function, message) = message
            .split_first_chunk()
            .ok_or_else(|| unheard(&"the first process sent no report"))?;
        let function = u64::from_ne_bytes(*function) as usize;
        let call = Call::decode(message).map_err(|error| unheard(&error))?;
        let interface = &document.interfaces[function];
        let layout = interface
            .layout(&call.scalars, &call.elements)
            .map_err(|error| unheard(&error))?;
        let arrays = layout.arrays.iter();
        let mut memory: Vec<Vec<u128>> = arrays.map(|array| own(interface, array)).collect();
        let starts: Vec<*mut u8> = memory
            .iter_mut()
            .map(|array| match array.is_empty() {
                true => std::ptr::null_mut(),
                false => array.as_mut_ptr().cast(),
            })
            .collect();
        for (array, start) in layout.arrays.iter().zip(&starts) {
            if interface.params[array.param].broadcast {
                // SAFETY: made for this array above.
                unsafe { processes.broadcast(*start, array.bytes as usize) };
            }
        }
        let caller: &mut Caller<'_> = &mut |_| {
            eprintln!("only the first process of a parallel function can call back");
            std::process::exit(1);
        };
        let scalars = &call.scalars;
        // SAFETY: no function runs.
        if let Some(value) = unsafe { variable.set(call.trace) } {
            callee.enter_trace(value.as_deref());
        }
        // SAFETY: the addresses are those of this layout's arrays. Arrays that only the first
        // process has are null here, which the interface's author knows.
        let called =
            unsafe { callee.invoke(function, interface, scalars, &layout, &starts, caller) };
        floats.restore();
        surroundings.restore();
        children.end();
        processes.report(&report(called.err()));
    }
}

/// Elements of 16 bytes behind each array, as behind those of the first process.
const SLACK: usize = 4;

/// Memory for an array in a process other than the first. Empty for arrays that only the first
/// process has.
fn own(interface: &Interface, array: &ArrayLayout) -> Vec<u128> {
    let param = &interface.params[array.param];
    let here = param.broadcast || param.allocate || array.bytes <= SMALL;
    vec![
        0;
        if here {
            (array.bytes as usize).div_ceil(16) + SLACK
        } else {
            0
        }
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_path_that_is_too_long_names_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let error = prepare(&long, b"{}", None).unwrap_err().to_string();
        assert!(error.contains("workers.folder"), "{error}");
    }
}

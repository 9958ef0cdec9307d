//! Launching workers: what they bind, the parameters of their start, and their processes.

use crate::callback::Mailbox;
use crate::control::Control;
use crate::environment::Environment;
use crate::files;
use crate::handle::{Parts, Worker};
use crate::nursery::Nursery;
use crate::parallel::{self, Welcome};
use crate::sandbox::Sandbox;
use farcall_idl::{Document, Interface};
use farcall_library::{Compiled, Source};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The parameters of a worker's start, as JSON in a memory object.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    /// The interface file: its path and its text after the preprocessor.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The shared library compiled from its C text.
    pub(crate) compiled: Option<PathBuf>,
    pub(crate) spin_us: u64,
    /// Threads of the library at the beginning.
    pub(crate) threads: u32,
    /// Memory limit in bytes; 0 means none.
    pub(crate) memory: u64,
    /// The worker's folder for the files of calls and for temporary files of the library.
    pub(crate) folder: PathBuf,
    /// Limit on the bytes of one call's files; 0 means none.
    pub(crate) files: u64,
    /// What it may reach; `None` if it is not confined.
    pub(crate) sandbox: Option<Sandbox>,
}

impl Start {
    pub(crate) fn source(&self) -> Source {
        Source {
            path: self.path.clone(),
            text: self.text.clone(),
        }
    }
}

/// What a worker binds: an interface file, and the shared library compiled from its C text.
pub struct LibrarySource {
    /// The interface file.
    pub source: Source,
    /// The shared library compiled from its C text.
    pub compiled: Option<Compiled>,
    /// Whether some functions have a `Backend` of several processes.
    pub parallel: bool,
}

/// The libraries behind the functions of a file, as a worker found them.
#[derive(Default, Serialize, Deserialize)]
pub struct Identities {
    /// For people: name, version, kernel.
    libraries: Vec<String>,
    /// By function, an index into `libraries`.
    functions: Vec<Option<u16>>,
}

/// A worker's report after it has bound its library.
#[derive(Default, Serialize, Deserialize)]
pub struct Ready {
    /// The libraries behind its functions.
    pub identities: Identities,
    /// Protections that this machine does not offer.
    pub unprotected: Vec<String>,
}

impl Identities {
    /// The library behind each function.
    pub fn by_function(&self) -> Vec<Option<String>> {
        let library = |index: &Option<u16>| {
            let library = self.libraries.get(usize::from((*index)?))?;
            Some(library.clone())
        };
        self.functions.iter().map(library).collect()
    }

    pub(crate) fn new(of_functions: impl Iterator<Item = Option<String>>) -> Identities {
        let mut identities = Identities::default();
        for library in of_functions {
            let index = library.map(|library| {
                let libraries = &mut identities.libraries;
                let known = libraries.iter().position(|known| *known == library);
                known.unwrap_or_else(|| {
                    libraries.push(library);
                    libraries.len() - 1
                })
            });
            let index = index.and_then(|index| u16::try_from(index).ok());
            identities.functions.push(index);
        }
        identities
    }
}

/// Whether some functions of a file have a `Backend` of several processes.
pub fn is_parallel(document: &Document) -> bool {
    document.interfaces.iter().any(Interface::is_parallel)
}

/// How workers are started.
pub struct Launcher {
    /// Starts processes.
    pub nursery: Nursery,
    /// The command that starts several processes, as words; empty for an `mpiexec` that is found.
    pub parallel: Vec<String>,
    /// Program and first arguments of a worker process.
    pub command: (PathBuf, Vec<String>),
    /// Parent of the workers' folders.
    pub folder: PathBuf,
    /// How long a worker polls for its next call before it sleeps.
    pub spin: Duration,
    /// Limit on a worker's memory in bytes; 0 means none.
    pub memory: u64,
    /// Threads of the library at the beginning.
    pub threads: u32,
    /// Limit on the bytes of one call's files; 0 means none.
    pub files: u64,
    /// Names of variables of the server's environment that functions see besides the usual ones.
    pub environment: Vec<String>,
    /// What workers may reach; `None` if they are not confined.
    pub sandbox: Option<Sandbox>,
}

impl Launcher {
    /// Starts a worker with this many processes for a library. It rings `doorbell` when the server
    /// sleeps. If its process cannot be started, its sockets are closed.
    pub fn start(
        &self,
        source: &LibrarySource,
        processes: u32,
        doorbell: BorrowedFd<'_>,
    ) -> io::Result<Worker> {
        let (output, child_output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let (control, mailbox) = (Control::create()?, Mailbox::create()?);
        let folder = self.make_folder()?;
        let text = self.start_text(source, folder.path())?;
        let welcome = Welcome::new(&text, doorbell)?;
        let program = self.program(source, processes);
        let is_parallel = source.parallel;
        let mut command = self.prepared(program, child_output, folder.path(), is_parallel);
        let (socket, process, welcome) = if is_parallel {
            let socket = parallel::prepare(folder.path(), &text)?;
            command.envs(parallel::environment(folder.path(), processes));
            (socket, self.nursery.order(command, None), Some(welcome))
        } else {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
            let process = self.nursery.order(command, Some(theirs));
            welcome.hand_over(&ours, control.fd(), mailbox.fd())?;
            (ours, process, None)
        };
        Ok(Worker::new(Parts {
            is_parallel,
            welcome,
            process,
            socket,
            output: output.into(),
            control,
            mailbox,
            folder,
        }))
    }

    /// A folder of the worker's own.
    fn make_folder(&self) -> io::Result<TempDir> {
        let parent = &self.folder;
        let folder = files::temporary_folder(parent).and_then(|folder| {
            let user = self.sandbox.as_ref().and_then(|sandbox| sandbox.user);
            if let Some((user, group)) = user {
                std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
            }
            Ok(folder)
        });
        folder.map_err(|error| {
            let parent = parent.display();
            let text = format!("no folder for files in {parent} (workers.folder): {error}");
            io::Error::new(error.kind(), text)
        })
    }

    /// The parameters of the worker's start, as JSON.
    fn start_text(&self, source: &LibrarySource, folder: &Path) -> io::Result<Vec<u8>> {
        let start = Start {
            path: source.source.path.clone(),
            text: source.source.text.clone(),
            compiled: source.compiled.as_ref().map(Compiled::path),
            spin_us: self.spin.as_micros() as u64,
            threads: self.threads,
            memory: self.memory,
            folder: folder.to_owned(),
            files: self.files,
            // Processes that compute together must reach each other.
            sandbox: self.sandbox.clone().filter(|_| !source.parallel),
        };
        serde_json::to_vec(&start).map_err(io::Error::other)
    }

    /// The program of a worker, preceded by the launcher of its processes if it has several.
    fn program(&self, source: &LibrarySource, processes: u32) -> (OsString, Vec<OsString>) {
        let (program, arguments) = match source.source.is_python() {
            true => farcall_library::python_worker(),
            false => (self.command.0.clone().into(), self.command.1.clone()),
        };
        let mut arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
        if !source.parallel {
            return (program, arguments);
        }
        let (launcher, words) = parallel::launcher(&self.parallel, processes);
        let words = words.into_iter().map(OsString::from);
        arguments = words.chain([program]).chain(arguments).collect();
        (launcher.into(), arguments)
    }

    fn prepared(
        &self,
        (program, arguments): (OsString, Vec<OsString>),
        output: OwnedFd,
        folder: &Path,
        is_parallel: bool,
    ) -> Command {
        let mut command = Command::new(program);
        command.args(arguments);
        let environment = Environment {
            named: &self.environment,
            is_parallel,
            threads: self.threads,
            folder,
        };
        let variables = environment.variables(std::env::vars_os());
        command.env_clear().envs(variables);
        let stdout = output
            .try_clone()
            .map_or_else(|_| Stdio::null(), Stdio::from);
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::from(output));
        command
    }
}

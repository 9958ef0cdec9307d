//! Launches workers: what they bind, the parameters of their start, and their processes. `handle`
//! has a worker after its start, and `namespaces` and `groups` build the walls around it. A worker
//! gets its own folder, which is removed with it.

use crate::callback::Mailbox;
use crate::children::Children;
use crate::control::Control;
use crate::environment::Environment;
use crate::files;
use crate::groups::Groups;
use crate::handle::{Parts, SOCKET_FD, Worker};
use crate::mounts::Own;
use crate::namespaces::Start as Order;
use crate::nursery::{Nursery, Process};
use crate::parallel::{self, Welcome};
use crate::sandbox::{Reach, Sandbox};
use crate::slices::{FrontOrder, Gang, Need, Slices};
use farcall_idl::{Document, Interface};
use farcall_library::{Compiled, Source};
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// The parameters of a worker's start, as JSON in a memory object.
#[derive(Serialize, Deserialize)]
pub(crate) struct Start {
    /// The interface file: its path and its text after the preprocessor.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The folder of the shared libraries compiled from its C text.
    pub(crate) compiled: Option<PathBuf>,
    pub(crate) spin_us: u64,
    /// Threads that the library may use at the start.
    pub(crate) threads: u32,
    /// Memory limit in bytes; 0 means none.
    pub(crate) memory: u64,
    /// The worker's folder for the files of calls and for temporary files of the library.
    pub(crate) folder: PathBuf,
    /// Limit on the bytes of one call's files; 0 means none.
    pub(crate) files: u64,
    /// Whether its folder is on the disk.
    pub(crate) on_disk: bool,
    /// What it may reach; `None` if it is not confined.
    pub(crate) sandbox: Option<Sandbox>,
    /// The program and its arguments, beginning with the launcher of several processes.
    pub(crate) words: Vec<OsString>,
}

impl Start {
    pub(crate) fn own(&self) -> Own {
        Own {
            files: self.files,
            on_disk: self.on_disk,
            memory: self.memory,
            user: self.sandbox.as_ref().and_then(|sandbox| sandbox.user),
        }
    }

    /// How processes end that functions start.
    pub(crate) fn children(&self) -> Children {
        let sandbox = self.sandbox.as_ref();
        let alone = sandbox.filter(|sandbox| sandbox.is_alone());
        let in_namespace = alone.is_some_and(|sandbox| sandbox.namespaces().processes);
        Children::new(sandbox.is_some(), in_namespace)
    }

    /// Why a worker cannot be told this: JSON has only paths that are UTF-8.
    fn not_told(&self, error: &serde_json::Error) -> io::Error {
        let sandbox = self.sandbox.iter();
        let walls = sandbox.flat_map(|one| [&one.read, &one.write, &one.secrets, &one.sockets]);
        let own = [&self.path, &self.folder].into_iter().chain(&self.compiled);
        let mut all = own.chain(walls.flatten());
        let text = match all.find(|path| path.to_str().is_none()) {
            Some(path) => format!(
                "the path `{}` is not UTF-8, so no worker can be told of it: rename it, or name \
                 another one",
                path.display()
            ),
            None => error.to_string(),
        };
        io::Error::new(io::ErrorKind::InvalidInput, text)
    }

    pub(crate) fn source(&self) -> Source {
        Source {
            path: self.path.clone(),
            text: self.text.clone(),
            options: Vec::new(),
        }
    }
}

/// What a worker binds: an interface file, and the shared libraries compiled from its C text.
pub struct LibrarySource {
    /// The interface file.
    pub source: Source,
    /// The shared libraries compiled from its C text.
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
    /// The files of the libraries, as they were when the worker bound them.
    #[serde(default)]
    pub files: Vec<FileStamp>,
}

/// A file at a moment. Another file in its place, and a change in it, have another stamp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file. `None` if it cannot be looked at.
    pub fn of(path: &Path) -> Option<FileStamp> {
        let file = std::fs::metadata(path).ok()?;
        Some(FileStamp {
            path: path.to_path_buf(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same file now.
    pub fn again(&self) -> Option<FileStamp> {
        FileStamp::of(&self.path)
    }
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
    /// How the server uses a gang, if it does.
    pub gang: Option<Gang>,
    /// Program and first arguments of a worker process.
    pub command: (PathBuf, Vec<String>),
    /// Parent of the workers' folders.
    pub folder: PathBuf,
    /// Whether these folders are on the disk, and not in memory of bounded size.
    pub on_disk: bool,
    /// How long a worker polls for its next call before it sleeps.
    pub spin: Duration,
    /// Limit on a worker's memory in bytes; 0 means none.
    pub memory: u64,
    /// Threads that the library may use at the start.
    pub threads: u32,
    /// Limit on the bytes of one call's files; 0 means none.
    pub files: u64,
    /// Names of variables of the server's environment that functions see besides the usual ones.
    pub environment: Vec<String>,
    /// What workers may reach; `None` if they are not confined.
    pub sandbox: Option<Sandbox>,
    /// The control groups that bound workers.
    pub groups: Groups,
    /// Processes and threads of one worker; 0 means any number.
    pub processes: u64,
    /// The connection to a gang for calls of one process, once there are any.
    pub slices: SharedSlices,
}

/// A connection to a gang that several workers share.
#[derive(Default)]
pub struct SharedSlices(OnceLock<Arc<Mutex<Slices>>>);

impl Launcher {
    /// Starts a worker with this many processes for a library. It sees the GPUs with these names,
    /// or without names those of the server. It rings `doorbell` when the server sleeps. If its
    /// process cannot be started, its sockets are closed.
    pub fn start(
        &self,
        source: &LibrarySource,
        processes: u32,
        gpus: Option<String>,
        doorbell: BorrowedFd<'_>,
    ) -> io::Result<Worker> {
        let (output, child_output) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        let (control, mailbox) = (Control::create()?, Mailbox::create()?);
        let folder = self.make_folder()?;
        let is_parallel = source.parallel;
        let work = match is_parallel {
            true => self.make_work_folder(folder.path())?,
            false => folder.path().to_path_buf(),
        };
        let has_gpus = gpus.as_ref().is_some_and(|names| !names.is_empty());
        let start = self.start_of(source, processes, &work, has_gpus);
        let text = serde_json::to_vec(&start).map_err(|error| start.not_told(&error))?;
        let user = (self.sandbox.as_ref()).and_then(|sandbox| Some(sandbox.user?.0));
        let welcome = Welcome::new(&text, doorbell, user)?;
        let sandbox = start.sandbox.as_ref();
        let mut variables = self.variables(is_parallel, &work, gpus);
        let (group, groups) = match sandbox {
            Some(_) => self
                .groups
                .make(self.memory_of(processes), self.most(processes))?,
            None => Default::default(),
        };
        let mut order = Order {
            words: start.words.clone(),
            environment: Vec::new(),
            output: child_output,
            socket: None,
            namespaces: sandbox.map(Sandbox::namespaces).unwrap_or_default(),
            groups,
            keeper: self.own_program(),
        };
        let slices = self.slices_of(is_parallel, &mut order)?;
        let (socket, welcome) = if is_parallel {
            variables.extend(parallel::environment(folder.path(), processes));
            if sandbox.is_some_and(Sandbox::walls_launcher) {
                order.words = self.own_program();
                variables.push((parallel::LAUNCH.into(), "1".into()));
            }
            (
                parallel::prepare(folder.path(), &text, user)?,
                Some(welcome),
            )
        } else {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
            order.socket = Some((theirs, SOCKET_FD));
            welcome.hand_over(&ours, control.fd(), mailbox.fd())?;
            (ours, None)
        };
        order.environment = variables;
        Ok(Worker::new(Parts {
            is_parallel,
            welcome,
            process: self.order(folder.path(), order)?,
            socket,
            output: output.into(),
            control,
            mailbox,
            folder,
            group,
            need: Need::new(slices, is_parallel),
        }))
    }

    /// Orders a process, whose folder is ready. In a folder of theirs, functions without walls
    /// could put links in the place of what this process makes, and root would change files of the
    /// system.
    fn order(&self, folder: &Path, order: Order) -> io::Result<Process> {
        self.give_to_user(folder)?;
        Ok(self.nursery.order(order))
    }

    /// Through what a worker tells a gang about its calls.
    fn slices_of(
        &self,
        is_parallel: bool,
        order: &mut Order,
    ) -> io::Result<Option<Arc<Mutex<Slices>>>> {
        match &self.gang {
            Some(gang) if is_parallel && gang.is_engine => {
                let (slices, theirs) = Slices::of_worker()?;
                order.socket = Some((theirs, SOCKET_FD));
                Ok(Some(Arc::new(Mutex::new(slices))))
            }
            Some(gang) if !is_parallel && gang.processors > 0 => self.shared_slices(gang).map(Some),
            _ => Ok(None),
        }
    }

    /// What all workers of one process share, which is started with the first of them.
    fn shared_slices(&self, gang: &Gang) -> io::Result<Arc<Mutex<Slices>>> {
        if let Some(slices) = self.slices.0.get() {
            return Ok(slices.clone());
        }
        let words = gang.words(gang.processors, SOCKET_FD, None);
        let program = self.command.0.clone().into_os_string();
        let words = words.into_iter().map(OsString::from);
        let started = Slices::of_server(FrontOrder {
            nursery: self.nursery.clone(),
            words: [program].into_iter().chain(words).collect(),
            at: SOCKET_FD,
        })?;
        Ok(self
            .slices
            .0
            .get_or_init(|| Arc::new(Mutex::new(started)))
            .clone())
    }

    /// The environment of a worker.
    fn variables(
        &self,
        is_parallel: bool,
        folder: &Path,
        gpus: Option<String>,
    ) -> Vec<(OsString, OsString)> {
        let environment = Environment {
            named: &self.environment,
            is_parallel,
            threads: self.threads,
            folder,
            gpus,
        };
        environment.variables(std::env::vars_os())
    }

    /// Memory of all processes of a worker. Files in memory count.
    fn memory_of(&self, processes: u32) -> u64 {
        let memory = self.memory.saturating_mul(u64::from(processes.max(1)));
        match memory {
            0 => 0,
            memory => memory.saturating_add(self.files),
        }
    }

    /// Most processes and threads of a worker.
    fn most(&self, processes: u32) -> u64 {
        self.processes.saturating_mul(u64::from(processes.max(1)))
    }

    /// The folder in which processes that compute together work. The socket of the server is beside
    /// it.
    fn make_work_folder(&self, folder: &Path) -> io::Result<PathBuf> {
        let work = folder.join("work");
        std::fs::DirBuilder::new().mode(0o700).create(&work)?;
        self.give_to_user(&work)?;
        Ok(work)
    }

    /// Makes the user of the functions the owner of a folder.
    fn give_to_user(&self, folder: &Path) -> io::Result<()> {
        let user = self.sandbox.as_ref().and_then(|sandbox| sandbox.user);
        match user {
            Some((user, group)) => chown(folder, Some(user), Some(group)),
            None => Ok(()),
        }
    }

    /// A folder for the worker, which nobody else can enter yet.
    fn make_folder(&self) -> io::Result<TempDir> {
        let parent = &self.folder;
        files::temporary_folder(parent).map_err(|error| {
            let parent = parent.display();
            let text = format!("no folder for files in {parent} (workers.folder): {error}");
            io::Error::new(error.kind(), text)
        })
    }

    /// The parameters of the worker's start.
    fn start_of(&self, source: &LibrarySource, processes: u32, folder: &Path, gpus: bool) -> Start {
        let is_by_mpiexec = self.parallel.is_empty() && self.engine().is_none();
        let reach = match (source.parallel, is_by_mpiexec) {
            (false, _) => Reach::Alone,
            (true, true) => Reach::Node,
            (true, false) => Reach::Nodes,
        };
        Start {
            path: source.source.path.clone(),
            text: source.source.text.clone(),
            compiled: source.compiled.as_ref().map(Compiled::path),
            spin_us: self.spin.as_micros() as u64,
            threads: self.threads,
            memory: self.memory,
            folder: folder.to_owned(),
            files: self.files,
            on_disk: self.on_disk,
            sandbox: self.sandbox.clone().map(|sandbox| Sandbox {
                reach,
                gpus,
                ..sandbox
            }),
            words: self.words(source, processes),
        }
    }

    /// The program of a worker and its arguments, preceded by the launcher of its processes if it
    /// has several.
    fn words(&self, source: &LibrarySource, processes: u32) -> Vec<OsString> {
        let (program, arguments) = match source.source.is_python() {
            true => farcall_library::python_worker(),
            false => (self.command.0.clone().into(), self.command.1.clone()),
        };
        let user = self.sandbox.as_ref().and_then(|sandbox| sandbox.user);
        let launcher = match (source.parallel, self.engine()) {
            (true, Some(gang)) => {
                let own = self.command.0.to_string_lossy().into_owned();
                let words = gang.words(processes, SOCKET_FD, user);
                [own].into_iter().chain(words).collect()
            }
            (true, None) => parallel::launcher(&self.parallel, processes),
            (false, _) => Vec::new(),
        };
        let launcher = launcher.into_iter().map(OsString::from);
        let arguments = arguments.into_iter().map(OsString::from);
        launcher.chain([program]).chain(arguments).collect()
    }

    /// The gang that runs functions of several processes, if one does.
    fn engine(&self) -> Option<&Gang> {
        self.gang.as_ref().filter(|gang| gang.is_engine)
    }

    /// The server's own program as a worker. It keeps a namespace, or builds walls around a
    /// launcher.
    fn own_program(&self) -> Vec<OsString> {
        let (program, arguments) = &self.command;
        let arguments = arguments.iter().map(OsString::from);
        [program.clone().into()]
            .into_iter()
            .chain(arguments)
            .collect()
    }
}

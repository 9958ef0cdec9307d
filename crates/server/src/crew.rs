//! The worker processes: starts them, gives them calls, and ends them as the server decides. The
//! crate `worker` talks to a process. A worker that dies is reported once, by its socket; an
//! operation that meets a dead worker is not an error.

use crate::WorkerCommand;
use crate::config::{Config, Engine, Parallel};
use crate::memories::Memories;
use crate::poll::{Poll, Source};
use farcall_idl::{Document, MOST_GPUS};
use farcall_library::{Catalog, CompileError, Source as Interfaces};
use farcall_rpc_proto::{CallbackAnswer, Failure, FailureKind};
use farcall_server_proto::{
    Action, Beside, CallKey, Death, Event, Gpus, Key, MemoryKey, Server, Withdrawal as Known,
    WorkerKey,
};
use farcall_worker::{
    FileStamp, Gang, Launcher, LibrarySource, Nursery, Ready, Run, SharedSlices, Walls, Withdrawal,
    Worker, is_parallel, no_process, remove_left_over,
};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The worker processes, and what they bind.
pub(crate) struct Crew {
    launcher: Launcher,
    catalog: Catalog,
    libraries: Vec<LibrarySource>,
    /// The names of the GPUs that calls share, as CUDA knows them.
    gpus: Vec<String>,
    pub(crate) workers: Beside<WorkerKey, Worker>,
    /// The library of each worker.
    bound_to: Beside<WorkerKey, usize>,
    /// The doorbell of each worker. A function can ring and silence that of its own worker, and so
    /// no worker has that of another one.
    doorbells: Beside<WorkerKey, OwnedFd>,
    /// Those that have closed their connection and go on.
    lingering: Vec<WorkerKey>,
    /// The files of each library, as its first worker or the last reload found them.
    files: Vec<Vec<FileStamp>>,
    /// Whether a server without all walls must not start.
    pub(crate) walls_required: bool,
    /// Why the last worker that could not be started has no process.
    pub(crate) unstarted: String,
}

impl Drop for Crew {
    /// Waits for the ends of all workers: the control group of a process that still ends would be
    /// left.
    fn drop(&mut self) {
        self.end_all();
    }
}

impl Crew {
    pub(crate) fn new(
        config: &Config,
        (catalog, libraries): (Catalog, Vec<LibrarySource>),
        command: WorkerCommand,
    ) -> io::Result<Crew> {
        remove_left_over(&config.workers.folder());
        Ok(Crew {
            launcher: launcher(config, command)?,
            catalog,
            libraries,
            gpus: config.queue.gpus()?,
            workers: Beside::default(),
            bound_to: Beside::default(),
            doorbells: Beside::default(),
            lingering: Vec::new(),
            files: Vec::new(),
            walls_required: config.workers.walls_required,
            unstarted: String::new(),
        })
    }

    /// Notes the files of a library that a worker has bound.
    pub(crate) fn bound(&mut self, key: WorkerKey, ready: &Ready) {
        let Some(library) = self.bound_to.get(key).copied() else {
            return;
        };
        if self.files.len() <= library {
            self.files.resize(library + 1, Vec::new());
        }
        if self.files[library].is_empty() {
            self.files[library].clone_from(&ready.files);
            let interface = self.libraries.get(library).map(|one| &one.source.path);
            self.files[library].extend(interface.and_then(|path| FileStamp::of(path)));
        }
    }

    /// The libraries whose files have changed since the last call of this. A changed interface
    /// holds after a restart only.
    pub(crate) fn changed(&mut self) -> Vec<usize> {
        let mut changed = Vec::new();
        for (library, stamps) in self.files.iter_mut().enumerate() {
            let interface = self.libraries.get(library).map(|one| &*one.source.path);
            for stamp in stamps {
                let Some(now) = stamp.again().filter(|now| now != stamp) else {
                    continue;
                };
                let path = now.path().to_path_buf();
                *stamp = now;
                if interface == Some(&path) {
                    tracing::warn!(
                        "{} has changed and holds after a restart (`farcall serve --takeover` \
                         starts a server in the place of this one)",
                        path.display()
                    );
                } else if changed.last() != Some(&library) {
                    tracing::info!("{} has changed: new calls use it", path.display());
                    changed.push(library);
                }
            }
        }
        changed
    }

    /// Hides what functions must not see by the settings that hold now, besides what was hidden
    /// before. Returns the libraries of the workers that do not hide it.
    pub(crate) fn hide(&mut self, secrets: Vec<PathBuf>) -> BTreeSet<usize> {
        let Some(sandbox) = &mut self.launcher.sandbox else {
            return BTreeSet::new();
        };
        let before = sandbox.secrets.len();
        for path in secrets {
            if !sandbox.secrets.contains(&path) {
                sandbox.secrets.push(path);
            }
        }
        match sandbox.secrets.len() > before {
            true => self.bound_to.iter().map(|(_, library)| *library).collect(),
            false => BTreeSet::new(),
        }
    }

    /// The interface files of the server.
    pub(crate) fn documents(&self) -> impl Iterator<Item = &Document> {
        self.catalog.files().map(|(_, document)| document)
    }

    /// Performs an action on workers. Returns the resulting event if it is known at once.
    pub(crate) fn execute(
        &mut self,
        action: Action,
        server: &Server,
        memories: &Memories,
        poll: &Poll,
    ) -> Option<Event> {
        match action {
            Action::StartWorker {
                worker,
                library,
                processes,
                gpus,
            } => {
                let started = self.start((worker, library), (processes, gpus), poll);
                return started.err().map(|error| {
                    self.unstarted = error.to_string();
                    let death = Death {
                        kind: FailureKind::Internal,
                        cause: no_process(&error),
                        had_begun: false,
                        is_foreign: false,
                        is_unborn: true,
                    };
                    Event::Died(worker, death)
                });
            }
            Action::Run { worker, call } => return self.run(worker, call, server, memories),
            Action::Withdraw { worker, call } => return Some(self.withdraw(worker, call)),
            Action::Answer { worker, answer } => self.answer(worker, &answer),
            Action::EndWorker { worker, reason } => self.end(worker, reason.kind, reason.message),
            Action::CheckLibrary { path, text } => {
                return Some(Event::Library(self.check_library(path, text)));
            }
            Action::KeepLibrary => {
                if let Some(library) = self.libraries.last() {
                    // The file was checked before.
                    let _ = self.catalog.add(library.source.clone());
                }
            }
            Action::ForgetLibrary => drop(self.libraries.pop()),
            _ => {}
        }
        None
    }

    fn start(
        &mut self,
        (key, library): (WorkerKey, usize),
        (processes, gpus): (u32, Gpus),
        poll: &Poll,
    ) -> io::Result<()> {
        let source = self.libraries.get(library);
        let source = source.ok_or(io::ErrorKind::NotFound)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let names = self.names(gpus);
        let worker = self
            .launcher
            .start(source, processes, names, doorbell.as_fd())?;
        self.bound_to.insert(key, library);
        // Each ring is an event of its own, so nobody has to read the number of rings.
        let rings = EventFlags::IN | EventFlags::ET;
        let watched = poll
            .watch(doorbell.as_fd(), Source::Doorbell, rings)
            .and_then(|()| {
                let source = Source::WorkerSocket(key);
                poll.watch(worker.socket(), source, EventFlags::IN)
            })
            .and_then(|()| {
                let source = Source::WorkerOutput(key);
                poll.watch(worker.output(), source, EventFlags::IN)
            });
        self.workers.insert(key, worker);
        self.doorbells.insert(key, doorbell);
        if watched.is_err() {
            // Nobody would learn of its end.
            self.end(key, FailureKind::Internal, "cannot be watched".to_string());
            self.bury(key, poll);
        }
        watched
    }

    /// Number of GPUs that calls share.
    pub(crate) fn gpus(&self) -> u32 {
        u32::try_from(self.gpus.len()).unwrap_or(MOST_GPUS)
    }

    /// The names of GPUs, as CUDA knows them. `None` if calls share none.
    fn names(&self, gpus: Gpus) -> Option<String> {
        let names = gpus.numbers().filter_map(|number| self.gpus.get(number));
        let names: Vec<&str> = names.map(String::as_str).collect();
        (!self.gpus.is_empty()).then(|| names.join(","))
    }

    fn run(
        &mut self,
        key: WorkerKey,
        call: CallKey,
        server: &Server,
        memories: &Memories,
    ) -> Option<Event> {
        let worker = self.workers.get_mut(key);
        let request = server.overview().request(call);
        let (Some(worker), Some(request)) = (worker, request) else {
            return Some(Event::NotRun(key, "it has no process".to_string()));
        };
        let run = Run {
            function: request.function,
            buffer: request.buffer.map_or(0, Key::number),
            swap: request.swap,
            pes: request.pes,
            alone: request.alone,
            message: request.message,
        };
        let segments = request.segments.iter().map(|segment| segment.memory);
        let memory = request.buffer.into_iter().chain(segments);
        let memory = memory.chain(request.arrays.iter().copied());
        let memory = memory.filter_map(|memory| memories.get(memory));
        match worker.run(call.number(), &run, memory) {
            // If the worker is dead, its death is handled separately.
            Err(error) if !is_gone(&error) => Some(Event::NotRun(key, error.to_string())),
            _ => None,
        }
    }

    fn withdraw(&mut self, key: WorkerKey, call: CallKey) -> Event {
        let worker = self.workers.get_mut(key);
        let withdrawal = worker.map(|worker| worker.withdraw(call.number()));
        let withdrawal = match withdrawal {
            Some(Withdrawal::Done) => Known::Done,
            Some(Withdrawal::Runs) => Known::Runs,
            Some(Withdrawal::Finished) | None => Known::Finished,
        };
        Event::Withdrawn(key, call, withdrawal)
    }

    fn answer(&mut self, key: WorkerKey, answer: &CallbackAnswer) {
        let Some(worker) = self.workers.get_mut(key) else {
            return;
        };
        // If the worker is dead, its death is handled separately.
        if let Err(error) = worker.answer(answer)
            && !is_gone(&error)
        {
            let text = format!("could not be given the answer of its callback: {error}");
            worker.end(FailureKind::Internal, text);
        }
    }

    pub(crate) fn end(&mut self, key: WorkerKey, kind: FailureKind, why: String) {
        if let Some(worker) = self.workers.get_mut(key) {
            worker.end(kind, why);
        }
    }

    /// Accepts the first process of a parallel worker, if it has connected.
    pub(crate) fn admit_first_process(&mut self, key: WorkerKey, poll: &Poll) -> io::Result<()> {
        let Some(worker) = self.workers.get_mut(key) else {
            return Ok(());
        };
        // The old descriptor may stay open for a while in a process that is about to start.
        poll.forget(worker.socket());
        worker.admit()?;
        poll.watch(worker.socket(), Source::WorkerSocket(key), EventFlags::IN)
    }

    /// Whether the process of a worker that has closed its connection goes on. Its end is then an
    /// event of the worker's socket.
    pub(crate) fn lingers(&mut self, key: WorkerKey, poll: &Poll) -> bool {
        let Some(worker) = self.workers.get_mut(key) else {
            return false;
        };
        if !worker.lingers() {
            return false;
        }
        if !self.lingering.contains(&key) {
            let source = Source::WorkerSocket(key);
            let watch = |end| poll.watch(end, source, EventFlags::IN).is_ok();
            if !worker.end_of_process().is_some_and(watch) {
                return false;
            }
            poll.forget(worker.socket());
            poll.forget(worker.output());
            self.lingering.push(key);
        }
        true
    }

    /// Kills the lingering processes that had their time. Returns the time of the next one.
    pub(crate) fn hurry(&mut self) -> Option<Duration> {
        let workers = &mut self.workers;
        let left = |key: &WorkerKey| workers.get_mut(*key)?.hurry();
        self.lingering.iter().filter_map(left).min()
    }

    /// Removes a worker that is dead or about to die.
    pub(crate) fn bury(&mut self, key: WorkerKey, poll: &Poll) -> Option<Death> {
        let worker = self.workers.remove(key)?;
        self.bound_to.remove(key);
        if let Some(doorbell) = self.doorbells.remove(key) {
            poll.forget(&doorbell);
        }
        self.lingering.retain(|lingering| *lingering != key);
        poll.forget(worker.socket());
        poll.forget(worker.output());
        if let Some(end) = worker.end_of_process() {
            poll.forget(end);
        }
        let had_begun = worker.has_begun();
        let death = worker.bury();
        Some(Death {
            kind: death.kind(),
            cause: death.cause(self.launcher.memory),
            had_begun,
            is_foreign: death.is_foreign(),
            is_unborn: death.is_unborn(),
        })
    }

    /// Makes all workers forget a memory object.
    pub(crate) fn forget(&mut self, memory: MemoryKey) {
        for (_, worker) in self.workers.iter_mut() {
            worker.forget(memory.number());
        }
    }

    /// Ends all workers when the server ends.
    pub(crate) fn end_all(&mut self) {
        for (_, worker) in self.workers.iter_mut() {
            worker.end(FailureKind::ServerStopping, "was ended with its server");
        }
        for place in 0..self.workers.places() {
            if let Some(key) = self.workers.at(place)
                && let Some(worker) = self.workers.remove(key)
            {
                worker.bury();
            }
        }
    }

    /// Asks every running worker to ring the doorbell. Returns `false` if one has finished
    /// meanwhile.
    pub(crate) fn ask_for_doorbells(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.all(|(_, worker)| worker.ask_for_doorbell())
    }

    /// Checks whether an interface file can be served.
    fn check_library(&mut self, path: String, text: String) -> Result<(String, Document), Failure> {
        let source = Interfaces {
            path: path.clone().into(),
            text,
            options: Vec::new(),
        };
        let refuse = |text: String| Failure::new(FailureKind::BadArgument, text);
        if source.is_python() {
            let text = "a Python module is served by a server that is started with it";
            return Err(refuse(text.to_string()));
        }
        let document = self.catalog.check(&source);
        let document = document.map_err(|error| refuse(error.to_string()))?;
        farcall_library::compile(&document, &source, false).map_err(|error| {
            refuse(match error {
                CompileError::NotAllowed { function } => format!(
                    "`{function}` has a body in C, which is compiled when a server starts: \
                     start it with this file"
                ),
                other => other.to_string(),
            })
        })?;
        self.libraries.push(LibrarySource {
            source,
            compiled: None,
            parallel: is_parallel(&document),
        });
        Ok((path, document))
    }
}

/// The launcher that starts workers.
fn launcher(config: &Config, command: WorkerCommand) -> io::Result<Launcher> {
    let settings = config.queue.settings(&config.workers);
    let elements = config.workers.elements();
    let walls = walls(config)?;
    let Parallel { engine, launcher } = &config.parallel;
    if *engine == Engine::Gang && !launcher.is_empty() {
        tracing::warn!(
            "parallel.launcher has no effect beside parallel.engine = \"gang\", with which the \
             gang daemon starts the processes: leave one of the two out"
        );
    }
    Ok(Launcher {
        nursery: Nursery::open()?,
        parallel: launcher.clone(),
        gang: Some(Gang {
            control: config.gang.control.clone(),
            is_engine: *engine == Engine::Gang,
            processors: config.gang.processors,
        }),
        command,
        threads: match settings.policy {
            farcall_schedule::Policy::AtOnce => settings.pes,
            _ => elements.min(settings.pes),
        },
        folder: config.workers.folder(),
        on_disk: config.workers.folder.is_some(),
        spin: config.workers.spin(),
        memory: config.workers.memory,
        files: config.limits.files,
        environment: config.workers.environment.clone(),
        sandbox: config.sandbox(&walls)?,
        groups: walls.groups,
        processes: config.workers.processes,
        slices: SharedSlices::default(),
    })
}

/// The walls around workers, which the log reports.
fn walls(config: &Config) -> io::Result<Walls> {
    if !config.workers.sandbox {
        return without_walls(config.workers.walls_required);
    }
    let mut walls = Walls::available();
    tracing::info!("walls around functions: {}", walls.standing());
    let Parallel { engine, launcher } = &config.parallel;
    let by_others = *engine == Engine::Mpiexec && !launcher.is_empty();
    if by_others && rustix::process::geteuid().is_root() {
        let text = "functions of several processes run as root under parallel.launcher: let the \
                    server run as another user";
        walls.missing.push(text.to_string());
    }
    for reason in &walls.missing {
        tracing::warn!("workers are not fully protected: {reason}");
    }
    for reason in &walls.weaker {
        tracing::info!("{reason}");
    }
    if config.workers.walls_required && !walls.missing.is_empty() {
        let missing = walls.missing.join("; ");
        let text = format!("{missing} (workers.walls_required in the configuration)");
        return Err(io::Error::other(text));
    }
    Ok(walls)
}

/// No walls, which an operator may want. Warns if functions then have the rights of root.
fn without_walls(are_required: bool) -> io::Result<Walls> {
    if are_required {
        let text = "functions have no walls without a sandbox (workers.sandbox = false, or \
                    --no-sandbox), and workers.walls_required wants all of them: drop one of the \
                    two settings";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    match rustix::process::geteuid().is_root() {
        true => tracing::warn!(
            "functions run as root and can change everything on this machine: there is no sandbox; \
             let the server run as another user"
        ),
        false => tracing::info!("functions can do what the server can do: there is no sandbox"),
    }
    Ok(Walls::default())
}

/// Whether the process at the other end has ended.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
    gone.contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Workers;
    use std::fs;

    #[test]
    fn walls_cannot_be_required_without_a_sandbox() {
        let mut config = Config::default();
        (config.workers.sandbox, config.workers.walls_required) = (false, true);
        let error = walls(&config).unwrap_err().to_string();
        for setting in ["workers.sandbox", "--no-sandbox", "workers.walls_required"] {
            assert!(error.contains(setting), "{error}");
        }
        config.workers.walls_required = false;
        assert!(walls(&config).is_ok());
    }

    #[test]
    fn a_worker_that_cannot_be_watched_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let workers = Workers {
            sandbox: false,
            folder: Some(folder.path().to_path_buf()),
            ..Workers::default()
        };
        let config = Config {
            workers,
            ..Config::default()
        };
        let library = LibrarySource {
            source: Interfaces {
                path: "f.idl".into(),
                text: String::new(),
                options: Vec::new(),
            },
            compiled: None,
            parallel: false,
        };
        let command = ("sleep".into(), vec!["1000".to_string()]);
        let mut crew = Crew::new(&config, (Catalog::default(), vec![library]), command).unwrap();
        let (poll, key) = (Poll::broken().unwrap(), WorkerKey::new(0, 1));
        let started = crew.start((key, 0), (1, Gpus::default()), &poll);
        assert!(started.is_err());
        assert!(crew.workers.get(key).is_none() && crew.bound_to.get(key).is_none());
        assert!(crew.doorbells.get(key).is_none());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let children = fs::read_dir("/proc/self/task").unwrap().map(|task| {
            let children = task.unwrap().path().join("children");
            fs::read_to_string(children).unwrap_or_default()
        });
        let names = children.map(|children| {
            let name = |id| fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
            children.split_whitespace().map(name).collect::<String>()
        });
        assert!(!names.collect::<String>().contains("sleep"));
    }
}

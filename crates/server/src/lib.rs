//! The computational server: the shell around `farcall-server-proto`. It owns the sockets and the
//! call buffers. Worker processes map the buffers and call the library in place.
//!
//! [`Server::bind`] takes a typed [`Config`] and the [`Catalog`] to serve, and returns when every
//! library is bound. [`Server::run`] serves until SIGTERM or SIGINT. A worker process is this
//! program started again with the command in [`WorkerCommand`], which must call [`run_worker`].
//!
//! `farcall-server-proto` makes all decisions. In this crate, from the outside in: `reactor` is the
//! one thread that waits, reports events to the server and performs its actions; `socket` moves
//! bytes between a client, the protocol and the memory of calls; `disk` has what outlives the
//! server; `folder` is the operator's data; `learned` saves what was learned; [`member`] joins
//! metaservers. Workers are in `farcall-worker`.

mod arrivals;
mod audit;
mod clock;
mod config;
mod crew;
mod disk;
mod disk_use;
mod folder;
mod learned;
mod listen;
pub mod member;
mod memories;
mod metrics;
mod poll;
mod reactor;
mod socket;
mod sources;
mod spans;
pub mod state;

pub use config::{Config, Data, Parallel, Queue, Record, Tracing, Workers};
pub use disk::DiskError;
pub use farcall_library::Catalog;
pub use farcall_schedule::Policy;
pub use farcall_server_proto::{DurableLimits, Limits};
pub use farcall_worker::{Walls, run_worker};
pub use metrics::Readings;
pub use sources::{Source as DataSource, Sources};

use access::{Access, TokenError};
use audit::Audit;
use farcall_access as access;
use farcall_idl::Document;
use farcall_library::{CompileError, Source};
use farcall_otlp::{Endpoint, EndpointError, Exporter};
use farcall_recorder::Recorder;
use farcall_tls::FileError;
use farcall_worker::LibrarySource;
use listen::Listener;
use reactor::{Logs, Reactor};
use std::collections::BTreeSet;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// The status of a server at a time.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// The time.
    pub at: Instant,
    /// The status.
    pub status: farcall_server_proto::ServerStatus,
}

impl Deref for ServerStatus {
    type Target = farcall_server_proto::ServerStatus;

    fn deref(&self) -> &Self::Target {
        &self.status
    }
}

impl DerefMut for ServerStatus {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.status
    }
}

/// The program that becomes a worker by calling [`run_worker`], and its first arguments.
pub type WorkerCommand = (PathBuf, Vec<String>);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server cannot listen on an address.
    #[error("cannot listen on {address}: {source}{}", listen_hint(.address, .source))]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The state folder cannot be made, or belongs to another user.
    #[error("the state folder {}: {source}; --state names another folder", folder.display())]
    State {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration has neither an address nor a Unix socket to listen on.
    #[error("nothing to listen on: give an address or a Unix socket")]
    NowhereToListen,
    /// The C text of an interface file cannot be compiled, or is not allowed.
    #[error("{}: {source}", path.display())]
    Compile {
        /// The interface file.
        path: PathBuf,
        /// What is wrong.
        source: CompileError,
    },
    /// The durable calls of an earlier server cannot be read.
    #[error("durable calls in {}: {source}", path.display())]
    Journal {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        source: DiskError,
    },
    /// A library cannot be bound, or its worker cannot be started.
    #[error("{0}")]
    Library(String),
    /// The server's certificate, its key or the clients' certificates cannot be used.
    #[error("TLS: {}; {}", .0, .0.remedy())]
    Tls(#[from] FileError),
    /// The token file cannot be used.
    #[error("tokens: {0}")]
    Tokens(#[from] TokenError),
    /// The audit log cannot be opened.
    #[error("{}: {source}; name another file with --audit", path.display())]
    Audit {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Spans cannot go where they should.
    #[error("{0} (tracing.otlp in the configuration, or --otlp)")]
    Tracing(#[from] EndpointError),
    /// SIGTERM or SIGINT came before every function could be called.
    #[error("the server was stopped while it started")]
    Stopped,
    /// Another error of the system.
    #[error("cannot start the server: {0}")]
    System(#[from] io::Error),
}

fn listen_hint(address: &str, error: &io::Error) -> &'static str {
    let is_unix = address.starts_with("unix:");
    match error.kind() {
        io::ErrorKind::AlreadyExists => "; name another path with --unix, or move the file away",
        io::ErrorKind::AddrInUse if is_unix => {
            "; another process listens there: choose another path, or take over from a server of \
             yours with --takeover"
        }
        io::ErrorKind::AddrInUse => {
            "; another process listens there: choose another port, or port 0, or take over from a \
             server of yours with --takeover"
        }
        io::ErrorKind::PermissionDenied if !is_unix => {
            "; ports below 1024 need root or the capability \
         CAP_NET_BIND_SERVICE"
        }
        _ => "",
    }
}

/// A server that listens.
pub struct Server {
    addresses: Vec<String>,
    number: u64,
    reactor: Reactor,
}

impl Server {
    /// Binds the libraries and listens. When it returns, every function can be called.
    pub fn bind(
        config: Config,
        catalog: Catalog,
        worker: WorkerCommand,
    ) -> Result<Server, StartError> {
        if let Some(folder) = &config.state {
            disk::guard::prepare(folder).map_err(|source| StartError::State {
                folder: folder.clone(),
                source,
            })?;
        }
        let libraries = libraries(&catalog, config.allow_code)?;
        let access = Access::new("server", &config.access, config.tls.as_ref())?;
        let audit = config.access.audit.as_deref().map(|path| {
            Audit::open(path).map_err(|source| StartError::Audit {
                path: path.to_path_buf(),
                source,
            })
        });
        let audit = audit.transpose()?;
        let collector = config.tracing.otlp.as_deref().map(str::parse).transpose()?;
        let listeners = listen(&config)?;
        warn_of_strangers(&config, &access);
        warn_of_authority(&config);
        for function in unserved(&config, &catalog) {
            tracing::warn!(
                "the server has no function `{function}` (queue.priorities in the configuration): \
                 write its name as `farcall ls` shows it"
            );
        }
        for (what, path) in config.missing_folders() {
            tracing::warn!(
                "functions cannot {what} {} (workers.{what} in the configuration), which does not \
                 exist: make it, or correct its path",
                path.display()
            );
        }
        let addresses: Vec<String> = listeners.iter().filter_map(Listener::address).collect();
        config.check_folders()?;
        let served = (catalog, libraries);
        let number = member::random_number()?;
        let logs = Logs {
            audit,
            recorder: recorder(&config, &addresses, number)?,
            spans: collector
                .map(|collector| exporter(collector, &addresses))
                .transpose()?,
        };
        let mut reactor = Reactor::new(config, access, logs, listeners, served, worker)?;
        reactor.open_disk()?;
        if !reactor.warm_up().map_err(StartError::Library)? {
            return Err(StartError::Stopped);
        }
        Ok(Server {
            addresses,
            number,
            reactor,
        })
    }

    /// The random number by which metaservers know it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The addresses at which it listens, as clients write them.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The status of the server, now and after every change, at most some dozen times a second, for
    /// metaservers. A newer status replaces one that was not taken.
    pub fn subscribe(&mut self) -> Receiver<ServerStatus> {
        self.reactor.subscribe()
    }

    /// A handle to ask for metrics from any thread.
    ///
    /// # Errors
    /// The system refuses a thread or a descriptor.
    pub fn readings(&mut self) -> io::Result<Readings> {
        self.reactor.readings()
    }

    /// Number of functions.
    pub fn functions(&self) -> usize {
        self.reactor.functions()
    }

    /// Sets how the configuration is read again after SIGHUP.
    pub fn reread_with(&mut self, reread: impl Fn() -> Result<Config, String> + 'static) {
        self.reactor.reread_with(Box::new(reread));
    }

    /// Serves until SIGTERM or SIGINT. After SIGHUP, it reads its certificates, tokens and
    /// configuration again. After SIGUSR1 or a drain request of an operator, serves
    /// until its current calls have ended. Calls that are still open then fail with a message that
    /// says so.
    pub fn run(mut self) -> io::Result<()> {
        self.reactor.run()
    }
}

/// What writes the record of calls, if there is one. Each line states the first address.
fn recorder(config: &Config, addresses: &[String], number: u64) -> io::Result<Option<Recorder>> {
    let Some(folder) = config.record_folder() else {
        return Ok(None);
    };
    let recorder = Recorder::start(farcall_recorder::Settings {
        folder,
        bytes: config.record.bytes,
        server: addresses
            .first()
            .map_or_else(String::new, |address| reachable(address)),
        id: format!("{number:016x}"),
        program: concat!("farcall-server ", env!("CARGO_PKG_VERSION")).to_owned(),
    })?;
    Ok(Some(recorder))
}

/// What sends the spans of calls to a collector.
fn exporter(
    endpoint: Endpoint,
    addresses: &[String],
) -> io::Result<Exporter<Box<farcall_server_proto::TracedCall>>> {
    let address = addresses.first().map(|address| reachable(address));
    let settings = farcall_otlp::Settings {
        endpoint,
        resource: vec![
            ("service.name", "farcall-server".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", address.unwrap_or_default()),
        ],
    };
    Exporter::start(settings, spans::MOST, spans::make)
}

/// An address with the name of this host in place of "all addresses", so that records of several
/// hosts can be told apart.
fn reachable(address: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    address
        .replacen("0.0.0.0", &host, 1)
        .replacen("[::]", &host, 1)
}

/// One library for each interface file, with its C text compiled.
fn libraries(catalog: &Catalog, allow_code: bool) -> Result<Vec<LibrarySource>, StartError> {
    let library = |(source, document): (&Source, &Document)| {
        let compiled = farcall_library::compile(document, source, allow_code).map_err(|error| {
            StartError::Compile {
                path: source.path.clone(),
                source: error,
            }
        })?;
        Ok(LibrarySource {
            source: source.clone(),
            compiled,
            parallel: farcall_worker::is_parallel(document),
        })
    };
    catalog.files().map(library).collect()
}

/// Warns if anybody on a network may call, or nobody over TCP.
fn warn_of_strangers(config: &Config, access: &Access) {
    let open = config.listen.iter().find(|at| !at.ip().is_loopback());
    if let Some(address) = open.filter(|_| access.is_open()) {
        tracing::warn!(
            "anyone who can reach {address} can call: give users tokens (`farcall access token \
             add`, --tokens), or certificates (--tls-clients)"
        );
    }
    let certificates = config.tls.as_ref().and_then(|tls| tls.clients.as_ref());
    let is_closed = config.access.tokens.is_none() && certificates.is_none() && !access.is_open();
    if is_closed && !config.listen.is_empty() {
        tracing::warn!(
            "nobody can connect over TCP: access.anonymous is false, and there are neither tokens \
             (access.tokens) nor certificates of clients (tls.clients)"
        );
    }
}

/// Warns if the key of an authority is where the server reads its own key.
fn warn_of_authority(config: &Config) {
    let beside = config.tls.iter().find_map(access::Tls::authority_beside);
    if let Some(path) = beside {
        tracing::warn!(
            "{} can sign certificates for every user, and the server does not need it: move it to \
             {}",
            path.display(),
            access::authority_folder(path.parent().unwrap_or(&path)).display()
        );
    }
}

/// Functions that have a priority and are not served. A library may be registered later.
fn unserved<'c>(config: &'c Config, catalog: &Catalog) -> Vec<&'c str> {
    let documents = catalog.files().map(|(_, document)| document);
    let served: BTreeSet<_> = documents
        .flat_map(Document::functions)
        .map(|function| function.qualified_name())
        .collect();
    let named = config.queue.priorities.keys().map(String::as_str);
    named.filter(|name| !served.contains(*name)).collect()
}

fn listen(config: &Config) -> Result<Vec<Listener>, StartError> {
    let mut listeners = Vec::new();
    let identity = config.tls.as_ref().map(access::Tls::identity);
    let identity = identity.transpose()?;
    for address in &config.listen {
        let all = &config.listen;
        let take = || Listener::tcp(*address, all, identity.clone(), config.takeover);
        let listener = farcall_child::take_address(take);
        let listener = listener.map_err(|source| StartError::Listen {
            address: format!("farcall://{address}"),
            source,
        })?;
        listeners.push(listener);
    }
    if let Some(path) = &config.unix {
        let listener = farcall_child::take_address(|| Listener::unix(path, config.takeover));
        let listener = listener.map_err(|source| StartError::Listen {
            address: format!("unix://{}", path.display()),
            source,
        })?;
        listeners.push(listener);
    }
    if listeners.is_empty() {
        return Err(StartError::NowhereToListen);
    }
    if config.listen.is_empty() {
        tracing::info!(
            "only programs on this machine can connect, by the Unix socket: there is no TCP \
             address (`listen` in the configuration, or --listen)"
        );
    }
    listeners.push(Listener::local()?);
    Ok(listeners)
}

//! `farcall serve`

use crate::failure::Failure;
use crate::log::Log;
use clap::Args;
use farcall_access::Tls;
use farcall_client::{Address, Credentials, Options};
use farcall_library::Catalog;
use farcall_metrics::Answer;
use farcall_server::member::{self, Member};
use farcall_server::{Config, Policy, Server};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::thread::JoinHandle;

/// Serve the functions of interface files
///
/// Prints `listening on ADDRESS` once every function can be called, and serves until Ctrl-C or
/// SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall serve libraries/lapack.idl
  farcall serve libraries/*.idl --listen 0.0.0.0:3717 --workers 4
  farcall serve libraries/lapack.idl --listen 0.0.0.0:3717 --tls certificates --tokens tokens
  farcall serve my.idl --policy sjf --pes 8 --threads 2
  farcall serve my.idl --metaserver meta://host:3718 --listen 0.0.0.0:0
  farcall serve my.idl --takeover --state DIR     # instead of the server that runs there
  farcall serve my.idl --unix /tmp/farcall.sock --listen 127.0.0.1:0")]
pub(crate) struct Arguments {
    /// Interface files
    #[arg(required = true, value_name = "IDL")]
    files: Vec<PathBuf>,
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:3717]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Unix socket to listen on; without --listen, on nothing else
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Folder for what outlives the server [default: $STATE_DIRECTORY, or a folder named after the
    /// first address in $XDG_STATE_HOME/farcall or ~/.local/state/farcall; with port 0, none]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Configuration file; docs/farcall.toml shows every setting
    #[arg(long, value_name = "FILE", env = "FARCALL_CONFIG")]
    config: Option<PathBuf>,
    /// File of tokens; only clients with one of them may come in over TCP
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// File to which a line of JSON is appended for each call: who called what, how it ended
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Speak TLS, with server.pem and server.key of this folder; `farcall certificate` makes them
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Certificates of authorities; only clients with a certificate of theirs, or with a token, may
    /// come in over TCP
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_clients: Option<PathBuf>,
    /// Which call goes first: fcfs (first come), sjf (shortest predicted), fpfs (first that fits
    /// the free processor elements), fmpfs (widest that fits), at-once (no queue, each call on
    /// everything) [default: fcfs]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<Policy>,
    /// Processor elements that calls share [default: processor cores]
    #[arg(long, value_name = "N")]
    pes: Option<u32>,
    /// Calls that compute at the same time, but for those of reservations [default: as many as have
    /// processor elements]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Processor elements, and threads, of a call whose interface does not say [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seconds after which a running call is ended; 0 means never
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
    /// Let functions reach the network and whatever files the server can, as far as they like
    #[arg(long)]
    no_sandbox: bool,
    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Listen where another server of yours does; once ready, have that one end its calls and exit
    #[arg(long)]
    takeover: bool,
    /// Compile and run C text in the interface files
    #[arg(long)]
    allow_code: bool,
    /// Metaserver to join; may be given several times. FARCALL_TOKEN, or FARCALL_CERT with
    /// FARCALL_KEY, show it who the server is; FARCALL_CA names the authorities to believe
    #[arg(
        long,
        value_name = "ADDR",
        env = "FARCALL_METASERVER",
        value_delimiter = ','
    )]
    metaserver: Vec<String>,
    /// Where metaservers tell clients to reach the server, where that is not the address on which
    /// it listens
    #[arg(long, value_name = "URL", requires = "metaserver")]
    advertise: Option<Address>,
    #[command(flatten)]
    log: Log,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.log.init()?;
    let config = configuration(&arguments)?;
    let catalog = Catalog::load(&arguments.files).map_err(Failure::failed)?;
    let program = std::env::current_exe()?;
    let metrics = config.metrics;
    let before = config.takeover.then(|| running(&config)).transpose()?;
    let mut server = Server::bind(config, catalog, (program, vec!["worker".to_string()]))
        .map_err(Failure::failed)?;
    tracing::info!("serving {} functions", server.functions());
    if let Some(address) = metrics {
        let readings = server.readings()?;
        serve_metrics(address, move |answer| readings.ask(answer))?;
    }
    let mut out = std::io::stdout().lock();
    for (index, address) in server.addresses().iter().enumerate() {
        let prefix = if index == 0 { "listening on " } else { "" };
        writeln!(out, "{prefix}{address}")?;
    }
    out.flush()?;
    drop(out);
    if let Some(before) = before {
        match before.drain() {
            Ok(calls) => tracing::info!("took over; the server before ends after {calls} calls"),
            Err(error) => tracing::error!("the server before does not end: {error}"),
        }
    }
    let members = join(&arguments, &mut server)?;
    server.run().map_err(Failure::failed)?;
    // What the server has to say has been said: each of them leaves.
    members.into_iter().for_each(|member| drop(member.join()));
    Ok(())
}

/// Joins the metaservers.
fn join(arguments: &Arguments, server: &mut Server) -> Result<Vec<JoinHandle<()>>, Failure> {
    let named = arguments.metaserver.iter().filter(|one| !one.is_empty());
    let metaservers = named.map(|one| metaserver_address(one));
    let metaservers: Vec<Address> = metaservers.collect::<Result<_, _>>()?;
    if metaservers.is_empty() {
        return Ok(Vec::new());
    }
    let listens = server
        .addresses()
        .iter()
        .find(|one| !one.starts_with("unix:"));
    let address = match (&arguments.advertise, listens) {
        (Some(address), _) => address.to_string(),
        (None, Some(address)) => address.clone(),
        (None, None) => {
            let text = "--metaserver needs a TCP address on which clients reach the server: give \
                        --listen";
            return Err(Failure::usage(text));
        }
    };
    let number = member::random_number()?;
    let start = |metaserver| {
        let member = Member {
            metaserver,
            server: number,
            address: address.clone(),
            options: Options {
                credentials: Credentials::from_environment(),
                ..Options::default()
            },
        };
        Ok(member.start(server.subscribe())?)
    };
    metaservers.into_iter().map(start).collect()
}

/// The address of a metaserver, for which a scheme need not be named.
fn metaserver_address(text: &str) -> Result<Address, Failure> {
    let full = match text.contains("://") {
        true => text.to_string(),
        false => format!("meta://{text}"),
    };
    full.parse().map_err(Failure::usage)
}

/// The configuration file with the command line's options over it.
/// Serves what a daemon tells of itself at `http://ADDRESS/metrics`.
pub(crate) fn serve_metrics(
    address: SocketAddr,
    ask: impl Fn(Answer) + Send + Sync + 'static,
) -> Result<(), Failure> {
    let fail = |error| Failure::failed(format!("--metrics {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(fail)?;
    let address = listener.local_addr()?;
    farcall_web::serve(listener, ask).map_err(fail)?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(())
}

fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
    let mut config = match &arguments.config {
        None => Config::default(),
        Some(path) => {
            let fail = |error: &dyn std::fmt::Display| {
                Failure::usage(format!("{}: {error}", path.display()))
            };
            let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
            Config::parse(&text).map_err(|error| fail(&error))?
        }
    };
    if !arguments.listen.is_empty() {
        config.listen.clear();
        for address in &arguments.listen {
            config.listen.push(resolve(address)?);
        }
    }
    if let Some(path) = &arguments.unix {
        config.unix = Some(path.clone());
    }
    if config.listen.is_empty() && config.unix.is_none() {
        config.listen.push(SocketAddr::from((
            [127, 0, 0, 1],
            farcall_client::DEFAULT_PORT,
        )));
    }
    if let Some(tokens) = &arguments.tokens {
        config.access.tokens = Some(tokens.clone());
    }
    if let Some(audit) = &arguments.audit {
        config.access.audit = Some(audit.clone());
    }
    if let Some(folder) = &arguments.tls {
        config.tls = Some(Tls {
            certificate: folder.join("server.pem"),
            key: folder.join("server.key"),
            clients: arguments.tls_clients.clone(),
        });
    }
    if let Some(folder) = &arguments.state {
        config.state = Some(folder.clone());
    }
    config.state = config.state.take().or_else(|| default_state(&config));
    config.metrics = arguments.metrics.or(config.metrics);
    config.takeover |= arguments.takeover;
    config.queue.policy = arguments.policy.unwrap_or(config.queue.policy);
    config.queue.pes = arguments.pes.unwrap_or(config.queue.pes);
    let workers = &mut config.workers;
    workers.count = arguments.workers.unwrap_or(workers.count);
    workers.threads = arguments.threads.unwrap_or(workers.threads);
    workers.time_limit_s = arguments.time_limit.unwrap_or(workers.time_limit_s);
    workers.sandbox &= !arguments.no_sandbox;
    config.allow_code |= arguments.allow_code;
    Ok(config)
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        format!("there are {names}")
    })
}

/// The server that runs where this one is to listen.
fn running(config: &Config) -> Result<farcall_client::Server, Failure> {
    let address = match (&config.unix, config.listen.first()) {
        (Some(path), _) => format!("unix://{}", std::path::absolute(path)?.display()),
        (None, Some(address)) => format!("farcall://{address}"),
        (None, None) => return Err(Failure::usage("--takeover needs an address to listen on")),
    };
    let server = farcall_client::Server::connect(&address, Options::default());
    server
        .map_err(|error| Failure::failed(format!("there is no server to take over from: {error}")))
}

/// Where a server keeps what outlives it. Its first address names the folder, so that a server
/// which is started again finds what is its own, and no other does; port 0 names nobody.
fn default_state(config: &Config) -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable("STATE_DIRECTORY") {
        return Some(folder.into());
    }
    let name = match config.listen.first() {
        Some(address) if address.port() == 0 => return None,
        Some(address) => address.to_string().replace(['[', ']', ':'], "-"),
        None => config.unix.as_ref()?.to_string_lossy().replace('/', "-"),
    };
    let folder = match variable("XDG_STATE_HOME") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(variable("HOME")?).join(".local/state"),
    };
    Some(folder.join("farcall").join(name.trim_matches('-')))
}

pub(crate) fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let text = text.strip_prefix("farcall://").unwrap_or(text);
    let mut addresses = text.to_socket_addrs().map_err(|error| {
        Failure::usage(format!(
            "--listen {text}: {error}; write ADDRESS:PORT, e.g. 127.0.0.1:0"
        ))
    })?;
    addresses
        .next()
        .ok_or_else(|| Failure::usage(format!("--listen {text}: no such address")))
}

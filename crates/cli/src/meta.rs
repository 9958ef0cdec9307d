//! `farcall meta`: starts a metaserver. It turns options into a configuration, and the crate
//! `metaserver` does the work. A wrong option is refused before anything listens.

use crate::failure::Failure;
use crate::folders;
use crate::log::Log;
use crate::serve::{ip_and_port, resolve, serve_metrics};
use crate::{notify, seconds, web};
use clap::Args;
use farcall_access::Tls;
use farcall_client::METASERVER_PORT;
use farcall_metaserver::{Config, Metaserver, Record, StoreAddress};
use farcall_schedule::placement::Policy;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run a metaserver, which chooses a server for each call
///
/// Servers join it, and clients ask it where to send each call. The command prints `listening on
/// ADDRESS`, and runs until Ctrl-C or SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall meta
  farcall meta --listen 0.0.0.0:3718 --tls certificates --tokens tokens --server-user node
  farcall meta --store postgres://farcall@db.example.org/farcall   # shared with others
Servers join with: farcall serve my.idl --metaserver HOST:3718
Clients ask it with: FARCALL_METASERVER=HOST:3718, or --server meta://HOST:3718")]
pub(crate) struct Arguments {
    /// Address to listen on; may be given several times. Port 0 picks a free port [default:
    /// 127.0.0.1:3718]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Store of the metaserver: sqlite:PATH, postgres://USER@HOST/DATABASE to share the store with
    /// other metaservers, or none [default: an SQLite file named after the first address in
    /// $STATE_DIRECTORY, $XDG_STATE_HOME/farcall or ~/.local/state/farcall; none with port 0]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// How to choose the server for a call: completion (least predicted time until its results are
    /// back), load-and-throughput, least-load, or round-robin
    #[arg(long, value_name = "POLICY", value_parser = policy, default_value = "completion")]
    policy: Policy,
    /// Seconds for which a server that sends no report stays known
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds::number)]
    lease: f64,
    /// Folder of the record of placements, at most 100 MB [default: beside an SQLite store, its
    /// name with `-record`; no record without one]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Keep no record of placements
    #[arg(long, conflicts_with = "record")]
    no_record: bool,
    /// Collector that gets the spans of placements: http://HOST:PORT, by OTLP
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// File of tokens; only clients and servers with one of these tokens can connect
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Use TLS with server.pem and server.key of this folder; `farcall access certificate` makes
    /// them
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Certificates of authorities. Only clients and servers with a certificate that one of them
    /// has signed, or with a token, can connect
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_clients: Option<PathBuf>,
    /// User whose servers may join, by the name of a token or certificate; may be given several
    /// times [default: every user, if neither --tokens nor --tls-clients is given]
    #[arg(long, value_name = "NAME")]
    server_user: Vec<String>,
    /// Most open connections; each server and each client needs one
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: usize,
    /// Serve metrics for Prometheus at http://ADDR/metrics, and the health at /healthz and /readyz
    #[arg(long, value_name = "ADDR", value_parser = ip_and_port)]
    metrics: Option<SocketAddr>,
    /// Show the servers on a page for browsers at http://ADDR/ (https with --tls)
    #[arg(long, value_name = "ADDR", value_parser = ip_and_port)]
    web: Option<SocketAddr>,
    #[command(flatten)]
    log: Log,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.log.init();
    crate::outlive_the_limit_of_files();
    let config = configuration(arguments)?;
    let page = web::bind(arguments.web, config.tls.as_ref(), false)?;
    let metaserver = Metaserver::bind(config).map_err(Failure::failed)?;
    if let Some(address) = arguments.metrics {
        let readings = metaserver.readings();
        serve_metrics(address, move |answer| answer(readings()))?;
    }
    let mut out = std::io::stdout().lock();
    for (index, address) in metaserver.addresses().iter().enumerate() {
        let prefix = if index == 0 { "listening on " } else { "" };
        writeln!(out, "{prefix}{address}").map_err(Failure::unsaid)?;
    }
    web::show(page, &metaserver.addresses(), &mut out)?;
    out.flush().map_err(Failure::unsaid)?;
    drop(out);
    notify::ready();
    metaserver.run().map_err(Failure::failed)
}

fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
    if arguments.connections == 0 {
        let text = "--connections 0 lets nobody connect: write 1 or more";
        return Err(Failure::usage(text));
    }
    let mut listen = Vec::new();
    for address in &arguments.listen {
        listen.push(resolve(address)?);
    }
    if listen.is_empty() {
        listen.push(SocketAddr::from(([127, 0, 0, 1], METASERVER_PORT)));
    }
    let store = match arguments.store.as_deref() {
        Some("none") => None,
        Some(text) => {
            let store: Result<StoreAddress, String> = text.parse();
            let wrong =
                |error: String| format!("--store {text}: {error}, or none, for memory alone");
            Some(store.map_err(|error| Failure::usage(wrong(error)))?)
        }
        None => default_store(listen[0])?,
    };
    let record = record(arguments, store.as_ref());
    let tls = arguments.tls.as_ref();
    let tls = tls.map(|folder| Tls::in_folder(folder, arguments.tls_clients.clone()));
    Ok(Config {
        listen,
        tls,
        tokens: arguments.tokens.clone(),
        server_users: arguments.server_user.clone(),
        store,
        policy: arguments.policy,
        lease_s: arguments.lease,
        record,
        otlp: arguments.otlp.clone(),
        connections: arguments.connections,
    })
}

/// The record: in the folder that was named, or beside the store.
fn record(arguments: &Arguments, store: Option<&StoreAddress>) -> Option<Record> {
    const BYTES: u64 = 100_000_000;
    let beside = match store {
        Some(StoreAddress::Sqlite(file)) => {
            let name = file.file_stem()?.to_string_lossy().into_owned() + "-record";
            let parent = file.parent()?;
            // A store may wait for its folder, which the record must not make.
            let is_there = parent.as_os_str().is_empty() || parent.is_dir();
            is_there.then(|| file.with_file_name(name))
        }
        _ => None,
    };
    let folder = arguments.record.clone().or(beside);
    let folder = folder.filter(|_| !arguments.no_record)?;
    Some(Record {
        folder,
        bytes: BYTES,
    })
}

/// The default store: a file named after the address. With port 0 there is no such name.
fn default_store(address: SocketAddr) -> Result<Option<StoreAddress>, Failure> {
    let own = folders::variable("STATE_DIRECTORY").map(PathBuf::from);
    if address.port() == 0 {
        return Ok(None);
    }
    let Some(folder) = own.or_else(folders::state) else {
        tracing::warn!(
            "no store, because neither HOME nor XDG_STATE_HOME is set: the directory is in memory \
             alone; name a store with --store"
        );
        return Ok(None);
    };
    std::fs::create_dir_all(&folder).map_err(|error| {
        let folder = folder.display();
        Failure::failed(format!(
            "cannot make the folder {folder}: {error}; name another store with --store"
        ))
    })?;
    let name = address.to_string().replace(['[', ']', ':'], "-");
    let name = format!("meta-{}.sqlite", name.trim_matches('-'));
    Ok(Some(StoreAddress::Sqlite(folder.join(name))))
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        format!("no such policy; use one of {names}")
    })
}

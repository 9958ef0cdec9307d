//! `farcall meta`

use crate::failure::Failure;
use crate::log::Log;
use crate::serve::{resolve, serve_metrics};
use clap::Args;
use farcall_access::Tls;
use farcall_client::METASERVER_PORT;
use farcall_metaserver::{Config, Metaserver, StoreAddress};
use farcall_schedule::placement::Policy;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Run a metaserver: it knows the servers that join it, and tells clients where each call goes
///
/// Prints `listening on ADDRESS`, and serves until Ctrl-C or SIGTERM.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall meta
  farcall meta --listen 0.0.0.0:3718 --tls certificates --tokens tokens --server-user node
  farcall meta --store postgres://farcall@db.example.org/farcall   # shared with others
Servers join with: farcall serve my.idl --metaserver HOST:3718
Clients ask it with: FARCALL_METASERVER=HOST:3718, or --server meta://HOST:3718")]
pub(crate) struct Arguments {
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:3718]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Where the directory is kept: sqlite:PATH, postgres://USER@HOST/DATABASE to share it with
    /// other metaservers, or none [default: a file of SQLite named after the first address in
    /// $STATE_DIRECTORY, $XDG_STATE_HOME/farcall or ~/.local/state/farcall; with port 0, none]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Where a call goes: completion (least predicted time until its results are back),
    /// load-and-throughput, least-load, or round-robin
    #[arg(long, value_name = "POLICY", value_parser = policy, default_value = "completion")]
    policy: Policy,
    /// Seconds for which a server is believed to be there without a report
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    lease: f64,
    /// File of tokens; only clients and servers with one of them may come in
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Speak TLS, with server.pem and server.key of this folder; `farcall certificate` makes them
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Certificates of authorities; only who shows a certificate of theirs, or a token, may come in
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_clients: Option<PathBuf>,
    /// User, by the name of a token or certificate, whose servers may join; may be given several
    /// times [default: where neither --tokens nor --tls-clients is given, everybody]
    #[arg(long, value_name = "NAME")]
    server_user: Vec<String>,
    /// Open connections; each server keeps one, and each client
    #[arg(long, value_name = "N", default_value_t = 1000)]
    connections: usize,
    /// Serve metrics for Prometheus at http://ADDR/metrics
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    #[command(flatten)]
    log: Log,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.log.init()?;
    let metaserver = Metaserver::bind(configuration(arguments)?).map_err(Failure::failed)?;
    if let Some(address) = arguments.metrics {
        let readings = metaserver.readings();
        serve_metrics(address, move |answer| answer(readings()))?;
    }
    let mut out = std::io::stdout().lock();
    for (index, address) in metaserver.addresses().iter().enumerate() {
        let prefix = if index == 0 { "listening on " } else { "" };
        writeln!(out, "{prefix}{address}")?;
    }
    out.flush()?;
    drop(out);
    metaserver.run().map_err(Failure::failed)
}

fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
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
            Some(store.map_err(|error| Failure::usage(format!("--store {text}: {error}")))?)
        }
        None => default_store(listen[0])?,
    };
    let tls = arguments.tls.as_ref().map(|folder| Tls {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
        clients: arguments.tls_clients.clone(),
    });
    Ok(Config {
        listen,
        tls,
        tokens: arguments.tokens.clone(),
        server_users: arguments.server_user.clone(),
        store,
        policy: arguments.policy,
        lease_s: arguments.lease,
        connections: arguments.connections,
    })
}

/// A file in the folder for state, named after the address; port 0 names nobody.
fn default_store(address: SocketAddr) -> Result<Option<StoreAddress>, Failure> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = match (
        variable("STATE_DIRECTORY"),
        variable("XDG_STATE_HOME"),
        variable("HOME"),
    ) {
        _ if address.port() == 0 => return Ok(None),
        (Some(folder), ..) => PathBuf::from(folder),
        (None, Some(folder), _) => PathBuf::from(folder).join("farcall"),
        (None, None, Some(home)) => PathBuf::from(home).join(".local/state/farcall"),
        (None, None, None) => return Ok(None),
    };
    std::fs::create_dir_all(&folder).map_err(|error| {
        let folder = folder.display();
        Failure::failed(format!(
            "{folder}: {error}; name another place with --store"
        ))
    })?;
    let name = address.to_string().replace(['[', ']', ':'], "-");
    let name = format!("meta-{}.sqlite", name.trim_matches('-'));
    Ok(Some(StoreAddress::Sqlite(folder.join(name))))
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        format!("there are {names}")
    })
}

//! `farcall serve`: starts a server, from options and a configuration file. Options win over the
//! file.

mod before;
mod join;

use self::before::Before;
use self::join::{join, metaservers};
use crate::document;
use crate::failure::{self, Failure};
use crate::folders;
use crate::log::Log;
use crate::preprocessor::Preprocessor;
use crate::{library, notify, relay, seconds, web};
use clap::Args;
use farcall_access::Tls;
use farcall_client::Address;
use farcall_library::{Catalog, Source, pickled_functions};
use farcall_metrics::{Answer, Text};
use farcall_quantity::counted;
use farcall_server::{Config, Policy, Readings, Server, StartError};
use rustix::process::Signal;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Serve the functions of interface files
///
/// The command prints `listening on ADDRESS` when every function can be called. It serves until
/// Ctrl-C or SIGTERM. After SIGHUP it reads its certificates, tokens and configuration again.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall serve lapack fftw                       # libraries of `farcall library list`
  farcall serve lapack fftw gsl --listen 0.0.0.0:3717 --workers 4
  farcall serve libraries/lapack.idl --listen 0.0.0.0:3717 --tls certificates --tokens tokens
  farcall serve my.idl --policy sjf --pes 8 --threads 2
  farcall serve cuda --gpus 2                     # each call has a GPU for itself
  farcall serve --pickled --tokens tokens --listen 0.0.0.0:3717   # for farcall.Executor
  farcall serve my.idl --metaserver meta://host:3718 --listen 0.0.0.0:0
  farcall serve my.idl --takeover --state DIR     # replaces the server that runs there
  farcall serve my.idl --unix /tmp/farcall.sock --listen 127.0.0.1:0")]
pub(crate) struct Arguments {
    /// Interface files, Python modules with functions that @farcall.library marks, or names of
    /// libraries that `farcall library list` shows
    #[arg(required_unless_present_any = ["pickled", "config"], value_name = "IDL",
          value_parser = library::interface)]
    files: Vec<PathBuf>,
    /// Address to listen on; may be given several times. Port 0 picks a free port [default:
    /// 127.0.0.1:3717]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Unix socket to listen on. Without --listen, the server listens on nothing else
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// State folder: durable calls and everything else that survives a restart [default:
    /// $STATE_DIRECTORY, or a folder named after the first address in $XDG_STATE_HOME/farcall or
    /// ~/.local/state/farcall; none with port 0]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Configuration file; docs/farcall.toml shows every setting
    #[arg(long, value_name = "FILE", env = "FARCALL_CONFIG")]
    config: Option<PathBuf>,
    /// File of tokens. Over TCP, only clients with one of these tokens can connect
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// File to which the server appends a line of JSON for each call: who called which function,
    /// and how the call ended
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Folder of the record of calls, at most 100 MB unless the configuration says otherwise
    /// [default: the folder `record` in the state folder; no record without a state folder]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Collector that gets the spans of calls that belong to a trace: http://HOST:PORT, by OTLP
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Use TLS with server.pem and server.key of this folder; `farcall access certificate` makes
    /// them
    #[arg(long, value_name = "FOLDER")]
    tls: Option<PathBuf>,
    /// Certificates of authorities. Over TCP, only clients with a certificate that one of them has
    /// signed, or with a token, can connect
    #[arg(long, value_name = "FILE", requires = "tls")]
    tls_clients: Option<PathBuf>,
    /// Which call starts first: fcfs (the first that came), sjf (the one with the shortest
    /// predicted time), fpfs (the first that fits the free processor elements), fmpfs (the widest
    /// that fits them), at-once (no queue; each call uses all processor elements) [default: fcfs]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<Policy>,
    /// Processor elements that calls share [default: the number of processor cores]
    #[arg(long, value_name = "N")]
    pes: Option<u32>,
    /// GPUs that calls share, for functions that need some. Other functions see none then [default:
    /// those that CUDA_VISIBLE_DEVICES names, or else those of the machine]
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Calls that compute at the same time, not counting those of reservations [default: as many as
    /// the processor elements allow]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Processor elements and threads of a call whose interface does not state them [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seconds after which the server ends a running call; 0 means never
    #[arg(long, value_name = "SECONDS", value_parser = seconds::number)]
    time_limit: Option<f64>,
    /// Seconds without clients and calls after which the server ends; 0 means never
    #[arg(long, value_name = "SECONDS", value_parser = seconds::number)]
    idle: Option<f64>,
    /// End the server when its standard input ends, as after `ssh HOST farcall serve` has gone
    #[arg(long)]
    end_with_input: bool,
    /// Let functions use the network and every file that the server can use
    #[arg(long)]
    no_sandbox: bool,
    /// Serve metrics for Prometheus at http://ADDR/metrics, and the health at /healthz and /readyz
    #[arg(long, value_name = "ADDR", value_parser = ip_and_port)]
    metrics: Option<SocketAddr>,
    /// Show the server on a page for browsers at http://ADDR/ (https with --tls)
    #[arg(long, value_name = "ADDR", value_parser = ip_and_port)]
    web: Option<SocketAddr>,
    /// Take over from a server of yours that listens on the same address. When this server is
    /// ready, the other one completes its calls and exits
    #[arg(long)]
    takeover: bool,
    /// Compile and run the C code in the interface files
    #[arg(long)]
    allow_code: bool,
    /// Run Python functions that users send, for `farcall.Executor`
    #[arg(long)]
    pickled: bool,
    /// Metaserver to join; may be given several times. The server identifies itself with
    /// FARCALL_TOKEN, or with FARCALL_CERT and FARCALL_KEY; FARCALL_CA names a file with the
    /// certificates of the authorities that it trusts
    #[arg(
        long,
        value_name = "ADDR",
        env = "FARCALL_METASERVER",
        value_delimiter = ','
    )]
    metaserver: Vec<String>,
    /// Address of the server that metaservers give to clients, if clients cannot use the address
    /// on which it listens
    #[arg(long, value_name = "URL", requires = "metaserver")]
    advertise: Option<Address>,
    #[command(flatten)]
    preprocessor: Preprocessor,
    #[command(flatten)]
    log: Log,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    farcall_child::keep_descriptors()?;
    arguments.log.init();
    crate::outlive_the_limit_of_files();
    let config = configuration(&arguments)?;
    let metaservers = metaservers(&arguments, &config)?;
    let metrics = config.metrics;
    let readings = Arc::new(OnceLock::<Readings>::new());
    if let Some(address) = metrics {
        serve_readings(address, config.takeover, Arc::clone(&readings))?;
    }
    let page = web::bind(config.web, config.tls.as_ref(), config.takeover)?;
    let files = files(&arguments, &config)?;
    for module in files.iter().filter(|file| Source::is_module(file)) {
        failure::say(format_args!("loading {} ...", module.display()));
    }
    let options = arguments.preprocessor.options()?;
    let catalog = Catalog::load_with(&files, &options).map_err(Failure::failed)?;
    for warning in catalog.warnings() {
        tracing::warn!("{warning}");
    }
    let program = std::env::current_exe()?;
    let before = config.takeover.then(|| Before::find(&config)).transpose()?;
    let mut config = config;
    let usual = usual_socket(&config);
    config.unix = config.unix.or(usual.clone());
    let bound = Server::bind(config, catalog, (program, vec!["worker".to_string()]));
    if let Err(stopped @ StartError::Stopped) = &bound {
        tracing::info!("{stopped}");
        return Ok(());
    }
    let mut server = bound.map_err(Failure::failed)?;
    tracing::info!("serving {}", counted(server.functions(), "function"));
    if metrics.is_some() {
        let _ = readings.set(server.readings()?);
    }
    if arguments.end_with_input {
        std::thread::spawn(end_with_input);
    }
    let mut out = std::io::stdout().lock();
    // The usual socket is only for `farcall relay`.
    let hidden = usual
        .as_ref()
        .map(|path| format!("unix://{}", path.display()));
    let shown = server.addresses().iter();
    let shown = shown.filter(|address| Some(*address) != hidden.as_ref());
    for (index, address) in shown.enumerate() {
        let prefix = if index == 0 { "listening on " } else { "" };
        writeln!(out, "{prefix}{address}").map_err(Failure::unsaid)?;
    }
    web::show(page, server.addresses(), &mut out)?;
    out.flush().map_err(Failure::unsaid)?;
    drop(out);
    notify::ready();
    if let Some(before) = before {
        before.drain()?;
    }
    let members = join(metaservers, arguments.advertise.as_ref(), &mut server)?;
    server.reread_with(move || {
        let mut fresh = configuration(&arguments).map_err(|error| error.to_string())?;
        fresh.unix = fresh.unix.or(usual.clone());
        Ok(fresh)
    });
    server.run().map_err(Failure::failed)?;
    // The server has sent its last report: each of them leaves the metaserver.
    members.into_iter().for_each(|member| drop(member.join()));
    Ok(())
}

/// Serves metrics, also before the server can tell any. A server that takes over waits for the
/// address of the previous one.
fn serve_readings(
    address: SocketAddr,
    takeover: bool,
    readings: Arc<OnceLock<Readings>>,
) -> Result<(), Failure> {
    let ask = move |answer: Answer| match readings.get() {
        Some(readings) => readings.ask(answer),
        None => answer(starting()),
    };
    match takeover && web::is_used(address) {
        true => web::when_free(address, "metrics", move || serve_metrics(address, ask)),
        false => serve_metrics(address, ask),
    }
}

/// Reads the standard input to its end, and then ends this process as SIGTERM does.
pub(crate) fn end_with_input() {
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TERM);
}

/// The Unix socket of a server at the usual address, where `ssh://` addresses look for one; `None`
/// if another server listens there.
fn usual_socket(config: &Config) -> Option<PathBuf> {
    if config.unix.is_some() || config.listen != [usual_address()] {
        return None;
    }
    let nobody = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    let is_nobody = |error: std::io::Error| nobody.contains(&error.kind());
    let is_free =
        |path: &PathBuf| config.takeover || UnixStream::connect(path).is_err_and(is_nobody);
    relay::usual_socket().filter(is_free)
}

fn usual_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], farcall_client::DEFAULT_PORT))
}

/// What a server tells before it can answer itself.
fn starting() -> Text {
    let mut text = Text::new("farcall");
    text.not_ready("the server is starting");
    text
}

/// Serves the metrics and the health of a daemon at `http://ADDRESS/metrics`, `/healthz` and
/// `/readyz`.
pub(crate) fn serve_metrics(
    address: SocketAddr,
    ask: impl Fn(Answer) + Send + Sync + 'static,
) -> Result<(), Failure> {
    let fail = |error| {
        Failure::failed(format!(
            "cannot serve metrics at {address}: {error}; name another address with --metrics"
        ))
    };
    let listener = TcpListener::bind(address).map_err(fail)?;
    let address = listener.local_addr()?;
    farcall_web::serve(listener, ask).map_err(fail)?;
    tracing::info!("metrics at http://{address}/metrics");
    Ok(())
}

/// The configuration file with the command line's options over it.
fn configuration(arguments: &Arguments) -> Result<Config, Failure> {
    let mut config = match &arguments.config {
        None => Config::default(),
        Some(path) => {
            let fail = |error: &dyn std::fmt::Display| {
                Failure::cannot("use the configuration file", path.display(), error).into_usage()
            };
            let text = document::read(path, document::MOST_BYTES).map_err(|error| fail(&error))?;
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
        config.listen.push(usual_address());
    }
    config.web = arguments.web.or(config.web);
    if config.web.is_some() && config.listen.is_empty() {
        return Err(web::needs_tcp());
    }
    if let Some(tokens) = &arguments.tokens {
        config.access.tokens = Some(tokens.clone());
    }
    if let Some(audit) = &arguments.audit {
        config.access.audit = Some(audit.clone());
    }
    if let Some(folder) = &arguments.record {
        config.record.folder = Some(record_folder(folder, &config)?);
    }
    if let Some(url) = &arguments.otlp {
        config.tracing.otlp = Some(url.clone());
    }
    if let Some(folder) = &arguments.tls {
        config.tls = Some(tls(folder, arguments, config.tls.take()));
    }
    if let Some(folder) = &arguments.state {
        config.state = Some(folder.clone());
    }
    config.state = config.state.take().or_else(|| default_state(&config));
    config.metrics = arguments.metrics.or(config.metrics);
    config.takeover |= arguments.takeover;
    config.queue.policy = arguments.policy.unwrap_or(config.queue.policy);
    config.queue.pes = arguments.pes.unwrap_or(config.queue.pes);
    config.queue.gpus = arguments.gpus.or(config.queue.gpus);
    let workers = &mut config.workers;
    workers.count = arguments.workers.unwrap_or(workers.count);
    workers.threads = arguments.threads.unwrap_or(workers.threads);
    workers.time_limit_s = arguments.time_limit.unwrap_or(workers.time_limit_s);
    workers.sandbox &= !arguments.no_sandbox;
    config.limits.idle_s = arguments.idle.unwrap_or(config.limits.idle_s);
    config.allow_code |= arguments.allow_code;
    config.python.pickled |= arguments.pickled;
    Ok(config)
}

/// The folder of the record of calls that `--record` names.
fn record_folder(folder: &Path, config: &Config) -> Result<PathBuf, Failure> {
    if config.record.bytes > 0 {
        return Ok(folder.to_path_buf());
    }
    Err(Failure::usage(format!(
        "--record {}: the configuration file says `bytes = 0` below [record], and so there is no \
         record; leave out --record, or allow it more bytes",
        folder.display()
    )))
}

/// The certificate and the key of a folder. Who may connect remains as the file says, unless
/// another option replaces it.
fn tls(folder: &Path, arguments: &Arguments, file: Option<Tls>) -> Tls {
    let (clients, revoked) = file.map_or((None, None), |file| (file.clients, file.revoked));
    Tls {
        folder: (!has_interfaces(folder, &arguments.files)).then(|| folder.to_path_buf()),
        revoked,
        ..Tls::in_folder(folder, arguments.tls_clients.clone().or(clients))
    }
}

/// The interface files and Python modules to serve.
fn files(arguments: &Arguments, config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let mut files = arguments.files.clone();
    if config.python.pickled {
        files.push(pickled_functions().map_err(Failure::failed)?);
    }
    if files.is_empty() {
        let text = "there is nothing to serve: name an interface file or a Python module, or add \
                    --pickled";
        return Err(Failure::usage(text));
    }
    Ok(files)
}

/// Whether some of the interface files are in a folder.
fn has_interfaces(folder: &Path, files: &[PathBuf]) -> bool {
    let Ok(folder) = std::fs::canonicalize(folder) else {
        return false;
    };
    let mut files = files
        .iter()
        .filter_map(|file| std::fs::canonicalize(file).ok());
    files.any(|file| file.starts_with(&folder))
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| {
        let names = Policy::NAMES.map(|(name, _)| name).join(", ");
        format!("no such policy; use one of {names}")
    })
}

/// The default state folder. It has the name of the server's first address, so that a restarted
/// server finds its own state. With port 0 there is no such name.
fn default_state(config: &Config) -> Option<PathBuf> {
    if let Some(folder) = folders::variable("STATE_DIRECTORY") {
        return Some(folder.into());
    }
    let name = match config.listen.first() {
        Some(address) if address.port() == 0 => return None,
        Some(address) => address.to_string().replace(['[', ']', ':'], "-"),
        None => config.unix.as_ref()?.to_string_lossy().replace('/', "-"),
    };
    let Some(state) = folders::state() else {
        tracing::warn!(
            "no state folder, because neither HOME nor XDG_STATE_HOME is set: durable calls are \
             refused, and nothing is kept for the next start; name a folder with --state"
        );
        return None;
    };
    Some(state.join(name.trim_matches('-')))
}

/// An address for readers of metrics, or for browsers. Names of hosts are not looked up.
pub(crate) fn ip_and_port(text: &str) -> Result<SocketAddr, String> {
    let wrong = |_| "write an IP address and a port, such as 127.0.0.1:9717".to_string();
    text.parse().map_err(wrong)
}

pub(crate) fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let text = text.strip_prefix("farcall://").unwrap_or(text);
    let mut addresses = text.to_socket_addrs().map_err(|error| {
        Failure::usage(format!(
            "--listen {text}: {error}; write ADDRESS:PORT, such as 127.0.0.1:0"
        ))
    })?;
    addresses
        .next()
        .ok_or_else(|| Failure::usage(format!("--listen {text}: the name has no address")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// The settings of a command line with this configuration file.
    fn settings(file: &str, words: &[&str]) -> Config {
        try_settings(file, words).unwrap()
    }

    fn try_settings(file: &str, words: &[&str]) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("farcall.toml");
        std::fs::write(&path, file).unwrap();
        let config = ["serve", "--config", path.to_str().unwrap()];
        let line = Line::parse_from(config.iter().chain(words));
        configuration(&line.arguments)
    }

    #[test]
    fn a_record_of_no_bytes_has_no_folder() {
        let off = "state = \"s\"\n[record]\nbytes = 0\n";
        let error = try_settings(off, &["--record", "r"]).unwrap_err();
        assert!(error.to_string().contains("`bytes = 0`"), "{error}");
        assert!(try_settings(off, &[]).is_ok());
        let known = settings("state = \"s\"\n", &["--record", "r"]);
        assert_eq!(known.record.folder.as_deref(), Some(Path::new("r")));
    }

    #[test]
    fn metrics_and_page_need_an_ip_address_and_a_port() {
        assert!(ip_and_port("[::1]:0").is_ok());
        for wrong in ["localhost:9717", "9717", ":9717", "127.0.0.1"] {
            let error = ip_and_port(wrong).unwrap_err();
            assert!(error.ends_with("such as 127.0.0.1:9717"), "{error}");
        }
    }

    #[test]
    fn another_certificate_admits_the_same_clients() {
        let file = "state = \"s\"\n[tls]\ncertificate = \"a/server.pem\"\nkey = \"a/server.key\"\n\
                    clients = \"authority.pem\"\nrevoked = \"revoked.pem\"\n";
        let tls = settings(file, &["--tls", "certs2"]).tls.unwrap();
        assert_eq!(tls.certificate, Path::new("certs2/server.pem"));
        assert_eq!(tls.key, Path::new("certs2/server.key"));
        assert_eq!(tls.folder.as_deref(), Some(Path::new("certs2")));
        assert_eq!(tls.clients.as_deref(), Some(Path::new("authority.pem")));
        assert_eq!(tls.revoked.as_deref(), Some(Path::new("revoked.pem")));
        let others = ["--tls", "certs2", "--tls-clients", "others.pem"];
        let tls = settings(file, &others).tls.unwrap();
        assert_eq!(tls.clients.as_deref(), Some(Path::new("others.pem")));
    }
}

//! `farcall gang daemon`: starts the daemon of one node of a gang. It turns options into a
//! configuration, and the crate `gang` runs the daemon. A wrong option is refused before anything
//! listens.

use crate::failure::Failure;
use crate::installed;
use crate::log::Log;
use crate::notify;
use clap::{Args, ValueEnum};
use farcall_gang::{Config, DEFAULT_CONTROL, Daemon, Form, Freeze, StartError};
use farcall_quantity::{bytes, duration};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ports of a daemon without `--listen`. A server has the first one by default.
const PORTS: [u16; 2] = [3717, 3721];

/// Run the gang daemon of a node
///
/// The daemon prints `listening on ADDRESS CONTROL` when others can reach it, and runs until
/// Ctrl-C, SIGTERM or SIGHUP. Daemons form a tree by --parent; users start gang jobs at the root. A
/// daemon can join if its FARCALL_TOKEN is that of its parent. On the loopback, daemons without one
/// share a secret that is kept for their user. A daemon that loses its parent joins again.
#[derive(Args)]
#[command(after_help = "Examples:
  farcall gang daemon
  farcall gang daemon --slice 20ms --control /run/gang.sock --listen 10.0.0.1:3717
  farcall gang daemon --parent 10.0.0.1:3717 --listen 10.0.0.2:3717")]
pub(crate) struct Arguments {
    /// Name of this node [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Daemon above this one; the root daemon has none
    #[arg(long, value_name = "ADDR")]
    parent: Option<String>,
    /// Address for the daemons below, and for messages between nodes; port 0 picks a free port
    /// [default: 127.0.0.1:3717, or port 3721 if a server has that one]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Length of a time slice, at least 20ms [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    slice: Option<Duration>,
    /// Socket for `farcall gang run` and the other commands: a path, or `@` and an abstract name
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL, env = "FARCALL_GANG")]
    control: String,
    /// How to switch jobs: in two rounds, or in the seven steps of SCore-D with copied contexts
    /// [default: two]
    #[arg(long, value_enum)]
    form: Option<FormName>,
    /// What a switch does with messages on the network: wait for them (drain), or discard them and
    /// send them again later (epoch) [default: epoch]
    #[arg(long, value_enum)]
    freeze: Option<FreezeName>,
    /// Processes that run at the same time on this node [default: the number of its processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
    /// Percent of the processor time that a user's interactive jobs can have before others; those
    /// of all users together can have twice as much
    #[arg(long, value_name = "PERCENT", default_value_t = 25,
          value_parser = clap::value_parser!(u8).range(0..=50))]
    interactive_share: u8,
    /// For measurements: switch a job out and in at every slice even when it is alone
    #[arg(long)]
    switch_alone: bool,
    /// Memory for all jobs together [default: nine tenths of the memory of the machine]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Time without a message after which another daemon counts as lost, at least 2s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    silence: Duration,
    /// User of the jobs that come over TCP (`gang run --daemon`), by name or as UID:GID [default:
    /// the user of the daemon, unless that is root]
    #[arg(long, value_name = "USER", value_parser = super::user)]
    tcp_user: Option<(u32, u32)>,
    /// Network interface that MPI programs use between nodes, such as `fc0` of a trunk [default:
    /// MPI chooses]
    #[arg(long, value_name = "NAME")]
    mpi_interface: Option<String>,
    /// Serve metrics for Prometheus at http://ADDR/metrics, and the health at /healthz and /readyz
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// Write a line for each gang switch, with the times of its steps, to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    log: Log,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormName {
    Two,
    Seven,
}

#[derive(Clone, Copy, ValueEnum)]
enum FreezeName {
    Drain,
    Epoch,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    farcall_child::keep_descriptors()?;
    arguments.log.init();
    let slice = arguments.slice.unwrap_or(Duration::from_millis(100));
    if slice < Duration::from_millis(20) {
        return Err(Failure::usage("--slice must be at least 20ms"));
    }
    if arguments.silence < Duration::from_secs(2) {
        return Err(Failure::usage("--silence must be at least 2s"));
    }
    if arguments.parent.is_some() {
        warn_of_settings(&arguments);
    }
    let parent = arguments.parent.as_deref();
    let metrics = arguments.metrics.as_deref();
    let config = Config {
        node: arguments.node.unwrap_or_else(host_name),
        parent: parent.map(|text| resolve("--parent", text)).transpose()?,
        listen: match &arguments.listen {
            Some(text) => vec![resolve("--listen", text)?],
            None => PORTS.map(|port| (Ipv4Addr::LOCALHOST, port).into()).into(),
        },
        control: arguments.control,
        token: std::env::var("FARCALL_TOKEN").unwrap_or_default(),
        slice,
        form: match arguments.form {
            None | Some(FormName::Two) => Form::Two,
            Some(FormName::Seven) => Form::Seven,
        },
        freeze: match arguments.freeze {
            Some(FreezeName::Drain) => Freeze::Drain,
            None | Some(FreezeName::Epoch) => Freeze::Epoch,
        },
        slots: arguments.slots,
        share: arguments.interactive_share,
        switch_alone: arguments.switch_alone,
        memory: arguments.memory,
        silence: arguments.silence,
        tcp_user: arguments.tcp_user,
        metrics: metrics.map(|text| resolve("--metrics", text)).transpose()?,
        trace: arguments.trace,
        mpi_interface: arguments.mpi_interface,
        pmix: Some(["gang", "pmix"].map(str::to_string).into()),
        fabric: installed::library("libfarcall-fi.so")
            .ok()
            .and_then(|path| path.parent().map(Path::to_owned)),
    };
    let bound = Daemon::bind(config);
    if let Err(stopped @ StartError::Stopped(_)) = &bound {
        tracing::info!("{stopped}");
        return Ok(());
    }
    let daemon = bound.map_err(Failure::failed)?;
    let (address, control) = daemon.addresses();
    notify::says_ready(format_args!("listening on {address} {control}"))?;
    daemon.run().map_err(Failure::failed)
}

/// Tells of options that only the root daemon uses.
fn warn_of_settings(arguments: &Arguments) {
    let settings = [
        ("--slice", arguments.slice.is_some()),
        ("--form", arguments.form.is_some()),
        ("--freeze", arguments.freeze.is_some()),
        ("--memory", arguments.memory.is_some()),
        ("--trace", arguments.trace.is_some()),
        ("--tcp-user", arguments.tcp_user.is_some()),
    ];
    let given = settings.iter().filter(|(_, is_given)| *is_given);
    let given: Vec<&str> = given.map(|(name, _)| *name).collect();
    if !given.is_empty() {
        tracing::warn!(
            "{} has no effect beside --parent: give it to the root daemon, whose settings hold on \
             all nodes",
            given.join(", ")
        );
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "node".to_string(),
        name => name.to_string(),
    }
}

pub(super) fn resolve(option: &str, text: &str) -> Result<SocketAddr, Failure> {
    let address = text.strip_prefix("farcall://").unwrap_or(text);
    let found = address.to_socket_addrs().map_err(|error| {
        Failure::usage(format!(
            "{option} {text}: {error}; write ADDRESS:PORT, such as 127.0.0.1:3717"
        ))
    });
    found?
        .next()
        .ok_or_else(|| Failure::usage(format!("{option} {text}: the name has no address")))
}

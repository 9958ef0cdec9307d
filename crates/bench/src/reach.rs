//! `farcall bench reach`: Python functions on servers, and arrays over ssh, beside what people use
//! for them now. `benches/reach.py` does the work of each contender; this module starts the servers
//! and asks the contenders in turn.

mod sshd;

use crate::contender::Contender;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use crate::table::{Better, Row, report};
use clap::Args;
use farcall_lab::Daemon;
use sshd::Sshd;
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = "benches/reach.py";
/// The Python interpreter that scripts/peers installs.
const PEERS_PYTHON: &str = ".venv-peers/bin/python";
/// Servers behind the metaserver.
const SERVERS: usize = 4;
/// Tasks of a round, as in the script.
const TASKS: f64 = 3000.0;
/// Megabytes that travel over ssh in a round, both ways together, as in the script.
const ECHOED_MB: f64 = 2.0 * (128 << 20) as f64 / 1e6;

/// Measure Python functions on servers and arrays over ssh, beside loky, Ray and `ssh host cat`
///
/// Four servers of one processor element each and their metaserver run on this machine. A round has
/// 3,000 tasks of 1 ms, with farcall.Executor and with Ray, and a search of scikit-learn with 50
/// fits of 0.1 s, with farcall.joblib and with loky. An array of 128 MiB travels to a server behind
/// ssh:// and back, and through `ssh host cat`. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Example:\n  scripts/peers && farcall bench reach --check")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Python interpreter with farcall, joblib and scikit-learn
    #[arg(long, value_name = "PROGRAM", default_value = ".venv/bin/python")]
    python: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let sshd = Sshd::start()?;
    if arguments.check && sshd.is_none() {
        return Err(Failure::failed(
            "no sshd, so the bar of ssh cannot be checked: run scripts/setup programs",
        ));
    }
    let machine = Machine::watch();
    let mut command = Command::new(crate::program::farcall()?);
    command
        .args([
            "up",
            "--local",
            &SERVERS.to_string(),
            "--pes",
            "1",
            "--pickled",
        ])
        .args(["--listen", "127.0.0.1:0", "--log", "error"])
        .env("FARCALL_PYTHON", &arguments.python);
    // The metaserver comes first, then its servers.
    let mut site = Daemon::start(command)?;
    for _ in 0..SERVERS {
        site.next_line()?;
    }
    let address = site.address();
    let own = |name| Contender::script(&arguments.python, SCRIPT, &[name, address]);
    let ray = Contender::script(Path::new(PEERS_PYTHON), SCRIPT, &["tasks-ray", ""]);
    let ray =
        ray.map_err(|failure| Failure::failed(format!("{failure}; scripts/peers has Ray")))?;
    let tasks = measure(own("tasks-farcall")?, ray, arguments.rounds)?;
    let search = measure(
        own("search-farcall")?,
        own("search-loky")?,
        arguments.rounds,
    )?;
    let mut rows = rows(tasks, search);
    match sshd {
        Some(sshd) => {
            let config = sshd.config();
            let over = |name| Contender::script(&arguments.python, SCRIPT, &[name, &config]);
            let echo = measure(over("echo-farcall")?, over("echo-cat")?, arguments.rounds)?;
            rows.push(echo_row(echo));
        }
        None => progress::left_out("no sshd: the row of ssh is skipped; scripts/setup programs"),
    }
    report(&rows, machine.end(), arguments.json, arguments.check)
}

/// Seconds of the rounds of two contenders, in turn.
fn measure(
    mut ours: Contender,
    mut peer: Contender,
    rounds: u64,
) -> Result<[Vec<f64>; 2], Failure> {
    let mut seconds = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        seconds[0].push(ours.work()?);
        seconds[1].push(peer.work()?);
    }
    Ok(seconds)
}

fn echo_row([values, peer_values]: [Vec<f64>; 2]) -> Row {
    let rate = |seconds: Vec<f64>| seconds.into_iter().map(|one| ECHOED_MB / one).collect();
    Row {
        name: "128 MiB over ssh, there and back".to_owned(),
        unit: "MB/s",
        values: rate(values),
        peer: "ssh host cat",
        peer_values: rate(peer_values),
        better: Better::Higher,
        bar: Some(0.9),
    }
}

fn rows(tasks: [Vec<f64>; 2], search: [Vec<f64>; 2]) -> Vec<Row> {
    let rates = tasks.map(|seconds| seconds.into_iter().map(|one| TASKS / one).collect());
    let [values, peer_values] = rates;
    let tasks = Row {
        name: "tasks of 1 ms".to_owned(),
        unit: "/s",
        values,
        peer: "Ray",
        peer_values,
        better: Better::Higher,
        bar: Some(2.0),
    };
    let [values, peer_values] = search;
    let search = Row {
        name: "GridSearchCV, 50 fits of 0.1 s".to_owned(),
        unit: "s",
        values,
        peer: "loky",
        peer_values,
        better: Better::Lower,
        bar: Some(1.1),
    };
    vec![tasks, search]
}

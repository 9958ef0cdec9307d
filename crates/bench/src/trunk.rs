//! `farcall bench trunk`: trunks between hosts in network namespaces, compared with the capacity of
//! the links, with plain TCP and with the kernel's multipath TCP. The modules below measure, and
//! `farcall_lab` makes the hosts. It needs root.

mod failures;
mod nodes;
mod programs;
mod questions;
mod secrecy;
mod shares;
mod single;
mod tcp;

use super::table::{Better, Row, end_beside, show};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use clap::Args;
use farcall_lab::LabError;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

/// Measure shares, failures and speed of a trunk on the RI2N paper's topologies
///
/// The run creates and removes network namespaces for the hosts and switches, so it needs root.
/// benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench trunk --check
  sudo farcall bench trunk --peers --only '(d)'
  sudo farcall bench trunk --only failure --trials 20 --peers")]
pub(crate) struct Arguments {
    /// Also measure the published policies, plain TCP and multipath TCP in the same run
    #[arg(long)]
    peers: bool,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Number of failures of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trials: u32,
    /// Run only measurements whose name contains this text: (a) to (h), learned a to learned h,
    /// change, ping, loss, speed, beside TCP, key, links taken out, failure in, failure out,
    /// failure both ways, each failure also "beside busy loops" and "beside bursts", and with
    /// ", MPTCP", small packets, sparse, stages, weights, nodes, NFS, MPI
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Whether a measurement was wanted so far.
    #[arg(skip)]
    has_begun: Cell<bool>,
}

impl Arguments {
    /// Whether a measurement is wanted, which then begins.
    fn begins(&self, name: &str) -> bool {
        let is_wanted = self.only.as_deref().is_none_or(|only| name.contains(only));
        if is_wanted {
            self.has_begun.set(true);
            progress::measuring(name);
        }
        is_wanted
    }

    /// Why there is no figure.
    fn nothing(&self) -> Failure {
        let only = self.only.as_deref().unwrap_or_default();
        match self.has_begun.get() {
            true => Failure::failed("nothing was measured: all was skipped"),
            false => Failure::usage(format!(
                "--only {only}: no measurement has this in its name; `farcall bench trunk --help` \
                 lists them"
            )),
        }
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

type Part = fn(&Arguments, &Program) -> Result<Vec<Row>, Failure>;

/// The measurements, in the order in which they are printed. All of them take half an hour.
const PARTS: [Part; 8] = [
    shares::measure,
    single::measure,
    tcp::measure,
    secrecy::measure,
    failures::measure,
    questions::measure,
    nodes::measure,
    programs::measure,
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let farcall = crate::program::farcall()?;
    let machine = Machine::watch();
    let mut rows = Vec::new();
    for part in PARTS {
        let more = part(arguments, &farcall)?;
        if !arguments.json {
            show(&more, rows.is_empty());
        }
        rows.extend(more);
    }
    if rows.is_empty() {
        return Err(arguments.nothing());
    }
    end_beside(&rows, machine.end(), arguments.json, arguments.check)
}

/// A row: a figure with a limit, or with a peer's figure.
fn row(
    name: String,
    unit: &'static str,
    values: Vec<f64>,
    (peer, peer_value): (&'static str, f64),
    (better, bar): (Better, Option<f64>),
) -> Row {
    let peer_values = vec![peer_value];
    Row {
        name,
        unit,
        values,
        peer,
        peer_values,
        better,
        bar,
    }
}

/// The peer's column for a value that is compared with the bar itself.
fn at_most(limit: f64) -> ((&'static str, f64), (Better, Option<f64>)) {
    (("at most", limit), (Better::Lower, Some(1.0)))
}

fn at_least(limit: f64) -> ((&'static str, f64), (Better, Option<f64>)) {
    (("at least", limit), (Better::Higher, Some(1.0)))
}

type Program = PathBuf;

impl From<LabError> for Failure {
    fn from(error: LabError) -> Failure {
        Failure::failed(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::arguments;

    #[test]
    fn what_is_skipped_is_not_unknown() {
        let arguments: Arguments = arguments(vec!["--only", "NFS"]).unwrap();
        assert!(!arguments.begins("(a)"));
        assert!(
            arguments
                .nothing()
                .to_string()
                .contains("no measurement has this")
        );
        assert!(arguments.begins("NFS"));
        assert!(arguments.nothing().to_string().contains("skipped"));
    }
}

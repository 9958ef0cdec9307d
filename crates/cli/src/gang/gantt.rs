//! `farcall gang gantt`: lets the Python package draw a trace.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use clap::Args;

/// Draw the slices of jobs on each node from the trace of a daemon
///
/// The trace is what `farcall gang daemon --trace FILE` of the root writes. Each node has a row,
/// each job a colour; the gaps are switches.
#[derive(Args)]
#[command(after_help = "Example:
  farcall gang gantt trace.csv -o slices.svg --from 1 --to 3")]
pub(crate) struct Arguments {
    /// Trace of the root's daemon
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Picture to write, .svg, .png or .pdf
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Seconds after the first switch at which the picture begins
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
    /// Seconds after the first switch at which it ends [default: the last switch]
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,
    /// Python interpreter with farcall and matplotlib
    #[arg(long, env = "FARCALL_PYTHON", value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let extension = arguments.output.extension().and_then(|e| e.to_str());
    if !matches!(extension, Some("svg" | "png" | "pdf")) {
        return Err(Failure::usage("--output ends in .svg, .png or .pdf"));
    }
    let python = arguments.python.clone();
    let python = python.unwrap_or_else(crate::flow::plot::interpreter);
    let mut command = Command::new(&python);
    command
        .args(["-m", "farcall._gantt"])
        .arg(&arguments.trace)
        .arg(&arguments.output)
        .arg(arguments.from.to_string());
    command.args(arguments.to.map(|to| to.to_string()));
    let run = command.output().map_err(|error| {
        let python = python.display();
        Failure::failed(format!("{python}: {error}; name one with --python"))
    })?;
    if run.status.success() {
        println!("{}", arguments.output.display());
        return Ok(());
    }
    let text = String::from_utf8_lossy(&run.stderr);
    let last = text.trim().lines().last().unwrap_or("no message");
    Err(Failure::failed(format!(
        "{} -m farcall._gantt: {last}\n  charts need the Python package farcall and matplotlib: \
         `make build`, or name an interpreter that has them with --python",
        python.display()
    )))
}

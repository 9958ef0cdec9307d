//! `farcall gang gantt`: has the Python package draw a trace. The root daemon writes the trace, and
//! this command does not read it itself.

use crate::failure::Failure;
use crate::picture::{Painter, check_apart, check_form};
use clap::Args;
use std::path::PathBuf;

/// Draw the time slices of the jobs on each node
///
/// The root daemon writes the trace with `farcall gang daemon --trace FILE`. In the picture, each
/// node has a row, each job has a colour, and the gaps are gang switches.
#[derive(Args)]
#[command(after_help = "Example:
  farcall gang gantt trace.csv -o slices.svg --from 1 --to 3")]
pub(crate) struct Arguments {
    /// Trace of the root daemon
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Picture to write: .svg, .png or .pdf
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Start of the picture, in seconds after the first switch
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
    /// End of the picture, in seconds after the first switch [default: the last switch]
    #[arg(long, value_name = "SECONDS")]
    to: Option<f64>,
    #[command(flatten)]
    painter: Painter,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    check_form("--output", &arguments.output)?;
    if let Some(to) = arguments.to.filter(|to| *to <= arguments.from) {
        let from = arguments.from;
        return Err(Failure::usage(format!(
            "--to {to} is not after --from {from}; make it larger"
        )));
    }
    let trace = arguments.trace.display();
    match std::fs::metadata(&arguments.trace) {
        Ok(found) if found.is_dir() => {
            return Err(Failure::cannot("read", trace, "it is a folder"));
        }
        Ok(_) => {}
        Err(error) => return Err(Failure::cannot("read", trace, error)),
    }
    check_apart("--output", &arguments.output, [&arguments.trace])?;
    let mut words = vec![
        arguments.trace.clone().into_os_string(),
        arguments.output.clone().into_os_string(),
        arguments.from.to_string().into(),
    ];
    words.extend(arguments.to.map(|to| to.to_string().into()));
    arguments.painter.draw("farcall._gantt", words)?;
    println!("{}", arguments.output.display());
    Ok(())
}

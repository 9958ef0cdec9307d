//! `farcall flow plot`: simulates a pattern and has the Python package draw it. The command writes
//! the data and no picture itself.

use super::run::{MessageTable, write_links};
use super::workload::Options;
use crate::failure::Failure;
use crate::picture::{Painter, check_form};
use clap::{Args, ValueEnum};
use farcall_flow::MessageRecord;
use std::ffi::OsStr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  farcall flow plot --platform torus:16x16 --pattern all-to-all:pairwise --size 20KB -o load.svg
  farcall flow plot --kind timeline --platform torus:4x4 --pattern allreduce:ring --size 1MB \\
      -o timeline.png";

/// Draw the load of each link, or the messages over time
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// What to draw
    #[arg(long, value_enum, default_value = "heat-map")]
    kind: Kind,
    /// Picture to write: .svg, .png or .pdf. `farcall flow run --perfetto` writes a trace for
    /// Perfetto
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    painter: Painter,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Utilisation of every link
    HeatMap,
    /// A line for each rank, a bar for each message
    Timeline,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    check_form(&arguments.output)?;
    let heat_map = matches!(arguments.kind, Kind::HeatMap);
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::failed(format!("cannot make a temporary folder: {error}")))?;
    let data = folder.path().join("data.csv");
    let plan = arguments.options.plan(heat_map)?;
    let kind = if heat_map {
        let (platform, outcome) = plan.run(None)?;
        write_links(&data, &platform, &outcome)?;
        "heat-map"
    } else {
        let mut table = MessageTable::create(&data)?;
        plan.run(Some(Box::new(|message: &MessageRecord| table.add(message))))?;
        table.finish()?;
        "timeline"
    };
    let output = arguments.output.as_os_str();
    let data = data.as_os_str();
    let painter = &arguments.painter;
    painter.draw("farcall.flow.plot", [OsStr::new(kind), data, output])?;
    println!("{}", arguments.output.display());
    Ok(())
}

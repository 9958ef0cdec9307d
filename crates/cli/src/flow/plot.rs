//! `farcall flow plot`: simulates, and lets the Python package draw.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{MessageTable, write_links};
use super::workload::Options;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use farcall_flow::MessageRecord;

const EXAMPLES: &str = "\
Examples:
  farcall flow plot --platform torus:16x16 --pattern all-to-all:pairwise --size 20KB -o load.svg
  farcall flow plot --kind timeline --platform torus:4x4 --pattern allreduce:ring --size 1MB \\
      -o timeline.png";

/// Draw the load of the links, or the messages over time
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// What to draw
    #[arg(long, value_enum, default_value = "heat-map")]
    kind: Kind,
    /// Picture to write, .svg or .png; for perfetto use `farcall flow run --perfetto`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Python interpreter with farcall and matplotlib
    #[arg(long, env = "FARCALL_PYTHON", value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Utilisation of every link
    HeatMap,
    /// One line a rank, one bar a message
    Timeline,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let extension = arguments.output.extension().and_then(|e| e.to_str());
    if !matches!(extension, Some("svg" | "png" | "pdf")) {
        return Err(Failure::usage("--output ends in .svg, .png or .pdf"));
    }
    let python = arguments.python.clone().unwrap_or_else(interpreter);
    let heat_map = matches!(arguments.kind, Kind::HeatMap);
    let folder = Scratch::new()?;
    let data = folder.0.join(if heat_map {
        "links.csv"
    } else {
        "messages.csv"
    });
    let plan = arguments.options.plan(heat_map)?;
    if heat_map {
        let (platform, outcome) = plan.run(None)?;
        write_links(&data, &platform, &outcome)?;
    } else {
        let mut table = MessageTable::create(&data)?;
        plan.run(Some(Box::new(|message: &MessageRecord| table.add(message))))?;
        table.finish()?;
    }
    draw(
        &python,
        if heat_map { "heat-map" } else { "timeline" },
        &data,
        &arguments.output,
    )
}

fn draw(python: &Path, kind: &str, data: &Path, output: &Path) -> Result<(), Failure> {
    let run = Command::new(python)
        .args(["-m", "farcall.flow.plot", kind])
        .arg(data)
        .arg(output)
        .output()
        .map_err(|error| {
            Failure::failed(format!(
                "{}: {error}; name one with --python",
                python.display()
            ))
        })?;
    if run.status.success() {
        println!("{}", output.display());
        return Ok(());
    }
    let text = String::from_utf8_lossy(&run.stderr);
    let last = text.trim().lines().last().unwrap_or("no message");
    Err(Failure::failed(format!(
        "{} -m farcall.flow.plot: {last}\n  plots need the Python package farcall and matplotlib: \
         `make build`, or name an interpreter that has them with --python",
        python.display()
    )))
}

/// The interpreter beside this program, as in a virtual environment, else that of the project's
/// `.venv`, else `python3`.
pub(crate) fn interpreter() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        let venv = folder.parent()?.parent()?.join(".venv/bin/python");
        [folder.join("python3"), venv]
            .into_iter()
            .find(|python| python.is_file())
    });
    beside.unwrap_or_else(|| PathBuf::from("python3"))
}

/// A folder for the data of one picture, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Failure> {
        let folder = std::env::temp_dir().join(format!("farcall-flow-{}", std::process::id()));
        std::fs::create_dir(&folder)
            .map_err(|e| Failure::failed(format!("{}: {e}", folder.display())))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

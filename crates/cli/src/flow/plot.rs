//! `farcall flow plot`: simulates a pattern and has the Python package draw it. The command writes
//! the data and no picture itself.

use super::run::{MessageTable, Table, field, write_links};
use super::workload::Options;
use crate::failure::Failure;
use crate::picture::{Painter, check_form};
use crate::results::check_files;
use clap::{Args, ValueEnum};
use farcall_flow::platform::LinkId;
use farcall_flow::{LinkUser, Platform, Record};
use rustix::io::FdFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

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
    /// Utilisation of every link, in the shape of the network, and the hottest links with the ranks
    /// that use them. This simulates twice
    HeatMap,
    /// A line for each rank with its messages, or with its rate if there are many
    Timeline,
}

/// Links that a heat map lists.
const HOTTEST: usize = 10;
/// Pairs of ranks that it lists for each of them.
const USERS: usize = 3;

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    check_form("--output", &arguments.output)?;
    check_files([&arguments.output])?;
    let heat_map = matches!(arguments.kind, Kind::HeatMap);
    let plan = arguments.options.plan(heat_map)?;
    arguments.painter.check("farcall.flow.plot")?;
    let [(_data, data), (_users, users)] = [nameless()?, nameless()?];
    let (kind, data) = if heat_map {
        let hottest = plan.hottest(HOTTEST)?;
        let (platform, outcome) = plan.watching(&hottest).run(None)?;
        write_links(&data, &platform, &outcome).map_err(in_temporary)?;
        write_users(&users, &platform, &hottest, &outcome.users).map_err(in_temporary)?;
        ("heat-map", [data.as_os_str(), users.as_os_str()].to_vec())
    } else {
        let mut table = MessageTable::create(&data)?;
        let (_, outcome) = plan.run(Some(Box::new(|record: &Record| {
            if let Record::Message(message) = record {
                table.add(message);
            }
        })))?;
        table.finish().map_err(in_temporary)?;
        if outcome.summary.messages == 0 {
            let text = "no rank sends a message, so that there is nothing to draw; look at \
                        --pattern and --steps";
            return Err(Failure::failed(text));
        }
        ("timeline", [data.as_os_str()].to_vec())
    };
    let mut words = vec![OsStr::new(kind), arguments.output.as_os_str()];
    words.extend(data);
    arguments.painter.draw("farcall.flow.plot", words)?;
    println!("{}", arguments.output.display());
    Ok(())
}

/// A file without a name, and the path by which a program that this one starts can open it. It is
/// gone when both have ended, however they end: it can have gigabytes.
fn nameless() -> Result<(File, PathBuf), Failure> {
    let make = || {
        let file = tempfile::tempfile()?;
        rustix::io::fcntl_setfd(&file, FdFlags::empty())?;
        Ok(file)
    };
    let cannot = |error: io::Error| format!("cannot make a temporary file: {error}");
    let file = make().map_err(|error| Failure::failed(cannot(error)))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path.into()))
}

/// Says of which disk the file without a name is.
fn in_temporary(failure: Failure) -> Failure {
    let folder = std::env::temp_dir();
    Failure::failed(format!("{failure}, in {}", folder.display()))
}

/// Writes `link,name,source,destination,share,pairs`: for each link the pairs of ranks that sent
/// most bytes over it, their part of all bytes, and the number of all pairs.
fn write_users(
    file: &Path,
    platform: &Platform,
    links: &[LinkId],
    users: &[Vec<LinkUser>],
) -> Result<(), Failure> {
    let mut out = Table::create(file)?;
    out.write(format_args!("link,name,source,destination,share,pairs\n"));
    for (&link, users) in links.iter().zip(users) {
        let (name, pairs) = (field(platform.link_name(link)), users.len());
        let total: f64 = users.iter().map(|user| user.2).sum();
        for (source, destination, bytes) in users.iter().take(USERS) {
            let share = bytes / total;
            out.write(format_args!(
                "{link},{name},{source},{destination},{share},{pairs}\n"
            ));
        }
    }
    out.finish()
}

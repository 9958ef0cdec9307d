//! `farcall flow run`: simulates a pattern on a platform, prints its times, and writes tables of
//! links and messages. The simulator itself is the crate `flow`.

use super::workload::{Options, Outcome, Plan};
use crate::failure::{self, Failure};
use crate::replace::Draft;
use crate::results::{also_read, check_files};
use clap::Args;
use farcall_flow::{MessageRecord, Platform, Record, Sink, Trace};
use serde_json::json;
use std::fmt;
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  farcall flow run --platform fat-tree:ports=24,levels=3 --pattern all-to-all --size 1 \\
      --placement random:1
  farcall flow run --platform torus:16x16,bandwidth=1GB/s --pattern all-to-all:pairwise \\
      --size 20KB --json
  farcall flow run --platform torus:8x8x8,bandwidth=10GB/s,latency=1us --pattern goal:app.goal
  farcall flow run --platform dragonfly:routers=8,terminals=4,bandwidth=10GB/s \\
      --job ranks=512,pattern=allreduce:ring,size=1GB \\
      --job ranks=256,pattern=all-to-all,size=1MB,start=10ms,placement=random:1 \\
      --routing adaptive --fail 'group 0 router 0 to group 1@20ms'";

/// Links with a counter in a trace for Perfetto.
const COUNTERS: usize = 16;

/// Predict how long a communication pattern takes on a network
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Write every message to a CSV file: source, destination, bytes, start, end
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
    /// Write the load of every link to a CSV file: link, name, bandwidth, bytes, utilisation, and
    /// its place in a picture
    #[arg(long, value_name = "FILE")]
    links: Option<PathBuf>,
    /// Write a trace for Perfetto and chrome://tracing: messages, computations, and the load of the
    /// 16 links with the highest utilisation. This simulates twice
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    check(arguments)?;
    let mut plan = arguments.options.plan(arguments.links.is_some())?;
    let mut table = arguments
        .messages
        .as_deref()
        .map(MessageTable::create)
        .transpose()?;
    let mut trace = None;
    if let Some(file) = &arguments.perfetto {
        let (watching, made) = with_trace(plan, file)?;
        (plan, trace) = (watching, Some(made));
    }
    let start = Instant::now();
    let wanted = table.is_some() || trace.is_some();
    let sink: Option<Sink<'_>> = match wanted {
        false => None,
        true => Some(Box::new(|record: &Record| {
            if let (Some(table), Record::Message(message)) = (&mut table, record) {
                table.add(message);
            }
            if let Some(trace) = &mut trace {
                trace.add(record);
            }
        })),
    };
    let (platform, outcome) = plan.run(sink)?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds();
    // A file that cannot be written takes neither the figures nor the other files with it. The
    // figures come last, because a command whose output nobody reads can end there.
    let links = arguments.links.as_deref();
    let written = [
        table.map(MessageTable::finish),
        trace.map(Perfetto::finish),
        links.map(|file| write_links(file, &platform, &outcome)),
    ];
    let written = failure::of_all(written.into_iter().flatten());
    print(&outcome, arguments.json, wall, cpu);
    written
}

/// Refuses one file for two results, and for a result and what the simulation reads.
fn check(arguments: &Arguments) -> Result<(), Failure> {
    let files = [&arguments.messages, &arguments.links, &arguments.perfetto];
    let files: Vec<&Path> = files.into_iter().flatten().map(PathBuf::as_path).collect();
    check_files(&files)?;
    match also_read(files, arguments.options.files()) {
        None => Ok(()),
        Some(file) => {
            let text = "the simulation reads this file; name another one";
            Err(Failure::cannot("write", file.display(), text).into_usage())
        }
    }
}

/// Prints what a simulation gave, and what it cost.
fn print(outcome: &Outcome, as_json: bool, wall: f64, cpu: f64) {
    let summary = &outcome.summary;
    let memory = peak_rss_bytes();
    if as_json {
        println!(
            "{}",
            json!({
                "schema": 1,
                "makespan": summary.makespan,
                "messages": summary.messages,
                "events": summary.events,
                "rounds": outcome.rounds,
                "job_ends": outcome.job_ends,
                "wall_s": wall,
                "cpu_s": cpu,
                "peak_rss_bytes": memory,
            })
        );
    } else {
        let text = format!(
            "makespan  {} s\nmessages  {}\nevents    {}\nwall      {wall:.3} s\n\
             memory    {:.1} MB\n",
            summary.makespan,
            summary.messages,
            summary.events,
            memory as f64 / 1e6
        );
        let ends = outcome.job_ends.iter().enumerate();
        let jobs: String = ends
            .map(|(job, end)| format!("job {job:<5} ends at {end} s\n"))
            .collect();
        print!("{text}{jobs}");
    }
}

/// A trace of a simulation, and the simulation, which then watches the links with counters.
fn with_trace(plan: Plan, file: &Path) -> Result<(Plan, Perfetto), Failure> {
    let hottest = match plan.is_of_packets() {
        true => Vec::new(),
        false => plan.hottest(COUNTERS)?,
    };
    let names = hottest.iter().map(|&l| (l, plan.platform.link_name(l)));
    let trace = Perfetto::create(file, Trace::new(plan.ranks(), names))?;
    Ok((plan.watching(&hottest), trace))
}

/// The most memory that this process has used; 0 if the system does not tell.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Processor time that this process has used so far, in seconds.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A file for results, which replaces an older one when it is whole. It keeps the first error for
/// the end.
pub(super) struct Table {
    path: PathBuf,
    out: BufWriter<Draft>,
    result: std::io::Result<()>,
}

impl Table {
    pub(super) fn create(path: &Path) -> Result<Table, Failure> {
        let made = Draft::create(path);
        let made = made.map_err(|error| Failure::cannot("write", path.display(), error))?;
        Ok(Table {
            path: path.to_path_buf(),
            out: BufWriter::new(made),
            result: Ok(()),
        })
    }

    /// Writes text, unless something before could not be written.
    pub(super) fn write(&mut self, text: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.out.write_fmt(text);
        }
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        let Table { path, out, result } = self;
        let ended = result
            .and_then(|()| out.into_inner().map_err(IntoInnerError::into_error))
            .and_then(Draft::finish);
        ended.map_err(|error| Failure::cannot("write", path.display(), error))
    }
}

/// A text as a field of a CSV file. The names of an edge list can have quotation marks.
pub(super) fn field(text: String) -> String {
    match text.contains('"') {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

/// Writes `link,name,bandwidth,bytes,utilisation,panel,row,column`, one row a link.
pub(super) fn write_links(
    file: &Path,
    platform: &Platform,
    outcome: &Outcome,
) -> Result<(), Failure> {
    let mut out = Table::create(file)?;
    out.write(format_args!(
        "link,name,bandwidth,bytes,utilisation,panel,row,column\n"
    ));
    for (link, bytes) in outcome.link_bytes.iter().enumerate() {
        let bandwidth = platform.bandwidth(link as u32);
        let capacity = bandwidth * outcome.summary.makespan;
        let utilisation = if capacity > 0.0 {
            bytes / capacity
        } else {
            0.0
        };
        let name = field(platform.link_name(link as u32));
        let place = platform.place(link as u32);
        out.write(format_args!(
            "{link},{name},{bandwidth},{bytes},{utilisation},{},{},{}\n",
            place.panel, place.row, place.column
        ));
    }
    out.finish()
}

/// A CSV file of messages.
pub(super) struct MessageTable(Table);

impl MessageTable {
    pub(super) fn create(file: &Path) -> Result<MessageTable, Failure> {
        let mut out = Table::create(file)?;
        out.write(format_args!("source,destination,bytes,start,end\n"));
        Ok(MessageTable(out))
    }

    pub(super) fn add(&mut self, m: &MessageRecord) {
        let (from, to) = (m.source, m.destination);
        let (bytes, start, end) = (m.bytes, m.start, m.end);
        self.0
            .write(format_args!("{from},{to},{bytes},{start},{end}\n"));
    }

    pub(super) fn finish(self) -> Result<(), Failure> {
        self.0.finish()
    }
}

/// A file for Perfetto.
struct Perfetto {
    out: Table,
    trace: Trace,
}

impl Perfetto {
    fn create(file: &Path, trace: Trace) -> Result<Perfetto, Failure> {
        let out = Table::create(file)?;
        Ok(Perfetto { out, trace })
    }

    fn add(&mut self, record: &Record) {
        self.trace.add(record);
        if self.trace.pending() > 64 << 10 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let text = self.trace.take();
        self.out.write(format_args!("{text}"));
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.trace.finish();
        self.flush();
        self.out.finish()
    }
}

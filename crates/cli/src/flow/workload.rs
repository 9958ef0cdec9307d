//! The arguments that describe a simulation, and the files that they name. It reads files and turns
//! errors into messages; `farcall_flow` parses the texts and simulates. A file of more than 4 GiB
//! is refused.

use super::huge_pages;
use crate::failure::Failure;
use clap::builder::RangedI64ValueParser;
use clap::{Args, ValueEnum};
use farcall_flow::platform::{EdgeList, LinkId};
use farcall_flow::{
    Completion, Config, Failure as Failing, Goal, Limits, LinkUser, LogGops, Mode, PacketConfig,
    PacketSimulation, Pattern, Placement, Platform, Routing, RunError, Script, Simulation, Sink,
    Summary, Workload, hottest_links,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest file that is read.
const MAX_FILE: u64 = 4 << 30;

/// A number that is not 0.
fn some() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// A number without a unit.
fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>();
    number.map_err(|_| "write a fraction, such as 0.01".to_owned())
}

#[derive(Args)]
pub(super) struct Options {
    /// Network: fat-tree:ports=24,levels=3 | torus:16x16 | mesh:8x8x8,wrap=z |
    /// hypercrossbar:4x4x4 | dragonfly:routers=4,terminals=2,global=2 | hyperx:8x8,terminals=8 |
    /// edges:FILE. All but the last take bandwidth=1GB/s, latency=1us, hop-latency=100ns for each
    /// link, and devices=8,device-bandwidth=300GB/s for several devices in each node
    #[arg(long, value_name = "SPEC")]
    platform: String,
    /// Communication pattern: all-to-all:simple-spread | all-to-all:pairwise | allreduce:ring |
    /// broadcast:binomial | exchange:16x16 | moe:4 | file:PATTERN.csv | goal:TRACE.goal |
    /// chakra:PREFIX | ...
    #[arg(
        long,
        value_name = "SPEC",
        default_value = "",
        hide_default_value = true
    )]
    #[arg(required_unless_present = "job")]
    pattern: String,
    /// Bytes of a message, or of the vector of a collective operation: 20KB, 1e6. Leave it out for
    /// patterns from a file
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// How flows share links
    #[arg(long, value_enum, default_value = "exact")]
    mode: ModeName,
    /// Node of each rank: regular | random:SEED | file:PERM.csv
    #[arg(long, value_name = "SPEC", default_value = "regular")]
    placement: String,
    /// A job among others, instead of --pattern, --size and --placement; repeat it. Such as
    /// ranks=64,pattern=allreduce:ring,size=1MB,start=1ms,placement=random:1. start is 0 if left
    /// out; placement is regular (the first free nodes), random:SEED or at:NODE
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["pattern", "size", "placement"])]
    #[arg(conflicts_with_all = ["steps", "count", "loggops"])]
    job: Vec<String>,
    /// Routes of messages on fat trees and dragonflies: static | ecmp | spray (ECMP for each
    /// packet) | valiant | adaptive; with a seed such as ecmp:7
    #[arg(long, value_name = "SPEC", default_value = "static")]
    routing: String,
    /// A link, a switch or a node that fails at a time, such as "level 2 switch 0.1@1ms"; repeat
    /// it. Its flows take other routes. `farcall flow run --links FILE` lists the names of links
    #[arg(long, value_name = "NAME@TIME")]
    fail: Vec<String>,
    /// Time that a host needs for a message at each end, such as 1us. Traces have --loggops
    #[arg(long, value_name = "TIME", default_value = "0")]
    overhead: String,
    /// Simulate only the first K rounds of the pattern
    #[arg(long, value_name = "K")]
    steps: Option<u64>,
    /// Messages for each pair of nodes
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = some())]
    count: u32,
    /// With --mode iterated: stop when no rate changes by more than this fraction. With inf, there
    /// are no further rounds [default: 0.01]
    #[arg(long, value_parser = fraction)]
    threshold: Option<f64>,
    /// With --mode exact: the fraction of its bandwidth by which the load of a link can be off.
    /// 0.01 is several times faster on large networks with contention, and checks itself
    #[arg(long, value_name = "FRACTION", default_value = "0", value_parser = fraction)]
    tolerance: f64,
    /// Shortest simulated time between two batches of completions, such as 1us
    #[arg(long, value_name = "TIME", default_value = "0")]
    #[arg(value_parser = farcall_quantity::seconds)]
    resolution: f64,
    /// Sends that a node may have under way at the same time
    #[arg(long, default_value_t = 1, value_parser = some())]
    window: u32,
    /// When a send is complete and the next one may start [default: destination; source for traces]
    #[arg(long, value_enum, hide_default_value = true)]
    completion: Option<CompletionName>,
    /// With a trace: what hosts need for a message, such as L=2500,o=1500,g=1000,G=6,O=0,S=65535,
    /// the parameters of LogGOPSim in nanoseconds and, for S, bytes. Those left out are 0, and
    /// without S all messages are eager
    #[arg(long, value_name = "SPEC", conflicts_with = "completion")]
    loggops: Option<String>,
    /// Bytes of the packets that switches store before they forward them: the largest part of what
    /// buffers cost, without the cost of --mode packets
    #[arg(long, value_name = "BYTES", default_value = "0")]
    #[arg(value_parser = farcall_quantity::volume)]
    stored_packet: f64,
    /// With --mode packets: largest packet, in bytes [default: 1500]
    #[arg(long, value_name = "BYTES", value_parser = farcall_quantity::volume)]
    packet_size: Option<f64>,
    /// With --mode packets: packets in the buffer at the end of a link [default: 16]
    #[arg(long, value_name = "N", value_parser = some())]
    buffer: Option<u32>,
    /// With --mode packets: let packets pass a blocked packet that waits for another link
    #[arg(long)]
    virtual_output_queues: bool,
    /// After every batch, check that the rates are max-min fair (slow)
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ModeName {
    /// Max-min fair rates
    Exact,
    /// An approximation: mode N of the MFS paper
    Iterated,
    /// An approximation: mode F of the MFS paper
    EqualSplit,
    /// Packets, buffers and credits instead of flows
    Packets,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum CompletionName {
    /// When the last byte has arrived
    Destination,
    /// When the last byte has left
    Source,
}

/// All that a simulation needs.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) platform: Platform,
    workload: Workload,
    placement: Placement,
    config: Config,
    packets: Option<PacketConfig>,
}

/// What a simulation gave.
pub(super) struct Outcome {
    pub(super) summary: Summary,
    /// Bytes over each link, if the caller asked for them.
    pub(super) link_bytes: Vec<f64>,
    /// Rounds of step 5 of the MFS paper, in mode iterated.
    pub(super) rounds: u64,
    /// Who used the watched links, those with most bytes first.
    pub(super) users: Vec<Vec<LinkUser>>,
    /// When each of several jobs ended.
    pub(super) job_ends: Vec<f64>,
}

impl Options {
    /// Reads specifications and files.
    pub(super) fn plan(&self, link_bytes: bool) -> Result<Plan, Failure> {
        let platform = match self.platform.strip_prefix("edges:") {
            Some(file) => EdgeList::parse(&read(file)?)
                .map_err(|error| Failure::failed(format!("{file}: {error}")))?,
            None => {
                let platform = Platform::parse(&self.platform).map_err(Failure::usage)?;
                huge_pages::use_for_large_network(platform.links());
                platform
            }
        };
        let (workload, placement) = match self.job.is_empty() {
            true => (self.workload(&platform)?, self.placement(&platform)?),
            false => super::jobs::read(&self.job, platform.nodes())?,
        };
        self.check(&workload, &platform)?;
        let wrong = |option: &str, error| Failure::usage(format!("{option}: {error}"));
        let routing = Routing::parse(&self.routing)
            .and_then(|routing| routing.check(&platform).map(|()| routing))
            .map_err(|error| wrong("--routing", error))?;
        let failures = self.fail.iter().map(|spec| Failing::parse(spec, &platform));
        let failures = failures
            .collect::<Result<_, _>>()
            .map_err(|error| wrong("--fail", error))?;
        let overhead = self.overhead()?;
        let completion = self.completion.map(|completion| match completion {
            CompletionName::Destination => Completion::Destination,
            CompletionName::Source => Completion::Source,
        });
        let packets = (self.mode == ModeName::Packets).then_some(PacketConfig {
            packet_bytes: self.packet_size(),
            buffer_packets: self.buffer.unwrap_or(16),
            virtual_output_queues: self.virtual_output_queues,
            window: self.window,
            completion,
            routing,
            overhead,
        });
        if packets.is_some() && (link_bytes || !self.fail.is_empty()) {
            let message = "--mode packets has no failures, and does not count the bytes of each \
                           link: choose another mode";
            return Err(Failure::usage(message));
        }
        let config = Config {
            mode: match self.mode {
                ModeName::Exact | ModeName::Packets => Mode::Exact,
                ModeName::Iterated => Mode::Iterated {
                    threshold: self.threshold.unwrap_or(0.01),
                },
                ModeName::EqualSplit => Mode::EqualSplit,
            },
            window: self.window,
            completion,
            tolerance: self.tolerance,
            resolution: self.resolution,
            verify: self.verify,
            link_bytes,
            watch: Vec::new(),
            routing,
            failures,
            overhead,
            stored_packet: self.stored_packet,
        };
        Ok(Plan {
            platform,
            workload,
            placement,
            config,
            packets,
        })
    }

    /// The files that the specifications name.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for text in [&self.platform, &self.placement, &self.pattern] {
            match text.split_once(':') {
                Some(("edges" | "file" | "goal", file)) => files.push(PathBuf::from(file)),
                Some(("chakra", prefix)) => {
                    let ranks = (0..).map(|rank| PathBuf::from(of_rank(prefix, rank)));
                    files.extend(ranks.take_while(|file| file.exists()));
                }
                _ => {}
            }
        }
        files
    }

    /// Refuses numbers that are out of range, and options that would have no effect.
    fn check(&self, workload: &Workload, platform: &Platform) -> Result<(), Failure> {
        if let Some(threshold) = self.threshold {
            if threshold.is_nan() || threshold < 0.0 {
                return Err(Failure::usage("--threshold must be 0 or greater"));
            }
            if self.mode != ModeName::Iterated {
                let message = "--threshold: only --mode iterated has a threshold";
                return Err(Failure::usage(message));
            }
        }
        if self.stored_packet > 0.0 && self.mode == ModeName::Packets {
            let message = "--stored-packet: --mode packets stores packets of --packet-size";
            return Err(Failure::usage(message));
        }
        if self.resolution > 0.0 && self.mode == ModeName::Packets {
            let message = "--resolution: --mode packets has no batches. Leave one of them out";
            return Err(Failure::usage(message));
        }
        if self.verify && self.mode != ModeName::Exact {
            let message = "--verify: only the rates of --mode exact are max-min fair. Leave one of \
                           them out";
            return Err(Failure::usage(message));
        }
        self.check_packets()?;
        if !(0.0..=0.1).contains(&self.tolerance) {
            return Err(Failure::usage("--tolerance must be between 0 and 0.1"));
        }
        if self.tolerance > 0.0 && self.mode != ModeName::Exact {
            let message = "--tolerance: only --mode exact has a tolerance. Leave one of them out";
            return Err(Failure::usage(message));
        }
        if self.overhead()? > 0.0 && matches!(workload, Workload::Goal(_)) {
            let message = "--overhead is for patterns. Use --loggops o=NANOSECONDS for traces";
            return Err(Failure::usage(message));
        }
        if self.loggops.is_some() && platform.hop_latency() > 0.0 {
            let message = "--loggops: L is the latency of a message. Leave hop-latency out";
            return Err(Failure::usage(message));
        }
        Ok(())
    }

    /// Refuses options of packets in other modes, and packets that are too small.
    fn check_packets(&self) -> Result<(), Failure> {
        let of_packets = [
            ("--packet-size", self.packet_size.is_some(), "packets"),
            ("--buffer", self.buffer.is_some(), "buffers"),
            (
                "--virtual-output-queues",
                self.virtual_output_queues,
                "buffers",
            ),
        ];
        for (option, is_given, what) in of_packets {
            if is_given && self.mode != ModeName::Packets {
                let message = format!("{option}: only --mode packets has {what}");
                return Err(Failure::usage(message));
            }
        }
        let size = self.packet_size();
        match size.is_finite() && size >= 1.0 {
            true => Ok(()),
            false => Err(Failure::usage("--packet-size must be at least 1 byte")),
        }
    }

    fn packet_size(&self) -> f64 {
        self.packet_size.unwrap_or(1500.0)
    }

    fn overhead(&self) -> Result<f64, Failure> {
        farcall_quantity::seconds(&self.overhead)
            .map_err(|reason| Failure::usage(format!("--overhead {reason}")))
    }

    fn placement(&self, platform: &Platform) -> Result<Placement, Failure> {
        match self.placement.strip_prefix("file:") {
            Some(file) => Placement::parse_csv(&read(file)?, platform.nodes())
                .map_err(|error| Failure::failed(format!("{file}: {error}"))),
            None => Placement::parse(&self.placement, platform.nodes()).map_err(Failure::usage),
        }
    }

    fn workload(&self, platform: &Platform) -> Result<Workload, Failure> {
        let limits = Limits::default();
        let files = ["file:", "goal:", "chakra:"];
        let is_file = files.iter().any(|kind| self.pattern.starts_with(kind));
        if is_file && self.size.is_some() {
            return Err(Failure::usage(
                "--size: the file states the sizes; leave --size out",
            ));
        }
        if is_file && (self.steps.is_some() || self.count != 1) {
            return Err(Failure::usage(
                "--steps and --count: the file states the messages; leave both out",
            ));
        }
        let in_file = |file: &str, error| Failure::failed(format!("{file}: {error}"));
        let only_traces = || {
            Failure::usage(
                "--loggops: only traces have hosts with costs. Use --pattern goal:FILE or \
                 chakra:PREFIX",
            )
        };
        if let Some(file) = self.pattern.strip_prefix("file:") {
            if self.loggops.is_some() {
                return Err(only_traces());
            }
            let script = Script::parse_csv(&read(file)?, limits);
            return Ok(Workload::Script(
                script.map_err(|error| in_file(file, error))?,
            ));
        }
        let hosts = self.loggops.as_deref().map(LogGops::parse).transpose();
        let hosts = hosts.map_err(|error| Failure::usage(format!("--loggops {error}")))?;
        let trace = match self.pattern.split_once(':') {
            Some(("goal", file)) => Some((file, Goal::read(&read_bytes(file)?, limits))),
            Some(("chakra", prefix)) => {
                Some((prefix, Goal::parse_chakra(&read_ranks(prefix)?, limits)))
            }
            _ => None,
        };
        if let Some((file, goal)) = trace {
            let goal = goal.map_err(|error| in_file(file, error))?;
            return Ok(Workload::Goal(match hosts {
                Some(hosts) => goal.with_hosts(hosts),
                None => goal,
            }));
        }
        if hosts.is_some() {
            return Err(only_traces());
        }
        let size = self
            .size
            .as_deref()
            .map(farcall_quantity::volume)
            .transpose();
        let size = size.map_err(|reason| Failure::usage(format!("--size {reason}")))?;
        let pattern = Pattern::parse(&self.pattern, platform.nodes() as u32, size.unwrap_or(0.0));
        let mut pattern = pattern.map_err(Failure::usage)?.with_count(self.count);
        if size.is_none() {
            return Err(Failure::usage(
                "--size is missing; add it, such as --size 20KB",
            ));
        }
        if let Some(steps) = self.steps {
            pattern = pattern.with_steps(steps);
        }
        Ok(Workload::Pattern(pattern))
    }
}

fn read(file: &str) -> Result<String, Failure> {
    String::from_utf8(read_bytes(file)?)
        .map_err(|_| Failure::failed(format!("cannot read {file}: it is not a text in UTF-8")))
}

fn read_bytes(file: &str) -> Result<Vec<u8>, Failure> {
    let fail = |error: std::io::Error| Failure::cannot("read", file, error);
    let mut bytes = Vec::new();
    let length = fs::File::open(file)
        .map_err(fail)?
        .take(MAX_FILE)
        .read_to_end(&mut bytes);
    if length.map_err(fail)? as u64 == MAX_FILE {
        return Err(Failure::failed(format!(
            "cannot read {file}: it has more than {MAX_FILE} bytes"
        )));
    }
    Ok(bytes)
}

/// The file of a rank of a trace of Chakra.
fn of_rank(prefix: &str, rank: usize) -> String {
    format!("{prefix}.{rank}.et")
}

/// Reads the files of all ranks, `PREFIX.0.et` and so on.
fn read_ranks(prefix: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let mut files = vec![read_bytes(&of_rank(prefix, 0))?];
    let mut total = 0;
    loop {
        let name = of_rank(prefix, files.len());
        if !Path::new(&name).exists() {
            return match later_rank(prefix, files.len()) {
                None => Ok(files),
                Some(later) => Err(Failure::failed(format!(
                    "cannot read {name}: no such file, but there is {later}: give the files of \
                     all ranks"
                ))),
            };
        }
        files.push(read_bytes(&name)?);
        total += files[files.len() - 1].len() as u64;
        if total >= MAX_FILE {
            return Err(Failure::failed(format!(
                "cannot read {prefix}.*.et: the files have more than {MAX_FILE} bytes"
            )));
        }
    }
}

/// A file of a rank above this one, which is missing.
fn later_rank(prefix: &str, missing: usize) -> Option<String> {
    let path = Path::new(prefix);
    let start = format!("{}.", path.file_name()?.to_str()?);
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).ok()?;
    let later = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let rank = name.strip_prefix(&start)?.strip_suffix(".et")?;
        let rank: usize = rank.parse().ok()?;
        (rank > missing).then_some((rank, name))
    });
    later.min().map(|(_, name)| name)
}

impl Plan {
    /// Number of ranks.
    pub(super) fn ranks(&self) -> u32 {
        self.workload.ranks()
    }

    /// Whether the model is the one of packets, which knows no loads of links.
    pub(super) fn is_of_packets(&self) -> bool {
        self.packets.is_some()
    }

    /// The same simulation, which also tells about these links.
    pub(super) fn watching(mut self, links: &[LinkId]) -> Plan {
        self.config.watch = links.to_vec();
        self
    }

    /// Simulates, and returns the links with the highest utilisation. A second simulation can then
    /// watch them.
    pub(super) fn hottest(&self, count: usize) -> Result<Vec<LinkId>, Failure> {
        let mut plan = self.clone();
        plan.config.link_bytes = true;
        let (platform, outcome) = plan.run(None)?;
        let bandwidth = |link| platform.bandwidth(link);
        Ok(hottest_links(&outcome.link_bytes, bandwidth, count))
    }

    /// Runs the simulation, with a progress bar on a terminal once it takes more than a moment.
    pub(super) fn run(self, sink: Option<Sink<'_>>) -> Result<(Platform, Outcome), Failure> {
        let bar = Progress::new(self.workload.messages());
        let Plan {
            platform,
            workload,
            placement,
            config,
            packets,
        } = self;
        let outcome = match packets {
            Some(packets) => run_packets(&platform, workload, placement, packets, sink, bar),
            None => run_flows(&platform, workload, placement, config, sink, bar),
        };
        Ok((platform, outcome.map_err(failure)?))
    }
}

fn failure(error: RunError) -> Failure {
    match error {
        RunError::TooManyRanks { .. } => Failure::usage(error),
        other => Failure::failed(other),
    }
}

fn run_flows(
    platform: &Platform,
    workload: Workload,
    placement: Placement,
    config: Config,
    sink: Option<Sink<'_>>,
    mut bar: Progress,
) -> Result<Outcome, RunError> {
    let mut simulation = Simulation::new(platform, workload, placement, config)?;
    if let Some(sink) = sink {
        simulation = simulation.with_sink(sink);
    }
    while simulation.step()? {
        bar.at(|| simulation.summary());
    }
    let link_bytes = simulation.link_bytes().to_vec();
    Ok(Outcome {
        summary: simulation.summary(),
        link_bytes,
        rounds: simulation.rounds(),
        users: simulation.users(),
        job_ends: simulation.job_ends(),
    })
}

fn run_packets(
    platform: &Platform,
    workload: Workload,
    placement: Placement,
    config: PacketConfig,
    sink: Option<Sink<'_>>,
    mut bar: Progress,
) -> Result<Outcome, RunError> {
    let mut simulation = PacketSimulation::new(platform, workload, placement, config)?;
    if let Some(sink) = sink {
        simulation = simulation.with_sink(sink);
    }
    while simulation.step()? {
        bar.at(|| simulation.summary());
    }
    Ok(Outcome {
        summary: simulation.summary(),
        link_bytes: Vec::new(),
        rounds: 0,
        users: Vec::new(),
        job_ends: simulation.job_ends(),
    })
}

struct Progress {
    bar: Option<ProgressBar>,
    steps: u32,
}

impl Progress {
    fn new(messages: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(messages), ProgressDrawTarget::stderr());
            let style = "{bar:30} {human_pos}/{human_len} messages, {eta} left, {msg}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        Progress { bar, steps: 0 }
    }

    fn at(&mut self, summary: impl Fn() -> Summary) {
        self.steps = self.steps.wrapping_add(1);
        let Some(bar) = &self.bar else { return };
        if self.steps.is_multiple_of(1024) && bar.elapsed() > Duration::from_millis(500) {
            let now = summary();
            bar.set_position(now.messages);
            bar.set_message(format!("{:.6} s simulated", now.makespan));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

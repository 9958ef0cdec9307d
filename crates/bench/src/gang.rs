//! `farcall bench gang`: the cost of gang switches and of channels. The modules below measure, and
//! `rows` prints. The figures of the paper stand beside ours.

mod calls;
mod channel;
pub(crate) mod element;
mod lost;
mod mpi;
mod nodes;
mod peers;
mod rows;
mod sharing;
mod tree;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use clap::{Args, ValueEnum};
use lost::{BenchDaemon, Load, processors};
use rows::{Bar, Row};
use std::process::Stdio;
use std::time::Instant;

/// Measure the cost of a gang switch and of a channel
///
/// If each process has a core, the lost time is the interruption that the process sees around a
/// switch. Otherwise it is the time from the first stop to the last start. Figures are medians over
/// the switches. The table also shows the figures of the paper (32 nodes, one process each).
/// benches/METHOD.md describes the method.
#[derive(Args)]
#[command(
    after_help = "Example:\n  farcall bench gang --check\n  farcall bench gang --part channel"
)]
pub(crate) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Measure only this part
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Also measure MPICH and Slurm's gang scheduling, if Debian's packages are installed
    #[arg(long)]
    peers: bool,
    /// Measure every slice length with every number of processes, in both forms
    #[arg(long)]
    matrix: bool,
    /// Seconds of each measured run, at least 3; a switch follows each slice of 500 ms
    #[arg(long, default_value_t = 6.0, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Lost time per switch
    Switch,
    /// Two jobs on the same cores
    Makespan,
    /// Channels compared with bare rings, and Table 3
    Channel,
    /// Engines of two nodes compared with plain UDP
    Nodes,
    /// Two MPI jobs on the same cores
    Mpi,
    /// Messages of MPI over channels, beside the shared memory of the MPI
    Network,
    /// Calls of a server beside a batch job on all cores
    Calls,
    /// Two jobs of barriers: as gang jobs, one after the other, and under the kernel alone
    Sharing,
    /// Switches over a tree of 2 to 32 daemons in network namespaces; needs root
    Tree,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (3.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}`: use 3 to 3600 seconds")),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let begins = |part: Part| {
        let is_wanted = arguments.part.is_none_or(|only| only == part);
        if is_wanted {
            progress::measuring(format_args!("{part:?}"));
        }
        is_wanted
    };
    let machine = Machine::watch();
    let mut all = Vec::new();
    if begins(Part::Channel) {
        all.extend(channel::rows()?);
        if arguments.peers {
            all.extend(peers::mpich()?);
        }
    }
    if begins(Part::Nodes) {
        all.extend(nodes::rows()?);
    }
    if begins(Part::Switch) {
        let loads = match arguments.matrix {
            true => matrix(arguments.seconds),
            false => loads(arguments.seconds),
        };
        for load in loads {
            all.extend(measure(&load)?);
        }
    }
    if begins(Part::Makespan) {
        let row = makespan(arguments.seconds)?;
        if arguments.peers {
            all.extend(peers::slurm(arguments.seconds, row.value)?);
        }
        all.push(row);
    }
    if begins(Part::Mpi) {
        all.extend(mpi::rows(arguments.seconds)?);
    }
    if begins(Part::Network) {
        all.extend(mpi::network_rows()?);
    }
    if begins(Part::Calls) {
        all.extend(calls::rows(arguments.seconds, arguments.peers)?);
    }
    if begins(Part::Sharing) {
        all.extend(sharing::rows()?);
    }
    // A long part that needs root runs only if it is asked for.
    if arguments.part == Some(Part::Tree) {
        all.extend(tree::rows(arguments.seconds)?);
    }
    rows::report(&all, machine.end(), arguments.json, arguments.check)
}

fn loads(seconds: f64) -> Vec<Load> {
    let load = |program, elements, slice_ms, form| Load {
        program,
        elements,
        slice_ms,
        form,
        seconds,
    };
    let few = processors() as u16;
    vec![
        load("ep", few, 100, "two"),
        load("ep", few, 500, "two"),
        load("ep", 32, 100, "two"),
        load("ep", 32, 500, "two"),
        load("bar", few, 100, "two"),
        load("bar", few, 500, "two"),
        load("ep", 32, 100, "seven"),
        load("bar", few, 200, "seven"),
    ]
}

/// Figs. 4, 5, 7 and 8 of the paper: from one process per core to many.
fn matrix(seconds: f64) -> Vec<Load> {
    let mut loads = Vec::new();
    for form in ["two", "seven"] {
        for program in ["ep", "bar"] {
            for elements in [2, 4, 8, 16, 32] {
                loads.extend([100, 200, 500].map(|slice_ms| Load {
                    program,
                    elements,
                    slice_ms,
                    form,
                    seconds,
                }));
            }
        }
    }
    loads
}

/// The rows of one load.
fn measure(load: &Load) -> Result<Vec<Row>, Failure> {
    let name = format!(
        "{}, {} elements, {} ms, {}",
        load.program, load.elements, load.slice_ms, load.form
    );
    progress::measuring(format_args!("switches: {name}"));
    let base = load.without_gang()?;
    let (gang, breakdown, daemon) = load.with_gang()?;
    let cores = processors().min(load.elements.into()) as f64;
    let slice = f64::from(load.slice_ms) * 1e3;
    let is_dedicated = usize::from(load.elements) <= processors();
    // A process with its own core measures itself how long it did not run. If processes share
    // cores, the time from the first stop to the last start is an upper bound.
    let each = match is_dedicated {
        true => breakdown.seen / f64::from(load.elements),
        false => breakdown.median,
    };
    if !each.is_finite() {
        return Err(Failure::failed(format!(
            "no switch happened in {} s with slices of {} ms; measure longer with --seconds",
            load.seconds, load.slice_ms
        )));
    }
    let lost = each / slice * 100.0;
    let whole = load.seconds * 1e9 * cores;
    let less = (base.processor - gang.processor) / whole * 100.0;
    let paper = match (load.program, load.slice_ms) {
        ("ep", 100) => Some(4.0),
        ("bar", 100) => Some(10.0),
        ("bar", 500) => Some(2.0),
        _ => None,
    };
    let bar = match (is_dedicated, load.slice_ms) {
        (true, 100) => Some(0.4),
        (true, 500) => Some(0.08),
        (false, 100) => Some(1.0),
        (false, 500) => Some(0.2),
        _ => None,
    };
    let mut row = Row::new(format!("lost time: {name}"), lost, "%");
    row.peer = paper.map(|paper| ("SCore-D 1998", paper));
    row.bar = bar.filter(|_| load.form == "two").map(Bar::Most);
    let mut rows = vec![row];
    let steps = [
        ("stop", breakdown.stop),
        ("rest", breakdown.rest),
        ("save", breakdown.save),
        ("restore", breakdown.restore),
        ("run", breakdown.run),
        ("switch", breakdown.total),
        ("daemon", daemon * 1e6 / breakdown.switches),
        ("hidden and skew", each - breakdown.median),
    ];
    rows.extend(steps.map(|(step, value)| Row::new(format!("  {step}: {name}"), value, "us")));
    rows.push(Row::new(
        format!("  less processor time: {name}"),
        less,
        "%",
    ));
    if load.program == "bar" {
        let row = Row::new(format!("  barriers: {name}"), gang.steps, "").higher();
        rows.push(row.beside("no gang", base.steps));
    }
    Ok(rows)
}

/// Two gang jobs that need every core, started together, compared with the sum of their times.
fn makespan(seconds: f64) -> Result<Row, Failure> {
    let daemon = BenchDaemon::start(100, "two")?;
    let elements = processors() as u16;
    let nanos = (seconds * 1e9) as u64;
    let start = Instant::now();
    let job = || -> Result<_, Failure> {
        let mut command = daemon.run(elements)?;
        command.args(["element", "work", "0", &nanos.to_string()]);
        command.stdout(Stdio::null());
        Ok(farcall_child::spawn(command)?)
    };
    for mut job in [job()?, job()?] {
        if !job.wait()?.success() {
            return Err(Failure::failed(
                "a gang job of the makespan measurement failed",
            ));
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    daemon.stop(&lost::Sums::default())?;
    Ok(
        Row::new("two jobs on the same cores, makespan", elapsed, "s")
            .beside("sum of their processor time", 2.0 * seconds)
            .bar(Bar::MostOfPeer(1.03)),
    )
}

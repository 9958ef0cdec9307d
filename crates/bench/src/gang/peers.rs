//! Measures peers with the same work: MPICH's shared memory, and Slurm's gang scheduling. Their
//! programs are in `benches/gang`. If a peer is not available, the benchmark prints a line that
//! says so.

use super::channel::{ROUNDS, channel_bandwidth, channel_latency, median};
use super::rows::{Bar, Row};
use crate::failure::Failure;
use crate::progress;
use std::path::Path;
use std::process::Command;

pub(super) const MPI: &str = "benches/gang/mpi.c";
const SLURM: &str = "benches/gang/slurm.py";

/// Runs a command to its end. Returns its output, or the reason why there is none.
pub(super) fn told(command: Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = farcall_lab::output_of(command).map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}

pub(super) fn numbers(text: &str) -> Vec<f64> {
    let words = text.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Channels compared with MPI_Send and MPI_Recv between two processes on two cores.
pub(super) fn mpich() -> Result<Vec<Row>, Failure> {
    let [latency, small, large] = match run_mpich() {
        Ok(figures) => figures,
        Err(why) => {
            let text = "MPICH: skipped (apt-get install mpich)";
            progress::left_out(format_args!("{text}: {why}"));
            return Ok(Vec::new());
        }
    };
    let rounds = |measure: &dyn Fn() -> Result<f64, Failure>| -> Result<f64, Failure> {
        let values: Result<Vec<f64>, Failure> = (0..ROUNDS).map(|_| measure()).collect();
        Ok(median(values?))
    };
    let own = rounds(&|| channel_latency(20_000))?;
    let mut rows = vec![Row::new("channel, 8 bytes one way", own, "us").beside("MPICH", latency)];
    for (bytes, theirs) in [(64 << 10, small), (1 << 20, large)] {
        let own = rounds(&|| channel_bandwidth(bytes, (256 << 20) / bytes))?;
        let name = format!("channel, {} KB messages", bytes >> 10);
        let row = Row::new(name, own, "MB/s").higher().beside("MPICH", theirs);
        rows.push(row.bar(Bar::LeastOfPeer(0.8)));
    }
    Ok(rows)
}

fn run_mpich() -> Result<[f64; 3], String> {
    let program = built(MPI)?;
    let mut run = Command::new("mpirun.mpich");
    run.args(["-bind-to", "user:0,1", "-n", "2"]).arg(&program);
    let figures = told(run)?;
    let found = numbers(&figures).try_into();
    found.map_err(|_| format!("it printed `{}`", figures.trim()))
}

/// A program of MPICH, built from a source of the project. Its file is removed with it.
pub(super) fn built(source: &str) -> Result<tempfile::TempPath, String> {
    built_by(Command::new("mpicc.mpich"), source)
}

/// The same with the compiler of another MPI.
pub(super) fn built_by(mut build: Command, source: &str) -> Result<tempfile::TempPath, String> {
    if !Path::new(source).is_file() {
        return Err(format!(
            "cannot find {source}: run the benchmark in the project's folder"
        ));
    }
    let failed = |error: std::io::Error| error.to_string();
    let program = crate::signals::file().map_err(failed)?.into_temp_path();
    build.args(["-O2", "-o"]).arg(&program).arg(source);
    told(build)?;
    Ok(program)
}

/// The same two gang jobs under Slurm, with its shortest slice, compared with ours.
pub(super) fn slurm(seconds: f64, ours: f64) -> Result<Vec<Row>, Failure> {
    let Some(times) = slurm_times(&[], seconds)? else {
        return Ok(Vec::new());
    };
    match times[..] {
        [theirs] => {
            let row = Row::new("two jobs on the same cores, makespan", ours, "s");
            Ok(vec![row.beside("Slurm, slices of 5 s", theirs)])
        }
        _ => Err(Failure::failed(format!("{SLURM} printed no time"))),
    }
}

/// Seconds of short jobs beside a batch job on all processors, under Slurm; none without Slurm.
pub(super) fn slurm_calls(
    number: usize,
    processors: usize,
    seconds: f64,
) -> Result<Option<Vec<f64>>, Failure> {
    let [number, processors] = [number, processors].map(|count| count.to_string());
    slurm_times(&["--calls", &number, &processors], seconds)
}

/// The times that the script prints for jobs with so many seconds of work; none without Slurm.
fn slurm_times(words: &[&str], seconds: f64) -> Result<Option<Vec<f64>>, Failure> {
    let nanos = ((seconds * 1e9) as u64).to_string();
    let mut run = Command::new("python3");
    run.arg(SLURM)
        .args(words)
        .arg(std::env::current_exe()?)
        .args(["element", "work", "0", &nanos]);
    let told = match Path::new(SLURM).is_file() {
        true => told(run),
        false => Err(format!(
            "cannot find {SLURM}: run the benchmark in the project's folder"
        )),
    };
    match told {
        Ok(text) => Ok(Some(numbers(&text))),
        Err(why) => {
            progress::left_out(format_args!("Slurm: skipped: {why}"));
            Ok(None)
        }
    }
}

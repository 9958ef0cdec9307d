//! MPI programs as gang jobs: two of them on the same processors (`benches/gang/jobs.c`), compared
//! with the processor time that they have used, and the messages of one over channels
//! (`benches/gang/mpi.c`), compared with the shared memory of its MPI. If an MPI is missing, a line
//! says so.

use super::channel::median;
use super::lost::{BenchDaemon, Sums, processors};
use super::peers::{MPI, built, built_by, numbers, told};
use super::rows::{Bar, Row};
use crate::failure::Failure;
use crate::progress;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const PROGRAM: &str = "benches/gang/jobs.c";

/// MPIs with libfabric, which `scripts/setup mpi` installs in this folder.
const MPIS: (&str, [&str; 2]) = ("target/mpi", ["mpich", "impi"]);

/// Rounds over channels, and as many over shared memory, in turns.
const ROUNDS: usize = 3;

/// The makespan of two programs with this many seconds of work.
pub(super) fn rows(seconds: f64) -> Result<Vec<Row>, Failure> {
    let program = match built(PROGRAM) {
        Ok(program) => program,
        Err(why) => {
            let text = "two MPI jobs: skipped (apt-get install mpich)";
            progress::left_out(format_args!("{text}: {why}"));
            return Ok(Vec::new());
        }
    };
    let daemon = BenchDaemon::start(100, "two")?;
    let start = Instant::now();
    let job = || -> Result<_, Failure> {
        let mut command = daemon.run_program(processors() as u16, &program)?;
        command.arg(seconds.to_string()).stdout(Stdio::piped());
        Ok(farcall_child::spawn(command)?)
    };
    let mut used = 0.0;
    for job in [job()?, job()?] {
        let output = job.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match numbers(&text)[..] {
            [time] if output.status.success() => used += time,
            _ => return Err(Failure::failed(format!("an MPI job failed: `{text}`"))),
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    daemon.stop(&Sums::default())?;
    let row = Row::new("two MPI jobs on the same cores, makespan", elapsed, "s");
    let row = row.beside("sum of their processor time", used);
    Ok(vec![row.bar(Bar::MostOfPeer(1.05))])
}

/// The messages of an MPI over channels, beside its own shared memory.
pub(super) fn network_rows() -> Result<Vec<Row>, Failure> {
    let (folder, names) = MPIS;
    let mut rows = Vec::new();
    for name in names {
        let place = Path::new(folder).join(name);
        if !place.is_dir() {
            let text = format!("skipped (scripts/setup mpi): no {folder}/{name}");
            progress::left_out(format_args!("{name} over channels: {text}"));
            continue;
        }
        rows.extend(messages(name, &place.canonicalize()?)?);
    }
    Ok(rows)
}

fn messages(name: &str, place: &Path) -> Result<Vec<Row>, Failure> {
    let mut compiler = Command::new(place.join("bin/mpicc"));
    compiler.env("I_MPI_ROOT", place);
    let program = built_by(compiler, MPI).map_err(Failure::failed)?;
    let daemon = BenchDaemon::start(1000, "two")?;
    let mut figures: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (network, kept) in ["farcall", "own"].iter().zip(&mut figures) {
            let mut command = daemon.run_over(network, 2, &program)?;
            command.env("I_MPI_ROOT", place);
            let text = told(command).map_err(Failure::failed)?;
            let found: [f64; 3] = numbers(&text).try_into().map_err(|_| {
                Failure::failed(format!("{name}, network {network}: it printed `{text}`"))
            })?;
            kept.iter_mut()
                .zip(found)
                .for_each(|(kept, it)| kept.push(it));
        }
    }
    daemon.stop(&Sums::default())?;
    let [own, theirs] = figures.map(|of_network| of_network.map(median));
    let row = |what: &str, place: usize, unit| {
        let row = Row::new(format!("{name} over channels, {what}"), own[place], unit);
        row.beside("its shared memory", theirs[place])
    };
    Ok(vec![
        row("8 bytes one way", 0, "us").bar(Bar::MostOfPeer(1.5)),
        row("64 KB messages", 1, "MB/s")
            .higher()
            .bar(Bar::LeastOfPeer(1.2)),
        row("1024 KB messages", 2, "MB/s")
            .higher()
            .bar(Bar::LeastOfPeer(0.9)),
    ])
}

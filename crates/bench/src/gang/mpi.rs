//! Two MPI programs as gang jobs on the same processors, compared with the processor time that they
//! have used. The program is `benches/gang/jobs.c`. Without a compiler of MPICH, a line says so.

use super::lost::{BenchDaemon, Sums, processors};
use super::peers::{built, numbers};
use super::rows::{Bar, Row};
use crate::failure::Failure;
use std::process::Stdio;
use std::time::Instant;

const PROGRAM: &str = "benches/gang/jobs.c";

/// The makespan of two programs with this many seconds of work.
pub(super) fn rows(seconds: f64) -> Result<Vec<Row>, Failure> {
    let program = match built(PROGRAM) {
        Ok(program) => program,
        Err(why) => {
            println!("two MPI jobs: skipped (apt-get install mpich): {why}");
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

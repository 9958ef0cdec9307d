//! Calls of a server beside a batch job that fills all processors: how long a call of 50 ms takes,
//! and what the batch job loses. The gang makes room for each call. The calls come at moments that
//! have nothing to do with the slices.

use super::lost::{BenchDaemon, Sums, processors};
use super::rows::{Bar, Row};
use crate::failure::Failure;
use farcall_client::{Argument, Options, Scalar, Server};
use farcall_lab::Daemon;
use farcall_random::SplitMix64;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Milliseconds of computing of each call.
const COMPUTING: i64 = 50;
const CALLS: usize = 100;
/// Jobs of Slurm that compute as long; each takes seconds.
const JOBS: usize = 9;
const SLURM: &str = "Slurm, slices of 5 s";
/// Milliseconds of a slice.
const SLICE: u32 = 100;
/// The longest pause between two calls, in milliseconds; the shortest is a third of it.
const PAUSE: u64 = 450;

/// A function that computes for a number of milliseconds of its processor time.
const INTERFACE: &str = "Module bench;
Globals {
#include <time.h>
static double used(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}
}
Define spin(IN int ms, OUT int done[1]) ProcessorElements 1 {
    double end = used() + ms * 1e-3;
    while (used() < end) { }
    done[0] = ms;
}
";

pub(super) fn rows(seconds: f64, peers: bool) -> Result<Vec<Row>, Failure> {
    let daemon = BenchDaemon::start(SLICE, "two")?;
    let folder = crate::signals::folder()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bench.idl"), INTERFACE)?;
    let config = format!(
        "[gang]\ncontrol = \"{}\"\nprocessors = {}\n",
        daemon.control(),
        processors()
    );
    std::fs::write(path("farcall.toml"), config)?;
    let mut command = Command::new(crate::program::farcall()?);
    command.args(["serve", "--allow-code", "--listen", "127.0.0.1:0"]);
    command.args(["--pes", "1", "--no-sandbox", "--log", "error", "--config"]);
    command.arg(path("farcall.toml")).arg(path("bench.idl"));
    let mut server = Daemon::start(command)?;
    let connection = Server::connect(server.address(), Options::default());
    let connection = connection.map_err(Failure::failed)?;
    let spin = connection.function("spin").map_err(Failure::failed)?;
    let call = |ms: i64| -> Result<f64, Failure> {
        let mut done = [0; 4];
        let begun = Instant::now();
        spin.call(&mut [Argument::Scalar(Scalar::Int(ms)), Argument::Out(&mut done)])
            .map_err(Failure::failed)?;
        Ok(begun.elapsed().as_secs_f64())
    };
    call(1)?;
    let pause = Duration::from_millis(PAUSE * 2 / 3).as_secs_f64();
    let work = (seconds + CALLS as f64 * (pause + 0.05)).max(seconds);
    let alone = batch(&daemon, seconds, || Ok(()))?;
    let mut random = SplitMix64::new(1);
    let mut times = Vec::new();
    let beside = batch(&daemon, work, || {
        for _ in 0..CALLS {
            let pause = PAUSE / 3 + random.below(PAUSE * 2 / 3);
            std::thread::sleep(Duration::from_millis(pause));
            times.push(call(COMPUTING)?);
        }
        Ok(())
    })?;
    drop(connection);
    let _ = server.stop(Duration::from_secs(10));
    daemon.stop(&Sums::default())?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] * 1e3;
    let calls = CALLS as f64 * COMPUTING as f64 / 1e3;
    // What a job of this length takes without calls.
    let expected = work * alone / seconds;
    let excess = (beside - expected - calls) / beside * 100.0;
    let bound = f64::from(2 * SLICE) + COMPUTING as f64;
    let mut usual = Row::new("50 ms calls beside a batch job: median", at(0.5), "ms");
    let mut longest = Row::new("50 ms calls beside a batch job: longest", at(1.0), "ms");
    if peers && let Some(theirs) = under_slurm()? {
        usual = usual.beside(SLURM, theirs[theirs.len() / 2] * 1e3);
        longest = longest.beside(SLURM, theirs[theirs.len() - 1] * 1e3);
    }
    Ok(vec![
        usual,
        Row::new("50 ms calls beside a batch job: p99", at(0.99), "ms").bar(Bar::Most(bound)),
        longest,
        Row::new("batch job beside 50 ms calls: elapsed", beside, "s")
            .beside("without calls", expected),
        Row::new("  lost beyond the computing time of the calls", excess, "%").bar(Bar::Most(2.0)),
    ])
}

/// Seconds of jobs of 50 ms beside a batch job under Slurm, ascending; none without Slurm.
fn under_slurm() -> Result<Option<Vec<f64>>, Failure> {
    let seconds = COMPUTING as f64 / 1e3;
    let times = super::peers::slurm_calls(JOBS, processors(), seconds)?;
    let sorted = times.filter(|times| !times.is_empty()).map(|mut times| {
        times.sort_by(f64::total_cmp);
        times
    });
    Ok(sorted)
}

/// Runs a batch job with this many seconds of work on all processors, and calls meanwhile. Returns
/// the seconds that the batch job took.
fn batch(
    daemon: &BenchDaemon,
    seconds: f64,
    calls: impl FnOnce() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let mut command = daemon.run(processors() as u16)?;
    let nanos = (seconds * 1e9) as u64;
    command.args(["element", "work", "0", &nanos.to_string()]);
    let begun = Instant::now();
    command.stdout(Stdio::null());
    let mut job = farcall_child::spawn(command)?;
    calls()?;
    match job.try_wait()? {
        None if job.wait()?.success() => Ok(begun.elapsed().as_secs_f64()),
        _ => Err(Failure::failed(
            "the batch job ended before the calls, or failed",
        )),
    }
}

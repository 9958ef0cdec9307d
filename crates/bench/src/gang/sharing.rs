//! Two fine-grained jobs on the same processors, a long one and a short one that comes right after
//! it: as gang jobs, one after the other as in a batch queue, and under the kernel alone. The jobs
//! run only barriers. Each way runs the same number of barriers, and rounds alternate.

use super::lost::{BenchDaemon, Load, Sums, processors};
use super::rows::Row;
use crate::failure::Failure;
use crate::table::median;
use std::process::Stdio;
use std::time::Instant;

const ROUNDS: usize = 3;
/// How many times as many barriers the long job runs.
const LONGER: u64 = 8;

/// Seconds from the start until the long job and the short job were done.
type Times = [f64; 2];

/// Seconds of the long job if nothing else runs: many slices.
const ALONE: f64 = 3.0;

pub(super) fn rows() -> Result<Vec<Row>, Failure> {
    let long = barriers_of(ALONE)?;
    let jobs = [long, long / LONGER];
    type Way = fn([u64; 2]) -> Result<Times, Failure>;
    let ways: [(&str, Way); 3] = [
        ("gang, 100 ms", gang),
        ("one after the other", batch),
        ("kernel alone", plain),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, way), times) in ways.iter().zip(&mut times) {
            times.push(way(jobs)?);
        }
    }
    let figures = ways.iter().zip(&times).flat_map(|((name, _), times)| {
        let figure = |what: &str, of: fn(&Times) -> f64| {
            let all: Vec<f64> = times.iter().map(of).collect();
            Row::new(
                format!("two jobs of barriers, {name}: {what}"),
                median(&all),
                "s",
            )
        };
        [
            figure("makespan", |[long, short]| long.max(*short)),
            figure("mean response", |[long, short]| (long + short) / 2.0),
            figure("response of the short job", |[_, short]| *short),
        ]
    });
    Ok(figures.collect())
}

fn load() -> Load {
    Load {
        program: "barriers",
        elements: processors() as u16,
        slice_ms: 100,
        form: "two",
        seconds: 3.0,
    }
}

/// The number of barriers that a gang job alone runs in this time.
fn barriers_of(seconds: f64) -> Result<u64, Failure> {
    let alone = Load {
        program: "bar",
        ..load()
    };
    let (sums, ..) = alone.with_gang()?;
    let a_second = sums.steps / f64::from(alone.elements) / alone.seconds;
    Ok((a_second * seconds) as u64)
}

fn arguments(count: u64) -> Vec<String> {
    ["element", "barriers", "0", &count.to_string()]
        .map(String::from)
        .into()
}

fn gang(jobs: [u64; 2]) -> Result<Times, Failure> {
    let daemon = BenchDaemon::start(100, "two")?;
    let begun = Instant::now();
    let start = |count| {
        let mut command = daemon.run(processors() as u16)?;
        command.args(arguments(count)).stdout(Stdio::null());
        Ok::<_, Failure>(farcall_child::spawn(command)?)
    };
    let jobs = [start(jobs[0])?, start(jobs[1])?];
    let times = ended(jobs.map(|mut job| move || Ok(job.wait()?.success())), begun);
    daemon.stop(&Sums::default())?;
    times
}

fn batch(jobs: [u64; 2]) -> Result<Times, Failure> {
    let daemon = BenchDaemon::start(100, "two")?;
    let begun = Instant::now();
    let mut times = [f64::NAN; 2];
    for (count, time) in jobs.into_iter().zip(&mut times) {
        let mut command = daemon.run(processors() as u16)?;
        command.args(arguments(count)).stdout(Stdio::null());
        if !farcall_child::spawn(command)?.wait()?.success() {
            return Err(Failure::failed("a gang job of barriers failed"));
        }
        *time = begun.elapsed().as_secs_f64();
    }
    daemon.stop(&Sums::default())?;
    Ok(times)
}

fn plain(jobs: [u64; 2]) -> Result<Times, Failure> {
    let begun = Instant::now();
    let start = |count| load().start_plain(&arguments(count), true);
    let jobs = [start(jobs[0])?, start(jobs[1])?];
    let lines = processors();
    ended(
        jobs.map(|job| move || Ok(job.output()?.lines().count() == lines)),
        begun,
    )
}

/// Waits for both jobs at the same time.
fn ended<W>(jobs: [W; 2], begun: Instant) -> Result<Times, Failure>
where
    W: FnOnce() -> Result<bool, Failure> + Send,
{
    let wait = |job: W| match job() {
        Ok(true) => Ok(begun.elapsed().as_secs_f64()),
        Ok(false) => Err(Failure::failed("a job of barriers failed")),
        Err(error) => Err(error),
    };
    let [long, short] = jobs;
    std::thread::scope(|scope| {
        let short = scope.spawn(|| wait(short));
        let long = wait(long)?;
        let short = short
            .join()
            .map_err(|_| Failure::failed("a thread panicked"))??;
        Ok([long, short])
    })
}

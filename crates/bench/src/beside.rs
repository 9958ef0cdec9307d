//! Measures how long a small call waits while a large one transfers its data, and how fast arrays
//! transfer over two links. It prints nothing: `call` shows its rows. The measurements over links
//! need root, and without it there are no such rows.

use super::table::{Better, Row};
use crate::failure::Failure;
use crate::progress;
use farcall_client::{Argument, Function, Options, Pending, Scalar, Server};
use farcall_lab::Daemon;
use farcall_lab::{Lab, LabError, Shape};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bar for a small call beside a large one, in milliseconds.
const WITHIN: f64 = 5.0;
/// Bytes of array data in a frame.
const CHUNK: f64 = 262_144.0;
/// Pause between two small calls.
const PAUSE: Duration = Duration::from_millis(2);
/// Number of small calls in a round.
const SMALL_CALLS: usize = 200;
/// Time between two checks of the progress of a large call.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// Bytes of the large call in each direction.
const LARGE: usize = 512 << 20;
/// The same on a slow link.
const LARGE_ON_LINK: usize = 32 << 20;
/// Bytes in each direction over two links.
const OVER_LINKS: usize = 64 << 20;

/// The rows of one server over the loopback.
pub(super) fn on_loopback(address: &str, rounds: u32) -> Result<Vec<Row>, Failure> {
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    let server = Server::connect(address, options)?;
    let measured = measure(&server, LARGE, rounds)?;
    Ok(rows("1 GiB", measured, WITHIN))
}

/// Milliseconds of each round, the 99th percentile.
///
/// `nulls` are null calls. `cancels` and `ends` are a cancel followed by a null call. `cancels` are
/// of calls whose arrays are being transferred. `ends` are of calls that compute, so that the
/// server ends their workers.
struct Measured {
    nulls: Vec<f64>,
    cancels: Vec<f64>,
    ends: Vec<f64>,
}

/// The moment at which a large call is cancelled.
#[derive(Clone, Copy)]
enum Moment {
    /// After this share of its arrays has been transferred, both directions together.
    Travelled(f64),
    Computing,
}

fn rows(beside: &str, measured: Measured, within: f64) -> Vec<Row> {
    let row = |what: &str, values, bar| Row {
        name: format!("{what} {beside}, 99 of 100"),
        unit: "ms",
        values,
        peer: "bound",
        peer_values: vec![within],
        better: Better::Lower,
        bar,
    };
    vec![
        row("null beside", measured.nulls, Some(1.0)),
        row("cancel beside", measured.cancels, Some(1.0)),
        row("cancel of a computation on", measured.ends, None),
    ]
}

fn measure(server: &Server, bytes: usize, rounds: u32) -> Result<Measured, Failure> {
    let null = server.function("bench/null")?;
    let echo = server.function("bench/echo")?;
    let (source, mut result) = (vec![1; bytes], vec![0; bytes]);
    call_null(&null)?;
    let travelling: Vec<_> = (0..20)
        .map(|turn| Moment::Travelled(0.05 * f64::from(turn)))
        .collect();
    let mut measured = Measured {
        nulls: Vec::new(),
        cancels: Vec::new(),
        ends: Vec::new(),
    };
    for _ in 0..rounds {
        let nulls = beside(&null, || {
            call_echo(&echo, &source, &mut result, None).map(drop)
        })?;
        measured.nulls.push(nulls);
        for (times, moments) in [
            (&mut measured.cancels, &travelling[..]),
            (&mut measured.ends, &[Moment::Computing; 10]),
        ] {
            times.push(cancelled(&null, &echo, &source, &mut result, moments)?);
        }
    }
    Ok(measured)
}

fn call_null(null: &Function) -> Result<f64, Failure> {
    let start = Instant::now();
    null.call(&mut [Argument::Scalar(Scalar::Int(1))])?;
    Ok(start.elapsed().as_secs_f64())
}

/// Sends an array to the server and back. If a moment is given, cancels the call at that moment and
/// returns the time of the cancel.
fn call_echo(
    echo: &Function,
    source: &[u8],
    result: &mut [u8],
    give_up: Option<Moment>,
) -> Result<Instant, Failure> {
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(source.len() as i64 / 8)),
        Argument::In(source),
        Argument::Out(result),
    ];
    // SAFETY: the arrays outlive the call, which is over or given up when this returns.
    let pending = unsafe { echo.start(arguments) }?;
    match give_up {
        None => drop(pending.wait()?),
        Some(moment) => {
            while pending.wait_timeout(BETWEEN_LOOKS).is_err() && !has_come(moment, &pending) {}
        }
    }
    Ok(Instant::now())
}

/// Whether the moment to cancel a call has come.
fn has_come(moment: Moment, pending: &Pending) -> bool {
    let Some(progress) = pending.progress() else {
        return true;
    };
    match moment {
        Moment::Travelled(part) => {
            let all = (progress.to_send + progress.to_receive) as f64;
            (progress.sent + progress.received) as f64 >= part * all
        }
        // The last bytes reach the server a little later.
        Moment::Computing if progress.sent == progress.to_send => {
            drop(pending.wait_timeout(4 * BETWEEN_LOOKS));
            true
        }
        Moment::Computing => false,
    }
}

/// The 99th percentile, in milliseconds, of the null calls that are made while `work` runs.
fn beside(
    null: &Function,
    mut work: impl FnMut() -> Result<(), Failure> + Send,
) -> Result<f64, Failure> {
    let stop = AtomicBool::new(false);
    let times = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                work()?;
            }
            Ok::<(), Failure>(())
        });
        let calls = (0..SMALL_CALLS).map(|_| {
            thread::sleep(PAUSE);
            call_null(null)
        });
        let times: Result<Vec<f64>, Failure> = calls.collect();
        stop.store(true, Ordering::Relaxed);
        match worker.join() {
            Ok(worked) => worked.and(times),
            Err(_) => Err(Failure::failed("the large call panicked")),
        }
    })?;
    Ok(most_of(times))
}

/// Milliseconds from the cancel of a large call until the server has answered the next call.
fn cancelled(
    null: &Function,
    echo: &Function,
    source: &[u8],
    result: &mut [u8],
    moments: &[Moment],
) -> Result<f64, Failure> {
    let times = moments.iter().map(|moment| {
        let given_up = call_echo(echo, source, result, Some(*moment))?;
        call_null(null)?;
        Ok(given_up.elapsed().as_secs_f64())
    });
    Ok(most_of(times.collect::<Result<_, Failure>>()?))
}

/// The 99th percentile in milliseconds.
fn most_of(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let index = (seconds.len() * 99).div_ceil(100).saturating_sub(1);
    seconds.get(index).map_or(f64::NAN, |time| time * 1e3)
}

/// The rows over links of 100 Mbit/s between network namespaces. Empty without root.
pub(super) fn on_links(libraries: &Path, rounds: u32) -> Result<Vec<Row>, Failure> {
    let lab = match Lab::build(&[&[0, 1], &[0, 1]], Some(Shape::FAST_ETHERNET)) {
        Ok(lab) => lab,
        Err(error @ (LabError::NotRoot | LabError::NoProgram(_))) => {
            progress::left_out(format_args!(
                "calls over shaped links are left out: {error}"
            ));
            return Ok(Vec::new());
        }
        Err(error) => return Err(Failure::failed(error.to_string())),
    };
    progress::measuring("calls over shaped links");
    let server = start(&lab, libraries)?;
    let address = format!("farcall://{}:{}", lab.link_address(0, 0), server.port()?);
    let work = move || Ok(measure_links(&address, rounds.min(3)));
    let worker = lab.spawn(1, work).map_err(failed)?;
    let measured = worker.join();
    measured.map_err(|_| Failure::failed("a thread panicked"))??
}

fn failed(error: LabError) -> Failure {
    Failure::failed(error.to_string())
}

fn measure_links(address: &str, rounds: u32) -> Result<Vec<Row>, Failure> {
    let link = Shape::FAST_ETHERNET;
    let one_link = Options {
        streams: 1,
        ..Options::default()
    };
    let server = Server::connect(address, one_link)?;
    let measured = measure_on_link(&server)?;
    let chunk = CHUNK * 8.0 / link.rate as f64 * 1e3;
    let mut rows = rows("32 MiB at 100 Mbit/s", measured, WITHIN + chunk);
    let plain = over_links(&server, 1)?;
    let several = Server::connect(address, Options::default())?;
    // The first call learns whether several connections help.
    over_links(&several, 1)?;
    let both = over_links(&several, rounds)?;
    let row = |name: &str, values, peer, ideal: f64, bar| Row {
        name: name.to_string(),
        unit: "MB/s",
        values,
        peer,
        peer_values: vec![ideal / 1e6],
        better: Better::Higher,
        bar: Some(bar),
    };
    rows.push(row(
        "64 MiB out and back, one link",
        plain,
        "one link",
        link.ideal(),
        0.9,
    ));
    let sum = 2.0 * link.ideal();
    rows.push(row(
        "64 MiB out and back, two links",
        both,
        "sum of both",
        sum,
        0.85,
    ));
    Ok(rows)
}

/// One round, because the large calls take seconds.
fn measure_on_link(server: &Server) -> Result<Measured, Failure> {
    measure(server, LARGE_ON_LINK, 1)
}

/// MB/s of calls that send arrays to the server and back.
fn over_links(server: &Server, calls: u32) -> Result<Vec<f64>, Failure> {
    let echo = server.function("bench/echo")?;
    let (source, mut result) = (vec![1; OVER_LINKS], vec![0; OVER_LINKS]);
    let mut rates = Vec::new();
    for _ in 0..calls {
        let outcome = echo.call(&mut [
            Argument::Scalar(Scalar::Int(OVER_LINKS as i64 / 8)),
            Argument::In(&source),
            Argument::Out(&mut result),
        ])?;
        if result != source {
            return Err(Failure::failed("the server returned a different array"));
        }
        result.fill(0);
        rates.push(2.0 * OVER_LINKS as f64 / outcome.times.total / 1e6);
    }
    Ok(rates)
}

/// Starts a server on the first host of a lab.
fn start(lab: &Lab, libraries: &Path) -> Result<Daemon, Failure> {
    let idl = crate::program::interface_file(libraries, "bench.idl")?;
    let program = crate::program::farcall()?;
    let mut command = lab.command(0, &program.to_string_lossy());
    command
        .arg("serve")
        .arg(idl)
        .args(["--listen", "0.0.0.0:0", "--log", "error"]);
    Ok(Daemon::start(command)?)
}

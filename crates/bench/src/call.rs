//! `farcall bench call`: the cost of a call. Every figure stands beside a plain TCP exchange of the
//! same bytes, or another limit, and both are measured in turn. `flight` measures the
//! gateway for Arrow Flight, and `kept` and `beside` stored data and calls beside large ones.

mod flight;
mod kept;

use super::beside;
use super::contender::Contender;
use super::disturbance::Disturbance;
use super::raw::RawPeer;
use super::table::{Better, Row, median, report};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use clap::Args;
use farcall_client::{Argument, Function, Options, Pending, Scalar, Server};
use farcall_lab::Daemon;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Measure the cost of a call: null, 1 KB, 64 MiB in both directions, many at once, durable, with
/// stored arrays
///
/// The table shows each figure beside a plain TCP exchange of the same bytes, or another limit.
/// Both are measured in turn. Calls beside large calls come last; with root, also calls over
/// several links between network namespaces. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall bench call --check")]
pub(crate) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Number of rounds; figures are medians over them
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Also measure gRPC, Arrow Flight, pyzmq, Pyro5, Ray and Dask (scripts/peers installs them)
    #[arg(long)]
    peers: bool,
    /// Measure only calls beside large ones, and calls over several links
    #[arg(long)]
    beside: bool,
    /// Measure only the gateway for Arrow Flight
    #[arg(long, conflicts_with = "beside")]
    flight: bool,
    /// Measure only calls while other work disturbs the machine: busy loops and, with root, bursts
    #[arg(long, conflicts_with_all = ["beside", "flight"])]
    disturbed: bool,
    /// Measure only durable calls and stored arrays
    #[arg(long, conflicts_with_all = ["beside", "flight", "disturbed"])]
    kept: bool,
    /// Python interpreter that runs the Python client
    #[arg(long, value_name = "PROGRAM", default_value = ".venv/bin/python")]
    python: PathBuf,
    /// Folder with bench.idl and its library
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
}

/// Approximate bytes of a null call on the wire. The plain exchange sends as many in each
/// direction.
const NULL_BYTES: usize = 32;
/// The Python interpreter that scripts/peers installs.
const PEERS_PYTHON: &str = ".venv-peers/bin/python";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::watch();
    let rows = measure_all(arguments)?;
    report(&rows, machine.end(), arguments.json, arguments.check)
}

fn measure_all(arguments: &Arguments) -> Result<Vec<Row>, Failure> {
    if arguments.kept {
        return kept::measure(arguments);
    }
    let server = serve(&arguments.libraries, &[])?;
    if arguments.flight {
        return flight::measure(arguments, server.address());
    }
    let mut rows = Vec::new();
    if !arguments.beside {
        rows.extend(with_each_disturbance(arguments, server.address())?);
        if arguments.disturbed {
            return Ok(rows);
        }
        rows.extend(flight::measure(arguments, server.address())?);
    }
    rows.extend(beside::on_loopback(
        server.address(),
        arguments.rounds.min(3),
    )?);
    drop(server);
    rows.extend(beside::on_links(&arguments.libraries, arguments.rounds)?);
    Ok(rows)
}

/// The exchange that one kind of row measures.
struct Load {
    what: &'static str,
    unit: &'static str,
    /// Bytes in each direction; 0 for the null call.
    bytes: usize,
    /// Exchanges in a round: for fast tools, and for slow ones.
    calls: [usize; 2],
    outstanding: usize,
    better: Better,
}

const LOADS: [Load; 4] = [
    Load {
        what: "null",
        unit: "us",
        bytes: 0,
        calls: [1000, 100],
        outstanding: 1,
        better: Better::Lower,
    },
    Load {
        what: "1 KB out and back",
        unit: "us",
        bytes: 1 << 10,
        calls: [1000, 100],
        outstanding: 1,
        better: Better::Lower,
    },
    Load {
        what: "64 MiB out and back",
        unit: "MB/s",
        bytes: 64 << 20,
        calls: [3, 1],
        outstanding: 1,
        better: Better::Higher,
    },
    Load {
        what: "null, 8 outstanding",
        unit: "/s",
        bytes: 0,
        calls: [1000, 200],
        outstanding: 8,
        better: Better::Higher,
    },
];

impl Load {
    /// The figure of a row, from the seconds of an exchange.
    fn figure(&self, seconds: f64) -> f64 {
        match self.unit {
            "us" => seconds * 1e6,
            "MB/s" => 2.0 * self.bytes as f64 / seconds / 1e6,
            _ => 1.0 / seconds,
        }
    }

    /// The required ratio to plain TCP for one of our clients.
    fn bar(&self, contender: &str) -> Option<f64> {
        match (self.what, contender) {
            ("null", "Python") => Some(2.0),
            ("null", "Python, same host") => Some(1.6),
            ("64 MiB out and back", "Python") => Some(0.95),
            ("64 MiB out and back", "Python, same host") => Some(2.3),
            ("64 MiB out and back", "Python, born shared") => Some(6.0),
            ("null, 8 outstanding", "Rust" | "C") => Some(0.4),
            ("null, 8 outstanding", "Python") => Some(0.25),
            _ => None,
        }
    }
}

/// Our Python clients, with their names in benches/contenders.py.
const OURS: [(&str, &str); 3] = [
    ("Python", "farcall-tcp"),
    ("Python, same host", "farcall-host"),
    ("Python, born shared", "farcall-born"),
];
/// The client that is compared with the other tools.
const BESIDE_PEERS: &str = "Python, same host";
const PEERS: [&str; 6] = ["gRPC", "Arrow Flight", "pyzmq", "Pyro5", "Ray", "Dask"];

impl Arguments {
    /// Says which rows are left out. With `--check` this is a failure: their bars are not checked.
    fn leave_out(&self, what: &str, why: &Failure) -> Result<(), Failure> {
        let text = format!("{what} are left out: {why}; run `make build`");
        match self.check {
            true => Err(Failure::failed(text)),
            false => {
                progress::left_out(text);
                Ok(())
            }
        }
    }
}

/// The contenders that run in separate processes.
struct Contenders {
    ours: Vec<(&'static str, Contender)>,
    peers: Vec<(&'static str, Contender)>,
}

impl Contenders {
    fn start(arguments: &Arguments, address: &str) -> Result<Contenders, Failure> {
        let mut contenders = Contenders {
            ours: Vec::new(),
            peers: Vec::new(),
        };
        for (name, argument) in OURS {
            match Contender::python(&arguments.python, &[argument, address]) {
                Ok(contender) => contenders.ours.push((name, contender)),
                Err(failure) => {
                    arguments.leave_out("no Python with farcall, so its rows", &failure)?;
                    break;
                }
            }
        }
        match Contender::c(address) {
            Ok(contender) => contenders.ours.push(("C", contender)),
            Err(failure) => {
                arguments.leave_out("the C client is not built, so its rows", &failure)?;
            }
        }
        if arguments.peers {
            for name in PEERS {
                let contender = Contender::python(&PathBuf::from(PEERS_PYTHON), &[name]);
                let contender = contender.map_err(|failure| {
                    Failure::failed(format!("{failure}; scripts/peers installs the peers"))
                })?;
                contenders.peers.push((name, contender));
            }
        }
        Ok(contenders)
    }
}

/// The rows of all calls, undisturbed and with each disturbance.
fn with_each_disturbance(arguments: &Arguments, address: &str) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for disturbance in Disturbance::ALL {
        let (name, is_none) = (disturbance.name(), disturbance == Disturbance::None);
        if is_none && arguments.disturbed {
            continue;
        }
        if !disturbance.is_allowed() {
            progress::left_out(format_args!("calls {name} are left out: they need root"));
            continue;
        }
        let mut measured = disturbance.during(1, || {
            let mut rows = measure(arguments, address)?;
            rows.extend(kept::measure(arguments)?);
            Ok(rows)
        })?;
        for row in measured.iter_mut().filter(|_| !is_none) {
            row.name = format!("{}, {name}", row.name);
        }
        rows.extend(measured);
    }
    Ok(rows)
}

fn measure(arguments: &Arguments, address: &str) -> Result<Vec<Row>, Failure> {
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    let server = Server::connect(address, options)?;
    let mut contenders = Contenders::start(arguments, address)?;
    let mut rows = Vec::new();
    for load in &LOADS {
        progress::measuring(format_args!("calls: {}", load.what));
        rows.extend(measure_load(arguments, load, &server, &mut contenders)?);
    }
    Ok(rows)
}

/// Runs rounds of the plain exchange and of every contender in turn, so that a disturbance of the
/// machine affects all of them.
fn measure_load(
    arguments: &Arguments,
    load: &Load,
    server: &Server,
    contenders: &mut Contenders,
) -> Result<Vec<Row>, Failure> {
    let mut raw = RawPeer::start(load.bytes.max(NULL_BYTES))?;
    let mut client = RustClient::new(server, load.bytes)?;
    let (mut raw_values, mut rust_values) = (Vec::new(), Vec::new());
    let mut values = [
        vec![Vec::new(); contenders.ours.len()],
        vec![Vec::new(); contenders.peers.len()],
    ];
    let [calls, few] = load.calls;
    // The first round warms up caches, buffers and interfaces. It does not count.
    for round in 0..=arguments.rounds {
        let counts = round > 0;
        let seconds = match load.outstanding {
            1 => median_of(calls, || raw.exchange())?,
            outstanding => 1.0 / raw.rate(calls, outstanding)?,
        };
        raw_values.extend(counts.then(|| load.figure(seconds)));
        let seconds = match load.outstanding {
            1 => median_of(calls, || client.call())?,
            outstanding => 1.0 / rate(&client.function, calls, outstanding)?,
        };
        rust_values.extend(counts.then(|| load.figure(seconds)));
        let groups = [(&mut contenders.ours, calls), (&mut contenders.peers, few)];
        for ((group, calls), values) in groups.into_iter().zip(&mut values) {
            for ((_, contender), values) in group.iter_mut().zip(values) {
                let seconds = match load.outstanding {
                    1 => contender.round(load.bytes, calls)?,
                    outstanding => 1.0 / contender.rate(calls, outstanding)?,
                };
                values.extend(counts.then(|| load.figure(seconds)));
            }
        }
    }
    let figures = Figures {
        raw: raw_values,
        rust: rust_values,
        of_contenders: values,
    };
    Ok(rows(load, contenders, figures))
}

/// The measured values of a load, one per round.
struct Figures {
    raw: Vec<f64>,
    rust: Vec<f64>,
    /// Values of our clients and of the peers, in the order of [`Contenders`].
    of_contenders: [Vec<Vec<f64>>; 2],
}

fn rows(load: &Load, contenders: &Contenders, figures: Figures) -> Vec<Row> {
    let row = |name: &str, values, peer, peer_values, bar| Row {
        name: format!("{}, {name}", load.what),
        unit: load.unit,
        values,
        peer,
        peer_values,
        better: load.better,
        bar,
    };
    let [ours, peers] = figures.of_contenders;
    let plain = "plain TCP";
    let mut rows = vec![row(
        "Rust",
        figures.rust,
        plain,
        figures.raw.clone(),
        load.bar("Rust"),
    )];
    for ((name, _), values) in contenders.ours.iter().zip(&ours) {
        // Without arrays there is no difference between memory that was allocated shared and other
        // memory.
        if load.bytes > 0 || *name != "Python, born shared" {
            let raw = figures.raw.clone();
            rows.push(row(name, values.clone(), plain, raw, load.bar(name)));
        }
    }
    for ((name, _), values) in contenders.peers.iter().zip(peers) {
        // All of them run on this host and can use shared memory.
        let same_host = contenders
            .ours
            .iter()
            .position(|(name, _)| *name == BESIDE_PEERS);
        let ours = same_host.map_or_else(Vec::new, |index| ours[index].clone());
        rows.push(row(BESIDE_PEERS, ours, name, values, Some(1.0)));
    }
    rows
}

/// Null calls per second from this process.
fn rate(function: &Function, calls: usize, outstanding: usize) -> Result<f64, Failure> {
    let start = Instant::now();
    let mut pending = VecDeque::with_capacity(outstanding);
    for _ in 0..calls {
        if pending.len() == outstanding
            && let Some(oldest) = pending.pop_front()
        {
            Pending::wait(oldest)?;
        }
        // SAFETY: the call has no arrays.
        let begun = unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(1))]) };
        pending.push_back(begun?);
    }
    for call in pending {
        call.wait()?;
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

fn median_of(
    calls: usize,
    mut exchange: impl FnMut() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let times = (0..calls)
        .map(|_| exchange())
        .collect::<Result<Vec<f64>, _>>()?;
    Ok(median(&times))
}

/// The client in this process.
struct RustClient {
    function: Function,
    source: Vec<u8>,
    result: Vec<u8>,
}

impl RustClient {
    fn new(server: &Server, bytes: usize) -> Result<RustClient, Failure> {
        let function = server.function(if bytes == 0 {
            "bench/null"
        } else {
            "bench/echo"
        })?;
        Ok(RustClient {
            function,
            source: vec![1; bytes],
            result: vec![0; bytes],
        })
    }

    fn call(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        if self.source.is_empty() {
            self.function
                .call(&mut [Argument::Scalar(Scalar::Int(1))])?;
        } else {
            let count = self.source.len() as i64 / 8;
            self.function.call(&mut [
                Argument::Scalar(Scalar::Int(count)),
                Argument::In(&self.source),
                Argument::Out(&mut self.result),
            ])?;
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Starts a server for this run, on a free port.
fn serve(libraries: &Path, options: &[&str]) -> Result<Daemon, Failure> {
    let idl = crate::program::interface_file(libraries, "bench.idl")?;
    let mut command = Command::new(crate::program::farcall()?);
    command
        .arg("serve")
        .arg(idl)
        .args(["--listen", "127.0.0.1:0", "--log", "error"])
        .args(options);
    Ok(Daemon::start(command)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::arguments;

    /// Without its rows, no bar of the Python client would be missed.
    #[test]
    fn a_check_needs_the_clients_whose_bars_it_checks() {
        let start = |more: &[&str]| {
            let arguments = arguments([&["--python", "/bin/false"], more].concat()).unwrap();
            let started = Contenders::start(&arguments, "farcall://127.0.0.1:1");
            started.map(|contenders| contenders.ours.len())
        };
        let error = start(&["--check"]).unwrap_err().to_string();
        assert!(
            error.contains("farcall-tcp does not start; run `make build`"),
            "{error}"
        );
        // A build can have put the client in C beside the tests.
        assert!(start(&[]).unwrap() < 2);
    }
}

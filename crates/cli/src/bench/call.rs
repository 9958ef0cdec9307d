//! `farcall bench call`

use super::python::PythonClient;
use super::raw::RawPeer;
use super::table::{Better, Row, median, report};
use crate::failure::Failure;
use clap::Args;
use farcall_client::{Argument, Function, Options, Pending, Scalar, Server};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Cost of a call: nothing in it, 1 KB, and 64 MiB out and back
///
/// Each figure stands beside a plain TCP exchange of the same bytes, measured in turn with it.
/// benches/METHOD.md says how.
#[derive(Args)]
#[command(after_help = "Example:\n  farcall bench call --check")]
pub(crate) struct Arguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with status 1 where a bar is missed
    #[arg(long)]
    check: bool,
    /// Rounds; figures are medians over them
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Python to measure the Python client with [default: .venv/bin/python, else python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Folder with bench.idl and its library
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
}

/// Bytes of a null call on the wire, about: what the plain exchange sends each way.
const NULL_BYTES: usize = 32;
const SMALL_BYTES: usize = 1 << 10;
const BULK_BYTES: usize = 64 << 20;
const SMALL_CALLS: usize = 1000;
const BULK_CALLS: usize = 3;
const OUTSTANDING: usize = 8;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut server = LocalServer::start(&arguments.libraries)?;
    let rows = measure(arguments, &server.address);
    server.stop();
    report(&rows?, arguments.json, arguments.check)
}

/// What is exchanged in one kind of row.
struct Load {
    what: &'static str,
    bytes: usize,
    calls: usize,
}

fn measure(arguments: &Arguments, address: &str) -> Result<Vec<Row>, Failure> {
    let server = Server::connect(address, Options::default())?;
    let mut python = PythonClient::start(arguments.python.as_deref(), address);
    if python.is_none() {
        eprintln!("no Python with farcall: its rows are left out (`make build` makes one)");
    }
    let mut rows = Vec::new();
    for load in [
        Load {
            what: "null",
            bytes: 0,
            calls: SMALL_CALLS,
        },
        Load {
            what: "1 KB out and back",
            bytes: SMALL_BYTES,
            calls: SMALL_CALLS,
        },
        Load {
            what: "64 MiB out and back",
            bytes: BULK_BYTES,
            calls: BULK_CALLS,
        },
    ] {
        rows.extend(measure_load(
            arguments.rounds,
            &load,
            &server,
            python.as_mut(),
        )?);
    }
    rows.extend(measure_outstanding(
        arguments.rounds,
        &server,
        python.as_mut(),
    )?);
    Ok(rows)
}

/// Null calls of which several are under way at any time.
fn measure_outstanding(
    rounds: u32,
    server: &Server,
    mut python: Option<&mut PythonClient>,
) -> Result<Vec<Row>, Failure> {
    let mut raw = RawPeer::start(NULL_BYTES)?;
    let function = server.function("bench/null")?;
    let (mut raw_rates, mut rust_rates, mut python_rates) = (vec![], vec![], vec![]);
    for round in 0..=rounds {
        let raw_rate = raw.rate(SMALL_CALLS, OUTSTANDING)?;
        let rust_rate = rate(&function)?;
        let python_rate = match python.as_mut() {
            Some(python) => Some(python.rate(SMALL_CALLS, OUTSTANDING)?),
            None => None,
        };
        if round > 0 {
            raw_rates.push(raw_rate);
            rust_rates.push(rust_rate);
            python_rates.extend(python_rate);
        }
    }
    let row = |name, values: Vec<f64>| Row {
        name,
        unit: "/s",
        values,
        peer: "plain TCP",
        peer_values: raw_rates.clone(),
        better: Better::Higher,
        bar: None,
    };
    let mut rows = vec![row("null, 8 outstanding, Rust", rust_rates)];
    if !python_rates.is_empty() {
        rows.push(row("null, 8 outstanding, Python", python_rates));
    }
    Ok(rows)
}

/// Null calls a second from this process.
fn rate(function: &Function) -> Result<f64, Failure> {
    let start = Instant::now();
    let mut pending = VecDeque::with_capacity(OUTSTANDING);
    for _ in 0..SMALL_CALLS {
        if pending.len() == OUTSTANDING
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
    Ok(SMALL_CALLS as f64 / start.elapsed().as_secs_f64())
}

/// Rounds of the plain exchange, the Rust client and the Python client, one after the other, so
/// that what disturbs the machine disturbs all of them.
fn measure_load(
    rounds: u32,
    load: &Load,
    server: &Server,
    mut python: Option<&mut PythonClient>,
) -> Result<Vec<Row>, Failure> {
    let mut raw = RawPeer::start(load.bytes.max(NULL_BYTES))?;
    let mut client = RustClient::new(server, load.bytes)?;
    let (mut raw_times, mut rust_times, mut python_times) = (vec![], vec![], vec![]);
    // The first round warms up caches, buffers and the interface, and does not count.
    for round in 0..=rounds {
        let raw_time = median_of(load.calls, || raw.exchange())?;
        let rust_time = median_of(load.calls, || client.call())?;
        let python_time = match python.as_mut() {
            Some(python) => Some(python.round(load.bytes, load.calls)?),
            None => None,
        };
        if round > 0 {
            raw_times.push(raw_time);
            rust_times.push(rust_time);
            python_times.extend(python_time);
        }
    }
    let bulk = load.bytes >= BULK_BYTES;
    let figure = |seconds: &Vec<f64>| -> Vec<f64> {
        let moved = 2.0 * load.bytes as f64;
        let figure = |time: &f64| if bulk { moved / time / 1e6 } else { time * 1e6 };
        seconds.iter().map(figure).collect()
    };
    let row = |name, seconds: &Vec<f64>, bar| Row {
        name,
        unit: if bulk { "MB/s" } else { "us" },
        values: figure(seconds),
        peer: "plain TCP",
        peer_values: figure(&raw_times),
        better: if bulk { Better::Higher } else { Better::Lower },
        bar,
    };
    let (rust_name, python_name, bar) = match load.what {
        "null" => ("null call, Rust", "null call, Python", Some(2.5)),
        "1 KB out and back" => ("1 KB out and back, Rust", "1 KB out and back, Python", None),
        _ => (
            "64 MiB out and back, Rust",
            "64 MiB out and back, Python",
            Some(0.85),
        ),
    };
    let mut rows = vec![row(rust_name, &rust_times, None)];
    if !python_times.is_empty() {
        rows.push(row(python_name, &python_times, bar));
    }
    Ok(rows)
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

/// Calls from this process.
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

/// A server for this run, on a free port.
struct LocalServer {
    process: Child,
    address: String,
}

impl LocalServer {
    fn start(libraries: &std::path::Path) -> Result<LocalServer, Failure> {
        let idl = libraries.join("bench.idl");
        if !idl.exists() {
            return Err(Failure::usage(format!(
                "{} is not there: run this in the folder of the project after `make build`, or \
                 name the folder with --libraries",
                idl.display()
            )));
        }
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg(idl)
            .args(["--listen", "127.0.0.1:0", "--log", "error"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = process.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim().strip_prefix("listening on ") {
            Some(address) => Ok(LocalServer {
                process,
                address: address.to_string(),
            }),
            None => {
                let _ = process.wait();
                Err(Failure::failed("the server did not start"))
            }
        }
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.stop();
    }
}

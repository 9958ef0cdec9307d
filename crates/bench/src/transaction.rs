//! `farcall bench transaction`: programs of calls as a transaction on four servers, compared with
//! the same calls one by one. `program` has the programs. If the results of both ways differ, the
//! benchmark fails.

mod program;

use super::table::{Better, Row, report};
use crate::failure::Failure;
use crate::machine::Machine;
use clap::Args;
use farcall_client::{Options, Server};
use farcall_lab::Daemon;
use farcall_lab::Lab;
use program::Program;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const SERVERS: usize = 4;
const CLIENT: usize = 0;
/// Bits per second of the client's link, and of the servers' links.
const SLOW: u64 = 100_000_000;
const FAST: u64 = 1_000_000_000;
/// Number of blocks in a row of the factored matrix, and number of products.
const BLOCKS: usize = 4;
const PRODUCTS: usize = 8;

/// Measure calls as a transaction on four servers, and the same calls one by one
///
/// The client is behind a link of 100 Mbit/s. The servers have links of 1 Gbit/s to each other. A
/// blocked LU factorisation and a chain of matrix products are computed in both ways, and the
/// results must be equal. The run creates and removes network namespaces for the hosts, so it needs
/// root. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench transaction --check
  sudo farcall bench transaction --size 100 --rounds 1")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Order of the blocks and of the matrices of the products
    #[arg(long, value_name = "N", default_value_t = 250,
          value_parser = clap::value_parser!(u64).range(8..=2000))]
    size: u64,
    /// Number of rounds, each of which computes everything in both ways
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Folder with blas.idl and lapack.idl
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::watch();
    let interfaces = ["blas.idl", "lapack.idl"];
    let interfaces =
        interfaces.map(|name| crate::program::interface_file(&arguments.libraries, name));
    let interfaces: Vec<PathBuf> = interfaces.into_iter().collect::<Result<_, _>>()?;
    let lab = Lab::build(&[&[0][..]; 1 + SERVERS], None)?;
    for host in 0..=SERVERS {
        let rate = if host == CLIENT { SLOW } else { FAST };
        lab.shape_link(host, 0, [rate; 2])?;
    }
    let processes = start(&lab, &interfaces)?;
    let size = arguments.size as usize;
    let programs = [
        ("blocked LU", Program::blocked_lu(BLOCKS, size)),
        ("chain of products", Program::products(PRODUCTS, size)),
    ];
    // This needs its own thread, because the thread moves to its host.
    let measured = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            lab.enter(CLIENT)?;
            let servers = connect(&lab, &processes)?;
            let mut rows = Vec::new();
            for (name, program) in &programs {
                rows.extend(measure(name, program, &servers, arguments.rounds)?);
            }
            Ok(rows)
        });
        let panicked = |_| Err(Failure::failed("the client panicked"));
        client.join().unwrap_or_else(panicked)
    });
    report(&measured?, machine.end(), arguments.json, arguments.check)
}

/// Starts a server with one processor element on each host except the client's. Each server can
/// read from the others.
fn start(lab: &Lab, interfaces: &[PathBuf]) -> Result<Vec<Daemon>, Failure> {
    let program = crate::program::farcall()?;
    let mut config = crate::signals::file()?;
    writeln!(config, "[data]\npeers = [\"10.78.0.0/16\"]")?;
    let config: &Path = config.path();
    let start = |host| {
        let mut command = lab.command(host, &program.to_string_lossy());
        command.arg("serve").args(interfaces).arg("--config");
        command.arg(config);
        command.args(["--listen", "0.0.0.0:0", "--pes", "1", "--log", "error"]);
        Ok(Daemon::start(command)?)
    };
    (1..=SERVERS).map(start).collect()
}

fn connect(lab: &Lab, processes: &[Daemon]) -> Result<Vec<Server>, Failure> {
    let connect = |(place, process): (usize, &Daemon)| {
        let host = lab.link_address(1 + place, 0);
        let options = Options {
            same_host: false,
            ..Options::default()
        };
        let address = format!("farcall://{host}:{}", process.port()?);
        Ok(Server::connect(&address, options)?)
    };
    processes.iter().enumerate().map(connect).collect()
}

/// Bytes through the client and seconds: as a transaction on all servers, and call by call on the
/// first server.
fn measure(
    name: &str,
    program: &Program,
    servers: &[Server],
    rounds: u64,
) -> Result<[Row; 2], Failure> {
    let functions = program.functions(&servers[0])?;
    let (mut moved, mut together) = (Vec::new(), Vec::new());
    let mut one_by_one = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let expected = program.call_by_call(&functions)?;
        one_by_one.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let (report, results) = program.transaction(&functions, servers)?;
        together.push(start.elapsed().as_secs_f64());
        moved.push((report.sent_bytes + report.returned_bytes) as f64 / 1e6);
        if results != expected {
            let text =
                format!("{name}: the transaction and the calls one by one give different results");
            return Err(Failure::failed(text));
        }
    }
    let row = |what: &str, unit, [values, peer_values]: [Vec<f64>; 2], bar| Row {
        name: format!("{name}, {what}"),
        unit,
        values,
        peer: "call by call",
        peer_values,
        better: Better::Lower,
        bar: Some(bar),
    };
    let all = program.bytes(&functions) as f64 / 1e6;
    Ok([
        row("by the client", "MB", [moved, vec![all]], 0.5),
        row("until its end", "s", [together, one_by_one], 1.0),
    ])
}

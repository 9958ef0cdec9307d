//! `farcall bench reservation`: a transfer beside the bulk data of others, with and without
//! reserved bandwidth. Both cases are measured in every round, on the same link.

use super::table::{Better, Row, report};
use crate::failure::Failure;
use crate::machine::Machine;
use clap::Args;
use farcall_client::{Argument, Error, Function, Options, ReservationSpec, Scalar, Server};
use farcall_lab::Daemon;
use farcall_lab::Lab;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SERVER: usize = 0;
const USER: usize = 1;
const OTHERS: usize = 2;
/// Bits per second of the server's link in each direction.
const LINK: u64 = 100_000_000;
/// The bandwidth in the server's configuration. Headers and acknowledgements take the rest.
const TOLD: &str = "85Mbit/s";
/// Reserved bytes per second in each direction: 40 Mbit/s.
const RESERVED: u64 = 5_000_000;
/// Bytes of the transfer in each direction.
const BYTES: usize = 10_000_000;
/// Bytes of each call of the others in each direction, and the number of such calls at a time.
const BULK_BYTES: usize = 1_000_000;
const BULK: usize = 8;

const SYSTEM: &str = "Module moving;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
";

/// Measure a transfer beside bulk data of others, with and without reserved bandwidth
///
/// The server is behind a link of 100 Mbit/s, over which eight others move data in both directions
/// all the time. A user sends 10 MB to the server and back, first with 40 Mbit/s reserved in each
/// direction, and then without. The run creates and removes network namespaces for the hosts, so it
/// needs root. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Example:\n  sudo farcall bench reservation --check")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Number of rounds, each with and without a reservation
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Rates in megabits per second.
#[derive(Default)]
struct Rates {
    up: Vec<f64>,
    down: Vec<f64>,
    /// Rate of the others at the same time, both directions together.
    others: Vec<f64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::watch();
    let lab = Lab::build(&[&[0][..]; 3], None)?;
    lab.shape_link(SERVER, 0, [LINK; 2])?;
    let folder = crate::signals::folder()?;
    let process = start(&lab, folder.path())?;
    let address = format!(
        "farcall://{}:{}",
        lab.link_address(SERVER, 0),
        process.port()?
    );
    let bulk = Bulk::start(&lab, &address)?;
    // This needs its own thread, because the thread moves to its host.
    let measured = std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            lab.enter(USER)?;
            measure(&address, &bulk, arguments.rounds)
        });
        let panicked = |_| Err(Failure::failed("the user panicked"));
        user.join().unwrap_or_else(panicked)
    });
    bulk.end()?;
    let [with, without] = measured?;
    let rows = rows(with, without);
    report(&rows, machine.end(), arguments.json, arguments.check)
}

fn start(lab: &Lab, folder: &Path) -> Result<Daemon, Failure> {
    let (idl, config) = (folder.join("moving.idl"), folder.join("farcall.toml"));
    std::fs::write(&idl, SYSTEM)?;
    let mut file = std::fs::File::create(&config)?;
    writeln!(
        file,
        "[limits]\nbandwidth_up = '{TOLD}'\nbandwidth_down = '{TOLD}'"
    )?;
    let program = crate::program::farcall()?;
    let mut command = lab.command(SERVER, &program.to_string_lossy());
    command.arg("serve").arg(idl).arg("--config").arg(config);
    command.args(["--listen", "0.0.0.0:0", "--log", "error"]);
    Ok(Daemon::start(command)?)
}

fn connect(address: &str) -> Result<Function, Error> {
    let options = Options {
        streams: 1,
        ..Options::default()
    };
    Server::connect(address, options)?.function("copy")
}

/// Seconds of a transfer of this number of bytes to the server, and back.
fn transfer(function: &Function, bytes: usize) -> Result<[f64; 2], Error> {
    let (there, mut back) = (vec![1; bytes], vec![0; bytes]);
    let outcome = function.call(&mut [
        Argument::Out(&mut back),
        Argument::In(&there),
        Argument::Scalar(Scalar::Int(bytes as i64)),
    ])?;
    Ok([outcome.times.send, outcome.times.recv])
}

/// Clients that move data all the time.
struct Bulk {
    moved: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Bulk {
    fn start(lab: &Lab, address: &str) -> Result<Bulk, Failure> {
        let (moved, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let threads = (0..BULK).map(|_| {
            let (moved, ends) = (moved.clone(), ends.clone());
            let address = address.to_string();
            lab.spawn(OTHERS, move || {
                let function = connect(&address).map_err(io::Error::other)?;
                while !ends.load(Ordering::Relaxed) {
                    transfer(&function, BULK_BYTES).map_err(io::Error::other)?;
                    moved.fetch_add(2 * BULK_BYTES as u64, Ordering::Relaxed);
                }
                Ok(())
            })
        });
        let threads = threads.collect::<Result<_, _>>()?;
        Ok(Bulk {
            moved,
            ends,
            threads,
        })
    }

    fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    fn end(self) -> Result<(), Failure> {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))?;
        }
        Ok(())
    }
}

/// Rates with reserved bandwidth, and without.
fn measure(address: &str, bulk: &Bulk, rounds: u64) -> Result<[Rates; 2], Failure> {
    let function = connect(address)?;
    let wanted = ReservationSpec {
        up: RESERVED,
        down: RESERVED,
        length: Duration::from_secs(600),
        ..ReservationSpec::default()
    };
    let [mut with, mut without] = <[Rates; 2]>::default();
    for _ in 0..rounds {
        round(&function, bulk, &mut without)?;
        let reservation = function.server().reserve(&wanted)?;
        let within = function.with_reservation(Some(reservation.id));
        round(&within, bulk, &mut with)?;
        function.server().release(reservation.id)?;
    }
    Ok([with, without])
}

fn round(function: &Function, bulk: &Bulk, rates: &mut Rates) -> Result<(), Failure> {
    let rate = |bytes: f64, seconds: f64| 8.0 * bytes / seconds / 1e6;
    let (start, before) = (Instant::now(), bulk.moved());
    let [up, down] = transfer(function, BYTES)?;
    let others = (bulk.moved() - before) as f64;
    rates.up.push(rate(BYTES as f64, up));
    rates.down.push(rate(BYTES as f64, down));
    let seconds = start.elapsed().as_secs_f64();
    rates.others.push(rate(others, seconds));
    Ok(())
}

fn rows(with: Rates, without: Rates) -> Vec<Row> {
    let reserved = 8.0 * RESERVED as f64 / 1e6;
    let row = |name: &str, values, bar| Row {
        name: name.to_string(),
        unit: "Mbit/s",
        values,
        peer: "reserved",
        peer_values: vec![reserved],
        better: Better::Higher,
        bar,
    };
    let both = |name: &str, values, peer_values| Row {
        peer: "without",
        peer_values,
        ..row(name, values, None)
    };
    vec![
        row("up beside bulk, reserved", with.up, Some(0.9)),
        row("up beside bulk, without", without.up, None),
        row("down beside bulk, reserved", with.down, Some(0.9)),
        row("down beside bulk, without", without.down, None),
        both("others both ways meanwhile", with.others, without.others),
    ]
}

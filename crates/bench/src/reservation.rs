//! `farcall bench reservation`: a transfer beside bulk data of others, with bandwidth reserved and
//! without.

use super::table::{Better, Row, report};
use crate::failure::Failure;
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
/// Bits a second of the server's link each way.
const LINK: u64 = 100_000_000;
/// What of it is told to the server: headers and acknowledgements have the rest.
const TOLD: &str = "85Mbit/s";
/// Bytes a second that are reserved each way: 40 Mbit/s.
const RESERVED: u64 = 5_000_000;
/// Bytes of the transfer each way.
const BYTES: usize = 10_000_000;
/// Bytes of each call of the others, each way, and how many of them there are at a time.
const BULK_BYTES: usize = 1_000_000;
const BULK: usize = 8;

const SYSTEM: &str = "Module moving;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
";

/// A transfer beside bulk data of others, with bandwidth reserved and without
///
/// The server is behind a link of 100 Mbit/s, over which eight others move data both ways all the
/// time. A user moves 10 MB there and back, at 40 Mbit/s reserved each way, and again without.
/// Hosts are network namespaces that the run makes and removes; it needs root. benches/METHOD.md
/// says how the figures are made.
#[derive(Args)]
#[command(after_help = "Example:\n  sudo farcall bench reservation --check")]
pub(crate) struct Arguments {
    /// Exit with status 1 where a bar is missed
    #[arg(long)]
    check: bool,
    /// Rounds, each with a reservation and without
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Megabits a second.
#[derive(Default)]
struct Rates {
    up: Vec<f64>,
    down: Vec<f64>,
    /// What others had meanwhile, both ways together.
    others: Vec<f64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    crate::signals::leave_no_lab()?;
    let lab = Lab::build(&[&[0][..]; 3], None)?;
    lab.shape_link(SERVER, 0, [LINK; 2])?;
    let folder = tempfile::tempdir()?;
    let process = start(&lab, folder.path())?;
    let address = format!(
        "farcall://{}:{}",
        lab.link_address(SERVER, 0),
        process.port()?
    );
    let bulk = Bulk::start(&lab, &address)?;
    // A thread of its own, because it moves to its host.
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
    report(&rows(with, without), arguments.json, arguments.check)
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

/// Seconds that so many bytes took there, and back.
fn transfer(function: &Function, bytes: usize) -> Result<[f64; 2], Error> {
    let (there, mut back) = (vec![1; bytes], vec![0; bytes]);
    let outcome = function.call(&mut [
        Argument::Out(&mut back),
        Argument::In(&there),
        Argument::Scalar(Scalar::Int(bytes as i64)),
    ])?;
    Ok([outcome.times.send, outcome.times.recv])
}

/// Others that move data all the time.
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

/// Rates with bandwidth reserved, and without.
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

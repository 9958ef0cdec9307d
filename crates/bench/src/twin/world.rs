//! Servers behind links, a metaserver and clients on separate hosts of a lab. It runs a load in a
//! setup and returns the twin of its record.

use crate::failure::Failure;
use farcall_client::{Argument, Function, Options, Scalar, Server};
use farcall_lab::{Daemon, Lab};
use farcall_random::SplitMix64;
use farcall_record::Line;
use farcall_recorder::{Lines, files};
use farcall_schedule::{placement, queue};
use farcall_twin::{Day, Twin};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Hosts of clients.
const HOSTS: usize = 2;
const META: usize = HOSTS;
/// The host of the first server.
const SERVERS: usize = META + 1;
const MOST_SERVERS: usize = 3;
/// The part of a link's bits that is payload.
const PAYLOAD: f64 = 0.95;
/// Bytes of the queues of a link: more than all calls have under way, so that no packet is lost.
const QUEUE: u64 = 32 << 20;
/// Loops of calls, and the calls of each.
const LOOPS: usize = 10;
const STEPS: usize = 60;
/// Calls at random times, and the seconds within which they are made.
const SINGLE: usize = 60;
const WINDOW_S: f64 = 16.0;
/// Microseconds of the shortest and the longest call, and bytes of the smallest and the largest; in
/// between they are uniform on a logarithmic scale.
const MICROS: (f64, f64) = (20e3, 400e3);
const BYTES: (f64, f64) = (1e4, 3e5);
/// The longest pause of a loop.
const PAUSE_S: f64 = 0.1;
/// Longer than any call takes, and than any server needs to join.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than a client probes its links to all servers, whose results the later clients are told.
const PROBES: Duration = Duration::from_secs(3);

/// How many times as long each server takes for a call.
const SLOWER: [u32; 2] = [2, 1];

/// Payload in bytes per second of a link with this rate in bits per second.
pub(super) fn payload(rate: u64) -> f64 {
    rate as f64 / 8.0 * PAYLOAD
}

/// The address of a server's host.
pub(super) fn host(server: usize) -> String {
    format!("10.78.0.{}", SERVERS + server + 1)
}

/// How the servers and their links are.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) pes: [u32; 2],
    /// Bits per second to the server and from it.
    pub(super) links: [[u64; 2]; 2],
    pub(super) queue: queue::Policy,
    pub(super) placement: placement::Policy,
    /// Which of the servers the third one is equal to.
    pub(super) third: Option<usize>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            pes: [2, 2],
            links: [[80_000_000, 60_000_000], [30_000_000, 30_000_000]],
            queue: queue::Policy::default(),
            placement: placement::Policy::default(),
            third: None,
        }
    }
}

/// A call: how long the second server computes it, its bytes each way, and when it is made: seconds
/// after the beginning, or after the results of the call before it.
#[derive(Clone, Copy, Debug)]
struct Task {
    micros: i64,
    bytes: usize,
    at_s: f64,
}

/// Loops of calls, and single calls.
#[derive(Clone, Debug)]
pub(super) struct Load {
    loops: Vec<Vec<Task>>,
    single: Vec<Task>,
}

impl Load {
    pub(super) fn random(seed: u64) -> Load {
        let mut random = SplitMix64::new(seed);
        let mut task = |within_s: f64| {
            let mut between = |(low, high): (f64, f64)| low * (high / low).powf(random.unit());
            Task {
                micros: between(MICROS) as i64,
                bytes: between(BYTES) as usize / 8 * 8,
                at_s: within_s * random.unit(),
            }
        };
        Load {
            loops: (0..LOOPS)
                .map(|_| (0..STEPS).map(|_| task(PAUSE_S)).collect())
                .collect(),
            single: (0..SINGLE).map(|_| task(WINDOW_S)).collect(),
        }
    }

    /// Runs the load on new servers, and returns the twin of its record.
    pub(super) fn run(
        &self,
        setup: &Setup,
        interface: &Path,
        records: Option<&Path>,
    ) -> Result<Twin, Failure> {
        let mut kept = tempfile::Builder::new();
        let folder = match records {
            Some(records) => kept
                .prefix("twin-")
                .disable_cleanup(true)
                .tempdir_in(records)?,
            None => crate::signals::folder()?,
        };
        let grid = Grid::start(setup, interface, folder.path())?;
        grid.learn()?;
        let begin = SystemTime::now().duration_since(UNIX_EPOCH);
        let begin = begin.map_err(Failure::failed)?.as_secs_f64();
        let (start, grid_ref) = (Instant::now(), &grid);
        std::thread::scope(|scope| {
            let loops = self.loops.iter().enumerate().map(|(number, tasks)| {
                scope.spawn(move || {
                    let function = grid_ref.function(number % HOSTS)?;
                    tasks.iter().try_for_each(|task| {
                        std::thread::sleep(Duration::from_secs_f64(task.at_s));
                        call(&function, task)
                    })
                })
            });
            let single = self.single.iter().enumerate().map(|(number, task)| {
                scope.spawn(move || {
                    let function = grid_ref.function(number % HOSTS)?;
                    let at = start + Duration::from_secs_f64(task.at_s);
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    call(&function, task)
                })
            });
            let threads: Vec<_> = loops.chain(single).collect();
            threads.into_iter().try_for_each(|thread| {
                let panicked = |_| Err(Failure::failed("a client panicked"));
                thread.join().unwrap_or_else(panicked)
            })
        })?;
        grid.stop()?;
        read(folder.path(), begin)
    }
}

/// Makes a call.
fn call(function: &Function, task: &Task) -> Result<(), Failure> {
    let (x, mut y) = (vec![1; task.bytes], vec![0; task.bytes]);
    let int = |value: i64| Argument::Scalar(Scalar::Int(value));
    function.call(&mut [
        int(task.micros),
        int(task.bytes as i64 / 8),
        Argument::In(&x),
        Argument::Out(&mut y),
    ])?;
    Ok(())
}

/// The twin of the records in a folder, from a moment on.
fn read(folder: &Path, begin: f64) -> Result<Twin, Failure> {
    let mut day = Day::default();
    for record in std::fs::read_dir(folder)? {
        let record = record?.path();
        if !record.is_dir() {
            continue;
        }
        for file in files(&record)? {
            for told in Lines::open(&file).map_err(Failure::failed)? {
                let line = told.map_err(Failure::failed)?.line;
                if !matches!(&line, Line::Call(call) if call.asked < begin) {
                    day.take(&line);
                }
            }
        }
    }
    Twin::new(day).map_err(Failure::failed)
}

/// The processes of a setup.
struct Grid {
    // The processes end before their hosts.
    processes: Vec<Daemon>,
    lab: Lab,
    address: String,
    servers: Vec<String>,
}

impl Grid {
    fn start(setup: &Setup, interface: &Path, folder: &Path) -> Result<Grid, Failure> {
        let lab = Lab::build(&[&[0][..]; SERVERS + MOST_SERVERS], None)?;
        let program = crate::program::farcall()?;
        let program = program.to_string_lossy();
        debug_assert_eq!(host(0), lab.link_address(SERVERS, 0).to_string());
        let mut meta = lab.command(META, &program);
        meta.args([
            "meta",
            "--listen",
            "0.0.0.0:0",
            "--store",
            "none",
            "--log",
            "error",
        ])
        .args(["--policy", setup.placement.name(), "--record"])
        .arg(folder.join("meta"));
        let meta = Daemon::start(meta)?;
        let address = format!("meta://{}:{}", lab.link_address(META, 0), meta.port()?);
        let mut grid = Grid {
            processes: vec![meta],
            lab,
            address,
            servers: Vec::new(),
        };
        for (server, like) in [0, 1].into_iter().chain(setup.third).enumerate() {
            let host = SERVERS + server;
            grid.lab.shape_line(host, 0, setup.links[like], QUEUE)?;
            let mut command = grid.lab.command(host, &program);
            command
                .env("FARCALL_BENCH_SLOWER", SLOWER[like].to_string())
                .arg("serve")
                .arg(interface)
                .args(["--listen", "0.0.0.0:0", "--log", "error"])
                .args(["--pes", &setup.pes[like].to_string()])
                .args([
                    "--policy",
                    setup.queue.name(),
                    "--metaserver",
                    &grid.address,
                ])
                .arg("--record")
                .arg(folder.join(server.to_string()));
            let process = Daemon::start(command)?;
            let host = grid.lab.link_address(host, 0);
            grid.servers
                .push(format!("farcall://{host}:{}", process.port()?));
            grid.processes.push(process);
        }
        Ok(grid)
    }

    /// The function as a client on this host sees it, in this thread.
    fn function(&self, host: usize) -> Result<Function, Failure> {
        self.lab.enter(host)?;
        function(&self.address)
    }

    /// Lets the servers compute some calls, and waits until the metaserver knows all of them and
    /// their links.
    fn learn(&self) -> Result<(), Failure> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..HOSTS)
                .map(|host| scope.spawn(move || self.learn_at(host)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let panicked = |_| Err(Failure::failed("a client panicked"));
                thread.join().unwrap_or_else(panicked)
            })
        })
    }

    fn learn_at(&self, host: usize) -> Result<(), Failure> {
        self.lab.enter(host)?;
        let tasks = [(20_000, 10_000), (100_000, 100_000), (300_000, 300_000)];
        for address in &self.servers {
            let own = function(address)?;
            for (micros, bytes) in tasks {
                let task = Task {
                    micros,
                    bytes,
                    at_s: 0.0,
                };
                call(&own, &task)?;
            }
        }
        let end = Instant::now() + PATIENCE;
        let reached = |function: Function| function.servers().map_or(0, |servers| servers.len());
        while function(&self.address).map_or(0, reached) < self.servers.len() {
            if Instant::now() > end {
                return Err(Failure::failed("the servers did not join the metaserver"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let probing = function(&self.address)?;
        std::thread::sleep(PROBES);
        drop(probing);
        Ok(())
    }

    /// Stops the servers, so that their records are whole.
    fn stop(mut self) -> Result<(), Failure> {
        for mut process in self.processes.drain(..).rev() {
            if process.stop(PATIENCE)?.is_none() {
                return Err(Failure::failed(
                    "a process did not end, so its record is not whole",
                ));
            }
        }
        Ok(())
    }
}

fn function(address: &str) -> Result<Function, Failure> {
    let options = Options {
        same_host: false,
        timeout: Some(PATIENCE),
        ..Options::default()
    };
    Ok(Server::connect(address, options)?.function("bench/task")?)
}

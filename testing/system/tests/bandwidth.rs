//! Tests reserved bandwidth with a real server, a user with a reservation, and others with large
//! arrays. A reserved call has its rate, and all others share the rest.

use farcall_client::{
    Argument, Credentials, Error, FailureKind, Function, Options, ReservationSpec, Scalar, Server,
};
use farcall_system::{ServerProcess, farcall};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Takes and returns the given numbers of doubles.
const IDL: &str = "
Module moving;
Define move(IN long n, IN double a[n], IN long m, OUT double b[m]) { b[m - 1] = a[n - 1]; }
";

const MINUTE: Duration = Duration::from_secs(60);
/// Bounds of a transfer's time, relative to its rate: a little shorter because of the burst at its
/// start, and this much longer on a busy machine.
const SLOWER: f64 = 1.5;
const MB: u64 = 1_000_000;
/// Seconds of a rate that can pass as a burst: 20 ms at the client and at the server.
const BURSTS: f64 = 0.1;

fn start(limits: &str) -> ServerProcess {
    start_with(limits, &[])
}

fn start_with(limits: &str, options: &[&str]) -> ServerProcess {
    let server = ServerProcess::of(&[IDL]).config(&format!("[limits]\n{limits}"));
    server.options(&["--allow-code"]).options(options).start()
}

/// Over TCP, because arrays over a Unix socket cross no link.
fn connect(process: &ServerProcess) -> Server {
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    Server::connect(process.address(), options).unwrap()
}

/// Seconds that this many bytes took to the server and back.
fn transfer(function: &Function, up: u64, down: u64) -> Result<[f64; 2], Error> {
    let (n, m) = ((up / 8).max(1) as usize, (down / 8).max(1) as usize);
    let (a, mut b) = (vec![1u8; 8 * n], vec![0u8; 8 * m]);
    let outcome = function.call(&mut [
        Argument::Scalar(Scalar::Int(n as i64)),
        Argument::In(&a),
        Argument::Scalar(Scalar::Int(m as i64)),
        Argument::Out(&mut b),
    ])?;
    assert_eq!(b[8 * m - 8..], [1; 8]);
    Ok([outcome.times.send, outcome.times.recv])
}

fn of_bandwidth(up: u64, down: u64, length: Duration) -> ReservationSpec {
    ReservationSpec {
        up,
        down,
        length,
        ..ReservationSpec::default()
    }
}

/// Clients that move a megabyte in each direction, again and again.
struct Bulk<'s> {
    moved: &'static AtomicU64,
    ends: &'static AtomicBool,
    threads: Vec<JoinHandle<()>>,
    process: &'s ServerProcess,
}

impl<'s> Bulk<'s> {
    fn start(process: &'s ServerProcess, count: usize) -> Bulk<'s> {
        let moved: &AtomicU64 = Box::leak(Box::default());
        let ends: &AtomicBool = Box::leak(Box::default());
        let threads = (0..count).map(|_| {
            let function = connect(process).function("move").unwrap();
            thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    transfer(&function, MB, MB).unwrap();
                    moved.fetch_add(MB, Ordering::Relaxed);
                }
            })
        });
        Bulk {
            moved,
            ends,
            threads: threads.collect(),
            process,
        }
    }

    /// Bytes per second in each direction while `work` runs.
    fn rate_during<T>(&self, work: impl FnOnce() -> T) -> (f64, T) {
        let (start, before) = (Instant::now(), self.moved.load(Ordering::Relaxed));
        let done = work();
        let moved = self.moved.load(Ordering::Relaxed) - before;
        (moved as f64 / start.elapsed().as_secs_f64(), done)
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        let _ = self.process;
    }
}

/// Whether this many seconds agree with a rate.
fn assert_rate(seconds: f64, bytes: u64, rate: u64) {
    let due = bytes as f64 / rate as f64;
    let bounds = due - BURSTS..due * SLOWER + 0.2;
    assert!(bounds.contains(&seconds), "{seconds} s for {bounds:?}");
}

#[test]
fn a_reserved_call_has_its_rate_and_all_others_the_rest() {
    let process = start("bandwidth_up = '20MB/s'\nbandwidth_down = 20e6\n");
    let bulk = Bulk::start(&process, 2);
    let server = connect(&process);
    let wanted = of_bandwidth(8 * MB, 4 * MB, MINUTE);
    let reservation = server.reserve(&wanted).unwrap();
    assert_eq!((reservation.up, reservation.down), (8 * MB, 4 * MB));
    let function = server.function("move").unwrap();
    let within = function.with_reservation(Some(reservation.id));
    let scalars = [Some(Scalar::Int(1)), None, Some(Scalar::Int(1)), None];
    let estimate = within.estimate(&scalars, &[]).unwrap();
    assert_eq!(estimate.rates, (Some(8e6), Some(4e6)), "{estimate}");
    let (others, times) = bulk.rate_during(|| transfer(&within, 12 * MB, 6 * MB).unwrap());
    assert_rate(times[0], 12 * MB, 8 * MB);
    assert_rate(times[1], 6 * MB, 4 * MB);
    // Their arrays to the server and back take turns; the direction to the server is the slower
    // one.
    let rest = 12e6;
    assert!(others < rest * 1.1, "others had {others} of {rest}");
    assert!(others > rest / 4.0, "others had {others} of {rest}");
    // Small calls of others do not wait behind these arrays.
    let small = Instant::now();
    for _ in 0..10 {
        transfer(&function, 8, 8).unwrap();
    }
    let small = small.elapsed();
    assert!(
        small < Duration::from_secs(5),
        "{small:?} for ten small calls"
    );
    server.release(reservation.id).unwrap();
    let (others, ()) = bulk.rate_during(|| thread::park_timeout(Duration::from_secs(1)));
    assert!(others > 2.0 * rest, "afterwards others had {others}");
    bulk.end();
}

#[test]
fn the_server_holds_clients_to_their_rate() {
    let process = start("bandwidth_up = '20MB/s'\nbandwidth_down = '20MB/s'\n");
    let first = connect(&process);
    let reservation = first
        .reserve(&of_bandwidth(4 * MB, 4 * MB, MINUTE))
        .unwrap();
    let start = Instant::now();
    // Each of them could use the whole rate; together they have it once.
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let function = connect(&process).function("move").unwrap();
            let within = function.with_reservation(Some(reservation.id));
            thread::spawn(move || transfer(&within, 4 * MB, 4 * MB).unwrap())
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    // The two directions sometimes take turns, and sometimes do not.
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds > 2.0 - 2.0 * BURSTS, "{seconds} s");
    assert!(seconds < 4.0 * SLOWER + 0.2, "{seconds} s");
}

#[test]
fn rates_hold_under_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = farcall()
        .args(["certificate", "server", "tls", "127.0.0.1"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let tls = folder.path().join("tls");
    let limits = "bandwidth_up = '20MB/s'\nbandwidth_down = '20MB/s'\n";
    let process = start_with(limits, &["--tls", tls.to_str().unwrap()]);
    let options = Options {
        same_host: false,
        credentials: Credentials::default().with_authorities(tls.join("authority.pem")),
        ..Options::default()
    };
    let server = Server::connect(process.address(), options).unwrap();
    let function = server.function("move").unwrap();
    let reservation = server
        .reserve(&of_bandwidth(4 * MB, 4 * MB, MINUTE))
        .unwrap();
    let within = function.with_reservation(Some(reservation.id));
    let [up, down] = transfer(&within, 4 * MB, 4 * MB).unwrap();
    assert_rate(up, 4 * MB, 4 * MB);
    assert_rate(down, 4 * MB, 4 * MB);
    // The same for all others: 16 MB/s are left.
    let [up, down] = transfer(&function, 16 * MB, 16 * MB).unwrap();
    assert_rate(up, 16 * MB, 16 * MB);
    assert_rate(down, 16 * MB, 16 * MB);
}

#[test]
fn a_transfer_goes_on_as_all_others_when_its_reservation_is_over() {
    let process = start("bandwidth_up = '20MB/s'\nbandwidth_down = '20MB/s'\n");
    let server = connect(&process);
    let function = server.function("move").unwrap();
    let second = Duration::from_secs(1);
    let reservation = server.reserve(&of_bandwidth(MB, MB, second)).unwrap();
    let within = function.with_reservation(Some(reservation.id));
    let [up, down] = transfer(&within, 30 * MB, 30 * MB).unwrap();
    assert!((0.8..10.0).contains(&up), "{up} s");
    assert!(down < 10.0, "{down} s");
    let ahead = ReservationSpec {
        start: MINUTE,
        ..of_bandwidth(MB, MB, second)
    };
    let reservation = server.reserve(&ahead).unwrap();
    let early = function.with_reservation(Some(reservation.id));
    let [up, _] = transfer(&early, 30 * MB, MB).unwrap();
    assert!(
        up < 10.0,
        "before the reservation begins, the call is like any other: {up} s"
    );
}

#[test]
fn bandwidth_that_cannot_be_reserved_is_refused_with_the_reason() {
    let process = start_with("bandwidth_up = '10MB/s'\n", &["--pes", "2"]);
    let server = connect(&process);
    let kind = |wanted: &ReservationSpec| match server.reserve(wanted) {
        Err(Error::Failed(failure)) => (failure.kind, failure.message),
        other => panic!("not refused: {other:?}"),
    };
    let (no_setting, text) = kind(&of_bandwidth(0, 1, MINUTE));
    assert_eq!(no_setting, FailureKind::NotFree);
    assert!(text.contains("limits.bandwidth_down"), "{text}");
    let (too_fast, text) = kind(&of_bandwidth(9 * MB + 1, 0, MINUTE));
    assert_eq!(too_fast, FailureKind::NotFree);
    assert!(text.contains("9000000 can be reserved"), "{text}");
    server.reserve(&of_bandwidth(5 * MB, 0, MINUTE)).unwrap();
    let (taken, text) = kind(&of_bandwidth(5 * MB, 0, MINUTE));
    assert_eq!(taken, FailureKind::NotFree);
    assert!(text.contains("earliest start"), "{text}");
    server.reserve(&of_bandwidth(4 * MB, 0, MINUTE)).unwrap();
    let known = server.reservations().unwrap();
    assert_eq!(known.iter().map(|one| one.up).sum::<u64>(), 9 * MB);
    assert_eq!(known[0].pes, 0);
    // While processor elements are taken, no time is named at which the bandwidth is refused.
    let with_element = |down| ReservationSpec {
        pes: 1,
        ..of_bandwidth(0, down, MINUTE)
    };
    while server.reserve(&with_element(0)).is_ok() {}
    let (_, text) = kind(&with_element(1));
    assert!(text.contains("limits.bandwidth_down"), "{text}");
}

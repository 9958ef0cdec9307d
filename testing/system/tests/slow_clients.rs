//! Tests clients that announce much and send or read slowly. They hold memory that others need, and
//! must give it up when somebody waits for it.

use farcall_client::{Argument, Scalar};
use farcall_system::ServerProcess;
use farcall_system::peer::{DATA, FAILURE, Peer, RESULT, copy_call, frame, part_of_data};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
Define abs(IN int n) Calls \"C\" abs(n);
";
const MIB: usize = 1 << 20;

/// Clients that have announced a call of this many bytes and the first of its data, and have sent
/// one byte of them.
fn dawdlers(server: &ServerProcess, count: usize, bytes: usize) -> Vec<TcpStream> {
    let begin = |_| {
        let mut peer = server.peer();
        let copy = peer.describe(1, "copy");
        let frame = 256 << 10;
        peer.send(&copy_call(2, copy, bytes as u64));
        peer.send(&part_of_data(2, frame, &[7]));
        peer.0.set_nonblocking(true).expect("a socket");
        peer.0
    };
    (0..count).map(begin).collect()
}

/// Sends one byte of each client at these intervals, until it is told to stop.
fn dawdle(clients: &[TcpStream], interval: Duration, stop: &AtomicBool) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() < next {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        next += interval;
        for mut client in clients {
            // The server may have closed the connection.
            let _ = client.write(&[7]);
        }
    }
}

/// Stops a thread in the end, also after a failure.
struct Stops<'s>(&'s AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `other` while these clients dawdle.
fn beside<T>(clients: &[TcpStream], interval: Duration, other: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| dawdle(clients, interval, &stop));
        other()
    })
}

#[test]
fn who_sends_slowly_gives_way_to_who_waits() {
    let config = "[limits]\nmemory = 100000000\nstalled_busy_s = 1\n";
    let server = ServerProcess::of(&[SYSTEM]).config(config).start();
    let slow = dawdlers(&server, 14, 8 * MIB);
    let mut other = server.peer();
    let copy = other.describe(1, "copy");
    let took = beside(&slow, Duration::from_millis(50), || {
        let start = Instant::now();
        other.copy(2, copy, &vec![9; 8 * MIB]);
        start.elapsed()
    });
    println!("8 MiB beside 14 slow senders: {took:?}");
    let mut told = Peer(slow.into_iter().next().expect("a client"));
    told.0.set_nonblocking(false).expect("a socket");
    let answer = told.frame();
    assert_eq!(answer.kind, FAILURE);
    let (_, text) = answer.failure();
    assert!(text.contains("limits.stalled_busy_rate"), "{text}");
    assert!(text.contains("try again"), "{text}");
}

#[test]
fn who_reads_slowly_gives_way_to_who_waits() {
    let config = "[limits]\nmemory = 120000000\nstalled_busy_s = 1\n";
    let server = ServerProcess::of(&[SYSTEM]).config(config).start();
    // More than the sockets hold.
    let bytes = 24 * MIB;
    let mut deaf = server.peer();
    let copy = deaf.describe(1, "copy");
    deaf.send(&copy_call(2, copy, bytes as u64));
    deaf.send(&frame(DATA, 2, &vec![5; bytes]));
    let mut other = server.peer();
    let copy = other.describe(1, "copy");
    // Once they begin to leave.
    assert_eq!(deaf.frame().kind, RESULT);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stops = Stops(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = std::io::Read::read(&mut deaf.0, &mut [0; 1]);
                thread::sleep(Duration::from_millis(50));
            }
        });
        other.copy(2, copy, &vec![6; 2 * bytes]);
    });
    assert!(deaf.is_closed());
}

#[test]
fn one_user_leaves_memory_to_others() {
    let config = "[limits]\nmemory = 100000000\nstalled_busy_s = 3600\n";
    let server = ServerProcess::of(&[SYSTEM]).config(config);
    let server = server.options(&["--unix", "socket"]).start();
    let slow = dawdlers(&server, 14, 8 * MIB);
    // A user of this host is another user than clients over TCP.
    let mut other = Peer::at_socket(&server.folder().join("socket"));
    let copy = other.describe(1, "copy");
    other.copy(2, copy, &vec![9; 8 * MIB]);
    drop(slow);
}

/// The time of a call without arrays that 99 of 100 calls keep.
fn p99(server: &ServerProcess, calls: usize) -> Duration {
    let client = server.connect();
    let abs = client.function("abs").expect("an interface");
    let time = |_| {
        let start = Instant::now();
        let number = &mut [Argument::Scalar(Scalar::Int(1))];
        abs.call(number).expect("a call");
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..calls).map(time).collect();
    times.sort_unstable();
    times[calls * 99 / 100]
}

/// `make soak` runs this one: its bar is a time.
#[test]
#[ignore = "takes minutes, and needs an idle machine"]
fn small_calls_stay_quick_beside_two_thousand_connections() {
    let config = "[limits]\nmemory = 12000000000\n";
    let server = ServerProcess::of(&[SYSTEM]).config(config);
    let server = server.options(&["--unix", "socket"]).start();
    const CALLS: usize = 20_000;
    p99(&server, CALLS);
    let idle = p99(&server, CALLS);
    let silent: Vec<_> = (0..1130).map(|_| server.peer()).collect();
    let begin_result = |_| {
        let mut peer = server.peer();
        let copy = peer.describe(1, "copy");
        let bytes = 24 * MIB;
        peer.send(&copy_call(2, copy, bytes as u64));
        peer.send(&frame(DATA, 2, &vec![5; bytes]));
        assert_eq!(peer.frame().kind, RESULT);
        peer
    };
    let deaf: Vec<_> = (0..70).map(begin_result).collect();
    let slow = dawdlers(&server, 800, 1 << 30);
    let [loaded, one_user, two_users] = beside(&slow, Duration::from_secs(5), || {
        let loaded = p99(&server, CALLS);
        let copy = |peer: &mut dyn FnMut()| {
            let start = Instant::now();
            peer();
            start.elapsed()
        };
        let mut other = Peer::at_socket(&server.folder().join("socket"));
        let function = other.describe(1, "copy");
        let two_users = copy(&mut || other.copy(2, function, &vec![9; 8 * MIB]));
        let mut same = server.peer();
        let function = same.describe(1, "copy");
        let one_user = copy(&mut || same.copy(2, function, &vec![9; 8 * MIB]));
        [loaded, one_user, two_users]
    });
    println!(
        "p99 of a null call: {idle:?} idle, {loaded:?} beside 800 slow senders and 70 clients that \
         do not read; an 8 MiB call: {two_users:?} for another user, {one_user:?} for the same one"
    );
    assert!(loaded < 5 * idle, "{loaded:?} instead of {idle:?}");
    drop((silent, deaf));
}

//! Many connections at once, some of which call all the time: no call fails, and the server's
//! memory does not grow. `FARCALL_SOAK_SECONDS=300` opens 2,000 connections for five minutes.

use farcall_client::{Argument, Options, Scalar, Server};
use farcall_system::{BOUND, ServerProcess, wait_until};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const COPY: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
";

/// Makes calls with arrays of all sizes up to this many bytes.
const MOST_BYTES: usize = 40_000;

#[test]
fn nothing_fails_and_nothing_grows_with_many_connections() {
    let soak = std::env::var("FARCALL_SOAK_SECONDS").ok();
    let soak = soak.map(|seconds| seconds.parse().expect("a number of seconds"));
    let (open, callers, seconds) = match soak {
        Some(seconds) => (2000, 200, seconds),
        None => (300, 30, 3),
    };
    let config = "[limits]\nconnections = 3000\nmemory = 200000000\n";
    let server = ServerProcess::of(&[COPY]).config(config).start();
    let before = descriptors(&server);
    let idle: Vec<_> = (callers..open).map(|_| server.peer()).collect();

    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let growth = thread::scope(|scope| {
        for caller in 0..callers {
            let (server, stop, calls) = (&server, &stop, &calls);
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || call(server.address(), caller, stop, calls))
                .expect("a thread");
        }
        // The server has allocated what it needs once every client has called.
        let all = 20 * callers as u64;
        wait_until("twenty calls each", || calls.load(Ordering::Relaxed) > all);
        thread::sleep(Duration::from_secs(seconds / 4));
        let before = server.resident_bytes();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(100));
        }
        let after = server.resident_bytes();
        stop.store(true, Ordering::Relaxed);
        after.saturating_sub(before)
    });
    let calls = calls.load(Ordering::Relaxed);
    println!("{calls} calls over {open} connections; the server grew by {growth} bytes");
    assert!(growth < 8 << 20, "the server grew by {growth} bytes");
    drop(idle);
    // Workers and call buffers remain for further calls.
    let kept = before + 2 * callers + 50;
    wait_until("the end of all connections", || {
        descriptors(&server) <= kept
    });
}

/// A program that begins calls and does not wait for them reads no answers while it waits.
#[test]
fn calls_that_have_ended_do_not_stay_open() {
    const CALLS: usize = 70_000;
    let server = ServerProcess::of(&[COPY]).start();
    let function = server.connect().function("copy").unwrap();
    let source = [7; 4];
    let mut results = vec![[0u8; 4]; CALLS];
    let mut begun = Vec::new();
    for (call, result) in results.iter_mut().enumerate() {
        let mut arguments = [
            Argument::Out(result),
            Argument::In(&source),
            Argument::Scalar(Scalar::Int(source.len() as i64)),
        ];
        // SAFETY: the arrays outlive the calls, which are waited for below.
        let one = unsafe { function.start(&mut arguments) };
        begun.push(one.unwrap_or_else(|error| panic!("call {call}: {error}")));
    }
    for call in begun {
        call.wait().unwrap();
    }
    assert!(results.iter().all(|result| *result == source));
}

/// A forwarded socket passes bytes, and no memory.
#[test]
fn memory_that_does_not_arrive_is_given_back() {
    const CALLS: usize = 60;
    let server = ServerProcess::of(&[COPY])
        .options(&["--unix", "socket"])
        .start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forwarded");
    let listener = UnixListener::bind(&path).unwrap();
    let to = server.socket().trim_start_matches("unix://").to_owned();
    thread::spawn(move || {
        for client in listener.incoming() {
            forward(&client.unwrap(), &UnixStream::connect(&to).unwrap());
        }
    });
    let client =
        Server::connect(&format!("unix://{}", path.display()), Options::default()).unwrap();
    let function = client.function("copy").unwrap();
    let (source, before) = (vec![7; MOST_BYTES], descriptors(&server));
    for _ in 0..CALLS {
        let mut result = vec![0; MOST_BYTES];
        let arguments = &mut [
            Argument::Out(&mut result),
            Argument::In(&source),
            Argument::Scalar(Scalar::Int(MOST_BYTES as i64)),
        ];
        function.call(arguments).unwrap();
        assert!(result == source);
    }
    let kept = before + CALLS / 2;
    wait_until("the memory", || descriptors(&server) < kept);
}

/// Passes what comes from one socket to the other, both ways.
fn forward(one: &UnixStream, other: &UnixStream) {
    for (from, to) in [(one, other), (other, one)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
}

fn descriptors(server: &ServerProcess) -> usize {
    let folder = format!("/proc/{}/fd", server.id());
    std::fs::read_dir(folder).unwrap().count()
}

/// Calls until it is told to stop.
fn call(address: &str, caller: usize, stop: &AtomicBool, calls: &AtomicU64) {
    let options = Options {
        same_host: caller.is_multiple_of(2),
        timeout: Some(BOUND),
        ..Options::default()
    };
    let server = Server::connect(address, options).expect("a connection");
    let copy = server.function("copy").expect("an interface");
    let mut bytes = 7919 * caller;
    while !stop.load(Ordering::Relaxed) {
        bytes = (bytes * 31 + 17) % MOST_BYTES;
        let sent = vec![caller as u8; bytes];
        let mut received = vec![!(caller as u8); bytes];
        let arguments = &mut [
            Argument::Out(&mut received),
            Argument::In(&sent),
            Argument::Scalar(Scalar::Int(bytes as i64)),
        ];
        copy.call(arguments).expect("a call");
        assert!(received == sent);
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

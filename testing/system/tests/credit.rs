//! Memory credit: calls wait on the client's side for memory at the server. Any number of them can
//! be in progress, none fails, and small calls continue meanwhile.

use farcall_client::{Argument, Function, Options, Pending, Scalar, wait_any};
use farcall_system::{ServerProcess, wait_until};
use std::time::{Duration, Instant};

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n)
    Repeatable \"yes\" Calls \"C\" memcpy(out, in, n);
Define abs(IN int n) Repeatable \"yes\" Calls \"C\" abs(n);
Define nap(OUT char out[n], IN long n, IN int seconds) Calls \"C\" sleep(seconds);
";
/// A call needs twice as much, and the server has memory for three of one user, who leaves a
/// quarter to others.
const BYTES: usize = 8 << 20;
const CONFIG: &str = "[limits]\nmemory = 69000000\n";

fn options() -> Options {
    Options {
        same_host: false,
        timeout: Some(Duration::from_secs(60)),
        ..Options::default()
    }
}

fn connect(server: &ServerProcess) -> farcall_client::Server {
    farcall_client::Server::connect(server.address(), options()).unwrap()
}

fn copy(function: &Function, from: &[u8], to: &mut [u8]) -> Pending {
    let arguments = &mut [
        Argument::Out(to),
        Argument::In(from),
        Argument::Scalar(Scalar::Int(from.len() as i64)),
    ];
    // SAFETY: the arrays outlive every call of this test.
    unsafe { function.start(arguments) }.unwrap()
}

fn abs(function: &Function) -> Pending {
    // SAFETY: there are no arrays.
    unsafe { function.start(&mut [Argument::Scalar(Scalar::Int(1))]) }.unwrap()
}

#[test]
fn calls_that_need_more_memory_than_there_is_wait_for_their_turn() {
    let server = ServerProcess::of(&[SYSTEM]).config(CONFIG).start();
    let clients = [connect(&server), connect(&server)];
    let small = clients[0].function("system/abs").unwrap();
    let sources: Vec<Vec<u8>> = (0..20u8).map(|value| vec![value; BYTES]).collect();
    let mut results = vec![vec![255u8; BYTES]; sources.len()];
    let pairs = sources.iter().zip(&mut results).enumerate();
    let calls: Vec<Pending> = pairs
        .map(|(index, (from, to))| {
            let function = clients[index % 2].function("system/copy").unwrap();
            copy(&function, from, to)
        })
        .collect();
    // Nobody moves the arrays of the other client meanwhile: small calls that waited for all others
    // would never end.
    for _ in 0..20 {
        small.call(&mut [Argument::Scalar(Scalar::Int(1))]).unwrap();
    }
    assert!(!calls[19].has_ended(), "somebody moves the arrays");
    for call in calls {
        call.wait().unwrap();
    }
    assert!(sources == results);
}

/// The server reads nothing from a client whose call waits for memory and sends its arguments at
/// once, so it cannot answer when the client asks whether it is there.
#[test]
fn a_client_that_waits_long_for_memory_does_not_lose_its_server() {
    const LOST_AFTER: Duration = Duration::from_secs(3);
    let server = ServerProcess::of(&[SYSTEM]).config(CONFIG).start();
    let functions = [(); 2].map(|()| {
        let options = Options {
            lost_after: Some(LOST_AFTER),
            ..options()
        };
        let client = farcall_client::Server::connect(server.address(), options).unwrap();
        client.function("system/nap").unwrap()
    });
    // Two of them have no room beside each other.
    let mut results = [(); 2].map(|()| vec![1u8; 5 * BYTES]);
    let start = Instant::now();
    let pairs = functions.iter().zip(&mut results).zip([7, 0]);
    let calls = pairs.map(|((function, result), seconds)| {
        let arguments = &mut [
            Argument::Out(result),
            Argument::Scalar(Scalar::Int(5 * BYTES as i64)),
            Argument::Scalar(Scalar::Int(seconds)),
        ];
        // SAFETY: the arrays outlive the calls.
        let call = unsafe { function.start(arguments) }.unwrap();
        wait_until("the running call", || running(&server));
        call
    });
    let calls: Vec<Pending> = calls.collect();
    // Who waits for a call asks whether its server is there.
    let mut left: Vec<&Pending> = calls.iter().collect();
    while !left.is_empty() {
        wait_any(&left, None).unwrap();
        left.retain(|call| !call.has_ended());
    }
    for call in calls {
        call.wait().unwrap();
    }
    assert!(start.elapsed() > 2 * LOST_AFTER, "the second call waits");
}

/// Whether a call runs.
fn running(server: &ServerProcess) -> bool {
    let status = connect(server).status().unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    status["jobs"]["running"] == 1
}

#[test]
fn who_waits_for_memory_may_give_up() {
    let server = ServerProcess::of(&[SYSTEM]).config(CONFIG).start();
    let client = connect(&server);
    let function = client.function("system/copy").unwrap();
    let source = vec![7u8; BYTES];
    let mut results = vec![vec![0u8; BYTES]; 12];
    let mut calls: Vec<Pending> = results
        .iter_mut()
        .map(|to| copy(&function, &source, to))
        .collect();
    for index in [11, 8, 5, 3, 2, 0] {
        calls.remove(index).cancel();
    }
    for call in calls {
        call.wait().unwrap();
    }
    let kept = results.iter().filter(|result| **result == source).count();
    assert!(kept >= 6, "{kept}");
    let mut last = vec![0u8; BYTES];
    copy(&function, &source, &mut last).wait().unwrap();
    assert!(last == source);
}

#[test]
fn any_number_of_calls_is_under_way() {
    // 0 means that there is no limit.
    for most in [40, 0] {
        let server = ServerProcess::of(&[SYSTEM])
            .config(&format!("[limits]\ncalls_per_connection = {most}\n"))
            .start();
        let client = connect(&server);
        let function = client.function("system/abs").unwrap();
        let calls: Vec<Pending> = (0..5000).map(|_| abs(&function)).collect();
        wait_until("the end of the last call", || calls[4999].is_done());
        for call in calls {
            call.wait().unwrap();
        }
    }
}

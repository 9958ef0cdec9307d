//! The memory of calls that wait on the disk for their turn. `FARCALL_SOAK_SUBMISSIONS=1000000`
//! submits a million calls.

use farcall_system::ServerProcess;
use farcall_system::peer::{DATA, Peer, SUBMITTED, call, frame, submission};
use std::thread;

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n)
    \"Copies n bytes from one place to another, as it has always done, and returns nothing else.\"
    Calls \"C\" memcpy(out, in, n);
Define nap(IN int us) Calls \"C\" usleep(us);
";
const CONFIG: &str = "[jobs]\nper_user = 2000000\n[queue]\npes = 1\n[workers]\ncount = 1\n";
/// The features of durable calls.
const FEATURES: u16 = 1 << 8 | 1 << 9;
/// Bytes of the argument of a call.
const BYTES: usize = 64;
/// Connections, and calls that each one submits at once.
const CONNECTIONS: usize = 8;
const AT_ONCE: usize = 100;

/// Submits this many calls over one connection.
fn submit(server: &ServerProcess, count: usize) {
    let mut peer = server.peer_with(FEATURES);
    let copy = peer.describe(1, "copy");
    let mut request = 2;
    for _ in 0..count / AT_ONCE {
        let calls = request..request + AT_ONCE as u64;
        request = calls.end;
        let call = |id| {
            [
                submission(id, copy, BYTES as u64),
                frame(DATA, id, &[7; BYTES]),
            ]
        };
        let bytes: Vec<u8> = calls.flat_map(call).flatten().collect();
        peer.send(&bytes);
        for _ in 0..AT_ONCE {
            let answer = peer.frame();
            assert_eq!(answer.kind, SUBMITTED, "{answer:?}");
        }
    }
}

#[test]
fn a_call_that_waits_on_the_disk_costs_little_memory() {
    let count = std::env::var("FARCALL_SOAK_SUBMISSIONS").ok();
    let count = count.map_or(20_000, |count| count.parse().expect("a number of calls"));
    let server = ServerProcess::of(&[SYSTEM]).config(CONFIG);
    let server = server.options(&["--state", "state"]).start();
    // The only processor element is taken.
    let mut nap: Peer = server.peer();
    let function = nap.describe(1, "nap");
    nap.send(&call(2, function, &[0x81, 0x1a, 0x7f, 0, 0, 0], 0));
    let submit_all = |count: usize| {
        thread::scope(|scope| {
            for _ in 0..CONNECTIONS {
                scope.spawn(|| submit(&server, count / CONNECTIONS));
            }
        });
    };
    submit_all(CONNECTIONS * AT_ONCE * 3);
    let before = server.resident_bytes();
    submit_all(count);
    let grown = server.resident_bytes().saturating_sub(before);
    let each = grown / count as u64;
    println!("{count} durable calls: {each} bytes of memory each, {grown} in all");
    assert!(each < 1500, "{each} bytes of memory for each call");
}

//! Tests of a real server with clients that are strange, broken, slow, gone, or of the other byte
//! order. After each of them, the server must still serve others.

mod logged;

use farcall_system::peer::{
    CANCEL, DATA, DESCRIBE, GOODBYE, HELLO, INTERFACE, Peer, RESULT, SHARE, SHARED, SUBMITTED,
    UNSHARE, big_endian_data, call, copy_call, copy_call_with, frame, hello, part_of_data, place,
    placed_call, submission, text, uint,
};
use farcall_system::{BOUND, ServerProcess, wait_until};
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

const LIBC: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls \"C\" memcpy(out, in, n);
Define nap(IN int us) Calls \"C\" usleep(us);
";

const LAPACK: &str = "Module lapack;
Library \"libopenblas.so.0\";
Define dgesv(IN int n, IN int nrhs, INOUT double a[n][lda:n], IN int lda, OUT int ipiv[n],
    INOUT double b[nrhs][ldb:n], IN int ldb, OUT int *info)
    Calls \"FORTRAN\" dgesv(n, nrhs, a, lda, ipiv, b, ldb, info);
";

fn memory(mib: usize) -> String {
    format!("[limits]\nmemory = {}\n[workers]\ncount = 2\n", mib * MIB)
}

/// Checks that the server still serves others.
fn serves(server: &ServerProcess) {
    let mut peer = server.peer();
    let copy = peer.describe(1, "copy");
    peer.copy(2, copy, b"still here");
}

#[test]
fn a_machine_of_the_other_byte_order_gets_its_solution() {
    let server = ServerProcess::of(&[LAPACK]).start();
    let mut peer = server.peer();
    let dgesv = peer.describe(1, "dgesv");
    let scalars = [0x88, 2, 1, 0xf6, 3, 0xf6, 0xf6, 2, 0xf6];
    let arguments = [2.0f64, 1.0, 1.0, 3.0, 4.0, 7.0];
    let big: Vec<u8> = arguments.iter().flat_map(|v| v.to_be_bytes()).collect();
    let little: Vec<u8> = arguments.iter().flat_map(|v| v.to_le_bytes()).collect();
    for (request, data) in [(2, &little), (3, &big), (4, &little), (5, &big)] {
        peer.send(&call(request, dgesv, &scalars, 48));
        // Cut in the middle of elements.
        for part in data.chunks(if request < 4 { 48 } else { 5 }) {
            match data == &big {
                true => peer.send(&big_endian_data(request, part)),
                false => peer.send(&frame(DATA, request, part)),
            }
        }
        let result = peer.result(request);
        let double = |at: usize| f64::from_ne_bytes(result[at..at + 8].try_into().unwrap());
        let int = |at: usize| i32::from_ne_bytes(result[at..at + 4].try_into().unwrap());
        assert_eq!(
            [double(0), double(8), double(16), double(24)],
            [2.0, 0.5, 1.0, 2.5]
        );
        assert_eq!([int(32), int(36)], [1, 2]);
        assert_eq!([double(40), double(48)], [1.0, 2.0]);
        assert_eq!((int(56), result.len()), (0, 60));
    }
}

#[test]
fn strangers_on_the_port_are_closed_without_a_word() {
    let server = ServerProcess::of(&[LIBC]).start();
    let random: Vec<u8> = (0..5000u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 24) as u8)
        .collect();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        &random,
        &[0; 64],
        &frame(HELLO, 0, b"\x81\x67unknown"),
        &frame(DESCRIBE, 1, b"\x81\x60"),
    ] {
        let mut stranger = server.stranger();
        let _ = stranger.write_all(bytes);
        let mut said = Vec::new();
        let _ = stranger.read_to_end(&mut said);
        assert_eq!(said, b"");
    }
    serves(&server);
}

#[test]
fn a_client_of_another_version_is_told() {
    let server = ServerProcess::of(&[LIBC]).start();
    let mut peer = Peer(server.stranger());
    peer.send(&frame(HELLO, 0, &hello(2, 9)));
    let goodbye = peer.frame();
    assert_eq!(goodbye.kind, GOODBYE);
    assert!(String::from_utf8_lossy(&goodbye.payload).contains("no protocol version in common"));
    assert!(peer.is_closed());
}

#[test]
fn half_a_greeting_is_not_waited_for() {
    let server = ServerProcess::of(&[LIBC])
        .config("[limits]\ngreeting_s = 1.0\n")
        .start();
    let mut peer = Peer(server.stranger());
    let greeting = frame(HELLO, 0, &hello(1, 1));
    peer.send(&greeting[..20]);
    serves(&server);
    assert!(peer.is_closed());
}

#[test]
fn broken_requests_end_the_connection_with_the_reason() {
    let server = ServerProcess::of(&[LIBC])
        .config("[limits]\ncalls_per_connection = 2\n")
        .start();
    let mut peer = server.peer();
    let nap = peer.describe(1, "nap");
    let napping = |request| call(request, nap, &[0x81, 0x1a, 0, 0x98, 0x96, 0x80], 0);
    let wrong = [
        frame(HELLO, 0, &hello(1, 1)),
        frame(INTERFACE, 1, b""),
        frame(99, 1, b""),
        frame(DATA, 7, b"data of no call"),
        frame(DESCRIBE, 0, &[&[0x81], &text("nap")[..]].concat()),
        frame(DESCRIBE, 1, b"\xff"),
        vec![
            0xff, 0xff, 0xff, 0x7f, DESCRIBE, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        ],
        [napping(1), napping(1)].concat(),
        [
            napping(1),
            frame(DESCRIBE, 1, &[&[0x81], &text("nap")[..]].concat()),
        ]
        .concat(),
        [napping(1), napping(2), napping(3)].concat(),
    ];
    for bytes in wrong {
        let mut peer = server.peer();
        peer.send(&bytes);
        let mut goodbye = peer.frame();
        // Calls that have begun fail first.
        while goodbye.kind == FAILURE {
            goodbye = peer.frame();
        }
        assert_eq!(goodbye.kind, GOODBYE, "{goodbye:?} after {bytes:?}");
        assert!(goodbye.payload.len() > 10);
        assert!(peer.is_closed());
    }
    serves(&server);
}

#[test]
fn a_client_that_leaves_in_the_middle_of_its_arguments_leaves_nothing_behind() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(20)).start();
    for _ in 0..5 {
        let mut peer = server.peer();
        let copy = peer.describe(1, "copy");
        peer.send(&copy_call(2, copy, 8 * MIB as u64));
        peer.send(&part_of_data(2, 8 * MIB, &vec![7; 3 * MIB]));
    }
    let mut peer = server.peer();
    let copy = peer.describe(1, "copy");
    peer.copy(2, copy, &vec![7; 8 * MIB]);
}

#[test]
fn a_client_that_does_not_read_its_result_holds_up_nobody_and_may_leave() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(400)).start();
    for _ in 0..3 {
        let mut slow = server.peer();
        let copy = slow.describe(1, "copy");
        let data = vec![5; 64 * MIB];
        slow.send(&copy_call(2, copy, data.len() as u64));
        slow.send(&frame(DATA, 2, &data));
        assert_eq!(slow.frame().kind, RESULT);
        serves(&server);
        drop(slow);
        serves(&server);
    }
    let mut slow = server.peer();
    let copy = slow.describe(1, "copy");
    slow.copy(2, copy, &vec![6; 64 * MIB]);
}

#[test]
fn a_client_that_asks_and_never_reads_is_not_read_either() {
    let server = ServerProcess::of(&[LIBC]).start();
    let mut peer = server.peer();
    peer.0
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let question = frame(DESCRIBE, 1, &[&[0x81], &text("copy")[..]].concat());
    let many = question.repeat(10_000);
    let mut sent = 0;
    // All socket buffers on the path and 1 MiB of answers hold less than this.
    while sent < 64 * MIB {
        match peer.0.write(&many[sent % question.len()..]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    assert!(sent < 64 * MIB, "the server has read everything");
    serves(&server);
    // The answers are still there when the client reads them.
    for _ in 0..sent / question.len() {
        assert_eq!(peer.frame().kind, INTERFACE);
    }
    peer.send(&question[sent % question.len()..]);
    assert_eq!(peer.frame().kind, INTERFACE);
}

#[test]
fn one_connection_too_many_is_told_so() {
    let server = ServerProcess::of(&[LIBC])
        .config("[limits]\nconnections = 2\n")
        .start();
    let first = server.peer();
    let _second = server.peer();
    let mut third = Peer(server.stranger());
    let goodbye = third.frame();
    assert_eq!(goodbye.kind, GOODBYE);
    assert!(String::from_utf8_lossy(&goodbye.payload).contains("full"));
    assert!(third.is_closed());
    drop(first);
    wait_until("room for another connection", || is_admitted(&server));
}

/// Whether a client can connect.
fn is_admitted(server: &ServerProcess) -> bool {
    let mut peer = Peer(server.stranger());
    let _ = peer.0.write_all(&frame(HELLO, 0, &hello(1, 1)));
    peer.try_frame().is_ok_and(|frame| frame.kind == HELLO)
}

#[test]
fn a_server_out_of_descriptors_recovers() {
    let server = ServerProcess::of(&[LIBC]).open_files(40).start();
    let many: Vec<_> = (0..60).map(|_| server.stranger()).collect();
    // The server lets it wait, or tells it that there are too many.
    let mut peer = Peer(server.stranger());
    peer.send(&frame(HELLO, 0, &hello(1, 1)));
    drop(many);
    let answer = peer.frame().kind;
    assert!(answer == HELLO || answer == GOODBYE, "{answer}");
    wait_until("room for a connection", || is_admitted(&server));
    serves(&server);
}

#[test]
fn oversized_announcements_take_no_memory() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(16)).start();
    let mut peer = server.peer();
    let copy = peer.describe(1, "copy");
    let cases = [
        (1u64 << 62, 3),
        (1 << 61, 4),
        (i64::MAX as u64, 3),
        (17 << 20, 4),
    ];
    for (request, (bytes, kind)) in (2..).zip(cases) {
        peer.send(&copy_call(request, copy, bytes));
        assert_eq!(peer.frame().failure().0, kind, "{bytes} bytes");
        peer.send(&frame(CANCEL, request, b""));
    }
    // The announced and the required size differ, so the server discards the data.
    peer.send(&copy_call_with(10, copy, 8, 1 << 62));
    assert_eq!(peer.frame().failure().0, 3);
    peer.send(&frame(DATA, 10, &[1; 100_000]));
    peer.send(&frame(CANCEL, 10, b""));
    peer.copy(11, copy, b"goes on");
}

#[test]
fn a_function_number_from_before_a_restart_is_stale() {
    let numbers = [0, 1].map(|_| {
        let server = ServerProcess::of(&[LIBC]).start();
        server.peer().describe(1, "copy")
    });
    let server = ServerProcess::of(&[LIBC]).start();
    let mut peer = server.peer();
    for (request, number) in (1..).zip([numbers[0], numbers[1], 0, u64::MAX]) {
        peer.send(&copy_call(request, number, 4));
        assert_eq!(peer.frame().failure().0, 2);
        peer.send(&frame(DATA, request, b"data"));
    }
    let copy = peer.describe(9, "copy");
    peer.copy(10, copy, b"data");
}

#[test]
fn a_server_that_is_told_to_stop_tells_its_clients() {
    let mut server = ServerProcess::of(&[LIBC]).config(&memory(16)).start();
    let mut running = server.peer();
    let nap = running.describe(1, "nap");
    running.send(&call(2, nap, &[0x81, 0x1a, 0x3b, 0x9a, 0xca, 0x00], 0));
    let mut sending = server.peer();
    let copy = sending.describe(1, "copy");
    sending.send(&copy_call(2, copy, 6 * MIB as u64));
    sending.send(&part_of_data(2, 6 * MIB, &vec![1; MIB]));
    let mut waiting = server.peer();
    waiting.send(&copy_call(1, copy, 6 * MIB as u64));
    let mut idle = server.peer();
    // When a later request is answered, the server has seen all earlier bytes.
    let mut later = server.peer();
    later.copy(1, copy, b"");
    let start = Instant::now();
    server.terminate();
    for (peer, request) in [(&mut running, 2), (&mut sending, 2), (&mut waiting, 1)] {
        let failure = peer.frame();
        assert_eq!((failure.failure().0, failure.call), (10, request));
        assert_eq!(peer.frame().kind, GOODBYE);
    }
    assert_eq!(idle.frame().kind, GOODBYE);
    assert!(server.ended());
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn calls_that_do_not_fit_together_run_one_after_the_other() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(48)).start();
    let data = vec![9; 16 * MIB];
    let mut first = server.peer();
    let copy = first.describe(1, "copy");
    first.send(&copy_call(2, copy, data.len() as u64));
    first.send(&part_of_data(2, data.len(), &data[..MIB]));
    let second = {
        let mut second = server.peer();
        let data = data.clone();
        std::thread::spawn(move || second.copy(1, copy, &data))
    };
    // Small calls wait behind it.
    let third = {
        let mut third = server.peer();
        std::thread::spawn(move || third.copy(1, copy, b"small"))
    };
    first.send(&data[MIB..]);
    assert!(first.result(2) == data);
    second.join().unwrap();
    third.join().unwrap();
}

#[test]
fn calls_of_one_program_that_do_not_fit_together_all_succeed() {
    use farcall_client::{Argument, Options, Scalar};
    let server = ServerProcess::of(&[LIBC]).config(&memory(48)).start();
    let client = farcall_client::Server::connect(server.address(), Options::default()).unwrap();
    let copy = client.function("copy").unwrap();
    std::thread::scope(|scope| {
        for value in 1..5 {
            let copy = &copy;
            scope.spawn(move || {
                let (data, mut out) = (vec![value; 16 * MIB], vec![0; 16 * MIB]);
                let length = Argument::Scalar(Scalar::Int(data.len() as i64));
                let arguments = &mut [Argument::Out(&mut out), Argument::In(&data), length];
                copy.call(arguments).unwrap();
                assert!(out == data);
            });
        }
    });
}

#[test]
fn two_calls_of_one_connection_never_wait_for_each_other() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(48)).start();
    let mut peer = server.peer();
    let copy = peer.describe(1, "copy");
    let data = vec![9; 16 * MIB];
    peer.send(&copy_call(2, copy, data.len() as u64));
    peer.send(&copy_call(3, copy, data.len() as u64));
    let (kind, text) = peer.frame().failure();
    assert_eq!(kind, 5, "{text}");
    peer.send(&frame(DATA, 3, &data[..MIB]));
    peer.send(&frame(CANCEL, 3, b""));
    peer.send(&frame(DATA, 2, &data));
    assert!(peer.result(2) == data);
    peer.copy(4, copy, &data);
}

#[test]
fn a_call_that_is_given_up_ends_at_once() {
    let server = ServerProcess::of(&[LIBC])
        .config("[workers]\ncount = 1\n")
        .start();
    let mut peer = server.peer();
    let nap = peer.describe(1, "nap");
    let copy = peer.describe(2, "copy");
    let napping = |request| call(request, nap, &[0x81, 0x1a, 0x3b, 0x9a, 0xca, 0x00], 0);
    let start = Instant::now();
    for request in 3..6 {
        // One call runs, one waits for the worker.
        peer.send(&napping(2 * request));
        peer.send(&napping(2 * request + 1));
        peer.send(&frame(CANCEL, 2 * request + 1, b""));
        assert_eq!(peer.frame().failure().0, 9);
        peer.send(&frame(CANCEL, 2 * request, b""));
        assert_eq!(peer.frame().failure().0, 9);
    }
    peer.copy(20, copy, b"goes on");
    assert!(start.elapsed() < BOUND);
}

#[test]
fn a_library_that_is_gone_fails_its_calls_only() {
    let own = farcall_system::server::folder();
    let folder = own.path();
    let (source, library) = (folder.join("shim.c"), folder.join("libshim.so"));
    let text =
        "#include <stdlib.h>\nvoid triple(int n, int *m) { if (n < 0) abort(); *m = 3 * n; }";
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let made = compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(made.unwrap().success());
    let idl = format!(
        "Module shim;\nLibrary \"{}\";\nDefine triple(IN int n, OUT int *m) Calls \"C\" \
         triple(n, m);\n",
        library.display()
    );
    let server = ServerProcess::of(&[&idl, LIBC]).start();
    let mut peer = server.peer();
    let triple = peer.describe(1, "triple");
    let arguments = |n: u8| [0x82, n, 0xf6];
    peer.send(&call(2, triple, &arguments(5), 0));
    assert_eq!(peer.result(2), 15i32.to_ne_bytes());
    let hidden = folder.join("hidden.so");
    std::fs::rename(&library, &hidden).unwrap();
    // -1 ends the worker; the next one cannot start.
    peer.send(&call(3, triple, &arguments(0x20), 0));
    assert_eq!(peer.frame().failure().0, 6);
    for request in 4..7 {
        peer.send(&call(request, triple, &arguments(5), 0));
        let (kind, text) = peer.frame().failure();
        assert_eq!(kind, 11);
        assert!(
            text.contains("no worker") && text.contains("libshim"),
            "{text}"
        );
    }
    serves(&server);
    std::fs::rename(&hidden, &library).unwrap();
    peer.send(&call(7, triple, &arguments(6), 0));
    assert_eq!(peer.result(7), 18i32.to_ne_bytes());
}

fn share(request: u64, bytes: u64) -> Vec<u8> {
    frame(SHARE, request, &[&[0x81], &uint(bytes)[..]].concat())
}

#[test]
fn shared_memory_is_reached_only_where_it_was_given() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(64));
    let server = server.options(&["--unix", "socket"]).start();
    let path = server.folder().join("socket");
    let mut peer = Peer::at_socket(&path);
    let mut other = Peer::at_socket(&path);
    let copy = peer.describe(1, "copy");
    peer.send(&share(2, 8192));
    assert_eq!(peer.frame().kind, SHARED);
    other.send(&share(3, 8192));
    assert_eq!(other.frame().kind, SHARED);

    let good = [&[0x82], &place(2, 0)[..], &place(2, 4096)].concat();
    peer.send(&placed_call(4, copy, 4096, &good));
    assert!(peer.result(4).is_empty());

    const NULL: &[u8] = &[0xf6];
    for (request, n, places) in [
        (10, 4096, [place(3, 0), place(2, 0)]),
        (11, 4096, [place(2, 4097), place(2, 0)]),
        (12, 4096, [place(2, u64::MAX), place(2, 0)]),
        (13, 8193, [place(2, 0), place(2, 0)]),
        (14, 1 << 62, [place(2, 0), place(2, 0)]),
        (15, 4096, [place(2, 0), NULL.to_vec()]),
        (16, 4096, [place(99, 0), place(2, 0)]),
    ] {
        let places = [&[0x82], &places[0][..], &places[1]].concat();
        peer.send(&placed_call(request, copy, n, &places));
        let (kind, text) = peer.frame().failure();
        assert_eq!(kind, 3, "{request}: {text}");
    }
    let many = [&[0x83], NULL, NULL, NULL].concat();
    peer.send(&placed_call(20, copy, 0, &many));
    assert_eq!(peer.frame().failure().0, 3);

    peer.send(&frame(UNSHARE, 2, &[]));
    peer.send(&placed_call(21, copy, 4096, &good));
    assert_eq!(peer.frame().failure().0, 3);

    // Half of the server's memory, and at most 200 segments.
    for (request, bytes, kind) in [(30, 33 << 20, 4), (31, u64::MAX, 4), (32, 31 << 20, 0)] {
        peer.send(&share(request, bytes));
        match kind {
            0 => assert_eq!(peer.frame().kind, SHARED),
            kind => assert_eq!(peer.frame().failure().0, kind),
        }
    }
    other.send(&share(33, 2 << 20));
    assert_eq!(other.frame().failure().0, 5);
    drop(peer);
    for request in 100..300 {
        wait_until("memory", || {
            other.send(&share(1000 * request, 1));
            other.frame().kind == SHARED
        });
        if request == 298 {
            break;
        }
    }
    other.send(&share(7, 1));
    let (kind, text) = other.frame().failure();
    assert!(kind == 5 && text.contains("200 pieces"), "{text}");
    serves(&server);
}

#[test]
fn shared_memory_is_not_for_strangers_to_the_feature() {
    let server = ServerProcess::of(&[LIBC]).start();
    let mut peer = server.peer();
    peer.send(&share(1, 4096));
    assert_eq!(peer.frame().kind, GOODBYE);
    assert!(peer.is_closed());
    serves(&server);
}

/// Frame kinds and feature bits of durable calls.
const LIST_JOBS: u8 = 38;
const JOBS: u8 = 39;
const PUT: u8 = 40;
const FAILURE: u8 = 10;
const KEEPS: u16 = 1 << 8 | 1 << 9;

#[test]
fn a_submission_that_breaks_off_is_never_run() {
    let server = ServerProcess::of(&[LIBC])
        .options(&["--state", "state"])
        .start();
    let state = server.state();
    let length = 100_000;
    let data = vec![7; length as usize];
    for cut in [0, 1, length as usize - 1] {
        let mut peer = server.peer_with(KEEPS);
        let copy = peer.describe(1, "copy");
        peer.send(&submission(2, copy, length));
        peer.send(&part_of_data(2, length as usize, &data[..cut]));
    }
    // One call that arrives whole, and one that is cancelled when half of it has arrived.
    let mut peer = server.peer_with(KEEPS);
    let copy = peer.describe(1, "copy");
    peer.send(&submission(2, copy, length));
    peer.send(&frame(DATA, 2, &data[..500]));
    peer.send(&frame(CANCEL, 2, &[]));
    assert_eq!(peer.frame().kind, FAILURE);
    peer.send(&submission(3, copy, length));
    peer.send(&frame(DATA, 3, &data));
    assert_eq!(peer.frame().kind, SUBMITTED);
    let files = || std::fs::read_dir(state.join("arrays")).unwrap().count();
    wait_until("the result alone is on the disk", || files() == 1);
    peer.send(&frame(LIST_JOBS, 4, &[0x81, 0x00]));
    let jobs = peer.frame();
    assert_eq!(
        (jobs.kind, &jobs.payload[..2]),
        (JOBS, &[0x81, 0x81][..]),
        "one call"
    );
    serves(&server);
}

#[test]
fn arrays_of_senseless_form_are_refused_before_memory_is_taken() {
    let server = ServerProcess::of(&[LIBC]).config(&memory(64)).start();
    let mut peer = server.peer_with(KEEPS);
    let put = |request, element: &str, shape: &[u64], bytes: u64| {
        let mut lengths = vec![0x98, shape.len() as u8];
        shape
            .iter()
            .for_each(|length| lengths.extend(uint(*length)));
        let form = [&[0x83][..], &text(element), &lengths, &[0xf5]].concat();
        frame(
            PUT,
            request,
            &[&[0x83][..], &form, &uint(bytes), &[0xf4]].concat(),
        )
    };
    let senseless: [(&str, &[u64], u64); 7] = [
        ("double", &[u64::MAX, u64::MAX], 0),
        ("double", &[1 << 61], 0),
        ("char", &[1 << 40], 0),
        ("char", &[1 << 40], 1 << 40),
        ("string", &[1], 0),
        ("nothing", &[], 0),
        ("double", &[1], 7),
    ];
    for (request, (element, shape, bytes)) in (1..).zip(senseless) {
        peer.send(&put(request, element, shape, bytes));
        let answer = peer.frame();
        assert_eq!(
            (answer.kind, answer.call),
            (FAILURE, request),
            "{element} {shape:?}"
        );
    }
    serves(&server);
}

//! Tests the server's log about clients that misbehave. Each such client causes one line, of
//! bounded length.

use super::{LIBC, MIB, memory, serves};
use farcall_system::peer::{DATA, HELLO, Peer, RESULT, copy_call, frame, hello, part_of_data};
use farcall_system::{ServerProcess, farcall, wait_until};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

/// Waits for this one warning, and checks that no other follows while other clients are served.
fn warns_once(server: &ServerProcess, before: usize, expected: &str) {
    wait_until(expected, || server.log().len() > before);
    serves(server);
    let warnings = &server.log()[before..];
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(warnings[0].contains(" WARN "), "{warnings:?}");
    assert!(warnings[0].contains(expected), "{warnings:?}");
    assert!(warnings[0].len() < 300, "{warnings:?}");
}

#[test]
fn a_slow_reader_is_one_line() {
    let config = format!(
        "[limits]\nstalled_s = 1.0\n{}",
        &memory(400)["[limits]\n".len()..]
    );
    let server = ServerProcess::of(&[LIBC])
        .config(&config)
        .keep_log()
        .start();
    let mut slow = server.peer();
    let copy = slow.describe(1, "copy");
    slow.send(&copy_call(2, copy, 64 * MIB as u64));
    slow.send(&frame(DATA, 2, &vec![5; 64 * MIB]));
    assert_eq!(slow.frame().kind, RESULT);
    warns_once(&server, 0, "the client has not read results for 1 s");
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_its_arguments_is_one_line() {
    let server = ServerProcess::of(&[LIBC])
        .config(&memory(64))
        .keep_log()
        .start();
    for before in 0..3 {
        let mut peer = server.peer();
        let copy = peer.describe(1, "copy");
        peer.send(&copy_call(2, copy, 8 * MIB as u64));
        peer.send(&part_of_data(2, 8 * MIB, &vec![7; 3 * MIB]));
        drop(peer);
        warns_once(&server, before, "disconnected during 1 call");
    }
    // A client that disconnects without active calls is not worth a warning.
    drop(server.peer());
    serves(&server);
    assert_eq!(server.log().len(), 3);
}

#[test]
fn garbage_is_one_line() {
    let server = ServerProcess::of(&[LIBC]).keep_log().start();
    let random: Vec<u8> = (0..50_000u32)
        .map(|i| (i.wrapping_mul(2654435761) >> 24) as u8)
        .collect();
    let greeted = [frame(HELLO, 0, &hello(1, 1)), frame(99, 1, &random[..1000])].concat();
    for (before, (bytes, expected)) in [
        (
            &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
            "connection closed: ",
        ),
        (&random, "connection closed: "),
        (&[0; 4096], "connection closed: "),
        (&greeted, "connection closed: "),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stranger = server.stranger();
        let _ = stranger.write_all(bytes);
        let _ = stranger.read_to_end(&mut Vec::new());
        warns_once(&server, before, expected);
    }
}

#[test]
fn half_a_greeting_is_one_line() {
    let config = "[limits]\ngreeting_s = 1.0\n";
    let server = ServerProcess::of(&[LIBC]).config(config).keep_log().start();
    let mut peer = Peer(server.stranger());
    peer.send(&frame(HELLO, 0, &hello(1, 1))[..20]);
    warns_once(&server, 0, "no greeting");
}

/// Makes certificates in a folder.
fn certificates(folder: &Path) {
    for words in [["server", "127.0.0.1"], ["client", "alice"]] {
        let [kind, host] = words;
        let mut command = farcall();
        command.args(["certificate", kind, "tls", host]);
        let made = command.current_dir(folder).output().unwrap();
        assert!(made.status.success(), "{made:?}");
    }
}

#[test]
fn a_wrong_certificate_is_one_line() {
    let folders = [(); 2].map(|()| farcall_system::server::folder());
    let [ours, theirs] = folders.each_ref().map(TempDir::path);
    certificates(ours);
    certificates(theirs);
    let tls = ours.join("tls");
    let authority = tls.join("authority.pem");
    let [tls, authority] = [&tls, &authority].map(|path| path.to_str().unwrap());
    let server = ServerProcess::of(&[LIBC]).options(&["--tls", tls, "--tls-clients", authority]);
    let server = server.keep_log().start();
    let list = |authority: &Path, client: &Path| -> Output {
        farcall()
            .args(["ls", &format!("farcalls://{}", server.host_and_port())])
            .env("FARCALL_CA", authority.join("tls/authority.pem"))
            .env("FARCALL_CERT", client.join("tls/alice.pem"))
            .env("FARCALL_KEY", client.join("tls/alice.key"))
            .output()
            .unwrap()
    };
    let expect_one = |before: usize, authority, client| {
        assert_eq!(list(authority, client).status.code(), Some(1));
        wait_until("a warning", || server.log().len() > before);
        // A client with the right token is admitted, and no other line is there by then.
        assert!(list(ours, ours).status.success());
        let warnings = &server.log()[before..];
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(warnings[0].contains("connection closed: "), "{warnings:?}");
        assert!(warnings[0].len() < 300, "{warnings:?}");
    };
    // A client that the server does not trust, and one that does not trust the server.
    expect_one(0, ours, theirs);
    expect_one(1, theirs, ours);
}

//! The golden bytes in `testing/conformance/golden`: recorded conversations, one file each.
//!
//! Both ends are driven by the same little programs: against each other the bytes must be those of
//! the file, and each end alone must answer the recorded bytes of the other with the recorded
//! bytes, however they are cut. `FARCALL_GOLDEN=write` writes the files, and the fuzz targets'
//! seeds from them, instead of comparing.

mod cases;
mod directory;
mod players;
mod text;

use cases::Case;
use farcall_rpc_proto::{FailureKind, HEADER_BYTES, Header, Kind};
use players::{Client, Server};
use std::fs;
use std::path::{Path, PathBuf};
use text::{Frame, parse, render};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn writes() -> bool {
    std::env::var_os("FARCALL_GOLDEN").is_some_and(|value| value == "write")
}

/// Compares a file with what it should be, or writes it.
fn check(path: &Path, expected: &[u8]) {
    if writes() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        return fs::write(path, expected).unwrap();
    }
    let found = fs::read(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} differs from what the code does now:\n{}",
        path.display(),
        String::from_utf8_lossy(expected)
    );
}

/// Lets both ends talk and returns what they said, in turns.
fn record(case: &Case) -> Vec<Vec<Frame>> {
    let mut client = Client::new(case);
    let mut server = Server::new(case);
    let mut turns = vec![Frame::cut(true, &client.start())];
    loop {
        let said = bytes(turns.last().unwrap());
        let from_client = turns.len() % 2 == 0;
        let answer = match from_client {
            true => client.input(&said),
            false => server.input(&said),
        };
        if answer.is_empty() {
            client.check();
            server.check();
            return turns;
        }
        turns.push(Frame::cut(from_client, &answer));
    }
}

fn bytes(turn: &[Frame]) -> Vec<u8> {
    turn.iter().flat_map(|frame| frame.bytes.clone()).collect()
}

fn golden(case: &Case) -> PathBuf {
    let file = format!("{}.txt", case.name);
    root().join("testing/conformance/golden").join(file)
}

/// The recorded conversation, in turns.
fn recorded(case: &Case) -> Vec<Vec<Frame>> {
    let frames = parse(&fs::read_to_string(golden(case)).unwrap());
    let mut turns: Vec<Vec<Frame>> = Vec::new();
    for frame in frames {
        match turns.last_mut() {
            Some(turn) if turn[0].from_client == frame.from_client => turn.push(frame),
            _ => turns.push(vec![frame]),
        }
    }
    turns
}

fn cut(bytes: &[u8], size: usize, mut input: impl FnMut(&[u8]) -> Vec<u8>) -> Vec<u8> {
    bytes.chunks(size).flat_map(&mut input).collect()
}

#[test]
fn the_code_writes_the_golden_bytes() {
    for case in cases::all() {
        let frames: Vec<Frame> = record(&case).into_iter().flatten().collect();
        check(&golden(&case), render(&case, &frames).as_bytes());
        assert_eq!(parse(&render(&case, &frames)), frames);
    }
}

#[test]
fn a_server_answers_the_recorded_client() {
    for case in cases::all() {
        for size in [1, 7, 1000] {
            let mut server = Server::new(&case);
            let turns = recorded(&case);
            for pair in turns.chunks(2) {
                let answer = cut(&bytes(&pair[0]), size, |part| server.input(part));
                assert_eq!(
                    answer,
                    bytes(pair.get(1).map_or(&[], |turn| turn)),
                    "{}",
                    case.name
                );
            }
            server.check();
        }
    }
}

#[test]
fn a_client_understands_the_recorded_server() {
    for case in cases::all() {
        for size in [1, 7, 1000] {
            let mut client = Client::new(&case);
            let turns = recorded(&case);
            assert_eq!(client.start(), bytes(&turns[0]), "{}", case.name);
            for pair in turns[1..].chunks(2) {
                let answer = cut(&bytes(&pair[0]), size, |part| client.input(part));
                assert_eq!(
                    answer,
                    bytes(pair.get(1).map_or(&[], |turn| turn)),
                    "{}",
                    case.name
                );
            }
            client.check();
        }
    }
}

#[test]
fn every_kind_of_frame_is_recorded_and_data_in_both_orders() {
    let mut seen = Vec::new();
    for case in cases::all() {
        for frame in recorded(&case).into_iter().flatten() {
            let header: &[u8; HEADER_BYTES] = frame.bytes.first_chunk().unwrap();
            let Header { kind, flags, .. } = Header::decode(header).unwrap();
            seen.push((kind as u8, flags));
        }
    }
    let running = [
        Kind::Callback,
        Kind::Answer,
        Kind::Output,
        Kind::New,
        Kind::Created,
        Kind::Delete,
        Kind::Challenge,
        Kind::Proof,
    ]
    .map(|kind| kind as u8);
    let jobs = Kind::Submit as u8..=Kind::Jobs as u8;
    for kind in (Kind::Hello as u8..=Kind::Goodbye as u8)
        .chain(running)
        .chain(jobs)
    {
        assert!(seen.contains(&(kind, 0)), "no frame of kind {kind}");
    }
    assert!(seen.contains(&(Kind::Data as u8, 1)), "no big-endian data");
}

#[test]
fn the_specification_lists_every_kind() {
    let text = fs::read_to_string(root().join("docs/spec/protocol.md")).unwrap();
    for (number, name) in (1..=u8::MAX).filter_map(cases::kind) {
        assert!(text.contains(&format!("\n| {number} | {name} |")), "{name}");
    }
    for kind in (0..=u8::MAX).filter_map(FailureKind::from_repr) {
        let row = format!("\n| {} | {kind:?} |", kind as u8);
        assert!(text.contains(&row), "{row}");
    }
}

/// The seeds of the fuzz targets: what one side says in each conversation, behind a byte that
/// chooses how it is cut, and the calls alone.
#[test]
fn the_fuzz_targets_start_from_the_golden_bytes() {
    let corpus = root().join("fuzz/corpus");
    for case in cases::all() {
        let frames: Vec<Frame> = recorded(&case).into_iter().flatten().collect();
        for (target, from_client) in [("rpc_server", true), ("rpc_client", false)] {
            let side = frames
                .iter()
                .filter(|frame| frame.from_client == from_client);
            let said: Vec<u8> = side.flat_map(|frame| frame.bytes.clone()).collect();
            let seed = [&[0], said.as_slice()].concat();
            check(&corpus.join(target).join(case.name), &seed);
        }
        let call = |frame: &&Frame| frame.bytes[4] == Kind::Call as u8;
        if let Some(frame) = frames.iter().find(call) {
            check(
                &corpus.join("rpc_call").join(case.name),
                &frame.bytes[HEADER_BYTES..],
            );
        }
        let submission = |frame: &&Frame| frame.bytes[4] == Kind::Submit as u8;
        if let Some(frame) = frames.iter().find(submission) {
            let seed = &frame.bytes[HEADER_BYTES..];
            check(&corpus.join("rpc_submission").join(case.name), seed);
        }
        let callbacks = [Kind::Callback as u8, Kind::Answer as u8];
        for frame in frames
            .iter()
            .filter(|frame| callbacks.contains(&frame.bytes[4]))
        {
            let name = format!("{}-{}", case.name, frame.bytes[4]);
            let seed = &frame.bytes[HEADER_BYTES..];
            check(&corpus.join("rpc_callback").join(name), seed);
        }
    }
}

//! Tests the record of calls of real servers: its lines are right, and a killed server loses at
//! most the last second of it. A server goes on if it cannot write its record.

use farcall_client::{Argument, Scalar, Server};
use farcall_record::{Call, Line};
use farcall_recorder::{Lines, files};
use farcall_system::{ServerProcess, wait_until};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us, IN int unused) CalcOrder us Calls \"C\" usleep(us);
Define crash(IN int n) Calls \"C\" abort(n);
Define copy(OUT double to[n], IN double from[n], IN int n) Calls \"C\" memcpy(to, from, n);
";

fn nap(server: &Server, us: i64) {
    let mut arguments = [us, 7].map(|value| Argument::Scalar(Scalar::Int(value)));
    server
        .function("nap")
        .unwrap()
        .call(&mut arguments)
        .unwrap();
}

/// What `farcall record` prints.
fn record(words: &[&str]) -> String {
    let output = farcall_system::farcall().arg("record").args(words).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// All lines of a folder.
fn lines(folder: &Path) -> Vec<Line> {
    let files = files(folder).unwrap_or_default();
    let lines = files.iter().flat_map(|file| Lines::open(file).unwrap());
    lines.map(|told| told.unwrap().line).collect()
}

fn calls(folder: &Path) -> Vec<Call> {
    let calls = lines(folder).into_iter().filter_map(|line| match line {
        Line::Call(call) => Some(*call),
        _ => None,
    });
    calls.collect()
}

fn unix_s() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs_f64()
}

#[test]
fn lines_tell_what_happened() {
    let mut server = ServerProcess::of(&[IDL])
        .options(&["--record", "record"])
        .start();
    let began = unix_s();
    let client = server.connect();
    for _ in 0..3 {
        nap(&client, 20_000);
    }
    let crash = client.function("crash").unwrap();
    let failed = crash.call(&mut [Argument::Scalar(Scalar::Int(1))]);
    assert!(failed.is_err());
    drop(client);
    let folder = server.folder().join("record");
    assert!(server.stop());
    let ended = unix_s();
    let found = lines(&folder);
    assert!(matches!(&found[0], Line::Record(header) if header.server == server.address()));
    let events = found.iter().filter_map(|line| match line {
        Line::Server(told) => Some((told.event.as_str(), told.pes > 0, told.policy.as_str())),
        _ => None,
    });
    let events: Vec<_> = events.collect();
    assert_eq!(
        events,
        [("started", true, "fcfs"), ("stopped", true, "fcfs")]
    );
    let calls = calls(&folder);
    let outcomes: Vec<_> = calls.iter().map(|call| call.outcome.as_str()).collect();
    assert_eq!(outcomes[..3], ["done"; 3]);
    assert_eq!(outcomes.len(), 4);
    assert_ne!(outcomes[3], "done");
    assert_eq!(calls[3].function, "system/crash");
    let last = &calls[2];
    assert_eq!(last.function, "system/nap");
    // Sizes and cost do not depend on the other scalar, so it is not recorded.
    let scalars = serde_json::to_string(&last.scalars).unwrap();
    assert_eq!(scalars, r#"{"us":20000}"#);
    assert_eq!(last.operations, Some(20_000.0));
    assert_eq!(
        (last.host.as_str(), last.pes, last.share),
        ("local", 1, 1.0)
    );
    assert_eq!(last.server, server.address());
    assert!(!last.user.is_empty() && !last.durable);
    assert!(last.exec_s >= 0.02, "{last:?}");
    assert_eq!(calls[0].predicted_s, None);
    assert!(
        last.predicted_s
            .is_some_and(|seconds| (0.01..1.0).contains(&seconds))
    );
    assert!(last.predicted_low_s <= last.predicted_s && last.predicted_s <= last.predicted_high_s);
    let moments = [
        Some(last.asked),
        last.granted,
        last.queued,
        last.started,
        last.ended,
        Some(last.sent),
    ];
    let moments = moments.map(|moment| moment.expect("it has gone through all of them"));
    assert!(moments.is_sorted(), "{moments:?}");
    assert!(moments[4] - moments[3] >= 0.02);
    // The calendar is read in milliseconds.
    assert!(moments[0] >= began - 0.01 && moments[5] <= ended + 0.01);
}

#[test]
fn bytes_are_those_of_arrays_in_each_direction_and_their_contents_are_not_recorded() {
    let mut server = ServerProcess::of(&[IDL])
        .options(&["--record", "record"])
        .start();
    let client = server.connect();
    let (mut to, from) = ([0.0; 1000], [0.123_456_789; 1000]);
    client
        .function("copy")
        .unwrap()
        .call(&mut [
            Argument::from(&mut to[..]),
            Argument::from(&from[..]),
            Argument::Scalar(Scalar::Int(1000)),
        ])
        .unwrap();
    let folder = server.folder().join("record");
    assert!(server.stop());
    let [call] = &calls(&folder)[..] else {
        panic!("one call")
    };
    assert_eq!((call.sent_bytes, call.returned_bytes), (8000, 8000));
    assert_eq!(
        serde_json::to_string(&call.scalars).unwrap(),
        r#"{"n":1000}"#
    );
    let text = serde_json::to_string(call).unwrap();
    assert!(!text.contains("0.123"), "{text}");
}

#[test]
fn a_killed_server_loses_at_most_the_last_second() {
    let mut server = ServerProcess::of(&[IDL]).durable().start();
    let folder = server.state().join("record");
    let client = server.connect();
    for _ in 0..20 {
        nap(&client, 100);
    }
    let told = unix_s();
    wait_until("the calls are in the record", || calls(&folder).len() == 20);
    assert!(unix_s() - told < 5.0, "{}", unix_s() - told);
    server.kill();
    assert_eq!(calls(&folder).len(), 20);
    // The next server makes a whole file of it, and writes another one.
    drop(client);
    server.restart();
    nap(&server.connect(), 100);
    assert!(server.stop());
    assert_eq!(calls(&folder).len(), 21);
    let files = files(&folder).unwrap();
    assert_eq!(files.len(), 2);
    let mut whole = files.iter().map(|file| Lines::open(file).unwrap());
    assert!(whole.all(|mut lines| lines.by_ref().all(|told| told.is_ok()) && !lines.is_cut()));
}

#[test]
fn a_server_without_a_folder_for_it_keeps_no_record() {
    let mut server = ServerProcess::of(&[IDL]).start();
    nap(&server.connect(), 100);
    assert!(server.stop());
    let left = std::fs::read_dir(server.folder()).unwrap().count();
    assert_eq!(left, 1, "only the interface is there");
    let config = "[record]\nbytes = 0\n";
    let mut server = ServerProcess::of(&[IDL]).durable().config(config).start();
    nap(&server.connect(), 100);
    assert!(server.stop());
    assert!(!server.state().join("record").exists());
}

#[test]
fn a_server_goes_on_if_it_cannot_write_its_record() {
    let server = ServerProcess::of(&[IDL]).options(&["--record", "0.idl"]);
    let mut server = server.keep_log().start();
    let client = server.connect();
    for _ in 0..5 {
        nap(&client, 100);
    }
    assert!(server.stop());
    let log = server.log();
    let about = log
        .iter()
        .filter(|line| line.contains("calls are not recorded"));
    assert_eq!(about.count(), 1, "{log:?}");
}

#[test]
fn the_command_prints_cuts_and_sums_up_a_record() {
    let mut server = ServerProcess::of(&[IDL]).durable().start();
    let client = server.connect();
    for _ in 0..15 {
        nap(&client, 2000);
    }
    let (folder, state) = (server.state().join("record"), server.state());
    let state = state.to_str().unwrap();
    wait_until("the calls are in the record", || calls(&folder).len() == 15);
    // The file that the server writes at the moment is read, too.
    let text = record(&["cat", state]);
    assert_eq!(text.matches("\"kind\":\"call\"").count(), 15);
    assert!(
        text.starts_with("{\"kind\":\"record\",\"schema\":1,"),
        "{text}"
    );
    assert!(server.stop());
    let part = server.folder().join("part.jsonl.zst");
    let part = part.to_str().unwrap();
    let middle = calls(&folder)[10].asked.to_string();
    record(&["cut", state, "--from", &middle, "-o", part]);
    assert_eq!(calls_of(&record(&["cat", part])), 5);
    assert_eq!(calls_of(&record(&["cat", state, "--to", &middle])), 10);
    // What held at the beginning of the part is in it.
    assert!(record(&["cat", part]).contains("\"event\":\"started\""));
    let json = record(&["summary", state, part, "--json"]);
    let summary: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(summary["schema"], 1);
    let [row] = &summary["rows"].as_array().unwrap()[..] else {
        panic!("{summary}")
    };
    assert_eq!((&row["calls"], &row["failed"]), (&20.into(), &0.into()));
    assert_eq!(row["function"], "system/nap");
    let exec = row["exec_median_s"].as_f64().unwrap();
    assert!((0.0019..0.5).contains(&exec), "{exec}");
    let table = record(&["summary", state]);
    assert_eq!(table.lines().count(), 2);
    assert!(table.contains("system/nap"), "{table}");
}

/// Number of calls in a text of lines.
fn calls_of(text: &str) -> usize {
    let lines = text
        .lines()
        .map(|line| Line::read(line.as_bytes()).unwrap());
    lines.filter(|line| matches!(line, Line::Call(_))).count()
}

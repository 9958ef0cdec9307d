//! Tests the whole stack in one lab: `farcall up --lab`, and `farcall bench stack` with a short
//! scenario. They need root, `ip` and `tc`, and the MPI of the parallel functions.

use farcall_system::wait_until;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder with the interfaces of both kinds of calls, or none if they cannot be served here.
fn libraries() -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: network namespaces need root");
        return None;
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
    let mut make = Command::new("make");
    make.args(["--silent", "--directory"]).arg(&libraries);
    make.args(["libfarcall_stack.so", "libfarcall_bench.so"]);
    if !make.status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: MPICH is missing: `scripts/setup system` installs it");
        return None;
    }
    Some(libraries)
}

const SCENARIO: &str = r#"
[[server]]
name = "a"
pes = 4
speed = 2e7
up = "45MB/s"
down = "45MB/s"

[[server]]
name = "b"
pes = 4
speed = 2e7
up = "45MB/s"
down = "45MB/s"
until = "5s"

[[site]]
up = "12.5MB/s"
down = "12.5MB/s"
latency = "20ms"

[[calls]]
function = "ep"
count = 40
n = [21, 22]
within = "7s"
pes = 1

[[calls]]
function = "linpack"
count = 5
n = [200, 300]
within = "7s"
pes = 4
fewest = 4
"#;

#[test]
fn calls_are_right_while_parts_of_the_grid_fail() {
    let Some(libraries) = libraries() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = folder.path().join("short.toml");
    std::fs::write(&scenario, SCENARIO).expect("room");
    let mut bench = farcall_system::program::bench();
    bench.arg("stack").arg("--scenario").arg(&scenario);
    bench.args(["--json", "--libraries"]).arg(&libraries);
    bench.arg("--timeline").arg(folder.path());
    let output = bench.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = |name: &str| {
        let rows = told["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["name"] == name).expect(name);
        row["value"].as_f64().expect("a number")
    };
    assert_eq!(row("wrong results"), 0.0);
    // The node that is killed has at most one call.
    assert!(row("failures that were told") <= 1.0, "{told}");
    let calls = std::fs::read(folder.path().join("calls.json")).expect("it was written");
    let calls: serde_json::Value = serde_json::from_slice(&calls).expect("JSON");
    assert_eq!(calls["calls"].as_array().map(Vec::len), Some(45));
    assert_eq!(calls["faults"].as_array().map(Vec::len), Some(4));
    for trace in ["gang-a.csv", "gang-b.csv"] {
        let trace = std::fs::read_to_string(folder.path().join(trace)).expect("it was written");
        assert!(trace.lines().count() > 1, "{trace}");
    }
}

#[test]
fn a_lab_says_how_to_use_it_and_leaves_nothing() {
    let Some(libraries) = libraries() else {
        return;
    };
    let mut up = farcall_system::farcall();
    up.args(["up", "--lab", "--log", "error"])
        .arg(libraries.join("bench.idl"));
    let mut up = up.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(up.stdout.take().expect("it is piped")).lines();
    let lines = lines.map_while(Result::ok);
    let said: Vec<String> = lines
        .take_while(|line| !line.starts_with("Ctrl-C"))
        .collect();
    let client = said
        .iter()
        .find(|line| line.contains("FARCALL_METASERVER="))
        .expect("a hint");
    let words: Vec<&str> = client.split_whitespace().skip(1).collect();
    let prefix = format!("farcall-lab-{}-", up.id());
    let hosts = || {
        let list = Command::new("ip")
            .args(["netns", "list"])
            .output()
            .expect("runs");
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        list.matches(&prefix).count()
    };
    assert_eq!(hosts(), 12, "{said:?}");
    let (before, _) = words.split_at(words.len() - 2);
    let output = Command::new(before[0])
        .args(&before[1..])
        .arg(farcall_system::farcall_path())
        .args(["call", "echo", "n=2", "x=1,2"])
        .output()
        .expect("runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("2.0"), "{printed} {output:?}");
    let pid = rustix::process::Pid::from_raw(up.id().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert!(up.wait().expect("it ends").success());
    wait_until("the hosts are gone", || hosts() == 0);
}

//! Tests of the benchmark program. A benchmark that is killed leaves no process behind, and a wrong
//! option is refused before anything starts.

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn bench(arguments: &[&str]) -> Command {
    let mut command = farcall_system::program::bench();
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The first of what `look` finds within the time that a test waits.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The parent of a process, unless it has ended.
fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    match fields.next()? {
        "Z" => None,
        _ => fields.next()?.parse().ok(),
    }
}

fn children(process: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|of| parent(*of) == Some(process)).collect()
}

/// Two front ends and the daemon they ask.
fn wait_for_jobs(bench: &Child) -> Vec<u32> {
    wait_for("three processes of the benchmark", || {
        Some(children(bench.id())).filter(|found| found.len() == 3)
    })
}

#[test]
fn a_killed_benchmark_takes_its_processes_along() {
    let mut command = bench(&["gang", "--part", "makespan", "--seconds", "60"]);
    let mut bench = command.stdout(Stdio::null()).spawn().unwrap();
    let started = wait_for_jobs(&bench);
    bench.kill().unwrap();
    bench.wait().unwrap();
    for process in started {
        wait_for("the end of a process", || match parent(process) {
            None => Some(()),
            Some(_) => None,
        });
    }
}

#[test]
fn a_time_too_short_for_a_switch_is_refused() {
    for seconds in ["1", "0", "NaN", "inf"] {
        let Output { status, stderr, .. } =
            bench(&["gang", "--seconds", seconds]).output().unwrap();
        let text = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(2), "{text}");
        assert!(text.contains("3 to 3600 seconds"), "{text}");
    }
}

#[test]
fn no_failures_to_measure_is_refused() {
    let mut command = bench(&["trunk", "--trials", "0"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

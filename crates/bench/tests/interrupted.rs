//! An interrupted benchmark leaves no files behind, and neither does one whose output nobody reads
//! any more. `testing/system` tests that it leaves no processes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Waits until something is true, but not longer than half a minute.
fn until(what: &str, is_true: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_true() {
        assert!(Instant::now() < end, "{what} in half a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A benchmark of a script instead of `farcall`, with a folder of its own for temporary files.
fn benchmark_of(script: &str, place: &Path) -> (Command, PathBuf) {
    let [temporary, program] = ["tmp", "farcall"].map(|name| place.join(name));
    std::fs::create_dir(&temporary).unwrap();
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut benchmark = Command::new(env!("CARGO_BIN_EXE_farcall-bench"));
    benchmark
        .args(["flow", "--only", "fat tree 432 regular", "--runs", "1"])
        .env("TMPDIR", &temporary)
        .env("FARCALL_PROGRAM", &program);
    (benchmark, temporary)
}

#[test]
fn an_interrupted_benchmark_leaves_no_files() {
    let place = tempfile::tempdir().unwrap();
    let begun = place.path().join("begun");
    let script = format!("#!/bin/sh\necho > {}\nexec sleep 60\n", begun.display());
    let (mut benchmark, temporary) = benchmark_of(&script, place.path());
    let mut benchmark = benchmark.stdout(Stdio::null()).spawn().unwrap();
    until("the program begins", || begun.exists());
    assert_eq!(entries(&temporary), 1);
    let pid = benchmark.id().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.unwrap().success());
    let status = benchmark.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
    assert_eq!(entries(&temporary), 0, "the folder of the benchmark");
}

#[test]
fn a_benchmark_that_nobody_reads_leaves_no_files() {
    let place = tempfile::tempdir().unwrap();
    let gone = place.path().join("gone");
    let told = r#"{"makespan": 1.0, "cpu_s": 1.0, "peak_rss_bytes": 1}"#;
    let script = format!(
        "#!/bin/sh\nuntil [ -e {} ]; do sleep 0.01; done\necho '{told}'\n",
        gone.display()
    );
    let (mut benchmark, temporary) = benchmark_of(&script, place.path());
    let piped = benchmark.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut benchmark = piped.spawn().unwrap();
    drop(benchmark.stdout.take());
    std::fs::write(gone, "").unwrap();
    let output = benchmark.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(entries(&temporary), 0, "the folder of the benchmark");
}

#[test]
fn output_without_room_is_an_error_that_leaves_no_files() {
    let place = tempfile::tempdir().unwrap();
    let told = r#"{"makespan": 1.0, "cpu_s": 1.0, "peak_rss_bytes": 1}"#;
    let script = format!("#!/bin/sh\necho '{told}'\n");
    let (mut benchmark, temporary) = benchmark_of(&script, place.path());
    let full = std::fs::File::create("/dev/full").unwrap();
    let output = benchmark.stdout(full).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot write to standard output"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(entries(&temporary), 0, "the folder of the benchmark");
}

//! An interrupted benchmark leaves no files behind. `testing/system` tests that it leaves no
//! processes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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

#[test]
fn an_interrupted_benchmark_leaves_no_files() {
    let place = tempfile::tempdir().unwrap();
    let [temporary, program, begun] =
        ["tmp", "farcall", "begun"].map(|name| place.path().join(name));
    std::fs::create_dir(&temporary).unwrap();
    let script = format!("#!/bin/sh\necho > {}\nexec sleep 60\n", begun.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut benchmark = Command::new(env!("CARGO_BIN_EXE_farcall-bench"))
        .args(["flow", "--only", "fat tree 432 regular"])
        .env("TMPDIR", &temporary)
        .env("FARCALL_PROGRAM", &program)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the program begins", || begun.exists());
    assert_eq!(entries(&temporary), 1);
    let pid = benchmark.id().to_string();
    let told = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(told.unwrap().success());
    let status = benchmark.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + 15), None));
    assert_eq!(entries(&temporary), 0, "the folder of the benchmark");
}

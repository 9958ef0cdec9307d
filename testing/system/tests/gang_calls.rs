//! Tests calls beside batch jobs of a gang: parallel functions that run as gang jobs, and calls of
//! one process for which gang jobs make room. They need MPICH and ScaLAPACK, as parallel functions
//! do.

use farcall_client::{Argument, Scalar, Server};
use farcall_system::gang::{Node, text};
use farcall_system::{ServerProcess, wait_until};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// A function of one process, which computes for a number of milliseconds.
const SPIN: &str = "Module spin;
Globals {
#include <time.h>
}
Define spin(IN int ms, OUT int done[1]) ProcessorElements 1 {
    struct timespec now;
    double end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    end = now.tv_sec + now.tv_nsec * 1e-9 + ms * 1e-3;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec + now.tv_nsec * 1e-9 < end);
    done[0] = ms;
}
";

/// A program that computes until it is killed.
const BATCH: [&str; 6] = ["-n", "2", "--", "sh", "-c", "while :; do :; done"];

fn gang() -> Node {
    Node::start(&["--slice", "50ms", "--slots", "2"])
}

fn states(gang: &Node) -> Vec<String> {
    let state = |row: &serde_json::Value| row["state"].as_str().unwrap_or_default().to_string();
    gang.jobs().iter().map(state).collect()
}

/// A configuration with the gang.
fn config(gang: &Node, more: &str) -> String {
    format!("[gang]\ncontrol = \"{}\"\n{more}", gang.control())
}

/// Solves a system whose solution is all ones, and returns the largest error.
fn solve(connection: &Server, n: usize) -> f64 {
    let number = |value: usize| Argument::Scalar(Scalar::Int(value as i64));
    let entry = |place: usize| match place % (n + 1) {
        0 => n as f64 + 1.0,
        _ => 1.0,
    };
    let mut a: Vec<u8> = (0..n * n)
        .flat_map(|place| entry(place).to_ne_bytes())
        .collect();
    let mut b = [2.0 * n as f64].repeat(n);
    let mut b: Vec<u8> = b.drain(..).flat_map(f64::to_ne_bytes).collect();
    let mut info = [1; 4];
    let function = connection.function("pdposv").expect("it is served");
    let called = function.call(&mut [
        Argument::Scalar(Scalar::Int('L' as i64)),
        number(n),
        number(1),
        Argument::Out(&mut a),
        number(n),
        Argument::Out(&mut b),
        number(n),
        Argument::Out(&mut info),
    ]);
    called.expect("it succeeds");
    assert_eq!(i32::from_ne_bytes(info), 0);
    let values = b
        .as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| f64::from_ne_bytes(*bytes));
    values.fold(0.0, |most, value| f64::max(most, (value - 1.0).abs()))
}

/// Whether this is a process of a worker, which then must have the walls of parallel functions and
/// none of the server's secrets.
fn has_walls(pid: &str) -> bool {
    let read = |name: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        text(&bytes)
    };
    if !read("cmdline").contains("\0worker") {
        return false;
    }
    let status = read("status");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    if rustix::process::geteuid().is_root() {
        assert!(!status.contains("Uid:\t0\t"), "{status}");
    }
    assert!(!read("environ").contains("of the server"));
    true
}

#[test]
fn a_parallel_function_runs_as_a_gang_job_beside_batch_jobs() {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
    let mut make = Command::new("make");
    make.args(["--silent", "--directory"])
        .arg(&libraries)
        .arg("libfarcall_scalapack.so");
    if !make.status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: ScaLAPACK is missing: `scripts/setup system` installs it");
        return;
    }
    let gang = gang();
    let mut batch = gang.submit(&BATCH);
    wait_until("it runs", || states(&gang) == ["running"]);
    let server = ServerProcess::within(&libraries, &["scalapack.idl"])
        .variable("SECRET", "of the server")
        .variable("FARCALL_LIBRARY_PATH", &libraries.to_string_lossy());
    let engine = config(&gang, "[parallel]\nengine = \"gang\"\n");
    let folder = farcall_system::server::folder();
    let file = folder.path().join("farcall.toml");
    std::fs::write(&file, engine).expect("room");
    let file = file.to_string_lossy().into_owned();
    let server = server.options(&["--pes", "2", "--config", &file]).start();
    let connection = server.connect();
    for n in [10, 300, 500] {
        assert!(solve(&connection, n) < 1e-9);
        // The batch job goes on at once, and the processes of the function rest.
        wait_until("the batch job runs", || {
            let states = states(&gang);
            states[0] == "running" && states[1..].iter().all(|state| state == "resting")
        });
    }
    assert!(gang.jobs().len() > 1, "{:?}", gang.jobs());
    let walled = gang.children().iter().filter(|pid| has_walls(pid)).count();
    assert!(walled >= 2, "{:?}", gang.children());
    // Its processes end with the server.
    drop(connection);
    drop(server);
    wait_until("only the batch job is left", || gang.jobs().len() == 1);
    batch.kill().expect("it runs");
    batch.wait().expect("it ends");
}

#[test]
fn a_batch_job_makes_room_for_a_call_and_goes_on() {
    let gang = gang();
    let mut batch = gang.submit(&BATCH);
    wait_until("it runs", || states(&gang) == ["running"]);
    let server = ServerProcess::of(&[SPIN]).config(&config(&gang, "processors = 2\n"));
    let server = server.options(&["--pes", "1", "--allow-code"]).start();
    let connection = server.connect();
    let function = connection.function("spin").expect("it is served");
    let spin = |ms: i64| {
        let mut done = [0; 4];
        let asked = Instant::now();
        let scalar = Argument::Scalar(Scalar::Int(ms));
        let called = function.call(&mut [scalar, Argument::Out(&mut done)]);
        called.expect("it succeeds");
        assert_eq!(i64::from(i32::from_ne_bytes(done)), ms);
        asked.elapsed()
    };
    spin(1);
    wait_until("there is a gang job for calls", || {
        states(&gang) == ["running", "resting"]
    });
    std::thread::scope(|scope| {
        let call = scope.spawn(|| spin(1000));
        wait_until("the batch job makes room", || {
            states(&gang) == ["waiting", "running"]
        });
        call.join().expect("it succeeds");
    });
    wait_until("the batch job goes on", || {
        states(&gang) == ["running", "resting"]
    });
    drop(connection);
    drop(server);
    wait_until("only the batch job is left", || gang.jobs().len() == 1);
    batch.kill().expect("it runs");
    batch.wait().expect("it ends");
}

/// A gang job without a program needs no processes.
#[test]
fn an_interactive_job_ends_with_its_descriptor() {
    let gang = gang();
    let script = format!(
        "printf 1 | {} gang run -n 2 --control {} --interactive 3 3<&0 -- true",
        farcall_system::farcall_path(),
        gang.control()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    wait_until("it has ended", || gang.jobs().is_empty());
}

/// Root may start a server in its own folder.
#[test]
fn an_interactive_job_of_a_user_who_cannot_enter_the_folder_begins_in_the_root_folder() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root starts jobs of other users");
    }
    let (gang, folder) = (gang(), tempfile::tempdir().expect("a folder"));
    let of_root = Permissions::from_mode(0o700);
    std::fs::set_permissions(folder.path(), of_root).expect("own folder");
    let script = format!(
        "mkfifo work; exec 3<>work; printf 1 >&3; exec {} gang run --quiet -n 1 --control {} \
         --interactive 3 --user 54321:54321 -- pwd",
        farcall_system::farcall_path(),
        gang.control()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path());
    let output = shell.output().expect("runs");
    assert_eq!(text(&output.stdout), "/\n", "{}", text(&output.stderr));
}

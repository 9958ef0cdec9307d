//! Tests of state folders on disks that are full, damaged or open to other users. A full disk loses
//! no call that was acknowledged, and damaged data are reported and not used. Some of the tests
//! need root.

use super::{FUNCTIONS, durable, fetch, files, int, submit_copy};
use farcall_client::{Argument, DurableState, Error, FailureKind};
use farcall_system::server::connect;
use farcall_system::{ServerProcess, wait_until};
use std::io::Write;
use std::path::Path;

#[test]
fn what_is_damaged_on_the_disk_is_told_and_not_used() {
    let mut server = durable(&["--workers", "1"]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let nap = connection.function("nap").unwrap();
    // Short arrays would be in the logs.
    let data = vec![7; 100_000];
    let length = data.len() as i64;
    let arguments = || [Argument::Skip, Argument::In(&data), int(length)];
    let done = copy.submit(&mut arguments(), None).unwrap();
    let gone = copy.submit(&mut arguments(), None).unwrap();
    fetch(&done, data.len()).unwrap();
    fetch(&gone, data.len()).unwrap();
    let running = nap.submit(&mut [int(1_000_000_000)], None).unwrap();
    wait_until("it runs", || {
        running.status().unwrap().state == DurableState::Running
    });
    let queued = copy.submit(&mut arguments(), None).unwrap();
    server.kill();
    let arrays = server.state().join("arrays");
    for name in files(&server.state()) {
        let mut bytes = std::fs::read(arrays.join(&name)).unwrap();
        bytes[data.len() / 2] ^= 1;
        std::fs::write(arrays.join(name), bytes).unwrap();
    }
    std::fs::remove_file(arrays.join(format!("{}.result", gone.id()))).unwrap();
    server.restart();
    let connection = connect(&server.socket());
    for (job, says) in [
        (&gone, "missing"),
        (&done, "checksum"),
        (&queued, "checksum"),
    ] {
        let job = connection.job(job.id());
        if says == "missing" {
            let known = job.status().unwrap().failure.expect("its status says so");
            assert!(known.message.contains("damaged"), "{known}");
        }
        match fetch(&job, data.len()) {
            Err(Error::Failed(failure)) => {
                assert_eq!(failure.kind, FailureKind::StorageFault, "{failure}");
                assert!(failure.message.contains(says), "{failure}");
            }
            other => panic!("{other:?}"),
        }
        assert!(
            job.status().unwrap().failure.is_some(),
            "its status says so"
        );
    }
}

/// Needs the right to mount.
#[test]
fn a_full_disk_refuses_calls_and_loses_none() {
    let Some(server) = ServerProcess::with_small_disk(&[FUNCTIONS]) else {
        eprintln!("SKIPPED: a disk of its own needs root");
        return;
    };
    let server = server.start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let submit = |length: usize| submit_copy(&copy, &vec![5; length]);
    let mut kept = Vec::new();
    let failure = loop {
        match submit(1 << 20) {
            Ok(job) => kept.push(job),
            Err(Error::Failed(failure)) => break failure,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(failure.kind, FailureKind::StorageFault);
    assert!(failure.message.contains("disk is full"), "{failure}");
    assert!(failure.message.contains("jobs.reserve"), "{failure}");
    assert!(!kept.is_empty());
    for job in &kept {
        assert_eq!(fetch(job, 1 << 20).unwrap(), vec![5; 1 << 20]);
        job.forget().unwrap();
    }
    wait_until("there is room again", || submit(1 << 20).is_ok());
}

/// A shell or a batch system may limit the length of files.
#[test]
fn a_file_that_becomes_too_long_is_refused_as_on_a_full_disk() {
    // The shell counts blocks of 512 bytes.
    let server = durable(&[]).limited("-f 16384").start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let submit = |length: usize| submit_copy(&copy, &vec![5; length]);
    for _ in 0..2 {
        let job = submit(1 << 20).unwrap();
        assert_eq!(fetch(&job, 1 << 20).unwrap(), vec![5; 1 << 20]);
        let refused = submit(9 << 20).unwrap_err();
        assert!(refused.to_string().contains("File too large"), "{refused}");
    }
}

/// Needs the right to mount.
#[test]
fn a_disk_that_fills_while_the_server_runs_loses_nothing() {
    let Some(server) = ServerProcess::with_small_disk(&[FUNCTIONS]) else {
        eprintln!("SKIPPED: a disk of its own needs root");
        return;
    };
    let server = server.options(&["--workers", "1"]).keep_log().start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    let filler = server.state().join("filler");
    // Its end comes when nothing can be recorded.
    let running = nap.submit(&mut [int(3_000_000)], None).unwrap();
    wait_until("it runs", || {
        running.status().unwrap().state == DurableState::Running
    });
    let mut file = std::fs::File::create(&filler).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[1; 4096])).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    // The logs have room for a few thousand records.
    let failure = (0..20_000).find_map(|_| match nap.submit(&mut [int(1)], None) {
        Ok(_) => None,
        Err(Error::Failed(failure)) => Some(failure),
        Err(error) => panic!("{error}"),
    });
    let failure = failure.expect("the disk is full");
    assert_eq!(failure.kind, FailureKind::StorageFault);
    let says = ["state", "is full", "make room"];
    assert!(
        says.iter().all(|part| failure.message.contains(part)),
        "{failure}"
    );
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    wait_until("calls are recorded again", || {
        nap.submit(&mut [int(1)], None).is_ok()
    });
    assert!(fetch(&running, 0).unwrap().is_empty());
    wait_until("all calls have ended", || {
        let jobs = connection.jobs().unwrap();
        jobs.iter().all(|job| job.state == DurableState::Done)
    });
    let log = server.log();
    let refusals = log
        .iter()
        .filter(|line| line.contains("cannot be recorded"));
    assert!(refusals.count() >= 1, "{log:?}");
    let errors = log.iter().filter(|line| line.contains("ERROR")).count();
    assert!(
        errors < 5,
        "one line for each time, not for each call: {log:?}"
    );
}

/// Runs `farcall state` in the folder of a server. Returns its status, and what it says.
fn state_command(server: &ServerProcess, words: &[&str]) -> (bool, String) {
    let mut command = farcall_system::farcall();
    command
        .arg("state")
        .args(words)
        .current_dir(server.folder());
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}

#[test]
fn damage_is_found_repaired_and_restored_from_a_backup() {
    let mut server = durable(&[]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let data = vec![3; 100_000];
    let submit = |data: &[u8]| submit_copy(&copy, data);
    let jobs = [submit(&data).unwrap(), submit(b"abc").unwrap()];
    assert_eq!(fetch(&jobs[0], data.len()).unwrap(), data);
    assert_eq!(fetch(&jobs[1], 3).unwrap(), b"abc");
    let of_server = |words: &[&str]| state_command(&server, words);
    let (works, said) = of_server(&["backup", "state", "backup"]);
    assert!(works && said.contains("2 durable calls"), "{said}");
    let (works, said) = of_server(&["check", "state"]);
    assert!(works, "{said}");
    let (works, said) = of_server(&["check", "state", "--restore"]);
    assert!(!works && said.contains("a server uses state"), "{said}");
    server.kill();
    let log = server.state().join("calls.b.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let (works, said) = state_command(&server, &["check", "state", "--json"]);
    assert!(
        !works && said.contains("repairable") && said.contains("calls.b.log"),
        "{said}"
    );
    server.restart();
    let (works, said) = state_command(&server, &["check", "state"]);
    assert!(works && said.contains("files in quarantine: 1"), "{said}");
    assert_eq!(connect(&server.socket()).jobs().unwrap().len(), 2);
    server.kill();
    // A backup of damage that calls tell of is kept, and the status says so.
    let arrays = std::fs::read_dir(server.state().join("arrays")).unwrap();
    arrays.for_each(|array| std::fs::remove_file(array.unwrap().path()).unwrap());
    let (works, said) = state_command(&server, &["backup", "state", "partial"]);
    assert!(!works && said.contains("it is missing"), "{said}");
    let (works, said) = state_command(&server, &["restore", "partial", "again"]);
    assert!(!works && said.contains("it is missing"), "{said}");
    let (works, said) = state_command(&server, &["check", "again"]);
    assert!(!works && said.contains("2 durable calls"), "{said}");
    for name in ["calls.a.log", "calls.b.log"] {
        std::fs::write(server.state().join(name), [0; 5000]).unwrap();
    }
    let (works, said) = state_command(&server, &["backup", "state", "none"]);
    assert!(!works && said.contains("state check state"), "{said}");
    std::fs::rename(server.state(), server.folder().join("damaged")).unwrap();
    // A copy that fails leaves no part of a state.
    let unreadable = server.folder().join("backup/learned.json");
    let _ = std::fs::remove_file(&unreadable);
    std::fs::create_dir(&unreadable).unwrap();
    let (works, said) = state_command(&server, &["restore", "backup", "state"]);
    assert!(!works && said.contains("learned.json"), "{said}");
    assert_eq!(std::fs::read_dir(server.state()).unwrap().count(), 0);
    std::fs::remove_dir(&unreadable).unwrap();
    let (works, said) = state_command(&server, &["restore", "backup", "state"]);
    assert!(works && said.contains("2 durable calls"), "{said}");
    server.restart();
    let connection = connect(&server.socket());
    assert_eq!(
        fetch(&connection.job(jobs[0].id()), data.len()).unwrap(),
        data
    );
    assert_eq!(fetch(&connection.job(jobs[1].id()), 3).unwrap(), b"abc");
}

/// Needs root for the second half.
#[test]
fn a_state_folder_is_closed_to_other_users_or_refused() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let mut server = durable(&[]).keep_log().start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    let job = nap.submit(&mut [int(1)], None).unwrap();
    fetch(&job, 0).unwrap();
    server.kill();
    let state = server.state();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(&state, 0o755);
    open(&state.join("calls.a.log"), 0o644);
    server.restart();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(
        (mode(&state), mode(&state.join("calls.a.log"))),
        (0o700, 0o600)
    );
    let log = server.log();
    assert!(
        log.iter().any(|line| line.contains("its mode is now 700")),
        "{log:?}"
    );
    connect(&server.socket()).job(job.id()).status().unwrap();
    server.kill();
    if chown(&state, Some(65_534), None).is_err() {
        eprintln!("SKIPPED: a folder of another user needs root");
        return;
    }
    let mut command = farcall_system::farcall();
    command.args([
        "serve",
        "0.idl",
        "--listen",
        "127.0.0.1:0",
        "--state",
        "state",
    ]);
    let refused = command.current_dir(server.folder()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("chown"),
        "{said}"
    );
}

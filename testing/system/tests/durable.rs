//! Durable calls and a server that is killed, with real processes.

use farcall_client::{
    Argument, DurableCall, DurableState, DurableStatus, Error, FailureKind, JobId, Options, Scalar,
    Server,
};
use farcall_system::server::{Serving, connect};
use farcall_system::{ServerProcess, wait_until};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The value of `once` tells whether it runs for the first time.
const FUNCTIONS: &str = "Module test;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n) Repeatable \"yes\"
    Calls \"C\" memcpy(out, in, n);
Define once(IN string folder, IN int mode, OUT int *again) Calls \"C\" again = mkdir(folder, mode);
Define nap(IN int us) Calls \"C\" usleep(us);
Define read_gate(IN string gate, IN int mode) Calls \"C\" open(gate, mode);
";

/// A server that takes durable calls.
fn durable(options: &[&str]) -> Serving {
    ServerProcess::of(&[FUNCTIONS]).durable().options(options)
}

fn int(value: i64) -> Argument<'static> {
    Argument::Scalar(Scalar::Int(value))
}

fn fetch(job: &DurableCall, length: usize) -> Result<Vec<u8>, Error> {
    let submitted = job.describe()?;
    let mut result = vec![0; length];
    let mut left = Some(&mut result);
    let params = &submitted.interface().params;
    let mut arguments: Vec<Argument<'_>> = params
        .iter()
        .map(|param| match param.mode.is_returned() {
            true => left
                .take()
                .map_or(Argument::Skip, |bytes| Argument::Out(bytes)),
            false => Argument::Skip,
        })
        .collect();
    submitted.fetch(&mut arguments)?;
    drop(arguments);
    Ok(result)
}

/// A generator of random moments (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Calls that were submitted and acknowledged.
#[derive(Clone, Debug)]
enum Expected {
    Copy(Vec<u8>),
    Once(PathBuf),
    Nap,
}

/// Submits calls until told to stop, and notes those that the server has acknowledged.
struct Client {
    address: String,
    folder: PathBuf,
    number: u64,
    acknowledged: Arc<Mutex<BTreeMap<JobId, Expected>>>,
    attempts: Arc<AtomicUsize>,
    stops: Arc<AtomicBool>,
}

impl Client {
    fn run(&self) {
        let mut random = Random(self.number);
        while !self.stops.load(Ordering::Relaxed) {
            // When the server ends, so does the connection; the next connection may succeed.
            if self.submit_until_failure(&mut random).is_err() {
                std::thread::yield_now();
            }
        }
    }

    fn submit_until_failure(&self, random: &mut Random) -> Result<(), Error> {
        let server = Server::connect(&self.address, Default::default())?;
        let functions = ["copy", "once", "nap"].map(|name| server.function(name));
        let [copy, once, nap] = functions;
        let (copy, once, nap) = (copy?, once?, nap?);
        while !self.stops.load(Ordering::Relaxed) {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
            let (job, expected) = match random.next() % 4 {
                0 | 1 => {
                    let length = 1 + random.next() % 100_000;
                    let data: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
                    let arguments = &mut [Argument::Skip, Argument::In(&data), int(length as i64)];
                    (copy.submit(arguments, None)?, Expected::Copy(data))
                }
                2 => {
                    let folder = self.folder.join(attempt.to_string());
                    let name = Scalar::Text(folder.to_string_lossy().into_owned());
                    let arguments = &mut [Argument::Scalar(name), int(0o700), Argument::Skip];
                    (once.submit(arguments, None)?, Expected::Once(folder))
                }
                _ => (nap.submit(&mut [int(2000)], None)?, Expected::Nap),
            };
            let mut acknowledged = self.acknowledged.lock().expect("no client panics");
            assert!(acknowledged.insert(job.id(), expected).is_none());
        }
        Ok(())
    }
}

/// Checks that every acknowledged call has exactly one outcome, and the right one.
fn check(job: &DurableCall, status: &DurableStatus, expected: &Expected) {
    let id = job.id();
    let unknown = match status.state {
        DurableState::Done => false,
        DurableState::Failed => {
            let failure = status.failure.as_ref().expect("a failure says why");
            assert_eq!(failure.kind, FailureKind::OutcomeUnknown, "{id}: {failure}");
            assert!(failure.message.contains("outcome unknown"));
            true
        }
        other => panic!("{id} is {other:?}"),
    };
    match expected {
        Expected::Copy(data) => {
            assert!(!unknown, "{id} may be run again");
            assert_eq!(fetch(job, data.len()).expect("its result is there"), *data);
        }
        Expected::Once(_) if unknown => {}
        Expected::Once(folder) => {
            let again = fetch(job, 4).expect("its result is there");
            assert_eq!(again, 0i32.to_ne_bytes(), "{id} was run twice");
            assert!(folder.is_dir(), "{id} was not run");
        }
        Expected::Nap => {}
    }
}

fn files(state: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(state.join("arrays")).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// `FARCALL_SOAK_KILLS` sets how often the server is killed.
#[test]
fn no_acknowledged_call_is_lost_when_the_server_is_killed() {
    let kills = std::env::var("FARCALL_SOAK_KILLS").map_or(10, |text| text.parse().unwrap());
    let mut server = durable(&["--workers", "2", "--no-sandbox"]).start();
    let folder = server.folder().join("once");
    std::fs::create_dir(&folder).unwrap();
    let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
    let (stops, attempts) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let clients = (0..3).map(|number| {
        let client = Client {
            address: server.socket(),
            folder: folder.clone(),
            number,
            acknowledged: acknowledged.clone(),
            attempts: Arc::clone(&attempts),
            stops: stops.clone(),
        };
        std::thread::spawn(move || client.run())
    });
    let clients: Vec<_> = clients.collect();
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..kills {
        // The moment is random; this does not wait for a condition.
        std::thread::sleep(Duration::from_micros(random.next() % 200_000));
        server.kill();
        server.restart();
    }
    stops.store(true, Ordering::Relaxed);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    let connection = connect(&server.socket());
    let mut jobs = Vec::new();
    wait_until("every call has an outcome", || {
        jobs = connection.jobs().unwrap();
        jobs.iter().all(|job| job.state.is_over())
    });
    let known: BTreeMap<JobId, &DurableStatus> = jobs.iter().map(|job| (job.id, job)).collect();
    assert_eq!(known.len(), jobs.len(), "one record for each call");
    let mut unknown = 0;
    for (id, expected) in &acknowledged {
        let status = known.get(id).unwrap_or_else(|| panic!("{id} is lost"));
        check(&connection.job(*id), status, expected);
        unknown += usize::from(status.state == DurableState::Failed);
    }
    println!(
        "{kills} kills, {} attempts, {} acknowledged, {unknown} of unknown outcome, {} recorded",
        attempts.load(Ordering::Relaxed),
        acknowledged.len(),
        jobs.len()
    );
    assert!(acknowledged.len() >= kills, "there was some load");
    for job in &jobs {
        connection.job(job.id).forget().unwrap();
    }
    assert_eq!(connection.jobs().unwrap(), []);
    let state = server.state();
    wait_until("no file is left behind", || files(&state).is_empty());
}

#[test]
fn a_running_call_is_cancelled_and_its_library_ended() {
    let server = durable(&["--workers", "1"]).start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    let hour = 3_600_000_000i64 / 2;
    let running = nap.submit(&mut [int(hour)], None).unwrap();
    let waiting = nap.submit(&mut [int(hour)], None).unwrap();
    let last = nap.submit(&mut [int(1)], None).unwrap();
    wait_until("the first call runs", || {
        running.status().unwrap().state == DurableState::Running
    });
    assert_eq!(waiting.cancel().unwrap().state, DurableState::Cancelled);
    assert_eq!(last.status().unwrap().state, DurableState::Queued);
    let start = Instant::now();
    assert_eq!(running.cancel().unwrap().state, DurableState::Cancelled);
    assert!(fetch(&last, 0).unwrap().is_empty());
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "it is not slept out"
    );
    let error = fetch(&running, 0).unwrap_err();
    assert!(
        matches!(&error, Error::Failed(f) if f.kind == FailureKind::Cancelled),
        "{error}"
    );
    assert_eq!(
        last.cancel().unwrap().state,
        DurableState::Done,
        "an outcome is final"
    );
}

#[test]
fn what_was_computed_is_kept_when_the_server_is_told_to_stop() {
    let mut server = durable(&["--workers", "2"]).start();
    for _ in 0..3 {
        let connection = connect(&server.socket());
        let copy = connection.function("copy").unwrap();
        let nap = connection.function("nap").unwrap();
        let data = vec![3; 3_000_000];
        let submit = |_| {
            let arguments = &mut [Argument::Skip, Argument::In(&data), int(data.len() as i64)];
            copy.submit(arguments, None).unwrap()
        };
        let jobs: Vec<DurableCall> = (0..5).map(submit).collect();
        let long = nap.submit(&mut [int(1_000_000_000)], None).unwrap();
        wait_until("one of them is done", || {
            jobs.iter().any(|job| job.status().unwrap().state.is_over())
                && long.status().unwrap().state == DurableState::Running
        });
        let start = Instant::now();
        assert!(server.stop());
        assert!(start.elapsed() < Duration::from_secs(5));
        server.restart();
        let connection = connect(&server.socket());
        for job in &jobs {
            let again = connection.job(job.id());
            assert_eq!(fetch(&again, data.len()).unwrap(), data);
            again.forget().unwrap();
        }
        let failure = connection.job(long.id()).status().unwrap().failure;
        assert_eq!(failure.unwrap().kind, FailureKind::OutcomeUnknown);
    }
}

#[test]
fn calls_that_wait_on_the_disk_for_memory_run_in_the_same_server() {
    // Waiting calls can use a quarter of the memory: two of these at a time.
    let server = durable(&["--workers", "1"])
        .config("[limits]\nmemory = 16000000\n")
        .start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    let copy = connection.function("copy").unwrap();
    let nap = nap.submit(&mut [int(300_000)], None).unwrap();
    let submit = |number: u8| {
        let data = vec![number; 1_000_000];
        let arguments = &mut [Argument::Skip, Argument::In(&data), int(data.len() as i64)];
        (copy.submit(arguments, None).unwrap(), data)
    };
    let jobs: Vec<(DurableCall, Vec<u8>)> = (1..=8).map(submit).collect();
    fetch(&nap, 0).unwrap();
    for (job, data) in &jobs {
        assert_eq!(fetch(job, data.len()).unwrap(), *data);
    }
}

#[test]
fn a_server_that_drains_leaves_what_was_not_begun_to_the_next() {
    // Waiting calls can use a quarter of the memory: one of these at a time.
    let settings = "[limits]\nmemory = 40000000\n";
    let options = ["--workers", "1", "--no-sandbox"];
    let mut server = durable(&options).config(settings).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    // The call ends when the test opens the other end.
    let gate = server.folder().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
    let read_gate = connection.function("read_gate").unwrap();
    let name = Argument::Scalar(Scalar::Text(gate.to_str().unwrap().into()));
    let first = read_gate.submit(&mut [name, int(0)], None).unwrap();
    let data = vec![9; 4_000_000];
    let submit = |_| {
        let arguments = &mut [Argument::Skip, Argument::In(&data), int(data.len() as i64)];
        copy.submit(arguments, None).unwrap()
    };
    let jobs: Vec<DurableCall> = (0..6).map(submit).collect();
    let last = connect(&server.socket()).job(jobs[5].id());
    let waits = std::thread::spawn(move || fetch(&last, 4_000_000));
    wait_until("the first one runs", || {
        first.status().unwrap().state == DurableState::Running
    });
    server.drain();
    let waited = waits.join().unwrap();
    assert!(waited.is_err(), "it waits for nothing that comes");
    std::fs::OpenOptions::new().write(true).open(&gate).unwrap();
    assert!(server.ended());
    server.restart();
    let connection = connect(&server.socket());
    assert_eq!(
        connection.job(first.id()).status().unwrap().state,
        DurableState::Done,
        "what ran has ended"
    );
    for job in &jobs {
        assert_eq!(fetch(&connection.job(job.id()), data.len()).unwrap(), data);
    }
}

#[test]
fn a_server_that_takes_over_has_the_submitted_calls_of_the_one_before() {
    let mut server = durable(&["--workers", "1"]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let nap = connection.function("nap").unwrap();
    let arguments = &mut [Argument::Skip, Argument::In(b"abc"), int(3)];
    let done = copy.submit(arguments, None).unwrap();
    fetch(&done, 3).unwrap();
    let running = nap.submit(&mut [int(2_000_000)], None).unwrap();
    wait_until("it runs", || {
        running.status().unwrap().state == DurableState::Running
    });
    drop(connection);
    server.take_over();
    let connection = connect(&server.socket());
    wait_until("the calls are there", || match connection.jobs() {
        Ok(jobs) => jobs.len() == 2,
        Err(Error::Failed(failure)) if failure.kind == FailureKind::Busy => false,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(fetch(&connection.job(done.id()), 3).unwrap(), b"abc");
    let state = connection.job(running.id()).status().unwrap().state;
    assert_eq!(state, DurableState::Done, "the server before has ended it");
}

#[test]
fn more_than_a_user_may_have_is_refused() {
    let limits = "[jobs]\nper_user = 3\nbytes_per_user = 100000\n";
    let server = durable(&[]).config(limits).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let submit = |length: usize| {
        let data = vec![7; length];
        let arguments = &mut [Argument::Skip, Argument::In(&data), int(length as i64)];
        copy.submit(arguments, None)
    };
    let refused = |result: Result<DurableCall, Error>| match result {
        Err(Error::Failed(failure)) => assert_eq!(failure.kind, FailureKind::QuotaExceeded),
        other => panic!("{other:?}"),
    };
    refused(submit(60_000));
    let jobs: Vec<DurableCall> = (0..3).map(|_| submit(1000).unwrap()).collect();
    refused(submit(1000));
    jobs[0].forget().unwrap();
    submit(1000).unwrap();
    refused(submit(1000));
}

#[test]
fn an_outcome_expires() {
    let server = durable(&[]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let arguments = &mut [Argument::Skip, Argument::In(b"abc"), int(3)];
    let job = copy
        .submit(arguments, Some(Duration::from_secs(1)))
        .unwrap();
    assert_eq!(fetch(&job, 3).unwrap(), b"abc");
    wait_until("it is forgotten", || connection.jobs().unwrap().is_empty());
    match job.status() {
        Err(Error::Failed(failure)) => assert_eq!(failure.kind, FailureKind::NotFound),
        other => panic!("{other:?}"),
    }
    let state = server.state();
    wait_until("no file is left behind", || files(&state).is_empty());
}

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
    let submit = |length: usize| {
        let data = vec![5; length];
        let arguments = &mut [Argument::Skip, Argument::In(&data), int(length as i64)];
        copy.submit(arguments, None)
    };
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
    let running = nap.submit(&mut [int(400_000)], None).unwrap();
    wait_until("it runs", || {
        running.status().unwrap().state == DurableState::Running
    });
    let mut file = std::fs::File::create(&filler).unwrap();
    let full = std::iter::repeat_with(|| file.write_all(&[1; 4096])).find_map(Result::err);
    assert_eq!(full.unwrap().kind(), std::io::ErrorKind::StorageFull);
    // The present page of the logs may have room for a few records.
    let failure = (0..1000).find_map(|_| match nap.submit(&mut [int(1)], None) {
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
    let submit = |data: &[u8]| {
        let length = int(data.len() as i64);
        copy.submit(&mut [Argument::Skip, Argument::In(data), length], None)
    };
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
    std::fs::rename(server.state(), server.folder().join("damaged")).unwrap();
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

/// Needs root, and `setpriv`.
#[test]
fn nobody_reaches_the_calls_of_another_user() {
    // SAFETY: a plain system call.
    if unsafe { libc::getuid() } != 0 {
        eprintln!("SKIPPED: two users on one host need root");
        return;
    }
    let server = durable(&[]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let arguments = &mut [Argument::Skip, Argument::In(b"abc"), int(3)];
    let job = copy.submit(arguments, None).unwrap();
    fetch(&job, 3).unwrap();
    let id = job.id().to_string();
    let own = server.as_user(0, &["jobs"]);
    assert!(own.contains(&id), "{own}");
    let other = server.as_user(65_534, &["jobs"]);
    assert_eq!(other, "", "another user sees nothing");
    for command in [
        &["fetch", &id][..],
        &["cancel", &id],
        &["cancel", &id, "--forget"],
    ] {
        let said = server.as_user(65_534, command);
        assert!(said.contains("there is no durable call"), "{said}");
    }
    let guessed = server.as_user(65_534, &["fetch", &"0".repeat(32)]);
    assert_eq!(
        guessed.replace(&"0".repeat(32), &id),
        server.as_user(65_534, &["fetch", &id]),
        "what exists and what does not looks alike"
    );
    // Over TCP a client could belong to any user.
    let options = Options {
        same_host: false,
        ..Options::default()
    };
    let anybody = Server::connect(server.address(), options).unwrap();
    assert_eq!(anybody.jobs().unwrap(), []);
    assert!(anybody.job(job.id()).cancel().is_err());
    assert_eq!(job.status().unwrap().state, DurableState::Done);
}

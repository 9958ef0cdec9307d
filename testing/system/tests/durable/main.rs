//! Tests of durable calls with real processes, and a server that is killed at random moments. Every
//! acknowledged call has exactly one outcome, and the right one. `damage`, `queued` and `slow` are
//! further subjects.

mod damage;
mod queued;
mod slow;

use farcall_client::{
    Argument, DurableCall, DurableState, DurableStatus, Error, FailureKind, Function, JobId,
    Options, Scalar, Server,
};
use farcall_system::server::{Serving, connect};
use farcall_system::{ServerProcess, wait_until};
use std::collections::BTreeMap;
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

/// Submits a call of `copy` of [`FUNCTIONS`].
fn submit_copy(copy: &Function, data: &[u8]) -> Result<DurableCall, Error> {
    let length = int(data.len() as i64);
    copy.submit(&mut [Argument::Skip, Argument::In(data), length], None)
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

/// Adds one to each element, then sleeps.
const ADD: &str = "Module add;
Globals { #include <unistd.h> }
Define add(INOUT char x[n], IN int n, IN int us) Repeatable \"yes\"
{ for (int i = 0; i < n; i++) x[i]++; usleep(us); }
Define add_once(INOUT char x[n], IN int n, IN int us)
{ for (int i = 0; i < n; i++) x[i]++; usleep(us); }
";

/// The processes that a process has started.
fn children(id: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let list = task.unwrap().path().join("children");
        let text = std::fs::read_to_string(list).unwrap_or_default();
        let numbers = text.split_whitespace().map(|word| word.parse().unwrap());
        numbers.collect::<Vec<i32>>()
    };
    tasks.flat_map(of_task).collect()
}

#[test]
fn repeatable_calls_survive_any_worker_that_is_killed() {
    const BYTES: usize = 100_000;
    let options = ["--allow-code", "--workers", "2"];
    let server = ServerProcess::of(&[ADD])
        .durable()
        .options(&options)
        .start();
    let client = server.connect();
    let submit = |name: &str, number: u8| {
        let data = vec![number; BYTES];
        let arguments = &mut [Argument::In(&data), int(BYTES as i64), int(100_000)];
        client
            .function(name)
            .unwrap()
            .submit(arguments, None)
            .unwrap()
    };
    let jobs: Vec<DurableCall> = (0..12).map(|number| submit("add", number)).collect();
    let once: Vec<DurableCall> = (0..4).map(|number| submit("add_once", number)).collect();
    // Fewer rounds than the workers that one call may lose: 10.
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(60));
        // All at once: a call must not lose a second worker in the same round.
        for worker in children(server.id()) {
            // A worker that has ended meanwhile belongs to no call.
            let worker = rustix::process::Pid::from_raw(worker).unwrap();
            let _ = rustix::process::kill_process(worker, rustix::process::Signal::KILL);
        }
    }
    for (number, job) in jobs.iter().enumerate() {
        let x = fetch(job, BYTES).unwrap();
        assert!(
            x.iter().all(|byte| usize::from(*byte) == number + 1),
            "call {number}"
        );
    }
    for (number, job) in once.iter().enumerate() {
        match fetch(job, BYTES) {
            Ok(x) => assert!(x.iter().all(|byte| usize::from(*byte) == number + 1)),
            Err(error) => assert!(error.to_string().contains("killed"), "{error}"),
        }
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

/// A library that was registered is gone after a restart, and its calls wait for it.
#[test]
fn calls_wait_for_a_function_that_the_next_server_lacks() {
    let mut server = durable(&["--pes", "1"]).start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    nap.submit(&mut [int(60_000_000)], None).unwrap();
    let copy = connection.function("copy").unwrap();
    let (text, mut back) = ([7; 5], [0; 5]);
    let mut arguments = [Argument::Out(&mut back), Argument::In(&text), int(5)];
    let id = copy.submit(&mut arguments, None).unwrap().id();
    server.kill();
    let other = "Module other; Library \"libc.so.6\"; Define other(IN int n) Calls \"C\" abs(n);";
    std::fs::write(server.interface(), other).unwrap();
    server.restart();

    let job = connect(&server.socket()).job(id);
    wait_until("the call is there", || job.status().is_ok());
    let said = farcall_system::farcall()
        .args(["jobs", &server.socket()])
        .output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    assert!(said.contains("waits for its function"), "{said}");
    assert_eq!(job.status().unwrap().state, DurableState::Queued);
    let idl = server.folder().join("copy.idl");
    std::fs::write(&idl, FUNCTIONS).unwrap();
    let registered = farcall_system::farcall()
        .args(["register", idl.to_str().unwrap(), &server.socket()])
        .status();
    assert!(registered.unwrap().success());
    wait_until("the call ends", || job.status().unwrap().state.is_over());
    assert_eq!(fetch(&job, 5).unwrap(), text);
}

#[test]
fn a_folder_that_cannot_be_taken_over_is_tried_again() {
    let mut server = durable(&[]).start();
    let connection = connect(&server.socket());
    let nap = connection.function("nap").unwrap();
    let job = nap.submit(&mut [int(300_000)], None).unwrap();
    let (folder, state) = (server.folder().to_owned(), server.folder().join("state"));
    let move_logs = |from: &Path, to: &Path| {
        for name in ["calls.a.log", "calls.b.log"] {
            std::fs::rename(from.join(name), to.join(name)).unwrap();
        }
    };
    move_logs(&state, &folder);
    server.take_over();
    // The server before is gone, and there is nothing to take over for a moment.
    std::thread::sleep(Duration::from_millis(200));
    move_logs(&folder, &state);
    let job = connect(&server.socket()).job(job.id());
    wait_until("the call is there and ends", || {
        job.status().unwrap().state == DurableState::Done
    });
}

#[test]
fn more_than_a_user_may_have_is_refused() {
    let limits = "[jobs]\nper_user = 3\nbytes_per_user = 100000\n";
    let server = durable(&[]).config(limits).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let submit = |length: usize| submit_copy(&copy, &vec![7; length]);
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
fn more_than_a_group_may_have_is_refused() {
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    let config = format!(
        "[groups.physics]\nusers = [\"alice\", \"{uid}\"]\ndurable_calls = 3\n\
         durable_bytes = 100_000\n[groups.others]\nusers = [\"bob\"]\ndurable_calls = 1\n"
    );
    let server = durable(&[]).config(&config).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let submit = |length: usize| submit_copy(&copy, &vec![1; length]);
    let refused = |length: usize| match submit(length) {
        Err(Error::Failed(failure)) => failure,
        other => panic!("{other:?}"),
    };
    let failure = refused(90_000);
    assert_eq!(failure.kind, FailureKind::QuotaExceeded);
    assert!(
        failure.message.contains("groups.physics.durable_bytes"),
        "{failure}"
    );
    let jobs: Vec<DurableCall> = (0..3).map(|_| submit(10).unwrap()).collect();
    for job in &jobs {
        assert_eq!(fetch(job, 10).unwrap(), [1; 10]);
    }
    let failure = refused(10);
    assert!(
        failure.message.contains("groups.physics.durable_calls"),
        "{failure}"
    );
    let status: serde_json::Value = serde_json::from_str(&connection.status().unwrap()).unwrap();
    let group = |name: &str| {
        let mut groups = status["groups"].as_array().unwrap().iter();
        groups.find(|one| one["group"] == name).cloned()
    };
    let physics = group("physics").unwrap();
    assert_eq!(
        (&physics["calls"], &physics["durable_calls"]),
        (&3.into(), &3.into())
    );
    assert!(physics["pe_seconds"].as_f64().unwrap() > 0.0, "{physics}");
    assert_eq!(group("others").unwrap()["calls"], 0);
    jobs[0].forget().unwrap();
    submit(10).unwrap();
}

#[test]
fn an_outcome_expires() {
    let server = durable(&[]).start();
    let connection = connect(&server.socket());
    let copy = connection.function("copy").unwrap();
    let arguments = &mut [Argument::Skip, Argument::In(b"abc"), int(3)];
    let job = copy
        .submit(arguments, Some(Duration::from_secs(5)))
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
    // The system knows who has opened a connection within the host.
    let copy = anybody.function("copy").unwrap();
    let arguments = &mut [Argument::Skip, Argument::In(b"abc"), int(3)];
    fetch(&copy.submit(arguments, None).unwrap(), 3).unwrap();
    let status = connection.status().unwrap();
    assert!(status.contains("\"local:0\""), "{status}");
    assert_eq!(job.status().unwrap().state, DurableState::Done);
}

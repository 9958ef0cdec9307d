//! Operating a server: status, metrics, stop, and replacement by another server.

use farcall_client::{Argument, DurableState, Error, Options, Pending, Scalar, Server};
use farcall_system::{ServerProcess, farcall_path, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const IDL: &str = "Module system;
Library \"libc.so.6\";
Define nap(IN int us) CalcOrder us Calls \"C\" usleep(us);
Define crash(IN int n) Calls \"C\" abort(n);
Define read_gate(IN string gate, IN int mode) Calls \"C\" open(gate, mode);
";

/// Serves the library with a state folder.
fn start(listen: &str, options: &[&str]) -> ServerProcess {
    let server = ServerProcess::of(&[IDL]).options(&["--listen", listen, "--state", "state"]);
    server.options(options).start()
}

fn farcall(arguments: &[&str]) -> Output {
    let mut command = farcall_system::farcall();
    command.args(arguments).output().unwrap()
}

fn status(address: &str) -> serde_json::Value {
    let output = farcall(&["status", address, "--json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn micros(count: i64) -> [Argument<'static>; 1] {
    [Argument::Scalar(Scalar::Int(count))]
}

/// A pipe: a call runs until the other end is opened. The sandbox would deny access to it.
struct Gate(PathBuf);

impl Gate {
    fn new(server: &ServerProcess) -> Gate {
        let gate = server.folder().join("gate");
        rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
        Gate(gate)
    }

    fn call(&self, connection: &Server) -> Pending {
        let name = Argument::Scalar(Scalar::Text(self.0.to_str().unwrap().into()));
        let arguments = &mut [name, Argument::Scalar(Scalar::Int(0))];
        let function = connection.function("read_gate").unwrap();
        // SAFETY: the call has no arrays.
        unsafe { function.start(arguments) }.unwrap()
    }

    fn open(self) {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).open(&self.0).unwrap();
    }
}

#[test]
fn status_and_metrics_tell_of_calls() {
    let metrics = free_address();
    let options = ["--metrics", &metrics, "--policy", "sjf", "--pes", "3"];
    let server = start("127.0.0.1:0", &[&options[..], &["--no-sandbox"]].concat());
    let connection = server.connect();
    let nap = connection.function("nap").unwrap();
    for _ in 0..3 {
        nap.call(&mut micros(2000)).unwrap();
    }
    let crash = connection.function("crash").unwrap().call(&mut micros(0));
    assert!(crash.is_err());
    let gate = Gate::new(&server);
    let running = gate.call(&connection);
    let address = server.address();
    wait_until("the running call", || {
        let _ = running.is_done();
        status(address)["jobs"]["running"] == 1
    });
    let shown = status(address);
    assert_eq!(shown["schema"], 1);
    assert_eq!(
        (&shown["policy"], &shown["pes"]),
        (&"sjf".into(), &3.into())
    );
    assert_eq!(shown["pes_used"], 1);
    let functions = shown["functions"].as_array().unwrap();
    let named = |name: &str| functions.iter().find(|f| f["name"] == name).unwrap();
    assert_eq!(named("system/nap")["done"], 3);
    assert!(named("system/nap")["exec_s"].as_f64().unwrap() >= 2e-3);
    assert!(
        named("system/nap")["learned"]["operations_per_s"]
            .as_f64()
            .unwrap()
            < 1e6
    );
    assert_eq!(named("system/crash")["failed"], 1);
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    assert_eq!(shown["users"][0]["user"], uid.as_str());
    let text = scrape(&metrics);
    for line in [
        "farcall_calls_total{function=\"system/nap\",outcome=\"done\"} 3",
        "farcall_calls_total{function=\"system/crash\",outcome=\"failed\"} 1",
        "farcall_calls{state=\"running\"} 1",
        "farcall_pes_used 1",
        "farcall_exec_seconds_count 3",
        "farcall_function_exec_seconds_count{function=\"system/nap\"} 3",
        &format!("farcall_user_calls_total{{user=\"{uid}\"}} 3"),
        "# TYPE farcall_backlog_seconds gauge",
    ] {
        assert!(
            text.lines().any(|shown| shown == line),
            "no `{line}` in\n{text}"
        );
    }
    let people = farcall(&["status", address]);
    let people = String::from_utf8(people.stdout).unwrap();
    assert!(people.contains("PEs          1 of 3 in use"), "{people}");
    gate.open();
    running.wait().unwrap();
}

/// An address at which nothing listens now.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    text
}

#[test]
fn a_draining_server_ends_its_calls_and_takes_no_more() {
    for by_signal in [false, true] {
        let mut server = start("127.0.0.1:0", &["--no-sandbox"]);
        let connection = server.connect();
        let nap = connection.function("nap").unwrap();
        let gate = Gate::new(&server);
        let running = gate.call(&connection);
        let address = server.address().to_string();
        wait_until("the running call", || {
            let _ = running.is_done();
            status(&address)["jobs"]["running"] == 1
        });
        if by_signal {
            server.drain();
        } else {
            let output = farcall(&["drain", &address]);
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(said, "draining; calls under way: 1\n");
        }
        wait_until("the closed port", || {
            TcpStream::connect(server.host_and_port()).is_err()
        });
        let refused = nap.call(&mut micros(1)).unwrap_err();
        assert!(matches!(&refused, Error::Failed(_)), "{refused}");
        assert!(refused.to_string().contains("draining"), "{refused}");
        assert!(server.is_running(), "its call is not done");
        gate.open();
        running.wait().unwrap();
        assert!(server.ended());
    }
}

#[test]
fn another_server_takes_over_and_no_call_is_lost() {
    let mut servers = vec![start("127.0.0.1:0", &[])];
    let listen = servers[0].host_and_port().to_string();
    let refused = farcall_system::farcall()
        .args(["serve", "--listen", &listen])
        .arg(servers[0].interface())
        .output()
        .unwrap();
    assert!(
        String::from_utf8(refused.stderr)
            .unwrap()
            .contains("--takeover")
    );
    let (over, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let client = |server: Server, fresh: bool| {
        let mut nap = server.function("nap").unwrap();
        while !over.load(Ordering::Relaxed) {
            if fresh {
                let server = Server::connect(&format!("farcall://{listen}"), Options::default());
                nap = server.unwrap().function("nap").unwrap();
            }
            nap.call(&mut micros(300)).unwrap();
            calls.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        // The clients must end in any case.
        let guard = EndOnDrop(&over);
        for index in 0..4 {
            let server = servers[0].connect();
            scope.spawn(move || client(server, index == 3));
        }
        for round in 1..=5 {
            let before = calls.load(Ordering::Relaxed);
            wait_until("the next calls", || {
                calls.load(Ordering::Relaxed) > before + 20
            });
            let next = start(&listen, &["--takeover"]);
            let mut last = servers.pop().unwrap();
            assert!(last.ended(), "round {round}");
            servers.push(next);
        }
        let before = calls.load(Ordering::Relaxed);
        wait_until("the last calls", || {
            calls.load(Ordering::Relaxed) > before + 20
        });
        drop(guard);
    });
}

/// Submits calls, starts calls and fetches results, until told to stop. Returns the number of
/// calls, and the errors.
fn use_server(address: &str, kind: usize, over: &AtomicBool) -> (usize, Vec<String>) {
    let connect = || Server::connect(address, Options::default());
    let (mut done, mut errors) = (0, Vec::new());
    let server = connect().unwrap();
    let nap = server.function("nap").unwrap();
    while !over.load(Ordering::Relaxed) {
        let arguments = &mut micros(300);
        let made = match kind {
            0 => nap.submit(arguments, None).and_then(|job| {
                let mut none = [Argument::Skip];
                job.describe()?.fetch(&mut none).map(drop)
            }),
            // SAFETY: the call has no arrays.
            1 => unsafe { nap.start(arguments) }.and_then(|call| call.wait().map(drop)),
            2 => connect().and_then(|server| {
                let job = server.function("nap")?.submit(arguments, None)?;
                job.status()?;
                server.jobs()?;
                job.forget().map(drop)
            }),
            _ => {
                // SAFETY: the calls have no arrays.
                let calls = [(); 8].map(|()| unsafe { nap.start(&mut micros(50)) });
                let calls = calls.into_iter().map(|call| call?.wait());
                calls.collect::<Result<Vec<_>, _>>().map(drop)
            }
        };
        match made {
            Ok(()) => done += 1,
            Err(error) => errors.push(format!("{kind}: {error}")),
        }
    }
    (done, errors)
}

#[test]
fn a_takeover_refuses_no_submission_and_fails_no_future() {
    let mut server = ServerProcess::of(&[IDL]).durable().start();
    let addresses = [server.address().to_string(), server.socket()];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The clients must end in any case.
        let guard = EndOnDrop(&over);
        let clients: Vec<_> = (0..8)
            .map(|number| {
                let (address, over) = (&addresses[number / 4], &over);
                scope.spawn(move || use_server(address, number % 4, over))
            })
            .collect();
        for _ in 0..3 {
            let asked = server.connect().function("nap").unwrap();
            let job = asked.submit(&mut micros(300), None).unwrap();
            wait_until("a call of this server", || {
                job.status().unwrap().state == DurableState::Done
            });
            server.take_over();
        }
        drop(guard);
        let mut made = 0;
        for client in clients {
            let (done, errors) = client.join().unwrap();
            let (count, mut kinds) = (errors.len(), errors);
            kinds.sort_unstable();
            kinds.dedup();
            assert!(kinds.is_empty(), "{count} of {}: {kinds:#?}", done + count);
            made += done;
        }
        println!("{made} rounds through 3 takeovers");
        assert!(made > 24, "{made}");
    });
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn the_systemd_unit_is_accepted() {
    let unit = include_str!("../../../docs/farcall.service");
    let folder = std::env::temp_dir().join(format!("farcall-unit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("farcall.service");
    // Only the path of the program differs.
    let program = farcall_path();
    std::fs::write(&path, unit.replace("/usr/local/bin/farcall", program)).unwrap();
    let run = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&path)
        .output();
    match run {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            assert!(!said.contains("farcall.service"), "{said}");
        }
        Err(error) => println!("SKIPPED: systemd-analyze: {error}"),
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn output_that_cannot_be_written_is_a_failure_with_its_cause() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let server = start("127.0.0.1:0", &[]);
    let output = farcall_system::farcall()
        .args(["ls", server.address()])
        .stdout(full.unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with("error: cannot write to standard output: No space left"),
        "{text}"
    );
}

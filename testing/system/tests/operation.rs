//! Tests the operation of a server: status, metrics, stop, and replacement by another server. A
//! replacement loses no call.

use farcall_client::{Argument, DurableState, Error, Options, Pending, Scalar, Server};
use farcall_system::{ServerProcess, farcall_path, free_addresses, wait_until};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

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
    let [metrics] = free_addresses();
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
        "farcall_active_calls{state=\"running\"} 1",
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
    let mut names: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE "))
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup_by_key(|line| line.split(' ').nth(2));
    assert_eq!(names.len(), count, "a metric comes twice in\n{text}");
    let people = farcall(&["status", address]);
    let people = String::from_utf8(people.stdout).unwrap();
    assert!(people.contains("PEs          1 of 3 in use"), "{people}");
    gate.open();
    running.wait().unwrap();
}

/// The status and the text of `/healthz` or `/readyz`.
fn health(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head["HTTP/1.1 ".len()..][..3].to_owned(), body.to_owned())
}

fn told(status: &str, text: &str) -> (String, String) {
    (status.to_owned(), text.to_owned())
}

#[test]
fn a_server_is_ready_from_its_start_to_its_end() {
    let folder = farcall_system::server::folder();
    let interface = folder.path().join("slow.idl");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &interface,
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    let [address] = free_addresses();
    let at = address.clone();
    // The server cannot read its interface file until somebody writes it.
    let asks = std::thread::spawn(move || {
        let mut first = None;
        wait_until("the server starts", || {
            first = TcpStream::connect(&at).ok();
            first.is_some()
        });
        let seen = [health(&at, "/healthz"), health(&at, "/readyz")];
        std::fs::write(&interface, IDL).unwrap();
        seen
    });
    let server = ServerProcess::within(folder.path(), &["slow.idl"])
        .options(&["--metrics", &address, "--no-sandbox", "--pes", "1"])
        .start();
    let [alive, starting] = asks.join().unwrap();
    assert_eq!(alive, told("200", "alive\n"));
    assert_eq!(starting, told("503", "the server is starting\n"));
    assert_eq!(health(&address, "/readyz"), told("200", "ready\n"));
    let connection = server.connect();
    let gate = Gate::new(&server);
    let running = gate.call(&connection);
    wait_until("the running call", || {
        let _ = running.is_done();
        status(server.address())["jobs"]["running"] == 1
    });
    assert!(
        farcall(&["server", "drain", server.address()])
            .status
            .success()
    );
    let text = "the server is draining; calls under way: 1\n";
    assert_eq!(health(&address, "/readyz"), told("503", text));
    assert_eq!(health(&address, "/healthz"), told("200", "alive\n"));
    assert!(scrape(&address).contains("\nfarcall_ready 0\n"));
    gate.open();
    running.wait().unwrap();
}

#[test]
fn a_server_whose_disk_refuses_is_not_ready() {
    let [address] = free_addresses();
    let Some(serving) = ServerProcess::with_small_disk(&[IDL]) else {
        println!("SKIPPED: a small disk needs root");
        return;
    };
    let server = serving.options(&["--metrics", &address]).start();
    assert_eq!(health(&address, "/readyz").0, "200");
    let filler = server.state().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 1 << 16]).is_ok() {}
    while file.write_all(&[0; 1]).is_ok() {}
    let connection = server.connect();
    let nap = connection.function("nap").unwrap();
    // The present page of the logs may have room for a few records.
    let refused = (0..1000).any(|_| nap.submit(&mut micros(1), None).is_err());
    assert!(refused);
    let (status, text) = health(&address, "/readyz");
    assert!(
        status == "503" && text.contains("is full"),
        "{status} {text}"
    );
    assert_eq!(health(&address, "/healthz").0, "200");
    drop(file);
    std::fs::remove_file(filler).unwrap();
    // It notices without a call that there is room again.
    wait_until("the server is ready again", || {
        health(&address, "/readyz") == told("200", "ready\n")
    });
    nap.submit(&mut micros(1), None).unwrap();
}

/// A metaserver knows no server until it has read its store.
#[test]
fn a_metaserver_is_ready_once_it_has_read_its_store() {
    let folder = farcall_system::server::folder();
    let store = folder.path().join("missing");
    let [address] = free_addresses();
    let mut command = farcall_system::farcall();
    let named = format!("sqlite:{}", store.join("meta.db").display());
    command.args(["meta", "--listen", "127.0.0.1:0", "--log", "error"]);
    command.args(["--store", &named, "--metrics", &address]);
    let _metaserver = farcall_lab::Daemon::start(command).unwrap();
    let (status, text) = health(&address, "/readyz");
    assert_eq!(
        (status.as_str(), text),
        ("503", format!("the metaserver has not read {named} yet\n"))
    );
    std::fs::create_dir(&store).unwrap();
    wait_until("the store is read", || {
        health(&address, "/readyz") == told("200", "ready\n")
    });
}

#[test]
fn daemons_tell_systemd_when_they_are_ready() {
    let folder = farcall_system::server::folder();
    std::fs::write(folder.path().join("system.idl"), IDL).unwrap();
    let path = folder.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let patience = Some(Duration::from_secs(20));
    socket.set_read_timeout(patience).unwrap();
    let control = format!("@farcall-notify-{}", std::process::id());
    let daemons: [&[&str]; 3] = [
        &["serve", "system.idl", "--listen", "127.0.0.1:0"],
        &["meta", "--listen", "127.0.0.1:0"],
        &[
            "gang",
            "daemon",
            "--listen",
            "127.0.0.1:0",
            "--control",
            &control,
        ],
    ];
    for words in daemons {
        let mut command = farcall_system::farcall();
        command
            .args(words)
            .args(["--log", "error", "--log-format", "json"]);
        command
            .current_dir(folder.path())
            .env("XDG_STATE_HOME", folder.path())
            .env("NOTIFY_SOCKET", &path);
        let _daemon = farcall_lab::Daemon::start(command).unwrap();
        let mut text = [0; 100];
        let count = socket.recv(&mut text).expect("a message");
        assert_eq!(&text[..count], b"READY=1\n", "{words:?}");
    }
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
        .env("XDG_STATE_HOME", servers[0].folder())
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

#[test]
fn a_takeover_with_a_wrong_metaserver_leaves_the_server_before() {
    let mut server = start("127.0.0.1:0", &[]);
    let listen = server.host_and_port().to_string();
    for option in [&["--metaserver", "http://host:1"][..], &[]] {
        let mut command = farcall_system::farcall();
        command.args(["serve", "--takeover", "--listen", &listen]);
        command.arg(server.interface()).args(option);
        command.env("FARCALL_METASERVER", "http://host:1");
        command.env("XDG_STATE_HOME", server.folder());
        let refused = command.output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("http://host:1"), "{said}");
        assert!(!refused.status.success() && server.is_running());
        // A draining server refuses calls.
        let nap = server.connect().function("nap").unwrap();
        nap.call(&mut micros(1)).unwrap();
    }
}

#[test]
fn a_server_that_takes_over_gets_the_addresses_of_metrics_and_page() {
    let [metrics, page] = free_addresses();
    let options = ["--metrics", &metrics, "--web", &page, "--no-sandbox"];
    let mut first = start("127.0.0.1:0", &options);
    let listen = first.host_and_port().to_string();
    let connection = first.connect();
    let gate = Gate::new(&first);
    let running = gate.call(&connection);
    wait_until("the running call", || {
        let _ = running.is_done();
        status(first.address())["jobs"]["running"] == 1
    });
    let next = start(&listen, &[&options[..], &["--takeover"]].concat());
    // The first server answers there until it ends.
    let text = "the server is draining; calls under way: 1\n";
    wait_until("the first server drains", || {
        health(&metrics, "/readyz") == told("503", text)
    });
    gate.open();
    running.wait().unwrap();
    assert!(first.ended());
    for (address, path) in [(&metrics, "/readyz"), (&page, "/")] {
        wait_until("the next server answers", || {
            TcpStream::connect(address).is_ok() && health(address, path).0 == "200"
        });
    }
    drop(next);
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

/// systemd accepts the units. Their exposure, as `systemd-analyze security` computes it, is below
/// the figure in docs/operating.md.
#[test]
fn the_systemd_units_are_accepted_and_hardened() {
    let units = [
        (
            "farcall.service",
            include_str!("../../../docs/farcall.service"),
            3.0,
        ),
        (
            "farcall-meta.service",
            include_str!("../../../docs/farcall-meta.service"),
            3.0,
        ),
        (
            "farcall-gang.service",
            include_str!("../../../docs/farcall-gang.service"),
            5.0,
        ),
        (
            "farcall-trunk@.service",
            include_str!("../../../docs/farcall-trunk@.service"),
            3.0,
        ),
    ];
    let folder = farcall_system::server::folder();
    for (name, unit, most) in units {
        // Those that need other machines at the start do not give up before the network is there.
        let needs_network = name.contains("gang") || name.contains("trunk");
        let waits = unit.contains("\nStartLimitIntervalSec=0\n");
        assert!(!needs_network || waits, "{name}");
        let path = folder.path().join(name);
        // Only the path of the program differs.
        std::fs::write(
            &path,
            unit.replace("/usr/local/bin/farcall", farcall_path()),
        )
        .unwrap();
        let analyze = |words: &[&str]| {
            Command::new("systemd-analyze")
                .args(words)
                .arg(&path)
                .output()
        };
        let verified = match analyze(&["verify"]) {
            Ok(output) => output,
            Err(error) => return println!("SKIPPED: systemd-analyze: {error}"),
        };
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(
            verified.status.success() && !said.contains("farcall"),
            "{said}"
        );
        let rated = analyze(&["security", "--offline=true", "--no-pager"]).unwrap();
        let said = String::from_utf8_lossy(&rated.stdout).into_owned();
        let figure = said
            .rsplit_once("exposure level for ")
            .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<f64>().ok());
        let Some(figure) = figure else {
            println!("SKIPPED: this systemd-analyze rates no files: {said}");
            continue;
        };
        assert!(figure < most, "{name}: {figure}\n{said}");
    }
}

/// What the configuration shows as examples works for a server that systemd starts.
#[test]
fn a_server_under_systemd_can_write_where_the_configuration_shows() {
    let unit = include_str!("../../../docs/farcall.service");
    let shown = include_str!("../../../docs/farcall.toml");
    for (setting, directory, root) in [
        ("unix", "RuntimeDirectory", "/run"),
        ("audit", "LogsDirectory", "/var/log"),
        ("state", "StateDirectory", "/var/lib"),
    ] {
        let begin = format!("# {setting} = \"");
        let path = shown.lines().find_map(|line| line.strip_prefix(&begin));
        let path = path.and_then(|rest| rest.split('"').next()).unwrap();
        let begin = format!("{directory}=");
        let name = unit.lines().find_map(|line| line.strip_prefix(&begin));
        let name = name.unwrap_or_else(|| panic!("the unit has no {directory} for {path}"));
        let folder = std::path::Path::new(root).join(name);
        assert!(std::path::Path::new(path).starts_with(&folder), "{path}");
    }
}

#[test]
fn a_server_waits_for_the_socket_that_a_killed_one_has_left_to_a_child() {
    let mut process = start("127.0.0.1:0", &["--unix", "socket"]);
    process.kill();
    let path = process.folder().join("socket");
    std::fs::remove_file(&path).unwrap();
    let held = UnixListener::bind(&path).unwrap();
    let child = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(held);
    });
    process.restart();
    status(&format!("unix://{}", path.display()));
    child.join().unwrap();
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

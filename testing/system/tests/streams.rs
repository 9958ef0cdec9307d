//! Large arrays over several links, between network namespaces. Needs root, `ip` and `tc`; prints
//! SKIPPED without them. A test with a proxy needs none of them.

use farcall_client::{
    Argument, Credentials, Error, Function, Options, Pending, Scalar, Server, wait_any,
};
use farcall_lab::{Lab, LabError, Shape};
use farcall_system::{BOUND, Daemon, farcall, farcall_path, wait_until};
use rustix::process::Signal;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::SplitWhitespace;
use std::thread;
use std::time::{Duration, Instant};

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n)
    Repeatable \"yes\" Calls \"C\" memcpy(out, in, n);
Define fill(OUT char out[n], IN int value, IN long n)
    Calls \"C\" memset(out, value, n);
Define gate(IN string gate, IN int mode, IN long n, INOUT char array[n])
    Calls \"C\" open(gate, mode, array);
";
/// Slow enough that a busy machine makes no difference.
const SHAPE: Shape = Shape::FAST_ETHERNET;
const BYTES: usize = 33 << 20;
/// The share of bytes on the lesser link: at most the first if one link is used, at least the
/// second if both are.
const ONE: f64 = 0.02;
const BOTH: f64 = 0.15;

/// Two hosts with two links; `None` without root.
fn lab() -> Option<Lab> {
    lab_of(Some(SHAPE))
}

fn lab_of(shape: Option<Shape>) -> Option<Lab> {
    match Lab::build(&[&[0, 1], &[0, 1]], shape) {
        Ok(lab) => Some(lab),
        Err(error @ (LabError::NotRoot | LabError::NoProgram(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A server on the first host.
struct Serving {
    process: Daemon,
    address: String,
}

impl Serving {
    fn start(lab: &Lab, folder: &Path, options: &[&str]) -> Serving {
        let idl = folder.join("system.idl");
        std::fs::write(&idl, SYSTEM).unwrap();
        let words = ["serve", idl.to_str().unwrap()];
        Serving::run(lab, folder, &[&words, options].concat())
    }

    fn run(lab: &Lab, folder: &Path, words: &[&str]) -> Serving {
        let mut command = lab.command(0, farcall_path());
        command.args(words).current_dir(folder);
        command.args(["--listen", "0.0.0.0:0", "--log", "error"]);
        let process = Daemon::start(command).unwrap();
        let host = lab.link_address(0, 0).to_string();
        Serving {
            address: process.address().replace("0.0.0.0", &host),
            process,
        }
    }
}

/// Copies an array there and back.
fn copy(function: &Function, seed: u8) {
    let source: Vec<u8> = (0..BYTES)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed)
        .collect();
    let mut result = vec![0; BYTES];
    let outcome = function.call(&mut [
        Argument::Out(&mut result),
        Argument::In(&source),
        Argument::Scalar(Scalar::Int(BYTES as i64)),
    ]);
    let times = outcome.unwrap().times;
    assert!(result == source, "the array came back changed");
    assert!(times.send > 0.0 && times.recv > 0.0 && times.total >= times.send + times.recv);
}

fn on_client<T: Send + 'static>(lab: &Lab, work: impl FnOnce() -> T + Send + 'static) -> T {
    let worker = lab.spawn(1, move || io::Result::Ok(work())).unwrap();
    worker.join().unwrap().unwrap()
}

/// Runs `work` on the client's host, and returns the share of bytes that went over the lesser link.
/// Rates are not judged, because they depend on the load of the machine.
fn lesser<T: Send + 'static>(lab: &Lab, work: impl FnOnce() -> T + Send + 'static) -> (f64, T) {
    let before = carried(lab);
    let done = on_client(lab, work);
    let carried = carried(lab);
    let bytes = carried.iter().zip(&before).map(|(now, then)| now - then);
    let (least, all) = bytes.fold((f64::INFINITY, 0.0), |(least, all), one| {
        (least.min(one), all + one)
    });
    (least / all, done)
}

/// Bytes that each of the client's links has carried, in both directions.
fn carried(lab: &Lab) -> Vec<f64> {
    let links = lab.link_names(1);
    on_client(lab, move || {
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let of = |link: &String| {
            let mut words = devices.lines().map(str::split_whitespace);
            let is_it = |words: &mut SplitWhitespace<'_>| words.next() == Some(&format!("{link}:"));
            let words: Vec<&str> = words
                .find_map(|mut one| is_it(&mut one).then(|| one.collect()))
                .unwrap();
            let [received, sent] =
                [0, 8].map(|column: usize| words[column].parse::<f64>().unwrap());
            received + sent
        };
        links.iter().map(of).collect()
    })
}

fn options(streams: usize) -> Options {
    Options {
        streams,
        timeout: Some(Duration::from_secs(60)),
        ..Options::default()
    }
}

#[test]
fn a_second_link_is_found_and_used() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(&lab, folder.path(), &[]);
    let connected = |streams| {
        let address = server.address.clone();
        on_client(&lab, move || {
            let server = Server::connect(&address, options(streams)).unwrap();
            (server.function("system/copy").unwrap(), server)
        })
    };
    let (function, _) = connected(1);
    let (part, ()) = lesser(&lab, move || copy(&function, 1));
    assert!(part < ONE, "{part} of the bytes over a second link");
    let (function, server) = connected(8);
    let found = function.clone();
    on_client(&lab, move || copy(&found, 1));
    comes_to_use_both(&lab, &function, |function| copy(function, 2));
    let left = on_client(&lab, move || server.handles().unwrap());
    assert!(left.is_empty(), "nothing is left at the server");
}

#[test]
fn a_link_that_fails_does_not_fail_the_call() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(&lab, folder.path(), &[]);
    let address = server.address.clone();
    let function = on_client(&lab, move || {
        let server = Server::connect(&address, options(8)).unwrap();
        let function = server.function("system/copy").unwrap();
        copy(&function, 3);
        function
    });
    // The link fails silently; its data go over the other link.
    lab.set_carrier(0, 1, false).unwrap();
    on_client(&lab, move || copy(&function, 4));
}

/// The server has begun with a piece that never ends, and the call writes its array.
#[test]
fn a_link_that_fails_does_not_hold_up_a_call_that_writes_its_array() {
    /// The server closes a connection that has stalled, but later.
    const LONGEST: Duration = Duration::from_secs(15);
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(&lab, folder.path(), &["--no-sandbox"]);
    let address = server.address.clone();
    let (gate, function) = on_client(&lab, move || {
        let server = Server::connect(&address, options(8)).unwrap();
        let found = ["gate", "copy"].map(|name| server.function(name).unwrap());
        let [gate, function] = found;
        copy(&function, 3);
        (gate, function)
    });
    comes_to_use_both(&lab, &function, |function| copy(function, 4));
    let before = carried(&lab);
    let call = lab.spawn(1, move || {
        let mut array = vec![7; BYTES];
        let start = Instant::now();
        let outcome = gate.call(&mut [
            Argument::Scalar(Scalar::Text("/dev/null".to_string())),
            Argument::Scalar(Scalar::Int(0)),
            Argument::Scalar(Scalar::Int(BYTES as i64)),
            Argument::Out(&mut array),
        ]);
        outcome.unwrap();
        assert!(array.iter().all(|byte| *byte == 7), "the array changed");
        io::Result::Ok(start.elapsed())
    });
    wait_until("an array on both links", || {
        let now = carried(&lab);
        now.iter().zip(&before).all(|(now, then)| now - then > 4e6)
    });
    lab.set_carrier(0, 1, false).unwrap();
    let took = call.unwrap().join().unwrap().unwrap();
    assert!(took < LONGEST, "{took:?}");
}

#[test]
fn other_connections_have_tls_and_the_token() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let address = lab.link_address(0, 0).to_string();
    let made = farcall()
        .args(["certificate", "server", "tls", &address])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let tls: PathBuf = folder.path().join("tls");
    let server = Serving::start(&lab, folder.path(), &["--tls", tls.to_str().unwrap()]);
    let address = server.address.clone();
    assert!(address.starts_with("farcalls://"));
    on_client(&lab, move || {
        let mut options = options(8);
        let authorities = tls.join("authority.pem");
        options.credentials = Credentials::default().with_authorities(authorities);
        let server = Server::connect(&address, options).unwrap();
        let function = server.function("system/copy").unwrap();
        copy(&function, 5);
        copy(&function, 6);
    });
}

#[test]
fn calls_under_way_take_turns_on_links_that_pay() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(&lab, folder.path(), &[]);
    let address = server.address.clone();
    let (before, function) = lesser(&lab, move || {
        let server = Server::connect(&address, options(8)).unwrap();
        let function = server.function("system/copy").unwrap();
        several(&function);
        function
    });
    assert!(
        before < ONE,
        "{before} of the bytes over a link not known yet"
    );
    let learned = function.clone();
    on_client(&lab, move || copy(&learned, 7));
    comes_to_use_both(&lab, &function, several);
}

/// Calls until both links carry data. On a busy machine the processor can be slower than one link,
/// so that the second one does not help yet.
fn comes_to_use_both(lab: &Lab, function: &Function, call: fn(&Function)) {
    const TRIES: usize = 8;
    let part = || {
        let function = function.clone();
        let (part, ()) = lesser(lab, move || call(&function));
        part
    };
    let mut parts = std::iter::repeat_with(part).take(TRIES);
    assert!(
        parts.any(|part| part > BOTH),
        "the second link is not used in {TRIES} calls"
    );
}

/// Copies four arrays at once.
fn several(function: &Function) {
    const EACH: usize = 8 << 20;
    let source = vec![9u8; EACH];
    let mut results = vec![vec![0u8; EACH]; 4];
    let calls: Vec<_> = results
        .iter_mut()
        .map(|result| {
            let mut arguments = [
                Argument::Out(result),
                Argument::In(&source),
                Argument::Scalar(Scalar::Int(EACH as i64)),
            ];
            // SAFETY: the arrays outlive the calls, which are waited for below.
            unsafe { function.start(&mut arguments) }.unwrap()
        })
        .collect();
    // All of them travel while the test waits for one, over any connection.
    let mut left: Vec<&Pending> = calls.iter().collect();
    while !left.is_empty() {
        wait_any(&left, None).unwrap();
        left.retain(|call| !call.has_ended());
    }
    for call in calls {
        call.wait().unwrap();
    }
    assert!(results.iter().all(|result| *result == source));
}

#[test]
fn calls_behind_a_metaserver_use_both_links() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let meta = Serving::run(&lab, folder.path(), &["meta"]);
    let _server = Serving::start(&lab, folder.path(), &["--metaserver", &meta.address]);
    let address = meta.address.replace("farcall://", "meta://");
    let function = on_client(&lab, move || {
        let server = Server::connect(&address, options(8)).unwrap();
        found(&server)
    });
    let learned = function.clone();
    on_client(&lab, move || copy(&learned, 1));
    comes_to_use_both(&lab, &function, |function| copy(function, 2));
}

/// Large arrays travel apart from their call, and the client fetches them after it.
#[test]
fn a_client_fetches_large_results_from_a_draining_server() {
    let Some(lab) = lab_of(None) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Serving::start(&lab, folder.path(), &["--no-sandbox"]);
    // The function waits until somebody opens the other end of this pipe.
    let gate = folder.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
    let (address, name) = (server.address.clone(), gate.to_str().unwrap().to_string());
    let call = lab.spawn(1, move || {
        let function = Server::connect(&address, options(2))
            .unwrap()
            .function("gate");
        let mut array = vec![7; BYTES];
        let outcome = function.unwrap().call(&mut [
            Argument::Scalar(Scalar::Text(name)),
            Argument::Scalar(Scalar::Int(0)),
            Argument::Scalar(Scalar::Int(BYTES as i64)),
            Argument::Out(&mut array),
        ]);
        assert!(
            array.iter().all(|byte| *byte == 7),
            "the array came back changed"
        );
        io::Result::Ok(outcome.map(drop).map_err(|error| error.to_string()))
    });
    wait_until("the running call", || {
        let mut status = lab.command(1, farcall_path());
        let output = status
            .args(["status", &server.address, "--json"])
            .output()
            .unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["jobs"]["running"] == 1
    });
    server.process.signal(Signal::USR1);
    wait_until("the closed port", || {
        let at = server.address.trim_start_matches("farcall://").to_string();
        on_client(&lab, move || TcpStream::connect(at).is_err())
    });
    std::fs::OpenOptions::new().write(true).open(gate).unwrap();
    assert_eq!(call.unwrap().join().unwrap().unwrap(), Ok(()));
    assert!(server.process.wait(BOUND).unwrap().unwrap().success());
}

/// The arrays of such a call travel before it, and their time counts.
#[test]
fn the_time_out_of_a_large_call_counts_from_its_start() {
    const LENGTH: usize = 2 * BYTES;
    const TIMEOUT: Duration = Duration::from_secs(10);
    /// Both links together need longer for the array.
    const LEAST: Duration = Duration::from_millis(2400);
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Serving::start(&lab, folder.path(), &["--no-sandbox"]);
    // Nobody opens the other end of this pipe.
    let gate = folder.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
    let (address, name) = (server.address.clone(), gate.to_str().unwrap().to_string());
    let (error, took) = on_client(&lab, move || {
        let options = Options {
            timeout: Some(TIMEOUT),
            ..options(8)
        };
        let server = Server::connect(&address, options).unwrap();
        let function = server.function("gate").unwrap();
        let mut array = vec![7; LENGTH];
        let start = Instant::now();
        let called = function.call(&mut [
            Argument::Scalar(Scalar::Text(name)),
            Argument::Scalar(Scalar::Int(0)),
            Argument::Scalar(Scalar::Int(LENGTH as i64)),
            Argument::Out(&mut array),
        ]);
        (called.map(drop).unwrap_err(), start.elapsed())
    });
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(took >= TIMEOUT && took < TIMEOUT + LEAST, "{took:?}");
}

/// What happens to a connection after its last byte.
#[derive(Clone, Copy)]
enum Then {
    Ends,
    Stalls,
}

/// Starts a proxy, and returns its address. The first connection leads to a server, and is slow
/// enough that another one may pay. Each other one leads to `others`, and passes `most` bytes.
/// Proxy and server have other addresses than the client, so that the client does not take them for
/// programs on its host.
fn proxy(first: &str, others: &str, most: usize, then: Then) -> String {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = format!("farcall://{}", listener.local_addr().unwrap());
    let servers = [first, others].map(|server| server.replace("farcall://", ""));
    // The thread ends with the test's process.
    thread::spawn(move || {
        for (index, client) in listener.incoming().enumerate() {
            let server = &servers[index.min(1)];
            let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let most = if index == 0 { usize::MAX } else { most };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass((client, server), most, then));
            thread::spawn(move || pass(back, most, then));
        }
    });
    address
}

/// Passes at most so many bytes.
fn pass((mut from, mut to): (TcpStream, TcpStream), most: usize, then: Then) {
    /// Time for the bytes of one write: about 60 MB/s.
    const EACH: Duration = Duration::from_millis(1);
    let mut buffer = vec![0; 64 << 10];
    let mut left = most;
    while let Ok(count @ 1..) = from.read(&mut buffer)
        && count <= left
        && to.write_all(&buffer[..count]).is_ok()
    {
        left -= count;
        thread::sleep(EACH);
    }
    // The thread ends with the test's process.
    while let Then::Stalls = then {
        thread::park();
    }
    for stream in [from, to] {
        // It may be closed already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}

/// Bytes that give time to try other connections.
const MUCH: usize = 96 << 20;

/// The client finds that the connection did not pay, when the first one is alone again.
#[test]
fn a_connection_that_ends_while_it_is_tried_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let server = behind_a_proxy(folder.path());
    let address = proxy(server.address(), server.address(), 2 << 20, Then::Ends);
    let server = Server::connect(&address, options(8)).unwrap();
    let function = server.function("system/copy").unwrap();
    let source: Vec<u8> = (0..MUCH).map(|at| (at % 251) as u8 + 1).collect();
    let mut result = vec![0; MUCH];
    let outcome = function.call(&mut [
        Argument::Out(&mut result),
        Argument::In(&source),
        Argument::Scalar(Scalar::Int(MUCH as i64)),
    ]);
    outcome.unwrap();
    assert!(result == source, "the array came back changed");
}

/// A server that has taken over an address does not know the arrays of the one that ends there.
#[test]
fn another_server_at_the_address_does_not_fail_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let [server, successor] = [(); 2].map(|()| behind_a_proxy(folder.path()));
    let address = proxy(
        server.address(),
        successor.address(),
        usize::MAX,
        Then::Ends,
    );
    let server = Server::connect(&address, options(8)).unwrap();
    let function = server.function("system/fill").unwrap();
    let mut result = vec![0; MUCH];
    let outcome = function.call(&mut [
        Argument::Out(&mut result),
        Argument::Scalar(Scalar::Int(7)),
        Argument::Scalar(Scalar::Int(MUCH as i64)),
    ]);
    outcome.unwrap();
    assert!(result.iter().all(|byte| *byte == 7));
}

/// An array that the call writes travels with it again if a connection stalled before. The time
/// until then counts, too.
#[test]
fn the_time_out_counts_from_the_start_if_the_array_travels_again() {
    const TIMEOUT: Duration = Duration::from_secs(8);
    /// For this long, the client takes the stalled connection for a slow one.
    const STALLED: Duration = Duration::from_secs(2);
    let folder = tempfile::tempdir().unwrap();
    let server = behind_a_proxy(folder.path());
    let address = proxy(server.address(), server.address(), 256 << 10, Then::Stalls);
    // Nobody opens the other end of this pipe.
    let gate = folder.path().join("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, 0o600.into()).unwrap();
    let options = Options {
        timeout: Some(TIMEOUT),
        ..options(8)
    };
    let server = Server::connect(&address, options).unwrap();
    let function = server.function("system/gate").unwrap();
    let mut array = vec![7; MUCH];
    let start = Instant::now();
    let called = function.call(&mut [
        Argument::Scalar(Scalar::Text(gate.to_str().unwrap().into())),
        Argument::Scalar(Scalar::Int(0)),
        Argument::Scalar(Scalar::Int(MUCH as i64)),
        Argument::Out(&mut array),
    ]);
    let (error, took) = (called.unwrap_err(), start.elapsed());
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(took >= TIMEOUT && took < TIMEOUT + STALLED, "{took:?}");
}

fn behind_a_proxy(folder: &Path) -> Daemon {
    std::fs::write(folder.join("system.idl"), SYSTEM).unwrap();
    let words = [
        "serve",
        "system.idl",
        "--listen",
        "127.0.0.3:0",
        "--no-sandbox",
    ];
    farcall_system::daemon(folder, &words, &[])
}

/// The function, once the metaserver knows a server with it.
fn found(server: &Server) -> Function {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match server.function("system/copy") {
            Ok(function) => return function,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        thread::yield_now();
    }
}

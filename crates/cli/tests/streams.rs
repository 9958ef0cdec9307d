//! Large arrays over several links, between network namespaces. Needs root, `ip` and `tc`; skipped
//! loudly without them.

use farcall_client::{Argument, Credentials, Function, Options, Pending, Scalar, Server, wait_any};
use farcall_trunk_lab::{Lab, LabError, Shape};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SYSTEM: &str = "Module system;
Library \"libc.so.6\";
Define copy(OUT char out[n], IN char in[n], IN long n)
    Repeatable \"yes\" Calls \"C\" memcpy(out, in, n);
";
/// Slow enough that a busy machine makes no difference.
const SHAPE: Shape = Shape::FAST_ETHERNET;
const BYTES: usize = 33 << 20;

/// Two hosts with two links; none without root.
fn lab() -> Option<Lab> {
    match Lab::build(&[&[0, 1], &[0, 1]], Some(SHAPE)) {
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
    process: Child,
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
        let mut process = lab
            .command(0, env!("CARGO_BIN_EXE_farcall"))
            .args(words)
            .args(["--listen", "0.0.0.0:0", "--log", "error"])
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = process.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        let line = line
            .trim()
            .strip_prefix("listening on ")
            .expect("an address");
        let address = line.replace("0.0.0.0", &lab.link_address(0, 0).to_string());
        Serving { process, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Copies an array there and back; returns the bytes a second.
fn copy(function: &Function, seed: u8) -> f64 {
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
    2.0 * BYTES as f64 / times.total
}

fn on_client<T: Send + 'static>(lab: &Lab, work: impl FnOnce() -> T + Send + 'static) -> T {
    let worker = lab.spawn(1, move || io::Result::Ok(work())).unwrap();
    worker.join().unwrap().unwrap()
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
    let address = server.address.clone();
    let (one, several) = on_client(&lab, move || {
        let rate = |streams: usize| {
            let server = Server::connect(&address, options(streams)).unwrap();
            let function = server.function("system/copy").unwrap();
            let first = copy(&function, 1);
            let left = server.handles().unwrap();
            assert!(left.is_empty(), "nothing is left at the server");
            match streams {
                1 => first,
                _ => copy(&function, 2),
            }
        };
        (rate(1), rate(8))
    });
    assert!(one < 1.05 * SHAPE.ideal(), "{one} over one link");
    assert!(
        several > 1.4 * one,
        "{several} over two links, {one} over one"
    );
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
    // It fails without a sign; what it had goes the other way.
    lab.set_carrier(0, 1, false).unwrap();
    on_client(&lab, move || copy(&function, 4));
}

#[test]
fn other_connections_have_tls_and_the_token() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let address = lab.link_address(0, 0).to_string();
    let made = Command::new(env!("CARGO_BIN_EXE_farcall"))
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
    let (before, after) = on_client(&lab, move || {
        let server = Server::connect(&address, options(8)).unwrap();
        let function = server.function("system/copy").unwrap();
        let before = several(&function);
        copy(&function, 7);
        (before, several(&function))
    });
    assert!(
        after > 1.4 * before,
        "{after} over two links, {before} over one"
    );
}

/// Copies four arrays at once; returns the bytes a second.
fn several(function: &Function) -> f64 {
    const EACH: usize = 8 << 20;
    let source = vec![9u8; EACH];
    let mut results = vec![vec![0u8; EACH]; 4];
    let start = Instant::now();
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
    // All of them travel while one is waited for, over whatever connection.
    let mut left: Vec<&Pending> = calls.iter().collect();
    while !left.is_empty() {
        wait_any(&left, None).unwrap();
        left.retain(|call| !call.has_ended());
    }
    for call in calls {
        call.wait().unwrap();
    }
    let bytes = 2 * results.len() * EACH;
    assert!(results.iter().all(|result| *result == source));
    bytes as f64 / start.elapsed().as_secs_f64()
}

#[test]
fn calls_behind_a_metaserver_use_both_links() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let meta = Serving::run(&lab, folder.path(), &["meta"]);
    let _server = Serving::start(&lab, folder.path(), &["--metaserver", &meta.address]);
    let address = meta.address.replace("farcall://", "meta://");
    let (one, several) = on_client(&lab, move || {
        let rate = |streams: usize| {
            let server = Server::connect(&address, options(streams)).unwrap();
            let function = found(&server);
            match streams {
                1 => copy(&function, 1),
                _ => copy(&function, 1).max(copy(&function, 2)),
            }
        };
        (rate(1), rate(8))
    });
    assert!(one < 1.05 * SHAPE.ideal(), "{one} over one link");
    assert!(
        several > 1.4 * one,
        "{several} over two links, {one} over one"
    );
}

/// The function, once the metaserver knows a server that has it.
fn found(server: &Server) -> Function {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match server.function("system/copy") {
            Ok(function) => return function,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        std::thread::yield_now();
    }
}

//! A rolling upgrade: a metaserver, two servers and a client of the previous version. Each daemon
//! is replaced by one of this version while the client, and one of this version, go on calling.
//! `scripts/upgrade` builds the previous version and runs this.

use farcall_system::cluster::status;
use farcall_system::{Daemon, farcall_path, program, server, stop, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

const FUNCTIONS: &str = "Module test;
Library \"libc.so.6\";
Define copy(OUT char to[n], IN char from[n], IN int n) Repeatable \"yes\"
    Calls \"C\" memcpy(to, from, n);
";
/// Calls that each client makes between two steps.
const CALLS: u64 = 300;

/// The folder with the programs `farcall` and `caller` of the previous version.
fn previous() -> Option<PathBuf> {
    std::env::var_os("FARCALL_PREVIOUS").map(PathBuf::from)
}

/// A client that calls all the time.
struct Caller {
    process: Child,
    output: BufReader<ChildStdout>,
}

/// How the calls of a client ended.
#[derive(Clone, Debug, PartialEq)]
struct Counts {
    done: u64,
    failed: u64,
    accepted: u64,
    fetched: u64,
}

impl Caller {
    fn start(program: &Path, address: &str) -> Caller {
        let mut command = Command::new(program);
        command
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Caller { process, output }
    }

    fn read(&mut self) -> Counts {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("counts");
        let number = |name: &str| {
            let mut words = line.split_whitespace().skip_while(|word| *word != name);
            words
                .nth(1)
                .and_then(|word| word.parse().ok())
                .expect("a count")
        };
        Counts {
            done: number("done"),
            failed: number("failed"),
            accepted: number("accepted"),
            fetched: number("fetched"),
        }
    }

    fn ask(&mut self) -> Counts {
        let mut input = self.process.stdin.as_ref().expect("a pipe");
        input.write_all(b"\n").expect("it runs");
        self.read()
    }

    fn goes_on(&mut self) {
        let before = self.ask().done;
        wait_until("calls go on", || self.ask().done > before + CALLS);
    }

    fn end(mut self) -> Counts {
        drop(self.process.stdin.take());
        let counts = self.read();
        assert!(self.process.wait().expect("it ends").success());
        counts
    }
}

fn start(program: &Path, folder: &Path, words: &[&str]) -> Daemon {
    let mut command = Command::new(program);
    command
        .args(words)
        .args(["--log", "error"])
        .current_dir(folder);
    Daemon::start(command).expect("it listens")
}

fn meta(program: &Path, folder: &Path, listen: &str) -> Daemon {
    let words = ["meta", "--listen", listen, "--store", "sqlite:meta.db"];
    start(program, folder, &words)
}

fn serve(program: &Path, folder: &Path, listen: &str, state: &str, meta: &str) -> Daemon {
    let words = ["serve", "test.idl", "--listen", listen, "--state", state];
    start(
        program,
        folder,
        &[&words[..], &["--metaserver", meta]].concat(),
    )
}

fn host_and_port(daemon: &Daemon) -> String {
    daemon.address().replace("farcall://", "")
}

fn wait_for_two(meta: &str) {
    wait_until("both servers serve", || {
        let status = status(meta);
        let servers = status["servers"].as_array().unwrap().iter();
        servers.filter(|one| one["state"] == "serving").count() == 2
    });
}

/// Replaces the daemons by those of the other version, one after the other, and returns them.
fn replace(
    daemons: Vec<Daemon>,
    program: &Path,
    folder: &Path,
    clients: &mut [Caller],
) -> Vec<Daemon> {
    let address = daemons[0].address().replace("farcall://", "meta://");
    let mut replaced = Vec::new();
    for (number, mut daemon) in daemons.into_iter().enumerate() {
        let listen = host_and_port(&daemon);
        if number == 0 {
            assert!(stop(&mut daemon));
            replaced.push(meta(program, folder, &listen));
        } else {
            // As an operator does: its calls end, and it leaves.
            let drain = ["server", "drain", daemon.address()];
            assert!(
                Command::new(farcall_path())
                    .args(drain)
                    .status()
                    .unwrap()
                    .success()
            );
            wait_until("it has drained", || daemon.ended().unwrap().is_some());
            let state = format!("state{number}");
            replaced.push(serve(program, folder, &listen, &state, &address));
        }
        wait_for_two(&address);
        clients.iter_mut().for_each(Caller::goes_on);
    }
    replaced
}

#[test]
fn no_call_is_lost_in_a_rolling_upgrade() {
    let Some(previous) = previous() else {
        println!(
            "SKIPPED: FARCALL_PREVIOUS names no build of a previous version; run scripts/upgrade"
        );
        return;
    };
    let folder = server::folder();
    let path = folder.path();
    std::fs::write(path.join("test.idl"), FUNCTIONS).unwrap();
    let old = previous.join("farcall");
    let first = meta(&old, path, "127.0.0.1:0");
    let address = first.address().replace("farcall://", "meta://");
    let mut daemons = vec![first];
    for state in ["state1", "state2"] {
        daemons.push(serve(&old, path, "127.0.0.1:0", state, &address));
    }
    wait_for_two(&address);
    let new_caller = program::caller();
    let mut clients =
        [previous.join("caller"), new_caller].map(|one| Caller::start(&one, &address));
    clients.iter_mut().for_each(Caller::goes_on);
    let daemons = replace(daemons, Path::new(farcall_path()), path, &mut clients);
    for (name, client) in ["the previous client", "the new client"]
        .into_iter()
        .zip(clients)
    {
        let counts = client.end();
        println!("{name}: {counts:?}");
        assert_eq!(counts.failed, 0, "{name}");
        assert!(
            counts.accepted > 0 && counts.fetched == counts.accepted,
            "{name}: {counts:?}"
        );
    }
    drop(daemons);
}

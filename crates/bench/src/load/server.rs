//! A server for one experiment, which reports each of its calls in its log. `clients` makes the
//! calls. The server ends when its value is dropped.

use super::clients::ClientSite;
use super::problem::Problem;
use crate::failure::Failure;
use farcall_lab::Daemon;
use farcall_lab::Sites;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Largest delay of the log after the clients.
const PATIENCE: Duration = Duration::from_secs(10);

/// The server's report of a call.
#[derive(Clone, Debug)]
pub(crate) struct ServerCall {
    pub(crate) function: String,
    /// Bytes of the results.
    pub(crate) returned_bytes: u64,
    /// Seconds from the first to the last byte of the arguments.
    pub(crate) send_s: f64,
    /// Seconds from the last argument to the start.
    pub(crate) wait_s: f64,
    /// Seconds in the library.
    pub(crate) exec_s: f64,
    /// Seconds from the first to the last byte of the results.
    pub(crate) recv_s: f64,
}

/// A server on a free port. It ends when this is dropped.
pub(crate) struct LoadServer {
    process: Daemon,
    port: u16,
    log: Receiver<ServerCall>,
}

impl LoadServer {
    pub(crate) fn start(
        libraries: &Path,
        problem: Problem,
        options: &[String],
    ) -> Result<LoadServer, Failure> {
        let command = Command::new(crate::program::farcall()?);
        let idl = crate::program::interface_file(libraries, problem.file())?;
        LoadServer::run(command, &idl, "127.0.0.1:0", options)
    }

    /// Starts a server on the server's host of a lab.
    pub(crate) fn start_far(
        sites: &Sites,
        libraries: &Path,
        problem: Problem,
        options: &[String],
    ) -> Result<LoadServer, Failure> {
        let program = crate::program::farcall()?;
        let command = sites.lab().command(0, &program.to_string_lossy());
        let idl = crate::program::interface_file(libraries, problem.file())?;
        LoadServer::run(command, &idl, "0.0.0.0:0", options)
    }

    /// Starts a server that listens here and serves an interface file. `command` is the program.
    pub(crate) fn run(
        mut command: Command,
        idl: &Path,
        listen: &str,
        options: &[String],
    ) -> Result<LoadServer, Failure> {
        command
            .arg("serve")
            .arg(idl)
            .args(["--listen", listen, "--log-format", "json"])
            .args(["--log", "error,farcall::call=debug"])
            .args(options)
            .stderr(Stdio::piped());
        let mut process = Daemon::start(command)?;
        let (sender, log) = channel();
        if let Some(lines) = process.take_log() {
            std::thread::spawn(move || {
                for call in calls(lines) {
                    if sender.send(call).is_err() {
                        return;
                    }
                }
            });
        }
        let port = process.port()?;
        Ok(LoadServer { process, port, log })
    }

    /// The server's address for clients on its own host.
    pub(crate) fn address(&self) -> &str {
        self.process.address()
    }

    /// The port on which the server listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A client at a site of the lab where the server runs.
    pub(crate) fn seen_from<'l>(&self, sites: &'l Sites, site: usize) -> ClientSite<'l> {
        let port = self.port;
        ClientSite {
            address: format!("farcall://{}:{port}", sites.server_address(site)),
            host: Some((sites.lab(), Sites::host(site))),
        }
    }

    /// The reports that have come since the last question.
    pub(crate) fn new_calls(&self) -> impl Iterator<Item = ServerCall> {
        self.log.try_iter()
    }

    /// The reports of the next `count` calls.
    pub(crate) fn calls(&self, count: usize) -> Result<Vec<ServerCall>, Failure> {
        let end = Instant::now() + PATIENCE;
        let next = |_| {
            let left = end.saturating_duration_since(Instant::now());
            self.log
                .recv_timeout(left)
                .map_err(|_| Failure::failed("the log of the server does not report all calls"))
        };
        (0..count).map(next).collect()
    }
}

fn calls(log: ChildStderr) -> impl Iterator<Item = ServerCall> {
    BufReader::new(log)
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            let seconds = |name: &str| line.get(name)?.as_f64();
            Some(ServerCall {
                function: line.get("function")?.as_str()?.to_owned(),
                returned_bytes: line.get("returned_bytes")?.as_u64()?,
                send_s: seconds("send_s")?,
                wait_s: seconds("wait_s")?,
                exec_s: seconds("exec_s")?,
                recv_s: seconds("recv_s")?,
            })
        })
}

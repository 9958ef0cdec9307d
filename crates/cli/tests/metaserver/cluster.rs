//! Metaservers and servers as processes.

use farcall_client::{Argument, Error, Function, Options, Pending, Scalar, Server};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Bound of every wait.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// `again` may be run again, `once` may not; both take some time and change their array.
const IDL: &str = r#"
Module work;
Globals {
    #include <time.h>
    static void nap(double seconds) {
        struct timespec time = {(long)seconds, (long)((seconds - (long)seconds) * 1e9)};
        nanosleep(&time, 0);
    }
    static void change(int n, double seconds, double *x) {
        int i;
        nap(seconds);
        for (i = 0; i < n; i++) x[i] = 2 * x[i] + 1;
    }
}
Define again(IN int n, IN double seconds, INOUT double x[n]) "twice and one more"
    CalcOrder n
    Repeatable "yes"
{ change(n, seconds, x); }
Define once(IN int n, IN double seconds, INOUT double x[n]) "the same, never again"
    CalcOrder n
{ change(n, seconds, x); }
"#;

/// A process that is killed on drop.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    /// Whoever reads no more would end a server that writes.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
}

impl Daemon {
    pub(crate) fn start(folder: &Path, words: &[&str]) -> Daemon {
        Daemon::start_with(folder, words, &[])
    }

    /// With variables of the environment.
    pub(crate) fn start_with(folder: &Path, words: &[&str], set: &[(&str, &str)]) -> Daemon {
        let mut child = Command::new(env!("CARGO_BIN_EXE_farcall"))
            .args(words)
            .envs(set.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        Daemon {
            address: address
                .unwrap_or_else(|| panic!("{words:?} does not listen"))
                .to_string(),
            child,
            _stdout: stdout,
        }
    }

    /// SIGKILL, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as an operator does; whether it was content.
    pub(crate) fn stop(&mut self) -> bool {
        // SAFETY: a plain system call; the process is a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let mut status = None;
        wait_until("the process ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.is_some_and(|status| status.success())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition, with a bound.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < end, "it does not come that {what}");
        std::thread::yield_now();
    }
}

/// A folder with the interface file, and what runs in it.
pub(crate) struct Cluster {
    pub(crate) folder: TempDir,
    pub(crate) servers: Vec<Daemon>,
}

impl Cluster {
    pub(crate) fn new() -> Cluster {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("work.idl"), IDL).unwrap();
        Cluster {
            folder,
            servers: Vec::new(),
        }
    }

    pub(crate) fn metaserver(&self, options: &[&str]) -> Daemon {
        let always = ["meta", "--log", "off"];
        let listen: &[&str] = match options.contains(&"--listen") {
            true => &[],
            false => &["--listen", "127.0.0.1:0"],
        };
        Daemon::start(self.folder.path(), &[&always, listen, options].concat())
    }

    /// One more server that joins these metaservers.
    pub(crate) fn serve(&mut self, metaservers: &[&str], options: &[&str]) {
        let mut words = vec!["serve", "work.idl", "--allow-code", "--log", "error"];
        words.extend(["--listen", "127.0.0.1:0"]);
        for metaserver in metaservers {
            words.extend(["--metaserver", metaserver]);
        }
        words.extend(options);
        self.servers.push(Daemon::start(self.folder.path(), &words));
    }
}

/// How a metaserver stands.
pub(crate) fn status(address: &str) -> serde_json::Value {
    let text = connect(address).status().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The servers that a metaserver has call, by their addresses.
pub(crate) fn serving(address: &str) -> Vec<String> {
    let status = status(address);
    let servers = status["servers"].as_array().unwrap().iter();
    let serving = servers.filter(|one| one["state"] == "serving" && one["functions"] == 2);
    let addresses = serving.map(|one| one["address"].as_str().unwrap().to_string());
    addresses.collect()
}

/// The address of the server that has the most calls.
pub(crate) fn busiest(address: &str) -> String {
    let status = status(address);
    let servers = status["servers"].as_array().unwrap().iter();
    let busiest = servers.max_by_key(|one| one["calls"].as_u64());
    busiest.unwrap()["address"].as_str().unwrap().to_string()
}

pub(crate) fn wait_for_servers(address: &str, count: usize) {
    wait_until("the servers have joined", || {
        serving(address).len() == count
    });
}

pub(crate) fn connect(address: &str) -> Server {
    Server::connect(address, Options::default()).unwrap()
}

/// A call under way, and its array.
pub(crate) struct Running {
    // Before the array: it must be gone when that is.
    pub(crate) pending: Pending,
    array: Box<[u8]>,
    first: f64,
}

/// Begins a call for an array of so many elements.
pub(crate) fn begin(function: &Function, n: usize, seconds: f64, first: f64) -> Running {
    let values = (0..n).flat_map(|index| (first + index as f64).to_ne_bytes());
    let mut array: Box<[u8]> = values.collect();
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(n as i64)),
        Argument::Scalar(Scalar::Float(seconds)),
        Argument::Out(&mut array),
    ];
    // SAFETY: the array goes with the call, and is looked at when that has ended.
    let pending = unsafe { function.start(arguments) }.unwrap();
    Running {
        pending,
        array,
        first,
    }
}

impl Running {
    /// Waits for the end; checks the results where there are any.
    pub(crate) fn end(self) -> Result<(), Error> {
        self.pending.wait()?;
        let values = self.array.chunks_exact(8);
        for (index, value) in values.enumerate() {
            let value = f64::from_ne_bytes(value.try_into().unwrap());
            assert_eq!(
                value,
                2.0 * (self.first + index as f64) + 1.0,
                "element {index}"
            );
        }
        Ok(())
    }
}

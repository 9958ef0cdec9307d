//! A metaserver and servers that have joined it, and calls that take some time.

use crate::server::connect;
use crate::{Daemon, ServerProcess, daemon, wait_until};
use farcall_client::{Argument, Error, Function, Pending, Scalar};
use tempfile::TempDir;

/// `again` may be run again, `once` may not; both take some time and change their array.
const WORK: &str = r#"
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

/// A folder with the interface file, and what runs in it.
#[derive(Debug)]
pub struct Cluster {
    /// Its folder.
    pub folder: TempDir,
    /// Its servers, in the order in which they came.
    pub servers: Vec<ServerProcess>,
}

impl Cluster {
    /// A folder with the interface file `work.idl`, and nothing that runs yet.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Cluster {
        let folder = crate::server::folder();
        std::fs::write(folder.path().join("work.idl"), WORK).unwrap();
        Cluster {
            folder,
            servers: Vec::new(),
        }
    }

    /// One more metaserver.
    pub fn metaserver(&self, options: &[&str]) -> Daemon {
        let always = ["meta", "--log", "off"];
        let listen: &[&str] = match options.contains(&"--listen") {
            true => &[],
            false => &["--listen", "127.0.0.1:0"],
        };
        daemon(
            self.folder.path(),
            &[&always, listen, options].concat(),
            &[],
        )
    }

    /// One more server that joins these metaservers.
    pub fn serve(&mut self, metaservers: &[&str], options: &[&str]) {
        let mut words = vec!["--allow-code", "--log", "error"];
        for metaserver in metaservers {
            words.extend(["--metaserver", metaserver]);
        }
        words.extend(options);
        let server = ServerProcess::within(self.folder.path(), &["work.idl"]);
        self.servers.push(server.options(&words).start());
    }
}

/// How a metaserver or a server stands.
pub fn status(address: &str) -> serde_json::Value {
    let text = connect(address).status().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Calls that a server has done.
pub fn done(address: &str) -> u64 {
    let status = status(address);
    let functions = status["functions"].as_array().unwrap().iter();
    functions.map(|one| one["done"].as_u64().unwrap()).sum()
}

/// The servers that a metaserver has call, by their addresses.
pub fn serving(address: &str) -> Vec<String> {
    let status = status(address);
    let servers = status["servers"].as_array().unwrap().iter();
    let serving = servers.filter(|one| one["state"] == "serving" && one["functions"] == 2);
    let addresses = serving.map(|one| one["address"].as_str().unwrap().to_string());
    addresses.collect()
}

/// The address of the server that has the most calls.
pub fn busiest(address: &str) -> String {
    let status = status(address);
    let servers = status["servers"].as_array().unwrap().iter();
    let busiest = servers.max_by_key(|one| one["calls"].as_u64());
    busiest.unwrap()["address"].as_str().unwrap().to_string()
}

/// Waits until so many servers have joined a metaserver.
pub fn wait_for_servers(address: &str, count: usize) {
    wait_until("the servers have joined", || {
        serving(address).len() == count
    });
}

/// A call under way, and its array.
pub struct Running {
    /// The call. It comes before the array, for it must be gone when that is.
    pub pending: Pending,
    array: Box<[u8]>,
    first: f64,
}

/// Begins a call for an array of so many elements.
pub fn begin(function: &Function, n: usize, seconds: f64, first: f64) -> Running {
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
    pub fn end(self) -> Result<(), Error> {
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

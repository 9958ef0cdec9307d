//! A metaserver, servers that have joined it, and calls that take some time. The tests use it to
//! see where calls go. A call checks its results when it has ended well.

use crate::server::connect;
use crate::{Daemon, ServerProcess, daemon, wait_until};
use farcall_client::{Argument, Error, Function, Pending, Scalar};
use tempfile::TempDir;

/// `again` is repeatable, `once` is not. Both take some time and change their array.
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

/// A folder with the interface file, and the processes that run in it.
#[derive(Debug)]
pub struct Cluster {
    /// Its folder.
    pub folder: TempDir,
    /// Its servers, in the order in which they joined.
    pub servers: Vec<ServerProcess>,
}

impl Cluster {
    /// A folder with the interface file `work.idl`, without processes yet.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Cluster {
        let folder = crate::server::folder();
        std::fs::write(folder.path().join("work.idl"), WORK).unwrap();
        Cluster {
            folder,
            servers: Vec::new(),
        }
    }

    /// Starts one more metaserver.
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

    /// Starts one more server, which joins these metaservers.
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

/// The status of a metaserver or a server.
pub fn status(address: &str) -> serde_json::Value {
    let text = connect(address).status().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The number of calls that a server has completed.
pub fn done(address: &str) -> u64 {
    let status = status(address);
    let functions = status["functions"].as_array().unwrap().iter();
    functions.map(|one| one["done"].as_u64().unwrap()).sum()
}

/// The active calls that a metaserver counts at each server, by address.
pub fn serving(address: &str) -> Vec<String> {
    let status = status(address);
    let servers = status["servers"].as_array().unwrap().iter();
    let serving = servers.filter(|one| one["state"] == "serving" && one["functions"] == 2);
    let addresses = serving.map(|one| one["address"].as_str().unwrap().to_string());
    addresses.collect()
}

/// Waits until this many servers have joined a metaserver.
pub fn wait_for_servers(address: &str, count: usize) {
    wait_until("the servers have joined", || {
        serving(address).len() == count
    });
}

/// A call in progress, and its array.
pub struct Running {
    /// The call. It comes before the array, because it must be dropped first.
    pub pending: Pending,
    array: Box<[u8]>,
    first: f64,
}

/// Begins a call with an array of this many elements.
pub fn begin(function: &Function, n: usize, seconds: f64, first: f64) -> Running {
    let values = (0..n).flat_map(|index| (first + index as f64).to_ne_bytes());
    let mut array: Box<[u8]> = values.collect();
    let arguments = &mut [
        Argument::Scalar(Scalar::Int(n as i64)),
        Argument::Scalar(Scalar::Float(seconds)),
        Argument::Out(&mut array),
    ];
    // SAFETY: the array lives as long as the call, and is read after the call has ended.
    let pending = unsafe { function.start(arguments) }.unwrap();
    Running {
        pending,
        array,
        first,
    }
}

impl Running {
    /// Waits for the end. Checks the results if the call succeeded.
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

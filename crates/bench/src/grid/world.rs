//! Two servers behind unequal links, a metaserver and a client, each on a separate host of a lab.
//! It starts them and makes no call. On a machine without quotas, it warns, and both servers have
//! whole processors.

use crate::failure::Failure;
use farcall_lab::Daemon;
use farcall_lab::{Lab, LabError, Quota};
use std::path::PathBuf;

/// Bits per second to each server and from it.
pub(super) const LINKS: [[u64; 2]; 2] = [[100_000_000, 60_000_000], [10_000_000, 25_000_000]];
/// Processors of each server.
pub(super) const QUOTAS: [f64; 2] = [0.5, 1.0];
pub(super) const CLIENT: usize = 0;
const META: usize = 1;
/// The host of the first server.
const SERVERS: usize = 2;

/// The hosts, and the quotas of the servers' processors if the machine supports them.
pub(super) struct World {
    // The processes in the quotas end before the quotas are dropped.
    quotas: Option<[Quota; 2]>,
    pub(super) lab: Lab,
}

impl World {
    pub(super) fn build() -> Result<World, Failure> {
        let lab = Lab::build(&[&[0][..]; 4], None)?;
        for (server, link) in LINKS.into_iter().enumerate() {
            lab.shape_link(SERVERS + server, 0, link)?;
        }
        let [near, far] = QUOTAS.map(Quota::new);
        let quotas = match (near, far) {
            (Ok(near), Ok(far)) => Some([near, far]),
            (Err(error @ LabError::NoQuota(_)), _) | (_, Err(error @ LabError::NoQuota(_))) => {
                eprintln!("WARNING: {error}; both servers have whole processors");
                None
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        Ok(World { quotas, lab })
    }

    /// Processors of both servers together.
    pub(super) fn processors(&self) -> f64 {
        match self.quotas {
            Some(_) => QUOTAS.iter().sum(),
            None => QUOTAS.len() as f64,
        }
    }

    /// Starts a metaserver with this policy, and the servers. They have learned nothing yet.
    pub(super) fn start(&self, policy: &str, interfaces: &[PathBuf]) -> Result<Grid, Failure> {
        let program = crate::program::farcall()?;
        let program = program.to_string_lossy();
        let mut meta = self.lab.command(META, &program);
        meta.args(["meta", "--listen", "0.0.0.0:0", "--store", "none"])
            .args(["--policy", policy, "--log", "error"]);
        let meta = Daemon::start(meta)?;
        let meta_host = self.lab.link_address(META, 0);
        let address = format!("meta://{meta_host}:{}", meta.port()?);
        let mut processes = vec![meta];
        let mut servers = Vec::new();
        for server in 0..LINKS.len() {
            let host = SERVERS + server;
            let mut command = match &self.quotas {
                Some(quotas) => self.lab.command_within(&quotas[server], host, &program),
                None => self.lab.command(host, &program),
            };
            command
                .arg("serve")
                .args(interfaces)
                .args(["--listen", "0.0.0.0:0", "--pes", "1", "--log", "error"])
                .args(["--metaserver", &address]);
            let process = Daemon::start(command)?;
            let host = self.lab.link_address(host, 0);
            servers.push(format!("farcall://{host}:{}", process.port()?));
            processes.push(process);
        }
        Ok(Grid::of(address, servers, processes))
    }
}

impl Grid {
    /// A grid of processes that already run.
    pub(super) fn of(address: String, servers: Vec<String>, processes: Vec<Daemon>) -> Grid {
        Grid {
            address,
            servers,
            _processes: processes,
        }
    }
}

/// A metaserver and its servers. They end when this is dropped.
pub(super) struct Grid {
    pub(super) address: String,
    /// Addresses of the servers.
    pub(super) servers: Vec<String>,
    _processes: Vec<Daemon>,
}

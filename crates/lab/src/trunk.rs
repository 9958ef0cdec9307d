//! Starts and stops a trunk on a host of the lab. The lab makes the hosts and their links. A trunk
//! ends when its value is dropped, and one that does not end in time is killed.

use crate::Daemon;
use crate::{Lab, LabError};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A `farcall trunk up` on a host. It is ended when this is dropped.
#[derive(Debug)]
pub struct TrunkProcess {
    daemon: Daemon,
}

/// The longest time until the links are up.
const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(5);

impl TrunkProcess {
    /// Starts the trunk, and returns when the virtual interface exists.
    ///
    /// # Errors
    /// The trunk does not start.
    pub fn start(
        lab: &Lab,
        host: usize,
        farcall: &Path,
        options: &[&str],
    ) -> Result<TrunkProcess, LabError> {
        let mut command = lab.command(host, &farcall.to_string_lossy());
        command.args(["trunk", "up", "--log", "warn"]);
        for (name, _) in lab.link_names(host).iter().zip(0..) {
            let rate = lab
                .shape()
                .filter(|shape| shape.told)
                .map(|shape| format!("={}", shape.rate))
                .unwrap_or_default();
            command.arg("--link").arg(format!("{name}{rate}"));
        }
        command
            .arg("--address")
            .arg(format!("{}/24", lab.trunk_address(host)));
        command.args(options);
        command.stderr(Stdio::piped());
        let daemon = Daemon::start_saying(command, "fc0 up");
        let mut daemon = daemon.map_err(|error| LabError::Trunk(error.to_string()))?;
        if let Some(mut log) = daemon.take_log() {
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        }
        Ok(TrunkProcess { daemon })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.daemon.id()
    }

    /// Ends the trunk as an operator does. Returns true if it ended in time and with success.
    pub fn stop(&mut self) -> bool {
        let status = self.daemon.stop(END);
        matches!(status, Ok(Some(status)) if status.success())
    }
}

impl Drop for TrunkProcess {
    fn drop(&mut self) {
        // A trunk that does not end is killed.
        self.stop();
    }
}

impl Lab {
    /// Starts a trunk on every host, and returns when each client's links to host 0 are up at both
    /// ends.
    ///
    /// # Errors
    /// A trunk does not start, or the trunks do not find each other.
    pub fn start_trunks(
        &self,
        farcall: &Path,
        options: &[&str],
    ) -> Result<Vec<TrunkProcess>, LabError> {
        let trunks = (0..self.hosts())
            .map(|host| TrunkProcess::start(self, host, farcall, options))
            .collect::<Result<Vec<_>, _>>()?;
        let end = Instant::now() + START;
        let up = |host: usize| {
            let status = self.output(
                host,
                &farcall.to_string_lossy(),
                &["trunk", "status", "--json"],
            );
            status.map(|status| status.matches("\"state\":\"up\"").count())
        };
        for host in 0..self.hosts() {
            let shared = |other: usize| {
                let links = self.switches_of(host).iter();
                links
                    .filter(|link| self.switches_of(other).contains(link))
                    .count()
            };
            let expected: usize = (0..self.hosts())
                .filter(|other| *other != host)
                .map(shared)
                .sum();
            while up(host)? < expected {
                if Instant::now() > end {
                    return Err(LabError::Late("the links of the trunk"));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(trunks)
    }
}

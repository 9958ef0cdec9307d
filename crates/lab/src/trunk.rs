//! Starts and stops a trunk on a host of the lab. The lab makes the hosts and their links. A trunk
//! ends when its value is dropped, and one that does not end in time is killed.

use crate::{Daemon, Lab, LabError, link_name, until};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

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
        let told = lab.shape().filter(|shape| shape.told);
        let rate = told.map(|shape| shape.rate);
        let links = lab.switches_of(host).iter().map(|switch| (*switch, rate));
        TrunkProcess::start_on(lab, host, farcall, links, options)
    }

    /// Starts the trunk on the links to some switches. It is told the rates in bits per second that
    /// are stated.
    ///
    /// # Errors
    /// As for [`TrunkProcess::start`].
    pub fn start_on(
        lab: &Lab,
        host: usize,
        farcall: &Path,
        links: impl Iterator<Item = (usize, Option<u64>)>,
        options: &[&str],
    ) -> Result<TrunkProcess, LabError> {
        let mut command = lab.command(host, &farcall.to_string_lossy());
        command.args(["trunk", "up", "--log", "warn"]);
        for (switch, rate) in links {
            let rate = rate.map(|rate| format!("={rate}")).unwrap_or_default();
            let name = link_name(switch);
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

    /// Its process.
    pub(crate) fn daemon(&mut self) -> &mut Daemon {
        &mut self.daemon
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
            self.wait_for_links(host, farcall, expected)?;
        }
        Ok(trunks)
    }

    /// Waits until the trunk on a host has this many links to its peers.
    pub(crate) fn wait_for_links(
        &self,
        host: usize,
        farcall: &Path,
        expected: usize,
    ) -> Result<(), LabError> {
        let (farcall, words) = (farcall.to_string_lossy(), ["trunk", "status", "--json"]);
        until("the links of the trunk", START, || {
            let status = self.output(host, &farcall, &words)?;
            Ok(status.matches("\"state\":\"up\"").count() >= expected)
        })
    }
}

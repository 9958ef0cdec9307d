//! A trunk on a host of the lab.

use crate::{Lab, LabError};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A `farcall trunk up` on a host, ended when this is dropped.
#[derive(Debug)]
pub struct TrunkProcess {
    child: Child,
}

const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(5);

impl TrunkProcess {
    /// Starts it, and returns once the virtual interface is there.
    ///
    /// # Errors
    /// Where it does not start.
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
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        let (send, first) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = send.send(line);
        });
        let mut process = TrunkProcess { child };
        match first.recv_timeout(START) {
            Ok(line) if line == "fc0 up\n" => {
                process.discard_log();
                Ok(process)
            }
            _ => Err(LabError::Trunk(process.failure())),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn discard_log(&mut self) {
        if let Some(mut stderr) = self.child.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        }
    }

    fn failure(&mut self) -> String {
        let _ = self.child.kill();
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text.trim().to_owned()
    }

    /// Ends it as an operator does; true where it went in time and well.
    pub fn stop(&mut self) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let end = Instant::now() + END;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        false
    }
}

impl Drop for TrunkProcess {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.stop();
        }
    }
}

impl Lab {
    /// Starts a trunk on every host, and returns once each client's links to host 0 are up at
    /// both ends.
    ///
    /// # Errors
    /// Where one does not start, or they do not find each other.
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

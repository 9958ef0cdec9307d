//! The calls of the scenario: reads them with their times from `farcall sim`, and makes each one at
//! its time from the client's host. A result is compared with what the client computes itself.

use crate::failure::Failure;
use farcall_client::{Argument, Function, Options, Scalar, Server};
use farcall_lab::Lab;
use farcall_lab::stack::client;
use farcall_random::SplitMix64;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What `farcall sim` says about the scenario.
pub(super) struct Plan {
    pub(super) calls: Vec<Call>,
    pub(super) makespan_s: f64,
    /// When a server drains.
    pub(super) drains_s: f64,
}

/// A call of the scenario.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Call {
    pub(super) at_s: f64,
    computing_s: f64,
    up_bytes: usize,
    /// Of a serial call, as many as `up_bytes`.
    down_bytes: usize,
    pub(super) pes: u32,
}

#[derive(Deserialize)]
struct Simulated {
    runs: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    calls: Vec<Call>,
    makespan_s: f64,
    until_s: Vec<Option<f64>>,
}

/// A call that was made.
pub(super) struct Made {
    /// Processor elements of the call.
    pub(super) pes: u32,
    pub(super) at_s: f64,
    /// When its computation began; with a failure, [`Made::at_s`].
    pub(super) start_s: f64,
    pub(super) end_s: f64,
    /// The number of its server, if the client knows it.
    pub(super) server: Option<u64>,
    pub(super) fate: Fate,
}

pub(super) enum Fate {
    Right,
    Wrong,
    /// It failed, with this error.
    Told(String),
}

impl Plan {
    /// Simulates a scenario.
    pub(super) fn read(farcall: &Path, scenario: &Path) -> Result<Plan, Failure> {
        let mut command = Command::new(farcall);
        command.arg("sim").arg(scenario);
        let output = command
            .args(["--policy", "completion", "--json"])
            .output()?;
        let wrong = |text: String| {
            let scenario = scenario.display();
            Failure::failed(format!("cannot use the scenario {scenario}: {text}"))
        };
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(wrong(text.trim().to_owned()));
        }
        let told: Simulated =
            serde_json::from_slice(&output.stdout).map_err(|error| wrong(error.to_string()))?;
        let first = told.runs.into_iter().next();
        let outcome = first.ok_or_else(|| wrong("it has no calls".to_owned()))?;
        let drains = outcome.until_s.into_iter().flatten().next();
        let drains_s = drains.ok_or_else(|| wrong("no server drains: state `until`".to_owned()))?;
        Ok(Plan {
            calls: outcome.calls,
            makespan_s: outcome.makespan_s,
            drains_s,
        })
    }
}

/// Both functions, as the client sees them.
struct Functions {
    serial: Function,
    parallel: Function,
}

/// Makes all calls, each at its time after `start`.
pub(super) fn make_all(
    calls: &[Call],
    lab: &Lab,
    metaserver: &str,
    start: Instant,
) -> Result<Vec<Made>, Failure> {
    lab.enter(client())?;
    let address = metaserver.replace("farcall://", "meta://");
    let server = Server::connect(&address, Options::default())?;
    let functions = &Functions {
        serial: server.function("bench/task")?,
        parallel: server.function("stack/sums")?,
    };
    std::thread::scope(|scope| {
        let threads = calls.iter().map(|call| {
            scope.spawn(move || {
                lab.enter(client())?;
                let at = start + Duration::from_secs_f64(call.at_s);
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                Ok(call.make(functions, start))
            })
        });
        let threads: Vec<_> = threads.collect();
        let made = threads.into_iter().map(|thread| {
            let panicked = |_| Err(Failure::failed("a client panicked"));
            thread.join().unwrap_or_else(panicked)
        });
        made.collect()
    })
}

impl Call {
    fn make(&self, functions: &Functions, start: Instant) -> Made {
        let begun = Instant::now();
        let [n, m] = [self.up_bytes, self.down_bytes].map(|bytes| bytes / 8);
        let mut random = SplitMix64::new(self.at_s.to_bits());
        let x: Vec<f64> = (0..n).map(|_| random.below(1000) as f64).collect();
        let sum: f64 = x.iter().sum();
        let bytes: Vec<u8> = x.into_iter().flat_map(f64::to_ne_bytes).collect();
        let mut y = vec![0; 8 * m];
        let int = |value: usize| Argument::Scalar(Scalar::Int(value as i64));
        let (us, n, m) = (int((self.computing_s * 1e6) as usize), int(n), int(m));
        let (given, taken) = (Argument::In(&bytes), Argument::Out(&mut y));
        let (called, expected) = match self.pes {
            1 => (
                functions.serial.call(&mut [us, n, given, taken]),
                bytes.clone(),
            ),
            _ => (
                functions.parallel.call(&mut [us, n, given, m, taken]),
                sum.to_ne_bytes().repeat(y.len() / 8),
            ),
        };
        let is_right = y == expected;
        let [at_s, end_s] = [begun, Instant::now()].map(|at| (at - start).as_secs_f64());
        let (server, computing_s, fate) = match called {
            Ok(outcome) => {
                let server = outcome.placement.map(|placement| placement.server);
                let fate = if is_right { Fate::Right } else { Fate::Wrong };
                (server, outcome.times.exec + outcome.times.recv, fate)
            }
            Err(error) => (None, end_s - at_s, Fate::Told(error.to_string())),
        };
        Made {
            pes: self.pes,
            at_s,
            start_s: end_s - computing_s,
            end_s,
            server,
            fate,
        }
    }
}

//! The rows over a line of 1 Gbit/s between two network namespaces, to a server that has four times
//! the processors of the program. They need root. Without it there are no such rows.

use super::Arguments;
use super::programs::{Programs, Ran, offload, run};
use crate::failure::Failure;
use crate::progress;
use crate::table::{Better, Row};
use farcall_lab::{Daemon, Lab, LabError, Quota, Shape};
use std::process::Command;

/// The line.
const GIGABIT: Shape = Shape {
    rate: 1_000_000_000,
    switch_queue: 1 << 20,
    host_queue: 4 << 20,
    told: true,
};
/// Parts of the machine's processors for the program and for the server.
const PARTS: [f64; 2] = [0.2, 0.8];
/// Rows of the large matrices, and how many calls of each routine the program makes.
const LARGE: &str = "1500";
const CALLS: f64 = 4.0;
/// Rows of the matrices whose bytes are counted.
const KEPT: &str = "1000";
const SCRIPT: &str = "benches/offload/script.py";
/// The host with the server, and the one with the programs.
const SERVER: usize = 0;
const PROGRAM: usize = 1;

/// Two hosts with their processors, and the server.
struct Line<'a> {
    lab: Lab,
    quota: Quota,
    programs: &'a Programs,
    _server: Daemon,
    address: String,
    _server_quota: Quota,
}

/// The rows, or none without root.
pub(super) fn measure(arguments: &Arguments, programs: &Programs) -> Result<Vec<Row>, Failure> {
    let line = match Line::new(arguments, programs) {
        Ok(line) => line,
        Err(error @ (LabError::NotRoot | LabError::NoProgram(_) | LabError::NoQuota(_))) => {
            progress::left_out(format_args!("the rows over a line are left out: {error}"));
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    progress::measuring("programs over a line");
    let rounds = arguments.rounds.div_ceil(3);
    let mut rows = line.large(rounds)?;
    rows.push(line.script(arguments, rounds)?);
    rows.push(line.bytes("factors", "LU and ten solutions")?);
    rows.push(line.bytes("cholesky", "Cholesky pipeline")?);
    Ok(rows)
}

impl<'a> Line<'a> {
    fn new(arguments: &Arguments, programs: &'a Programs) -> Result<Line<'a>, LabError> {
        let lab = Lab::build(&[&[0], &[0]], Some(GIGABIT))?;
        let all = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
        let [quota, server_quota] = PARTS.map(|part| Quota::new(part * all));
        let (quota, server_quota) = (quota?, server_quota?);
        let farcall = programs.farcall().to_string_lossy();
        let mut command = lab.command_within(&server_quota, SERVER, &farcall);
        arguments
            .serve(&mut command, "0.0.0.0:0")
            .map_err(|failure| LabError::Io(std::io::Error::other(failure.to_string())))?;
        let server = Daemon::start(command)?;
        let host = lab.link_address(SERVER, 0).to_string();
        Ok(Line {
            address: server.address().replace("0.0.0.0", &host),
            lab,
            quota,
            programs,
            _server: server,
            _server_quota: server_quota,
        })
    }

    /// Runs a program on a host, under `farcall offload` if a mode is given.
    fn run(&self, host: usize, mode: Option<&str>, words: &[&str]) -> Result<Ran, Failure> {
        let farcall = self.programs.farcall().to_string_lossy();
        let (program, before) = match mode {
            Some(mode) => (&*farcall, offload(&self.address, mode).to_vec()),
            None => ("env", Vec::new()),
        };
        let mut command: Command = self.lab.command_within(&self.quota, host, program);
        command.args(before).args(words);
        run(command)
    }

    /// Which calls of large matrices go, and when the program ends.
    fn large(&self, rounds: u32) -> Result<Vec<Row>, Failure> {
        let program = self.programs.program();
        let words = [&*program.to_string_lossy(), "large", LARGE];
        let (mut went, mut stayed) = (Vec::new(), Vec::new());
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            seconds[1].push(self.run(PROGRAM, None, &words)?.seconds);
            let ran = self.run(PROGRAM, Some("--auto"), &words)?;
            let counts = ran.counts();
            let remote = |name: &str| counts.get(name).map_or(f64::NAN, |counts| counts.remote);
            went.push(remote("dsyevd"));
            stayed.push(CALLS - remote("dgemm"));
            seconds[0].push(ran.seconds);
        }
        let calls = |name: &str, values, of| Row {
            name: name.to_owned(),
            unit: "calls",
            values,
            peer: "of",
            peer_values: vec![of],
            better: Better::Higher,
            bar: Some(1.0),
        };
        Ok(vec![
            // The first call shows the speed of the program.
            calls("dsyevd, n = 1500, that go", went, CALLS - 1.0),
            calls("dgemm, n = 1500, that stay", stayed, CALLS),
            sooner("both in a program", seconds),
        ])
    }

    /// A script of NumPy.
    fn script(&self, arguments: &Arguments, rounds: u32) -> Result<Row, Failure> {
        let words = [&*arguments.python.to_string_lossy(), SCRIPT];
        let mut seconds = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let plain = self.run(PROGRAM, None, &words)?;
            let ran = self.run(PROGRAM, Some("--auto"), &words)?;
            if ran.text() != plain.text() {
                return Err(Failure::failed(format!(
                    "{SCRIPT} prints {:?}, and {:?} under farcall offload",
                    plain.text(),
                    ran.text()
                )));
            }
            seconds[0].push(ran.seconds);
            seconds[1].push(plain.seconds);
        }
        Ok(sooner("script of NumPy", seconds))
    }

    /// The bytes of calls with the same arrays. On its own host the server keeps none, so that each
    /// call moves all its arrays.
    fn bytes(&self, part: &str, name: &str) -> Result<Row, Failure> {
        let program = self.programs.program();
        let words = [&*program.to_string_lossy(), part, KEPT];
        let call_by_call = self.run(SERVER, Some("--always"), &words)?.bytes();
        let kept = self.run(PROGRAM, Some("--always"), &words)?.bytes();
        Ok(Row {
            name: name.to_owned(),
            unit: "MB",
            values: vec![1e-6 * kept],
            peer: "call by call",
            peer_values: vec![1e-6 * call_by_call],
            better: Better::Lower,
            bar: Some(0.5),
        })
    }
}

/// A program over the line, beside the plain program.
fn sooner(name: &str, [values, peer_values]: [Vec<f64>; 2]) -> Row {
    Row {
        name: format!("{name}, to its end"),
        unit: "s",
        values,
        peer: "plain",
        peer_values,
        better: Better::Lower,
        bar: Some(1.0),
    }
}

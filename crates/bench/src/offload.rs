//! `farcall bench offload`: what `farcall offload` costs programs that stay here, and what it gains
//! for those that go. Every row runs a program of `benches/offload` plain and offloaded in turns.
//! This module measures on one host; `line` measures over a line between two hosts.

mod line;
mod programs;

use crate::failure::Failure;
use crate::machine::Machine;
use crate::progress;
use crate::table::{Better, Row, report};
use clap::Args;
use farcall_lab::Daemon;
use programs::Programs;
use std::path::PathBuf;
use std::process::Command;

/// Nanoseconds that a local call may take more.
const ADDED_NS: f64 = 20.0;
/// Time of a program with an equal server on its host, beside the plain program.
const EQUAL: f64 = 1.02;
/// Nanoseconds of an estimate.
const ESTIMATE_NS: f64 = 1000.0;
/// Repetitions of the script beside an equal server, some seconds.
const SCRIPT: &str = "40";

/// Measure what programs lose and gain with farcall offload
///
/// Programs run plain and under `farcall offload` in turns: small calls, a script beside an equal
/// server on the same host, and scripts over a line of 1 Gbit/s to a server with four times the
/// processors. The line needs root, because it is between network namespaces; without root its rows
/// are left out. A C compiler and OpenBLAS are needed. benches/METHOD.md describes the method.
#[derive(Args)]
#[command(after_help = "Examples:
  sudo farcall bench offload --check
  farcall bench offload --rounds 9")]
pub(crate) struct Arguments {
    /// Exit with status 1 if a bar is missed
    #[arg(long)]
    check: bool,
    /// Number of rounds; a third of them over the line
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Folder with lapack.idl and blas.idl
    #[arg(long, value_name = "DIR", default_value = "libraries")]
    libraries: PathBuf,
    /// Python interpreter with NumPy from PyPI
    #[arg(long, value_name = "PROGRAM", default_value = ".venv/bin/python")]
    python: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let programs = Programs::make()?;
    let machine = Machine::watch();
    let mut rows = here(arguments, &programs)?;
    rows.extend(line::measure(arguments, &programs)?);
    report(&rows, machine.end(), arguments.json, arguments.check)
}

impl Arguments {
    /// `farcall serve` with LAPACK and BLAS, to be started in some place and to listen there.
    fn serve(&self, command: &mut Command, listen: &str) -> Result<(), Failure> {
        command.arg("serve");
        for file in ["lapack.idl", "blas.idl"] {
            command.arg(crate::program::interface_file(&self.libraries, file)?);
        }
        command.args(["--listen", listen, "--log", "error"]);
        Ok(())
    }
}

/// The rows of one host.
fn here(arguments: &Arguments, programs: &Programs) -> Result<Vec<Row>, Failure> {
    let mut command = Command::new(crate::program::farcall()?);
    arguments.serve(&mut command, "127.0.0.1:0")?;
    let server = Daemon::start(command)?;
    let address = server.address();
    let mut rows = Vec::new();
    for (name, is_dgesv) in [("dgesv", "1"), ("dgemm", "0")] {
        progress::measuring(name);
        let (mut added, mut plain) = (Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            let without = programs.plain(&["tiny", is_dgesv])?.printed()?;
            let with = programs.offloaded(address, "--auto", &["tiny", is_dgesv])?;
            added.push(with.with_calls_of(name)?.printed()? - without);
            plain.push(without);
        }
        let plain = crate::table::median(&plain);
        rows.push(Row {
            name: format!("added to {name}, n = 3 ({plain:.0} ns plain)"),
            unit: "ns",
            values: added,
            peer: "at most",
            peer_values: vec![ADDED_NS],
            better: Better::Lower,
            bar: Some(1.0),
        });
    }
    let (mut values, mut peer_values) = (Vec::new(), Vec::new());
    let words = ["script", SCRIPT];
    // The bar is narrow: twice as many rounds, and each program is the first of every other one.
    for round in 0..2 * arguments.rounds {
        for is_plain in [round % 2 == 0, round % 2 == 1] {
            match is_plain {
                true => peer_values.push(programs.plain(&words)?.seconds),
                false => {
                    let ran = programs.offloaded(address, "--auto", &words)?;
                    values.push(ran.with_calls_of("dgemm")?.seconds);
                }
            }
        }
    }
    rows.push(Row {
        name: "auto beside an equal server here".to_owned(),
        unit: "s",
        values,
        peer: "plain",
        peer_values,
        better: Better::Lower,
        bar: Some(EQUAL),
    });
    let estimates = (0..arguments.rounds).map(|_| programs.estimate(address));
    rows.push(Row {
        name: "farcall_estimate_array".to_owned(),
        unit: "ns",
        values: estimates.collect::<Result<_, Failure>>()?,
        peer: "at most",
        peer_values: vec![ESTIMATE_NS],
        better: Better::Lower,
        bar: Some(1.0),
    });
    Ok(rows)
}

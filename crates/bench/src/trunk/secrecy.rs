//! Measures what encryption costs: processor time of both daemons for each delivered bit, with and
//! without a key in turns. The links carry 1 Gbit/s together, and frames have full length.

use super::single::{bulk, cpu_seconds};
use super::{Arguments, Program};
use crate::failure::Failure;
use crate::table::{Better, Row};
use farcall_lab::{Lab, Shape, TOPOLOGIES};
use std::io::Write;

/// Number of measurements with a key, and of those without one.
const ROUNDS: usize = 3;
/// Each of two links.
const HALF_A_GIGABIT: Shape = Shape {
    rate: 500_000_000,
    ..Shape::FAST_ETHERNET
};

pub(super) fn measure(arguments: &Arguments, farcall: &Program) -> Result<Vec<Row>, Failure> {
    if !arguments.wants("key") {
        return Ok(Vec::new());
    }
    let mut key = tempfile::NamedTempFile::new()?;
    writeln!(key, "a key for this measurement only")?;
    let file = key.path().to_string_lossy().into_owned();
    let (mut plain, mut keyed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(run(arguments, farcall, &[])?);
        keyed.push(run(arguments, farcall, &["--key-file", &file])?);
    }
    let row = |name: &str, unit, pick: fn(&(f64, f64)) -> f64, better| Row {
        name: name.to_owned(),
        unit,
        values: keyed.iter().map(pick).collect(),
        peer: "without a key",
        peer_values: plain.iter().map(pick).collect(),
        better,
        bar: None,
    };
    Ok(vec![
        row(
            "key: processor for 1 Gb/s, both ends",
            "% of a core",
            |(cost, _)| *cost,
            Better::Lower,
        ),
        row("key: rate", "Mb/s", |(_, rate)| *rate, Better::Higher),
    ])
}

/// The processor time of both daemons in percent of a core for each Gbit/s, and the rate in Mbit/s.
fn run(arguments: &Arguments, farcall: &Program, options: &[&str]) -> Result<(f64, f64), Failure> {
    let lab = Lab::build(TOPOLOGIES[1].links, Some(HALF_A_GIGABIT))?;
    let trunks = lab.start_trunks(farcall, options)?;
    let busy = || -> Result<f64, Failure> {
        Ok(cpu_seconds(trunks[0].id())? + cpu_seconds(trunks[1].id())?)
    };
    let before = busy()?;
    let rate = bulk(&lab, 1, arguments.duration())? * 8.0;
    let bits = rate * arguments.duration().as_secs_f64();
    let cost = (busy()? - before) / (bits / 1e9) * 100.0;
    Ok((cost, rate / 1e6))
}

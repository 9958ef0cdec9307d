//! Measures the gateway for Arrow Flight beside a native Flight server, with the same client and in
//! the same rounds. Both copy the array once, in a process of their own.

use super::Arguments;
use crate::contender::Contender;
use crate::failure::Failure;
use crate::progress;
use crate::table::{Better, Row};
use farcall_lab::Daemon;
use std::process::Command;

const BYTES: usize = 64 << 20;
/// Exchanges in a round.
const EXCHANGES: usize = 3;
/// The required ratio to native Flight.
const BAR: f64 = 0.8;

/// Runs rounds of both in turn. There are no rows if the interpreter has no pyarrow.
pub(super) fn measure(arguments: &Arguments, address: &str) -> Result<Vec<Row>, Failure> {
    let mut native = match Contender::python(&arguments.python, &["Arrow Flight"]) {
        Ok(native) => native,
        Err(failure) => {
            arguments.leave_out(
                "no Python with pyarrow, so the rows of its gateway",
                &failure,
            )?;
            return Ok(Vec::new());
        }
    };
    progress::measuring("the gateway for Arrow Flight");
    let mut command = Command::new(crate::program::farcall()?);
    command
        .args(["gateway", "flight", "--own-identity", "--to", address])
        .args(["--listen", "127.0.0.1:0"])
        .env("FARCALL_PYTHON", &arguments.python);
    let gateway = Daemon::start(command)?;
    let client = ["flight-gateway", gateway.address()];
    let mut ours = Contender::python(&arguments.python, &client)?;
    let (mut values, mut peer_values) = (Vec::new(), Vec::new());
    let rate = |seconds: f64| 2.0 * BYTES as f64 / seconds / 1e6;
    // The first round warms up. It does not count.
    for round in 0..=arguments.rounds {
        let counts = round > 0;
        let figures = [&mut native, &mut ours].map(|one| one.round(BYTES, EXCHANGES).map(rate));
        let [theirs, own] = figures;
        peer_values.extend(counts.then_some(theirs?));
        values.extend(counts.then_some(own?));
    }
    Ok(vec![Row {
        name: "64 MiB out and back, Flight gateway".to_owned(),
        unit: "MB/s",
        values,
        peer: "Arrow Flight",
        peer_values,
        better: Better::Higher,
        bar: Some(BAR),
    }])
}

//! `farcall reservation make`: reserves processor elements or bandwidth for a time ahead. If they
//! are not free at that time, the error says when they will be.

use super::to_json;
use crate::failure::Failure;
use crate::form::Form;
use crate::seconds::{above_zero, seconds};
use crate::target::Named;
use clap::Args;
use farcall_client::{ReservationName, ReservationSpec};
use serde_json::json;
use std::time::Duration;

/// Reserve processor elements of a server, and bandwidth to it, ahead of time
///
/// The command prints the id of the reservation, which `farcall call --reservation` and `farcall
/// submit --reservation` take. If the elements or the rates are not free at that time, the error
/// says when they will be.
#[derive(Args)]
#[command(after_help = "Examples:
  id=$(farcall reservation make --pes 2 --start 30 --seconds 60)
  farcall call --reservation $id ddot n=3 x=1,2,3 incx=1 y=4,5,6 incy=1
  farcall reservation make --pes 4 --seconds 60 --earliest --json
  farcall reservation make --pes 0 --up 20Mbit/s --down 5MB/s --seconds 60
  farcall reservation make --server meta://head --function dgesv --pes 4 --seconds 60")]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Named,
    /// Function to reserve for. Behind a metaserver, the reservation is at the server that has the
    /// function and is free first
    #[arg(long, value_name = "NAME")]
    function: Option<String>,
    /// Processor elements; 0 for bandwidth alone
    #[arg(long, value_name = "N", default_value_t = 1)]
    pes: u32,
    /// Rate to the server in bytes/s: 5e6, 5MB/s or 40Mbit/s
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = rate)]
    up: u64,
    /// Rate from the server in bytes/s
    #[arg(long, value_name = "RATE", default_value = "0", value_parser = rate)]
    down: u64,
    /// Seconds from now until the reservation begins
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    start: Duration,
    /// If the elements or the rates are not free at that time, begin as soon as they are
    #[arg(long)]
    earliest: bool,
    /// Length of the reservation in seconds
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    seconds: Duration,
    #[command(flatten)]
    form: Form,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let server = arguments.server.connect()?;
    let wanted = ReservationSpec {
        pes: arguments.pes,
        up: arguments.up,
        down: arguments.down,
        start: arguments.start,
        latest: arguments.earliest.then_some(Duration::MAX),
        length: arguments.seconds,
    };
    let made = match &arguments.function {
        Some(name) => server.function(name)?.reserve(&wanted)?,
        None => server.reserve(&wanted)?,
    };
    let name = match server.is_metaserver() {
        true => ReservationName::from(&made),
        false => ReservationName::from(made.id),
    };
    let fields = || json!({ "reservation": to_json(&made) });
    arguments.form.answer(|| name.to_string(), fields);
    Ok(())
}

fn rate(text: &str) -> Result<u64, String> {
    farcall_quantity::whole_rate(farcall_quantity::amount(text)?, text)
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn a_rate_below_one_byte_per_second_is_refused() {
        assert_eq!(rate("0"), Ok(0));
        assert_eq!(rate("40Mbit/s"), Ok(5_000_000));
        for text in ["0.5", "1e-9", "0.0001KB/s"] {
            let refused = rate(text).unwrap_err();
            assert!(refused.contains("less than 1 byte/s"), "{refused}");
        }
    }
}

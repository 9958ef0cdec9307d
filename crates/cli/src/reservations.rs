//! `farcall reservation`: prints reservations, for the commands that make, list and release them.
//! The server decides what is free. Behind a metaserver, a line also names the server.

mod list;
mod make;
mod release;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use farcall_client::{Reservation, ReservationName};
use serde_json::{Value, json};

/// Reserve processor elements and bandwidth of a server ahead of time
#[derive(Args)]
#[command(after_help = "Examples:
  farcall reservation make --pes 2 --start 30 --seconds 60
  farcall reservation list
  farcall reservation release 3")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Make(make::Arguments),
    List(list::Arguments),
    Release(release::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Make(arguments) => make::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Release(arguments) => release::run(arguments),
    }
}

fn to_json(reservation: &Reservation) -> Value {
    json!({
        "id": reservation.id,
        "server": reservation.server.to_string(),
        "pes": reservation.pes,
        "up": reservation.up,
        "down": reservation.down,
        "begins_in_s": reservation.begins.as_secs_f64(),
        "ends_in_s": reservation.ends.as_secs_f64(),
    })
}

/// A reservation as a line, with its server if there are several.
fn line(reservation: &Reservation, of_several: bool) -> String {
    let name = match of_several {
        true => ReservationName::from(reservation),
        false => ReservationName::from(reservation.id),
    };
    let begins = match reservation.begins.is_zero() {
        true => "has begun".to_string(),
        false => format!("begins in {:.1} s", reservation.begins.as_secs_f64()),
    };
    let ends = reservation.ends.as_secs_f64();
    let pes = u64::from(reservation.pes);
    let what = described(pes, reservation.up, reservation.down);
    format!("{name}  {what}  {begins}, ends in {ends:.1} s")
}

/// The processor elements and the rates of a reservation.
pub(crate) fn described(pes: u64, up: u64, down: u64) -> String {
    let rates = [(up, "up"), (down, "down")];
    let rates = rates.into_iter().filter(|(rate, _)| *rate > 0);
    let rates = rates.map(|(rate, way)| format!(", {} MB/s {way}", rate as f64 / 1e6));
    format!("{pes} PEs{}", rates.collect::<String>())
}

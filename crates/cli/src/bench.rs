//! `farcall bench`

mod beside;
mod call;
mod contender;
mod flow;
pub(crate) mod gang;
mod grid;
mod load;
mod process;
mod raw;
mod reservation;
mod table;
mod transaction;
mod trunk;

use crate::failure::Failure;
use clap::{Args, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};

/// Measure, beside a peer or a physical limit in the same run
#[derive(Args)]
#[command(after_help = "Example:\n  farcall bench call --peers")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Call(call::Arguments),
    Load(load::Arguments),
    Flow(flow::Arguments),
    Trunk(trunk::Arguments),
    Gang(gang::Arguments),
    Grid(grid::Arguments),
    Transaction(transaction::Arguments),
    Reservation(reservation::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Call(arguments) => call::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Flow(arguments) => flow::run(arguments),
        Command::Trunk(arguments) => trunk::run(arguments),
        Command::Gang(arguments) => gang::run(arguments),
        Command::Grid(arguments) => grid::run(arguments),
        Command::Transaction(arguments) => transaction::run(arguments),
        Command::Reservation(arguments) => reservation::run(arguments),
    }
}

/// Has Ctrl-C and SIGTERM end this process with its network namespaces removed before.
fn leave_no_lab() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // What cannot be removed now, the next lab sweeps away.
            let _ = farcall_trunk_lab::remove_all();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// An interface file of the project's libraries.
fn interface_file(libraries: &Path, name: &str) -> Result<PathBuf, Failure> {
    let idl = libraries.join(name);
    match idl.exists() {
        true => Ok(idl),
        false => Err(Failure::usage(format!(
            "{} is not there: run this in the folder of the project after `make build`, or name \
             the folder with --libraries",
            idl.display()
        ))),
    }
}

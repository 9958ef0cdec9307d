//! `farcall bench`

mod call;
mod contender;
mod flow;
pub(crate) mod gang;
mod load;
mod raw;
mod table;
mod trunk;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Measure, beside a peer or a physical limit in the same run
#[derive(Args)]
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
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Call(arguments) => call::run(arguments),
        Command::Load(arguments) => load::run(arguments),
        Command::Flow(arguments) => flow::run(arguments),
        Command::Trunk(arguments) => trunk::run(arguments),
        Command::Gang(arguments) => gang::run(arguments),
    }
}

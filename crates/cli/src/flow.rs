//! `farcall flow`: how long a communication pattern takes on a network. `run` and `plot` have its
//! commands, and the crate `flow` simulates.

mod huge_pages;
mod jobs;
pub(crate) mod plot;
mod run;
mod workload;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Simulate the messages of a communication pattern on a network
#[derive(Args)]
#[command(after_help = "Example:
  farcall flow run --platform torus:16x16,bandwidth=1e9 --pattern ring --size 1MB")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Plot(plot::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plot(arguments) => plot::run(arguments),
    }
}

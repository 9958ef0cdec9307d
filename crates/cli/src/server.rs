//! `farcall server`: what an operator does with a running server. `status`, `register` and `drain`
//! have the commands, which are also at the top level or have old names there.

use crate::failure::Failure;
use crate::{drain, register, status};
use clap::{Args, Subcommand};

/// Look at a running server, and drain it
#[derive(Args)]
#[command(after_help = "Examples:
  farcall server status farcall://localhost:3717
  farcall server drain farcall://localhost:3717")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Status(status::Arguments),
    Register(register::Arguments),
    Drain(drain::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Status(arguments) => status::run(arguments),
        Command::Register(arguments) => register::run(arguments),
        Command::Drain(arguments) => drain::run(arguments),
    }
}

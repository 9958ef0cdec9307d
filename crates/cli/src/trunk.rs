//! `farcall trunk`: several Ethernet links as one. The modules below have its commands, and the
//! crate `trunk` does the work.

mod down;
mod status;
mod up;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Combine several Ethernet links into one
#[derive(Args)]
#[command(after_help = "Example:\n  farcall trunk status")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Arguments),
    Down(down::Arguments),
    Status(status::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Up(arguments) => up::run(arguments),
        Command::Down(arguments) => down::run(arguments),
        Command::Status(arguments) => status::run(arguments),
    }
}

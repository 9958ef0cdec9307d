//! `farcall access`: who may use a server. `token` and `certificate` have its commands. They change
//! files only, and a server reads the files itself.

use crate::failure::Failure;
use crate::{certificate, token};
use clap::{Args, Subcommand};

/// Make tokens and certificates for users and servers
#[derive(Args)]
#[command(after_help = "Examples:
  farcall access token add tokens alice
  farcall access certificate server certificates node7.lab.example")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Token(token::Arguments),
    Certificate(certificate::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Token(arguments) => token::run(arguments),
        Command::Certificate(arguments) => certificate::run(arguments),
    }
}

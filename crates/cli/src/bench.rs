//! `farcall bench`

mod flow;
mod rows;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Measure, beside a peer or a physical limit in the same run
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand)]
enum Subject {
    Flow(flow::Arguments),
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.subject {
        Subject::Flow(arguments) => flow::run(arguments),
    }
}

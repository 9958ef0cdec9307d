//! `farcall idl`: checks interface files, and shows each error with its place. It needs no server.

use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Check interface files
#[derive(Args)]
#[command(after_help = "Example:\n  farcall idl check libraries/lapack.idl")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check interface files, and show each error with its place in the file
    #[command(after_help = "Example:\n  farcall idl check libraries/lapack.idl")]
    Check {
        /// Interface files to check
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Command::Check { files } = &arguments.command;
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (findings, accepted) = farcall_library::check_files(files, colour);
    print!("{findings}");
    if accepted {
        Ok(())
    } else {
        Err(Failure::failed(
            "the interface files have errors; see above",
        ))
    }
}

//! `farcall idl`

use crate::failure::Failure;
use clap::{Args, Subcommand};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Work with interface files
#[derive(Args)]
#[command(after_help = "Example:\n  farcall idl check libraries/lapack.idl")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check interface files and show what is wrong in them
    #[command(after_help = "Example:\n  farcall idl check libraries/lapack.idl")]
    Check {
        /// Files to check
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
        Err(Failure::failed("not every file is accepted"))
    }
}

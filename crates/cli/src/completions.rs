//! `farcall completions`: prints completions for a shell. clap writes them from the commands.

use crate::failure::Failure;
use crate::{Cli, commands};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::Write;

/// Print a script that completes commands and options in a shell
#[derive(Args)]
#[command(after_help = "Examples:
  farcall completions bash > ~/.local/share/bash-completion/completions/farcall
  farcall completions zsh > ~/.zfunc/_farcall          # a folder of $fpath
  farcall completions fish > ~/.config/fish/completions/farcall.fish
If the folder is missing, make it first, with `mkdir -p`.")]
pub(crate) struct Arguments {
    /// Shell that runs the script
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut command = commands::in_groups(Cli::command());
    // clap panics if it cannot write, so it writes into memory.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "farcall", &mut script);
    let written = std::io::stdout().write_all(&script);
    written.map_err(|error| Failure::cannot("write to", "standard output", error))
}

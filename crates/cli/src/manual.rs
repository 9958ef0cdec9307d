//! `farcall manual`: the help of all commands as man pages, or as one page of Markdown. Everything
//! comes from the definitions of the commands, so the pages cannot disagree with `--help`.

use crate::failure::Failure;
use crate::{Cli, commands};
use clap::{Args, Command, CommandFactory};
use std::path::PathBuf;

/// Columns of the Markdown page's help texts.
const WIDTH: usize = 100;

/// Write a man page for each command
#[derive(Args)]
#[command(after_help = "Examples:
  farcall manual ~/.local/share/man/man1
  farcall manual --markdown > docs/reference/cli.md")]
pub(crate) struct Arguments {
    /// Folder for the man pages; the command makes it if it does not exist
    #[arg(value_name = "FOLDER", required_unless_present = "markdown")]
    folder: Option<PathBuf>,
    /// Print one page of Markdown instead
    #[arg(long, conflicts_with = "folder")]
    markdown: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let command = commands::in_groups(Cli::command());
    let Some(folder) = &arguments.folder else {
        print!("{}", markdown(command));
        return Ok(());
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(command, folder))
        .map_err(|error| Failure::cannot("write man pages in", folder.display(), error))
}

/// The help of every command.
fn markdown(command: Command) -> String {
    let mut command = command.term_width(WIDTH).disable_help_subcommand(true);
    command.build();
    let mut page = String::from(
        "# Reference of the command line\n\n\
         Made by `cargo xtask generate` from the texts of `farcall COMMAND --help`: do not edit.\n",
    );
    add(&mut command, "farcall", &mut page);
    page
}

fn add(command: &mut Command, name: &str, page: &mut String) {
    let plain = command.clone().mut_args(|one| one.hide_env_values(true));
    let help = plain.term_width(WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    *page += &format!("\n## {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    for one in command
        .get_subcommands_mut()
        .filter(|one| !one.is_hide_set())
    {
        let name = format!("{name} {}", one.get_name());
        add(one, &name, page);
    }
}

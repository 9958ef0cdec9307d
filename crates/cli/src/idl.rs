//! `farcall idl`: checks interface files and shows each error with its place, or prints the
//! interfaces as data. It needs no server.

use crate::failure::Failure;
use crate::installed;
use clap::{Args, Subcommand};
use farcall_gateway::describe;
use farcall_idl::{Document, Interface, Library};
use farcall_library::Catalog;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;

/// Check interface files, or show them as data
#[derive(Args)]
#[command(after_help = "Examples:
  farcall idl check libraries/lapack.idl
  farcall idl show --json libraries/lapack.idl")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check interface files, and show each error with its place in the file
    #[command(after_help = "Example:\n  farcall idl check libraries/lapack.idl")]
    Check {
        /// Interface files to check, or the names of those that come with Farcall
        #[arg(required = true, value_name = "FILE", value_parser = installed::interface)]
        files: Vec<PathBuf>,
    },
    /// Show the interfaces of a file as a server would tell them
    #[command(after_help = "Examples:
  farcall idl show libraries/lapack.idl
  farcall idl show --json libraries/lapack.idl | jq '.functions[].calls'")]
    Show {
        /// Interface file, or the name of one that comes with Farcall
        #[arg(value_parser = installed::interface)]
        file: PathBuf,
        /// Print one JSON object, with each dimension, range, cost and call
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Check { files } => check(files),
        Command::Show { file, json } => show(file, *json),
    }
}

fn check(files: &[PathBuf]) -> Result<(), Failure> {
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

fn show(file: &PathBuf, as_json: bool) -> Result<(), Failure> {
    let catalog = Catalog::load([file]).map_err(Failure::failed)?;
    for (_, document) in catalog.files() {
        match as_json {
            true => println!("{}", document_as_json(document)),
            false => document
                .functions()
                .for_each(|interface| print!("{interface}")),
        }
    }
    Ok(())
}

fn document_as_json(document: &Document) -> Value {
    let functions = document.functions();
    let functions = functions.map(|interface: &Interface| describe(interface, &interface.text()));
    let libraries = document.libraries.iter().map(|library| match library {
        Library::Library(name) => json!({ "library": name }),
        Library::File(name) => json!({ "file": name }),
    });
    json!({
        "schema": 1,
        "module": document.module,
        "libraries": libraries.collect::<Vec<_>>(),
        "functions": functions.collect::<Vec<_>>(),
    })
}

//! `farcall idl`: checks interface files and shows each error with its place, or prints the
//! interfaces as data. It needs no server.

use crate::doctor;
use crate::failure::Failure;
use crate::library;
use crate::preprocessor::Preprocessor;
use clap::{Args, Subcommand};
use farcall_gateway::describe;
use farcall_idl::{Document, Interface, Library};
use farcall_library::Catalog;
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Check interface files, or show them as data
#[derive(Args)]
#[command(after_help = "Examples:
  farcall idl check libraries/lapack.idl
  farcall idl draft heat.h -o heat.idl
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
        #[arg(required = true, value_name = "FILE", value_parser = library::interface)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        preprocessor: Preprocessor,
    },
    /// Write a first interface from a header, a source, a signature or a Python module
    ///
    /// The draft marks what the source does not say with a question, as in `/* ? ... */`.
    /// Procedures of Fortran modules need a shim, which the command writes beside the draft. From a
    /// Python module it writes a module for `farcall serve`.
    #[command(after_help = "Examples:
  farcall idl draft heat.h -o heat.idl
  farcall idl draft solver.f90 --library ./libsolver.so -o solver.idl
  farcall idl draft model.py -o served_model.py")]
    Draft {
        /// C headers and sources (.h, .c), Fortran (.f, .f90), f2py signatures (.pyf), or one
        /// Python module (.py)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// New file for the draft; standard output without it
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Library that has the functions [default: ./libNAME.so]
        #[arg(long, value_name = "NAME")]
        library: Option<String>,
        #[command(flatten)]
        preprocessor: Preprocessor,
    },
    /// Show the interfaces of a file as a server would tell them
    #[command(after_help = "Examples:
  farcall idl show libraries/lapack.idl
  farcall idl show --json libraries/lapack.idl | jq '.functions[].calls'")]
    Show {
        /// Interface file, or the name of one that comes with Farcall
        #[arg(value_parser = library::interface)]
        file: PathBuf,
        /// Print one JSON object, with each dimension, range, cost and call
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        preprocessor: Preprocessor,
    },
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Check {
            files,
            preprocessor,
        } => check(files, &preprocessor.options()?),
        Command::Draft {
            files,
            output,
            library,
            preprocessor,
        } => draft(
            files,
            output.as_deref(),
            library.as_deref(),
            &preprocessor.options()?,
        ),
        Command::Show {
            file,
            json,
            preprocessor,
        } => show(file, &preprocessor.options()?, *json),
    }
}

fn check(files: &[PathBuf], options: &[String]) -> Result<(), Failure> {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (findings, accepted) = farcall_library::check_files(files, options, colour);
    print!("{findings}");
    if accepted {
        Ok(())
    } else {
        Err(Failure::failed(
            "the interface files have errors; see above",
        ))
    }
}

/// Has the Python package read the files.
fn draft(
    files: &[PathBuf],
    output: Option<&Path>,
    library: Option<&str>,
    options: &[String],
) -> Result<(), Failure> {
    let (python, module) = farcall_library::python_draft();
    let mut command = std::process::Command::new(&python);
    command.args(module).args(options);
    if let Some(output) = output {
        command.arg("-o").arg(output);
    }
    if let Some(library) = library {
        command.arg("--library").arg(library);
    }
    let status = command.args(files).status().map_err(|error| {
        Failure::failed(format!(
            "cannot run {}: {error}; install Python and the farcall package, or name the \
             interpreter in FARCALL_PYTHON",
            python.to_string_lossy()
        ))
    })?;
    match status.success() {
        true => Ok(()),
        false => {
            doctor::check_package(&python)?;
            Err(Failure::failed("there is no draft; see above"))
        }
    }
}

fn show(file: &PathBuf, options: &[String], as_json: bool) -> Result<(), Failure> {
    let catalog = Catalog::load_with([file], options).map_err(Failure::failed)?;
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

//! `farcall bench`: starts `farcall-bench`, the program with the benchmarks, with the same
//! arguments. It measures nothing itself. The benchmark measures this program, unless the
//! environment names another.

use crate::failure::Failure;
use clap::Args;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

const PROGRAM: &str = "farcall-bench";

/// Measure Farcall beside another system or a physical limit
///
/// The command runs the program `farcall-bench`, which `make build` puts beside this one. Each
/// figure stands beside that of a peer or a physical limit from the same run.
#[derive(Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(after_help = "Examples:
  farcall bench --help
  farcall bench call --peers")]
pub(crate) struct Arguments {
    /// What to measure; `farcall bench --help` lists it
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENT"
    )]
    arguments: Vec<OsString>,
}

/// Becomes the program beside this one, or else the one on the path; returns only if there is none.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name(PROGRAM);
    let mut command = match beside.is_file() {
        true => Command::new(beside),
        false => Command::new(PROGRAM),
    };
    command.args(&arguments.arguments);
    if std::env::var_os("FARCALL_PROGRAM").is_none() {
        command.env("FARCALL_PROGRAM", own);
    }
    let error = command.exec();
    let text = match error.kind() {
        ErrorKind::NotFound => format!(
            "cannot find {PROGRAM} beside this program or on the path: the package does not \
             include it. In a clone of the project, `make build` makes it in target/release"
        ),
        _ => format!("cannot run {PROGRAM}: {error}"),
    };
    Err(Failure::failed(text))
}

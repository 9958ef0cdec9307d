//! Finds the measured `farcall` program, and the interface files of the project's libraries. It
//! builds nothing: if something is missing, the error says what to build.

use crate::failure::Failure;
use std::env;
use std::path::{Path, PathBuf};

/// Environment variable that names another program to measure, such as that of an older build.
pub(crate) const VARIABLE: &str = "FARCALL_PROGRAM";

/// The `farcall` to measure: the one beside this program, unless the environment names another.
pub(crate) fn farcall() -> Result<PathBuf, Failure> {
    if let Some(named) = env::var_os(VARIABLE) {
        return Ok(named.into());
    }
    let beside = env::current_exe()?.with_file_name("farcall");
    match beside.is_file() {
        true => Ok(beside),
        false => Err(Failure::failed(format!(
            "no {}: build it with `make build`, or name one with {VARIABLE}",
            beside.display()
        ))),
    }
}

/// An interface file of the project's libraries.
pub(crate) fn interface_file(libraries: &Path, name: &str) -> Result<PathBuf, Failure> {
    let idl = libraries.join(name);
    match idl.exists() {
        true => Ok(idl),
        false => Err(Failure::usage(format!(
            "{} is not there: run this in the folder of the project after `make build`, or name \
             the folder with --libraries",
            idl.display()
        ))),
    }
}

/// The arguments of a benchmark, from the words after its name.
#[cfg(test)]
pub(crate) fn arguments<A: clap::Args>(words: Vec<&str>) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    A::from_arg_matches(&command.try_get_matches_from(words)?)
}

//! Tasks of the project. `cargo xtask tidy` checks the house rules of `CONTRIBUTING.md`, `cargo
//! xtask generate` writes the generated files, and `cargo xtask simulate` plays servers in virtual
//! time.

mod generate;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy       lengths, names, dependency direction, purity of the cores, stale generated files
  generate   writes the generated files again
  simulate   plays servers in virtual time; see `cargo xtask simulate --help`
";

fn main() -> ExitCode {
    let root = root();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["tidy"] => tidy::run(&root),
        ["generate"] => generate::run(&root),
        ["simulate", ..] => simulate(&root, &arguments[1..]),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the simulator, which is a crate for tests.
fn simulate(root: &Path, arguments: &[&str]) -> Result<bool, String> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(root)
        .args(["run", "--quiet", "--locked", "--release"]);
    cargo.args(["--package", "farcall-simulator", "--"]);
    let status = cargo.args(arguments).status();
    let status = status.map_err(|error| format!("cargo run: {error}"))?;
    Ok(status.success())
}

/// The workspace's root: the folder above this package.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}

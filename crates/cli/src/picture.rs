//! Pictures: finds the Python interpreter and has the Python package draw. This program writes only
//! data. A file format that the package does not write is refused first.

use crate::failure::Failure;
use crate::results::also_read;
use clap::Args;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python interpreter that draws.
#[derive(Args)]
pub(crate) struct Painter {
    /// Python interpreter with farcall and matplotlib
    #[arg(long, env = "FARCALL_PYTHON", value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

impl Painter {
    /// Fails if the interpreter cannot draw, before something is computed for long.
    pub(crate) fn check(&self, module: &str) -> Result<(), Failure> {
        self.run(module, ["-c", "import farcall, matplotlib"])
    }

    /// Runs a module of the package, and returns when it has written the picture.
    pub(crate) fn draw(
        &self,
        module: &str,
        arguments: impl IntoIterator<Item: AsRef<OsStr>>,
    ) -> Result<(), Failure> {
        let arguments = arguments.into_iter().map(|word| word.as_ref().to_owned());
        let words = ["-m", module].map(Into::into).into_iter();
        self.run(module, words.chain(arguments))
    }

    fn run(
        &self,
        module: &str,
        words: impl IntoIterator<Item: AsRef<OsStr>>,
    ) -> Result<(), Failure> {
        let python = self.python.clone().unwrap_or_else(interpreter);
        let run = Command::new(&python)
            .args(words)
            .output()
            .map_err(|error| {
                let python = python.display();
                Failure::failed(format!(
                    "cannot run {python}: {error}; name a Python interpreter with --python"
                ))
            })?;
        if run.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&run.stderr);
        let ended = || match run.status.signal() {
            Some(9) => "it was killed, probably because memory was short".to_string(),
            _ => run.status.to_string(),
        };
        let last = text.trim().lines().last();
        let last = last.map_or_else(ended, ToString::to_string);
        Err(Failure::failed(explained(&python, module, &last)))
    }
}

/// What the last line of Python says. A `ValueError` is about the data. If a package is missing,
/// the text says how to get it.
fn explained(python: &Path, module: &str, last: &str) -> String {
    if let Some(about_data) = last.strip_prefix("ValueError: ") {
        return about_data.to_string();
    }
    let told = format!("{} -m {module}: {last}", python.display());
    let is_missing = ["ImportError", "ModuleNotFoundError", "No module named"];
    match is_missing.iter().any(|word| last.contains(word)) {
        true => format!(
            "{told}\n  pictures need the Python packages farcall and matplotlib: run `make \
             build`, or name an interpreter that has them with --python"
        ),
        false => told,
    }
}

/// Refuses other formats than those. `option` names the picture.
pub(crate) fn check_form(option: &str, picture: &Path) -> Result<(), Failure> {
    match picture.extension().and_then(OsStr::to_str) {
        Some("svg" | "png" | "pdf") => Ok(()),
        _ => Err(Failure::usage(format!(
            "{option} must end in .svg, .png or .pdf"
        ))),
    }
}

/// Refuses a picture that would replace a file of which it is drawn. `option` names the picture.
pub(crate) fn check_apart(
    option: &str,
    picture: &Path,
    inputs: impl IntoIterator<Item: AsRef<Path>>,
) -> Result<(), Failure> {
    match also_read([picture], inputs) {
        None => Ok(()),
        Some(_) => Err(Failure::usage(format!(
            "{option} {} would replace the file that it is drawn from; name another file",
            picture.display()
        ))),
    }
}

/// The interpreter beside this program, as in a virtual environment, else that of the project's
/// `.venv`, else `python3`.
fn interpreter() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| {
        let folder = exe.parent()?;
        let venv = folder.parent()?.parent()?.join(".venv/bin/python");
        [folder.join("python3"), venv]
            .into_iter()
            .find(|python| python.is_file())
    });
    beside.unwrap_or_else(|| PathBuf::from("python3"))
}

#[cfg(test)]
mod tests {
    use super::{check_apart, explained};
    use std::path::Path;

    #[test]
    fn only_a_missing_package_is_told_to_be_installed() {
        let told = |last| explained(Path::new("python3"), "farcall._gantt", last);
        assert_eq!(told("ValueError: t has no switches"), "t has no switches");
        let other = told("KeyError: 'in'");
        assert_eq!(other, "python3 -m farcall._gantt: KeyError: 'in'");
        for missing in [
            "ImportError: charts need matplotlib",
            "python3: No module named farcall",
        ] {
            assert!(told(missing).contains("--python"), "{missing}");
        }
    }

    #[test]
    fn a_picture_does_not_replace_what_it_is_drawn_from() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace.svg");
        std::fs::write(&trace, "a trace").unwrap();
        let same = folder.path().join(".").join("trace.svg");
        let error = check_apart("--output", &same, [&trace]).unwrap_err();
        assert!(error.to_string().contains("would replace"), "{error}");
        let other = folder.path().join("other.svg");
        assert!(check_apart("--output", &other, [&trace]).is_ok());
    }
}

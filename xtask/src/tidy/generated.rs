//! Checks that generated files equal the output of their generators. It writes nothing: `cargo
//! xtask generate` does.

use super::{Failure, Finding};
use crate::generate;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for file in generate::files(root)? {
        let present = fs::read_to_string(root.join(file.path)).unwrap_or_default();
        if present != file.text {
            let text = "is not what its generator writes: run `cargo xtask generate`";
            findings.push(Finding::error(file.path, text));
        }
    }
    findings.extend(interfaces(root)?);
    Ok(findings)
}

/// The interfaces of BLAS, LAPACK and FFTW have a generator of their own.
fn interfaces(root: &Path) -> Result<Option<Finding>, Failure> {
    let generator = "libraries/generate.py";
    if !root.join(generator).is_file() {
        return Ok(None);
    }
    let own = root.join(".venv/bin/python");
    let python = if own.is_file() {
        own.as_os_str()
    } else {
        OsStr::new("python3")
    };
    let run = Command::new(python)
        .args([generator, "--check"])
        .current_dir(root)
        .output();
    let run = run.map_err(|error| format!("{}: {error}", python.display()))?;
    let said = format!(
        "its files are stale:\n{}{}",
        String::from_utf8_lossy(&run.stdout),
        String::from_utf8_lossy(&run.stderr)
    );
    Ok((!run.status.success()).then(|| Finding::error(generator, said)))
}

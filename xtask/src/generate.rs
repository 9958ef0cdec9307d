//! Generated files: which files they are, and their generators. `tidy::generated` checks the
//! header, and a test of the command checks the reference, because it takes a build.

mod header;

use std::fs;
use std::path::Path;
use std::process::Command;

/// One generated file.
pub(crate) struct Generated {
    /// Relative to the root.
    pub(crate) path: &'static str,
    pub(crate) text: String,
}

/// Every generated file, as its generator writes it now.
pub(crate) fn files(root: &Path) -> Result<Vec<Generated>, String> {
    let mut files = Vec::new();
    if root.join("bindings/c").is_dir() {
        files.push(Generated {
            path: "bindings/c/include/farcall.h",
            text: header::header(root)?,
        });
    }
    Ok(files)
}

/// Writes them all.
pub(crate) fn run(root: &Path) -> Result<bool, String> {
    for file in files(root)? {
        let path = root.join(file.path);
        fs::write(&path, file.text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("generate: {}", file.path);
    }
    fs::write(root.join(REFERENCE), reference(root)?)
        .map_err(|error| format!("{REFERENCE}: {error}"))?;
    println!("generate: {REFERENCE}");
    Ok(true)
}

/// The reference of the command line. It takes a build of the command, so that a test of the
/// command compares it and not `tidy`.
const REFERENCE: &str = "docs/reference/cli.md";

fn reference(root: &Path) -> Result<String, String> {
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["run", "--quiet", "--package", "farcall-cli", "--"])
        .args(["manual", "--markdown"])
        .output();
    let output = output.map_err(|error| format!("cargo run: {error}"))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

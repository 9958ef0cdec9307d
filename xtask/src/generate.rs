//! The files that are made from others.

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
            text: header(root)?,
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

/// Where the variadic calls go: before the end of the declarations.
const END: &str = "#ifdef __cplusplus\n}  // extern \"C\"";

/// The header of the C library: declarations from the Rust source, then the variadic calls, which
/// are C.
fn header(root: &Path) -> Result<String, String> {
    let library = root.join("bindings/c");
    let config = cbindgen::Config::from_file(library.join("cbindgen.toml"))?;
    let variadic = library.join("src/variadic.h");
    let variadic = fs::read_to_string(&variadic)
        .map_err(|error| format!("{}: {error}", variadic.display()))?;
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = builder.with_src(library.join("src/lib.rs")).generate();
    let mut text = Vec::new();
    bindings
        .map_err(|error| error.to_string())?
        .write(&mut text);
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    // In C the whole contract is the comment: there is no section for what is unsafe.
    let text = text.replace("// # Safety\n", "");
    match text.split_once(END) {
        Some((declarations, end)) => Ok(format!("{declarations}{variadic}\n{END}{end}")),
        None => Err("bindings/c: cbindgen's header ends in another way than before".to_owned()),
    }
}

//! `make build` compiles the command, and then the Python module in a run of cargo of its own. If
//! a package has other features there, cargo compiles it again, with all that depend on it.

use super::{Failure, Finding};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const COMMAND: &[&str] = &["farcall-cli", "farcall-bench", "farcall-c"];
const MODULE: &[&str] = &["farcall-python"];
const PLACE: &str = "bindings/python/Cargo.toml";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let command = features(root, COMMAND)?;
    let module = features(root, MODULE)?;
    Ok(differences(&command, &module))
}

/// Packages of both, with other features in the second.
fn differences(command: &BTreeSet<String>, module: &BTreeSet<String>) -> Vec<Finding> {
    let name = |line: &str| line.split('[').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = command.iter().map(|line| name(line)).collect();
    let others = module.difference(command);
    let twice = others.filter(|line| names.contains(&name(line)));
    twice
        .map(|line| {
            let wanted = command.iter().filter(|one| name(one) == name(line));
            let wanted: Vec<&str> = wanted.map(String::as_str).collect();
            let wanted = wanted.join(" or ");
            let text = format!("cargo compiles `{line}` besides `{wanted}`: name these features");
            Finding::error(PLACE, text)
        })
        .collect()
}

/// The dependencies of these packages: `name vVERSION [FEATURE,...]`.
fn features(root: &Path, packages: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let mut cargo = Command::new("cargo");
    cargo.args(["tree", "--locked", "--edges", "normal,build"]);
    cargo.args(["--prefix", "none", "--no-dedupe", "--format", "{p} [{f}]"]);
    let packages = packages.iter().flat_map(|name| ["--package", name]);
    let output = cargo.args(packages).current_dir(root).output();
    let output = output.map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo tree: {said}"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(lines: &[&str]) -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn other_features_of_a_common_package_are_found() {
        let command = set(&["one v1 [std]", "two v1 [alloc,std]", "two v2 []"]);
        let module = set(&[
            "one v1 [std]",
            "two v1 [std]",
            "two v2 []",
            "three v1 [std]",
        ]);
        let found = differences(&command, &module);
        let texts: Vec<&str> = found.iter().map(|one| one.text.as_str()).collect();
        let told = "cargo compiles `two v1 [std]` besides `two v1 [alloc,std]`";
        assert_eq!(texts, [format!("{told}: name these features")]);
    }
}

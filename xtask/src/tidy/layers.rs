//! Which crate may depend on which: downward only.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::purity::PURE;
use super::{Failure, Finding};

/// The layers, lowest first. A crate may depend on crates of lower layers.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "leaf",
        &[
            "crates/idl",
            "crates/metrics",
            "crates/quantity",
            "crates/random",
            "crates/spelling",
        ],
    ),
    (
        "core",
        &[
            "crates/channel-proto",
            "crates/directory",
            "crates/flow",
            "crates/gang-proto",
            "crates/gridsim",
            "crates/npy",
            "crates/plan",
            "crates/rpc-proto",
            "crates/schedule",
            "crates/server-proto",
            "crates/trunk-proto",
        ],
    ),
    (
        "system-call crate",
        &[
            "crates/channel",
            "crates/child",
            "crates/library",
            "crates/spin",
            "crates/tls",
            "crates/trunk-device",
            "crates/worker",
        ],
    ),
    (
        "shell",
        &[
            "crates/access",
            "crates/web",
            "crates/client",
            "crates/gang",
            "crates/lab",
            "crates/metaserver",
            "crates/server",
            "crates/trunk",
        ],
    ),
    (
        "surface",
        &[
            "crates/bench",
            "crates/cli",
            "bindings/c",
            "bindings/python",
            "xtask",
            "benches",
        ],
    ),
    ("test", &["fuzz"]),
];

/// Dependencies allowed inside one layer: `(from, to)`. Never in a circle.
const SIDEWAYS: &[(&str, &str)] = &[
    ("crates/directory", "crates/schedule"),
    ("crates/server-proto", "crates/directory"),
    ("crates/server-proto", "crates/rpc-proto"),
    ("crates/server-proto", "crates/schedule"),
    ("crates/gridsim", "crates/flow"),
    ("crates/gridsim", "crates/schedule"),
    ("crates/gang", "crates/web"),
    ("crates/trunk", "crates/web"),
    ("crates/metaserver", "crates/client"),
    ("crates/idl", "crates/spelling"),
    ("crates/metaserver", "crates/access"),
    ("crates/server", "crates/access"),
    ("crates/schedule", "crates/flow"),
    ("crates/server", "crates/client"),
    ("crates/worker", "crates/library"),
];

/// Packages that do I/O, or read clocks or entropy: not for a pure core.
const IMPURE_PACKAGES: &[&str] = &[
    "fastrand",
    "getrandom",
    "libc",
    "mio",
    "nix",
    "rayon",
    "rustix",
    "socket2",
    "tokio",
];

/// One package of the workspace.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: String,
    /// Its folder, relative to the root.
    pub(super) folder: String,
    pub(super) dependencies: Vec<Dependency>,
}

#[derive(Debug)]
pub(super) struct Dependency {
    name: String,
    /// The folder of a package of ours.
    folder: Option<String>,
    for_tests: bool,
}

impl Package {
    /// True for crates that must build without `std`.
    pub(super) fn is_bare(&self) -> bool {
        // What a server decides rests on cores that use `std`.
        let is_proto = self.folder.ends_with("-proto") && self.folder != "crates/server-proto";
        self.folder == "crates/idl" || is_proto
    }
}

/// Reads the packages of the workspace from `cargo metadata`.
pub(super) fn workspace(root: &Path) -> Result<Vec<Package>, Failure> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Ok(packages(&metadata))
}

fn packages(metadata: &Value) -> Vec<Package> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let relative = |path: &str| {
        let path = path
            .strip_prefix(root)
            .unwrap_or(path)
            .trim_start_matches('/');
        path.trim_end_matches("/Cargo.toml").to_owned()
    };
    let dependency = |value: &Value| Dependency {
        name: value["name"].as_str().unwrap_or_default().to_owned(),
        folder: value["path"].as_str().map(relative),
        for_tests: value["kind"] == "dev",
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&metadata["packages"])
        .iter()
        .map(|package| Package {
            name: package["name"].as_str().unwrap_or_default().to_owned(),
            folder: relative(package["manifest_path"].as_str().unwrap_or_default()),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(dependency)
                .collect(),
        })
        .collect()
}

pub(super) fn check(workspace: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace {
        if level(&package.folder).is_none() {
            let text = "in no layer: add it to LAYERS in xtask/src/tidy/layers.rs";
            findings.push(Finding::error(&package.folder, text));
        }
        for dependency in &package.dependencies {
            findings.extend(
                breach(package, dependency)
                    .map(|text| Finding::error(format!("{}/Cargo.toml", package.folder), text)),
            );
        }
    }
    findings
}

/// The layer's place in [`LAYERS`]. All of `testing/` lies above everything else.
fn level(folder: &str) -> Option<usize> {
    match folder.starts_with("testing/") {
        true => Some(LAYERS.len() - 1),
        false => LAYERS
            .iter()
            .position(|(_, folders)| folders.contains(&folder)),
    }
}

fn breach(package: &Package, dependency: &Dependency) -> Option<String> {
    let from = package.folder.as_str();
    let Some(to) = dependency.folder.as_deref() else {
        let pure = PURE.iter().any(|name| from == format!("crates/{name}"));
        let impure = IMPURE_PACKAGES.contains(&dependency.name.as_str());
        return (pure && impure && !dependency.for_tests)
            .then(|| format!("a core may not depend on `{}`", dependency.name));
    };
    let (upper, lower) = (level(from)?, level(to)?);
    let tests = LAYERS.len() - 1;
    if lower == tests && upper != tests {
        return Some(format!("nothing outside testing/ may depend on `{to}`"));
    }
    let sideways = upper == lower && (SIDEWAYS.contains(&(from, to)) || upper == tests);
    if lower < upper || sideways {
        return None;
    }
    // A test may look at a neighbour, never at a layer above.
    if dependency.for_tests && upper == lower {
        return None;
    }
    let (upper, lower) = (LAYERS[upper].0, LAYERS[lower].0);
    Some(format!(
        "a {upper} may not depend on `{to}`, a {lower}: dependencies point down only"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(folder: &str, dependency: Value) -> Vec<String> {
        let metadata = json!({
            "workspace_root": "/r",
            "packages": [{
                "name": "x",
                "manifest_path": format!("/r/{folder}/Cargo.toml"),
                "dependencies": [dependency],
            }],
        });
        check(&packages(&metadata))
            .into_iter()
            .map(|finding| finding.text)
            .collect()
    }

    fn on(folder: &str) -> Value {
        json!({ "name": "y", "path": format!("/r/{folder}"), "kind": null })
    }

    #[test]
    fn down_is_allowed_and_up_is_not() {
        assert!(found("crates/server", on("crates/rpc-proto")).is_empty());
        assert!(found("bindings/python", on("crates/client")).is_empty());
        assert_eq!(found("crates/rpc-proto", on("crates/client")).len(), 1);
        assert_eq!(found("crates/client", on("crates/cli")).len(), 1);
    }

    #[test]
    fn cores_stand_beside_each_other_only_where_the_table_says_so() {
        assert!(found("crates/gridsim", on("crates/flow")).is_empty());
        assert_eq!(found("crates/flow", on("crates/gridsim")).len(), 1);
        assert_eq!(found("crates/gang-proto", on("crates/rpc-proto")).len(), 1);
    }

    #[test]
    fn nothing_depends_on_testing() {
        assert_eq!(found("crates/cli", on("testing/simtest")).len(), 1);
        assert!(found("testing/e2e", on("testing/netem")).is_empty());
    }

    #[test]
    fn a_new_crate_must_take_its_place() {
        assert_eq!(found("crates/novel", on("crates/idl")).len(), 1);
    }

    #[test]
    fn a_pure_core_may_use_libc_in_tests_only() {
        let libc = |kind| json!({ "name": "libc", "kind": kind });
        assert_eq!(found("crates/flow", libc(Value::Null)).len(), 1);
        assert!(found("crates/flow", libc("dev".into())).is_empty());
        assert!(found("crates/server", libc(Value::Null)).is_empty());
    }
}

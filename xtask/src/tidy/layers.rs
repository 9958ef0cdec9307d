//! Checks the layers of crates: a crate may depend only on crates of lower layers. The exceptions
//! inside a layer are listed, and an entry that is no longer needed is an error too.

use super::purity::PURE;
use super::sources::Source;
use super::{Failure, Finding};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The layers, lowest first. A crate may depend on crates of lower layers.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "leaf",
        &[
            "crates/metrics",
            "crates/quantity",
            "crates/random",
            "crates/scram",
            "crates/spelling",
        ],
    ),
    (
        "language",
        &[
            "crates/idl",
            "crates/npy",
            "crates/plan",
            "crates/record",
            "crates/snapshot",
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
            "crates/rpc-proto",
            "crates/schedule",
            "crates/server-proto",
            "crates/trunk-proto",
            "crates/twin",
        ],
    ),
    (
        "system-call crate",
        &[
            "crates/channel",
            "crates/child",
            "crates/library",
            "crates/memory",
            "crates/spin",
            "crates/tls",
            "crates/trunk-device",
        ],
    ),
    (
        "part of daemons",
        &[
            "crates/access",
            "crates/otlp",
            "crates/recorder",
            "crates/web",
            "crates/worker",
        ],
    ),
    (
        "shell",
        &[
            "crates/client",
            "crates/gang",
            "crates/gateway",
            "crates/lab",
            "crates/metaserver",
            "crates/offload",
            "crates/server",
            "crates/trunk",
        ],
    ),
    (
        "surface",
        &[
            "bindings/c",
            "bindings/python",
            "crates/bench",
            "crates/cli",
            "xtask",
        ],
    ),
    (
        "test",
        &[
            "fuzz",
            "testing/corpus",
            "testing/simulator",
            "testing/system",
        ],
    ),
];

/// Dependencies allowed inside one layer: `(from, to)`. Never in a circle.
const SIDEWAYS: &[(&str, &str)] = &[
    ("crates/directory", "crates/rpc-proto"),
    ("crates/directory", "crates/schedule"),
    ("crates/gateway", "crates/client"),
    ("crates/gridsim", "crates/flow"),
    ("crates/gridsim", "crates/schedule"),
    ("crates/metaserver", "crates/client"),
    ("crates/npy", "crates/idl"),
    ("crates/offload", "crates/client"),
    ("crates/server", "crates/client"),
    ("crates/channel", "crates/memory"),
    ("crates/server-proto", "crates/directory"),
    ("crates/server-proto", "crates/rpc-proto"),
    ("crates/server-proto", "crates/schedule"),
    ("crates/twin", "crates/gridsim"),
    ("crates/twin", "crates/schedule"),
];

/// Crates that users link into their programs. They must not bring an asynchronous runtime.
const EMBEDDED: &[&str] = &["bindings/c", "bindings/python", "crates/offload"];

/// Packages of asynchronous runtimes.
const RUNTIMES: &[&str] = &["axum", "hyper", "postgres", "tokio"];

/// Crates that build without `std`, besides the protocol cores.
const BARE: &[&str] = &[
    "crates/idl",
    "crates/quantity",
    "crates/random",
    "crates/scram",
    "crates/spelling",
];

/// Packages that do I/O, or read clocks or entropy. Pure cores must not use them.
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
        match PURE
            .iter()
            .any(|name| self.folder == format!("crates/{name}"))
        {
            true => false,
            false => BARE.contains(&self.folder.as_str()) || self.folder.ends_with("-proto"),
        }
    }
}

/// Reads the packages of the workspace from `cargo metadata`.
pub(super) fn workspace(root: &Path) -> Result<Vec<Package>, Failure> {
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
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

pub(super) fn check(
    root: &Path,
    workspace: &[Package],
    sources: &[Source],
) -> Result<Vec<Finding>, Failure> {
    let mut findings = breaches(workspace);
    findings.extend(unused(workspace, sources));
    findings.extend(runtimes(workspace));
    findings.extend(stale(root, workspace));
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md"));
    let text = text.map_err(|error| format!("ARCHITECTURE.md: {error}"))?;
    findings.extend(undescribed(&text, workspace));
    Ok(findings)
}

/// Dependencies on our crates that no file of the package names.
fn unused(workspace: &[Package], sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The corpus includes the files of fuzz/.
    let others = |package: &&Package| !package.folder.starts_with("testing/");
    for package in workspace.iter().filter(others) {
        let folder = format!("{}/", package.folder);
        let own = sources.iter().filter(|source| source.rust.is_some());
        let own: Vec<&Source> = own
            .filter(|source| source.path.starts_with(&folder))
            .collect();
        for dependency in package
            .dependencies
            .iter()
            .filter(|one| one.folder.is_some())
        {
            let name = dependency.name.replace('-', "_");
            if !own.iter().any(|source| source.text.contains(&name)) {
                let text = format!("`{}` is not used", dependency.name);
                findings.push(Finding::error(format!("{folder}Cargo.toml"), text));
            }
        }
    }
    findings
}

/// Entries in the tables of this file that name nothing, or that are not needed.
fn stale(root: &Path, workspace: &[Package]) -> Vec<Finding> {
    let place = "xtask/src/tidy/layers.rs";
    let mut findings = Vec::new();
    for (layer, folders) in LAYERS {
        if folders.is_empty() {
            let text = format!("the layer `{layer}` has no crates");
            findings.push(Finding::error(place, text));
        }
        let is_gone = |folder: &&&str| !root.join(folder).join("Cargo.toml").is_file();
        let gone = folders.iter().filter(is_gone);
        findings.extend(gone.map(|folder| {
            let text = format!("LAYERS: there is no crate `{folder}`");
            Finding::error(place, text)
        }));
    }
    let pure = PURE.iter().map(|name| format!("crates/{name}"));
    let gone = pure.filter(|folder| !root.join(folder).is_dir());
    findings.extend(gone.map(|folder| {
        let text = format!("PURE: there is no crate `{folder}`");
        Finding::error("xtask/src/tidy/purity.rs", text)
    }));
    let unused = SIDEWAYS.iter().filter(|(from, to)| {
        let package = workspace.iter().find(|package| package.folder == *from);
        let mut dependencies = package
            .into_iter()
            .flat_map(|package| &package.dependencies);
        !dependencies.any(|one| one.folder.as_deref() == Some(to) && !one.for_tests)
    });
    findings.extend(unused.map(|(from, to)| {
        let text = format!("SIDEWAYS: `{from}` does not depend on `{to}`");
        Finding::error(place, text)
    }));
    findings
}

/// Crates without a row in the table of folders, and rows without a folder.
fn undescribed(text: &str, workspace: &[Package]) -> Vec<Finding> {
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let named: Vec<&str> = first
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    let is_described = |package: &&Package| {
        package.folder.split_once('/').is_none()
            || package.folder.starts_with("testing/")
            || named.contains(&package.folder.as_str())
    };
    let missing = workspace.iter().filter(|package| !is_described(package));
    let missing = missing.map(|package| {
        let text = "has no row in the table of folders in ARCHITECTURE.md";
        Finding::error(&package.folder, text)
    });
    let is_gone = |name: &&&str| {
        let is_known = |package: &Package| package.folder == **name;
        name.starts_with("crates/") && !workspace.iter().any(is_known)
    };
    let gone = named.iter().filter(is_gone);
    let gone = gone.map(|name| {
        let text = format!("the table of folders names `{name}`, which is not a crate");
        Finding::error("ARCHITECTURE.md", text)
    });
    missing.chain(gone).collect()
}

/// Embedded packages that depend on an asynchronous runtime.
fn runtimes(workspace: &[Package]) -> Vec<Finding> {
    let find = |folder: &str| workspace.iter().find(|package| package.folder == folder);
    let mut findings = Vec::new();
    for folder in EMBEDDED {
        let mut reached = BTreeSet::new();
        let mut left = vec![*folder];
        while let Some(next) = left.pop() {
            if !reached.insert(next) {
                continue;
            }
            let dependencies = find(next).into_iter().flat_map(|one| &one.dependencies);
            for one in dependencies.filter(|one| !one.for_tests) {
                left.extend(one.folder.as_deref());
                if RUNTIMES.contains(&one.name.as_str()) {
                    let text = format!("comes with `{}`, by `{next}`", one.name);
                    findings.push(Finding::error(*folder, text));
                }
            }
        }
    }
    findings
}

fn breaches(workspace: &[Package]) -> Vec<Finding> {
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
    // A test may use a neighbour in its layer, but never a higher layer.
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
        breaches(&packages(&metadata))
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
    fn what_is_named_and_not_there_is_found() {
        let nowhere = Path::new("no such folder");
        let found = stale(nowhere, &[]);
        let named: usize = LAYERS.iter().map(|(_, folders)| folders.len()).sum();
        assert_eq!(found.len(), named + PURE.len() + SIDEWAYS.len());
        let text = "| `crates/x`, `crates/z` | what |\n| `crates/gone` | what |\n";
        let package = |folder: &str| Package {
            name: String::new(),
            folder: folder.to_owned(),
            dependencies: Vec::new(),
        };
        let workspace = ["crates/x", "crates/y", "crates/z"].map(package);
        let found = undescribed(text, &workspace);
        let texts: Vec<_> = found.iter().map(|finding| &finding.place[..]).collect();
        assert_eq!(texts, ["crates/y", "ARCHITECTURE.md"]);
    }

    #[test]
    fn a_runtime_is_found_at_any_depth() {
        let metadata = json!({
            "workspace_root": "/r",
            "packages": [
                { "name": "c", "manifest_path": "/r/bindings/c/Cargo.toml",
                  "dependencies": [on("crates/x")] },
                { "name": "x", "manifest_path": "/r/crates/x/Cargo.toml",
                  "dependencies": [{ "name": "tokio", "kind": null }] },
            ],
        });
        let found = runtimes(&packages(&metadata));
        assert_eq!(found.len(), 1);
        assert!(found[0].text.contains("by `crates/x`"));
    }

    #[test]
    fn a_pure_core_may_use_libc_in_tests_only() {
        let libc = |kind| json!({ "name": "libc", "kind": kind });
        assert_eq!(found("crates/flow", libc(Value::Null)).len(), 1);
        assert!(found("crates/flow", libc("dev".into())).is_empty());
        assert!(found("crates/server", libc(Value::Null)).is_empty());
    }
}

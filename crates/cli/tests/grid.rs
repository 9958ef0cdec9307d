//! The benchmark of placement with a few calls. Needs root and control groups; skipped loudly
//! without.

use std::path::{Path, PathBuf};
use std::process::Command;

fn libraries() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries")
}

#[test]
fn a_few_calls_are_placed_on_two_unequal_servers_and_nothing_is_left() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: network namespaces need root");
        return;
    }
    if !libraries().join("libfarcall_ep.so").exists() {
        println!("SKIPPED: the libraries are not built: make -C libraries");
        return;
    }
    let bench = Command::new(env!("CARGO_BIN_EXE_farcall"))
        .args(["bench", "grid", "--calls", "6", "--quick", "--json"])
        .arg("--libraries")
        .arg(libraries())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let number = bench.id();
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = printed["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    for row in rows {
        let (name, value) = (&row["name"], row["value"].as_f64().unwrap());
        assert!(value > 0.0 && value < 120.0, "{name}: {value}");
        assert!(row["ratio"].as_f64().is_some(), "{name}");
    }
    let left = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let own = format!("farcall-lab-{number}-");
    assert!(!String::from_utf8_lossy(&left.stdout).contains(&own));
    let groups = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    for group in groups.iter().filter_map(|one| std::fs::read_dir(one).ok()) {
        for entry in group.flatten() {
            let name = entry.file_name();
            assert!(!name.to_string_lossy().starts_with(&own), "{name:?}");
        }
    }
}

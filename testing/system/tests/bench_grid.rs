//! Small runs of the benchmarks of placement and of transactions. They need root and control
//! groups; without them they print SKIPPED.

use std::path::{Path, PathBuf};
use std::process::Command;

fn libraries() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries")
}

/// Whether the benchmarks can run here. Prints the reason if not.
fn can_run(libraries_needed: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: network namespaces need root");
        return false;
    }
    let is_there = |name: &&str| libraries().join(name).exists();
    if !libraries_needed.iter().all(is_there) {
        println!("SKIPPED: the libraries are not built: make -C libraries");
        return false;
    }
    true
}

/// The rows of a benchmark. Checks that it leaves nothing behind.
fn rows(arguments: &[&str]) -> Vec<serde_json::Value> {
    let bench = farcall_system::program::bench()
        .args(arguments)
        .args(["--json", "--libraries"])
        .arg(libraries())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let number = bench.id();
    let output = bench.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = printed["rows"].as_array().unwrap().clone();
    for row in &rows {
        let (name, value) = (&row["name"], row["value"].as_f64().unwrap());
        assert!(value > 0.0, "{name}: {value}");
        assert!(row["unit"] != "s" || value < 120.0, "{name}: {value}");
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
    rows
}

#[test]
fn a_few_calls_are_placed_on_two_unequal_servers_and_nothing_is_left() {
    if can_run(&["libfarcall_ep.so", "libfarcall_bench.so"]) {
        assert_eq!(rows(&["grid", "--calls", "6", "--quick"]).len(), 13);
    }
}

#[test]
fn a_transaction_on_four_hosts_gives_what_its_calls_give_one_by_one() {
    if can_run(&["libfarcall_bench.so"]) {
        let rows = rows(&["transaction", "--size", "16", "--rounds", "1"]);
        assert_eq!(rows.len(), 4);
        let fewer_bytes = rows.iter().filter(|row| row["unit"] == "MB");
        for row in fewer_bytes {
            assert!(row["ratio"].as_f64().unwrap() <= 0.5, "{row}");
        }
    }
}

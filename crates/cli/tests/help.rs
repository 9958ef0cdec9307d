//! The help of the commands. The reference page has that of all of them, so that a change of any
//! help shows as a change of that file.

use std::process::Command;

fn printed(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_farcall"))
        .args(words)
        .env_clear()
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help() {
    insta::assert_snapshot!("help", printed(&["--help"]));
    insta::assert_snapshot!("help-of-call", printed(&["call", "-h"]));
    assert_eq!(
        printed(&["help", "put"]),
        printed(&["data", "put", "--help"])
    );
    assert_eq!(printed(&["put", "-h"]), printed(&["data", "put", "-h"]));
}

#[test]
fn the_reference_is_the_help_of_all_commands() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let present = std::fs::read_to_string(path).unwrap_or_default();
    let wanted = printed(&["manual", "--markdown"]);
    let line = present.lines().zip(wanted.lines());
    let line = line.enumerate().find(|(_, (one, other))| one != other);
    assert!(
        present == wanted,
        "docs/reference/cli.md is stale: run `cargo xtask generate`; first difference: {line:?}"
    );
}

#[test]
fn man_pages_and_completions_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("man1");
    printed(&["manual", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(path.join("farcall-data-put.1")).unwrap();
    assert!(page.contains("farcall data put @a.npy"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("reservation") && script.contains("dry-run"));
    }
}

//! Builds the programs of this tree and finds them. They are built as the test itself was built,
//! and only once in a test run.

use farcall_lab::Daemon;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

/// A command that runs `farcall`.
pub fn farcall() -> Command {
    Command::new(farcall_path())
}

/// The path of `farcall`.
pub fn farcall_path() -> &'static str {
    static PATH: LazyLock<String> = LazyLock::new(|| {
        let folder = built(&["--package", "farcall-cli", "--bin", "farcall"]);
        folder.join("farcall").to_string_lossy().into_owned()
    });
    &PATH
}

/// A command that runs `farcall-bench`; `farcall` is beside it.
pub fn bench() -> Command {
    farcall_path();
    let folder = built(&["--package", "farcall-bench", "--bin", "farcall-bench"]);
    Command::new(folder.join("farcall-bench"))
}

/// A program of examples/channels.
pub fn example(name: &str) -> String {
    let folder = built(&["--package", "farcall-channel", "--examples"]);
    let program = folder.join("examples").join(name);
    program.to_string_lossy().into_owned()
}

/// The C library, which is beside the command.
pub fn built_library() -> &'static Path {
    static MADE: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = built(&["--package", "farcall-c"]);
        // Other processes of the tests may make it at the same time.
        let lock = File::create(folder.join(".libfarcall.lock")).expect("a file for the lock");
        lock.lock().expect("nobody locks it for ever");
        let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/c");
        let mut make = Command::new("make");
        make.args(["--silent", "--directory", library]);
        let made = make.arg(format!("BUILT={}", folder.display())).status();
        assert!(made.expect("make runs").success(), "the C library is made");
        folder.join("libfarcall.so.1")
    });
    &MADE
}

/// A client that calls all the time: `testing/system/examples/caller.rs`.
pub fn caller() -> PathBuf {
    let folder = built(&["--package", "farcall-system", "--example", "caller"]);
    folder.join("examples").join("caller")
}

/// Starts `farcall` with these words in a folder, and returns once it listens.
pub fn daemon(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Daemon {
    let mut command = farcall();
    command.args(words).current_dir(folder);
    command.envs(variables.iter().copied());
    Daemon::start(command).expect("it listens")
}

/// Builds these programs as this test was built, and returns their folder. A run of a single test
/// does not build the programs of other packages. If they are built already, as in `make test`,
/// `FARCALL_BUILT` names their folder.
fn built(what: &[&str]) -> PathBuf {
    if let Some(folder) = std::env::var_os("FARCALL_BUILT") {
        return folder.into();
    }
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = built.entry(what.join(" ")).or_insert_with(|| build(what));
    folder.clone()
}

fn build(what: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    // target/PROFILE/deps/TEST
    let folder = test.ancestors().nth(2).expect("a folder for its profile");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(other) => other,
    };
    let mut cargo = Command::new(env!("CARGO"));
    // With the variables that cargo sets for a test, build scripts of other packages would run
    // again.
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| of_package(name)) {
        cargo.env_remove(name);
    }
    let done = cargo
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(folder.parent().expect("the target folder"))
        .args(what)
        .status();
    assert!(done.expect("cargo runs").success(), "{what:?} builds");
    folder.to_path_buf()
}

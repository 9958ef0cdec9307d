//! Proof that the protocol cores need no `std`.
//!
//! If a bare-metal target is installed, the check builds the cores for it. Otherwise it links them
//! into a program without `std` for this machine. The program has its own panic handler and
//! allocator, so a core or dependency that uses `std` is a compile or link error.

use super::layers::Package;
use super::{Failure, Finding};
use std::fs;
use std::path::Path;
use std::process::Command;

const BARE_TARGETS: &[&str] = &["thumbv7em-none-eabi", "x86_64-unknown-none"];

pub(super) fn check(root: &Path, workspace: &[Package]) -> Result<Vec<Finding>, Failure> {
    let cores: Vec<&Package> = workspace
        .iter()
        .filter(|package| package.is_bare())
        .collect();
    let target = installed_target(root);
    let mut findings = Vec::new();
    for core in cores {
        let error = match target {
            Some(target) => build_bare(root, core, target)?,
            None => link_probe(root, core)?,
        };
        findings.extend(error.map(|error| {
            Finding::error(
                &core.folder,
                format!("does not build without std:\n{error}"),
            )
        }));
    }
    Ok(findings)
}

fn installed_target(root: &Path) -> Option<&'static str> {
    let output = Command::new("rustc")
        .args(["--print", "sysroot"])
        .current_dir(root)
        .output();
    let sysroot = String::from_utf8(output.ok()?.stdout).ok()?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    BARE_TARGETS
        .iter()
        .copied()
        .find(|target| libraries.join(target).join("lib").is_dir())
}

fn build_bare(root: &Path, core: &Package, target: &str) -> Result<Option<String>, Failure> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "build",
        "--quiet",
        "--locked",
        "--lib",
        "--package",
        &core.name,
        "--target",
        target,
    ]);
    run(cargo.current_dir(root))
}

/// Builds the probe for one core. Returns the text of the error, if there is one.
fn link_probe(root: &Path, core: &Package) -> Result<Option<String>, Failure> {
    let folder = root.join("target/no-std").join(&core.name);
    let written = fs::create_dir_all(folder.join("src"))
        .and_then(|()| fs::write(folder.join("Cargo.toml"), manifest(root, core)))
        .and_then(|()| fs::write(folder.join("src/main.rs"), program(&core.name)))
        .and_then(|()| fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).map(drop));
    written.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--offline", "--target-dir", "../build"]);
    run(cargo.current_dir(&folder))
}

fn run(cargo: &mut Command) -> Result<Option<String>, Failure> {
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then(said))
}

fn manifest(root: &Path, core: &Package) -> String {
    let path = root.join(&core.folder);
    format!(
        "[package]\nname = \"{name}-without-std\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\n{name} = {{ path = {path:?} }}\n\n\
         [profile.dev]\npanic = \"abort\"\ndebug = false\n\n[workspace]\n",
        name = core.name,
    )
}

fn program(core: &str) -> String {
    PROGRAM.replace("CORE", &core.replace('-', "_"))
}

/// The precompiled `alloc` names `rust_eh_personality` and `_Unwind_Resume`, but never calls them.
const PROGRAM: &str = r#"#![no_std]
#![no_main]

extern crate alloc;
extern crate CORE as _;

use core::alloc::{GlobalAlloc, Layout};

struct Nothing;

unsafe impl GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Nothing = Nothing;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    0
}

#[link(name = "c")]
unsafe extern "C" {}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// A package of its own in a temporary folder, checked by the probe.
    fn probe(name: &str, code: &str) -> Option<String> {
        let root = std::env::temp_dir().join(format!("farcall-{name}-{}", std::process::id()));
        let folder = root.join("crates/probed-proto");
        fs::create_dir_all(folder.join("src")).expect("a temporary folder");
        let manifest = format!("[package]\nname = {name:?}\nedition = \"2024\"\n[workspace]\n");
        fs::write(folder.join("Cargo.toml"), manifest).expect("written");
        fs::write(folder.join("src/lib.rs"), code).expect("written");
        fs::write(root.join("Cargo.lock"), "version = 4\n").expect("written");
        let core = Package {
            name: name.to_owned(),
            folder: "crates/probed-proto".to_owned(),
            dependencies: Vec::new(),
        };
        let error = link_probe(&root, &core).expect("cargo runs");
        fs::remove_dir_all(&root).expect("removed");
        error
    }

    #[test]
    fn a_core_with_alloc_only_passes() {
        let code = "#![no_std]\nextern crate alloc;\n\
                    pub fn f() -> alloc::string::String { alloc::format!(\"{}\", 1) }";
        assert_eq!(probe("bare-core", code), None);
    }

    #[test]
    fn a_core_with_std_fails() {
        let error = probe("fat-core", "pub fn f() -> std::time::Instant { todo!() }");
        assert!(error.expect("std is found out").contains("panic_impl"));
    }
}

//! Exports symbols of the command to the libraries that its workers load: the error handler of BLAS
//! and LAPACK, failures with a text, and temporary files. Libraries are bound to these before their
//! own. No other symbol is exported, or libraries would be bound to the command's SQLite.
//!
//! zig's linker cannot export single symbols by name. But it exports those to which a shared
//! library on its command line refers. For it, `FARCALL_EXPORTS` names `exports.c` as a shared
//! library, on which the command does not depend afterwards.

use std::env;

const EXPORTS: [&str; 3] = ["farcall_fail", "tmpfile", "xerbla_"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FARCALL_EXPORTS");
    match env::var("FARCALL_EXPORTS") {
        Ok(library) => {
            println!("cargo::rustc-link-arg-bins=-Wl,--as-needed");
            println!("cargo::rustc-link-arg-bins={library}");
        }
        Err(_) => {
            for symbol in EXPORTS {
                println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
            }
        }
    }
}

//! Exports symbols of the command to the libraries that its workers load: the error handler of
//! BLAS and LAPACK, failures with a text, and temporary files. Libraries are bound to these before
//! their own.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=xerbla_");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=farcall_fail");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=tmpfile");
}

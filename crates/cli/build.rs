//! What the command exports to the libraries that its workers load, and which they are bound to
//! before their own: the error handler of BLAS and LAPACK, and temporary files.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=xerbla_");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=tmpfile");
}

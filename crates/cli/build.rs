//! What the command exports to the libraries that its workers load: the error handler of BLAS and
//! LAPACK, which they are bound to before their own.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=xerbla_");
}

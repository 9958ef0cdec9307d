//! Compiles `variadic.c`, which has the functions with a list of arguments. Rust can call such
//! functions but cannot define them. `ninf.c` and `ninfg.c` have the names of Ninf and of Ninf-G
//! that need only others, and `grpc_fortran.c` those of Ninf-G for Fortran.

fn main() {
    let files = [
        "src/variadic.c",
        "src/ninf.c",
        "src/ninfg.c",
        "src/grpc_fortran.c",
    ];
    for file in files.into_iter().chain(["include"]) {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(files)
        .include("include")
        .flag_if_supported("-std=c99")
        .warnings(true)
        .extra_warnings(true)
        .compile("farcall_variadic");
}

//! Compiles `variadic.c`, which has the functions with a list of arguments. Rust can call such
//! functions but cannot define them.

fn main() {
    for file in ["src/variadic.c", "include"] {
        println!("cargo::rerun-if-changed={file}");
    }
    cc::Build::new()
        .file("src/variadic.c")
        .include("include")
        .flag_if_supported("-std=c99")
        .warnings(true)
        .extra_warnings(true)
        .compile("farcall_variadic");
}

//! Tests of what is beside the runtime in a process: a program that uses the client library itself,
//! libraries that have names of the client library, and no client library at all. What the runtime
//! computes is the matter of the other modules.

use super::{MADE, offloaded_program, server};
use farcall_system::built_library;
use farcall_system::server::folder;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Compiles with these words in a folder.
fn compiled(folder: &TempDir, name: &str, words: &[&str]) -> PathBuf {
    let program = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&program).args(words);
    assert!(compiler.current_dir(folder).status().unwrap().success());
    program
}

/// The program that uses the client library itself.
fn client(folder: &TempDir) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let include = format!("-I{}", here.join("../../bindings/c/include").display());
    let source = here.join("tests/offload/client.c").display().to_string();
    let library = built_library().display().to_string();
    let search = format!("-Wl,-rpath,{}", built_library().parent().unwrap().display());
    let openblas = "-l:libopenblas.so.0";
    compiled(
        folder,
        "client",
        &[&include, &source, openblas, &library, &search],
    )
}

#[test]
fn a_child_keeps_the_connections_that_the_program_has_made_itself() {
    let (server, folder) = (server(), folder());
    let program = client(&folder);
    let mut command = offloaded_program(server.address(), &["--always"], &program);
    let output = command.arg(server.address()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "the child's descriptors are whole: 1\n", "{output:?}");
    let statistics = super::counts(&output);
    assert_eq!(statistics["dgesv"], [0, 1, 0, 0]);
}

#[test]
fn names_of_the_client_library_are_those_of_the_programs_own_libraries() {
    let folder = folder();
    let library = "int grpc_initialize(char *file) { return file ? 4711 : 0; }\n";
    let program = "int grpc_initialize(char *file);\n\
                   int main(void) { return grpc_initialize(\"client.conf\") != 4711; }\n";
    fs::write(folder.path().join("other.c"), library).unwrap();
    fs::write(folder.path().join("named.c"), program).unwrap();
    compiled(&folder, "libother.so", &["-shared", "-fPIC", "other.c"]);
    let words = ["named.c", "-L.", "-lother", "-Wl,-rpath,$ORIGIN"];
    let program = compiled(&folder, "named", &words);
    let output = offloaded_program("127.0.0.1:1", &[], &program).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_drop_in_library_without_its_client_library_says_what_to_do() {
    let folder = folder();
    let alone = folder.path().join("alone");
    fs::create_dir(&alone).unwrap();
    let library = alone.join("libfarcall_lapack.so");
    fs::copy(MADE.library(), &library).unwrap();
    let mut command = farcall_system::farcall();
    command.args(["offload", "--library"]).arg(&library);
    // Cargo lets tests find the libraries that it has built.
    command.env_remove("LD_LIBRARY_PATH");
    let output = command.args(["--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("farcall offload: cannot load the client library: libfarcall.so.1"));
    let remedy = format!(
        "made {} beside it, or into the folder above\n",
        library.display()
    );
    assert!(told.ends_with(&remedy), "{told}");
}

#[test]
fn a_library_with_wide_integers_under_the_usual_names_keeps_its_calls() {
    let folder = folder();
    let library = "#include <stdint.h>\n\
                   int64_t isamax_(int64_t *n, float *x, int64_t *step) {\n\
                       return *n < 1 ? 0 : 1 + (x[*step] > x[0]);\n\
                   }\n\
                   void dgetrf_(int64_t *m, int64_t *n, double *a, int64_t *lda, int64_t *ipiv,\n\
                                int64_t *info) {\n\
                       for (int64_t i = 0; i < *n; i++)\n\
                           ipiv[i] = i + 1;\n\
                       *info = 0;\n\
                   }\n";
    let program = "#include <stdint.h>\n\
                   #include <stdio.h>\n\
                   void dgetrf_(int64_t *, int64_t *, double *, int64_t *, int64_t *, int64_t *);\n\
                   int main(void) {\n\
                       int64_t n = 4, info = -1, ipiv[4] = {-1, -1, -1, -1};\n\
                       double a[16] = {4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4};\n\
                       dgetrf_(&n, &n, a, &n, ipiv, &info);\n\
                       printf(\"%ld %ld %ld\\n\", (long)info, (long)ipiv[0], (long)ipiv[3]);\n\
                   }\n";
    fs::write(folder.path().join("wide.c"), library).unwrap();
    fs::write(folder.path().join("usual.c"), program).unwrap();
    compiled(&folder, "libwide64.so", &["-shared", "-fPIC", "wide.c"]);
    let words = ["usual.c", "-L.", "-lwide64", "-Wl,-rpath,$ORIGIN"];
    let program = compiled(&folder, "usual", &words);
    let server = server();
    let output = offloaded_program(server.address(), &["--always"], &program).output();
    let output = output.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 1 4\n");
    assert_eq!(super::counts(&output)["dgetrf"], [0, 0, 1, 0]);
}

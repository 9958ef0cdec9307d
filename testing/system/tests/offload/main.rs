//! Tests that a program computes the same with and without `farcall offload`: its output, its error
//! exits and its memory, with a server, without one, and when one is lost. The program is
//! `program.c`, which a C compiler makes; the statistics tell where its calls were computed.

mod beside;
mod line;
mod lost;

use farcall_system::{ServerProcess, built_library, farcall, farcall_path, wait_until};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The folder with the drop-in library and the program.
struct Made(PathBuf);

/// Each test has a process of its own under nextest, and the first one of a run makes it for all.
static MADE: LazyLock<Made> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offload");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| std::process::id().to_string());
    let made_in = folder.join("run");
    if fs::read_to_string(&made_in).is_ok_and(|text| text == run) {
        return Made(folder);
    }
    let files = ["lapack.idl", "blas.idl"].map(|file| few(file, &folder));
    make_library(&folder, &[], &files);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler
        .args(["-O1", "-pthread", "-o"])
        .arg(folder.join("program"))
        .arg(here.join("tests/offload/program.c"))
        .arg("-l:libopenblas.so.0");
    assert!(compiler.status().unwrap().success(), "the program is made");
    fs::write(made_in, run).unwrap();
    Made(folder)
});

/// Makes a drop-in library in this folder, with the client library beside it.
fn make_library(folder: &Path, options: &[&str], files: &[PathBuf]) {
    // The command copies it, and knows nothing of another test that makes it.
    built_library();
    let mut build = farcall();
    build.args(["offload", "build", "-o"]).arg(folder);
    build.args(options).args(files);
    assert!(build.status().unwrap().success(), "the library is made");
}

/// Routines that the program calls.
const ROUTINES: [&str; 14] = [
    "dgees", "dgemm", "dgesv", "dgetrf", "dgetrs", "dpotrf", "dpotrs", "dsyev", "dsyevd", "dsyevr",
    "dsymm", "dtrsm", "zheev", "zher2k",
];

/// Writes an interface file of the project with these routines alone: a C compiler takes half a
/// minute for all.
fn few(file: &str, folder: &Path) -> PathBuf {
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
    let text = fs::read_to_string(libraries.join(file)).unwrap();
    let is_kept = |block: &&str| match block.strip_prefix("Define ") {
        Some(rest) => ROUTINES.contains(&rest.split('(').next().unwrap()),
        None => true,
    };
    let kept: Vec<&str> = text.split("\n\n").filter(is_kept).collect();
    let path = folder.join(file);
    fs::write(&path, kept.join("\n\n")).unwrap();
    path
}

impl Made {
    fn library(&self) -> PathBuf {
        self.0.join("libfarcall_lapack.so")
    }

    fn program(&self) -> PathBuf {
        self.0.join("program")
    }
}

/// A server of LAPACK and BLAS.
fn server() -> ServerProcess {
    server_at("127.0.0.1:0")
}

fn server_at(address: &str) -> ServerProcess {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries");
    let texts = ["lapack.idl", "blas.idl"].map(|file| fs::read_to_string(folder.join(file)));
    let texts = texts.map(Result::unwrap);
    ServerProcess::of(&[&texts[0], &texts[1]])
        .options(&["--listen", address])
        .start()
}

/// The program without Farcall.
fn plain(words: &[&str]) -> String {
    let output = Command::new(MADE.program()).args(words).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// A command that runs the program under `farcall offload`.
fn offloaded(server: &str, options: &[&str], words: &[&str]) -> Command {
    let mut command = offloaded_program(server, options, &MADE.program());
    command.args(words);
    command
}

/// A command that runs another program under `farcall offload`.
fn offloaded_program(server: &str, options: &[&str], program: &Path) -> Command {
    let mut command = farcall();
    command
        .args(["offload", "--stats", "--server", server])
        .args(options);
    command.arg("--library").arg(MADE.library()).arg("--");
    command.arg(program);
    // Waiting threads of other tests would take the processors.
    command.env("OPENBLAS_NUM_THREADS", "1");
    command
}

/// The columns of the statistics: local, remote, refused, failed.
fn counts(output: &Output) -> BTreeMap<String, [u64; 4]> {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = lines.filter_map(|words| {
        let numbers = words.get(1..5)?.iter().map(|word| word.parse().ok());
        let numbers: Option<Vec<u64>> = numbers.collect();
        Some((words[0].to_string(), numbers?.try_into().ok()?))
    });
    rows.collect()
}

/// Runs a part with every call remote, and compares its output with that of the plain program.
fn same(words: &[&str]) -> BTreeMap<String, [u64; 4]> {
    let server = server();
    let output = offloaded(server.address(), &["--always"], words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), plain(words));
    counts(&output)
}

#[test]
fn a_program_prints_the_same_and_its_calls_are_remote() {
    assert_eq!(same(&["solve"])["dgesv"], [0, 2, 0, 0]);
}

#[test]
fn errors_reach_the_programs_own_handler_with_its_arrays_intact() {
    // Four calls have a wrong argument; one has a singular matrix, which is a result.
    assert_eq!(same(&["errors"])["dgesv"], [0, 2, 4, 0]);
}

#[test]
fn work_arrays_behave_as_lapack_says() {
    assert_eq!(same(&["work"])["dsyev"], [1, 1, 0, 0]);
}

#[test]
fn threads_share_the_connection() {
    assert_eq!(same(&["threads"])["dgesv"], [0, 40, 0, 0]);
}

#[test]
fn forked_children_make_connections_of_their_own() {
    // The last process to print is the parent.
    assert_eq!(same(&["forks"])["dgesv"], [0, 4, 0, 0]);
}

#[test]
fn a_forked_child_does_not_keep_the_connection_of_its_parent() {
    let server = server();
    let mut command = offloaded(server.address(), &["--always"], &["orphan"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut parent = command.stderr(Stdio::null()).spawn().unwrap();
    let ended = parent.stdin.take();
    assert!(parent.wait().unwrap().success());
    let connection = server.connect();
    wait_until("the server has one connection, that of the test", || {
        let status = connection.status().unwrap();
        status.contains("\"connections\":1,")
    });
    drop(ended);
}

#[test]
fn a_schur_form_goes_unless_the_program_orders_it() {
    assert_eq!(same(&["schur"])["dgees"], [0, 1, 1, 0]);
}

#[test]
fn eigenvectors_selected_by_value_stay_because_their_memory_is_unknown() {
    assert_eq!(same(&["selected"])["dsyevr"], [0, 1, 1, 0]);
}

#[test]
fn memory_behind_a_matrix_and_between_its_columns_is_not_touched() {
    assert_eq!(same(&["guards"])["dgesv"], [0, 1, 0, 0]);
}

#[test]
fn every_form_of_cblas_is_right_by_rows_and_by_columns() {
    let counts = same(&["cblas"]);
    assert_eq!(counts["dgemm"], [0, 18, 0, 0]);
    assert_eq!(counts["dsymm"], [0, 8, 0, 0]);
    assert_eq!(counts["dtrsm"], [0, 24, 0, 0]);
    assert_eq!(counts["zher2k"], [0, 8, 0, 0]);
}

#[test]
fn matrices_that_a_product_does_not_read_need_not_be_there() {
    assert_eq!(same(&["scaled"])["dgemm"], [0, 0, 1, 0]);
}

#[test]
fn names_and_wide_integers_of_numpy_are_known() {
    let server = server();
    let output = offloaded(server.address(), &["--always"], &["wide"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "wide: info 0 good 1 next 4711\n", "{output:?}");
    assert_eq!(counts(&output)["dgesv"], [0, 1, 0, 0]);
}

#[test]
fn small_calls_stay_and_named_routines_alone_go() {
    let server = server();
    let auto = offloaded(server.address(), &["--auto"], &["mixed"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&auto.stdout), plain(&["mixed"]));
    assert_eq!(counts(&auto)["dgemm"], [1000, 0, 0, 0]);
    for named in ["dgesv", "zheev,lapack"] {
        let options = ["--always", "--only", named];
        let mut only = offloaded(server.address(), &options, &["mixed"]);
        let counts = counts(&only.output().unwrap());
        assert_eq!(counts["dgemm"], [1000, 0, 0, 0]);
        assert_eq!(counts["dgesv"], [0, 1, 0, 0]);
    }
}

#[test]
fn explain_tells_which_functions_can_go() {
    let mut command = farcall();
    command
        .args(["offload", "explain", "--library"])
        .arg(MADE.library())
        .arg("--");
    let output = command.arg(MADE.program()).arg("solve").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), plain(&["solve"]));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("way in: LD_PRELOAD, before libopenblas"),
        "{text}"
    );
    assert!(
        text.contains("the program: uses 14 functions, 14 covered"),
        "{text}"
    );
    let covered =
        "covered: cblas_dgemm cblas_dsymm cblas_dtrsm cblas_zher2k dgees_ dgemm_ dgesv_ dgetrf_";
    assert!(text.contains(covered), "{text}");
    // Nothing is sent, and no statistics are kept.
    assert!(counts(&output).is_empty());
}

/// The report comes while the program ends. The runtime library of OpenMP aborts a program that
/// initialises it again then.
#[test]
fn explain_leaves_a_program_with_openmp_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("end.c"), folder.path().join("end"));
    let text = "#include <omp.h>\nint main(void) { return omp_get_max_threads() > 0 ? 7 : 1; }\n";
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .arg("-fopenmp")
        .arg(&source)
        .arg("-o")
        .arg(&program);
    compiler.args(["-Wl,--no-as-needed", "-l:libopenblas.so.0"]);
    assert!(compiler.status().unwrap().success(), "the program is made");
    let mut command = farcall();
    let library = MADE.library();
    command
        .args(["offload", "explain", "--library"])
        .arg(library);
    let output = command.arg("--").arg(&program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("no loaded object calls them"), "{text}");
}

#[test]
fn verify_compares_both_results() {
    let server = server();
    let options = ["--always", "--verify"];
    let output = offloaded(server.address(), &options, &["solve"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), plain(&["solve"]));
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with("dgesv")).unwrap();
    let (_, difference) = line.rsplit_once("differs by ").unwrap();
    assert!(difference.trim().parse::<f64>().unwrap() < 1e-12, "{line}");
}

#[test]
fn without_a_server_the_program_computes_and_loses_a_second_at_most() {
    LazyLock::force(&MADE);
    let start = Instant::now();
    plain(&["many", "5"]);
    let plain_time = start.elapsed();
    // Nothing listens at a reserved port; packets to the documentation network go nowhere.
    for address in ["farcall://127.0.0.1:1", "farcall://192.0.2.1:3717"] {
        let lost = || {
            let start = Instant::now();
            let output = offloaded(address, &["--always"], &["many", "5"])
                .output()
                .unwrap();
            let lost = start.elapsed().saturating_sub(plain_time);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "solved 5\n");
            assert_eq!(counts(&output)["dgesv"], [0, 0, 5, 0]);
            lost
        };
        // Other tests may have the processors for a while.
        let in_time = (0..10).any(|_| lost() < Duration::from_millis(1500));
        assert!(in_time, "{address}");
    }
}

#[test]
fn a_killed_server_changes_nothing() {
    // Shortly after each other, so that arguments, computation and results are hit.
    for pause in [0, 5, 10] {
        let mut server = server();
        let mut command = offloaded(server.address(), &["--always"], &["many", "400"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let connection = server.connect();
        wait_until("some calls have ended", || {
            connection.status().unwrap().contains("lapack/dgesv")
        });
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "solved 400\n");
        let [local, remote, refused, failed] = counts(&output)["dgesv"];
        assert_eq!(local + remote + refused + failed, 400);
        assert!(
            remote > 0 && refused > 0,
            "{remote} remote, {refused} refused"
        );
    }
}

#[test]
fn a_server_under_the_preload_never_offloads() {
    let outer = server();
    let environment = |name: &str, process: u32| {
        let all = fs::read(format!("/proc/{process}/environ")).unwrap();
        let mut all = all.split(|byte| *byte == 0);
        let prefix = format!("{name}=").into_bytes();
        all.find_map(|one| one.strip_prefix(&prefix[..]).map(<[u8]>::to_vec))
    };
    let library = MADE.library();
    let inner = ServerProcess::of(&[&fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../libraries/lapack.idl"),
    )
    .unwrap()]);
    let inner = inner
        .variable("LD_PRELOAD", library.to_str().unwrap())
        .variable("FARCALL_OFFLOAD", "always")
        .variable("FARCALL_SERVER", outer.address())
        .start();
    assert!(
        environment("LD_PRELOAD", inner.id()).is_some(),
        "the test preloads"
    );
    let output = offloaded(inner.address(), &["--always"], &["solve"])
        .output()
        .unwrap();
    assert_eq!(counts(&output)["dgesv"], [0, 2, 0, 0]);
    let children = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let parent: u32 = rest.split(' ').nth(1)?.parse().ok()?;
        (parent == inner.id()).then_some(id)
    });
    let children: Vec<u32> = children.collect();
    assert!(!children.is_empty(), "the server has workers");
    for child in children {
        assert_eq!(environment("LD_PRELOAD", child), None);
    }
}

#[test]
fn a_library_in_the_place_of_the_real_one_passes_on_what_it_lacks() {
    let folder = farcall_system::server::folder();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [few("lapack.idl", folder.path())];
    make_library(folder.path(), &["--as", "libopenblas_drop.so.0"], &files);
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-pthread", "-o"]).arg(&program);
    compiler.arg(here.join("tests/offload/program.c"));
    compiler.arg("-Wl,--copy-dt-needed-entries");
    compiler.arg(folder.path().join("libopenblas_drop.so.0"));
    assert!(compiler.status().unwrap().success());
    let server = server();
    let variables: [(&str, &OsStr); 4] = [
        ("LD_LIBRARY_PATH", folder.path().as_os_str()),
        ("FARCALL_OFFLOAD", OsStr::new("always")),
        ("FARCALL_OFFLOAD_STATS", OsStr::new("1")),
        ("FARCALL_SERVER", OsStr::new(server.address())),
    ];
    let output = Command::new(program)
        .arg("mixed")
        .envs(variables)
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        plain(&["mixed"]),
        "{output:?}"
    );
    assert_eq!(counts(&output)["dgesv"], [0, 1, 0, 0], "{}", farcall_path());
}

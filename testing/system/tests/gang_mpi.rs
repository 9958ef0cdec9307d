//! Tests unmodified programs of MPI as gang jobs, on one node and on two. They need an MPI compiler
//! of MPICH, and install the library of Open MPI.

use farcall_system::gang::{Node, lines, text};
use farcall_system::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROGRAM: &str = r#"#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, sum = 0, rounds = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < rounds; round++) {
        int one = rank + round;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size * (size - 1) / 2 + size * round) MPI_Abort(MPI_COMM_WORLD, 9);
    }
    if (argc > 2 && argv[2][0] == 'a' && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 2 && argv[2][0] == 'l') {
        if (rank == 1) exit(atoi(argv[3]));
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (argc > 2) sleep(1000);
    printf("rank %d of %d: %d\n", rank, size, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
"#;

/// What the program needs of Open MPI's header. Its own header comes with a compiler that would
/// become the default one of the machine.
const OPEN_MPI: &str = r#"typedef struct handle *MPI_Comm, *MPI_Datatype, *MPI_Op;
extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_op_sum[];
#define MPI_COMM_WORLD ((MPI_Comm)ompi_mpi_comm_world)
#define MPI_INT ((MPI_Datatype)ompi_mpi_int)
#define MPI_SUM ((MPI_Op)ompi_mpi_op_sum)
int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Abort(MPI_Comm, int);
int MPI_Comm_rank(MPI_Comm, int *), MPI_Comm_size(MPI_Comm, int *);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
"#;

/// The program with MPICH, or none if there is no compiler.
fn compiled() -> Option<(TempDir, String)> {
    build("mpicc.mpich", &[])
}

/// The program with Open MPI, or none if its library cannot be installed.
fn compiled_for_open_mpi() -> Option<(TempDir, String)> {
    static READY: LazyLock<bool> = LazyLock::new(|| {
        let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/setup");
        let status = Command::new(setup).arg("openmpi").status();
        status.is_ok_and(|status| status.success())
    });
    if !*READY {
        println!("SKIPPED: Open MPI is missing: `scripts/setup openmpi` installs it");
        return None;
    }
    build("cc", &["-l:libmpi.so.40"])
}

fn build(compiler: &str, libraries: &[&str]) -> Option<(TempDir, String)> {
    let folder = TempDir::new().expect("a folder");
    let source = folder.path().join("sums.c");
    std::fs::write(&source, PROGRAM).expect("room");
    let mut command = Command::new(compiler);
    if !libraries.is_empty() {
        std::fs::write(folder.path().join("mpi.h"), OPEN_MPI).expect("room");
        command.arg("-I").arg(folder.path());
    }
    let program = folder.path().join("sums");
    command.arg("-o").arg(&program).arg(&source).args(libraries);
    match command.status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            println!("SKIPPED: there is no {compiler}");
            return None;
        }
    }
    let program = program.to_string_lossy().into_owned();
    Some((folder, program))
}

fn sums(size: usize, rounds: usize) -> Vec<String> {
    let sum = size * (size - 1) / 2 + size * (rounds - 1);
    let lines = (0..size).map(|rank| format!("rank {rank} of {size}: {sum}"));
    lines.collect()
}

#[test]
fn an_mpi_program_runs_on_one_node() {
    let Some((_folder, program)) = compiled() else {
        return;
    };
    check_on_one_node(&program);
}

/// The program computes, also without MPI, and ends as it says.
fn check_on_one_node(program: &str) {
    let daemon = Node::start(&["--slice", "20ms", "--slots", "2", "--switch-alone"]);
    let output = daemon.run(&["-n", "2", program, "300"]);
    assert_eq!(lines(&output), sums(2, 300), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    let output = daemon.run(&["-n", "2", "--mpi", "none", program, "1"]);
    assert_eq!(lines(&output), ["rank 0 of 1: 0"; 2]);
    let output = daemon.run(&["-n", "2", program, "1", "abort"]);
    assert_eq!(output.status.code(), Some(7));
    let told = text(&output.stderr);
    let cause = "rank 1 has called MPI_Abort with 7";
    assert!(told.contains(cause), "{told}");
}

#[test]
fn mpi_programs_share_two_nodes() {
    let Some((_folder, program)) = compiled() else {
        return;
    };
    let root = Node::start(&["--slice", "20ms", "--node", "a", "--slots", "1"]);
    let options = ["--node", "b", "--slots", "1", "--parent", root.address()];
    let _other = Node::start(&options);
    let nodes = || {
        let mut job = root.submit(&["-n", "2", "--", "sleep", "1000"]);
        wait_until("it is listed", || root.jobs().len() == 1);
        let nodes = root.jobs()[0]["nodes"].as_array().map_or(0, Vec::len);
        job.kill().expect("it runs");
        job.wait().expect("it ends");
        wait_until("it is gone", || root.jobs().is_empty());
        nodes
    };
    wait_until("the second node has joined", || nodes() == 2);
    let jobs = [(); 2].map(|()| root.submit(&["-n", "2", &program, "100"]));
    for job in jobs {
        check_sums(job, &program);
    }
}

/// Checks what two processes print, and that their job then ends. MPICH before 4.2 can hang in
/// `MPI_Finalize` between nodes: a process that waits in its last barrier does not answer one that
/// closes its connections (pull request 6596 of MPICH). Such a job is ended.
fn check_sums(mut job: Child, program: &str) {
    let mut output = BufReader::new(job.stdout.take().expect("a pipe")).lines();
    let mut told: Vec<String> = output.by_ref().take(2).map(Result::unwrap).collect();
    told.sort();
    assert_eq!(told, sums(2, 100));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if let Some(status) = job.try_wait().expect("it is a child") {
            assert_eq!(status.code(), Some(0));
            assert!(output.next().is_none(), "more than two lines");
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(runs(program), "the processes have ended, the job has not");
    println!("MPICH hangs in MPI_Finalize");
    job.kill().expect("it runs");
    job.wait().expect("it ends");
}

/// Whether a process of this program runs.
fn runs(program: &str) -> bool {
    let mut processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let program_of = |process: std::fs::DirEntry| std::fs::read_link(process.path().join("exe"));
    processes.any(|process| program_of(process).is_ok_and(|found| found == Path::new(program)))
}

/// The name of the store is unique, so that nothing of a killed job hinders the next one.
#[test]
fn an_mpi_program_runs_after_others_were_killed() {
    let Some((_folder, program)) = compiled() else {
        return;
    };
    let daemon = Node::start(&["--slice", "20ms", "--slots", "2"]);
    for pause in [0, 5, 10, 20, 30, 50, 80, 120] {
        let mut job = daemon.submit(&["-n", "2", &program, "100000000"]);
        wait_until("it is there", || !daemon.jobs().is_empty());
        std::thread::sleep(Duration::from_millis(pause));
        for row in daemon.jobs() {
            let id = row["id"].to_string();
            daemon.gang(&["kill", &id]).status().expect("runs");
        }
        job.wait().expect("it ends");
    }
    let output = daemon.run(&["-n", "2", &program, "10"]);
    assert_eq!(lines(&output), sums(2, 10), "{}", text(&output.stderr));
}

#[test]
fn a_program_of_open_mpi_runs_on_one_node() {
    let Some((_folder, program)) = compiled_for_open_mpi() else {
        return;
    };
    check_on_one_node(&program);
}

#[test]
fn programs_of_open_mpi_share_two_nodes() {
    let Some((_folder, program)) = compiled_for_open_mpi() else {
        return;
    };
    let root = Node::start(&["--slice", "20ms", "--node", "a", "--slots", "2"]);
    let options = ["--node", "b", "--slots", "2", "--parent", root.address()];
    let _other = Node::start(&options);
    wait_until("the second node has joined", || root.nodes() == 2);
    let jobs = [(); 2].map(|()| root.submit(&["-n", "4", &program, "100"]));
    for job in jobs {
        let output = job.wait_with_output().expect("it ends");
        assert_eq!(lines(&output), sums(4, 100), "{}", text(&output.stderr));
    }
}

/// A process that ends before `MPI_Finalize` ends its job, as under `mpiexec`: the others would
/// wait for it for ever.
#[test]
fn a_process_that_leaves_early_ends_its_job() {
    for program in [compiled(), compiled_for_open_mpi()] {
        let Some((_folder, program)) = program else {
            continue;
        };
        let daemon = Node::start(&["--slots", "2"]);
        for (status, of_job) in [("0", 1), ("3", 3)] {
            let output = daemon.run(&["-n", "2", &program, "1", "leave", status]);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(of_job), "{told}");
            let cause = format!("ended with status {status} before MPI_Finalize");
            assert!(told.contains(&cause), "{told}");
        }
        // After it, a process may end with any status.
        let script = format!("{program} 1; exit $FARCALL_RANK");
        let output = daemon.run(&["-n", "2", "--", "sh", "-c", &script]);
        let told = text(&output.stderr);
        assert_eq!(lines(&output), sums(2, 1), "{told}");
        assert!(!told.contains("MPI_Finalize"), "{told}");
    }
}

/// The PMIx server below a daemon, if there is one.
fn pmix_server(daemon: &Node) -> Option<Pid> {
    let mut processes = std::fs::read_dir("/proc").expect("Linux").flatten();
    let found = processes.find(|process| {
        let read = |name| std::fs::read_to_string(process.path().join(name)).unwrap_or_default();
        let parent = format!("PPid:\t{}", daemon.id());
        read("cmdline").ends_with("gang\0pmix\0") && read("status").lines().any(|it| it == parent)
    });
    let name = found?.file_name();
    Pid::from_raw(name.to_str()?.parse().ok()?)
}

/// Processes of Open MPI end without a reason if it is gone.
#[test]
fn the_end_of_a_pmix_server_is_told() {
    let daemon = Node::start(&["--slots", "1"]);
    let mut job = daemon.submit(&["-n", "1", "--", "sh", "-c", "echo begun; exec sleep 1000"]);
    // The server is ready by now, if the machine has the library.
    let mut output = BufReader::new(job.stdout.take().expect("a pipe")).lines();
    assert_eq!(output.next().expect("a line").expect("text"), "begun");
    match pmix_server(&daemon) {
        None => println!("SKIPPED: apt-get install libpmix2"),
        Some(server) => {
            kill_process(server, Signal::KILL).expect("it is there");
            let told = BufReader::new(job.stderr.take().expect("a pipe")).lines();
            let mut told = told.map(Result::unwrap);
            let line = told
                .find(|line| line.contains("PMIx server"))
                .expect("it is told");
            assert!(line.contains("was ended by SIGKILL"), "{line}");
        }
    }
    job.kill().expect("it runs");
    job.wait().expect("it ends");
}

/// What processes wait for that send over the transport of their MPI cannot be seen.
#[test]
fn the_state_of_a_program_with_its_own_transport_is_unknown() {
    for program in [compiled(), compiled_for_open_mpi()] {
        let Some((_folder, program)) = program else {
            continue;
        };
        let daemon = Node::start(&["--slice", "20ms", "--slots", "2"]);
        let state = || {
            let output = daemon.gang(&["state", "1"]).output().expect("runs");
            text(&output.stdout)
        };
        let mut job = daemon.submit(&["-n", "2", &program, "100000000"]);
        wait_until("it uses MPI", || state().starts_with("unknown: "));
        assert!(state().contains("Run the job with `--network farcall`"));
        job.kill().expect("it runs");
        job.wait().expect("it ends");
    }
}

#[test]
fn more_processes_than_processors_yield_and_the_command_says_so() {
    let daemon = Node::start(&["--slots", "2"]);
    let print = "echo $OMPI_MCA_mpi_yield_when_idle $I_MPI_THREAD_YIELD \
                 $MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD";
    let run = |options: &[&str]| {
        let words = [options, &["--", "sh", "-c", print]].concat();
        let mut words_of_run = vec!["run"];
        words_of_run.extend(words);
        let output = daemon.gang(&words_of_run).output().expect("runs");
        (lines(&output), text(&output.stderr))
    };
    let (printed, told) = run(&["-n", "3"]);
    assert_eq!(printed, ["1 3 2147483647"; 3]);
    let expected = "3 processes share 2 processors; those of MPI yield while they wait";
    assert!(told.contains(expected), "{told}");
    let (printed, told) = run(&["-n", "2"]);
    assert_eq!(printed, [""; 2]);
    assert!(!told.contains("share"), "{told}");
    let (printed, told) = run(&["-n", "3", "--mpi", "none"]);
    assert_eq!(printed, [""; 3]);
    assert!(!told.contains("share"), "{told}");
}

/// The files of shared memory and of sockets, where MPI leaves some.
fn files() -> BTreeSet<PathBuf> {
    let folders = ["/dev/shm", "/tmp"].map(std::fs::read_dir);
    let entries = folders.into_iter().flatten().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let name = |path: &PathBuf| {
        path.file_name()
            .map(|name| name.to_string_lossy().into_owned())
    };
    let is_of_mpi = |name: &String| {
        let words = ["mpi", "ucx", "pmix", "vader", "farcall_", "Intel"];
        // A folder of another test, with a name such as `.tmpiK3x9Q`, is none of MPI.
        !name.starts_with(".tmp") && words.iter().any(|word| name.contains(word))
    };
    paths
        .filter(|path| name(path).is_some_and(|name| is_of_mpi(&name)))
        .collect()
}

/// However a program ends, no process and no file of it is left. `FARCALL_SOAK_JOBS` sets how often
/// each program is killed, aborts, and loses its front end.
#[test]
fn nothing_is_left_of_a_program_that_was_killed() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give a gang job its own shared memory");
        return;
    }
    let programs = [compiled(), compiled_for_open_mpi()];
    let daemon = Node::start(&["--slice", "20ms", "--slots", "2"]);
    let rounds = std::env::var("FARCALL_SOAK_JOBS");
    let rounds = rounds.map_or(3, |text| text.parse().expect("a number"));
    let before = files();
    for (_folder, program) in programs.iter().flatten() {
        for round in 0..rounds {
            // Killed at any moment, aborted, or without its front end.
            let mut job = daemon.submit(&["-n", "2", program, "100000000"]);
            wait_until("it is there", || !daemon.jobs().is_empty());
            std::thread::sleep(Duration::from_millis(round % 40 * 10));
            let id = daemon.last_job(1);
            daemon.gang(&["kill", &id]).status().expect("runs");
            job.wait().expect("it ends");
            let output = daemon.run(&["-n", "2", program, "1", "abort"]);
            assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
            let mut job = daemon.submit(&["-n", "2", program, "100000000"]);
            wait_until("it runs", || !daemon.children().is_empty());
            std::thread::sleep(Duration::from_millis(round % 40 * 10));
            job.kill().expect("it runs");
            job.wait().expect("it ends");
            wait_until("nothing is left", || {
                daemon.children().is_empty() && files().is_subset(&before)
            });
        }
    }
}

//! Tests unmodified programs of MPI as gang jobs, on one node and on two. They need an MPI compiler
//! of MPICH.

use farcall_system::gang::{Node, lines, text};
use farcall_system::wait_until;
use std::process::Command;
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
    if (argc > 2 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 2) sleep(1000);
    printf("rank %d of %d: %d\n", rank, size, sum);
    MPI_Finalize();
    return 0;
}
"#;

/// The program, or none if there is no compiler.
fn compiled() -> Option<(TempDir, String)> {
    let folder = TempDir::new().expect("a folder");
    let source = folder.path().join("sums.c");
    std::fs::write(&source, PROGRAM).expect("room");
    let program = folder.path().join("sums");
    let mut compiler = Command::new("mpicc.mpich");
    match compiler.arg("-o").arg(&program).arg(&source).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => {
            println!("skipped: there is no mpicc.mpich");
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
    let daemon = Node::start(&["--slice", "20ms", "--slots", "2", "--switch-alone"]);
    let output = daemon.run(&["-n", "2", &program, "300"]);
    assert_eq!(lines(&output), sums(2, 300), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    let output = daemon.run(&["-n", "2", "--mpi", "none", &program, "1"]);
    assert_eq!(lines(&output), ["rank 0 of 1: 0"; 2]);
    let output = daemon.run(&["-n", "2", &program, "1", "abort"]);
    assert_eq!(output.status.code(), Some(7));
    let told = text(&output.stderr);
    assert!(
        told.contains("rank 1 has called MPI_Abort with 7"),
        "{told}"
    );
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
        let output = job.wait_with_output().expect("it ends");
        assert_eq!(lines(&output), sums(2, 100), "{}", text(&output.stderr));
    }
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
        std::thread::sleep(std::time::Duration::from_millis(pause));
        for row in daemon.jobs() {
            let id = row["id"].to_string();
            daemon.gang(&["kill", &id]).status().expect("runs");
        }
        job.wait().expect("it ends");
    }
    let output = daemon.run(&["-n", "2", &program, "10"]);
    assert_eq!(lines(&output), sums(2, 10), "{}", text(&output.stderr));
}

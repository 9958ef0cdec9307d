//! A disk that is slow: it delays durable calls and nothing else. Nothing that was acknowledged is
//! lost, and the log says what everybody waits for.

use super::{FUNCTIONS, connect, fetch, int};
use farcall_client::{Argument, DurableCall, Server};
use farcall_system::{ServerProcess, wait_until};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Each sync takes 200 ms. One takes as long as a disk that hangs, when the file `stall` is there.
const SLOW: &str = "#include <unistd.h>
static int slowly(void) {
    if (unlink(\"stall\") == 0) sleep(10);
    usleep(200000);
    return 0;
}
int fsync(int fd) { (void)fd; return slowly(); }
int fdatasync(int fd) { (void)fd; return slowly(); }
";

fn build(folder: &Path) -> String {
    let (text, library) = (folder.join("slow.c"), folder.join("slow.so"));
    std::fs::write(&text, SLOW).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    assert!(
        compiler
            .arg(&library)
            .arg(&text)
            .status()
            .unwrap()
            .success()
    );
    library.to_str().unwrap().to_owned()
}

fn submit(server: &Server, byte: u8) -> DurableCall {
    let data = vec![byte; 100_000];
    let arguments = &mut [Argument::Skip, Argument::In(&data), int(data.len() as i64)];
    let copy = server.function("copy").unwrap();
    copy.submit(arguments, None).unwrap()
}

#[test]
fn a_slow_disk_delays_durable_calls_alone() {
    let built = farcall_system::server::folder();
    let library = build(built.path());
    let serving = ServerProcess::of(&[FUNCTIONS]).durable().keep_log();
    let mut server = serving.variable("LD_PRELOAD", &library).start();
    let socket = server.socket();
    std::fs::write(server.folder().join("stall"), "").unwrap();
    let (jobs, longest) = std::thread::scope(|scope| {
        let submits = |byte| {
            let socket = &socket;
            scope.spawn(move || (byte, submit(&connect(socket), byte)))
        };
        let threads: Vec<_> = (1..=8).map(submits).collect();
        let plain = connect(&socket).function("nap").unwrap();
        let (mut longest, mut calls) = (Duration::ZERO, 0);
        while threads.iter().any(|thread| !thread.is_finished()) {
            let start = Instant::now();
            plain.call(&mut [int(1)]).unwrap();
            longest = longest.max(start.elapsed());
            calls += 1;
        }
        assert!(calls > 100, "{calls} plain calls");
        let jobs = threads.into_iter().map(|thread| thread.join().unwrap());
        (jobs.collect::<Vec<_>>(), longest)
    });
    assert!(
        longest < Duration::from_secs(5),
        "a plain call took {longest:?}"
    );
    let says = |text: &str| server.log().iter().any(|line| line.contains(text));
    wait_until("the log names the disk", || {
        says("the disk of the state folder")
    });
    let check = |jobs: &[(u8, DurableCall)]| {
        for (byte, job) in jobs {
            assert_eq!(fetch(job, 100_000).unwrap(), vec![*byte; 100_000]);
        }
    };
    check(&jobs);
    server.kill();
    server.restart();
    let again = connect(&server.socket());
    let ids = jobs.iter().map(|(byte, job)| (*byte, again.job(job.id())));
    check(&ids.collect::<Vec<_>>());
}
